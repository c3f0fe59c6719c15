//! Approvals: looking at the questions of runs, and answering them.

use abp_error::{AbpError, ErrorCode};
use abp_gateway::current_time;
use abp_store::{
    AnswerOutcome, ApprovalAnswer, ApprovalFilter, ApprovalRecord, ApprovalVerdict, KeyScope,
};
use uuid::Uuid;

use crate::{ControlPlane, Principal};

/// An answer to a question. Who answers is the principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Answer {
    /// Whether it is allowed.
    pub approve: bool,
    /// Why, for the events and the receipt.
    pub reason: Option<String>,
}

impl ControlPlane {
    /// The approvals that the principal may see, oldest first.
    ///
    /// # Errors
    /// Fails where the store cannot be read.
    pub async fn approvals(
        &self,
        principal: &Principal,
        filter: &ApprovalFilter,
        limit: u32,
    ) -> Result<Vec<ApprovalRecord>, AbpError> {
        let mut filter = filter.clone();
        if let Some(visible) = principal.visible() {
            filter.principal = Some(visible);
        }
        Ok(self.store().await?.approvals(&filter, limit).await?)
    }

    /// One approval.
    ///
    /// # Errors
    /// [`ErrorCode::NotFound`] where there is none, or it is one of another principal's run.
    pub async fn approval(
        &self,
        principal: &Principal,
        id: Uuid,
    ) -> Result<ApprovalRecord, AbpError> {
        let found = self.store().await?.approval(id).await?;
        found
            .filter(|approval| principal.may_see(approval.principal.as_deref()))
            .ok_or_else(|| AbpError::new(ErrorCode::NotFound, format!("there is no approval {id}")))
    }

    /// Answers a question. The first answer counts, whichever way it came; a later one is told of it.
    ///
    /// # Errors
    /// As [`Self::approval`], and where the principal may not answer.
    pub async fn answer(
        &self,
        principal: &Principal,
        id: Uuid,
        answer: Answer,
    ) -> Result<AnswerOutcome, AbpError> {
        principal.require(KeyScope::Approve)?;
        self.approval(principal, id).await?;
        let answer = ApprovalAnswer {
            verdict: match answer.approve {
                true => ApprovalVerdict::Approved,
                false => ApprovalVerdict::Denied,
            },
            at: current_time(),
            by: principal.name().to_owned(),
            via: principal.way().to_owned(),
            reason: answer.reason,
        };
        Ok(self.store().await?.answer_approval(id, answer).await?)
    }
}
