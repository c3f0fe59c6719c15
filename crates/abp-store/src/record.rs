//! What goes into the store and what comes out of it.

use std::pin::Pin;
use std::task::{Context, Poll};

use abp_core::Timestamp;
use abp_receipt::{Hash, SignedCheckpoint};
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::command::{Done, Reply};
use crate::{ExchangeHealth, Project, RunState, StoreError};

/// A run to be accepted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// The run.
    pub run_id: Uuid,
    /// The work order, as JSON.
    pub order_json: String,
    /// The order's hash, as [`abp_core::work_order_hash`] gives it.
    pub order_sha256: String,
    /// The backend that was chosen.
    pub backend: String,
    /// The backend that was asked for, such as `auto`.
    pub backend_asked: Option<String>,
    /// The directory that the run works on.
    pub project: Option<Project>,
    /// The identity that asked for the run.
    pub principal: Option<String>,
    /// When the run was accepted.
    pub at: Timestamp,
    /// Names the request: a second one with the same key is the same run.
    pub idempotency_key: Option<IdempotencyKey>,
}

/// The name a caller gave a request, so that sending it again does not start it again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdempotencyKey {
    /// The name.
    pub key: String,
    /// The hash of everything that makes the request what it is. The order's own hash would not do:
    /// it covers an id that is new each time.
    pub request: Hash,
}

/// What became of a run that was to be accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acceptance {
    /// It is new, and durable.
    New,
    /// A run with the same idempotency key and the same request is there already.
    Existing(Uuid),
}

/// A receipt that is durable, and in the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// The place of its entry in the log.
    pub seq: u64,
    /// A signed checkpoint that covers it.
    pub checkpoint: SignedCheckpoint,
}

/// Resolves when what was handed over is durable, or will never be.
#[derive(Debug)]
#[must_use = "it is durable only when this says so"]
pub struct Ack(pub(crate) oneshot::Receiver<Reply>);

impl Future for Ack {
    type Output = Result<(), StoreError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0)
            .poll(context)
            .map(|received| match received {
                Ok(Ok(Done::Written)) => Ok(()),
                Ok(Err(error)) => Err(error),
                // Closing answers everybody first: whoever gets no answer lost the writer.
                Ok(Ok(_)) | Err(_) => Err(StoreError::WriterGone),
            })
    }
}

/// A run, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunRecord {
    /// Counts the runs of this store; newer ones have larger numbers.
    pub number: i64,
    /// The run.
    pub run_id: Uuid,
    /// When it was accepted.
    pub accepted_at: Timestamp,
    /// The work order, as JSON.
    pub order_json: String,
    /// The order's hash.
    pub order_sha256: String,
    /// The backend that was chosen.
    pub backend: String,
    /// The backend that was asked for; `None` for runs of releases that did not record it.
    pub backend_asked: Option<String>,
    /// The directory that the run works on; `None` for runs of releases that did not record it.
    pub project: Option<Project>,
    /// The identity that asked for the run, where it is known.
    pub principal: Option<String>,
    /// The process it belongs to.
    pub owner: String,
    /// When its receipt was stored; `None` while there is none.
    pub ended_at: Option<Timestamp>,
    /// How it ended, as the receipt says it.
    pub outcome: Option<String>,
    /// The key of the request it was made for.
    pub idempotency_key: Option<String>,
    /// How far it is.
    pub state: RunState,
    /// How often it was begun.
    pub attempt: u32,
    /// The request to cancel it, where there is one.
    pub cancel: Option<CancelRecord>,
}

/// A request to cancel a run. The first one counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CancelRecord {
    /// When it came.
    pub at: Timestamp,
    /// The person or key that asked for it.
    pub by: String,
    /// The way it came: `cli`, `http`, `mcp`.
    pub via: String,
    /// Why, where a reason was given.
    pub reason: Option<String>,
}

/// Which runs to list, newest first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs that have ended, or only those that have not.
    pub ended: Option<bool>,
    /// Only runs on this backend.
    pub backend: Option<String>,
    /// Only runs with this outcome.
    pub outcome: Option<String>,
    /// Only runs in this state.
    pub state: Option<RunState>,
    /// Only runs of this principal.
    pub principal: Option<String>,
    /// Only runs whose project is this directory or contains it: a canonical path, as
    /// [`path_text`](crate::path_text) writes it. `None` lists the runs of all projects.
    pub directory: Option<String>,
    /// Only runs older than the one with this [number](RunRecord::number).
    pub before: Option<i64>,
}

/// An event, as it was appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EventRecord {
    /// Its number in the run, from 0.
    pub seq: u64,
    /// The event.
    pub json: String,
}

/// A stored receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptRecord {
    /// The run.
    pub run_id: Uuid,
    /// The place of its entry in the log.
    pub log_seq: u64,
    /// Its hash, as it was given.
    pub sha256: String,
    /// The document, byte for byte.
    pub document: Vec<u8>,
}

/// A receipt without its document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptSummary {
    /// The run.
    pub run_id: Uuid,
    /// The place of its entry in the log.
    pub log_seq: u64,
    /// Its hash.
    pub sha256: String,
    /// The size of its document.
    pub bytes: u64,
}

/// An entry of the log, as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogRecord {
    /// Its place in the log.
    pub seq: u64,
    /// The content of its leaf: canonical JSON.
    pub entry: String,
    /// The hash of the leaf.
    pub leaf: Hash,
}

/// A run that has no receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnfinishedRun {
    /// The run.
    pub run: RunRecord,
    /// Whether the process it belongs to still lives.
    pub owner_alive: bool,
    /// Whether that process is this one.
    pub own: bool,
    /// How many events were journaled.
    pub events: u64,
    /// When its process said last that it goes on; `None` in the first second of a run.
    pub alive_at: Option<Timestamp>,
    /// When its lease ends unless it is renewed; `None` where it lasts as long as its process.
    pub lease_until: Option<Timestamp>,
}

impl UnfinishedRun {
    /// Whether another process may [take it over](crate::Store::take_over) at that time: its own is gone,
    /// or let its lease end.
    #[must_use]
    pub fn is_interrupted(&self, now: Timestamp) -> bool {
        let has_lapsed = self.lease_until.is_some_and(|until| until < now);
        !self.own && (!self.owner_alive || has_lapsed)
    }
}

/// Whether the store takes what it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreState {
    /// Everything is taken.
    Ready,
    /// There is no space: receipts of running runs are taken, nothing else.
    DiskFull,
    /// A write failed: nothing is taken until one is seen to succeed.
    NotDurable,
    /// The store was closed, or its writer is gone: nothing is taken any more.
    Closed,
}

/// How the store is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Health {
    /// Whether it takes what it is given.
    pub state: StoreState,
    /// What is wrong, where something is.
    pub problem: Option<String>,
    /// Whether the space for receipts on a full disk is set aside.
    pub reserve: bool,
    /// Transactions this handle has committed.
    pub commits: u64,
    /// Bytes that wait to be written.
    pub waiting_bytes: usize,
    /// How the exchange log is.
    pub exchanges: ExchangeHealth,
}
