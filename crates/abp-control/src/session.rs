//! Agents' sessions of earlier runs.

use abp_core::AgentEventKind;
use abp_error::{AbpError, ErrorCode};
use abp_runtime::DecisionState;
use uuid::Uuid;

use crate::ControlPlane;

/// The session that an agent had in a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EarlierSession {
    /// The backend of the run.
    pub backend: String,
    /// The agent's id for the session.
    pub session_id: String,
    /// Whether the run changed something that is not in its source.
    pub has_undecided_changes: bool,
}

impl EarlierSession {
    /// The session of a run that has ended.
    ///
    /// # Errors
    /// Fails where the run goes on, and where its backend had no session.
    pub async fn of(plane: &ControlPlane, run_id: Uuid) -> Result<Self, AbpError> {
        let receipt = plane.receipt(run_id).await?;
        let mut events = receipt.trace.iter();
        let session_id = events.find_map(|event| match &event.kind {
            AgentEventKind::SessionStarted { session_id } => Some(session_id.clone()),
            _ => None,
        });
        let session_id = session_id.ok_or_else(|| {
            let message = format!("run {run_id} has no session of an agent to go on with");
            AbpError::new(ErrorCode::ValidationFailed, message)
        })?;
        let decision = plane.runtime().decision_state(run_id).await?;
        let has_undecided_changes = matches!(decision, DecisionState::Open(_));
        Ok(Self {
            backend: receipt.backend.id,
            session_id,
            has_undecided_changes,
        })
    }
}
