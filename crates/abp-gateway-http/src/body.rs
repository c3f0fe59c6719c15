//! Bodies, in and out.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use abp_error::ErrorCode;
use abp_gateway::{Answer, AnswerBody, AnswerStream, BrokenOff, Refusal};
use bytes::{Bytes, BytesMut};
use futures_core::Stream as _;
use http::{HeaderMap, Response, StatusCode};
use http_body::{Body, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::mpsc;

use crate::wire::Phase;

/// Reads a body that may be so long and take so long.
pub(crate) async fn read(
    body: Incoming,
    limit: usize,
    deadline: Duration,
) -> Result<Bytes, Refusal> {
    let too_large = || {
        let message = format!("the body is longer than {limit} bytes");
        Refusal::new(ErrorCode::RequestTooLarge, message)
    };
    let announced = body.size_hint().lower();
    if announced > limit as u64 {
        return Err(too_large());
    }
    let reading = async {
        let mut body = body;
        let mut first = Bytes::new();
        let mut all: Option<BytesMut> = None;
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(|error| {
                let message = format!("the body did not arrive: {error}");
                Refusal::new(ErrorCode::RequestTimeout, message)
            })?;
            let Ok(data) = frame.into_data() else {
                continue;
            };
            let length = all.as_ref().map_or(first.len(), BytesMut::len);
            if length.saturating_add(data.len()) > limit {
                return Err(too_large());
            }
            match &mut all {
                Some(all) => all.extend_from_slice(&data),
                None if first.is_empty() => first = data,
                None => {
                    let expected = usize::try_from(announced).unwrap_or(limit).min(limit);
                    let mut begun = BytesMut::with_capacity(expected.max(2 * first.len()));
                    begun.extend_from_slice(&first);
                    begun.extend_from_slice(&data);
                    all = Some(begun);
                }
            }
        }
        Ok(all.map_or(first, BytesMut::freeze))
    };
    match tokio::time::timeout(deadline, reading).await {
        Ok(read) => read,
        Err(_) => Err(Refusal::new(
            ErrorCode::RequestTimeout,
            "the body did not arrive in time",
        )),
    }
}

/// The body of a response, and with it the end of a request.
pub(crate) struct Outgoing {
    content: Content,
    phase: Arc<Phase>,
}

enum Content {
    Whole(Option<Bytes>),
    Stream(Box<AnswerStream>),
    Live(mpsc::Receiver<Bytes>),
    Foreign(Pin<Box<dyn Body<Data = Bytes, Error = Infallible> + Send>>),
}

/// A response that does not belong to a connection yet.
pub struct HttpReply {
    status: StatusCode,
    headers: HeaderMap,
    content: Content,
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
        }
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
        }
    }
}

impl Outgoing {
    /// The response on a connection.
    pub(crate) fn response(reply: HttpReply, phase: &Arc<Phase>) -> Response<Self> {
        let mut response = Response::new(Self {
            content: reply.content,
            phase: Arc::clone(phase),
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
            Content::Stream(stream) => Pin::new(stream.as_mut())
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
