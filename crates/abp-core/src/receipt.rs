//! The record of a run.

use std::collections::BTreeMap;

use abp_error::AbpErrorDto;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use crate::{
    Adaptation, AgentEvent, CapabilityManifest, ContractError, EnforcementReport, ExchangeReport,
    ExecutionMode, McpReport, PlanReport, RequestLineage, Timestamp, WorkspaceMode,
    hash::serialize_receipt, member_digests, receipt_hash,
};

/// What happened in a run, in a form whose integrity can be checked.
///
/// The hash is taken over the canonical JSON of the document with `receipt_sha256` set to null; see
/// [`receipt_hash`]. [`Receipt::with_hash`] is the last change to a receipt.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Receipt {
    /// Which run, when.
    pub meta: RunMetadata,
    /// What was to be done, in the words of the order.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<String>,
    /// Who did the work.
    pub backend: BackendIdentity,
    /// The model that was asked for, and the one that answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<ModelReport>,
    /// What the backend said it can do.
    #[serde(default)]
    pub capabilities: CapabilityManifest,
    /// Whether the request was carried as it was or translated.
    #[serde(default)]
    pub mode: ExecutionMode,
    /// The usage as the backend reported it.
    #[serde(default)]
    pub usage_raw: Value,
    /// The usage in common terms.
    #[serde(default)]
    pub usage: UsageNormalized,
    /// Who counted the usage; absent where nothing was counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_source: Option<Attestation>,
    /// The events, where they are few enough to be embedded.
    #[serde(default)]
    pub trace: Vec<AgentEvent>,
    /// Covers all events, embedded or not.
    #[serde(default)]
    pub trace_digest: Option<TraceDigest>,
    /// What the run left behind besides the diff.
    #[serde(default)]
    pub artifacts: Vec<ArtifactRef>,
    /// What the host itself saw in the workspace.
    pub verification: VerificationReport,
    /// How the workspace was prepared and what became of it.
    #[serde(default)]
    pub workspace: Option<WorkspaceReport>,
    /// How the run ended.
    pub outcome: Outcome,
    /// Who or what stopped the run before its end.
    #[serde(default)]
    pub cancel_reason: Option<CancelReason>,
    /// What went wrong.
    #[serde(default)]
    pub error: Option<AbpErrorDto>,
    /// The plan the run followed.
    #[serde(default)]
    pub plan: Option<PlanReport>,
    /// How the policy was held.
    #[serde(default)]
    pub enforcement: EnforcementReport,
    /// What was changed to fit the client.
    #[serde(default)]
    pub adaptations: Vec<Adaptation>,
    /// The exchanges with model APIs that the run caused and the host carried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exchanges: Vec<RunExchange>,
    /// What only an exchange with a model's API has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exchange: Option<ExchangeReport>,
    /// The MCP servers that the run was given, where it asked for some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mcp: Option<McpReport>,
    /// The hash of each member above, so that a failed verification can name the member.
    #[serde(default)]
    pub member_sha256: BTreeMap<String, String>,
    /// The hash of the receipt.
    #[serde(default)]
    pub receipt_sha256: Option<String>,
}

impl Receipt {
    /// Fills in the hashes. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// Fails where the receipt holds something canonical JSON cannot carry.
    pub fn with_hash(mut self) -> Result<Self, ContractError> {
        self.member_sha256 = member_digests(&self)?;
        self.receipt_sha256 = Some(receipt_hash(&self)?);
        Ok(self)
    }

    /// The receipt as it is stored: compact JSON, in which no byte is without meaning.
    ///
    /// # Errors
    /// Fails where the receipt holds something JSON cannot carry.
    pub fn to_document(&self) -> Result<Vec<u8>, ContractError> {
        serialize_receipt(self)
    }
}

/// Which run, when.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RunMetadata {
    /// The run.
    pub run_id: Uuid,
    /// The order it carried out.
    pub work_order_id: Uuid,
    /// The hash of that order's canonical JSON: task, policy and limits are bound by it.
    #[serde(default)]
    pub work_order_sha256: Option<String>,
    /// The contract version of the receipt.
    pub contract_version: String,
    /// When the run began.
    pub started_at: Timestamp,
    /// `started_at` plus the duration by a monotonic clock.
    pub finished_at: Timestamp,
    /// How long it took.
    pub duration_ms: u64,
    /// The client's request that the order was made from; absent where it was made by hand.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lineage: Option<RequestLineage>,
}

/// Who did the work.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendIdentity {
    /// The backend's stable name.
    pub id: String,
    /// The version of the agent or model behind it.
    #[serde(default)]
    pub backend_version: Option<String>,
    /// The version of the adapter.
    #[serde(default)]
    pub adapter_version: Option<String>,
}

/// Usage in common terms; `null` is unknown, which is not zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct UsageNormalized {
    /// Tokens read, without those from or into a cache.
    pub input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
    /// Tokens read from a cache.
    pub cache_read_tokens: Option<u64>,
    /// Tokens written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Requests, where a vendor bills by request.
    pub request_units: Option<u64>,
    /// The cost by the configured prices.
    pub estimated_cost_usd: Option<f64>,
}

/// How the host knows a figure or a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Attestation {
    /// The host read it from what passed through it, such as the model API's own answers.
    Measured,
    /// The backend reported it; nothing checked it.
    Claimed,
}

/// The model of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ModelReport {
    /// The model that the order named.
    pub asked: Option<String>,
    /// The model that answered, where that is known.
    pub used: Option<String>,
    /// Who said which model answered.
    pub source: Option<Attestation>,
}

/// One exchange with a model API that a run caused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RunExchange {
    /// The exchange's record in the gateway's log; absent where it did not pass the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<Uuid>,
    /// The upstream.
    pub upstream: String,
    /// The model that answered, as the upstream names it.
    #[serde(default)]
    pub model: Option<String>,
    /// The SHA-256 of the request's body.
    pub request_sha256: String,
    /// The SHA-256 of the answer's body; `null` where it did not arrive whole.
    #[serde(default)]
    pub response_sha256: Option<String>,
    /// The HTTP status; `null` where there was no answer.
    #[serde(default)]
    pub status: Option<u16>,
    /// What the translation kept; absent where the exchange did not pass the gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fidelity: Option<ExchangeFidelity>,
}

/// How true a translated exchange was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeFidelity {
    /// The dialect in which the agent asked.
    pub caller_dialect: String,
    /// The dialect in which the upstream was asked.
    pub upstream_dialect: String,
    /// `lossless`, `lossy_labeled` or `unsupported`.
    pub level: String,
    /// How many members were lost. The exchange's own receipt names each.
    pub losses: u64,
}

/// A digest over all events of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TraceDigest {
    /// How many events.
    pub count: u64,
    /// SHA-256 over each event's canonical JSON followed by a newline.
    pub sha256: String,
    /// Whether `trace` holds them all.
    pub embedded: bool,
}

/// Something a run left behind.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ArtifactRef {
    /// What it is.
    pub kind: String,
    /// Where it is.
    pub path: String,
}

/// What the host itself saw in the workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct VerificationReport {
    /// The changes, as a unified diff that `git apply` takes.
    #[serde(default)]
    pub git_diff: Option<String>,
    /// The changes, in the form of `git status --porcelain=v1`.
    #[serde(default)]
    pub git_status: Option<String>,
    /// Whether the host could verify the workspace and found nothing wrong.
    pub harness_ok: bool,
    /// The operator's own check of the result, where one was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub check: Option<CheckReport>,
}

/// A command that the operator lets judge the result of a run. It ran in a sandbox, on a layer over the
/// stage that is thrown away, so it changed nothing of the result.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct CheckReport {
    /// The command, as `sh -c` got it.
    pub command: String,
    /// Whether it ended with status 0.
    pub passed: bool,
    /// Its exit status; absent where a signal ended it, or it could not be run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exit_code: Option<i32>,
    /// How long it took, in milliseconds.
    pub duration_ms: u64,
    /// The end of its output, or the reason why it was not run.
    pub output_tail: String,
}

/// How the workspace was prepared and what became of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WorkspaceReport {
    /// In place or on a copy.
    pub mode: WorkspaceMode,
    /// The form of the stage; absent in place, and where the host ended before it could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage: Option<StageKind>,
    /// Why the stage is a copy, where an overlay would have been made otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stage_reason: Option<String>,
    /// The source that the run saw; absent in place, and where the host ended before it could tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<SourceView>,
    /// Files at the start; `null` where the host ended before it could tell.
    #[serde(default)]
    pub files: Option<u64>,
    /// Their bytes.
    #[serde(default)]
    pub bytes: Option<u64>,
    /// The hash of the content manifest before the run; `null` where the host ended before it could
    /// tell, and under an overlay, where unchanged files are not read.
    #[serde(default)]
    pub baseline_sha256: Option<String>,
    /// The hash of the content manifest after it.
    #[serde(default)]
    pub final_sha256: Option<String>,
    /// How much changed; `null` where the workspace could not be verified.
    #[serde(default)]
    pub changes: Option<ChangeSummary>,
    /// What was left out of the copy; at most the first thousand.
    #[serde(default)]
    pub left_out: Vec<LeftOut>,
    /// How much was left out.
    #[serde(default)]
    pub left_out_count: u64,
    /// Every changed path with its content before and after; at most the first ten thousand.
    #[serde(default)]
    pub paths: Vec<PathChange>,
    /// The SHA-256 of the stored change set, which names every changed path; absent where nothing
    /// changed or nothing could be verified.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub change_set_sha256: Option<String>,
    /// Whether the changes were applied to the source.
    #[serde(default)]
    pub applied: bool,
    /// Who applied them: a person, or `lane workspace_first`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub applied_by: Option<String>,
    /// What else the reader should know, such as why there is no baseline repository.
    #[serde(default)]
    pub notes: Vec<String>,
}

/// The form of a stage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum StageKind {
    /// The source, under a layer that takes the changes.
    Overlay,
    /// A copy of the source.
    Copy,
}

/// The source as a staged run saw it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum SourceView {
    /// As it was at every moment of the run.
    Live,
    /// As it was at the start.
    Snapshot,
}

/// One changed path of a workspace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathChange {
    /// The path relative to the workspace, shown so that every name is valid text.
    pub path: String,
    /// The content before the run; absent where there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before: Option<PathState>,
    /// The content after the run; absent where there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<PathState>,
}

/// What a path holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PathState {
    /// `file`, `directory`, `symlink`, or what else it is.
    pub kind: String,
    /// The permission bits, in octal.
    pub mode: String,
    /// The SHA-256 of the content, or of a link's target; absent for directories.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256: Option<String>,
}

/// How much changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChangeSummary {
    /// Files added, changed or deleted.
    pub files_changed: u64,
    /// Lines added.
    pub insertions: u64,
    /// Lines removed.
    pub deletions: u64,
}

/// Something that was not staged.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LeftOut {
    /// The path in the source.
    pub path: String,
    /// Why.
    pub reason: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// The backend finished its work.
    Complete,
    /// A limit stopped the run; what was done until then is recorded.
    Partial,
    /// The run failed.
    Failed,
    /// Somebody stopped the run.
    Cancelled,
}

/// Who or what stopped a run before its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum CancelReason {
    /// A person.
    User,
    /// The time limit.
    Timeout,
    /// The budget.
    Budget,
    /// The limit on turns.
    TurnLimit,
    /// The policy.
    Policy,
    /// The backend broke the protocol.
    Violation,
    /// Nobody followed the run any more.
    Disconnect,
    /// The host shut down.
    Shutdown,
    /// The host could not keep a record of the run.
    Storage,
}
