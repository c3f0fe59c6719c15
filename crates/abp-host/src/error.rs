//! Why a sidecar did not do its work.

use abp_core::CONTRACT_VERSION;
use abp_error::{AbpError, ErrorCode};
use abp_protocol::FatalError;
use abp_sandbox::{Exit, SpawnError};
use sidecar_kit::session::{Expired, Violation};
use sidecar_kit::{CodecError, Fault, FrameError, RunReport};

/// How much of the standard error a failure carries.
const TAIL: usize = 8 * 1024;

/// Why a sidecar did not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HostError {
    /// It could not be started.
    #[error("the sidecar could not be started")]
    Spawn(#[from] SpawnError),
    /// It took too long.
    #[error("the sidecar took too long: {0}")]
    TimedOut(Expired),
    /// It broke the protocol.
    #[error("the sidecar broke the protocol: line {line}: {violation}{}", detail.as_ref().map(|detail| format!(": {detail:?}")).unwrap_or_default())]
    Violation {
        /// The line of its output.
        line: u64,
        /// The rule.
        violation: Violation,
        /// More about it, where there is more to say.
        detail: Option<String>,
    },
    /// It sent a known message with wrong content.
    #[error("the sidecar broke the protocol: line {line}: {error}")]
    InvalidFrame {
        /// The line of its output.
        line: u64,
        /// What is wrong.
        error: FrameError,
    },
    /// Its output is no text, or a line of it never ends.
    #[error("the sidecar broke the protocol: {0}")]
    InvalidOutput(CodecError),
    /// It speaks another version of the contract.
    #[error("the sidecar speaks {theirs:?}, which does not fit {CONTRACT_VERSION:?}")]
    Version {
        /// What it speaks.
        theirs: String,
    },
    /// Its hello has wrong content.
    #[error("the sidecar's hello is not valid: {0}")]
    InvalidHello(String),
    /// An event of it has wrong content.
    #[error("an event of the sidecar is not valid: {0}")]
    InvalidEvent(String),
    /// Its final message has wrong content.
    #[error("the sidecar's final is not valid: {0}")]
    InvalidFinal(String),
    /// It sent an event of a kind that only the host sends.
    #[error(
        "the sidecar broke the protocol: it sent an event of the kind {kind:?}, which only the host sends"
    )]
    HostOnlyEvent {
        /// The kind.
        kind: String,
    },
    /// It ended before its work did.
    #[error("the sidecar ended before its work did")]
    Exited,
    /// It gave up.
    #[error("the sidecar gave up: {}", .0.message)]
    Fatal(FatalError),
    /// It does not read its input.
    #[error("the sidecar did not read its input for {0:?}")]
    InputBlocked(std::time::Duration),
    /// It did not exit after its work.
    #[error("the sidecar did not exit within {0:?} after the end of its work")]
    NoExit(std::time::Duration),
    /// The run was stopped, and the sidecar left no result.
    #[error("the sidecar was stopped and left no result")]
    Stopped,
}

impl HostError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            // The workspace is at fault and not the sidecar; the run makes a copy and tries again.
            Self::Spawn(SpawnError::Overlay(_)) => ErrorCode::WorkspaceInitFailed,
            Self::Spawn(_) => ErrorCode::SidecarSpawnFailed,
            Self::TimedOut(Expired::Hello(_)) | Self::InvalidHello(_) => {
                ErrorCode::ProtocolHandshakeFailed
            }
            Self::TimedOut(_) | Self::InputBlocked(_) | Self::NoExit(_) => {
                ErrorCode::BackendTimeout
            }
            Self::Violation { violation, .. } => violation_code(violation),
            Self::InvalidFrame { .. }
            | Self::InvalidOutput(_)
            | Self::InvalidEvent(_)
            | Self::InvalidFinal(_) => ErrorCode::ProtocolInvalidEnvelope,
            Self::HostOnlyEvent { .. } => ErrorCode::ProtocolUnexpectedMessage,
            Self::Version { .. } => ErrorCode::ProtocolVersionMismatch,
            Self::Exited => ErrorCode::BackendCrashed,
            Self::Fatal(fatal) => fatal.code.unwrap_or(ErrorCode::BackendCrashed),
            Self::Stopped => ErrorCode::RunCancelled,
        }
    }
}

fn violation_code(violation: &Violation) -> ErrorCode {
    match violation {
        Violation::MissingRefId { .. } => ErrorCode::ProtocolMissingRefId,
        Violation::TooMuchNoise { .. } => ErrorCode::ProtocolHandshakeFailed,
        Violation::Noise => ErrorCode::ProtocolInvalidEnvelope,
        _ => ErrorCode::ProtocolUnexpectedMessage,
    }
}

impl From<Fault> for HostError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Spawn(error) => Self::Spawn(error),
            Fault::Expired(expired) => Self::TimedOut(expired),
            Fault::Violation {
                line,
                violation,
                detail,
            } => Self::Violation {
                line,
                violation,
                detail,
            },
            Fault::Frame { line, error } => Self::InvalidFrame { line, error },
            Fault::Codec(error) => Self::InvalidOutput(error),
            Fault::Fatal { error, error_code } => fatal(&error, error_code.as_deref()),
            Fault::InputBlocked(after) => Self::InputBlocked(after),
            Fault::NoExit(after) => Self::NoExit(after),
            Fault::Cancelled | Fault::Abandoned => Self::Stopped,
            // The kit's faults may grow; whatever it is, there is no result.
            _ => Self::Exited,
        }
    }
}

/// The error of a fatal message: a text and a code, or an object with both.
fn fatal(error: &serde_json::Value, error_code: Option<&str>) -> HostError {
    let written = serde_json::json!({ "error": error, "error_code": error_code });
    let read = serde_json::from_value(written).unwrap_or_else(|_| FatalError {
        message: error.to_string(),
        code: error_code.and_then(|code| code.parse().ok()),
    });
    HostError::Fatal(read)
}

/// A failure, with everything that helps to find out why.
#[derive(Debug, thiserror::Error)]
#[error("{error}")]
pub struct SidecarFailure {
    /// Why.
    #[source]
    pub error: HostError,
    /// How the process ended, where there was one.
    pub exit: Option<Exit>,
    /// The end of what it wrote to its standard error.
    pub stderr_tail: String,
}

impl SidecarFailure {
    pub(crate) fn of(report: RunReport, error: HostError) -> Self {
        Self {
            error,
            exit: report.exit,
            stderr_tail: report.stderr_tail,
        }
    }
}

impl From<RunReport> for SidecarFailure {
    fn from(mut report: RunReport) -> Self {
        let result = std::mem::replace(&mut report.result, Err(Fault::Exited));
        let error = result.err().map_or(HostError::Exited, HostError::from);
        Self::of(report, error)
    }
}

impl From<SidecarFailure> for AbpError {
    fn from(failure: SidecarFailure) -> Self {
        let SidecarFailure {
            error,
            exit,
            stderr_tail,
        } = failure;
        let result = Self::new(error.code(), error.to_string());
        let result = with_process_end(result, exit, &stderr_tail);
        match error {
            HostError::Spawn(cause) => result.with_source(cause),
            _ => result,
        }
    }
}

/// The error with how the process ended (`exit` in words, `exit_code` or `signal` as a number) and
/// the end of its standard error (`stderr_tail`) in its context.
#[must_use]
pub fn with_process_end(error: AbpError, exit: Option<Exit>, stderr_tail: &str) -> AbpError {
    let error = match exit {
        Some(exit) => error.with_context("exit", exit.to_string()),
        None => error,
    };
    let error = match exit {
        Some(Exit::Code(code)) => error.with_context("exit_code", code),
        Some(Exit::Signal(signal)) => error.with_context("signal", signal),
        Some(Exit::Unknown) | None => error,
    };
    if stderr_tail.is_empty() {
        return error;
    }
    error.with_context("stderr_tail", tail(stderr_tail))
}

/// The end of a text, cut between characters.
fn tail(text: &str) -> &str {
    let mut start = text.len().saturating_sub(TAIL);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or_default()
}
