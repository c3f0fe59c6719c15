//! This end of a connection with a client.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abp_json::{Tape, View};

use super::{
    Agreement, Asked, Call, CallAnswer, Next, Offer, Profile, cancelled_id, object, refuse,
};
use crate::capabilities::{ClientCapabilities, ServerCapabilities, TASKS_EXTENSION};
use crate::gate::{Closed, Occasion};
use crate::message::{self, Batches, Message, Request, RequestId};
use crate::meta::{self, Implementation, LoggingLevel, RequestMeta};
use crate::method::{Method, Need, Side};
use crate::refusal::{RpcRefusal, shorten};
use crate::state::{Binding, StateFault, StateKey};
use crate::subscription::SubscriptionFilter;
use crate::version::{self, Era};

/// Who sent a message, and when it came.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// Whoever is authenticated; empty where nobody is.
    pub principal: &'a str,
    /// When, counted from the Unix epoch.
    pub now: Duration,
}

/// Whom a notification is for.
#[derive(Clone, Copy, Debug)]
pub enum Recipient<'a> {
    /// The client at the other end, up to 2025-11-25.
    Connection,
    /// Whoever waits for the answer to this request; a subscription is such a request.
    Request(&'a RequestId),
}

/// This end of a connection with a client.
#[derive(Debug)]
pub struct ServerLifecycle {
    offer: Offer,
    state_key: StateKey,
    request_timeout: Duration,
    phase: Phase,
    serving: BTreeMap<RequestId, Serving>,
    asked: Asked,
}

/// Requests since 2026-07-28 need no phase; they are served in each.
#[derive(Debug)]
enum Phase {
    /// Nothing was agreed on.
    Opening,
    /// The client was told what was agreed on.
    Answered(Arc<Agreement>),
    /// The client said that it is ready.
    Operating(Arc<Agreement>),
    Closed,
}

#[derive(Debug)]
struct Serving {
    method: Method,
    agreement: Arc<Agreement>,
    log_level: Option<LoggingLevel>,
    /// What is told, where the request is a subscription.
    filter: Option<SubscriptionFilter>,
}

enum Event<'m, 't> {
    Stateless(&'m Request<'t>),
    Initialize(&'m Request<'t>),
    Ping(&'m Request<'t>),
    Request(&'m Request<'t>),
    Initialized,
    Cancelled(Option<View<'t>>),
    Notification(Method, Option<View<'t>>),
    UnknownNotification,
    Response(&'m message::Response<'t>),
}

impl Serving {
    fn occasion(&self) -> Occasion<'_> {
        match &self.filter {
            Some(filter) => Occasion::Subscription(filter),
            None => Occasion::During {
                log_level: self.log_level,
            },
        }
    }
}

impl ServerLifecycle {
    /// A connection on which nothing came yet. Requests to the client wait as long as
    /// `request_timeout` for an answer.
    #[must_use]
    pub fn new(offer: Offer, state_key: StateKey, request_timeout: Duration) -> Self {
        Self {
            offer,
            state_key,
            request_timeout,
            phase: Phase::Opening,
            serving: BTreeMap::new(),
            asked: Asked::default(),
        }
    }

    /// What was agreed on by a handshake.
    #[must_use]
    pub fn agreement(&self) -> Option<&Arc<Agreement>> {
        match &self.phase {
            Phase::Answered(agreement) | Phase::Operating(agreement) => Some(agreement),
            Phase::Opening | Phase::Closed => None,
        }
    }

    /// What was agreed on for a request that is being served.
    #[must_use]
    pub fn agreement_served(&self, id: &RequestId) -> Option<Arc<Agreement>> {
        let serving = self.serving.get(id)?;
        Some(Arc::clone(&serving.agreement))
    }

    /// Whether a request is a subscription, which ends when the client says so.
    pub(crate) fn is_subscription(&self, id: &RequestId) -> bool {
        let serving = self.serving.get(id);
        serving.is_some_and(|serving| serving.filter.is_some())
    }

    pub(crate) fn era_served(&self, id: &RequestId) -> Option<Era> {
        Some(self.serving.get(id)?.agreement.version.era())
    }

    /// Whether several messages may come as one array.
    #[must_use]
    pub fn batches(&self) -> Batches {
        match self.agreement() {
            Some(agreement) if agreement.version.has_batches() => Batches::Read,
            _ => Batches::Refused,
        }
    }

    /// Changes what the server can do from now on. What was agreed on by a handshake stays.
    pub fn set_capabilities(&mut self, capabilities: ServerCapabilities) {
        self.offer.capabilities = capabilities;
    }

    /// The connection is closed: nothing is served and nothing is sent any more.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
        self.serving.clear();
        self.asked = Asked::default();
    }

    /// Takes a message.
    pub fn on_message<'t>(&mut self, message: &Message<'t>, arrival: Arrival<'_>) -> Next<'t> {
        if let Message::Request(request) = message
            && self.serving.contains_key(&request.id)
        {
            let era = self.era_of(request);
            return refuse(&request.id, RpcRefusal::IdInUse, era);
        }
        match (&self.phase, self.event(message)) {
            (Phase::Closed, _) | (_, Event::UnknownNotification) => Next::Nothing,
            (_, Event::Response(response)) => {
                let settled = self.asked.settle(response);
                settled.map_or(Next::Nothing, Next::Settle)
            }
            (_, Event::Cancelled(params)) => self.cancel(params),
            (_, Event::Stateless(request)) => {
                let served = self.serve_stateless(request, arrival);
                served.unwrap_or_else(|refusal| refuse(&request.id, refusal, Era::Modern))
            }
            (_, Event::Ping(request)) => Next::Send(message::result(&request.id, "{}")),
            (Phase::Opening, Event::Initialize(request)) => {
                let answered = self.initialize(request);
                answered.unwrap_or_else(|refusal| refuse(&request.id, refusal, Era::Legacy))
            }
            (Phase::Answered(_) | Phase::Operating(_), Event::Initialize(request)) => {
                refuse(&request.id, RpcRefusal::AlreadyInitialized, Era::Legacy)
            }
            (Phase::Opening, Event::Request(request)) => {
                let method = shorten(&request.method);
                let refusal = RpcRefusal::NotInitialized { method };
                refuse(&request.id, refusal, Era::Legacy)
            }
            (Phase::Answered(agreement) | Phase::Operating(agreement), Event::Request(request)) => {
                let agreement = Arc::clone(agreement);
                self.serve(request, &agreement)
            }
            (Phase::Answered(agreement), Event::Initialized) => {
                self.phase = Phase::Operating(Arc::clone(agreement));
                Next::Nothing
            }
            (Phase::Opening | Phase::Operating(_), Event::Initialized)
            | (Phase::Opening, Event::Notification(..)) => Next::Nothing,
            (
                Phase::Answered(agreement) | Phase::Operating(agreement),
                Event::Notification(method, params),
            ) => match agreement.gate.inbound(Side::Client, method, params) {
                Ok(()) => Next::Deliver { method, params },
                Err(_) => Next::Nothing,
            },
        }
    }

    /// Answers a request that was to be served.
    ///
    /// # Errors
    /// Says why the answer may not be sent. The request still waits for one, unless nobody waits;
    /// [`Closed::refusal`] for [`Side::Client`] is an answer that fits.
    pub fn respond(&mut self, id: &RequestId, answer: CallAnswer<'_>) -> Result<String, Closed> {
        let serving = self.serving.get(id).ok_or(Closed::NobodyWaits)?;
        let version = serving.agreement.version;
        let text = match answer.split(id, version) {
            Ok(result) => self.write_result(id, serving, result)?,
            Err(error) => error,
        };
        self.serving.remove(id);
        Ok(text)
    }

    /// Sends a request to the client, up to 2025-11-25.
    ///
    /// # Errors
    /// Says why it may not be sent.
    pub fn request(
        &mut self,
        method: Method,
        params: Option<&str>,
        now: Duration,
    ) -> Result<(RequestId, String), Closed> {
        let ((Phase::Operating(agreement), _) | (Phase::Answered(agreement), Method::Ping)) =
            (&self.phase, method)
        else {
            return Err(Closed::NotOpen);
        };
        let tape = object(params)?;
        agreement
            .gate
            .request(Side::Server, method, tape.as_ref().map(Tape::root))?;
        let id = self.asked.add(method, now + self.request_timeout);
        let text = message::request(&id, method.as_str(), params);
        Ok((id, text))
    }

    /// Tells the client something.
    ///
    /// # Errors
    /// Says why it may not be told.
    pub fn notify(
        &self,
        method: Method,
        params: Option<&str>,
        recipient: Recipient<'_>,
    ) -> Result<String, Closed> {
        let tape = object(params)?;
        let view = tape.as_ref().map(Tape::root);
        let (agreement, occasion, tagged) = match recipient {
            Recipient::Connection => (self.told(method)?, Occasion::Unasked, None),
            Recipient::Request(id) => {
                let serving = self.serving.get(id).ok_or(Closed::NobodyWaits)?;
                let tagged = || meta::tag_subscription(view, id);
                (
                    &serving.agreement,
                    serving.occasion(),
                    serving.filter.is_some().then(tagged),
                )
            }
        };
        let gate = &agreement.gate;
        gate.notification(Side::Server, method, view, occasion)?;
        let params = tagged.as_deref().or(params);
        Ok(message::notification(method.as_str(), params))
    }

    /// The next thing that is due. To be asked until there is none.
    pub fn due(&mut self, now: Duration) -> Option<Next<'static>> {
        self.asked.lapse(now)
    }

    /// When something will be due.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        self.asked.next_due()
    }

    fn event<'m, 't>(&self, message: &'m Message<'t>) -> Event<'m, 't> {
        match message {
            Message::Response(response) => Event::Response(response),
            Message::Request(request) if self.era_of(request) == Era::Modern => {
                Event::Stateless(request)
            }
            Message::Request(request) => match request.known_method() {
                Some(Method::Initialize) => Event::Initialize(request),
                Some(Method::Ping) => Event::Ping(request),
                _ => Event::Request(request),
            },
            Message::Notification(notification) => match notification.known_method() {
                Some(Method::Initialized) => Event::Initialized,
                Some(Method::Cancelled) => Event::Cancelled(notification.params),
                Some(method) => Event::Notification(method, notification.params),
                None => Event::UnknownNotification,
            },
        }
    }

    /// The era of a request, by what it says, its method, and what is spoken here at all.
    fn era_of(&self, request: &Request<'_>) -> Era {
        let speaks = |era| version::newest(era, &self.offer.versions).is_some();
        let method = request.known_method();
        let is_modern = RequestMeta::is_in(request.params)
            || method.is_some_and(Method::is_modern_only)
            || !speaks(Era::Legacy) && method != Some(Method::Initialize);
        if speaks(Era::Modern) && is_modern {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    fn initialize<'t>(&mut self, request: &Request<'t>) -> Result<Next<'t>, RpcRefusal> {
        let member = |key| request.params.and_then(|params| params.get(key));
        let missing = |what| RpcRefusal::invalid_params(format!("initialize needs {what}"));
        let requested = member("protocolVersion").and_then(View::as_str);
        let requested = requested.ok_or_else(|| missing("protocolVersion"))?;
        let client = member("capabilities").and_then(ClientCapabilities::read);
        let client = client.ok_or_else(|| missing("capabilities"))?;
        let peer = member("clientInfo").and_then(Implementation::read);
        let peer = peer.ok_or_else(|| missing("clientInfo with name and version"))?;
        let version = version::answer_initialize(&requested, &self.offer.versions)
            .ok_or_else(|| self.offer.unsupported(&requested))?;
        let server = self.offer.capabilities.for_version(version);
        let result = self.offer.initialize_result(version, &server);
        let agreement = Agreement::new(version, client, server, Some(peer));
        self.phase = Phase::Answered(Arc::new(agreement));
        Ok(Next::Send(message::result(&request.id, &result)))
    }

    fn serve<'t>(&mut self, request: &Request<'t>, agreement: &Arc<Agreement>) -> Next<'t> {
        let Some(method) = request.known_method() else {
            let refusal = RpcRefusal::unknown_method(&request.method);
            return refuse(&request.id, refusal, Era::Legacy);
        };
        let gate = &agreement.gate;
        match gate.inbound(Side::Client, method, request.params) {
            Ok(()) => self.start(request, method, agreement, None, None),
            Err(closed) => match (self.offer.profile, method.listed_member()) {
                (Profile::Compat, Some(member)) => {
                    let empty = format!("{{\"{member}\":[]}}");
                    Next::Send(message::result(&request.id, &empty))
                }
                _ => refuse(&request.id, closed.refusal(Side::Client), Era::Legacy),
            },
        }
    }

    fn serve_stateless<'t>(
        &mut self,
        request: &Request<'t>,
        arrival: Arrival<'_>,
    ) -> Result<Next<'t>, RpcRefusal> {
        let meta = RequestMeta::read(request.params)?;
        let spoken = &self.offer.versions;
        let version = version::choose(Era::Modern, spoken, [meta.version.as_str()])
            .ok_or_else(|| self.offer.unsupported(&meta.version))?;
        let method = request.known_method();
        let method = method.ok_or_else(|| RpcRefusal::unknown_method(&request.method))?;
        let server = self.offer.capabilities.for_version(version);
        let agreement = Agreement::new(version, meta.capabilities, server, meta.client);
        agreement
            .gate
            .inbound(Side::Client, method, request.params)
            .map_err(|closed| closed.refusal(Side::Client))?;
        let agreement = Arc::new(agreement);
        match method {
            Method::Discover => {
                let result = self.offer.discover_result(&agreement.server);
                Ok(Next::Send(message::result(&request.id, &result)))
            }
            Method::SubscriptionsListen => self.listen(request, &agreement),
            _ => {
                let state = self.open_state(method, request.params, arrival)?;
                Ok(self.start(request, method, &agreement, meta.log_level, state))
            }
        }
    }

    fn start<'t>(
        &mut self,
        request: &Request<'t>,
        method: Method,
        agreement: &Arc<Agreement>,
        log_level: Option<LoggingLevel>,
        state: Option<String>,
    ) -> Next<'t> {
        let serving = Serving {
            method,
            agreement: Arc::clone(agreement),
            log_level,
            filter: None,
        };
        self.serving.insert(request.id.clone(), serving);
        Next::Serve(Call {
            id: request.id.clone(),
            method,
            params: request.params,
            agreement: Arc::clone(agreement),
            log_level,
            state,
        })
    }

    fn listen<'t>(
        &mut self,
        request: &Request<'t>,
        agreement: &Arc<Agreement>,
    ) -> Result<Next<'t>, RpcRefusal> {
        let method = Method::SubscriptionsListen;
        let asked = SubscriptionFilter::read(request.params);
        let asked =
            asked.ok_or_else(|| RpcRefusal::invalid_params("notifications is no object"))?;
        let declared = agreement.client.extension(TASKS_EXTENSION);
        if !asked.tasks.is_empty() && declared.is_none() {
            let closed = Closed::Undeclared {
                method,
                need: Need::Extension(TASKS_EXTENSION),
                by: Side::Client,
            };
            return Err(closed.refusal(Side::Client));
        }
        let filter = asked.honoured(&agreement.gate);
        let serving = Serving {
            method,
            agreement: Arc::clone(agreement),
            log_level: None,
            filter: Some(filter.clone()),
        };
        self.serving.insert(request.id.clone(), serving);
        let acknowledged = Method::SubscriptionsAcknowledged.as_str();
        let params = meta::acknowledgement(&filter, &request.id);
        Ok(Next::Listen {
            id: request.id.clone(),
            filter,
            send: message::notification(acknowledged, Some(&params)),
        })
    }

    /// A state is only ever given for the requests that may ask for input; elsewhere it is nothing.
    fn open_state(
        &self,
        method: Method,
        params: Option<View<'_>>,
        arrival: Arrival<'_>,
    ) -> Result<Option<String>, RpcRefusal> {
        let Some((params, sealed)) = params
            .filter(|_| method.may_require_input())
            .and_then(|params| Some((params, params.get("requestState")?)))
        else {
            return Ok(None);
        };
        let binding = Binding {
            principal: arrival.principal,
            method,
            params,
        };
        let sealed = sealed.as_str().ok_or(StateFault::Malformed)?;
        let state = self.state_key.open(&binding, &sealed, arrival.now)?;
        Ok(Some(state))
    }

    /// A request that is cancelled is not answered; one that is answered can no longer be.
    fn cancel<'t>(&mut self, params: Option<View<'_>>) -> Next<'t> {
        match cancelled_id(params) {
            Some(id) if self.serving.remove(&id).is_some() => Next::Cancel { id },
            _ => Next::Nothing,
        }
    }

    /// The agreement under which the other end may be told something. Before it is ready, that is
    /// log messages only.
    fn told(&self, method: Method) -> Result<&Arc<Agreement>, Closed> {
        match (&self.phase, method) {
            (Phase::Operating(agreement), _) | (Phase::Answered(agreement), Method::Log) => {
                Ok(agreement)
            }
            _ => Err(Closed::NotOpen),
        }
    }

    fn write_result(
        &self,
        id: &RequestId,
        serving: &Serving,
        result: &str,
    ) -> Result<String, Closed> {
        let tape = object(Some(result))?;
        let view = tape.as_ref().map(Tape::root).ok_or(Closed::NotAnObject)?;
        serving.agreement.gate.result(serving.method, view)?;
        if serving.agreement.version.era() == Era::Legacy {
            return Ok(message::result(id, result));
        }
        let subscription = serving.filter.as_ref().map(|_| id);
        let stamped = meta::stamp_result(serving.method, view, &self.offer.info, subscription);
        Ok(message::result(id, &stamped))
    }
}
