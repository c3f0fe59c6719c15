//! Deleting runs that have ended.

use abp_error::{AbpError, ErrorCode};
use abp_runtime::{Decider, DecisionState};
use abp_store::KeyScope;
use uuid::Uuid;

use crate::{ControlPlane, Principal, homes};

impl ControlPlane {
    /// Deletes what a run that has ended left: its undecided changes, events, order, questions and the
    /// agent's home directory. The receipt and the entries of the log stay, and one more entry says that
    /// the events went. Returns whether there was anything left. A call that was interrupted is made again.
    ///
    /// # Errors
    /// As [`Self::run`]; also where the principal may not, the run goes on, or its changes are being
    /// applied.
    pub async fn delete_run(&self, principal: &Principal, run_id: Uuid) -> Result<bool, AbpError> {
        principal.require(KeyScope::RunsWrite)?;
        let run = self.run(principal, run_id).await?;
        if !run.state.is_final() {
            let message = format!(
                "run {run_id} has not ended; cancel it with `abp cancel {run_id}` and delete it then"
            );
            return Err(AbpError::new(ErrorCode::RunNotEnded, message));
        }
        if let DecisionState::Open(_) = self.runtime().decision_state(run_id).await? {
            let decider = Decider {
                by: principal.name().to_owned(),
                via: principal.way().to_owned(),
            };
            self.discard(run_id, decider).await?;
        }
        let store = self.store().await?;
        store.begin_erasure(run_id).await?;
        while store.erase_events(run_id).await? > 0 {}
        let is_new = store.erase_order(run_id).await?;
        self.sizes().clear();
        homes(self.config()).remove(run_id)?;
        Ok(is_new)
    }

    /// Refuses to read the events of a run that were removed, instead of showing none.
    ///
    /// # Errors
    /// Fails where they were removed, and where the store cannot be read.
    pub async fn require_events(&self, run_id: Uuid) -> Result<(), AbpError> {
        match self.store().await?.erasure(run_id).await? {
            None => Ok(()),
            Some(erasure) => {
                let message = format!(
                    "the {} events of run {run_id} were removed at {}; its receipt is there",
                    erasure.events, erasure.at
                );
                Err(AbpError::new(ErrorCode::NotFound, message))
            }
        }
    }
}
