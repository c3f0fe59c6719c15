//! Looking at runs, following them, and cancelling them.

use std::time::Duration;

use abp_core::{CancelReason, Receipt};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::current_time;
use abp_runtime::EventStream;
use abp_store::{
    CancelDecision, CancelRecord, ClaimRequest, KeyScope, RunFilter, RunRecord, RunState,
    StoreError,
};
use uuid::Uuid;

use crate::{ControlPlane, Principal};

/// How long ending a queued run may take.
const END_LEASE: Duration = Duration::from_secs(30);

/// A request to cancel a run. Who asks is the principal.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CancelRequest {
    /// Why, for the receipt.
    pub reason: Option<String>,
}

/// What became of a request to cancel a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CancelOutcome {
    /// The request is durable: the run ends, whichever process carries it out.
    Requested(RunRecord),
    /// An earlier request is there; it counts.
    AlreadyRequested(RunRecord),
    /// The run had ended.
    AlreadyEnded(RunRecord),
}

/// A page of runs, newest first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPage {
    /// The runs.
    pub runs: Vec<RunRecord>,
    /// What to give as [`RunFilter::before`] for the next page; `None` where this was the last.
    pub next: Option<i64>,
}

impl RunPage {
    /// The last run of the page, where another page follows.
    #[must_use]
    pub fn next_run(&self) -> Option<Uuid> {
        self.next.and(self.runs.last()).map(|run| run.run_id)
    }
}

impl ControlPlane {
    /// A run, as the store knows it.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] where there is no such run, or it belongs to another principal.
    pub async fn run(&self, principal: &Principal, run_id: Uuid) -> Result<RunRecord, AbpError> {
        let run = self.store().await?.run(run_id).await?;
        run.filter(|run| principal.may_see(run.principal.as_deref()))
            .ok_or_else(|| no_such_run(run_id))
    }

    /// A page of the runs that the principal may see.
    ///
    /// # Errors
    /// Fails where the store cannot be read.
    pub async fn runs(
        &self,
        principal: &Principal,
        filter: &RunFilter,
        limit: u32,
    ) -> Result<RunPage, AbpError> {
        let mut filter = filter.clone();
        if let Some(visible) = principal.visible() {
            filter.principal = Some(visible);
        }
        let store = self.store().await?;
        let runs = store.runs(&filter, limit).await?;
        // A page may be short because its orders are long, so its length does not say whether it is the last.
        filter.before = runs.last().map(|run| run.number);
        let next = match filter.before {
            Some(_) if !store.runs(&filter, 1).await?.is_empty() => filter.before,
            _ => None,
        };
        Ok(RunPage { runs, next })
    }

    /// The events of a run after the one with the number `after`, or from the first on: those that are
    /// stored, then those that come, without a gap, until the run has ended. Any number of callers may
    /// follow the same run, and none holds it back.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn follow(
        &self,
        principal: &Principal,
        run_id: Uuid,
        after: Option<u64>,
    ) -> Result<EventStream, AbpError> {
        let run = self.run(principal, run_id).await?;
        if run.state.is_final() {
            self.require_events(run_id).await?;
        }
        let from = after.map_or(0, |after| after.saturating_add(1));
        Ok(self.runtime().follow(run_id, from).await?)
    }

    /// Cancels a run, whichever process carries it out: the request is durable when this returns, and the
    /// run ends with a receipt that says who cancelled it and why. A queued run ends at once.
    ///
    /// # Errors
    /// As [`Self::run`], and where the principal may not.
    pub async fn cancel(
        &self,
        principal: &Principal,
        run_id: Uuid,
        request: CancelRequest,
    ) -> Result<CancelOutcome, AbpError> {
        principal.require(KeyScope::RunsWrite)?;
        self.run(principal, run_id).await?;
        self.request_cancel(principal, run_id, request).await
    }

    /// Cancels a run whose client left and did not come back: it was asked for that client alone.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn cancel_abandoned(
        &self,
        principal: &Principal,
        run_id: Uuid,
    ) -> Result<(), AbpError> {
        if self.runtime().cancel(run_id, CancelReason::Disconnect) {
            return Ok(());
        }
        let request = CancelRequest {
            reason: Some("its client left".to_owned()),
        };
        self.request_cancel(principal, run_id, request).await?;
        Ok(())
    }

    async fn request_cancel(
        &self,
        principal: &Principal,
        run_id: Uuid,
        request: CancelRequest,
    ) -> Result<CancelOutcome, AbpError> {
        let store = self.store().await?;
        let record = CancelRecord {
            at: current_time(),
            by: principal.name().to_owned(),
            via: principal.way().to_owned(),
            reason: request.reason,
        };
        let decision = store.request_cancel(run_id, record.clone()).await?;
        match decision {
            CancelDecision::Recorded(RunState::Queued) => self.end_queued(run_id).await?,
            CancelDecision::Recorded(_) => {
                // Another process notices by itself.
                self.runtime().cancel_by(run_id, &record);
            }
            CancelDecision::Repeated(_) | CancelDecision::Ended(_) => {}
        }
        let run = self.run(principal, run_id).await?;
        Ok(match decision {
            CancelDecision::Recorded(_) => CancelOutcome::Requested(run),
            CancelDecision::Repeated(_) => CancelOutcome::AlreadyRequested(run),
            CancelDecision::Ended(_) => CancelOutcome::AlreadyEnded(run),
        })
    }

    /// Ends a queued run that was cancelled, unless a worker has claimed it meanwhile, which then does so.
    async fn end_queued(&self, run_id: Uuid) -> Result<(), AbpError> {
        let request = ClaimRequest {
            run_id: Some(run_id),
            lease: END_LEASE,
            running_per_principal: None,
        };
        let lease = match self.store().await?.claim(request).await {
            Ok(Some(claimed)) => claimed.lease,
            Ok(None) => return Ok(()),
            Err(StoreError::Unopened { lease, .. }) => lease,
            Err(error) => return Err(error.into()),
        };
        Ok(self.runtime().end_unbegun(lease, None).await?)
    }

    /// The receipt of a run, once it has ended, whichever process carries it out.
    ///
    /// # Errors
    /// As [`Self::run`].
    pub async fn wait(&self, principal: &Principal, run_id: Uuid) -> Result<Receipt, AbpError> {
        self.run(principal, run_id).await?;
        self.receipt(run_id).await
    }
}

pub(crate) fn no_such_run(run_id: Uuid) -> AbpError {
    AbpError::new(ErrorCode::NotFound, format!("there is no run {run_id}"))
}
