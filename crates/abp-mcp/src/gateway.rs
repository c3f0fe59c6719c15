//! Many servers as one: lists merged, calls routed, both eras bridged.
//!
//! A client with a handshake has a [`Fleet`] of its own: connections with every server, opened with
//! what that client declared. Clients without share one where they declare the same and are the same
//! principal. So no server learns of capabilities that its client does not have.

mod exchange;
mod fleet;
mod json;
mod lists;
mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abp_glob::GlobList;
use tokio::sync::{broadcast, watch};

use crate::capabilities::{ClientCapabilities, ServerCapabilities};
use crate::lifecycle::{Agreement, ClientTimeouts};
use crate::meta::Implementation;
use crate::method::Method;
use crate::negotiate::{Downstream, Routing, UpstreamServer, negotiate};
use crate::serve::{
    Change, ClientHandle, McpAnswer, McpFuture, McpSession, ServedCall, Watch, lock,
};
use crate::upstream::ServerAddress;
use crate::version::{Era, ProtocolVersion};
use fleet::Fleet;
use rounds::Parked;

/// How many sets of connections are kept for clients without a handshake.
const MAX_FLEETS: usize = 8;
/// How many changes may wait for a client.
const CHANGES: usize = 256;

/// A server behind the gateway.
#[derive(Clone, Debug)]
pub struct GatewayServer {
    /// What it is called here.
    pub name: String,
    /// Where it is.
    pub address: ServerAddress,
    /// The versions that are spoken with it.
    pub versions: Vec<ProtocolVersion>,
    /// How long it may take.
    pub timeouts: ClientTimeouts,
    /// How long it may take until it can be used.
    pub open_timeout: Duration,
    /// The tools that may be used, by its own names.
    pub allow_tools: GlobList,
    /// The tools that may not; wins.
    pub deny_tools: GlobList,
}

/// Many servers as one.
#[derive(Clone)]
pub struct McpGateway {
    shared: Arc<GatewayShared>,
}

struct GatewayShared {
    servers: Vec<GatewayServer>,
    info: Implementation,
    /// The connections for clients without a handshake, the one used last at the end.
    fleets: Mutex<Vec<(FleetKey, Arc<Fleet>)>>,
    parked: Parked,
}

/// Who may share connections: the same principal with the same capabilities.
type FleetKey = (String, String);

/// The gateway for one connection.
struct GatewaySession {
    gateway: Arc<GatewayShared>,
    principal: String,
    /// The connections for a client with a handshake.
    own: Mutex<Option<Arc<Fleet>>>,
    changes: broadcast::Sender<Change>,
    /// Ends the forwarding of changes.
    alive: watch::Sender<()>,
    forwarded: Mutex<BTreeSet<usize>>,
}

impl std::fmt::Debug for McpGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpGateway")
            .field("servers", &self.shared.servers)
            .finish_non_exhaustive()
    }
}

impl GatewayServer {
    /// Whether a tool may be used.
    pub(crate) fn admits(&self, tool: &str) -> bool {
        self.allow_tools.is_match(tool) && !self.deny_tools.is_match(tool)
    }
}

impl McpGateway {
    /// A gateway in front of servers. Nothing is opened yet.
    #[must_use]
    pub fn new(servers: Vec<GatewayServer>, info: Implementation) -> Self {
        Self {
            shared: Arc::new(GatewayShared {
                servers,
                info,
                fleets: Mutex::default(),
                parked: Parked::default(),
            }),
        }
    }

    /// The session of a new connection, of whoever is authenticated.
    #[must_use]
    pub fn session(&self, principal: &str) -> Arc<dyn McpSession> {
        Arc::new(GatewaySession {
            gateway: Arc::clone(&self.shared),
            principal: principal.to_owned(),
            own: Mutex::default(),
            changes: broadcast::channel(CHANGES).0,
            alive: watch::channel(()).0,
            forwarded: Mutex::default(),
        })
    }

    /// Closes every connection that is shared. Those of sessions close with them.
    pub fn close(&self) {
        lock(&self.shared.fleets).clear();
        self.shared.parked.clear();
    }
}

impl GatewayShared {
    /// The shared connections for a client without a handshake.
    fn shared_fleet(&self, principal: &str, client: &ClientCapabilities) -> Arc<Fleet> {
        let key = (principal.to_owned(), client.to_json());
        let mut fleets = lock(&self.fleets);
        if let Some(at) = fleets.iter().position(|(one, _)| *one == key) {
            let found = fleets.remove(at);
            let fleet = Arc::clone(&found.1);
            fleets.push(found);
            return fleet;
        }
        let fleet = Fleet::new(self.servers.clone(), client.clone(), self.info.clone());
        fleets.push((key, Arc::clone(&fleet)));
        if fleets.len() > MAX_FLEETS {
            fleets.remove(0);
        }
        fleet
    }
}

impl GatewaySession {
    fn fleet(&self, client: &ClientCapabilities, era: Era) -> Arc<Fleet> {
        let fleet = match era {
            Era::Modern => self.gateway.shared_fleet(&self.principal, client),
            Era::Legacy => {
                let mut own = lock(&self.own);
                let gateway = &self.gateway;
                let fresh = || {
                    Fleet::new(
                        gateway.servers.clone(),
                        client.clone(),
                        gateway.info.clone(),
                    )
                };
                Arc::clone(own.get_or_insert_with(fresh))
            }
        };
        self.forward(&fleet);
        fleet
    }

    /// Passes changes of a fleet on to this connection, once.
    fn forward(&self, fleet: &Arc<Fleet>) {
        let is_new = lock(&self.forwarded).insert(Arc::as_ptr(fleet).addr());
        if !is_new {
            return;
        }
        let mut from = fleet.changes();
        let to = self.changes.clone();
        let mut alive = self.alive.subscribe();
        tokio::spawn(async move {
            loop {
                let change = tokio::select! {
                    change = from.recv() => change,
                    _ = alive.changed() => return,
                };
                match change {
                    Ok(change) => drop(to.send(change)),
                    Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(broadcast::error::RecvError::Closed) => return,
                }
            }
        });
    }

    async fn offered(
        &self,
        client: &ClientCapabilities,
        version: Option<ProtocolVersion>,
    ) -> ServerCapabilities {
        let version = version.unwrap_or(ProtocolVersion::LATEST_LEGACY);
        let fleet = self.fleet(client, version.era());
        let servers: Vec<_> = fleet
            .open_all()
            .await
            .into_iter()
            .map(|(name, agreement)| UpstreamServer {
                name,
                version: agreement.version,
                capabilities: agreement.server.clone(),
            })
            .collect();
        let downstream = Downstream {
            version,
            capabilities: client.clone(),
        };
        negotiate(&downstream, &servers, &Routing::default()).advertised
    }

    async fn answer(&self, call: ServedCall, client: ClientHandle) -> McpAnswer {
        let era = call.agreement.version.era();
        let fleet = self.fleet(&call.agreement.client, era);
        match call.method {
            Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList => fleet.list(&call).await,
            Method::ToolsCall | Method::PromptsGet => {
                exchange::named(&fleet, &self.gateway.parked, &call, &client).await
            }
            Method::ResourcesRead => {
                exchange::resource(&fleet, &self.gateway.parked, &call, &client).await
            }
            Method::Complete => exchange::completion(&fleet, &call, &client).await,
            Method::SetLevel => fleet.set_level(call.params.as_deref()).await,
            Method::ResourcesSubscribe => fleet.subscribe(call.params.as_deref()).await,
            Method::ResourcesUnsubscribe => fleet.unsubscribe(call.params.as_deref()).await,
            other => McpAnswer::internal(format!("{other} is not routed")),
        }
    }
}

impl McpSession for GatewaySession {
    fn capabilities<'a>(
        &'a self,
        client: &'a ClientCapabilities,
        version: Option<ProtocolVersion>,
    ) -> McpFuture<'a, ServerCapabilities> {
        Box::pin(self.offered(client, version))
    }

    fn serve(&self, call: ServedCall, client: ClientHandle) -> McpFuture<'_, McpAnswer> {
        Box::pin(self.answer(call, client))
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn told(&self, method: Method, client: ClientHandle) {
        let Some(fleet) = lock(&self.own).clone() else {
            return;
        };
        match method {
            Method::Initialized => fleet.set_home(&client),
            Method::RootsListChanged => {
                tokio::spawn(async move { fleet.tell_all(Method::RootsListChanged).await });
            }
            _ => {}
        }
    }

    fn watch(&self, client: &Arc<Agreement>, uris: &BTreeSet<String>) -> Watch {
        let fleet = self.gateway.shared_fleet(&self.principal, &client.client);
        self.forward(&fleet);
        let watching: BTreeMap<_, _> = uris
            .iter()
            .map(|uri| (uri.clone(), json::object(&[("uri", uri)])))
            .collect();
        let subscribing = Arc::clone(&fleet);
        let params: Vec<_> = watching.values().cloned().collect();
        tokio::spawn(async move {
            for params in params {
                subscribing.subscribe(Some(&params)).await;
            }
        });
        Some(Box::new(fleet::Watching::new(fleet, watching)))
    }
}
