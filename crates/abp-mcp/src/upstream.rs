//! Being a client: a connection with one server, over pipes or HTTP.
//!
//! Whatever a server does, it does to its own connection only: what it sends is bounded, what it does
//! not answer has a deadline, and when it is gone everybody who waits for it is told.

mod http;
mod http_client;
mod pipe;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abp_core::SandboxReport;
use abp_json::View;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

pub use http::HttpServer;
pub use pipe::{ProgramServer, RunningPrograms};

use crate::gate::Closed;
use crate::lifecycle::{
    Agreement, Breach, CallAnswer, ClientLifecycle, ClientOffer, ClientTimeouts, Next, NoResult,
};
use crate::message::{self, Incoming, MESSAGE_LIMITS, Message, RequestId};
use crate::method::Method;
use crate::serve::{ForeignError, McpAnswer, McpFuture, lock, now};
use http::HttpWire;

/// How often deadlines are looked at.
const TICK: Duration = Duration::from_millis(100);

/// Where a server is.
#[derive(Clone, Debug)]
pub enum ServerAddress {
    /// A program, spoken to by its standard streams.
    Program(Box<ProgramServer>),
    /// An address.
    Http(HttpServer),
}

impl ServerAddress {
    /// The sandbox of a program; `None` for what is no program of ours.
    pub(crate) fn sandbox(&self) -> Option<SandboxReport> {
        match self {
            Self::Program(program) => Some(match &program.sandbox {
                Some(sandbox) => sandbox.report(),
                None => SandboxReport::none(),
            }),
            Self::Http(_) => None,
        }
    }
}

/// A connection with a server. The server ends when nobody holds it any more.
#[derive(Clone)]
pub struct McpUpstream {
    shared: Arc<UpstreamShared>,
    _owner: Arc<Owner>,
}

/// Ends the connection when the last one drops it.
struct Owner(Arc<UpstreamShared>);

pub(crate) struct UpstreamShared {
    lifecycle: Mutex<ClientLifecycle>,
    waiting: Mutex<BTreeMap<RequestId, oneshot::Sender<Outcome>>>,
    opening: Mutex<Option<oneshot::Sender<Result<(), McpUpstreamError>>>>,
    wire: Wire,
    events: mpsc::Sender<UpstreamEvent>,
    ended: Mutex<Option<McpUpstreamError>>,
    ticker: Mutex<Option<AbortHandle>>,
}

pub(crate) enum Wire {
    Lines(pipe::LineWriter),
    Http(HttpWire),
}

type Outcome = Result<String, McpUpstreamError>;

/// What a server does by itself.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// It asks for something; answer with [`McpUpstream::answer`].
    Asks {
        /// The id to answer.
        id: RequestId,
        /// For what.
        method: Method,
        /// With what.
        params: Option<String>,
        /// The request of ours that it asks for, where the transport says so.
        during: Option<RequestId>,
    },
    /// It tells something.
    Tells {
        /// What.
        method: Method,
        /// With what.
        params: Option<String>,
        /// The request of ours that it is about, where the transport says so.
        during: Option<RequestId>,
    },
    /// A request of ours is answered; whoever waits for it is told when this is dropped, after all
    /// that the server told before.
    Answered(AnswerMark),
    /// It is gone.
    Ended,
}

/// Stands for an answer among what a server does. Dropping it lets the answer through.
#[derive(Debug)]
pub struct AnswerMark {
    _passed: oneshot::Sender<()>,
}

/// Why a server does not do what it is asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum McpUpstreamError {
    /// It cannot be started or reached.
    #[error("cannot be reached: {0}")]
    Unreachable(String),
    /// Nothing can be agreed on with it.
    #[error(transparent)]
    Breach(#[from] Breach),
    /// It is gone.
    #[error("the connection has ended: {0}")]
    Ended(String),
    /// It did not answer in time.
    #[error("no answer in time")]
    Timeout,
    /// It may not be asked for this.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// It answered with an error.
    #[error(transparent)]
    Answered(#[from] ForeignError),
    /// Its answer is not one it may give.
    #[error("its answer is invalid: {0}")]
    Invalid(String),
}

/// A request under way; dropping it cancels the request.
pub struct Pending {
    shared: Arc<UpstreamShared>,
    id: RequestId,
    answered: oneshot::Receiver<Outcome>,
    is_settled: bool,
}

impl std::fmt::Debug for McpUpstream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpUpstream").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Pending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pending")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl McpUpstream {
    /// Opens a connection with a server.
    ///
    /// # Errors
    /// Says why there is none.
    pub async fn open(
        address: &ServerAddress,
        offer: ClientOffer,
        timeouts: ClientTimeouts,
        events: mpsc::Sender<UpstreamEvent>,
    ) -> Result<Self, McpUpstreamError> {
        match address {
            ServerAddress::Program(program) => {
                let (reader, writer, keeper) = program.start().await?;
                keeper.keep_until_closed();
                Self::over(reader, writer, offer, timeouts, events).await
            }
            ServerAddress::Http(server) => {
                let wire = Wire::Http(HttpWire::new(server)?);
                Self::start(wire, offer, timeouts, events).finish().await
            }
        }
    }

    /// Opens a connection over two streams, one message per line.
    ///
    /// # Errors
    /// Says why there is none.
    pub async fn over(
        reader: impl AsyncRead + Send + Unpin + 'static,
        writer: impl AsyncWrite + Send + Unpin + 'static,
        offer: ClientOffer,
        timeouts: ClientTimeouts,
        events: mpsc::Sender<UpstreamEvent>,
    ) -> Result<Self, McpUpstreamError> {
        let wire = Wire::Lines(pipe::LineWriter::new(writer));
        let opening = Self::start(wire, offer, timeouts, events);
        pipe::read_lines(reader, Arc::downgrade(&opening.upstream.shared));
        opening.finish().await
    }

    fn start(
        wire: Wire,
        offer: ClientOffer,
        timeouts: ClientTimeouts,
        events: mpsc::Sender<UpstreamEvent>,
    ) -> OpeningUpstream {
        let (opened, is_open) = oneshot::channel();
        let shared = Arc::new(UpstreamShared {
            lifecycle: Mutex::new(ClientLifecycle::new(offer, timeouts)),
            waiting: Mutex::default(),
            opening: Mutex::new(Some(opened)),
            wire,
            events,
            ended: Mutex::default(),
            ticker: Mutex::default(),
        });
        let upstream = Self {
            _owner: Arc::new(Owner(Arc::clone(&shared))),
            shared,
        };
        if let Wire::Http(wire) = &upstream.shared.wire {
            wire.attach(Arc::downgrade(&upstream.shared));
        }
        OpeningUpstream { upstream, is_open }
    }

    /// What was agreed on.
    #[must_use]
    pub fn agreement(&self) -> Option<Arc<Agreement>> {
        lock(&self.shared.lifecycle).agreement().cloned()
    }

    /// Whether the server is gone.
    #[must_use]
    pub fn is_ended(&self) -> bool {
        lock(&self.shared.ended).is_some()
    }

    /// Sends a request.
    ///
    /// # Errors
    /// Says why it cannot be sent.
    pub async fn request(
        &self,
        method: Method,
        params: Option<&str>,
    ) -> Result<Pending, McpUpstreamError> {
        let (pending, text) = self.begin(method, params)?;
        self.send(text).await;
        Ok(pending)
    }

    /// A request that is still to be [sent](Self::send): the server may ask about it at once, so
    /// whoever answers that has to know it before.
    pub(crate) fn begin(
        &self,
        method: Method,
        params: Option<&str>,
    ) -> Result<(Pending, String), McpUpstreamError> {
        let shared = &self.shared;
        if let Some(error) = lock(&shared.ended).clone() {
            return Err(error);
        }
        let (sender, answered) = oneshot::channel();
        let (id, text) = {
            let mut lifecycle = lock(&shared.lifecycle);
            let (id, text) = lifecycle.request(method, params, now())?;
            lock(&shared.waiting).insert(id.clone(), sender);
            (id, text)
        };
        let pending = Pending {
            shared: Arc::clone(shared),
            id,
            answered,
            is_settled: false,
        };
        Ok((pending, text))
    }

    pub(crate) async fn send(&self, text: String) {
        self.shared.send(text).await;
    }

    /// Sends a request and waits for its result.
    ///
    /// # Errors
    /// Says why there is no result.
    pub async fn call(
        &self,
        method: Method,
        params: Option<&str>,
    ) -> Result<String, McpUpstreamError> {
        self.request(method, params).await?.result().await
    }

    /// Tells the server something.
    ///
    /// # Errors
    /// Says why it may not be told.
    pub async fn tell(&self, method: Method, params: Option<&str>) -> Result<(), McpUpstreamError> {
        let text = lock(&self.shared.lifecycle).notify(method, params)?;
        self.shared.send(text).await;
        Ok(())
    }

    /// Answers what the server asked for.
    pub async fn answer(&self, id: &RequestId, answer: &McpAnswer) {
        let text = {
            let mut lifecycle = lock(&self.shared.lifecycle);
            let first = lifecycle.respond(id, answer.as_call_answer());
            first.or_else(|closed| {
                let refusal = closed.refusal(crate::method::Side::Server);
                lifecycle.respond(id, CallAnswer::Refused(&refusal))
            })
        };
        // Where nobody waits any more there is nothing to send.
        if let Ok(text) = text {
            self.shared.send(text).await;
        }
    }
}

struct OpeningUpstream {
    upstream: McpUpstream,
    is_open: oneshot::Receiver<Result<(), McpUpstreamError>>,
}

impl OpeningUpstream {
    async fn finish(self) -> Result<McpUpstream, McpUpstreamError> {
        let shared = &self.upstream.shared;
        *lock(&shared.ticker) = Some(watch_deadlines(shared));
        let next = lock(&shared.lifecycle).open(now());
        shared.act(next, None).await;
        match self.is_open.await {
            Ok(opened) => opened.map(|()| self.upstream),
            Err(_) => Err(McpUpstreamError::Ended("nobody opened it".to_owned())),
        }
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let why = "it is not needed any more".to_owned();
        self.0.end(&McpUpstreamError::Ended(why));
    }
}

impl Pending {
    /// The id of the request.
    #[must_use]
    pub fn id(&self) -> &RequestId {
        &self.id
    }

    /// Waits for the result. May be dropped and called again.
    ///
    /// # Errors
    /// Says why there is no result.
    pub async fn result(&mut self) -> Result<String, McpUpstreamError> {
        let answered = (&mut self.answered).await;
        self.is_settled = true;
        let lost = || Err(McpUpstreamError::Ended("it was lost".to_owned()));
        answered.unwrap_or_else(|_| lost())
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if self.is_settled || lock(&self.shared.waiting).remove(&self.id).is_none() {
            return;
        }
        let (shared, id) = (Arc::clone(&self.shared), self.id.clone());
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        runtime.spawn(async move { shared.cancel(&id).await });
    }
}

impl UpstreamShared {
    /// Takes a text that came from the server.
    ///
    /// Boxed, because taking a message may send one, which is again followed by taking one.
    pub(crate) fn receive<'a>(
        &'a self,
        bytes: &'a [u8],
        during: Option<&'a RequestId>,
    ) -> McpFuture<'a, ()> {
        Box::pin(self.take_text(bytes, during))
    }

    async fn take_text(&self, bytes: &[u8], during: Option<&RequestId>) {
        let Ok(tape) = message::parse(bytes, &MESSAGE_LIMITS) else {
            tracing::warn!(target: "abp.mcp", "a server sent what is not JSON");
            return;
        };
        let batches = lock(&self.lifecycle).batches();
        let messages = match message::read(&tape, batches) {
            Ok(Incoming::Single(message)) => vec![Ok(message)],
            Ok(Incoming::Batch(messages)) => messages,
            Err(malformed) => vec![Err(malformed)],
        };
        for message in messages {
            match message {
                Ok(message) => self.take(&message, during).await,
                Err(malformed) => {
                    tracing::warn!(target: "abp.mcp", problem = %malformed.refusal, "a server sent what is no message");
                    // Whoever waits for it would wait in vain.
                    let waiting = malformed.id.and_then(|id| lock(&self.waiting).remove(&id));
                    let problem = McpUpstreamError::Invalid(malformed.refusal.to_string());
                    drop(waiting.map(|waiting| waiting.send(Err(problem))));
                }
            }
        }
    }

    async fn take(&self, message: &Message<'_>, during: Option<&RequestId>) {
        let next = lock(&self.lifecycle).on_message(message, now());
        self.act(next, during).await;
    }

    async fn act(&self, next: Next<'_>, during: Option<&RequestId>) {
        match next {
            Next::Send(text) => self.send(text).await,
            Next::Refuse(refused) => self.send(refused.to_json()).await,
            Next::Serve(call) => {
                let event = UpstreamEvent::Asks {
                    id: call.id,
                    method: call.method,
                    params: call.params.map(|params| params.raw().to_owned()),
                    during: during.cloned(),
                };
                drop(self.events.send(event).await);
            }
            Next::Deliver { method, params } => {
                let event = UpstreamEvent::Tells {
                    method,
                    params: params.map(|params| params.raw().to_owned()),
                    during: during.cloned(),
                };
                drop(self.events.send(event).await);
            }
            Next::Settle(settled) => {
                let outcome = match settled.outcome {
                    Ok(result) => Ok(self.given(settled.method, result)),
                    Err(NoResult::Error(error)) => Err(McpUpstreamError::Answered(ForeignError {
                        code: error.code,
                        message: error.message.into_owned(),
                        data: error.data.map(|data| data.raw().to_owned()),
                    })),
                    Err(NoResult::Invalid(closed)) => {
                        Err(McpUpstreamError::Invalid(closed.to_string()))
                    }
                };
                self.caught_up().await;
                self.settle(&settled.id, outcome);
            }
            Next::Lapse { id, send, .. } => {
                self.settle(&id, Err(McpUpstreamError::Timeout));
                self.send_cancellation(&id, send).await;
            }
            Next::Open { send } => {
                if let Some(text) = send {
                    self.send(text).await;
                }
                let agreement = lock(&self.lifecycle).agreement().cloned();
                if let (Wire::Http(wire), Some(agreement)) = (&self.wire, agreement) {
                    wire.opened(agreement.version).await;
                }
                if let Some(opening) = lock(&self.opening).take() {
                    drop(opening.send(Ok(())));
                }
            }
            Next::Close(breach) => self.end(&breach.into()),
            Next::Nothing | Next::Listen { .. } | Next::Cancel { .. } => {}
        }
    }

    /// A result as it is given on: tools that may not be used over HTTP are not in it.
    fn given(&self, method: Method, result: View<'_>) -> String {
        match (&self.wire, method) {
            (Wire::Http(wire), Method::ToolsList) => wire.learn(result),
            _ => result.raw().to_owned(),
        }
    }

    /// Whether somebody waits for the answer to a request.
    fn is_awaited(&self, id: &RequestId) -> bool {
        lock(&self.waiting).contains_key(id)
    }

    /// Waits until what the server told before was looked at.
    async fn caught_up(&self) {
        let (_passed, passed) = oneshot::channel();
        let mark = UpstreamEvent::Answered(AnswerMark { _passed });
        if self.events.send(mark).await.is_ok() {
            // It ends by being dropped.
            let _dropped = passed.await;
        }
    }

    fn settle(&self, id: &RequestId, outcome: Outcome) {
        if let Some(waiting) = lock(&self.waiting).remove(id) {
            drop(waiting.send(outcome));
        }
    }

    async fn send(&self, text: String) {
        match &self.wire {
            Wire::Lines(lines) => lines.send(text),
            Wire::Http(wire) => wire.send(text).await,
        }
    }

    async fn cancel(&self, id: &RequestId) {
        let text = lock(&self.lifecycle).cancel(id);
        if let Some(text) = text {
            self.send_cancellation(id, text).await;
        }
    }

    /// Since 2026-07-28 closing the response cancels over HTTP; elsewhere a notification does.
    async fn send_cancellation(&self, id: &RequestId, text: String) {
        match &self.wire {
            Wire::Lines(lines) => lines.send(text),
            Wire::Http(wire) => wire.cancel(id, text).await,
        }
    }

    /// Everybody who waits is told, once.
    pub(crate) fn end(&self, why: &McpUpstreamError) {
        {
            let mut ended = lock(&self.ended);
            if ended.is_some() {
                return;
            }
            *ended = Some(why.clone());
        }
        lock(&self.lifecycle).close();
        if let Some(opening) = lock(&self.opening).take() {
            drop(opening.send(Err(why.clone())));
        }
        for waiting in std::mem::take(&mut *lock(&self.waiting)).into_values() {
            drop(waiting.send(Err(why.clone())));
        }
        if let Some(ticker) = lock(&self.ticker).take() {
            ticker.abort();
        }
        match &self.wire {
            Wire::Lines(lines) => lines.close(),
            Wire::Http(wire) => wire.close(),
        }
        // A full queue has somebody who will notice anyway.
        drop(self.events.try_send(UpstreamEvent::Ended));
    }
}

fn watch_deadlines(shared: &Arc<UpstreamShared>) -> AbortHandle {
    let shared = Arc::downgrade(shared);
    let watching = tokio::spawn(async move {
        let mut ticks = tokio::time::interval(TICK);
        loop {
            ticks.tick().await;
            let Some(shared) = shared.upgrade() else {
                return;
            };
            loop {
                let due = lock(&shared.lifecycle).due(now());
                let Some(next) = due else { break };
                shared.act(next, None).await;
            }
        }
    });
    watching.abort_handle()
}
