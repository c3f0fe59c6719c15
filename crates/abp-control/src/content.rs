//! The changes of a run as documents and contents, for a caller that applies them elsewhere.

use abp_error::{AbpError, ErrorCode};
use abp_runtime::{DecisionState, workspace_error};
use abp_workspace::ChangeSet;
use uuid::Uuid;

use crate::ControlPlane;

impl ControlPlane {
    /// The undecided changes of a run as a document that [`ChangeSet::from_document`] reads.
    ///
    /// # Errors
    /// Fails where the run has not ended, and where nothing is undecided.
    pub async fn change_set_document(&self, run_id: Uuid) -> Result<Vec<u8>, AbpError> {
        let changes = self.undecided_changes(run_id).await?;
        changes
            .to_document()
            .map_err(|error| workspace_error(&error))
    }

    /// The content of a file that the run changed, before or after it, by its SHA-256; `None` where the
    /// undecided changes have none of that hash, or it is too large to be handed out.
    ///
    /// # Errors
    /// As [`Self::change_set_document`], and where the stage was written after the end of the run.
    pub async fn changed_content(
        &self,
        run_id: Uuid,
        sha256: [u8; 32],
    ) -> Result<Option<Vec<u8>>, AbpError> {
        let changes = self.undecided_changes(run_id).await?;
        if let Some(before) = self.store().await?.before_image(run_id, sha256).await? {
            return Ok(Some(before));
        }
        let manager = self.runtime().workspaces();
        let read = tokio::task::spawn_blocking(move || {
            let stage = manager.claim(run_id)?;
            changes.content_after(stage.tree(), &sha256)
        });
        match read.await {
            Ok(content) => content.map_err(|error| workspace_error(&error)),
            Err(error) => Err(AbpError::new(ErrorCode::Internal, error.to_string())),
        }
    }

    async fn undecided_changes(&self, run_id: Uuid) -> Result<ChangeSet, AbpError> {
        match self.runtime().decision_state(run_id).await? {
            DecisionState::Open(changes) => Ok(*changes),
            DecisionState::Nothing | DecisionState::Decided { .. } => {
                let message = format!("run {run_id} has no undecided changes");
                Err(AbpError::new(ErrorCode::NothingToDecide, message))
            }
        }
    }
}
