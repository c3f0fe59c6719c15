//! Why there is no sidecar, or no result of it.

use std::time::Duration;

use serde_json::Value;

use crate::session::{Expired, Violation};
use crate::{CodecError, FrameError, ProgramError};

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The launcher could not be started.
    #[error("cannot start the launcher {program}")]
    Launcher {
        /// The launcher.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no program to start.
    #[error(transparent)]
    NoProgram(#[from] ProgramError),
    /// The working directory cannot be used.
    #[error("cannot work in {directory}")]
    Directory {
        /// The directory.
        directory: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The launcher could not start the program.
    #[error("cannot start {0}")]
    Program(String),
    /// The launcher was lost before it had started the program.
    #[error("the launcher ended before it had started the program")]
    Lost,
    /// The pipes to the program could not be made.
    #[error("cannot make the pipes to the program")]
    Pipes(#[from] std::io::Error),
}

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
