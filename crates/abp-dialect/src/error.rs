//! Why a document cannot be read as one of a dialect.

use abp_error::{AbpError, ErrorCode};
use abp_json::JsonError;

use crate::{Dialect, MAX_OPEN_BLOCKS};

/// Why a document cannot be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DialectError {
    /// It is no JSON, or over a limit.
    #[error("not readable as JSON: {0}")]
    Json(#[from] JsonError),
    /// A value is of the wrong kind.
    #[error("{pointer:?} should be {expected}")]
    Shape {
        /// Where.
        pointer: String,
        /// What was expected.
        expected: &'static str,
    },
    /// A member that nothing can be done without is missing.
    #[error("{pointer:?} is missing")]
    Missing {
        /// Where it should be.
        pointer: String,
    },
    /// It is well formed and still not of this dialect.
    #[error("not a {what} of {}: {problem}", dialect.label())]
    NotThis {
        /// The dialect.
        dialect: Dialect,
        /// Request, response, stream event or error.
        what: &'static str,
        /// What speaks against it.
        problem: String,
    },
    /// A stream's bytes are over a limit, or no stream.
    #[error("stream: {0}")]
    Stream(String),
    /// More is under way in a stream than anybody keeps track of.
    #[error("more than {limit} {what} of a stream are open at once")]
    TooManyOpen {
        /// Blocks, calls or parts.
        what: &'static str,
        /// How many may be.
        limit: usize,
    },
}

impl DialectError {
    /// More of these are open in a stream than [`MAX_OPEN_BLOCKS`].
    #[must_use]
    pub fn too_many_open(what: &'static str) -> Self {
        let limit = MAX_OPEN_BLOCKS;
        Self::TooManyOpen { what, limit }
    }
}

impl From<DialectError> for AbpError {
    fn from(error: DialectError) -> Self {
        let code = match error {
            DialectError::NotThis { .. } => ErrorCode::MappingDialectMismatch,
            _ => ErrorCode::DialectMappingFailed,
        };
        let pointer = match &error {
            DialectError::Shape { pointer, .. } | DialectError::Missing { pointer } => {
                Some(pointer.clone())
            }
            _ => None,
        };
        let wire = Self::new(code, error.to_string());
        match pointer {
            Some(pointer) => wire.with_context("pointer", pointer),
            None => wire,
        }
    }
}
