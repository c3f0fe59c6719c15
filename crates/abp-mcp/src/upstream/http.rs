//! A server at an address: Streamable HTTP of both eras.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use bytes::{Bytes, BytesMut};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE};
use http::{HeaderName, HeaderValue, Method as HttpMethod, Request as HttpRequest, Response, Uri};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming as IncomingBody;
use secrecy::{ExposeSecret as _, SecretString};
use tokio::task::AbortHandle;

use super::http_client::{HttpClient, client};
use super::{McpUpstreamError, UpstreamShared};
use crate::headers::name_header;
use crate::message::{self, Batches, Incoming, MESSAGE_LIMITS, Message, RequestId};
use crate::meta;
use crate::method::Method;
use crate::refusal::code;
use crate::serve::lock;
use crate::version::{Era, ProtocolVersion};

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
const VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const BOTH: &str = "application/json, text/event-stream";
/// How long a server may take to take note of something.
const NOTE: Duration = Duration::from_secs(10);
/// How long after the end of a stream of events another is asked for.
const AGAIN: Duration = Duration::from_secs(1);

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
    listening: Mutex<Option<AbortHandle>>,
}

/// What a text of ours is, as far as headers say it.
struct Outline {
    id: Option<RequestId>,
    method: Option<String>,
    name: Option<String>,
    version: Option<String>,
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
        let outline = Outline::of(&text);
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

    /// The connection is open in this version.
    pub(super) fn opened(&self, version: ProtocolVersion) {
        *lock(&self.inner.version) = Some(version);
        if version.era() == Era::Legacy {
            let inner = Arc::clone(&self.inner);
            let listening = tokio::spawn(async move { inner.listen().await });
            *lock(&self.inner.listening) = Some(listening.abort_handle());
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
            self.take_events(response, Some(id)).await;
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

    async fn take_events(&self, response: Response<IncomingBody>, during: Option<&RequestId>) {
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
                    Ok(Some(SseEvent::Message { data, .. })) => texts.push(data.to_owned()),
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return,
                }
            }
            for text in texts {
                self.receive(text.as_bytes(), during).await;
            }
        }
    }

    /// Hears what no request is about, up to 2025-11-25, where the server has such a stream.
    async fn listen(&self) {
        loop {
            let request = self.request(HttpMethod::GET, Bytes::new());
            let Ok(response) = self.client.request(request).await else {
                return;
            };
            if !response.status().is_success() || !is_events(&response) {
                return;
            }
            self.take_events(response, None).await;
            tokio::time::sleep(AGAIN).await;
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
    fn of(text: &str) -> Self {
        let mut outline = Self {
            id: None,
            method: None,
            name: None,
            version: None,
        };
        let Ok(tape) = message::parse(text.as_bytes(), &MESSAGE_LIMITS) else {
            return outline;
        };
        match message::read(&tape, Batches::Refused) {
            Ok(Incoming::Single(Message::Request(request))) => {
                outline.name = name_header(&request);
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
