//! Every way in which there is no answer.

use std::fmt;
use std::time::Duration;

use http::StatusCode;

use crate::info::AbpInfo;

/// Why there is no answer, or no more of it. `B` is the vendor's body of an error.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error<B> {
    /// The API says so: the vendor, or the gateway in the vendor's words.
    #[error("{0}")]
    Api(Box<ApiError<B>>),
    /// What was answered is not what the vendor's API says.
    #[error("{0}")]
    Unexpected(Box<Unexpected>),
    /// The request cannot be written as JSON.
    #[error("the request cannot be written as JSON")]
    Request(#[from] serde_json::Error),
    /// The way to the gateway failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
}

impl<B> Error<B> {
    /// The status of the answer, where there was one that had one.
    #[must_use]
    pub fn status(&self) -> Option<StatusCode> {
        match self {
            Self::Api(error) => error.status,
            Self::Unexpected(answer) => Some(answer.status),
            Self::Request(_) | Self::Transport(_) => None,
        }
    }

    /// What the vendor knows the request by.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        match self {
            Self::Api(error) => error.request_id.as_deref(),
            Self::Unexpected(answer) => answer.request_id.as_deref(),
            Self::Request(_) | Self::Transport(_) => None,
        }
    }
}

/// An error of the API.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError<B> {
    /// The status; none where the error came in the course of a stream that had begun well.
    pub status: Option<StatusCode>,
    /// What the API says.
    pub body: B,
    /// What the vendor knows the request by.
    pub request_id: Option<String>,
    /// When to come again.
    pub retry_after: Option<Duration>,
    /// What the gateway did.
    pub abp: AbpInfo,
}

impl<B: fmt::Display> fmt::Display for ApiError<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            Some(status) => write!(f, "status {}: {}", status.as_u16(), self.body),
            None => self.body.fmt(f),
        }
    }
}

/// An answer that is not what the vendor's API says, such as the page of a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unexpected {
    /// Its status.
    pub status: StatusCode,
    /// What is wrong with it.
    pub problem: String,
    /// What the vendor knows the request by.
    pub request_id: Option<String>,
}

impl fmt::Display for Unexpected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            status, problem, ..
        } = self;
        let status = status.as_u16();
        write!(f, "the answer (status {status}) cannot be read: {problem}")
    }
}

/// How the way to the gateway failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TransportError {
    /// The address or the key cannot be used.
    #[error("{0}")]
    NotUsable(String),
    /// Nothing answers.
    #[error("no answer came: {0}")]
    NoAnswer(String),
    /// The answer has no end.
    #[error("the answer broke off: {0}")]
    BrokenOff(String),
}
