//! The gateway for one connection.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use tokio::sync::{broadcast, watch};

use super::emulate::Filling;
use super::fleet::Fleet;
use super::watch::{ListListener, Watching};
use super::{GatewayShared, McpScope, exchange};
use crate::capabilities::{ClientCapabilities, ServerCapabilities};
use crate::lifecycle::Agreement;
use crate::method::Method;
use crate::negotiate::{Downstream, UpstreamServer, negotiate};
use crate::serve::{
    Change, ClientHandle, McpAnswer, McpFuture, McpSession, ServedCall, Watch, lock,
};
use crate::subscription::SubscriptionFilter;
use crate::version::{Era, ProtocolVersion};

/// How many changes may wait for a client.
const CHANGES: usize = 256;

/// The gateway for one connection.
pub(super) struct GatewaySession {
    gateway: Arc<GatewayShared>,
    scope: Arc<McpScope>,
    principal: String,
    /// The connections for a client with a handshake.
    own: Mutex<Option<Arc<Fleet>>>,
    listener: Mutex<Option<ListListener>>,
    changes: broadcast::Sender<Change>,
    /// Ends the forwarding of changes.
    alive: watch::Sender<()>,
    forwarded: Mutex<BTreeSet<usize>>,
}

impl GatewaySession {
    pub(super) fn new(gateway: Arc<GatewayShared>, scope: Arc<McpScope>, principal: &str) -> Self {
        Self {
            gateway,
            scope,
            principal: principal.to_owned(),
            own: Mutex::default(),
            listener: Mutex::default(),
            changes: broadcast::channel(CHANGES).0,
            alive: watch::channel(()).0,
            forwarded: Mutex::default(),
        }
    }

    fn fleet(&self, client: &ClientCapabilities, version: ProtocolVersion) -> Arc<Fleet> {
        let gateway = &self.gateway;
        let client = &client.for_version(version);
        let fresh = || {
            let emulator = Arc::clone(&gateway.emulator);
            let filling = Filling::new(emulator, client, self.scope.roots());
            Fleet::new(gateway.servers.clone(), filling, gateway.info.clone())
        };
        let fleet = match version.era() {
            Era::Modern => self.scope.fleet(&self.principal, client, fresh),
            Era::Legacy => Arc::clone(lock(&self.own).get_or_insert_with(fresh)),
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
        let fleet = self.fleet(client, version);
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
        let negotiation = Arc::new(negotiate(
            &downstream,
            &servers,
            &self.gateway.emulator.routing,
        ));
        self.scope.agreed(&servers, &negotiation);
        negotiation.advertised.clone()
    }

    async fn answer(&self, call: ServedCall, client: ClientHandle) -> McpAnswer {
        let fleet = self.fleet(&call.agreement.client, call.agreement.version);
        match call.method {
            Method::ToolsList
            | Method::PromptsList
            | Method::ResourcesList
            | Method::ResourceTemplatesList => fleet.list(&call, &self.scope).await,
            Method::ToolsCall | Method::PromptsGet => {
                exchange::named(&fleet, &self.scope, &self.gateway.parked, &call, &client).await
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
            Method::Initialized => {
                fleet.set_home(&client);
                // It is told of changes for as long as it is there.
                *lock(&self.listener) = fleet.listen_to_lists();
            }
            Method::RootsListChanged => {
                tokio::spawn(async move { fleet.tell_all(Method::RootsListChanged).await });
            }
            _ => {}
        }
    }

    fn watch(&self, client: &Arc<Agreement>, filter: &SubscriptionFilter) -> Watch {
        let fleet = self.fleet(&client.client, client.version);
        let wants_lists = filter.tools || filter.prompts || filter.resources;
        let listener = wants_lists.then(|| fleet.listen_to_lists());
        let watching = Watching::new(fleet, filter.uris.clone());
        Some(Box::new((watching, listener)))
    }
}
