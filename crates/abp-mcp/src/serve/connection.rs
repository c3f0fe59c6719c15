//! One connection with a client, whatever carries its messages.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_json::View;
use tokio::sync::{broadcast, mpsc, oneshot};
use tokio::task::AbortHandle;

use super::{Change, ClientHandle, ForeignError, McpAnswer, McpSession, Outgoing, ServedCall, now};
use crate::capabilities::extract_client_capabilities;
use crate::gate::Closed;
use crate::lifecycle::{
    Arrival, Call, CallAnswer, Next, NoResult, Offer, Recipient, ServerLifecycle, Settled,
};
use crate::message::{self, Incoming, MESSAGE_LIMITS, Malformed, Message, Request, RequestId};
use crate::meta::{self, RequestMeta};
use crate::method::{Method, Side};
use crate::param_headers::SaidParams;
use crate::refusal::{self, RpcRefusal};
use crate::state::StateKey;
use crate::subscription::SubscriptionFilter;
use crate::version::{Era, ProtocolVersion};

/// How a connection behaves.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// Whoever is authenticated; empty where nobody is.
    pub principal: String,
    /// Seals what clients carry between rounds.
    pub state_key: StateKey,
    /// How long the client may take to answer.
    pub request_timeout: Duration,
    /// The most requests that are served at once.
    pub max_requests: usize,
}

/// One connection with a client.
#[derive(Clone)]
pub struct McpConnection {
    shared: Arc<Shared>,
}

/// What the tasks of a connection share.
pub(crate) struct Shared {
    pub(crate) options: ConnectionOptions,
    said_params: Option<SaidParams>,
    session: Arc<dyn McpSession>,
    lifecycle: Mutex<ServerLifecycle>,
    /// Requests to the client.
    waiting: Mutex<BTreeMap<RequestId, AnswerSender>>,
    tasks: Mutex<BTreeMap<RequestId, AbortHandle>>,
    /// Forwards changes to a client with a handshake.
    changes: Mutex<Option<AbortHandle>>,
    /// Where what no request is about goes.
    general: Mutex<Option<mpsc::Sender<Outgoing>>>,
    /// The resources that a client with a handshake subscribed to.
    subscribed: Mutex<BTreeSet<String>>,
}

type AnswerSender = oneshot::Sender<Result<String, ForeignError>>;

/// What became of a message.
#[derive(Debug)]
pub(crate) enum Received {
    /// It needs no answer.
    Nothing,
    /// This is the answer.
    Reply(Outgoing),
    /// Its answer goes to the outlet.
    Serving,
}

impl Outgoing {
    pub(crate) fn told(text: String) -> Self {
        Self {
            text,
            status: 200,
            is_answer: false,
        }
    }

    fn answer(text: String, status: u16) -> Self {
        Self {
            text,
            status,
            is_answer: true,
        }
    }
}

impl std::fmt::Debug for McpConnection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpConnection")
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}

impl McpConnection {
    /// A connection on which nothing came yet.
    #[must_use]
    pub fn new(session: Arc<dyn McpSession>, offer: Offer, options: ConnectionOptions) -> Self {
        Self::with_params(session, offer, options, None)
    }

    /// A connection for one request, with the headers that repeat its parameters.
    pub(crate) fn with_params(
        session: Arc<dyn McpSession>,
        offer: Offer,
        options: ConnectionOptions,
        said_params: Option<SaidParams>,
    ) -> Self {
        let key = options.state_key.clone();
        let lifecycle = ServerLifecycle::new(offer, key, options.request_timeout);
        Self {
            shared: Arc::new(Shared {
                options,
                said_params,
                session,
                lifecycle: Mutex::new(lifecycle),
                waiting: Mutex::default(),
                tasks: Mutex::default(),
                changes: Mutex::default(),
                general: Mutex::default(),
                subscribed: Mutex::default(),
            }),
        }
    }

    /// Sets where what no request is about goes; whether nothing was set before.
    pub(crate) fn set_general(&self, outlet: mpsc::Sender<Outgoing>) -> bool {
        let mut general = lock(&self.shared.general);
        let is_free = general.as_ref().is_none_or(mpsc::Sender::is_closed);
        if is_free {
            *general = Some(outlet);
        }
        is_free
    }

    /// The version of a connection with a handshake.
    pub(crate) fn version(&self) -> Option<ProtocolVersion> {
        let lifecycle = self.shared.lifecycle();
        lifecycle.agreement().map(|agreement| agreement.version)
    }

    /// Whether a request is being served that has an end of its own.
    pub(crate) fn is_serving(&self) -> bool {
        let lifecycle = self.shared.lifecycle();
        let tasks = lock(&self.shared.tasks);
        tasks.keys().any(|id| !lifecycle.is_subscription(id))
    }

    /// Ends it: nothing is served and nothing is sent any more.
    pub fn close(&self) {
        self.shared.lifecycle().close();
        for task in std::mem::take(&mut *lock(&self.shared.tasks)).into_values() {
            task.abort();
        }
        if let Some(task) = lock(&self.shared.changes).take() {
            task.abort();
        }
        lock(&self.shared.waiting).clear();
        lock(&self.shared.general).take();
    }

    /// Takes a text. What is about its requests goes to the outlet.
    pub(crate) async fn receive(
        &self,
        bytes: &[u8],
        outlet: &mpsc::Sender<Outgoing>,
    ) -> Vec<Received> {
        let tape = match message::parse(bytes, &MESSAGE_LIMITS) {
            Ok(tape) => tape,
            Err(malformed) => return vec![self.shared.malformed(&malformed)],
        };
        let batches = self.shared.lifecycle().batches();
        let messages = match message::read(&tape, batches) {
            Ok(Incoming::Single(message)) => vec![Ok(message)],
            Ok(Incoming::Batch(messages)) => messages,
            Err(malformed) => vec![Err(malformed)],
        };
        let mut received = Vec::new();
        for message in messages {
            received.push(match message {
                Ok(message) => self.shared.take(&message, outlet).await,
                Err(malformed) => self.shared.malformed(&malformed),
            });
        }
        received
    }
}

impl Shared {
    pub(super) fn lifecycle(&self) -> MutexGuard<'_, ServerLifecycle> {
        lock(&self.lifecycle)
    }

    pub(super) fn await_answer(&self, id: RequestId, sender: AnswerSender) {
        lock(&self.waiting).insert(id, sender);
    }

    pub(super) fn forget(&self, id: &RequestId) {
        lock(&self.waiting).remove(id);
    }

    fn malformed(&self, malformed: &Malformed) -> Received {
        let version = self.lifecycle().agreement().map(|one| one.version);
        let era = version.map_or(Era::Legacy, ProtocolVersion::era);
        let status = malformed.refusal.http_status(era);
        match malformed.answer(version) {
            Some(text) => Received::Reply(Outgoing::answer(text, status)),
            None => Received::Nothing,
        }
    }

    async fn take(
        self: &Arc<Self>,
        message: &Message<'_>,
        outlet: &mpsc::Sender<Outgoing>,
    ) -> Received {
        let capabilities = match message {
            Message::Request(request) if declares(request) => {
                let client = extract_client_capabilities(request.params);
                let version = said_version(request);
                Some(self.session.capabilities(&client, version).await)
            }
            _ => None,
        };
        let arrival = Arrival {
            principal: &self.options.principal,
            now: now(),
        };
        let (next, opened) = {
            let mut lifecycle = self.lifecycle();
            let was_open = lifecycle.agreement().is_some();
            if let Some(capabilities) = capabilities {
                lifecycle.set_capabilities(capabilities);
            }
            let next = lifecycle.on_message(message, arrival);
            (next, !was_open && lifecycle.agreement().is_some())
        };
        if opened {
            self.forward_changes();
        }
        if is_initialized(message) {
            self.ready(outlet);
        }
        self.act(next, outlet).await
    }

    async fn act(self: &Arc<Self>, next: Next<'_>, outlet: &mpsc::Sender<Outgoing>) -> Received {
        match next {
            Next::Send(text) => Received::Reply(Outgoing::answer(text, 200)),
            Next::Refuse(refused) => {
                let status = refused.http_status();
                Received::Reply(Outgoing::answer(refused.to_json(), status))
            }
            Next::Serve(call) => self.serve(&call, outlet).await,
            Next::Listen { id, filter, send } => {
                drop(outlet.send(Outgoing::told(send)).await);
                self.listen(id, &filter, outlet);
                Received::Serving
            }
            Next::Cancel { id } => {
                if let Some(task) = lock(&self.tasks).remove(&id) {
                    task.abort();
                }
                Received::Nothing
            }
            Next::Deliver { method, .. } => {
                if let Some(client) = self.connection_handle(outlet) {
                    self.session.told(method, client);
                }
                Received::Nothing
            }
            Next::Settle(settled) => {
                self.settle(settled);
                Received::Nothing
            }
            Next::Nothing | Next::Lapse { .. } | Next::Open { .. } | Next::Close(_) => {
                Received::Nothing
            }
        }
    }

    async fn serve(self: &Arc<Self>, call: &Call<'_>, outlet: &mpsc::Sender<Outgoing>) -> Received {
        if lock(&self.tasks).len() >= self.options.max_requests {
            let busy = McpAnswer::internal("too many requests at once");
            return match self.answer(&call.id, &busy) {
                Some(outgoing) => Received::Reply(outgoing),
                None => Received::Nothing,
            };
        }
        let served = ServedCall {
            id: call.id.clone(),
            method: call.method,
            params: call.params.map(|params| params.raw().to_owned()),
            agreement: Arc::clone(&call.agreement),
            log_level: call.log_level,
            state: call.state.clone(),
            said_params: self.said_params.clone(),
        };
        let client = ClientHandle {
            shared: Arc::clone(self),
            agreement: Arc::clone(&call.agreement),
            request: Some(call.id.clone()),
            outlet: outlet.clone(),
        };
        let uri = call.params.and_then(|params| params.get("uri"));
        let uri = uri.and_then(View::as_str).map(String::from);
        let (shared, id, method) = (Arc::clone(self), call.id.clone(), call.method);
        let outlet = outlet.clone();
        // The task takes itself off the list, so it must be on it before it can end.
        let mut tasks = lock(&self.tasks);
        let task = tokio::spawn(async move {
            let answer = shared.session.serve(served, client).await;
            if let (Some(uri), McpAnswer::Result(_)) = (uri, &answer) {
                shared.note_subscription(method, uri);
            }
            if let Some(outgoing) = shared.answer(&id, &answer) {
                drop(outlet.send(outgoing).await);
            }
            lock(&shared.tasks).remove(&id);
        });
        tasks.insert(call.id.clone(), task.abort_handle());
        Received::Serving
    }

    fn note_subscription(&self, method: Method, uri: String) {
        match method {
            Method::ResourcesSubscribe => {
                lock(&self.subscribed).insert(uri);
            }
            Method::ResourcesUnsubscribe => {
                lock(&self.subscribed).remove(&uri);
            }
            _ => {}
        }
    }

    /// The message that answers a request; `None` where nobody waits for it.
    fn answer(&self, id: &RequestId, answer: &McpAnswer) -> Option<Outgoing> {
        let mut lifecycle = self.lifecycle();
        let era = lifecycle.era_served(id)?;
        let status = match answer {
            McpAnswer::Refused(refusal) => refusal.http_status(era),
            McpAnswer::Error(error) => refusal::foreign_status(era, error.code),
            McpAnswer::Result(_) => 200,
        };
        match lifecycle.respond(id, answer.as_call_answer()) {
            Ok(text) => Some(Outgoing::answer(text, status)),
            Err(Closed::NobodyWaits) => None,
            Err(closed) => {
                let refusal = closed.refusal(Side::Client);
                let status = refusal.http_status(era);
                let text = lifecycle.respond(id, CallAnswer::Refused(&refusal)).ok()?;
                Some(Outgoing::answer(text, status))
            }
        }
    }

    fn listen(
        self: &Arc<Self>,
        id: RequestId,
        filter: &SubscriptionFilter,
        outlet: &mpsc::Sender<Outgoing>,
    ) {
        let agreement = self.lifecycle().agreement_served(&id);
        let watch = agreement.and_then(|agreement| self.session.watch(&agreement, filter));
        let (shared, outlet) = (Arc::clone(self), outlet.clone());
        let mut changes = self.session.changes();
        let listening = id.clone();
        let mut tasks = lock(&self.tasks);
        let task = tokio::spawn(async move {
            let _watch = watch;
            while let Some(change) = next_change(&mut changes).await {
                let params = change.params();
                let recipient = Recipient::Request(&listening);
                let told = shared
                    .lifecycle()
                    .notify(change.method(), params.as_deref(), recipient);
                // What the filter does not ask for is not told.
                let Ok(text) = told else { continue };
                if outlet.send(Outgoing::told(text)).await.is_err() {
                    break;
                }
            }
        });
        tasks.insert(id, task.abort_handle());
    }

    /// Tells a client with a handshake of changes, as far as it was agreed on.
    fn forward_changes(self: &Arc<Self>) {
        let mut changes = self.session.changes();
        let shared = Arc::downgrade(self);
        let task = tokio::spawn(async move {
            while let Some(change) = next_change(&mut changes).await {
                let Some(shared) = shared.upgrade() else {
                    break;
                };
                shared.tell_change(&change).await;
            }
        });
        *lock(&self.changes) = Some(task.abort_handle());
    }

    async fn tell_change(&self, change: &Change) {
        if let Change::Resource { uri } = change {
            let filter = SubscriptionFilter {
                uris: lock(&self.subscribed).clone(),
                ..SubscriptionFilter::default()
            };
            if !filter.covers(uri) {
                return;
            }
        }
        let params = change.params();
        let told =
            self.lifecycle()
                .notify(change.method(), params.as_deref(), Recipient::Connection);
        let outlet = lock(&self.general).clone();
        if let (Ok(text), Some(outlet)) = (told, outlet) {
            drop(outlet.send(Outgoing::told(text)).await);
        }
    }

    /// The client of a connection with a handshake said that it is ready.
    fn ready(self: &Arc<Self>, outlet: &mpsc::Sender<Outgoing>) {
        if let Some(client) = self.connection_handle(outlet) {
            self.session.told(Method::Initialized, client);
        }
    }

    fn connection_handle(
        self: &Arc<Self>,
        outlet: &mpsc::Sender<Outgoing>,
    ) -> Option<ClientHandle> {
        let agreement = self.lifecycle().agreement().cloned()?;
        let general = lock(&self.general).clone();
        Some(ClientHandle {
            shared: Arc::clone(self),
            agreement,
            request: None,
            outlet: general.unwrap_or_else(|| outlet.clone()),
        })
    }

    fn settle(&self, settled: Settled<'_>) {
        let Some(waiting) = lock(&self.waiting).remove(&settled.id) else {
            return;
        };
        let answer = match settled.outcome {
            Ok(result) => Ok(result.raw().to_owned()),
            Err(NoResult::Error(error)) => Err(ForeignError {
                code: error.code,
                message: error.message.into_owned(),
                data: error.data.map(|data| data.raw().to_owned()),
            }),
            Err(NoResult::Invalid(closed)) => {
                let refusal = RpcRefusal::Internal {
                    what: closed.to_string(),
                };
                Err(ForeignError {
                    code: refusal.code(Era::Legacy),
                    message: refusal.to_string(),
                    data: None,
                })
            }
        };
        // Whoever asked may have stopped waiting.
        drop(waiting.send(answer));
    }
}

/// The next change. Where more came than were taken, the oldest are missed.
async fn next_change(changes: &mut broadcast::Receiver<Change>) -> Option<Change> {
    loop {
        match changes.recv().await {
            Ok(change) => return Some(change),
            Err(broadcast::error::RecvError::Lagged(_)) => {}
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}

/// Whether a request says what its client can do.
fn declares(request: &Request<'_>) -> bool {
    request.known_method() == Some(Method::Initialize) || RequestMeta::is_in(request.params)
}

fn said_version(request: &Request<'_>) -> Option<ProtocolVersion> {
    let params = request.params;
    let said = match request.known_method() {
        Some(Method::Initialize) => params?.get("protocolVersion")?.as_str(),
        _ => meta::protocol_version(params),
    };
    ProtocolVersion::parse(&said?)
}

fn is_initialized(message: &Message<'_>) -> bool {
    let Message::Notification(notification) = message else {
        return false;
    };
    notification.known_method() == Some(Method::Initialized)
}

/// No task panics while it holds a lock; if one did, what it guards is still whole.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
