//! What an author can do about an error.

use abp_host::HostError;
use sidecar_kit::session::{Expired, Violation};

/// For those who do not answer pings.
pub(super) const PONG: &str = "answer every ping with a pong of the same seq, also while the agent works: read standard input in a thread or task of its own.";

/// For those who take the task apart.
pub(super) const WHOLE_TASK: &str = "give the agent the whole task, with the block of instructions that ABP puts at its end, and name their capabilities in the final message's emulation.";

/// What to change.
pub(super) fn fix(error: &HostError) -> &'static str {
    match error {
        HostError::Spawn(_) => {
            "name a program that exists and may be executed; its arguments follow it."
        }
        HostError::TimedOut(Expired::Hello(_)) => {
            "write the hello message as the first line, before anything slow, and flush it."
        }
        HostError::TimedOut(Expired::Pong { .. }) => PONG,
        HostError::TimedOut(_) => {
            "end the run with one final or fatal message, and send events while it is under way; a longer --timeout may do."
        }
        HostError::Violation {
            violation: Violation::Noise,
            detail: Some(line),
            ..
        } if line.starts_with('{') => {
            "write every message whole, on one line, with a JSON library."
        }
        HostError::Violation { violation, .. } => violation_fix(violation),
        HostError::InvalidFrame { .. } => {
            "send every member that the message has in the protocol, with the type it has there."
        }
        HostError::InvalidOutput(_) => {
            "write UTF-8 without a byte order mark, one message to a line, every line with its end."
        }
        HostError::Version { .. } => {
            "say a contract_version of the same major version as the host's."
        }
        HostError::InvalidHello(_) => {
            "say who you are in backend.id, and your capabilities as an object of support levels."
        }
        HostError::InvalidEvent(_) | HostError::InvalidFinal(_) => {
            "send every member that the kind of event has; names and ids without control characters and of at most 256 bytes."
        }
        HostError::HostOnlyEvent { .. } => {
            "leave this kind of event out: run_started, run_completed, permission_requested, permission_resolved and adapted are the host's own statements."
        }
        HostError::Exited => {
            "end every run with a final or fatal message before the process exits; flush it."
        }
        HostError::Fatal(_) => "the program gave up by itself; its message says why.",
        HostError::InputBlocked(_) => "read standard input all the time, not only for the run.",
        HostError::NoExit(_) => {
            "exit when standard input ends; close what keeps the process alive."
        }
        HostError::Stopped => {
            "when cancelled, end the run with a final (a partial receipt) or fatal message."
        }
        _ => "see the protocol's documentation.",
    }
}

fn violation_fix(violation: &Violation) -> &'static str {
    match violation {
        Violation::NotHello { .. } => "say hello before anything else.",
        Violation::SecondHello => "say hello once, when the process starts.",
        Violation::NoRun { .. } => "wait for the run message before sending anything about a run.",
        Violation::MissingRefId { .. } | Violation::WrongRefId { .. } => {
            "copy the id of the run message into ref_id of every answer."
        }
        Violation::AfterEnd { .. } => "send nothing about a run after its final or fatal message.",
        Violation::HostsOnly { .. } => "do not send messages that only hosts send.",
        Violation::Noise | Violation::TooMuchNoise { .. } => {
            "print nothing but messages to standard output; logs belong on standard error."
        }
        _ => "see the protocol's documentation.",
    }
}
