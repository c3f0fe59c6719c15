//! The queue of runs: submitting them, claiming them, holding and losing their leases, cancelling them.
//!
//! A lease is the right to write for a run. Claiming a run, and taking over one that was interrupted,
//! raises its epoch; a write that carries an older epoch is refused, so a process that was stopped for
//! longer than its lease can do no harm when it wakes up.
//!
//! ```text
//! queued ──claim──► running ──ask──► awaiting_approval ──settle──► running ──finish──► final
//!    ▲                 │ requeue (drain)      │
//!    └─────────────────┴──────────────────────┘ take over, then requeue (interrupted)
//! ```

use std::time::Duration;

use abp_core::Timestamp;
use uuid::Uuid;
use zeroize::Zeroizing;

use crate::command::{Command, Done};
use crate::record::{Acceptance, CancelRecord, NewRun};
use crate::{RunState, Store, StoreError};

/// The right to write for a run: whoever has a smaller epoch has lost it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lease {
    /// The run.
    pub run_id: Uuid,
    /// Counts how often the run was claimed or taken over.
    pub epoch: u64,
}

/// How a run waits for a process that carries it out.
#[derive(Debug, Clone)]
pub struct Queueing {
    /// Everything that process needs. It is stored sealed, and deleted when the run ends.
    pub submission: Zeroizing<Vec<u8>>,
    /// How often the run may be begun.
    pub max_attempts: u32,
    /// The webhooks that are told of its approvals and of its end.
    pub notify: Vec<String>,
    /// How many runs may wait.
    pub limits: QueueLimits,
}

/// How many runs may wait to be carried out.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QueueLimits {
    /// In all.
    pub total: Option<u32>,
    /// Of one principal.
    pub per_principal: Option<u32>,
}

/// What a process that looks for work wants.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimRequest {
    /// Only this run; otherwise the oldest that may be carried out.
    pub run_id: Option<Uuid>,
    /// How long the lease lasts unless it is renewed.
    pub lease: Duration,
    /// How many runs of one principal go on at once.
    pub running_per_principal: Option<u32>,
}

/// A run that was claimed.
#[derive(Debug)]
pub struct ClaimedRun {
    /// The right to write for it.
    pub lease: Lease,
    /// How often it was begun, this time included.
    pub attempt: u32,
    /// How often it may be begun.
    pub max_attempts: u32,
    /// The number of its next event.
    pub next_event: u64,
    /// The request to cancel it, where there is one.
    pub cancel: Option<CancelRecord>,
    /// What it was submitted with.
    pub submission: Zeroizing<Vec<u8>>,
}

/// A run whose process is gone, or lost its lease, and which is this process's to end or to give back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TakenOver {
    /// The right to write for it.
    pub lease: Lease,
    /// How often it was begun.
    pub attempt: u32,
    /// How often it may be begun.
    pub max_attempts: u32,
    /// Whether what it was submitted with is stored, so that another attempt can be made.
    pub has_submission: bool,
    /// How far it was.
    pub state: RunState,
}

/// What became of a request to cancel a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CancelDecision {
    /// It is recorded; the run is in this state.
    Recorded(RunState),
    /// There was one before, which counts.
    Repeated(RunState),
    /// The run had ended.
    Ended(RunState),
}

/// A change to the queue.
#[derive(Debug)]
pub(crate) enum QueueChange {
    Claim(ClaimRequest),
    /// Gives a run of this process back.
    Requeue(Uuid),
    TakeOver(Uuid),
    /// The run goes on; its lease lasts so much longer.
    Renew(Uuid, Duration),
    Cancel {
        run_id: Uuid,
        record: CancelRecord,
    },
}

/// A run as it was claimed, with its submission still sealed.
#[derive(Debug, Clone)]
pub(crate) struct SealedClaim {
    pub(crate) lease: Lease,
    pub(crate) attempt: u32,
    pub(crate) max_attempts: u32,
    pub(crate) next_event: u64,
    pub(crate) cancel: Option<CancelRecord>,
    pub(crate) sealed: Vec<u8>,
}

impl Store {
    /// The same store, whose writes for the run of the lease carry its epoch and are refused once another
    /// process has the run.
    #[must_use]
    pub fn with_lease(&self, lease: Lease) -> Self {
        Self {
            inner: std::sync::Arc::clone(&self.inner),
            fence: Some(lease),
        }
    }

    /// Queues a run for whichever process claims it. It, its sealed submission and the log's entry for its
    /// start are durable when this returns.
    ///
    /// # Errors
    /// As [`Store::accept`]; also where as many runs wait as may.
    pub async fn submit(&self, run: NewRun, queueing: Queueing) -> Result<Acceptance, StoreError> {
        let sealed = self.inner.sealer.seal(run.run_id, &queueing.submission)?;
        let waiting = WaitingRun {
            sealed,
            max_attempts: queueing.max_attempts,
            notify: queueing.notify,
            limits: queueing.limits,
        };
        self.accept_run(run, Some(waiting)).await
    }

    /// Claims a run: the one named, or the oldest that may be carried out now. Of all processes that try
    /// at once, one gets it.
    ///
    /// # Errors
    /// Fails where it cannot be written, and where the run's submission does not open; the run is this
    /// process's to end then, with the lease that the error names.
    pub async fn claim(&self, request: ClaimRequest) -> Result<Option<ClaimedRun>, StoreError> {
        let command = Command::Queue(QueueChange::Claim(request));
        let Done::Claimed(claimed) = self.ask(command).await? else {
            return Err(StoreError::Closed);
        };
        let Some(claimed) = claimed else {
            return Ok(None);
        };
        let lease = claimed.lease;
        let opened = self.inner.sealer.open(lease.run_id, &claimed.sealed);
        let submission = opened.map_err(|error| StoreError::Unopened {
            lease,
            problem: error.to_string(),
        })?;
        Ok(Some(ClaimedRun {
            lease,
            attempt: claimed.attempt,
            max_attempts: claimed.max_attempts,
            next_event: claimed.next_event,
            cancel: claimed.cancel,
            submission,
        }))
    }

    /// Notes that the run of the lease goes on, and makes its lease last that much longer. Answers with
    /// the request to cancel it, where there is one.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] where the lease is lost.
    pub async fn renew(
        &self,
        lease: Lease,
        duration: Duration,
    ) -> Result<Option<CancelRecord>, StoreError> {
        let command = Command::Queue(QueueChange::Renew(lease.run_id, duration));
        match self.with_lease(lease).ask(command).await? {
            Done::Cancel(cancel) => Ok(cancel.map(|cancel| *cancel)),
            _ => Err(StoreError::Closed),
        }
    }

    /// Gives the run of the lease back to the queue.
    ///
    /// # Errors
    /// [`StoreError::NotOwner`] where the lease is lost, [`StoreError::NotQueueable`] where the run was
    /// never queued, so that no other process could carry it out.
    pub async fn requeue(&self, lease: Lease) -> Result<(), StoreError> {
        let command = Command::Queue(QueueChange::Requeue(lease.run_id));
        self.with_lease(lease).ask(command).await.map(drop)
    }

    /// Takes over a run whose process is gone or let its lease end. Exactly one of all who try gets it,
    /// and must end it or give it back; a run that is over, or whose process goes on with it, is nobody's
    /// to take.
    ///
    /// # Errors
    /// Fails where there is no such run.
    pub async fn take_over(&self, run_id: Uuid) -> Result<Option<TakenOver>, StoreError> {
        let command = Command::Queue(QueueChange::TakeOver(run_id));
        match self.ask(command).await? {
            Done::TakenOver(taken) => Ok(taken.map(|taken| *taken)),
            _ => Err(StoreError::Closed),
        }
    }

    /// Records that a run is to be cancelled. The process that carries it out, or the next to claim it,
    /// does so.
    ///
    /// # Errors
    /// Fails where there is no such run.
    pub async fn request_cancel(
        &self,
        run_id: Uuid,
        record: CancelRecord,
    ) -> Result<CancelDecision, StoreError> {
        let command = Command::Queue(QueueChange::Cancel { run_id, record });
        match self.ask(command).await? {
            Done::CancelDecided(decision) => Ok(decision),
            _ => Err(StoreError::Closed),
        }
    }
}

/// What is stored of a run that waits, besides the run.
#[derive(Debug)]
pub(crate) struct WaitingRun {
    pub(crate) sealed: Vec<u8>,
    pub(crate) max_attempts: u32,
    pub(crate) notify: Vec<String>,
    pub(crate) limits: QueueLimits,
}

impl QueueChange {
    pub(crate) fn run_id(&self) -> Option<Uuid> {
        match self {
            Self::Claim(request) => request.run_id,
            Self::Requeue(run_id)
            | Self::TakeOver(run_id)
            | Self::Renew(run_id, _)
            | Self::Cancel { run_id, .. } => Some(*run_id),
        }
    }
}

/// A time so much later.
pub(crate) fn later(now: Timestamp, duration: Duration) -> i64 {
    let duration = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    now.as_unix_millis().saturating_add(duration)
}
