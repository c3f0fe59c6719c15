//! This end of a connection with a server.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use abp_json::{Tape, View};

use super::{
    Agreement, Asked, Breach, Call, CallAnswer, ClientOffer, Next, NoResult, Settled, cancelled,
    cancelled_id, object, refuse,
};
use crate::capabilities::ServerCapabilities;
use crate::gate::{Closed, Occasion};
use crate::message::{self, Batches, Message, Request, RequestId, Response, RpcError};
use crate::meta::{self, Implementation};
use crate::method::{Method, Side};
use crate::refusal::{RpcRefusal, code, shorten};
use crate::version::{self, Era, ProtocolVersion};

/// How long a server may take.
#[derive(Clone, Copy, Debug)]
pub struct ClientTimeouts {
    /// To say whether it is modern. A server that does not know the question may stay silent.
    pub probe: Duration,
    /// To answer `initialize`.
    pub initialize: Duration,
    /// To answer any other request.
    pub request: Duration,
}

/// This end of a connection with a server.
#[derive(Debug)]
pub struct ClientLifecycle {
    offer: ClientOffer,
    timeouts: ClientTimeouts,
    phase: Phase,
    serving: BTreeSet<RequestId>,
    asked: Asked,
}

#[derive(Debug)]
enum Phase {
    /// Nothing was sent.
    Idle,
    /// `server/discover` or `initialize` was sent.
    Opening(Opening),
    Operating(Arc<Agreement>),
    Closed,
}

#[derive(Clone, Debug)]
struct Opening {
    id: RequestId,
    /// The version that was asked for; its era says by which method.
    version: ProtocolVersion,
    until: Duration,
    attempt: Attempt,
}

/// A server that refuses a version and names another is asked for that, and then no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Attempt {
    First,
    Second,
}

enum Event<'m, 't> {
    /// The answer to what opens the connection.
    Opened(&'m Response<'t>),
    Response(&'m Response<'t>),
    Ping(&'m Request<'t>),
    Request(&'m Request<'t>),
    Cancelled(Option<View<'t>>),
    Notification(Method, Option<View<'t>>),
    UnknownNotification,
}

impl ClientTimeouts {
    /// 10 seconds for the question, 30 for the handshake, a minute for anything else.
    pub const USUAL: Self = Self {
        probe: Duration::from_secs(10),
        initialize: Duration::from_secs(30),
        request: Duration::from_secs(60),
    };
}

impl ClientLifecycle {
    /// A connection on which nothing was sent yet.
    #[must_use]
    pub fn new(offer: ClientOffer, timeouts: ClientTimeouts) -> Self {
        Self {
            offer,
            timeouts,
            phase: Phase::Idle,
            serving: BTreeSet::new(),
            asked: Asked::default(),
        }
    }

    /// What was agreed on.
    #[must_use]
    pub fn agreement(&self) -> Option<&Arc<Agreement>> {
        match &self.phase {
            Phase::Operating(agreement) => Some(agreement),
            Phase::Idle | Phase::Opening(_) | Phase::Closed => None,
        }
    }

    /// Whether several messages may come as one array.
    #[must_use]
    pub fn batches(&self) -> Batches {
        match self.agreement() {
            Some(agreement) if agreement.version.has_batches() => Batches::Read,
            _ => Batches::Refused,
        }
    }

    /// Opens the connection: by a question where modern versions are spoken, else by a handshake.
    /// Once opened, there is nothing to do.
    pub fn open(&mut self, now: Duration) -> Next<'static> {
        let spoken = &self.offer.versions;
        match (&self.phase, version::newest(Era::Modern, spoken)) {
            (Phase::Idle, Some(version)) => self.ask(version, now, Attempt::First),
            (Phase::Idle, None) => self.fall_back(now),
            (Phase::Opening(_) | Phase::Operating(_) | Phase::Closed, _) => Next::Nothing,
        }
    }

    /// The connection is closed: nothing is served and nothing is sent any more.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
        self.serving.clear();
        self.asked = Asked::default();
    }

    /// Takes a message.
    pub fn on_message<'t>(&mut self, message: &Message<'t>, now: Duration) -> Next<'t> {
        match (&self.phase, self.event(message)) {
            (Phase::Idle | Phase::Closed, _) | (_, Event::UnknownNotification) => Next::Nothing,
            (Phase::Opening(opening), Event::Opened(response)) => {
                let opening = opening.clone();
                match opening.version.era() {
                    Era::Modern => self.on_discovered(&opening, response, now),
                    Era::Legacy => self.on_initialized(&opening, response, now),
                }
            }
            (_, Event::Opened(_))
            | (
                Phase::Opening(_),
                Event::Response(_) | Event::Cancelled(_) | Event::Notification(..),
            ) => Next::Nothing,
            (Phase::Opening(_), Event::Ping(request)) => {
                Next::Send(message::result(&request.id, "{}"))
            }
            (Phase::Opening(opening), Event::Request(request)) => {
                let method = shorten(&request.method);
                let era = opening.version.era();
                refuse(&request.id, RpcRefusal::NotInitialized { method }, era)
            }
            (Phase::Operating(agreement), Event::Ping(request))
                if agreement.version.era() == Era::Legacy =>
            {
                Next::Send(message::result(&request.id, "{}"))
            }
            (Phase::Operating(agreement), Event::Ping(request) | Event::Request(request)) => {
                let agreement = Arc::clone(agreement);
                self.serve(request, &agreement)
            }
            (Phase::Operating(agreement), Event::Response(response)) => {
                let agreement = Arc::clone(agreement);
                self.settle(response, &agreement)
            }
            (Phase::Operating(_), Event::Cancelled(params)) => match cancelled_id(params) {
                Some(id) if self.serving.remove(&id) => Next::Cancel { id },
                _ => Next::Nothing,
            },
            (Phase::Operating(agreement), Event::Notification(method, params)) => {
                match agreement.gate.inbound(Side::Server, method, params) {
                    Ok(()) => Next::Deliver { method, params },
                    Err(_) => Next::Nothing,
                }
            }
        }
    }

    /// Answers a request that was to be served.
    ///
    /// # Errors
    /// Says why the answer may not be sent.
    pub fn respond(&mut self, id: &RequestId, answer: CallAnswer<'_>) -> Result<String, Closed> {
        let version = self.agreement().ok_or(Closed::NotOpen)?.version;
        if !self.serving.contains(id) {
            return Err(Closed::NobodyWaits);
        }
        let text = match answer.split(id, version) {
            Ok(result) => {
                object(Some(result))?;
                message::result(id, result)
            }
            Err(error) => error,
        };
        self.serving.remove(id);
        Ok(text)
    }

    /// Sends a request to the server.
    ///
    /// # Errors
    /// Says why it may not be sent.
    pub fn request(
        &mut self,
        method: Method,
        params: Option<&str>,
        now: Duration,
    ) -> Result<(RequestId, String), Closed> {
        let tape = object(params)?;
        let view = tape.as_ref().map(Tape::root);
        let agreement = self.agreement().ok_or(Closed::NotOpen)?;
        agreement.gate.request(Side::Client, method, view)?;
        let stamped = self.offer.stamp(agreement.version, view);
        let until = match method {
            // It is answered when nothing more is told.
            Method::SubscriptionsListen => Duration::MAX,
            _ => now + self.timeouts.request,
        };
        let id = self.asked.add(method, until);
        let params = stamped.as_deref().or(params);
        let text = message::request(&id, method.as_str(), params);
        Ok((id, text))
    }

    /// Waits no longer for the answer to a request; this says so to the server.
    pub fn cancel(&mut self, id: &RequestId) -> Option<String> {
        self.asked.waiting.remove(id)?;
        Some(cancelled(id, "nobody waits any more"))
    }

    /// Tells the server something.
    ///
    /// # Errors
    /// Says why it may not be told.
    pub fn notify(&self, method: Method, params: Option<&str>) -> Result<String, Closed> {
        let tape = object(params)?;
        let gate = self.agreement().ok_or(Closed::NotOpen)?.gate();
        gate.notification(
            Side::Client,
            method,
            tape.as_ref().map(Tape::root),
            Occasion::Unasked,
        )?;
        Ok(message::notification(method.as_str(), params))
    }

    /// The next thing that is due. To be asked until there is none.
    pub fn due(&mut self, now: Duration) -> Option<Next<'static>> {
        match &self.phase {
            Phase::Opening(opening) if now >= opening.until => Some(match opening.version.era() {
                Era::Modern => self.fall_back(now),
                Era::Legacy => self.give_up(Breach::Timeout {
                    method: Method::Initialize,
                }),
            }),
            Phase::Operating(_) => self.asked.lapse(now),
            Phase::Idle | Phase::Opening(_) | Phase::Closed => None,
        }
    }

    /// When something will be due, if nothing comes before.
    #[must_use]
    pub fn next_due(&self) -> Option<Duration> {
        match &self.phase {
            Phase::Opening(opening) => Some(opening.until),
            Phase::Operating(_) => self.asked.next_due(),
            Phase::Idle | Phase::Closed => None,
        }
    }

    fn event<'m, 't>(&self, message: &'m Message<'t>) -> Event<'m, 't> {
        match message {
            Message::Response(response) if self.is_opened_by(response) => Event::Opened(response),
            Message::Response(response) => Event::Response(response),
            Message::Request(request) => match request.known_method() {
                Some(Method::Ping) => Event::Ping(request),
                _ => Event::Request(request),
            },
            Message::Notification(notification) => match notification.known_method() {
                Some(Method::Cancelled) => Event::Cancelled(notification.params),
                Some(method) => Event::Notification(method, notification.params),
                None => Event::UnknownNotification,
            },
        }
    }

    /// Servers that could not read the opening answer with an error that has no id.
    fn is_opened_by(&self, response: &Response<'_>) -> bool {
        let Phase::Opening(opening) = &self.phase else {
            return false;
        };
        match &response.id {
            Some(id) => *id == opening.id,
            None => response.outcome.is_err(),
        }
    }

    /// Asks for a version by the method of its era.
    fn ask(&mut self, version: ProtocolVersion, now: Duration, attempt: Attempt) -> Next<'static> {
        let id = self.asked.next_id();
        let (method, params, timeout) = match version.era() {
            Era::Modern => (
                Method::Discover,
                self.offer.stamp(version, None),
                self.timeouts.probe,
            ),
            Era::Legacy => (
                Method::Initialize,
                Some(self.offer.introduction(version)),
                self.timeouts.initialize,
            ),
        };
        let text = message::request(&id, method.as_str(), params.as_deref());
        self.phase = Phase::Opening(Opening {
            id,
            version,
            until: now + timeout,
            attempt,
        });
        Next::Send(text)
    }

    /// Takes the server for one that needs a handshake.
    fn fall_back(&mut self, now: Duration) -> Next<'static> {
        match version::newest(Era::Legacy, &self.offer.versions) {
            Some(version) => self.ask(version, now, Attempt::First),
            None => self.give_up(Breach::NotModern),
        }
    }

    fn give_up(&mut self, breach: Breach) -> Next<'static> {
        self.close();
        Next::Close(breach)
    }

    fn on_discovered(
        &mut self,
        opening: &Opening,
        response: &Response<'_>,
        now: Duration,
    ) -> Next<'static> {
        let result = match &response.outcome {
            Ok(result) => result,
            Err(error) => return self.on_probe_refused(opening, error, now),
        };
        let theirs = texts(result.get("supportedVersions"));
        let server = result
            .get("capabilities")
            .and_then(ServerCapabilities::read);
        // Whatever does not look like the answer comes from a server that took the question for
        // something else.
        let (Some(server), false) = (server, theirs.is_empty()) else {
            return self.fall_back(now);
        };
        match self.offer.common(Era::Modern, &theirs) {
            Some(version) => self.operate(version, server, *result, meta::server_info(*result)),
            None => self.ask_legacy(theirs, now),
        }
    }

    fn on_probe_refused(
        &mut self,
        opening: &Opening,
        error: &RpcError<'_>,
        now: Duration,
    ) -> Next<'static> {
        match error.code {
            code::UNSUPPORTED_VERSION => {
                let theirs = supported(error);
                let common = self.offer.common(Era::Modern, &theirs);
                match common.filter(|_| opening.attempt == Attempt::First) {
                    Some(version) => self.ask(version, now, Attempt::Second),
                    None => self.ask_legacy(theirs, now),
                }
            }
            code::HEADER_MISMATCH | code::MISSING_CLIENT_CAPABILITY => {
                self.give_up(refused(Method::Discover, error))
            }
            _ => self.fall_back(now),
        }
    }

    fn on_initialized(
        &mut self,
        opening: &Opening,
        response: &Response<'_>,
        now: Duration,
    ) -> Next<'static> {
        let method = Method::Initialize;
        let result = match &response.outcome {
            Ok(result) => result,
            Err(error) => {
                let common = self.offer.common(Era::Legacy, &supported(error));
                return match common
                    .filter(|it| *it != opening.version && opening.attempt == Attempt::First)
                {
                    Some(version) => self.ask(version, now, Attempt::Second),
                    None => self.give_up(refused(method, error)),
                };
            }
        };
        let Some(theirs) = result.get("protocolVersion").and_then(View::as_str) else {
            let what = "it has no protocolVersion";
            return self.give_up(Breach::Invalid { method, what });
        };
        let theirs = vec![shorten(&theirs)];
        let Some(version) = self.offer.common(Era::Legacy, &theirs) else {
            return self.give_up(Breach::NoCommonVersion { theirs });
        };
        let server = result.get("capabilities");
        let Some(server) = server.and_then(ServerCapabilities::read) else {
            let what = "it has no capabilities";
            return self.give_up(Breach::Invalid { method, what });
        };
        let peer = result.get("serverInfo").and_then(Implementation::read);
        self.operate(version, server, *result, peer)
    }

    /// Of the versions that a modern server names, one with a handshake may be spoken here as well.
    fn ask_legacy(&mut self, theirs: Vec<String>, now: Duration) -> Next<'static> {
        match self.offer.common(Era::Legacy, &theirs) {
            Some(version) => self.ask(version, now, Attempt::First),
            None => self.give_up(Breach::NoCommonVersion { theirs }),
        }
    }

    fn operate(
        &mut self,
        version: ProtocolVersion,
        server: ServerCapabilities,
        result: View<'_>,
        peer: Option<Implementation>,
    ) -> Next<'static> {
        let client = self.offer.capabilities.for_version(version);
        let instructions = result.get("instructions").and_then(View::as_str);
        let agreement = Agreement {
            instructions: instructions.map(Into::into),
            ..Agreement::new(version, client, server, peer)
        };
        self.phase = Phase::Operating(Arc::new(agreement));
        let initialized = || message::notification(Method::Initialized.as_str(), None);
        Next::Open {
            send: (version.era() == Era::Legacy).then(initialized),
        }
    }

    fn serve<'t>(&mut self, request: &Request<'t>, agreement: &Arc<Agreement>) -> Next<'t> {
        let era = agreement.version.era();
        let id = &request.id;
        let Some(method) = request.known_method() else {
            return refuse(id, RpcRefusal::unknown_method(&request.method), era);
        };
        if self.serving.contains(id) {
            return refuse(id, RpcRefusal::IdInUse, era);
        }
        let checked = agreement.gate.inbound(Side::Server, method, request.params);
        if let Err(closed) = checked {
            return refuse(id, closed.refusal(Side::Server), era);
        }
        self.serving.insert(id.clone());
        Next::Serve(Call {
            id: id.clone(),
            method,
            params: request.params,
            agreement: Arc::clone(agreement),
            log_level: None,
            state: None,
        })
    }

    fn settle<'t>(&mut self, response: &Response<'t>, agreement: &Agreement) -> Next<'t> {
        let Some(settled) = self.asked.settle(response) else {
            return Next::Nothing;
        };
        let outcome = settled.outcome.and_then(|result| {
            // Before, `resultType` means nothing and may be a member of anything.
            let checked = match agreement.version.era() {
                Era::Legacy => Ok(()),
                Era::Modern => agreement.gate.result(settled.method, result),
            };
            checked.map(|()| result).map_err(NoResult::Invalid)
        });
        Next::Settle(Settled { outcome, ..settled })
    }
}

fn refused(method: Method, error: &RpcError<'_>) -> Breach {
    Breach::Refused {
        method,
        code: error.code,
        message: shorten(&error.message),
    }
}

/// The versions that an error says the server speaks.
fn supported(error: &RpcError<'_>) -> Vec<String> {
    texts(error.data.and_then(|data| data.get("supported")))
}

fn texts(array: Option<View<'_>>) -> Vec<String> {
    let items = array.into_iter().flat_map(View::items);
    let texts = items.filter_map(View::as_str);
    texts.map(|text| shorten(&text)).collect()
}
