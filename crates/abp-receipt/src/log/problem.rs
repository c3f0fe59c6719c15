//! What can be wrong with a log, and which promise that breaks.

use std::fmt;

use abp_error::ErrorCode;
use serde::Serialize;
use uuid::Uuid;

use crate::Hash;

/// What a log promises.
///
/// It does not promise that a backend told the truth, nor, without a witness, that its owner shows
/// everybody the same log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Promise {
    /// No entry and no receipt can change without being noticed.
    Integrity,
    /// Checkpoints are made by the holder of the log's key.
    Authenticity,
    /// Every older checkpoint is a beginning of the log.
    AppendOnly,
    /// Every run that started has exactly one end and one receipt.
    Completeness,
}

/// Where in a log something is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum LogPlace {
    /// The entry at that index, from 0.
    Entry(u64),
    /// The checkpoint of that size.
    Checkpoint(u64),
}

/// What was edited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Edited {
    /// The entry itself.
    Entry,
    /// The receipt the entry names.
    Receipt,
}

/// One thing that is wrong with a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, thiserror::Error)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[non_exhaustive]
pub enum LogProblem {
    /// An entry or a receipt was changed.
    #[error("entry {index}: the {what} was changed: {detail}")]
    Edit {
        /// The entry.
        index: u64,
        /// The run, where it can still be told.
        run_id: Option<Uuid>,
        /// What was changed.
        what: Edited,
        /// How that shows.
        detail: String,
    },
    /// The log is smaller than a checkpoint says.
    #[error("the log has {size} entries, and a checkpoint signs {checkpoint_size}")]
    Truncation {
        /// The entries there are.
        size: u64,
        /// The entries there were.
        checkpoint_size: u64,
    },
    /// The log does not begin with what a checkpoint signs.
    #[error(
        "the first {checkpoint_size} entries are not those of the checkpoint; intact up to entry {intact}"
    )]
    Rewrite {
        /// The size of the checkpoint.
        checkpoint_size: u64,
        /// The root it signs.
        expected: Hash,
        /// The root of as many entries of the log.
        computed: Hash,
        /// The size of the largest smaller checkpoint that still agrees.
        intact: u64,
    },
    /// An entry is not where it belongs.
    #[error("entry {index} is numbered {found}, expected {expected}")]
    Reorder {
        /// The entry.
        index: u64,
        /// The number it should have.
        expected: u64,
        /// The number it has.
        found: u64,
    },
    /// A run started, did not end, and is not known to be under way.
    #[error("run {run_id} started in entry {index} and has no end")]
    MissingEnd {
        /// The run.
        run_id: Uuid,
        /// Where it started.
        index: u64,
    },
    /// A run ended that did not start before.
    #[error("run {run_id} ended in entry {index} and has no start before it")]
    MissingStart {
        /// The run.
        run_id: Uuid,
        /// Where it ended.
        index: u64,
    },
    /// A run started again.
    #[error("run {run_id} started in entry {first} and again in entry {index}")]
    DuplicateStart {
        /// The run.
        run_id: Uuid,
        /// Where it started again.
        index: u64,
        /// Where it started first.
        first: u64,
    },
    /// A run ended again.
    #[error("run {run_id} ended in entry {first} and again in entry {index}")]
    DuplicateEnd {
        /// The run.
        run_id: Uuid,
        /// Where it ended again.
        index: u64,
        /// Where it ended first.
        first: u64,
    },
    /// A run ended and its receipt is gone.
    #[error("run {run_id} ended in entry {index} and its receipt is missing")]
    MissingReceipt {
        /// The run.
        run_id: Uuid,
        /// Where it ended.
        index: u64,
    },
    /// A decision about the changes of a run that did not start before.
    #[error("entry {index} decides about run {run_id}, which has no start before it")]
    StrayDecision {
        /// The run.
        run_id: Uuid,
        /// The decision.
        index: u64,
    },
    /// The events of a run were removed that had not ended before.
    #[error("entry {index} removes the events of run {run_id}, which has no end before it")]
    StrayErasure {
        /// The run.
        run_id: Uuid,
        /// The removal.
        index: u64,
    },
    /// An entry or a checkpoint is of another log.
    #[error("{place} is of the log {origin:?}")]
    WrongOrigin {
        /// Which.
        place: LogPlace,
        /// The other log.
        origin: String,
    },
    /// A signature by a known key is wrong, or a rotation cannot be followed.
    #[error("{place}: {detail}")]
    BadSignature {
        /// Whose.
        place: LogPlace,
        /// What is wrong with it.
        detail: String,
    },
    /// Nobody who is trusted signed.
    #[error("{place}: {detail}")]
    UnknownKey {
        /// What.
        place: LogPlace,
        /// Who did sign.
        detail: String,
    },
}

impl LogProblem {
    /// The promise that does not hold.
    #[must_use]
    pub fn promise(&self) -> Promise {
        match self {
            Self::Edit { .. } => Promise::Integrity,
            Self::BadSignature { .. } | Self::UnknownKey { .. } => Promise::Authenticity,
            Self::Truncation { .. }
            | Self::Rewrite { .. }
            | Self::Reorder { .. }
            | Self::WrongOrigin { .. } => Promise::AppendOnly,
            Self::MissingEnd { .. }
            | Self::MissingStart { .. }
            | Self::DuplicateStart { .. }
            | Self::DuplicateEnd { .. }
            | Self::MissingReceipt { .. }
            | Self::StrayDecision { .. }
            | Self::StrayErasure { .. } => Promise::Completeness,
        }
    }

    /// The problem's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Edit {
                what: Edited::Receipt,
                ..
            } => ErrorCode::ReceiptHashMismatch,
            _ => ErrorCode::ReceiptChainBroken,
        }
    }
}

impl fmt::Display for LogPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Entry(index) => write!(f, "entry {index}"),
            Self::Checkpoint(size) => write!(f, "the checkpoint of {size} entries"),
        }
    }
}

impl fmt::Display for Edited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Entry => "entry",
            Self::Receipt => "receipt",
        })
    }
}
