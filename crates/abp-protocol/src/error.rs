//! Why a line cannot be read.

use abp_error::ErrorCode;

/// Why a line cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProtocolError {
    /// The line is longer than allowed; the rest of the stream cannot be trusted to be in step.
    #[error("line {line} is longer than {limit} bytes")]
    LineTooLong {
        /// Line, from 1.
        line: u64,
        /// The limit.
        limit: usize,
    },
    /// The line is not UTF-8.
    #[error("line {line} is not UTF-8: invalid byte at offset {offset}")]
    InvalidUtf8 {
        /// Line, from 1.
        line: u64,
        /// Offset of the first bad byte in the line.
        offset: usize,
    },
    /// The line is not a JSON object within the limits, or names a key twice.
    #[error("not a valid envelope: {0}")]
    InvalidJson(String),
    /// The message is known and its content is wrong.
    #[error("not a valid {kind:?} envelope: {problem}")]
    InvalidEnvelope {
        /// The message's `t`.
        kind: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The message is not known to this version; a newer peer may send it.
    #[error("unknown envelope {kind:?}")]
    UnknownEnvelope {
        /// The message's `t`.
        kind: String,
    },
    /// The stream could not be read.
    #[error("cannot read the stream")]
    Io(#[from] std::io::Error),
}

impl ProtocolError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::LineTooLong { .. }
            | Self::InvalidUtf8 { .. }
            | Self::InvalidJson(_)
            | Self::InvalidEnvelope { .. } => ErrorCode::ProtocolInvalidEnvelope,
            Self::UnknownEnvelope { .. } => ErrorCode::ProtocolUnexpectedMessage,
            Self::Io(_) => ErrorCode::BackendCrashed,
        }
    }
}
