//! A server at an address: Streamable HTTP of both eras.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_json::{View, Writer};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request as HttpRequest, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as IncomingBody;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;

use super::http_client::{HttpClient, client};
use super::{McpUpstreamError, UpstreamShared};
use crate::headers::name_header;
use crate::message::{self, Batches, Incoming, MESSAGE_LIMITS, Message, Request, RequestId};
use crate::meta;
use crate::method::Method;
use crate::param_headers::ParamHeaders;
use crate::refusal::code;
use crate::serve::lock;
use crate::version::{Era, ProtocolVersion};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const BOTH: &str = "application/json, text/event-stream";
/// How long the stream of what a server says by itself may take to open.
const STREAM_OPENS: Duration = Duration::from_secs(1);
/// How long a server may take to take note of something.
const NOTE: Duration = Duration::from_secs(10);
/// How long after the end of a stream of events another is asked for.
const AGAIN: Duration = Duration::from_secs(1);

/// The longest that a server may let us wait before a stream goes on.
const LONGEST_RETRY: Duration = Duration::from_secs(30);
/// How often the rest of a stream is asked for.
const MAX_RESUMPTIONS: usize = 8;
/// The most tools whose headers are remembered.
const MAX_TOOLS: usize = 4_096;
/// The member with the tools of a list.
const TOOLS: &str = "tools";

/// A server at an address.
#[derive(Clone, Debug)]
pub struct HttpServer {
    /// Its address.
    pub url: String,
    /// The token it gets.
    pub bearer: Option<SecretString>,
}

pub(crate) struct HttpWire {
    inner: Arc<Inner>,
}

struct Inner {
    client: HttpClient,
    uri: Uri,
    authorization: Option<HeaderValue>,
    shared: OnceLock<Weak<UpstreamShared>>,
    /// The version and the session, once the connection is open.
    version: Mutex<Option<ProtocolVersion>>,
    session: Mutex<Option<HeaderValue>>,
    posts: Mutex<BTreeMap<RequestId, AbortHandle>>,
    /// The tools that have parameters which headers repeat.
    tools: Mutex<BTreeMap<String, ParamHeaders>>,
    listening: Mutex<Option<AbortHandle>>,
}

/// What a text of ours is, as far as headers say it.
struct Outline {
    id: Option<RequestId>,
    method: Option<String>,
    name: Option<String>,
    version: Option<String>,
    /// The headers that repeat parameters.
    params: Vec<(String, String)>,
}

/// How far a stream of events came.
#[derive(Default)]
struct Resumption {
    last_event: Option<HeaderValue>,
    retry: Option<Duration>,
}

impl HttpWire {
    pub(super) fn new(server: &HttpServer) -> Result<Self, McpUpstreamError> {
        let unusable = |what: &str| McpUpstreamError::Unreachable(what.to_owned());
        let uri: Uri = server
            .url
            .parse()
            .map_err(|_| unusable("the address is not one"))?;
        let bearer = server.bearer.as_ref().map(|token| {
            let value = format!("Bearer {}", token.expose_secret());
            HeaderValue::from_str(&value).map(|mut value| {
                value.set_sensitive(true);
                value
            })
        });
        let authorization = bearer
            .transpose()
            .map_err(|_| unusable("the token cannot be sent"))?;
        Ok(Self {
            inner: Arc::new(Inner {
                client: client()?,
                uri,
                authorization,
                shared: OnceLock::new(),
                version: Mutex::default(),
                session: Mutex::default(),
                posts: Mutex::default(),
                tools: Mutex::default(),
                listening: Mutex::default(),
            }),
        })
    }

    pub(super) fn attach(&self, shared: Weak<UpstreamShared>) {
        // It is attached once, when the connection is made.
        drop(self.inner.shared.set(shared));
    }

    /// Sends a message. What is no request is taken note of before this returns.
    pub(super) async fn send(&self, text: String) {
        let outline = Outline::of(&text, &lock(&self.inner.tools));
        let Some(id) = outline.id.clone() else {
            let sent = self.inner.post(text, &outline);
            if let Ok(Err(error)) = tokio::time::timeout(NOTE, sent).await {
                tracing::debug!(target: "abp.mcp", %error, "a notification was not taken");
            }
            return;
        };
        let inner = Arc::clone(&self.inner);
        let mut posts = lock(&self.inner.posts);
        let posting = tokio::spawn({
            let id = id.clone();
            async move {
                inner.exchange(text, &outline, &id).await;
                lock(&inner.posts).remove(&id);
            }
        });
        posts.insert(id, posting.abort_handle());
    }

    /// Looks at a list of tools, and gives it without those that may not be used.
    pub(super) fn learn(&self, listed: View<'_>) -> String {
        let version = *lock(&self.inner.version);
        if version.is_none_or(|version| version.era() == Era::Legacy) {
            return listed.raw().to_owned();
        }
        let mut known = lock(&self.inner.tools);
        let mut out = Writer::default();
        out.begin_object();
        meta::copy(&mut out, Some(listed), &[TOOLS]);
        out.key(TOOLS);
        out.begin_array();
        for tool in listed.get(TOOLS).into_iter().flat_map(View::items) {
            let name = tool.get("name").and_then(View::as_str).unwrap_or_default();
            match ParamHeaders::of(tool) {
                Ok(headers) => {
                    if headers.is_empty() {
                        known.remove(&*name);
                    } else if known.len() < MAX_TOOLS {
                        known.insert(name.into_owned(), headers);
                    }
                    out.raw(tool.raw());
                }
                Err(fault) => {
                    tracing::warn!(target: "abp.mcp", tool = %name, %fault, "a tool is left out");
                }
            }
        }
        out.end_array();
        out.end_object();
        out.into_text()
    }

    /// The connection is open in this version. A server may ask as soon as it is asked for something, and
    /// what it asks while nobody listens is lost, so its stream is waited for.
    pub(super) async fn opened(&self, version: ProtocolVersion) {
        *lock(&self.inner.version) = Some(version);
        if version.era() == Era::Legacy {
            let inner = Arc::clone(&self.inner);
            let (listens, is_heard) = oneshot::channel();
            let listening = tokio::spawn(async move { inner.listen(listens).await });
            *lock(&self.inner.listening) = Some(listening.abort_handle());
            // Some servers have no such stream, and some are silent until there is something to say.
            drop(tokio::time::timeout(STREAM_OPENS, is_heard).await);
        }
    }

    /// Nobody waits for a request any more.
    pub(super) async fn cancel(&self, id: &RequestId, text: String) {
        if let Some(post) = lock(&self.inner.posts).remove(id) {
            post.abort();
        }
        let version = *lock(&self.inner.version);
        if version.is_some_and(|version| version.era() == Era::Legacy) {
            self.send(text).await;
        }
    }

    pub(super) fn close(&self) {
        for post in std::mem::take(&mut *lock(&self.inner.posts)).into_values() {
            post.abort();
        }
        if let Some(listening) = lock(&self.inner.listening).take() {
            listening.abort();
        }
        let Some(session) = lock(&self.inner.session).take() else {
            return;
        };
        let inner = Arc::clone(&self.inner);
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move { inner.end_session(session).await });
        }
    }
}

impl Inner {
    fn request(&self, method: HttpMethod, body: Bytes) -> HttpRequest<Full<Bytes>> {
        let mut request = HttpRequest::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = self.uri.clone();
        let headers = request.headers_mut();
        headers.insert(ACCEPT, HeaderValue::from_static(BOTH));
        if let Some(authorization) = &self.authorization {
            headers.insert(AUTHORIZATION, authorization.clone());
        }
        if let Some(session) = &*lock(&self.session) {
            headers.insert(SESSION_ID, session.clone());
        }
        if let Some(version) = *lock(&self.version)
            && version.has_version_header()
        {
            headers.insert(VERSION, HeaderValue::from_static(version.as_str()));
        }
        request
    }

    async fn post(
        &self,
        text: String,
        outline: &Outline,
    ) -> Result<Response<IncomingBody>, McpUpstreamError> {
        let mut request = self.request(HttpMethod::POST, text.into());
        let headers = request.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        // Only messages since 2026-07-28 say their version.
        if let Some(version) = &outline.version {
            let said = [
                (VERSION, Some(version)),
                (
                    HeaderName::from_static("mcp-method"),
                    outline.method.as_ref(),
                ),
                (HeaderName::from_static("mcp-name"), outline.name.as_ref()),
            ];
            for (name, value) in said {
                if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(value)) {
                    headers.insert(name, value);
                }
            }
        }
        for (name, value) in &outline.params {
            let name = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        let sent = self.client.request(request).await;
        sent.map_err(|error| McpUpstreamError::Unreachable(reason(&error)))
    }

    /// Sends a request and takes everything that comes until it is answered.
    async fn exchange(&self, text: String, outline: &Outline, id: &RequestId) {
        let response = match self.post(text, outline).await {
            Ok(response) => response,
            Err(error) => return self.fail(id, &error.to_string()).await,
        };
        if outline.method.as_deref() == Some(Method::Initialize.as_str())
            && let Some(session) = response.headers().get(SESSION_ID)
        {
            *lock(&self.session) = Some(session.clone());
        }
        let status = response.status();
        if is_events(&response) {
            let broken_off = self.take_events(response, Some(id)).await;
            self.resume(id, broken_off).await;
            return self.fail(id, "the stream ended without an answer").await;
        }
        match whole(response).await {
            Ok(body) if is_answer(&body) => self.receive(&body, Some(id)).await,
            _ => {
                let why = format!("HTTP status {}", status.as_u16());
                self.fail(id, &why).await;
            }
        }
    }

    /// Asks for the rest of a stream that ended before the answer came, up to 2025-11-25.
    async fn resume(&self, id: &RequestId, broken_off: Resumption) {
        let mut at = broken_off;
        for _ in 0..MAX_RESUMPTIONS {
            let Some(last_event) = at.last_event.clone().filter(|_| self.is_awaited(id)) else {
                return;
            };
            tokio::time::sleep(at.retry.unwrap_or(AGAIN).min(LONGEST_RETRY)).await;
            let mut request = self.request(HttpMethod::GET, Bytes::new());
            let name = HeaderName::from_static("last-event-id");
            request.headers_mut().insert(name, last_event);
            match self.client.request(request).await {
                Ok(response) if is_events(&response) => {
                    let next = self.take_events(response, Some(id)).await;
                    at = Resumption {
                        last_event: next.last_event.or(at.last_event),
                        retry: next.retry.or(at.retry),
                    };
                }
                _ => return,
            }
        }
    }

    fn is_awaited(&self, id: &RequestId) -> bool {
        let shared = self.shared.get().and_then(Weak::upgrade);
        let is_legacy = lock(&self.version).is_some_and(|version| version.era() == Era::Legacy);
        is_legacy && shared.is_some_and(|shared| shared.is_awaited(id))
    }

    /// Whoever waits for a request is told; where it was answered, nobody does.
    async fn fail(&self, id: &RequestId, why: &str) {
        let text = message::error(Some(id), None, code::INTERNAL_ERROR, why, None);
        self.receive(text.as_bytes(), Some(id)).await;
    }

    async fn receive(&self, bytes: &[u8], during: Option<&RequestId>) {
        let shared = self.shared.get().and_then(Weak::upgrade);
        if let Some(shared) = shared {
            shared.receive(bytes, during).await;
        }
    }

    /// Takes what a stream of events says until it ends or the request is answered.
    async fn take_events(
        &self,
        response: Response<IncomingBody>,
        during: Option<&RequestId>,
    ) -> Resumption {
        let mut at = Resumption::default();
        let mut body = response.into_body();
        let mut decoder = SseDecoder::new(SseLimits::default());
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            let mut texts = Vec::new();
            let mut events = decoder.feed(&bytes);
            loop {
                match events.next_event() {
                    Ok(Some(SseEvent::Message {
                        data, id, retry, ..
                    })) => {
                        let id = id.and_then(|id| HeaderValue::from_str(id).ok());
                        at.last_event = id.or(at.last_event);
                        at.retry = retry.map(Duration::from_millis).or(at.retry);
                        // An event without data only says where the stream is.
                        if !data.is_empty() {
                            texts.push(data.to_owned());
                        }
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return at,
                }
            }
            for text in texts {
                self.receive(text.as_bytes(), during).await;
            }
        }
        at
    }

    /// Hears what no request is about, up to 2025-11-25, where the server has such a stream.
    async fn listen(&self, listens: oneshot::Sender<()>) {
        let mut listens = Some(listens);
        loop {
            let request = self.request(HttpMethod::GET, Bytes::new());
            let Ok(response) = self.client.request(request).await else {
                return;
            };
            // Whoever waits for the stream is told by this.
            drop(listens.take());
            if !response.status().is_success() || !is_events(&response) {
                return;
            }
            let at = self.take_events(response, None).await;
            tokio::time::sleep(at.retry.unwrap_or(AGAIN).min(LONGEST_RETRY)).await;
        }
    }

    async fn end_session(&self, session: HeaderValue) {
        let mut request = self.request(HttpMethod::DELETE, Bytes::new());
        request.headers_mut().insert(SESSION_ID, session);
        // A server that cannot be told forgets the session by itself.
        drop(tokio::time::timeout(NOTE, self.client.request(request)).await);
    }
}

impl Outline {
    fn of(text: &str, tools: &BTreeMap<String, ParamHeaders>) -> Self {
        let mut outline = Self {
            id: None,
            method: None,
            name: None,
            version: None,
            params: Vec::new(),
        };
        let Ok(tape) = message::parse(text.as_bytes(), &MESSAGE_LIMITS) else {
            return outline;
        };
        match message::read(&tape, Batches::Refused) {
            Ok(Incoming::Single(Message::Request(request))) => {
                outline.name = name_header(&request);
                outline.params = param_headers(&request, tools);
                outline.version = meta::protocol_version(request.params).map(Into::into);
                outline.method = Some(request.method.into_owned());
                outline.id = Some(request.id);
            }
            Ok(Incoming::Single(Message::Notification(notification))) => {
                outline.method = Some(notification.method.into_owned());
            }
            _ => {}
        }
        outline
    }
}

fn param_headers(
    request: &Request<'_>,
    tools: &BTreeMap<String, ParamHeaders>,
) -> Vec<(String, String)> {
    let name = request
        .params
        .and_then(|params| params.get("name")?.as_str());
    let called = name.filter(|_| request.known_method() == Some(Method::ToolsCall));
    let headers = called.and_then(|name| tools.get(&*name));
    headers.map_or_else(Vec::new, |headers| headers.of_call(request.params))
}

fn is_events(response: &Response<IncomingBody>) -> bool {
    let media = response.headers().get(CONTENT_TYPE);
    media
        .and_then(|media| media.to_str().ok())
        .is_some_and(|media| media.starts_with("text/event-stream"))
}

/// Whether a body is an answer of the protocol, whatever its status.
fn is_answer(body: &[u8]) -> bool {
    let Ok(tape) = message::parse(body, &MESSAGE_LIMITS) else {
        return false;
    };
    matches!(
        message::read(&tape, Batches::Read),
        Ok(Incoming::Single(Message::Response(_)) | Incoming::Batch(_))
    )
}

/// A whole body, within the limits of a message.
async fn whole(response: Response<IncomingBody>) -> Result<Bytes, McpUpstreamError> {
    let mut body = response.into_body();
    let mut bytes = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| McpUpstreamError::Unreachable(error.to_string()))?;
        if let Ok(part) = frame.into_data() {
            bytes.extend_from_slice(&part);
        }
        if bytes.len() > MESSAGE_LIMITS.max_bytes {
            return Err(McpUpstreamError::Invalid(
                "the answer is too large".to_owned(),
            ));
        }
    }
    Ok(bytes.freeze())
}

/// The innermost reason; the outer ones say only that something failed.
fn reason(error: &dyn std::error::Error) -> String {
    let mut innermost = error;
    while let Some(source) = innermost.source() {
        innermost = source;
    }
    innermost.to_string()
}
