//! A model's API: bytes in, bytes or a stream of bytes out.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use abp_dialect::Dialect;
use abp_error::{AbpError, ErrorCode};
use bytes::{Bytes, BytesMut};
use futures_core::Stream;
use http::{HeaderMap, HeaderValue, Method, StatusCode};

use crate::BoxFuture;

/// A model's API. It is given requests in a dialect that it speaks, and never looks into them.
pub trait Upstream: fmt::Debug + Send + Sync {
    /// What is known about it.
    fn descriptor(&self) -> &UpstreamDescriptor;

    /// Sends a request. Returns with the head of the answer; dropping the answer ends the exchange.
    ///
    /// An error of the vendor is an answer. Only what keeps the answer from coming is a failure.
    fn send(&self, call: ModelCall) -> BoxFuture<'_, Result<ModelReply, UpstreamError>>;

    /// The body of a vendor's error without the key that it was asked with: some repeat the one they
    /// refuse.
    fn without_key(&self, body: Bytes) -> Bytes {
        body
    }
}

/// What is known about a model's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamDescriptor {
    /// The name it is configured under.
    pub name: String,
    /// The dialects it speaks, the best first; never empty.
    pub dialects: Vec<Dialect>,
    /// The version of its wire, where that makes a difference.
    pub wire_version: Option<String>,
    /// The one address it connects to, as `host:port` (an IPv6 address in brackets); `None` where it
    /// makes no connection.
    pub address: Option<String>,
    /// Whether it is no model but a demonstration of one.
    pub is_demonstration: bool,
}

impl UpstreamDescriptor {
    /// The dialect in which a caller of `asked` is best served: its own where that is spoken.
    #[must_use]
    pub fn dialect_for(&self, asked: Dialect) -> Option<Dialect> {
        self.dialects
            .iter()
            .find(|&&dialect| dialect == asked)
            .or_else(|| self.dialects.first())
            .copied()
    }
}

/// A request to a model's API.
#[derive(Clone)]
pub struct ModelCall {
    /// The dialect of the body.
    pub dialect: Dialect,
    /// What is asked for.
    pub operation: ModelOperation,
    /// The model, for vendors that name it in the address.
    pub model: String,
    /// The query of the address that goes along, without `?` and without any key.
    pub query: Option<String>,
    /// What of the caller's headers goes along. Never credentials: those are the upstream's own.
    pub headers: HeaderMap,
    /// The body, sent as it is.
    pub body: Bytes,
}

/// Tells how long the body is and nothing of it: it is what people say to models.
impl fmt::Debug for ModelCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            dialect,
            operation,
            model,
            query,
            headers,
            body,
        } = self;
        f.debug_struct("ModelCall")
            .field("dialect", dialect)
            .field("operation", operation)
            .field("model", model)
            .field("query", query)
            .field("headers", headers)
            .field("body", &format_args!("{} bytes", body.len()))
            .finish()
    }
}

/// What is asked of a model's API.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ModelOperation {
    /// An answer, whole or as a stream.
    Generate {
        /// As a stream.
        stream: bool,
    },
    /// How many tokens a request has.
    CountTokens,
    /// Something about an answer that the vendor keeps.
    Stored {
        /// The answer.
        id: String,
        /// What about it.
        action: StoredAction,
    },
    /// Anything else that the vendor offers, as the caller sent it.
    Other(OtherCall),
}

/// A request for something that is passed on without being understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OtherCall {
    /// The method.
    pub method: Method,
    /// The address, in segments that need no escapes: below the version of the vendor's API, except for
    /// Gemini, where the version is part of it.
    pub path: String,
    /// The type of the body, where there is one.
    pub content_type: Option<HeaderValue>,
}

/// What can be asked about an answer that a vendor keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredAction {
    /// The answer itself.
    Get,
    /// That it be forgotten.
    Delete,
    /// That it not be finished.
    Cancel,
    /// What it was an answer to.
    InputItems,
}

/// The answer of a model's API.
#[derive(Debug)]
pub struct ModelReply {
    /// Its status.
    pub status: StatusCode,
    /// Its headers, all of them but those of the connection itself.
    pub headers: HeaderMap,
    /// Its body.
    pub body: ModelBody,
}

/// The body of an answer, as it comes.
pub struct ModelBody(Pin<Box<dyn Stream<Item = Result<Bytes, UpstreamError>> + Send>>);

impl ModelBody {
    /// A body that comes in parts.
    #[must_use]
    pub fn stream(
        parts: impl Stream<Item = Result<Bytes, UpstreamError>> + Send + 'static,
    ) -> Self {
        Self(Box::pin(parts))
    }

    /// A body that is there already.
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self(Box::pin(Whole(Some(bytes.into()))))
    }

    /// The next part; `None` at the end.
    pub async fn next(&mut self) -> Option<Result<Bytes, UpstreamError>> {
        std::future::poll_fn(|context| self.0.as_mut().poll_next(context)).await
    }

    /// All of it, unless it is more than `limit` bytes.
    ///
    /// # Errors
    /// Fails where the body breaks off or is too long.
    pub async fn collect(mut self, limit: usize) -> Result<Bytes, UpstreamError> {
        let Some(first) = self.next().await.transpose()? else {
            return Ok(Bytes::new());
        };
        let too_long = |length: usize| length > limit;
        if too_long(first.len()) {
            return Err(UpstreamError::TooLong { limit });
        }
        let Some(second) = self.next().await.transpose()? else {
            return Ok(first);
        };
        let mut all = BytesMut::from(&first[..]);
        let mut part = Some(second);
        while let Some(bytes) = part {
            if too_long(all.len().saturating_add(bytes.len())) {
                return Err(UpstreamError::TooLong { limit });
            }
            all.extend_from_slice(&bytes);
            part = self.next().await.transpose()?;
        }
        Ok(all.freeze())
    }
}

impl Stream for ModelBody {
    type Item = Result<Bytes, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for ModelBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ModelBody")
    }
}

struct Whole(Option<Bytes>);

impl Stream for Whole {
    type Item = Result<Bytes, UpstreamError>;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        Poll::Ready(self.0.take().filter(|bytes| !bytes.is_empty()).map(Ok))
    }
}

/// Why an answer does not come, or breaks off. No text in here holds a credential or a query.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UpstreamError {
    /// Nothing answers at the address.
    #[error("cannot connect: {0}")]
    Unreachable(String),
    /// Nothing answered at the address in time.
    #[error("no connection within {limit_ms} ms")]
    ConnectTimeout {
        /// The time allowed.
        limit_ms: u64,
    },
    /// The connection stands, but no answer began.
    #[error("no answer within {limit_ms} ms")]
    FirstByteTimeout {
        /// The time allowed.
        limit_ms: u64,
    },
    /// The answer began and then nothing more came.
    #[error("nothing more came within {limit_ms} ms")]
    Stalled {
        /// The time allowed.
        limit_ms: u64,
    },
    /// The answer came, but not to its end in time.
    #[error("the answer took longer than {limit_ms} ms")]
    TotalTimeout {
        /// The time allowed.
        limit_ms: u64,
    },
    /// The connection broke before the end of the answer.
    #[error("the answer broke off: {0}")]
    Broken(String),
    /// The answer is longer than is taken.
    #[error("the answer is longer than {limit} bytes")]
    TooLong {
        /// The length allowed.
        limit: usize,
    },
    /// The vendor sends the request elsewhere; it is not followed.
    #[error("the vendor answers with a redirection, which is not followed")]
    Redirected,
    /// What the upstream needs is not configured.
    #[error("{0}")]
    NotConfigured(String),
    /// The request is one that cannot be made there; nothing was sent.
    #[error("{0}")]
    Unaskable(String),
}

impl UpstreamError {
    /// Whether it says something about the vendor: a request that was never sent does not.
    #[must_use]
    pub const fn is_of_vendor(&self) -> bool {
        !matches!(self, Self::NotConfigured(_) | Self::Unaskable(_))
    }

    /// Whether the vendor may have got the request and worked on it.
    #[must_use]
    pub const fn may_have_been_heard(&self) -> bool {
        match self {
            Self::FirstByteTimeout { .. }
            | Self::Stalled { .. }
            | Self::TotalTimeout { .. }
            | Self::Broken(_)
            | Self::TooLong { .. } => true,
            Self::Unreachable(_)
            | Self::ConnectTimeout { .. }
            | Self::Redirected
            | Self::NotConfigured(_)
            | Self::Unaskable(_) => false,
        }
    }

    /// The code under which it is reported.
    #[must_use]
    pub const fn code(&self) -> ErrorCode {
        match self {
            Self::Unaskable(_) => ErrorCode::ValidationFailed,
            Self::Unreachable(_) | Self::NotConfigured(_) => ErrorCode::BackendUnavailable,
            Self::ConnectTimeout { .. } => ErrorCode::BackendConnectTimeout,
            Self::FirstByteTimeout { .. } => ErrorCode::BackendFirstByteTimeout,
            Self::Stalled { .. } => ErrorCode::BackendStalled,
            Self::TotalTimeout { .. } => ErrorCode::BackendTimeout,
            Self::Broken(_) | Self::TooLong { .. } | Self::Redirected => {
                ErrorCode::BackendBrokenAnswer
            }
        }
    }
}

impl From<UpstreamError> for AbpError {
    fn from(error: UpstreamError) -> Self {
        Self::new(error.code(), error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_does_not_show_what_is_said() {
        let call = ModelCall {
            dialect: Dialect::Claude,
            operation: ModelOperation::CountTokens,
            model: "m".to_owned(),
            query: None,
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"canary"),
        };
        let shown = format!("{call:?}");
        assert!(shown.contains("6 bytes"), "{shown}");
        assert!(!shown.contains("canary"), "{shown}");
    }
}
