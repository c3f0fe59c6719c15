//! A run, from the caller's side.

use std::ops::Range;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::{Fault, PermissionRequest, PermissionResponse};
use abp_sandbox::{Containment, Exit};

/// A run under way. Dropping it ends the sidecar.
#[derive(Debug)]
pub struct RawRun {
    /// Its events, as they come. A reader that is slow slows the sidecar down.
    pub events: mpsc::Receiver<EventBatch>,
    /// How it ended. Comes after the last event, and when nothing of the sidecar is left.
    pub report: JoinHandle<RunReport>,
    /// Ends it early.
    pub cancel: CancelToken,
    /// Takes the answers to its questions.
    pub answers: mpsc::UnboundedSender<PermissionResponse>,
}

/// Events and questions that came together, in their order. Events are JSON texts that share one buffer:
/// none was copied.
#[derive(Debug, Default)]
pub struct EventBatch {
    text: String,
    items: Vec<StoredItem>,
}

/// An event or a question of a sidecar.
#[derive(Debug, PartialEq)]
pub enum BatchItem<'a> {
    /// An event, as a JSON text.
    Event(&'a str),
    /// A question; the sidecar waits for its answer.
    Question(&'a PermissionRequest),
}

#[derive(Debug)]
pub(crate) enum StoredItem {
    /// The place of an event in the batch's text.
    Event(Range<usize>),
    Question(PermissionRequest),
}

/// How a run ended.
#[derive(Debug)]
pub struct RunReport {
    /// The sidecar's own record, or why there is none.
    pub result: Result<Value, Fault>,
    /// How the process ended; `None` where there was none.
    pub exit: Option<Exit>,
    /// The end of what it wrote to its standard error.
    pub stderr_tail: String,
    /// What kept its descendants from getting away.
    pub containment: Option<Containment>,
    /// What somebody should know.
    pub warnings: Vec<String>,
    /// How many pings it answered.
    pub answered_pings: u64,
}

impl RunReport {
    /// There was nothing to report on.
    pub(crate) fn failed(fault: Fault) -> Self {
        Self {
            result: Err(fault),
            exit: None,
            stderr_tail: String::new(),
            containment: None,
            warnings: Vec::new(),
            answered_pings: 0,
        }
    }
}

impl EventBatch {
    pub(crate) fn new(text: String, items: Vec<StoredItem>) -> Self {
        Self { text, items }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The events and questions, in their order.
    pub fn iter(&self) -> impl Iterator<Item = BatchItem<'_>> {
        self.items.iter().filter_map(|item| match item {
            StoredItem::Event(range) => self.text.get(range.clone()).map(BatchItem::Event),
            StoredItem::Question(request) => Some(BatchItem::Question(request)),
        })
    }
}

/// Asks a run to end early. The first reason given is the one that counts.
#[derive(Debug, Clone)]
pub struct CancelToken {
    reason: watch::Sender<Option<String>>,
}

impl CancelToken {
    pub(crate) fn new() -> Self {
        Self {
            reason: watch::Sender::new(None),
        }
    }

    /// Asks for the end; does nothing where it was asked for before.
    pub fn cancel(&self, reason: impl Into<String>) {
        self.reason.send_if_modified(|current| {
            let first = current.is_none();
            if first {
                *current = Some(reason.into());
            }
            first
        });
    }

    /// Waits until the end is asked for.
    pub(crate) async fn cancelled(&self) -> String {
        let mut reasons = self.reason.subscribe();
        // It cannot fail: we hold the sender.
        let reason = reasons.wait_for(Option::is_some).await;
        reason
            .map_or(None, |reason| reason.clone())
            .unwrap_or_default()
    }
}
