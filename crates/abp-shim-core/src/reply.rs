//! Answers: what comes back from either way, and what is read from it.

use std::future::poll_fn;
use std::ops::Deref;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use abp_gateway::{Answer, AnswerBody, AnswerParts};
use bytes::{Bytes, BytesMut};
use http::Response;
use http_body::Body as _;
use hyper::body::Incoming;
use serde::de::DeserializeOwned;

use crate::error::{ApiError, Error, TransportError, Unexpected};
use crate::http::root_cause;
use crate::info::{AbpInfo, Head};
use crate::stream::read_json;

/// The longest answer that is taken in one piece.
const LONGEST: usize = 64 << 20;

/// How much of an answer that is none is repeated.
const EXCERPT: usize = 200;

/// An answer. It can be used like the document itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiReply<T> {
    document: T,
    abp: AbpInfo,
    request_id: Option<String>,
}

impl<T> ApiReply<T> {
    /// A document that came from the gateway without an exchange.
    pub(crate) fn without_exchange(document: T) -> Self {
        Self {
            document,
            abp: AbpInfo::default(),
            request_id: None,
        }
    }

    /// What the gateway did.
    #[must_use]
    pub fn abp(&self) -> &AbpInfo {
        &self.abp
    }

    /// What the vendor knows the request by.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.request_id.as_deref()
    }

    /// The document alone.
    pub fn into_inner(self) -> T {
        self.document
    }
}

impl<T> Deref for ApiReply<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.document
    }
}

/// An answer that was not read yet.
pub(crate) struct RawReply {
    pub(crate) head: Head,
    pub(crate) body: Body,
}

/// The bytes of an answer, from wherever they come. Dropping it ends the exchange.
pub(crate) enum Body {
    Whole(Bytes),
    Gateway(AnswerParts),
    Http(Incoming),
}

impl From<Answer> for RawReply {
    fn from(answer: Answer) -> Self {
        Self {
            head: Head::of(answer.status, &answer.headers),
            body: match answer.body {
                AnswerBody::Whole(bytes) => Body::Whole(bytes),
                AnswerBody::Stream(stream) => Body::Gateway(stream),
            },
        }
    }
}

impl From<Response<Incoming>> for RawReply {
    fn from(response: Response<Incoming>) -> Self {
        let (head, incoming) = response.into_parts();
        Self {
            head: Head::of(head.status, &head.headers),
            body: Body::Http(incoming),
        }
    }
}

impl RawReply {
    /// Reads an answer that comes in one piece.
    pub(crate) async fn read<T, B>(self) -> Result<ApiReply<T>, Error<B>>
    where
        T: DeserializeOwned,
        B: DeserializeOwned,
    {
        let Self { head, body } = self;
        let bytes = body.collect().await?;
        if !head.status.is_success() {
            return Err(refused(&head, &bytes));
        }
        match document(&bytes) {
            Ok(document) => Ok(ApiReply {
                document,
                abp: head.abp,
                request_id: head.request_id,
            }),
            Err(problem) => Err(unexpected(&head, problem)),
        }
    }

    /// The error that an answer without success is.
    pub(crate) async fn refusal<B: DeserializeOwned>(self) -> Error<B> {
        match self.body.collect().await {
            Ok(bytes) => refused(&self.head, &bytes),
            Err(error) => error.into(),
        }
    }
}

fn refused<B: DeserializeOwned>(head: &Head, bytes: &[u8]) -> Error<B> {
    match document(bytes) {
        Ok(body) => api_error(head, Some(head.status), body),
        Err(problem) => unexpected(head, problem),
    }
}

/// An error of the API, as it is told to the caller.
pub(crate) fn api_error<B>(head: &Head, status: Option<http::StatusCode>, body: B) -> Error<B> {
    Error::Api(Box::new(ApiError {
        status,
        body,
        request_id: head.request_id.clone(),
        retry_after: head.retry_after,
        abp: head.abp.clone(),
    }))
}

/// An answer that is none of the API's, as it is told to the caller.
pub(crate) fn unexpected<B>(head: &Head, problem: String) -> Error<B> {
    Error::Unexpected(Box::new(Unexpected {
        status: head.status,
        problem,
        request_id: head.request_id.clone(),
    }))
}

fn document<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    let read = str::from_utf8(bytes).map_err(|error| error.to_string());
    let read = read.and_then(|text| read_json(text).map_err(|error| error.to_string()));
    read.map_err(|problem| {
        let excerpt = bytes.get(..EXCERPT).unwrap_or(bytes);
        let excerpt = String::from_utf8_lossy(excerpt);
        format!("{problem}; it begins with {excerpt:?}")
    })
}

impl Body {
    /// The next bytes; `None` at the end.
    pub(crate) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, TransportError>>> {
        match self {
            Self::Whole(bytes) => {
                let rest = std::mem::take(bytes);
                Poll::Ready((!rest.is_empty()).then_some(Ok(rest)))
            }
            Self::Gateway(stream) => {
                let part = ready!(Pin::new(stream.as_mut()).poll_next(context));
                Poll::Ready(part.map(|part| {
                    part.map_err(|broken| TransportError::BrokenOff(broken.to_string()))
                }))
            }
            Self::Http(incoming) => loop {
                let frame = match ready!(Pin::new(&mut *incoming).poll_frame(context)) {
                    Some(Ok(frame)) => frame,
                    Some(Err(error)) => {
                        let broken = TransportError::BrokenOff(root_cause(&error));
                        return Poll::Ready(Some(Err(broken)));
                    }
                    None => return Poll::Ready(None),
                };
                // What is no data is a trailer, and says nothing here.
                if let Ok(bytes) = frame.into_data() {
                    return Poll::Ready(Some(Ok(bytes)));
                }
            },
        }
    }

    /// All of it.
    async fn collect(mut self) -> Result<Bytes, TransportError> {
        if let Self::Whole(bytes) = self {
            return Ok(bytes);
        }
        let mut all = BytesMut::new();
        while let Some(part) = poll_fn(|context| self.poll_part(context)).await {
            let part = part?;
            if all.len().saturating_add(part.len()) > LONGEST {
                let problem = format!("it is longer than {LONGEST} bytes");
                return Err(TransportError::BrokenOff(problem));
            }
            all.extend_from_slice(&part);
        }
        Ok(all.freeze())
    }
}
