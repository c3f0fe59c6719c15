//! Negotiation flag by flag: what a client gets from one or many servers, and what they get from it.
//!
//! A flag is native where both ends have it, emulated where this end fills the gap by itself and may,
//! and unsupported otherwise, with the reason. Nothing is advertised that is not one of the first two.

mod drift;
mod names;
mod outcome;
mod report;

use std::collections::{BTreeMap, BTreeSet};

pub use drift::{Drift, ToolChange, ToolPart, ToolPrints};
pub use names::{RoutedName, route_names};
pub use outcome::{AnyFlag, Emulation, FlagOutcome, Provenance, Reason, Standing};

use crate::capabilities::{
    CapabilityFlag, ClientCapabilities, ClientFlag, ServerCapabilities, ServerFlag,
};
use crate::version::ProtocolVersion;

/// The client of a negotiation.
#[derive(Clone, Debug)]
pub struct Downstream {
    /// The version it speaks.
    pub version: ProtocolVersion,
    /// What it declared.
    pub capabilities: ClientCapabilities,
}

/// One server of a negotiation.
#[derive(Clone, Debug)]
pub struct UpstreamServer {
    /// What it is called here. Names are not shared.
    pub name: String,
    /// The version it speaks.
    pub version: ProtocolVersion,
    /// What it declared.
    pub capabilities: ServerCapabilities,
}

/// What this end can pass on, and what it may fill in.
#[derive(Clone, Debug)]
pub struct Routing {
    /// The flags of servers that it can pass on to clients.
    pub server_flags: BTreeSet<ServerFlag>,
    /// The flags of clients that it can pass on to servers.
    pub client_flags: BTreeSet<ClientFlag>,
    /// The extensions that it can pass on.
    pub extensions: BTreeSet<String>,
    /// What it may fill in, each with its limits in words. Nothing is unless it is named.
    pub emulations: BTreeMap<Emulation, String>,
}

/// The outcome for every flag, and what follows from it.
#[derive(Clone, Debug)]
pub struct Negotiation {
    /// Every flag, servers' first.
    pub outcomes: Vec<FlagOutcome>,
    /// What the client is told that it can use.
    pub advertised: ServerCapabilities,
    /// What each server is told that it can ask for.
    pub declared: BTreeMap<String, ClientCapabilities>,
}

impl Default for Routing {
    /// Everything but tasks and extensions is passed on, nothing is filled in.
    fn default() -> Self {
        let is_task = |path: &[&str]| path.first() == Some(&"tasks");
        let server = ServerFlag::ALL.iter().copied();
        let client = ClientFlag::ALL.iter().copied();
        Self {
            server_flags: server.filter(|flag| !is_task(flag.path())).collect(),
            client_flags: client.filter(|flag| !is_task(flag.path())).collect(),
            extensions: BTreeSet::new(),
            emulations: BTreeMap::new(),
        }
    }
}

/// Negotiates every flag between a client and servers.
#[must_use]
pub fn negotiate(
    client: &Downstream,
    servers: &[UpstreamServer],
    routing: &Routing,
) -> Negotiation {
    let table = Table {
        client,
        servers,
        routing,
    };
    let server_flags = ServerFlag::ALL.iter().map(|flag| table.server_flag(*flag));
    let client_flags = ClientFlag::ALL.iter().map(|flag| table.client_flag(*flag));
    let extensions = table.extension_ids();
    let extensions = extensions.into_iter().map(|id| table.extension(id));
    let outcomes: Vec<_> = server_flags.chain(client_flags).chain(extensions).collect();
    Negotiation {
        advertised: table.advertised(&outcomes),
        declared: table.declared(&outcomes),
        outcomes,
    }
}

/// The parties of a negotiation.
struct Table<'a> {
    client: &'a Downstream,
    servers: &'a [UpstreamServer],
    routing: &'a Routing,
}

/// What one server has to do with a flag.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Share {
    Native,
    Emulated,
    Without,
}

impl Table<'_> {
    fn server_flag(&self, flag: ServerFlag) -> FlagOutcome {
        let emulation = self.allowed(Emulation::of_server(flag));
        let provenance = self.provenance(None, |server| {
            let declared = server.capabilities.flags_in(server.version);
            let has_family = family(flag).is_some_and(|family| declared.contains(&family));
            match emulation {
                _ if declared.contains(&flag) => Share::Native,
                Some(_) if has_family => Share::Emulated,
                _ => Share::Without,
            }
        });
        let standing = match self.standing(&provenance, emulation) {
            None => unsupported(Reason::NobodyDeclares),
            Some(_) if !flag.span().contains(self.client.version) => {
                unsupported(Reason::ClientVersion)
            }
            Some(_) if !is_routed(&self.routing.server_flags, flag) => {
                unsupported(Reason::NotRouted)
            }
            Some(standing) => standing,
        };
        FlagOutcome {
            flag: AnyFlag::Server(flag),
            standing,
            provenance,
        }
    }

    fn client_flag(&self, flag: ClientFlag) -> FlagOutcome {
        let client = self.client;
        let is_declared = client.capabilities.declares(flag);
        let in_version = flag.span().contains(client.version);
        let is_routed = is_routed(&self.routing.client_flags, flag);
        let emulation = self.allowed(Emulation::of_client(flag));
        let share = match emulation {
            _ if is_declared && in_version && is_routed => Share::Native,
            Some(_) => Share::Emulated,
            None => Share::Without,
        };
        let provenance = self.provenance(Some(is_declared), |server| {
            match flag.span().contains(server.version) {
                true => share,
                false => Share::Without,
            }
        });
        let standing = match self.standing(&provenance, emulation) {
            Some(standing) => standing,
            None if share != Share::Without => unsupported(Reason::ServerVersions),
            None if !is_declared => unsupported(Reason::NobodyDeclares),
            None if !in_version => unsupported(Reason::ClientVersion),
            None => unsupported(Reason::NotRouted),
        };
        FlagOutcome {
            flag: AnyFlag::Client(flag),
            standing,
            provenance,
        }
    }

    fn extension(&self, id: &str) -> FlagOutcome {
        let settings = self
            .servers
            .iter()
            .filter_map(|one| one.capabilities.extension(id));
        let settings: BTreeSet<_> = settings.collect();
        let by_client = self.client.capabilities.extension(id).is_some();
        let standing = match settings.len() {
            0 => unsupported(Reason::NoServer),
            _ if !by_client => unsupported(Reason::NotDeclaredByClient),
            _ if !self.routing.extensions.contains(id) => unsupported(Reason::NotRouted),
            1 => Standing::Native,
            _ => unsupported(Reason::SettingsDiffer),
        };
        let provenance = self.provenance(Some(by_client), |server| {
            match server.capabilities.extension(id) {
                Some(_) => Share::Native,
                None => Share::Without,
            }
        });
        FlagOutcome {
            flag: AnyFlag::Extension(id.to_owned()),
            standing,
            provenance,
        }
    }

    fn extension_ids(&self) -> BTreeSet<&str> {
        let servers = self.servers.iter();
        let of_servers = servers.flat_map(|server| server.capabilities.extensions());
        of_servers
            .chain(self.client.capabilities.extensions())
            .collect()
    }

    fn advertised(&self, outcomes: &[FlagOutcome]) -> ServerCapabilities {
        let had = outcomes.iter().filter(|outcome| outcome.is_had());
        let flags = had.clone().filter_map(|outcome| match outcome.flag {
            AnyFlag::Server(flag) => Some(flag),
            AnyFlag::Client(_) | AnyFlag::Extension(_) => None,
        });
        let ids = had.filter_map(FlagOutcome::extension);
        ids.fold(ServerCapabilities::of(flags), |kept, id| {
            let mut servers = self.servers.iter().map(|server| &server.capabilities);
            let owner = servers.find(|server| server.extension(id).is_some());
            owner.map_or(kept.clone(), |owner| kept.with_extension(id, owner))
        })
    }

    fn declared(&self, outcomes: &[FlagOutcome]) -> BTreeMap<String, ClientCapabilities> {
        let declared = |server: &UpstreamServer| {
            let had = outcomes.iter().filter(|outcome| outcome.is_had());
            let flags = had.clone().filter_map(|outcome| match outcome.flag {
                // Alone it would mean forms; each mode brings it along.
                AnyFlag::Client(ClientFlag::Elicitation) => None,
                AnyFlag::Client(flag) if flag.span().contains(server.version) => Some(flag),
                _ => None,
            });
            let ids = had.filter_map(FlagOutcome::extension);
            let ids = ids.filter(|id| server.capabilities.extension(id).is_some());
            ids.fold(ClientCapabilities::of(flags), |kept, id| {
                kept.with_extension(id, &self.client.capabilities)
            })
        };
        let servers = self.servers.iter();
        servers
            .map(|server| (server.name.clone(), declared(server)))
            .collect()
    }

    /// How a flag can be had by what the servers have to do with it.
    fn standing(&self, provenance: &Provenance, emulation: Option<Emulation>) -> Option<Standing> {
        let emulated = |by| Standing::Emulated {
            by,
            limits: self
                .routing
                .emulations
                .get(&by)
                .cloned()
                .unwrap_or_default(),
        };
        match (provenance.native.is_empty(), provenance.emulated.is_empty()) {
            (false, _) => Some(Standing::Native),
            (true, false) => emulation.map(emulated),
            (true, true) => None,
        }
    }

    fn allowed(&self, emulation: Option<Emulation>) -> Option<Emulation> {
        emulation.filter(|one| self.routing.emulations.contains_key(one))
    }

    fn provenance(
        &self,
        by_client: Option<bool>,
        share: impl Fn(&UpstreamServer) -> Share,
    ) -> Provenance {
        let group = |wanted| {
            let servers = self.servers.iter().filter(|server| share(server) == wanted);
            servers
                .map(|server| (server.name.clone(), server.version))
                .collect()
        };
        Provenance {
            client_version: self.client.version,
            by_client,
            native: group(Share::Native),
            emulated: group(Share::Emulated),
            without: group(Share::Without),
        }
    }
}

fn unsupported(reason: Reason) -> Standing {
    Standing::Unsupported { reason }
}

/// A flag is passed on together with what it is written under.
fn is_routed<F: CapabilityFlag>(routed: &BTreeSet<F>, flag: F) -> bool {
    routed.contains(&flag) && family(flag).is_none_or(|family| routed.contains(&family))
}

/// The flag that a flag is written under.
fn family<F: CapabilityFlag>(flag: F) -> Option<F> {
    let (name, below) = flag.path().split_first()?;
    let mut all = F::ALL.iter().copied();
    all.find(|other| !below.is_empty() && other.path() == [*name])
}
