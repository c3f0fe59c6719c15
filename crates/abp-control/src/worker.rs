//! Workers: claiming queued runs, carrying them out, and looking after interrupted ones.
//!
//! A process that serves starts its workers once. One task waits for a place among the runs that go on at
//! once, claims the oldest run that may be carried out, and begins it; another takes over runs whose
//! process is gone or let its lease end. Both are woken by submissions of this process and by changes of
//! the store, which other processes make.

use std::sync::Arc;
use std::time::Duration;

use abp_config::Config;
use abp_core::{CancelReason, Receipt};
use abp_error::AbpError;
use abp_runtime::{BegunRun, Decider, RunPlace, RuntimeError, may_die};
use abp_store::{ClaimRequest, ClaimedRun, StoreError};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;

use crate::submission::StoredSubmission;
use crate::{ControlPlane, GarbageMode, Submission};

/// How often interrupted runs are looked for.
const RECOVERY: Duration = Duration::from_secs(2);
/// How long the workers rest after the store failed.
const AFTER_FAILURE: Duration = Duration::from_secs(1);

/// How much this process takes on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerLimits {
    /// How many runs of one principal go on at once; `None` is as many as there are places.
    pub running_per_principal: Option<u32>,
    /// How long a run may go without a sign of life before another process takes it over.
    pub lease: Duration,
}

impl Default for WorkerLimits {
    fn default() -> Self {
        Self::of(&Config::default())
    }
}

impl WorkerLimits {
    /// The configured limits.
    #[must_use]
    pub fn of(config: &Config) -> Self {
        Self {
            running_per_principal: Some(config.control.max_running_per_principal),
            lease: default_lease(),
        }
    }
}

const LEASE: Duration = Duration::from_secs(15);

/// The usual lease; tests let it end sooner.
#[cfg(debug_assertions)]
fn default_lease() -> Duration {
    let given = std::env::var("ABP_TEST_LEASE_MS").ok();
    let given = given.and_then(|given| given.parse().ok());
    given.map_or(LEASE, Duration::from_millis)
}

#[cfg(not(debug_assertions))]
fn default_lease() -> Duration {
    LEASE
}

/// What wakes and stops the workers of a process.
#[derive(Debug)]
pub(crate) struct WorkerSignals {
    pub(crate) submitted: Arc<Notify>,
    draining: watch::Sender<bool>,
}

impl Default for WorkerSignals {
    fn default() -> Self {
        Self {
            submitted: Arc::default(),
            draining: watch::Sender::new(false),
        }
    }
}

/// The workers of a process. They go on when this is dropped; [`ControlPlane::drain`] ends them.
#[derive(Debug)]
pub struct Workers {
    tasks: Vec<JoinHandle<()>>,
    /// They look and tell, and end with the others.
    watchers: Vec<JoinHandle<()>>,
}

impl Workers {
    /// Waits until the workers have ended.
    pub async fn ended(self) {
        for task in self.tasks {
            // A panic in it was reported where it happened.
            drop(task.await);
        }
        for watcher in self.watchers {
            watcher.abort();
        }
    }
}

impl ControlPlane {
    /// Begins to carry out queued runs, and to look after interrupted ones.
    ///
    /// # Errors
    /// Fails where the store cannot be opened.
    pub async fn start_workers(&self, limits: WorkerLimits) -> Result<Workers, AbpError> {
        self.store().await?;
        Ok(Workers {
            tasks: vec![
                tokio::spawn(self.clone().claim_runs(limits)),
                tokio::spawn(self.clone().recover_runs()),
                tokio::spawn(self.clone().keep_house()),
            ],
            watchers: vec![
                tokio::spawn(self.clone().watch_queue()),
                tokio::spawn(self.clone().send_telemetry()),
            ],
        })
    }

    /// Ends the workers of this process: nothing more is claimed, and runs that go on have `grace` to end.
    /// After that, runs that may be begun again are given back to the queue, and all others are stopped
    /// with a receipt that says so. Returns how many did not end even then.
    pub async fn drain(&self, grace: Duration) -> usize {
        self.signals().draining.send_replace(true);
        let runtime = self.runtime();
        let deadline = tokio::time::Instant::now() + grace;
        while !runtime.running().is_empty() && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        runtime.finish(CancelReason::Shutdown, SHUTDOWN_GRACE).await
    }

    /// Claims runs as long as there are places for them.
    async fn claim_runs(self, limits: WorkerLimits) {
        let mut draining = self.signals().draining.subscribe();
        let submitted = Arc::clone(&self.signals().submitted);
        loop {
            let place = tokio::select! {
                biased;
                _ = draining.wait_for(|draining| *draining) => return,
                place = self.runtime().wait_for_place() => place,
            };
            let Ok(store) = self.store().await else {
                return;
            };
            // Subscribed before looking, so that nothing is missed in between.
            let mut changes = store.changes();
            let notified = submitted.notified();
            match self.claim_one(&limits, place).await {
                Ok(true) => continue,
                Ok(false) => {}
                Err(error) => {
                    tracing::error!(target: "abp.control", %error, "a run could not be claimed");
                    tokio::time::sleep(AFTER_FAILURE).await;
                    continue;
                }
            }
            tokio::select! {
                _ = draining.wait_for(|draining| *draining) => return,
                () = notified => {}
                () = changes.changed() => {}
            }
        }
    }

    /// Claims a run and begins it; whether there was one.
    async fn claim_one(
        &self,
        limits: &WorkerLimits,
        place: Arc<RunPlace>,
    ) -> Result<bool, AbpError> {
        let request = ClaimRequest {
            run_id: None,
            lease: limits.lease,
            running_per_principal: limits.running_per_principal,
        };
        let store = self.store().await?;
        // Looking costs the others nothing; claiming waits for its turn to write.
        if !store.has_queued().await? {
            return Ok(false);
        }
        let claimed = match store.claim(request).await {
            Ok(Some(claimed)) => claimed,
            Ok(None) => return Ok(false),
            Err(StoreError::Unopened { lease, problem }) => {
                let error = StoreError::Unopened { lease, problem };
                self.runtime()
                    .end_unbegun(lease, Some(error.into()))
                    .await?;
                return Ok(true);
            }
            Err(error) => return Err(error.into()),
        };
        may_die("claimed");
        self.begin(claimed, limits.lease, place).await?;
        Ok(true)
    }

    async fn begin(
        &self,
        claimed: ClaimedRun,
        duration: Duration,
        place: Arc<RunPlace>,
    ) -> Result<(), AbpError> {
        self.end_lost_sidecars();
        let lease = claimed.lease;
        let read = StoredSubmission::from_bytes(&claimed.submission)
            .and_then(StoredSubmission::into_submission);
        let submission: Submission = match read {
            Ok(submission) => submission,
            Err(error) => {
                self.runtime().end_unbegun(lease, Some(error)).await?;
                return Ok(());
            }
        };
        let discards_changes = submission.discards_changes;
        let submission = self.resume(submission, &claimed).await?;
        let (backend, order, options) = match self.prepare(submission) {
            Ok(prepared) => prepared,
            Err(error) => {
                self.runtime().end_unbegun(lease, Some(error)).await?;
                return Ok(());
            }
        };
        let begun = BegunRun {
            lease,
            duration,
            attempt: claimed.attempt,
            may_retry: claimed.attempt < claimed.max_attempts,
            next_event: claimed.next_event,
            cancel: claimed.cancel,
            place,
        };
        let handle = self
            .runtime()
            .begin(begun, &backend, order, options)
            .await?;
        if let Some(handle) = handle {
            let plane = self.clone();
            tokio::spawn(async move {
                let run_id = lease.run_id;
                match handle.receipt.await {
                    Ok(receipt) if discards_changes => plane.discard_unasked(&receipt).await,
                    Ok(_) | Err(RuntimeError::GivenBack(_)) => {}
                    Err(error) => {
                        tracing::error!(target: "abp.control", %run_id, %error, "a run was lost to this process");
                    }
                }
            });
        }
        Ok(())
    }

    /// Gives another attempt of a run the session that the attempt before had.
    async fn resume(
        &self,
        submission: Submission,
        claimed: &ClaimedRun,
    ) -> Result<Submission, AbpError> {
        if claimed.next_event == 0 {
            return Ok(submission);
        }
        let backend = submission.backend.as_deref().unwrap_or_default();
        let left = self.session_of_attempts(claimed.lease.run_id, backend);
        Ok(match left.await? {
            Some(session) => Submission {
                session: Some(session),
                ..submission
            },
            None => submission,
        })
    }

    /// Throws the changes of a run away that was asked for its words only; the receipt has them.
    async fn discard_unasked(&self, receipt: &Receipt) {
        if receipt.artifacts.iter().all(|one| one.kind != "stage") {
            return;
        }
        let run_id = receipt.meta.run_id;
        let decider = Decider {
            by: "assist".to_owned(),
            via: "http".to_owned(),
        };
        if let Err(error) = self.discard(run_id, decider).await {
            tracing::warn!(target: "abp.control", %run_id, %error, "a workspace was not removed");
        }
    }

    /// Looks after interrupted runs until the process drains.
    async fn recover_runs(self) {
        let mut draining = self.signals().draining.subscribe();
        loop {
            tokio::select! {
                _ = draining.wait_for(|draining| *draining) => return,
                () = tokio::time::sleep(RECOVERY) => {}
            }
            let recovered: Result<usize, RuntimeError> = self.runtime().recover().await;
            if let Err(error) = recovered {
                tracing::error!(target: "abp.control", %error, "interrupted runs cannot be looked after");
            }
        }
    }
}

impl ControlPlane {
    /// Removes what the retention lets go, round after round, until the process drains.
    async fn keep_house(self) {
        let mut draining = self.signals().draining.subscribe();
        let mut pause = first_round(self.config().retention.interval_minutes);
        loop {
            tokio::select! {
                _ = draining.wait_for(|draining| *draining) => return,
                () = tokio::time::sleep(pause) => {}
            }
            let round = self.collect_garbage(GarbageMode::Remove, |_| {});
            let done = tokio::select! {
                _ = draining.wait_for(|draining| *draining) => return,
                done = round => done,
            };
            match done {
                Ok(report) if report.removed.is_empty() => {}
                Ok(report) => {
                    tracing::info!(target: "abp.control", removed = ?report.removed, "removed what the retention lets go");
                }
                Err(error) => {
                    tracing::error!(target: "abp.control", %error, "housekeeping failed; it is tried again");
                }
            }
            pause = Duration::from_secs(u64::from(self.config().retention.interval_minutes) * 60);
        }
    }
}

/// When the first round begins: soon, but not while the process starts.
#[cfg(not(debug_assertions))]
fn first_round(interval_minutes: u32) -> Duration {
    FIRST_ROUND.min(Duration::from_secs(u64::from(interval_minutes) * 60))
}

/// As in a release; tests have it sooner.
#[cfg(debug_assertions)]
fn first_round(interval_minutes: u32) -> Duration {
    let given = std::env::var("ABP_TEST_GC_MS").ok();
    let given = given.and_then(|given| given.parse().ok());
    let usual = FIRST_ROUND.min(Duration::from_secs(u64::from(interval_minutes) * 60));
    given.map_or(usual, Duration::from_millis)
}

const FIRST_ROUND: Duration = Duration::from_secs(60);

/// How long runs may take to end once they were told to.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(5);
