//! A run, from the caller's side.

use std::ops::Range;

use serde_json::Value;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::Fault;
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
}

/// Events that came together, as JSON texts. They share one buffer: none was copied.
#[derive(Debug, Default)]
pub struct EventBatch {
    text: String,
    events: Vec<Range<usize>>,
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
    pub(crate) fn new(text: String, events: Vec<Range<usize>>) -> Self {
        Self { text, events }
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// The events, each a JSON text.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.events
            .iter()
            .filter_map(|range| self.text.get(range.clone()))
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
