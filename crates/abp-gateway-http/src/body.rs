//! Bodies, in and out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use abp_error::ErrorCode;
use abp_gateway::{Admission, Answer, AnswerBody, AnswerParts, BrokenOff, Refusal, RequestPlace};
use bytes::{Bytes, BytesMut};
use futures_core::Stream as _;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::upgrade::UpgradeSession;
use crate::wire::Phase;

/// Reads a body that may be so long and take so long, into room that its request takes for it: for all of
/// it before the first byte where its length is announced, otherwise as it comes.
pub(crate) async fn read(
    body: Incoming,
    limit: usize,
    deadline: Duration,
    admitted: &mut Admission,
) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("the body is longer than {limit} bytes");
        Refusal::new(ErrorCode::RequestTooLarge, message)
    };
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large());
    }
    admitted.hold_body(announced)?;
    let reading = async {
        let mut body = body;
        let mut all = Gathered::new(usize::try_from(announced).unwrap_or(limit).min(limit));
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let message = format!("the body did not arrive: {error}");
                Refusal::new(ErrorCode::RequestTimeout, message)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let longer = all.length.saturating_add(data.len());
            if longer > limit {
                return Err(too_large());
            }
            admitted.hold_body(longer as u64)?;
            all.push(data);
        }
        Ok(all.whole())
    };
    match tokio::time::timeout(deadline, reading).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::new(
            ErrorCode::RequestTimeout,
            "the body did not arrive in time",
        )),
    }
}

/// The size of the pieces in which a body of unknown length is gathered. A buffer that doubles would leave
/// the allocator with a hole for each of its sizes, which for many such bodies is more than the bodies are.
const PIECE: usize = 64 << 10;

/// A body as far as it has come.
struct Gathered {
    announced: usize,
    length: usize,
    /// A body that came at once is not copied.
    first: Bytes,
    pieces: Vec<BytesMut>,
}

impl Gathered {
    fn new(announced: usize) -> Self {
        Self {
            announced,
            length: 0,
            first: Bytes::new(),
            pieces: Vec::new(),
        }
    }

    fn push(&mut self, data: Bytes) {
        self.length += data.len();
        if self.first.is_empty() && self.pieces.is_empty() {
            self.first = data;
            return;
        }
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            self.append(&first);
        }
        self.append(&data);
    }

    fn append(&mut self, mut data: &[u8]) {
        while !data.is_empty() {
            let full = self.pieces.last();
            if full.is_none_or(|piece| piece.len() == piece.capacity()) {
                let size = self.announced.max(PIECE);
                self.pieces.push(BytesMut::with_capacity(size));
            }
            let Some(piece) = self.pieces.last_mut() else {
                return;
            };
            let room = piece.capacity() - piece.len();
            let (fits, rest) = data.split_at(room.min(data.len()));
            piece.extend_from_slice(fits);
            data = rest;
        }
    }

    fn whole(mut self) -> Bytes {
        match self.pieces.len() {
            0 => self.first,
            1 => self.pieces.remove(0).freeze(),
            _ => {
                let mut whole = BytesMut::with_capacity(self.length);
                for piece in self.pieces {
                    whole.extend_from_slice(&piece);
                }
                whole.freeze()
            }
        }
    }
}

/// The body of a response, and with it the end of a request.
pub(crate) struct Outgoing {
    content: Content,
    phase: Arc<Phase>,
    /// Given back when nothing of the response is left to send.
    _place: Option<RequestPlace>,
}

enum Content {
    Whole(Option<Bytes>),
    Stream(AnswerParts),
    Live(mpsc::Receiver<Bytes>),
    Foreign(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

/// A response that does not belong to a connection yet.
pub struct HttpReply {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
    place: Option<RequestPlace>,
    session: Option<UpgradeSession>,
}

impl std::fmt::Debug for HttpReply {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpReply")
            .field("status", &self.status)
            .field("headers", &self.headers)
            .finish_non_exhaustive()
    }
}

impl HttpReply {
    /// A response that consists of its head.
    #[must_use]
    pub fn empty(headers: HeaderMap) -> Self {
        Self {
            status: StatusCode::NO_CONTENT,
            headers,
            content: Content::Whole(None),
            place: None,
            session: None,
        }
    }

    /// A response whose parts somebody else makes. Who makes them sees when nobody takes them any
    /// more.
    #[must_use]
    pub fn live(headers: HeaderMap, parts: mpsc::Receiver<Bytes>) -> Self {
        Self {
            status: StatusCode::OK,
            headers,
            content: Content::Live(parts),
            place: None,
            session: None,
        }
    }

    /// A response that another library made.
    pub fn foreign<B>(response: Response<B>) -> Self
    where
        B: Body<Data = Bytes, Error = Infallible> + Send + 'static,
    {
        let (parts, body) = response.into_parts();
        Self {
            status: parts.status,
            headers: parts.headers,
            content: Content::Foreign(Box::pin(body)),
            place: None,
            session: None,
        }
    }

    /// A response of one piece.
    #[must_use]
    pub fn whole(status: StatusCode, headers: HeaderMap, body: Bytes) -> Self {
        Self {
            status,
            headers,
            content: Content::Whole(Some(body)),
            place: None,
            session: None,
        }
    }

    /// The same response with a header more.
    #[must_use]
    pub fn with_header(mut self, name: http::HeaderName, value: http::HeaderValue) -> Self {
        self.headers.insert(name, value);
        self
    }

    /// The agreement to speak another protocol, and what is then done with the connection.
    #[must_use]
    pub fn upgrade(headers: HeaderMap, session: UpgradeSession) -> Self {
        Self {
            status: StatusCode::SWITCHING_PROTOCOLS,
            headers,
            content: Content::Whole(None),
            place: None,
            session: Some(session),
        }
    }

    /// Takes the session of an upgrade.
    pub(crate) fn take_session(&mut self) -> Option<UpgradeSession> {
        self.session.take()
    }

    /// The same, with the place that its request has until the last byte is sent.
    pub(crate) fn holding(mut self, place: Option<RequestPlace>) -> Self {
        self.place = place;
        self
    }
}

impl From<Answer> for HttpReply {
    fn from(answer: Answer) -> Self {
        Self {
            status: answer.status,
            headers: answer.headers,
            content: match answer.body {
                AnswerBody::Whole(bytes) => Content::Whole(Some(bytes)),
                AnswerBody::Stream(stream) => Content::Stream(stream),
            },
            place: None,
            session: None,
        }
    }
}

impl Outgoing {
    /// The response on a connection.
    pub(crate) fn response(reply: HttpReply, phase: &Arc<Phase>) -> Response<Self> {
        let mut response = Response::new(Self {
            content: reply.content,
            phase: Arc::clone(phase),
            _place: reply.place,
        });
        *response.status_mut() = reply.status;
        *response.headers_mut() = reply.headers;
        response
    }
}

impl Drop for Outgoing {
    fn drop(&mut self) {
        self.phase.end_request();
    }
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = BrokenOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BrokenOff>>> {
        match &mut self.content {
            Content::Whole(bytes) => {
                let bytes = bytes.take().filter(|bytes| !bytes.is_empty());
                Poll::Ready(bytes.map(|bytes| Ok(Frame::data(bytes))))
            }
            Content::Stream(stream) => Pin::new(stream)
                .poll_next(context)
                .map(|part| part.map(|part| part.map(Frame::data))),
            Content::Live(parts) => parts
                .poll_recv(context)
                .map(|part| part.map(|part| Ok(Frame::data(part)))),
            Content::Foreign(body) => body
                .as_mut()
                .poll_frame(context)
                .map_err(|never| match never {}),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.content {
            Content::Whole(bytes) => bytes.as_ref().is_none_or(Bytes::is_empty),
            Content::Stream(_) | Content::Live(_) => false,
            Content::Foreign(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.content {
            Content::Whole(bytes) => {
                SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Content::Stream(_) | Content::Live(_) => SizeHint::default(),
            Content::Foreign(body) => body.size_hint(),
        }
    }
}

/// An answer of our own in JSON.
#[must_use]
pub fn json_answer(status: StatusCode, value: &serde_json::Value) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static("application/json"),
    );
    Answer {
        status,
        headers,
        body: AnswerBody::Whole(Bytes::from(value.to_string())),
    }
}

/// An answer of our own in text.
pub(crate) fn text(kind: &'static str, text: String) -> Answer {
    let mut headers = HeaderMap::new();
    headers.insert(
        http::header::CONTENT_TYPE,
        http::HeaderValue::from_static(kind),
    );
    Answer {
        status: StatusCode::OK,
        headers,
        body: AnswerBody::Whole(Bytes::from(text)),
    }
}
