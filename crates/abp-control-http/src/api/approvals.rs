//! Approvals.

use abp_core::Timestamp;
use abp_store::{ApprovalAnswer, ApprovalRecord, ApprovalVerdict};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Which approvals to list, oldest first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ApprovalsQuery {
    /// Only those of this run.
    #[serde(default)]
    pub run_id: Option<Uuid>,
    /// Only open ones, or only answered ones.
    #[serde(default)]
    pub open: Option<bool>,
    /// How many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
}

/// A page of approvals.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalPage {
    /// The approvals, oldest first.
    pub approvals: Vec<ApprovalView>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A question to a person, and its answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ApprovalView {
    /// Its id.
    pub id: Uuid,
    /// The run that waits for it.
    pub run_id: Uuid,
    /// The rule that wants it.
    pub rule: Option<String>,
    /// The tool that waits.
    pub tool: String,
    /// What the tool would do it to.
    pub target: Option<String>,
    /// Why approval is needed.
    pub reason: String,
    /// When it was asked.
    pub asked_at: Timestamp,
    /// When it is denied for lack of an answer.
    pub expires_at: Timestamp,
    /// `open`, `approved`, `denied`, `expired` or `withdrawn`.
    pub state: String,
    /// The person or key that answered.
    pub answered_by: Option<String>,
    /// The way the answer came: `terminal`, `cli`, `http`.
    pub answered_via: Option<String>,
    /// When it was answered.
    pub answered_at: Option<Timestamp>,
    /// The reason of the answer.
    pub answer_reason: Option<String>,
}

impl From<ApprovalRecord> for ApprovalView {
    fn from(record: ApprovalRecord) -> Self {
        let answer = record.answer;
        let verdict = answer.as_ref().map(|answer| answer.verdict.as_str());
        Self {
            id: record.id,
            run_id: record.run_id,
            rule: record.rule,
            tool: record.tool,
            target: record.target,
            reason: record.reason,
            asked_at: record.asked_at,
            expires_at: record.expires_at,
            state: verdict.unwrap_or("open").to_owned(),
            answered_by: answer.as_ref().map(|answer| answer.by.clone()),
            answered_via: answer.as_ref().map(|answer| answer.via.clone()),
            answered_at: answer.as_ref().map(|answer| answer.at),
            answer_reason: answer.and_then(|answer| answer.reason),
        }
    }
}

impl From<ApprovalView> for ApprovalRecord {
    fn from(view: ApprovalView) -> Self {
        let verdict = ApprovalVerdict::from_name(&view.state);
        let answer = verdict.zip(view.answered_at);
        Self {
            id: view.id,
            run_id: view.run_id,
            principal: None,
            rule: view.rule,
            tool: view.tool,
            target: view.target,
            reason: view.reason,
            asked_at: view.asked_at,
            expires_at: view.expires_at,
            answer: answer.map(|(verdict, at)| ApprovalAnswer {
                verdict,
                at,
                by: view.answered_by.unwrap_or_default(),
                via: view.answered_via.unwrap_or_default(),
                reason: view.answer_reason,
            }),
        }
    }
}

/// The answer to an approval.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct AnswerRequest {
    /// Whether it is allowed.
    pub approve: bool,
    /// Why, which the receipt states.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
