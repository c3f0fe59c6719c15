//! Sessions that belong together.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use super::fleet::Fleet;
use super::tools::{ServerTool, ToolDesk, ToolRules, ToolTally};
use crate::capabilities::ClientCapabilities;
use crate::negotiate::{Negotiation, UpstreamServer};
use crate::serve::lock;
use crate::version::ProtocolVersion;

/// How many sets of connections are kept for clients without a handshake: of one principal, and of all.
const FLEETS_EACH: usize = 4;
const MAX_FLEETS: usize = 64;

/// Sessions that belong together, as those of one run do: their roots, the connections they share, and
/// what was agreed and asked in them.
///
/// Its connections close when it is dropped and no session is left, or by [`close`](Self::close).
#[derive(Default)]
pub struct McpScope {
    roots: Option<Vec<PathBuf>>,
    /// The connections for clients without a handshake, the one used last at the end.
    fleets: Mutex<Vec<(FleetKey, Arc<Fleet>)>>,
    agreed: Mutex<Option<Arc<Negotiation>>>,
    versions: Mutex<BTreeMap<String, ProtocolVersion>>,
    /// Who decides about tools, besides what is configured.
    pub(super) tools: Option<ToolDesk>,
}

/// Who may share connections: the same principal with the same capabilities.
type FleetKey = (String, String);

impl std::fmt::Debug for McpScope {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpScope")
            .field("roots", &self.roots)
            .finish_non_exhaustive()
    }
}

impl McpScope {
    /// Sessions that work in these directories. Where roots are emulated, servers are told of these
    /// instead of those that are configured.
    #[must_use]
    pub fn with_roots(roots: Vec<PathBuf>) -> Arc<Self> {
        Arc::new(Self {
            roots: Some(roots),
            ..Self::default()
        })
    }

    /// Sessions that work in these directories and use tools by these rules.
    #[must_use]
    pub fn with_rules(roots: Vec<PathBuf>, rules: ToolRules) -> Arc<Self> {
        Arc::new(Self {
            roots: Some(roots),
            tools: Some(ToolDesk::new(rules)),
            ..Self::default()
        })
    }

    /// How often each tool was called, where there are rules for them.
    #[must_use]
    pub fn tallies(&self) -> BTreeMap<ServerTool, ToolTally> {
        let tools = self.tools.as_ref();
        tools.map(ToolDesk::tallies).unwrap_or_default()
    }

    /// The directories that its sessions work in, where they are not those of everybody.
    #[must_use]
    pub fn roots(&self) -> Option<&[PathBuf]> {
        self.roots.as_deref()
    }

    /// What was agreed on last, flag by flag and server by server; `None` before the first client came.
    #[must_use]
    pub fn negotiation(&self) -> Option<Arc<Negotiation>> {
        lock(&self.agreed).clone()
    }

    /// The version that was last spoken with each server, also with one that is gone since.
    #[must_use]
    pub fn versions(&self) -> BTreeMap<String, ProtocolVersion> {
        lock(&self.versions).clone()
    }

    /// Closes the connections that are shared. Those of sessions with a handshake close with them.
    pub fn close(&self) {
        lock(&self.fleets).clear();
    }

    pub(super) fn agreed(&self, servers: &[UpstreamServer], negotiation: &Arc<Negotiation>) {
        let spoken = servers.iter().map(|one| (one.name.clone(), one.version));
        lock(&self.versions).extend(spoken);
        *lock(&self.agreed) = Some(Arc::clone(negotiation));
    }

    /// The shared connections for a client without a handshake.
    pub(super) fn fleet(
        &self,
        principal: &str,
        client: &ClientCapabilities,
        fresh: impl FnOnce() -> Arc<Fleet>,
    ) -> Arc<Fleet> {
        let key = (principal.to_owned(), client.to_json());
        let mut fleets = lock(&self.fleets);
        if let Some(at) = fleets.iter().position(|(one, _)| *one == key) {
            let found = fleets.remove(at);
            let fleet = Arc::clone(&found.1);
            fleets.push(found);
            return fleet;
        }
        // Clients choose what they declare: one principal with ever new capabilities ends its own
        // connections, not those of others.
        let count = |name: &str| fleets.iter().filter(|((one, _), _)| one == name).count();
        let gives_way = match (count(principal) >= FLEETS_EACH, fleets.len() >= MAX_FLEETS) {
            (true, _) => fleets.iter().position(|((one, _), _)| one == principal),
            (false, true) => {
                let most = fleets.iter().map(|((name, _), _)| count(name)).max();
                let of_most = |((name, _), _): &(FleetKey, _)| Some(count(name)) == most;
                fleets.iter().position(of_most)
            }
            (false, false) => None,
        };
        if let Some(at) = gives_way {
            fleets.remove(at);
        }
        let fleet = fresh();
        fleets.push((key, Arc::clone(&fleet)));
        fleet
    }
}
