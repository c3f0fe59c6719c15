//! What can be wrong with a store.

use std::fmt;

use serde::Serialize;
use uuid::Uuid;

/// Something wrong with a store that its log alone does not show.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "problem", rename_all = "snake_case")]
#[non_exhaustive]
pub enum StoreProblem {
    /// No checkpoint covers the entries from here on.
    Unsigned {
        /// The first of them.
        seq: u64,
    },
    /// A receipt is stored that the log does not have.
    UnloggedReceipt {
        /// The entry it claims, which is not the end of its run.
        seq: u64,
    },
    /// A run is stored that the log does not have.
    UnloggedRun {
        /// The run, as its row names it.
        run_id: String,
    },
    /// The log has the start of a run whose row is gone.
    MissingRun {
        /// The run.
        run_id: Uuid,
        /// Its start.
        seq: u64,
    },
    /// Something that is stored of a run is not what was logged.
    RunChanged {
        /// The run.
        run_id: Uuid,
        /// What was changed.
        what: RunPart,
        /// How that shows.
        detail: String,
    },
    /// A decision is not the one that was logged, or is gone.
    Decision {
        /// Its entry in the log.
        seq: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// A segment of the exchange log is not the one that was sealed, or is gone.
    Segment {
        /// Its entry in the log.
        seq: u64,
        /// What is wrong with it.
        detail: String,
    },
    /// A checkpoint cannot be read.
    UnreadableCheckpoint {
        /// What is wrong with it.
        #[serde(rename = "detail")]
        problem: String,
    },
    /// A checkpoint is filed under another size of the log than the one it signs.
    Checkpoint {
        /// The size it is filed under.
        size: i64,
        /// The size that it signs.
        signed: u64,
    },
    /// What the store notes of the log's end and keys is not what the log says.
    Head {
        /// The column.
        column: &'static str,
        /// What is wrong with it.
        detail: String,
    },
    /// A ledger of an exchange has another hash than the one it is found by.
    Ledger {
        /// The hash of its text.
        detail: String,
    },
    /// The database's own structure is damaged.
    Database {
        /// What the database says.
        #[serde(rename = "detail")]
        problem: String,
    },
}

/// A part of what is stored of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPart {
    /// Backend, project, principal, request, or another value of the run's row.
    Row,
    /// The time at which the run was accepted.
    AcceptedAt,
    /// The hash of the order.
    OrderHash,
    /// The stored order, with the task in it.
    Order,
    /// The hash of the receipt, beside its document.
    ReceiptHash,
    /// The outcome.
    Outcome,
    /// The time at which the run ended.
    EndedAt,
    /// The events.
    Events,
    /// The change set: its hash, its state, its document or an image.
    ChangeSet,
}

impl fmt::Display for RunPart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Row => "row",
            Self::AcceptedAt => "time of acceptance",
            Self::OrderHash => "hash of the order",
            Self::Order => "stored order",
            Self::ReceiptHash => "hash of the receipt",
            Self::Outcome => "outcome",
            Self::EndedAt => "time of the end",
            Self::Events => "events",
            Self::ChangeSet => "change set",
        })
    }
}

impl fmt::Display for StoreProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned { seq } => write!(f, "no checkpoint covers the entries from {seq} on"),
            Self::UnloggedReceipt { seq } => write!(
                f,
                "a receipt claims entry {seq}, which is not the end of its run"
            ),
            Self::UnloggedRun { run_id } => {
                write!(f, "run {run_id} is stored, and the log has no start of it")
            }
            Self::MissingRun { run_id, seq } => {
                write!(
                    f,
                    "run {run_id} started in entry {seq}, and its row is gone"
                )
            }
            Self::RunChanged {
                run_id,
                what,
                detail,
            } => write!(f, "run {run_id}: not the logged {what}: {detail}"),
            Self::Decision { seq, detail } => write!(f, "decision {seq}: {detail}"),
            Self::Segment { seq, detail } => write!(f, "exchange segment {seq}: {detail}"),
            Self::UnreadableCheckpoint { problem } => {
                write!(f, "a checkpoint cannot be read: {problem}")
            }
            Self::Checkpoint { size, signed } => write!(
                f,
                "the checkpoint of size {signed} is filed under size {size}"
            ),
            Self::Head { column, detail } => write!(f, "head, column {column}: {detail}"),
            Self::Ledger { detail } => write!(f, "a ledger was changed: {detail}"),
            Self::Database { problem } => write!(f, "the database is damaged: {problem}"),
        }
    }
}
