//! What the caller of a run holds.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use abp_backend_core::CancelHandle;
use abp_core::{CancelReason, Receipt};
use abp_workspace::StageProgress;
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::EventStream;
use crate::RuntimeError;

/// A run under way.
#[derive(Debug)]
pub struct RunHandle {
    /// The run.
    pub run_id: Uuid,
    /// How far its workspace is prepared.
    pub staging: Arc<StageProgress>,
    /// Its events, once they are durable. May be read slowly, or dropped: the run goes on all the same.
    pub events: EventStream,
    /// Its receipt. Dropping it cancels the run, unless it was detached.
    pub receipt: ReceiptHandle,
}

impl RunHandle {
    /// A handle with which the run can be cancelled from elsewhere.
    #[must_use]
    pub fn cancel_handle(&self) -> CancelHandle {
        self.receipt.cancel.clone()
    }
}

/// What became of a request to start a run here.
#[derive(Debug)]
pub enum StartedRun {
    /// It is new, and its run is under way.
    Started(RunHandle),
    /// It was sent before: this is its run, perhaps of another process. [`Runtime::receipt`] waits
    /// for its end.
    ///
    /// [`Runtime::receipt`]: crate::Runtime::receipt
    Existing(Uuid),
}

/// A future of the receipt. Dropping it before the end cancels the run with `disconnect`.
#[derive(Debug)]
pub struct ReceiptHandle {
    task: JoinHandle<Result<Receipt, RuntimeError>>,
    cancel: CancelHandle,
    detached: bool,
}

impl ReceiptHandle {
    pub(crate) fn new(
        task: JoinHandle<Result<Receipt, RuntimeError>>,
        cancel: CancelHandle,
    ) -> Self {
        Self {
            task,
            cancel,
            detached: false,
        }
    }

    /// Lets the run go on without anybody holding on to it.
    pub fn detach(mut self) {
        self.detached = true;
    }
}

impl Future for ReceiptHandle {
    type Output = Result<Receipt, RuntimeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.task)
            .poll(context)
            .map(|joined| joined.unwrap_or_else(|error| Err(RuntimeError::Lost(error.to_string()))))
    }
}

impl Drop for ReceiptHandle {
    fn drop(&mut self) {
        if !self.detached && !self.task.is_finished() {
            self.cancel.cancel(CancelReason::Disconnect);
        }
    }
}
