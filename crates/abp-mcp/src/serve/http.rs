//! The Streamable HTTP transport, of both eras, without a server: a request in, a response out.
//!
//! Whoever has the socket checks `Host`, `Origin` and who is asking before a request gets here.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Method as HttpMethod, Response, StatusCode};
use tokio::sync::mpsc;

use super::connection::Received;
use super::http_body::{End, Live};
use super::sessions::{NoSession, SessionLimits, Sessions};
use super::{ConnectionOptions, McpBody, McpConnection, McpSession, Outgoing};
use crate::headers::{McpHeaders, check_headers, header_version};
use crate::lifecycle::{Offer, Refused};
use crate::message::{self, Batches, Incoming, MESSAGE_LIMITS, Message};
use crate::meta::RequestMeta;
use crate::method::Method;
use crate::param_headers::SaidParams;
use crate::state::StateKey;
use crate::version::{Era, ProtocolVersion};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream";
/// How many messages may wait for a client that reads slowly.
const QUEUE: usize = 256;

/// How the transport behaves.
#[derive(Clone, Debug)]
pub struct HttpOptions {
    /// Seals what clients carry between rounds. Every process that may get the next round needs it.
    pub state_key: StateKey,
    /// How long a client may take to answer.
    pub request_timeout: Duration,
    /// The most requests of one connection that are served at once.
    pub max_requests: usize,
    /// The most sessions of clients with a handshake.
    pub max_sessions: usize,
    /// The most sessions of one principal, where it has no limit of its own.
    pub max_sessions_each: usize,
    /// A session that was not used for so long is ended.
    pub session_idle: Duration,
}

/// The endpoint.
pub struct McpHttp {
    open: Box<Open>,
    offer: Offer,
    options: HttpOptions,
    sessions: Arc<Sessions>,
    /// What is being answered since 2026-07-28.
    live: Arc<Live>,
}

/// Gives the session of a new connection.
type Open = dyn Fn(&str) -> Arc<dyn McpSession> + Send + Sync;

/// Somebody who was authenticated; the name is empty where nobody is.
#[derive(Clone, Copy, Debug)]
pub struct McpCaller<'a> {
    /// The name that sessions and shared connections belong to.
    pub principal: &'a str,
    /// The most sessions it may have; as the endpoint says where absent.
    pub max_sessions: Option<usize>,
}

impl std::fmt::Debug for McpHttp {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpHttp")
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl HttpOptions {
    /// The usual limits: a minute, 64 requests, 1,024 sessions and 64 of each principal, an hour.
    #[must_use]
    pub const fn new(state_key: StateKey) -> Self {
        Self {
            state_key,
            request_timeout: Duration::from_secs(60),
            max_requests: 64,
            max_sessions: 1_024,
            max_sessions_each: 64,
            session_idle: Duration::from_secs(3_600),
        }
    }
}

impl McpHttp {
    /// An endpoint. `open` gives the session of a new connection, for whoever is authenticated.
    pub fn new(
        offer: Offer,
        options: HttpOptions,
        open: impl Fn(&str) -> Arc<dyn McpSession> + Send + Sync + 'static,
    ) -> Self {
        Self {
            open: Box::new(open),
            offer,
            options,
            sessions: Arc::default(),
            live: Arc::default(),
        }
    }

    /// Ends every session and every stream.
    pub fn close(&self) {
        self.sessions.end_all();
        self.live.close();
    }

    /// Answers a request of somebody; the principal is empty where nobody is authenticated.
    pub async fn handle(&self, parts: Parts, body: Bytes, principal: &str) -> Response<McpBody> {
        let caller = McpCaller {
            principal,
            max_sessions: None,
        };
        self.handle_for(caller, parts, body).await
    }

    /// Answers a request of a caller with limits of its own.
    pub async fn handle_for(
        &self,
        caller: McpCaller<'_>,
        parts: Parts,
        body: Bytes,
    ) -> Response<McpBody> {
        let principal = caller.principal;
        match parts.method {
            HttpMethod::POST => self.post(&parts.headers, &body, caller).await,
            HttpMethod::GET | HttpMethod::DELETE if self.is_modern(&parts.headers) => {
                not_allowed("POST")
            }
            HttpMethod::GET => self.get(&parts.headers, principal),
            HttpMethod::DELETE => self.delete(&parts.headers, principal),
            _ => not_allowed("POST, GET, DELETE"),
        }
    }

    fn is_modern(&self, headers: &HeaderMap) -> bool {
        let version = text(headers, &VERSION).and_then(ProtocolVersion::parse);
        version.is_some_and(|version| version.era() == Era::Modern) || !self.speaks(Era::Legacy)
    }

    fn speaks(&self, era: Era) -> bool {
        self.offer.versions.iter().any(|one| one.era() == era)
    }

    async fn post(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        caller: McpCaller<'_>,
    ) -> Response<McpBody> {
        let principal = caller.principal;
        if !is_json(headers) {
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        if !accepts(headers, JSON) || !accepts(headers, EVENTS) {
            return plain(StatusCode::NOT_ACCEPTABLE);
        }
        let Some(first) = First::of(body) else {
            return self.post_unreadable(body, principal).await;
        };
        let is_modern = first.is_modern
            || self.is_modern(headers) && text(headers, &SESSION_ID).is_none() && !first.opens;
        if is_modern && self.speaks(Era::Modern) {
            return self.post_modern(headers, body, &first, principal).await;
        }
        if first.opens {
            return self.open_session(body, caller).await;
        }
        let spoken = &self.offer.versions;
        if let Err(refusal) = header_version(text(headers, &VERSION), spoken) {
            let code = refusal.code(Era::Legacy);
            let data = refusal.data();
            let said = message::error(None, None, code, &refusal.to_string(), data.as_deref());
            return json(StatusCode::BAD_REQUEST, said);
        }
        match self.held(headers, principal) {
            Ok(connection) => self.exchange(&connection, body, Ending::GoesOn).await,
            Err(status) => plain(status),
        }
    }

    /// Something that is no message is answered by a connection that nobody else uses.
    async fn post_unreadable(&self, body: &[u8], principal: &str) -> Response<McpBody> {
        let connection = self.connection(self.offer.clone(), principal, None);
        self.exchange(&connection, body, Ending::Cancels).await
    }

    async fn post_modern(
        &self,
        headers: &HeaderMap,
        body: &[u8],
        first: &First,
        principal: &str,
    ) -> Response<McpBody> {
        if let Some(refused) = first.header_fault(headers, body) {
            let status = StatusCode::from_u16(refused.http_status());
            return json(status.unwrap_or(StatusCode::BAD_REQUEST), refused.to_json());
        }
        let mut offer = self.offer.clone();
        if !first.is_modern {
            // What says its version in the header only lacks it in the body.
            offer
                .versions
                .retain(|version| version.era() == Era::Modern);
        }
        let said = Some(SaidParams::of(headers));
        let connection = self.connection(offer, principal, said);
        self.exchange(&connection, body, Ending::Cancels).await
    }

    async fn open_session(&self, body: &[u8], caller: McpCaller<'_>) -> Response<McpBody> {
        let Some(id) = random_id() else {
            return plain(StatusCode::INTERNAL_SERVER_ERROR);
        };
        let most = caller.max_sessions;
        let most = most.unwrap_or(self.options.max_sessions_each);
        let limits = SessionLimits {
            all: self.options.max_sessions,
            idle: self.options.session_idle,
        };
        let opening = match self.sessions.open(caller.principal, most, limits) {
            Ok(opening) => opening,
            Err(problem) => return no_session(problem),
        };
        let connection = self.connection(self.offer.clone(), caller.principal, None);
        let mut response = self.exchange(&connection, body, Ending::GoesOn).await;
        if connection.version().is_none() {
            connection.close();
            return response;
        }
        opening.hold(&id, connection);
        if let Ok(value) = HeaderValue::from_str(&id) {
            response.headers_mut().insert(SESSION_ID, value);
        }
        response
    }

    /// The connection of a session. Somebody else's does not exist.
    fn held(&self, headers: &HeaderMap, principal: &str) -> Result<McpConnection, StatusCode> {
        let id = text(headers, &SESSION_ID).ok_or(StatusCode::BAD_REQUEST)?;
        let held = self.sessions.get(id, principal);
        held.ok_or(StatusCode::NOT_FOUND)
    }

    fn get(&self, headers: &HeaderMap, principal: &str) -> Response<McpBody> {
        if !accepts(headers, EVENTS) {
            return plain(StatusCode::NOT_ACCEPTABLE);
        }
        let connection = match self.held(headers, principal) {
            Ok(connection) => connection,
            Err(status) => return plain(status),
        };
        let (outlet, outbox) = mpsc::channel(QUEUE);
        if !connection.set_general(outlet) {
            return plain(StatusCode::CONFLICT);
        }
        events(McpBody::events(None, outbox, End::Nothing))
    }

    fn delete(&self, headers: &HeaderMap, principal: &str) -> Response<McpBody> {
        let connection = match self.held(headers, principal) {
            Ok(connection) => connection,
            Err(status) => return plain(status),
        };
        connection.close();
        if let Some(id) = text(headers, &SESSION_ID) {
            self.sessions.end(id);
        }
        plain(StatusCode::NO_CONTENT)
    }

    fn connection(
        &self,
        offer: Offer,
        principal: &str,
        said_params: Option<SaidParams>,
    ) -> McpConnection {
        let options = ConnectionOptions {
            principal: principal.to_owned(),
            state_key: self.options.state_key.clone(),
            request_timeout: self.options.request_timeout,
            max_requests: self.options.max_requests,
        };
        let session = (self.open)(principal);
        McpConnection::with_params(session, offer, options, said_params)
    }

    /// One message alone is answered as JSON; whatever comes before an answer makes it a stream.
    async fn exchange(
        &self,
        connection: &McpConnection,
        body: &[u8],
        ending: Ending,
    ) -> Response<McpBody> {
        let end = match ending {
            Ending::GoesOn => End::Nothing,
            Ending::Cancels => End::Cancels {
                _guard: self.live.hold(connection),
            },
        };
        let (outlet, mut outbox) = mpsc::channel(QUEUE);
        let received = connection.receive(body, &outlet).await;
        let is_single = received.len() == 1;
        let mut has_answer = false;
        for one in received {
            match one {
                // Of a batch, as many are answered as may wait.
                Received::Reply(outgoing) => has_answer |= outlet.try_send(outgoing).is_ok(),
                Received::Serving => has_answer = true,
                Received::Nothing => {}
            }
        }
        drop(outlet);
        if !has_answer {
            return plain(StatusCode::ACCEPTED);
        }
        match outbox.recv().await {
            Some(first) if first.is_answer && is_single => answered(first),
            first => events(McpBody::events(first, outbox, end)),
        }
    }
}

/// What the end of a response means for what is served.
#[derive(Clone, Copy, Debug)]
enum Ending {
    /// It goes on, up to 2025-11-25.
    GoesOn,
    /// It is cancelled.
    Cancels,
}

/// What the first message of a body says about how it is to be taken.
struct First {
    is_modern: bool,
    opens: bool,
}

impl First {
    /// `None` for what is no message.
    fn of(body: &[u8]) -> Option<Self> {
        let tape = message::parse(body, &MESSAGE_LIMITS).ok()?;
        match message::read(&tape, Batches::Read).ok()? {
            Incoming::Single(Message::Request(request)) => {
                let method = request.known_method();
                Some(Self {
                    is_modern: RequestMeta::is_in(request.params)
                        || method.is_some_and(Method::is_modern_only),
                    opens: method == Some(Method::Initialize),
                })
            }
            Incoming::Single(_) | Incoming::Batch(_) => Some(Self {
                is_modern: false,
                opens: false,
            }),
        }
    }

    fn header_fault(&self, headers: &HeaderMap, body: &[u8]) -> Option<Refused> {
        let tape = message::parse(body, &MESSAGE_LIMITS).ok()?;
        let Ok(Incoming::Single(Message::Request(request))) =
            message::read(&tape, Batches::Refused)
        else {
            return None;
        };
        let said = McpHeaders {
            protocol_version: text(headers, &VERSION),
            method: header(headers, "mcp-method"),
            name: header(headers, "mcp-name"),
        };
        let refusal = check_headers(&said, &request).err()?;
        Some(Refused {
            id: request.id,
            refusal,
            era: Era::Modern,
        })
    }
}

fn header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    headers.get(name)?.to_str().ok()
}

fn text<'h>(headers: &'h HeaderMap, name: &HeaderName) -> Option<&'h str> {
    header(headers, name.as_str())
}

fn is_json(headers: &HeaderMap) -> bool {
    let media = text(headers, &CONTENT_TYPE).and_then(|value| value.split(';').next());
    media.is_some_and(|media| media.trim().eq_ignore_ascii_case(JSON))
}

/// A client that does not say what it takes, takes anything.
fn accepts(headers: &HeaderMap, media: &str) -> bool {
    let group = media.split('/').next().unwrap_or_default();
    let mut said = headers.get_all(ACCEPT).iter().peekable();
    said.peek().is_none()
        || said.any(|value| {
            let parts = value.to_str().unwrap_or_default().split(',');
            let mut names = parts.filter_map(|part| part.split(';').next());
            names.any(|name| {
                let name = name.trim().to_ascii_lowercase();
                name == media || name == "*/*" || name == format!("{group}/*")
            })
        })
}

fn answered(outgoing: Outgoing) -> Response<McpBody> {
    let status = StatusCode::from_u16(outgoing.status).unwrap_or(StatusCode::OK);
    json(status, outgoing.text)
}

fn json(status: StatusCode, text: String) -> Response<McpBody> {
    let mut response = Response::new(McpBody::whole(text));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(JSON));
    response
}

fn events(body: McpBody) -> Response<McpBody> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(EVENTS));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    let no_buffering = HeaderName::from_static("x-accel-buffering");
    headers.insert(no_buffering, HeaderValue::from_static("no"));
    response
}

fn plain(status: StatusCode) -> Response<McpBody> {
    let mut response = Response::new(McpBody::empty());
    *response.status_mut() = status;
    response
}

fn no_session(problem: NoSession) -> Response<McpBody> {
    let (status, why) = match problem {
        NoSession::OfPrincipal => (
            StatusCode::TOO_MANY_REQUESTS,
            "the key uses as many MCP sessions as it may have; end one, or leave one alone for a minute",
        ),
        NoSession::OfAll => (
            StatusCode::SERVICE_UNAVAILABLE,
            "there are as many MCP sessions as are taken at once",
        ),
    };
    let code = crate::refusal::code::INTERNAL_ERROR;
    let mut response = json(status, message::error(None, None, code, why, None));
    let wait = HeaderValue::from_static("60");
    response.headers_mut().insert(RETRY_AFTER, wait);
    response
}

fn not_allowed(allowed: &'static str) -> Response<McpBody> {
    let mut response = plain(StatusCode::METHOD_NOT_ALLOWED);
    let headers = response.headers_mut();
    headers.insert(ALLOW, HeaderValue::from_static(allowed));
    response
}

/// 128 bits that nobody can guess.
fn random_id() -> Option<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
