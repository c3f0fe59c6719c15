//! Connections with every server, for one client or for several that are alike.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::{Duration, Instant};

use tokio::sync::{Semaphore, broadcast, mpsc};
use tokio::task::JoinSet;

use super::emulate::{Filling, StandIn, Used};
use super::lists::Lists;
use super::watch::Watches;
use super::{GatewayServer, json};
use crate::capabilities::ServerFlag;
use crate::lifecycle::{Agreement, ClientOffer};
use crate::message::RequestId;
use crate::meta::Implementation;
use crate::method::Method;
use crate::serve::{Change, ClientHandle, McpAnswer, NoAnswer, WeakClient, lock};
use crate::subscription::SubscriptionFilter;
use crate::upstream::{McpUpstream, Pending, UpstreamEvent};
use crate::version::Era;

/// How many things that a server did may wait to be looked at.
const EVENTS: usize = 256;
const CHANGES: usize = 256;
/// How long after a failure a server is left alone.
const RETRY: Duration = Duration::from_secs(5);

/// Connections with every server.
pub(super) struct Fleet {
    pub(super) slots: Vec<Arc<Slot>>,
    /// What is declared and filled in for its client.
    pub(super) filling: Filling,
    info: Implementation,
    changes: broadcast::Sender<Change>,
    /// The client with a handshake, for what no request is about.
    home: Mutex<Option<WeakClient>>,
    routes: Mutex<BTreeMap<u64, Route>>,
    last_route: AtomicU64,
    /// The log messages that a client with a handshake wants.
    level: Mutex<Option<String>>,
    pub(super) watches: Watches,
    /// Whoever begins or ends a subscription has it.
    pub(super) turn: Semaphore,
}

/// One server of a fleet.
pub(super) struct Slot {
    pub(super) server: GatewayServer,
    readiness: Mutex<Readiness>,
    /// Whoever opens the server has it.
    turn: Semaphore,
    up: Mutex<Option<McpUpstream>>,
    pub(super) lists: Lists,
    /// Tells of changed lists, since 2026-07-28.
    listening: Mutex<Option<Pending>>,
}

/// What came of opening a server.
#[derive(Clone)]
enum Readiness {
    Untried,
    /// It was opened; it may have ended since.
    Opened,
    /// It is being opened, and nobody waits.
    Opening,
    Failed {
        at: Instant,
        why: String,
    },
}

impl Readiness {
    fn of(opened: &Result<McpUpstream, String>) -> Self {
        match opened {
            Ok(_) => Self::Opened,
            Err(why) => Self::Failed {
                at: Instant::now(),
                why: why.clone(),
            },
        }
    }
}

/// A request that is with a server, and whose it is.
pub(super) struct Route {
    pub(super) server: String,
    pub(super) upstream_id: RequestId,
    pub(super) client: ClientHandle,
    /// What the client calls its progress.
    pub(super) token: Option<String>,
    pub(super) asks: mpsc::Sender<Ask>,
    pub(super) is_parked: bool,
    pub(super) used: Arc<Used>,
}

/// Something that a server asks a client for.
#[derive(Clone, Debug)]
pub(super) struct Ask {
    pub(super) id: RequestId,
    pub(super) method: Method,
    pub(super) params: Option<String>,
}

impl Fleet {
    pub(super) fn new(
        servers: Vec<GatewayServer>,
        filling: Filling,
        info: Implementation,
    ) -> Arc<Self> {
        let slot = |server| {
            Arc::new(Slot {
                server,
                readiness: Mutex::new(Readiness::Untried),
                turn: Semaphore::new(1),
                up: Mutex::default(),
                lists: Lists::default(),
                listening: Mutex::default(),
            })
        };
        Arc::new(Self {
            slots: servers.into_iter().map(slot).collect(),
            filling,
            info,
            changes: broadcast::channel(CHANGES).0,
            home: Mutex::default(),
            routes: Mutex::default(),
            last_route: AtomicU64::new(0),
            level: Mutex::default(),
            watches: Watches::default(),
            turn: Semaphore::new(1),
        })
    }

    pub(super) fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    pub(super) fn changes_sender(&self) -> broadcast::Sender<Change> {
        self.changes.clone()
    }

    pub(super) fn set_home(&self, client: &ClientHandle) {
        *lock(&self.home) = Some(client.downgrade());
    }

    /// Opens what is not open, and says what was agreed on with each server that can be used.
    pub(super) async fn open_all(self: &Arc<Self>) -> Vec<(String, Arc<Agreement>)> {
        let mut opening = JoinSet::new();
        for slot in self.slots.iter().filter(|slot| slot.current().is_none()) {
            let (fleet, slot) = (Arc::clone(self), Arc::clone(slot));
            opening.spawn(async move { fleet.upstream(&slot).await.is_ok() });
        }
        opening.join_all().await;
        let agreed = self.slots.iter().filter_map(|slot| {
            let agreement = slot.current()?.agreement()?;
            Some((slot.server.name.clone(), agreement))
        });
        agreed.collect()
    }

    /// The connection with a server, opened if need be. Only the first time, and after it has ended,
    /// somebody waits for that: one that cannot be opened is tried again in the background.
    pub(super) async fn upstream(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
    ) -> Result<McpUpstream, String> {
        if let Some(upstream) = slot.current() {
            return Ok(upstream);
        }
        // The semaphore is never closed.
        let _turn = slot.turn.acquire().await;
        if let Some(upstream) = slot.current() {
            return Ok(upstream);
        }
        let readiness = lock(&slot.readiness).clone();
        let why = match readiness {
            Readiness::Untried | Readiness::Opened => {
                let opened = self.open_in_time(slot).await;
                *lock(&slot.readiness) = Readiness::of(&opened);
                return opened;
            }
            Readiness::Opening => return Err("it is being opened again".to_owned()),
            Readiness::Failed { at, why } if at.elapsed() < RETRY => return Err(why),
            Readiness::Failed { why, .. } => why,
        };
        *lock(&slot.readiness) = Readiness::Opening;
        let (fleet, slot) = (Arc::clone(self), Arc::clone(slot));
        tokio::spawn(async move {
            let opened = fleet.open_in_time(&slot).await;
            *lock(&slot.readiness) = Readiness::of(&opened);
            if opened.is_ok() {
                fleet.everything_changed();
            }
        });
        Err(why)
    }

    async fn open_in_time(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<McpUpstream, String> {
        let limit = slot.server.open_timeout;
        let opened = tokio::time::timeout(limit, self.open(slot)).await;
        let opened = opened.unwrap_or_else(|_| Err("it was not ready in time".to_owned()));
        if let Err(why) = &opened {
            let server = &slot.server.name;
            tracing::warn!(target: "abp.mcp", server, %why, "an MCP server cannot be used");
        }
        opened
    }

    fn everything_changed(&self) {
        for change in [Change::Tools, Change::Prompts, Change::Resources] {
            // Where nobody listens there is nobody to tell.
            drop(self.changes.send(change));
        }
    }

    async fn open(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<McpUpstream, String> {
        let (sender, events) = mpsc::channel(EVENTS);
        let offer = ClientOffer {
            versions: slot.server.versions.clone(),
            capabilities: self.filling.declared.clone(),
            info: self.info.clone(),
        };
        let server = &slot.server;
        let opened = McpUpstream::open(&server.address, offer, server.timeouts, sender).await;
        let upstream = opened.map_err(|error| error.to_string())?;
        slot.lists.forget_all();
        *lock(&slot.up) = Some(upstream.clone());
        tokio::spawn(follow(Arc::downgrade(self), Arc::downgrade(slot), events));
        slot.listen(&upstream).await;
        Ok(upstream)
    }

    /// A number that no request of this fleet had.
    pub(super) fn number(&self) -> u64 {
        self.last_route.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(super) fn enter(&self, number: u64, route: Route) {
        lock(&self.routes).insert(number, route);
    }

    pub(super) fn leave(&self, number: u64) {
        lock(&self.routes).remove(&number);
    }

    /// A request waits for its client, or goes on with another round of it.
    pub(super) fn park(&self, number: u64, client: Option<ClientHandle>) {
        if let Some(route) = lock(&self.routes).get_mut(&number) {
            route.is_parked = client.is_none();
            if let Some(client) = client {
                route.client = client;
            }
        }
    }

    pub(super) fn level(&self) -> Option<String> {
        lock(&self.level).clone()
    }

    pub(super) async fn set_level(self: &Arc<Self>, params: Option<&str>) -> McpAnswer {
        let Some(level) = json::member(params, "level") else {
            return McpAnswer::invalid("logging/setLevel needs a level");
        };
        *lock(&self.level) = Some(level.clone());
        for slot in &self.slots {
            slot.set_level(&level).await;
        }
        McpAnswer::Result("{}".to_owned())
    }

    /// Tells every server that may be told.
    pub(super) async fn tell_all(&self, method: Method) {
        for slot in &self.slots {
            if let Some(upstream) = slot.current() {
                // A server to which this means nothing is not told.
                drop(upstream.tell(method, None).await);
            }
        }
    }

    /// Takes what a server did by itself.
    async fn take(self: &Arc<Self>, slot: &Arc<Slot>, event: UpstreamEvent) {
        match event {
            UpstreamEvent::Asks {
                id,
                method,
                params,
                during,
            } => {
                let ask = Ask { id, method, params };
                self.take_ask(slot, ask, during.as_ref()).await;
            }
            UpstreamEvent::Tells {
                method,
                params,
                during,
            } => self.take_notice(slot, method, params.as_deref(), during.as_ref()),
            UpstreamEvent::Answered(mark) => drop(mark),
            UpstreamEvent::Ended => {
                let server = &slot.server.name;
                tracing::warn!(target: "abp.mcp", server, "an MCP server is gone");
                slot.lists.forget_all();
                self.everything_changed();
            }
        }
    }

    async fn take_ask(self: &Arc<Self>, slot: &Arc<Slot>, ask: Ask, during: Option<&RequestId>) {
        let Some(upstream) = slot.current() else {
            return;
        };
        let stand_in = self.filling.stand_in(ask.method, ask.params.as_deref());
        if let Some(stand_in) = stand_in {
            self.fill_in(slot, upstream, ask, stand_in, during);
            return;
        }
        let asks = self.with_route(slot, during, |route| route.asks.clone());
        if let Some(asks) = asks
            && asks.try_send(ask.clone()).is_ok()
        {
            return;
        }
        let home = lock(&self.home).as_ref().and_then(WeakClient::upgrade);
        tokio::spawn(async move {
            let answer = match home {
                Some(client) => asked(client.ask(ask.method, ask.params.as_deref()).await),
                None => McpAnswer::internal("no client can be asked now"),
            };
            upstream.answer(&ask.id, &answer).await;
        });
    }

    /// Answers a question in the place of the client, for as long as the request that it is about goes
    /// on.
    fn fill_in(
        &self,
        slot: &Slot,
        upstream: McpUpstream,
        ask: Ask,
        stand_in: Arc<StandIn>,
        during: Option<&RequestId>,
    ) {
        let used = self.with_route(slot, during, |route| Arc::clone(&route.used));
        let (server, of_request) = (slot.server.name.clone(), used.clone());
        let answering = tokio::spawn(async move {
            let params = ask.params.as_deref();
            let answer = match (&*stand_in, of_request) {
                // What nobody asked for is not paid for.
                (StandIn::Model(_), None) => {
                    McpAnswer::internal("servers sample only while they serve a request")
                }
                (stand_in, used) => {
                    let used = used.unwrap_or_default();
                    stand_in.answer(&server, params, &used).await
                }
            };
            upstream.answer(&ask.id, &answer).await;
        });
        if let Some(used) = used {
            used.answering(answering.abort_handle());
        }
    }

    fn take_notice(
        &self,
        slot: &Slot,
        method: Method,
        params: Option<&str>,
        during: Option<&RequestId>,
    ) {
        // Where nobody listens there is nobody to tell.
        let changed = |change| drop(self.changes.send(change));
        match method {
            Method::ToolsListChanged | Method::PromptsListChanged => {
                slot.lists.forget_all();
                changed(match method {
                    Method::ToolsListChanged => Change::Tools,
                    _ => Change::Prompts,
                });
            }
            Method::ResourcesListChanged => {
                slot.lists.forget_all();
                changed(Change::Resources);
            }
            Method::ResourceUpdated => {
                if let Some(uri) = json::member(params, "uri") {
                    changed(Change::Resource { uri });
                }
            }
            Method::Progress => self.take_progress(slot, params),
            Method::Log => {
                let route = self.with_route(slot, during, |route| route.client.clone());
                let home = || lock(&self.home).as_ref().and_then(WeakClient::upgrade);
                if let (Some(client), Some(params)) = (route.or_else(home), params) {
                    drop(client.tell(Method::Log, params));
                }
            }
            _ => {}
        }
    }

    fn take_progress(&self, slot: &Slot, params: Option<&str>) {
        let told = json::read(params, |params| {
            let number = params.get("progressToken")?.as_u64()?;
            let routes = lock(&self.routes);
            let route = routes.get(&number)?;
            let token = route.token.as_deref()?;
            let is_own = route.server == slot.server.name;
            let told = json::replaced(params, &[("progressToken", Some(token))]);
            is_own.then(|| (route.client.clone(), told))
        });
        if let Some((client, told)) = told.flatten() {
            drop(client.tell(Method::Progress, &told));
        }
    }

    /// The request that something of a server is about: the one that the transport names, else the
    /// newest that does not wait for its client.
    fn with_route<T>(
        &self,
        slot: &Slot,
        during: Option<&RequestId>,
        take: impl FnOnce(&Route) -> T,
    ) -> Option<T> {
        let routes = lock(&self.routes);
        let mut newest_first = routes.values().rev();
        let found = newest_first.find(|route| {
            let is_meant = match during {
                Some(id) => route.upstream_id == *id,
                None => !route.is_parked,
            };
            is_meant && route.server == slot.server.name
        });
        found.map(take)
    }
}

impl Slot {
    pub(super) fn current(&self) -> Option<McpUpstream> {
        let up = lock(&self.up);
        up.as_ref().filter(|upstream| !upstream.is_ended()).cloned()
    }

    pub(super) fn has(&self, flag: ServerFlag) -> bool {
        let agreement = self.current().and_then(|upstream| upstream.agreement());
        agreement.is_some_and(|agreement| agreement.gate().server_has(flag))
    }

    /// Asks a server without a handshake to tell of changed lists.
    async fn listen(&self, upstream: &McpUpstream) {
        if is_legacy(upstream) {
            return;
        }
        let filter = SubscriptionFilter {
            tools: self.has(ServerFlag::ToolsListChanged),
            prompts: self.has(ServerFlag::PromptsListChanged),
            resources: self.has(ServerFlag::ResourcesListChanged),
            ..SubscriptionFilter::default()
        };
        if filter == SubscriptionFilter::default() {
            return;
        }
        let params = format!("{{\"notifications\":{}}}", filter.to_json());
        let listening = upstream
            .request(Method::SubscriptionsListen, Some(&params))
            .await;
        *lock(&self.listening) = listening.ok();
    }

    pub(super) async fn set_level(&self, level: &str) {
        let Some(upstream) = self.current().filter(is_legacy) else {
            return;
        };
        if self.has(ServerFlag::Logging) {
            let params = json::object(&[("level", level)]);
            // A server that does not know the level logs what it did before.
            drop(upstream.call(Method::SetLevel, Some(&params)).await);
        }
    }
}

/// What a client answered, for the server that asked.
pub(super) fn asked(answered: Result<String, NoAnswer>) -> McpAnswer {
    match answered {
        Ok(result) => McpAnswer::Result(result),
        Err(NoAnswer::Error(error)) => McpAnswer::Error(error),
        Err(other) => McpAnswer::internal(other.to_string()),
    }
}

pub(super) fn is_legacy(upstream: &McpUpstream) -> bool {
    let agreement = upstream.agreement();
    agreement.is_some_and(|agreement| agreement.version.era() == Era::Legacy)
}

/// Looks at what a server does until one of the two is gone.
async fn follow(fleet: Weak<Fleet>, slot: Weak<Slot>, mut events: mpsc::Receiver<UpstreamEvent>) {
    while let Some(event) = events.recv().await {
        let (Some(fleet), Some(slot)) = (fleet.upgrade(), slot.upgrade()) else {
            return;
        };
        fleet.take(&slot, event).await;
    }
}
