//! Deciding about the changes of a run: looking at them, applying them, throwing them away.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abp_core::{PathChange, Receipt, Timestamp, read_document};
use abp_error::{AbpError, ErrorCode};
use abp_runtime::{Applied, ApplyRequest, Decider, DecisionState, HostFiles};
use abp_store::{ChangeSetState, path_text};
use abp_workspace::ChangeSet;
use uuid::Uuid;

use crate::ControlPlane;

/// The changes of a run that wait for a decision, as they can be shown, and the ones that were applied.
#[derive(Debug, Clone)]
pub struct ProposedChanges {
    /// The state of the decision about the changes.
    pub progress: DecisionProgress,
    /// The changed paths that are in the source already.
    pub applied: Vec<String>,
    /// The changes as a patch that `git apply` takes.
    pub diff: String,
    /// The changes in the form of `git status --porcelain=v1`.
    pub status: String,
    /// Every changed path with its content before and after.
    pub paths: Vec<PathChange>,
    /// Paths that would take effect on the developer's machine, each with the reason.
    pub host_files: Vec<(PathBuf, &'static str)>,
}

/// The state of the decision about the changes of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionProgress {
    /// The run changed nothing.
    Unchanged,
    /// Changes wait for a decision.
    Undecided,
    /// Nothing is left to decide.
    Decided {
        /// What became of the changes.
        state: ChangeSetState,
        /// Who decided.
        by: String,
        /// When.
        at: Timestamp,
    },
}

/// How an application ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApplyOutcome {
    /// The changes are in the source.
    Applied(Applied),
    /// They were applied before; nothing was done now.
    AlreadyApplied {
        /// Who applied them.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// The run changed nothing.
    Nothing,
}

/// How a discarding ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiscardOutcome {
    /// The changes are gone.
    Discarded,
    /// They were discarded before, or there never were any.
    Nothing,
}

impl ControlPlane {
    /// The changes of a run that has ended, as its receipt states them, without those that are decided.
    ///
    /// # Errors
    /// Fails where the run has no receipt, and where its changes are neither in the receipt nor, unchanged,
    /// in the stage.
    pub async fn changes(&self, run_id: Uuid) -> Result<ProposedChanges, AbpError> {
        let receipt = self.stored_receipt(run_id).await?;
        let runtime = self.runtime();
        let applied = runtime.applied_paths(run_id).await?;
        let (progress, rest) = match runtime.decision_state(run_id).await? {
            DecisionState::Nothing => (DecisionProgress::Unchanged, None),
            DecisionState::Open(changes) => {
                let is_applied = |path: &Path| applied.contains(&path_text(path));
                (
                    DecisionProgress::Undecided,
                    Some(changes.without(is_applied)),
                )
            }
            DecisionState::Decided { state, by, at } => {
                (DecisionProgress::Decided { state, by, at }, None)
            }
        };
        let mut shown = ProposedChanges {
            progress,
            applied: applied.into_iter().collect(),
            diff: String::new(),
            status: String::new(),
            paths: Vec::new(),
            host_files: rest
                .as_ref()
                .map(ChangeSet::host_executed)
                .unwrap_or_default(),
        };
        if matches!(shown.progress, DecisionProgress::Decided { .. }) {
            return Ok(shown);
        }
        let verified = receipt.verification;
        let all = receipt.workspace.map(|report| report.paths);
        shown.status = verified.git_status.unwrap_or_default();
        shown.paths = all.unwrap_or_default();
        match rest {
            Some(rest) if !shown.applied.is_empty() => {
                shown.status = rest.status_lines(&shown.status);
                let left = rest.path_changes(usize::MAX).into_iter();
                let left: BTreeSet<String> = left.map(|change| change.path).collect();
                shown.paths.retain(|change| left.contains(&change.path));
                shown.diff = runtime.diff(run_id, rest).await?;
            }
            rest => {
                shown.diff = match (verified.git_diff, rest) {
                    (Some(diff), _) => diff,
                    // Too large for the receipt: made again from the stage, checked against the change set.
                    (None, Some(changes)) => runtime.diff(run_id, changes).await?,
                    (None, None) => String::new(),
                };
            }
        }
        Ok(shown)
    }

    /// Applies changes of a run to its source; the paths of the request, or all that are undecided.
    ///
    /// # Errors
    /// Says what stands in the way; the source is as it was then.
    pub async fn apply(
        &self,
        run_id: Uuid,
        request: &ApplyRequest,
    ) -> Result<ApplyOutcome, AbpError> {
        match self.runtime().decision_state(run_id).await? {
            DecisionState::Nothing => Ok(ApplyOutcome::Nothing),
            DecisionState::Decided {
                state: ChangeSetState::Applied,
                by,
                at,
            } => Ok(ApplyOutcome::AlreadyApplied { by, at }),
            DecisionState::Decided { state, at, .. } => {
                let message = format!("the changes of run {run_id} were {state} at {at}");
                Err(AbpError::new(ErrorCode::NothingToDecide, message))
            }
            DecisionState::Open(changes) => {
                self.check_breach(run_id, request).await?;
                let applied = self.runtime().apply(run_id, *changes, request).await?;
                Ok(ApplyOutcome::Applied(applied))
            }
        }
    }

    /// Throws the undecided changes of a run away.
    ///
    /// # Errors
    /// Fails where they are in the source already, or are being applied.
    pub async fn discard(
        &self,
        run_id: Uuid,
        decider: Decider,
    ) -> Result<DiscardOutcome, AbpError> {
        match self.runtime().decision_state(run_id).await? {
            DecisionState::Nothing
            | DecisionState::Decided {
                state: ChangeSetState::Discarded | ChangeSetState::Expired,
                ..
            } => Ok(DiscardOutcome::Nothing),
            DecisionState::Decided { state, at, .. } => {
                let message = format!("the changes of run {run_id} were {state} at {at}");
                Err(AbpError::new(ErrorCode::NothingToDecide, message))
            }
            DecisionState::Open(_) => {
                self.runtime().discard(run_id, decider).await?;
                Ok(DiscardOutcome::Discarded)
            }
        }
    }

    /// The result of a run that broke its policy is applied only path by path, by a person who names them.
    async fn check_breach(&self, run_id: Uuid, request: &ApplyRequest) -> Result<(), AbpError> {
        let receipt = self.stored_receipt(run_id).await?;
        match receipt.error {
            Some(error) if error.code == ErrorCode::PolicyDenied && request.paths.is_empty() => {
                let message = format!(
                    "nothing is applied: the run broke its policy ({}); apply paths by name, or discard the run",
                    error.message
                );
                Err(AbpError::new(ErrorCode::PolicyDenied, message))
            }
            _ => Ok(()),
        }
    }

    async fn stored_receipt(&self, run_id: Uuid) -> Result<Receipt, AbpError> {
        let record = self.store().await?.receipt(run_id).await?;
        let record = record.ok_or_else(|| {
            let message = format!("run {run_id} has not ended yet");
            AbpError::new(ErrorCode::NothingToDecide, message)
        })?;
        read_document(&record.document)
            .map_err(|error| AbpError::new(ErrorCode::ReceiptChainBroken, error.to_string()))
    }
}

/// A request to apply all undecided changes of a run, which agrees to nothing in particular.
#[must_use]
pub fn apply_all(decider: Decider) -> ApplyRequest {
    ApplyRequest {
        decider,
        paths: Vec::new(),
        host_files: HostFiles::Refuse,
    }
}
