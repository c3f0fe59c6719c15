//! Builds receipts.

use abp_core::{
    Adaptation, AgentEvent, ArtifactRef, Attestation, BackendIdentity, CONTRACT_VERSION,
    CancelReason, CapabilityManifest, ContractError, EnforcementReport, EventDigest, ExecutionMode,
    McpReport, ModelReport, Outcome, PlanReport, Receipt, RequestLineage, RunExchange, RunMetadata,
    Timestamp, TraceDigest, UsageNormalized, VerificationReport, WorkspaceReport,
};
use abp_error::AbpErrorDto;
use serde_json::Value;
use uuid::Uuid;

/// Builds a receipt: what every receipt needs up front, the rest as it becomes known.
///
/// What is not set is what the contract says an absent member means.
#[derive(Debug, Clone)]
#[must_use = "a builder does nothing until the receipt is built"]
pub struct ReceiptBuilder {
    receipt: Receipt,
}

impl ReceiptBuilder {
    /// A receipt for a run that took `duration_ms` by a monotonic clock: it cannot end before it
    /// began.
    pub fn new(
        run_id: Uuid,
        work_order_id: Uuid,
        backend: BackendIdentity,
        started_at: Timestamp,
        duration_ms: u64,
        outcome: Outcome,
    ) -> Self {
        let meta = RunMetadata {
            run_id,
            work_order_id,
            work_order_sha256: None,
            contract_version: CONTRACT_VERSION.to_owned(),
            started_at,
            finished_at: started_at.plus_millis(duration_ms),
            duration_ms,
            lineage: None,
        };
        let receipt = Receipt {
            meta,
            task: None,
            backend,
            model: None,
            capabilities: CapabilityManifest::default(),
            mode: ExecutionMode::default(),
            usage_raw: Value::Null,
            usage: UsageNormalized::default(),
            usage_source: None,
            trace: Vec::new(),
            trace_digest: None,
            artifacts: Vec::new(),
            verification: VerificationReport::default(),
            workspace: None,
            outcome,
            cancel_reason: None,
            error: None,
            plan: None,
            enforcement: EnforcementReport::default(),
            adaptations: Vec::new(),
            exchanges: Vec::new(),
            exchange: None,
            mcp: None,
            member_sha256: std::collections::BTreeMap::new(),
            receipt_sha256: None,
        };
        Self { receipt }
    }

    /// Binds the receipt to the content of the order.
    pub fn work_order_sha256(mut self, hash: impl Into<Option<String>>) -> Self {
        self.receipt.meta.work_order_sha256 = hash.into();
        self
    }

    /// The client's request that the order was made from.
    pub fn lineage(mut self, lineage: impl Into<Option<RequestLineage>>) -> Self {
        self.receipt.meta.lineage = lineage.into();
        self
    }

    /// What was to be done.
    pub fn task(mut self, task: impl Into<Option<String>>) -> Self {
        self.receipt.task = task.into();
        self
    }

    /// The model that was asked for, and the one that answered.
    pub fn model(mut self, model: impl Into<Option<ModelReport>>) -> Self {
        self.receipt.model = model.into();
        self
    }

    /// Who counted the usage.
    pub fn usage_source(mut self, source: impl Into<Option<Attestation>>) -> Self {
        self.receipt.usage_source = source.into();
        self
    }

    /// The exchanges with model APIs that the run caused.
    pub fn exchanges(mut self, exchanges: Vec<RunExchange>) -> Self {
        self.receipt.exchanges = exchanges;
        self
    }

    /// What the backend said it can do.
    pub fn capabilities(mut self, manifest: CapabilityManifest) -> Self {
        self.receipt.capabilities = manifest;
        self
    }

    /// Whether the request was carried as it was or translated.
    pub fn mode(mut self, mode: ExecutionMode) -> Self {
        self.receipt.mode = mode;
        self
    }

    /// The usage as the backend reported it.
    pub fn usage_raw(mut self, usage: Value) -> Self {
        self.receipt.usage_raw = usage;
        self
    }

    /// The usage in common terms.
    pub fn usage(mut self, usage: UsageNormalized) -> Self {
        self.receipt.usage = usage;
        self
    }

    /// The embedded events.
    pub fn trace(mut self, events: Vec<AgentEvent>) -> Self {
        self.receipt.trace = events;
        self
    }

    /// The digest over all events. Without it, [`build_hashed`](Self::build_hashed) takes that of
    /// the embedded ones.
    pub fn trace_digest(mut self, digest: impl Into<Option<TraceDigest>>) -> Self {
        self.receipt.trace_digest = digest.into();
        self
    }

    /// What the run left behind.
    pub fn artifacts(mut self, artifacts: Vec<ArtifactRef>) -> Self {
        self.receipt.artifacts = artifacts;
        self
    }

    /// What the host saw in the workspace.
    pub fn verification(mut self, report: VerificationReport) -> Self {
        self.receipt.verification = report;
        self
    }

    /// How the workspace was prepared and what became of it.
    pub fn workspace(mut self, report: impl Into<Option<WorkspaceReport>>) -> Self {
        self.receipt.workspace = report.into();
        self
    }

    /// Who or what stopped the run.
    pub fn cancel_reason(mut self, reason: impl Into<Option<CancelReason>>) -> Self {
        self.receipt.cancel_reason = reason.into();
        self
    }

    /// What went wrong.
    pub fn error(mut self, error: impl Into<Option<AbpErrorDto>>) -> Self {
        self.receipt.error = error.into();
        self
    }

    /// The plan the run followed.
    pub fn plan(mut self, plan: impl Into<Option<PlanReport>>) -> Self {
        self.receipt.plan = plan.into();
        self
    }

    /// How the policy was held.
    pub fn enforcement(mut self, report: EnforcementReport) -> Self {
        self.receipt.enforcement = report;
        self
    }

    /// What was changed to fit the client.
    pub fn adaptations(mut self, adaptations: Vec<Adaptation>) -> Self {
        self.receipt.adaptations = adaptations;
        self
    }

    /// The MCP servers that the run was given.
    pub fn mcp(mut self, report: impl Into<Option<McpReport>>) -> Self {
        self.receipt.mcp = report.into();
        self
    }

    /// The receipt without hashes, for what is still to be changed.
    #[must_use]
    pub fn build(self) -> Receipt {
        self.receipt
    }

    /// The finished receipt. Nothing may be changed afterwards.
    ///
    /// # Errors
    /// Fails where the receipt holds something canonical JSON cannot carry.
    pub fn build_hashed(mut self) -> Result<Receipt, ContractError> {
        if self.receipt.trace_digest.is_none() {
            let mut digest = EventDigest::default();
            for event in &self.receipt.trace {
                digest.push(event)?;
            }
            self.receipt.trace_digest = Some(digest.finish(true));
        }
        self.receipt.with_hash()
    }
}
