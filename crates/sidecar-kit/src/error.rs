//! Why there is no sidecar, or no result of it.

use std::time::Duration;

use abp_sandbox::SpawnError;
use serde_json::Value;

use crate::session::{Expired, Violation};
use crate::{CodecError, FrameError};

/// Why a sidecar did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// It could not be started.
    #[error(transparent)]
    Spawn(#[from] SpawnError),
    /// Something did not come in time.
    #[error(transparent)]
    Expired(#[from] Expired),
    /// It broke the protocol.
    #[error("line {line}: {violation}")]
    Violation {
        /// The line of its output.
        line: u64,
        /// The rule it broke.
        violation: Violation,
        /// More about it, where there is more to say.
        detail: Option<String>,
    },
    /// It sent a known message with wrong content.
    #[error("line {line}: {error}")]
    Frame {
        /// The line of its output.
        line: u64,
        /// What is wrong with it.
        error: FrameError,
    },
    /// Its output cannot be read.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// It ended before its work did.
    #[error("it ended before its work did")]
    Exited,
    /// It gave up.
    #[error("it gave up: {}", fatal_text(.error))]
    Fatal {
        /// What it said: a text, or an object.
        error: Value,
        /// The code it gave.
        error_code: Option<String>,
    },
    /// It does not read its input.
    #[error("it did not read its input for {0:?}")]
    InputBlocked(Duration),
    /// It was cancelled, and ended without a word about the run.
    #[error("it was cancelled and left no result")]
    Cancelled,
    /// Its work was done, and it did not exit.
    #[error("it did not exit within {0:?} after the end of its work")]
    NoExit(Duration),
    /// Nobody follows the run any more.
    #[error("nobody follows the run any more")]
    Abandoned,
}

/// The text of a fatal message.
fn fatal_text(error: &Value) -> String {
    let message = error.get("message").unwrap_or(error);
    message
        .as_str()
        .map_or_else(|| message.to_string(), str::to_owned)
}
