//! The end of every run: verification, and the one receipt. Cannot be cancelled.

use std::sync::Arc;

use abp_core::{
    AgentEventKind, ArtifactRef, Attestation, CancelReason, EnforcementReport, ExecutionLane,
    ModelReport, Outcome, Receipt, RunExchange, VerificationReport, WorkspaceMode, WorkspaceReport,
};
use abp_error::{AbpError, ErrorCode};
use abp_json::admit_value;
use abp_receipt::{Hash, ReceiptBuilder};
use abp_store::{Decider, Store, StoreError};
use abp_stream::Redactor;
use abp_workspace::{
    ChangeKind, ChangeSet, ChangedPath, Changes, Entry, FileChange, FileKind, SpecialKind,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::RuntimeError;
use crate::application::{ApplyRequest, HostFiles, Undecided};
use crate::execute::Supervisor;
use crate::gate::Action;
use crate::mortality::may_die;
use crate::stage::Stage;
use crate::store::save_document;

/// The largest diff a receipt carries.
const MAX_DIFF_BYTES: usize = 16 * 1024 * 1024;

/// Who applies the changes of a run that asked for it.
pub(crate) const LANE: &str = "lane workspace_first";

/// Changes that are in the store.
struct KeptChanges {
    set: ChangeSet,
    sha256: String,
}

/// What the receipt of a staged run on a backend with processes says about the source.
const SOURCE_NOTE: &str = "the backend's processes are not sandboxed: verification covers the stage, not \
                           what they wrote elsewhere, such as in the source itself";

/// Names the host's own comparison of the workspace in events.
const VERIFICATION: &str = "verification";

/// How a run ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) outcome: Outcome,
    pub(crate) cancel_reason: Option<CancelReason>,
    pub(crate) error: Option<AbpError>,
    pub(crate) usage_raw: Value,
    pub(crate) artifacts: Vec<ArtifactRef>,
    /// The model that answered, where the backend said so.
    pub(crate) model: Option<String>,
    /// The exchanges that the backend carried itself.
    pub(crate) exchanges: Vec<RunExchange>,
}

/// What the host saw in the workspace.
struct Verified {
    report: VerificationReport,
    workspace: Option<WorkspaceReport>,
    /// Whether changes wait in the stage for a decision.
    is_undecided: bool,
}

impl Ended {
    pub(crate) fn complete() -> Self {
        Self {
            outcome: Outcome::Complete,
            cancel_reason: None,
            error: None,
            usage_raw: Value::Null,
            artifacts: Vec::new(),
            model: None,
            exchanges: Vec::new(),
        }
    }

    /// The backend says that it did not do all of its work, which is believed.
    pub(crate) fn partial() -> Self {
        let message = "the backend says that its work is not complete";
        Self {
            outcome: Outcome::Partial,
            error: Some(AbpError::new(ErrorCode::RunIncomplete, message)),
            ..Self::complete()
        }
    }

    pub(crate) fn failed(error: AbpError) -> Self {
        Self {
            outcome: Outcome::Failed,
            error: Some(error),
            ..Self::complete()
        }
    }

    /// A limit leaves a partial result, a person cancels, a breach of policy fails the run.
    pub(crate) fn stopped(reason: CancelReason, error: Option<AbpError>) -> Self {
        let (outcome, code, message) = match reason {
            CancelReason::Timeout => (
                Outcome::Partial,
                ErrorCode::BackendTimeout,
                "the run reached its time limit",
            ),
            CancelReason::Budget => (
                Outcome::Partial,
                ErrorCode::BudgetExceeded,
                "the run reached its budget",
            ),
            CancelReason::TurnLimit => (
                Outcome::Partial,
                ErrorCode::TurnLimitExceeded,
                "the run reached its number of turns",
            ),
            CancelReason::Policy => (
                Outcome::Failed,
                ErrorCode::PolicyDenied,
                "the policy ended the run",
            ),
            CancelReason::Violation => (
                Outcome::Failed,
                ErrorCode::ProtocolUnexpectedMessage,
                "the backend broke the protocol",
            ),
            CancelReason::User => (
                Outcome::Cancelled,
                ErrorCode::RunCancelled,
                "the run was cancelled by the user",
            ),
            CancelReason::Storage => (
                Outcome::Failed,
                ErrorCode::ReceiptStoreFailed,
                "the run could not be recorded",
            ),
            CancelReason::Disconnect => (
                Outcome::Cancelled,
                ErrorCode::RunCancelled,
                "nobody followed the run any more",
            ),
            _ => (
                Outcome::Cancelled,
                ErrorCode::RunCancelled,
                "the run was cancelled",
            ),
        };
        Self {
            outcome,
            cancel_reason: Some(reason),
            error: Some(error.unwrap_or_else(|| AbpError::new(code, message))),
            ..Self::complete()
        }
    }
}

/// Verifies the workspace, applies the result where that is asked for, and writes the receipt.
pub(crate) async fn finish(
    mut supervisor: Supervisor,
    stage: Option<Stage>,
    mut ended: Ended,
) -> Result<Receipt, RuntimeError> {
    let verified = match &stage {
        Some(stage) => supervisor.verify(stage, &mut ended).await,
        None => Verified {
            report: VerificationReport::default(),
            workspace: None,
            is_undecided: false,
        },
    };
    may_die("verified");
    supervisor.announce(&ended).await;
    if let Some(stage) = stage {
        // Before the receipt: a result that was announced must not be swept away after a crash.
        dispose(stage, verified.is_undecided, &mut ended).await;
    }
    let (store, state_dir) = (
        supervisor.accepted.store.clone(),
        supervisor.accepted.runtime.state_dir.clone(),
    );
    may_die("disposed");
    let receipt = supervisor.receipt(verified, ended).await?;
    may_die("recorded");
    let receipt = commit(&store, receipt).await?;
    may_die("committed");
    let (run_id, document) = (receipt.meta.run_id, document(&receipt)?);
    tokio::task::spawn_blocking(move || save_document(&state_dir, run_id, &document))
        .await
        .map_err(|error| RuntimeError::Lost(error.to_string()))??;
    Ok(receipt)
}

/// Gives a run back to the queue once everything it recorded is durable. What it changed is discarded: the
/// next attempt begins with a new copy of the source.
pub(crate) async fn give_back(
    supervisor: Supervisor,
    stage: Option<Stage>,
) -> Result<Receipt, RuntimeError> {
    let (store, lease) = (supervisor.accepted.store.clone(), supervisor.accepted.lease);
    let recorded = supervisor.recorder.finish().await;
    if let Some(stage) = stage
        && let Err(error) = stage.discard().await
    {
        tracing::warn!(target: "abp.workspace", %error, "the stage could not be discarded");
    }
    if let Some(problem) = recorded.problem {
        return Err(RuntimeError::Lost(problem));
    }
    store.requeue(lease).await?;
    Err(RuntimeError::GivenBack(lease.run_id))
}

/// Commits the receipt. On a full disk only a small one fits into what was set aside for it.
async fn commit(store: &Store, receipt: Receipt) -> Result<Receipt, RuntimeError> {
    match try_commit(store, &receipt).await {
        Err(RuntimeError::Store(StoreError::DiskFull { .. })) => {
            let lean = without_bulk(receipt)?;
            try_commit(store, &lean).await?;
            Ok(lean)
        }
        done => done.map(|()| receipt),
    }
}

async fn try_commit(store: &Store, receipt: &Receipt) -> Result<(), RuntimeError> {
    let hash = receipt.receipt_sha256.as_deref().unwrap_or_default();
    store
        .finish(receipt.meta.run_id, document(receipt)?, hash)
        .await?;
    Ok(())
}

fn document(receipt: &Receipt) -> Result<Vec<u8>, RuntimeError> {
    receipt
        .to_document()
        .map_err(|error| RuntimeError::Lost(error.to_string()))
}

/// The receipt without its trace and diff; the digests of both stay.
fn without_bulk(mut receipt: Receipt) -> Result<Receipt, RuntimeError> {
    receipt.trace = Vec::new();
    if let Some(digest) = &mut receipt.trace_digest {
        digest.embedded = false;
    }
    receipt.verification.git_diff = None;
    if let Some(plan) = &mut receipt.plan {
        plan.notes
            .push("the disk was full: trace and diff are not in the receipt".to_owned());
    }
    receipt
        .with_hash()
        .map_err(|error| RuntimeError::Lost(error.to_string()))
}

/// Keeps a stage whose changes are not in the source yet, and discards any other.
async fn dispose(stage: Stage, is_undecided: bool, ended: &mut Ended) {
    if is_undecided {
        match stage.keep().await {
            Ok(tree) => ended.artifacts.push(ArtifactRef {
                kind: "stage".to_owned(),
                path: tree.display().to_string(),
            }),
            Err(error) => ended.fail(error),
        }
    } else if let Err(error) = stage.discard().await {
        // It is swept later; the run is not worse for it.
        tracing::warn!(target: "abp.workspace", %error, "the stage could not be discarded");
    }
}

impl Supervisor {
    async fn verify(&mut self, stage: &Stage, ended: &mut Ended) -> Verified {
        let changes = match stage.with(abp_workspace::PreparedWorkspace::changes).await {
            Ok(changes) => Arc::new(changes),
            Err(error) => {
                ended.fail(error);
                return Verified {
                    report: VerificationReport::default(),
                    workspace: Some(stage.report(None, None, None)),
                    is_undecided: false,
                };
            }
        };
        let is_clean = self.judge_changes(&changes, ended).await;
        let kept = match self.keep_changes(stage, &changes).await {
            Ok(kept) => kept,
            Err(error) => {
                ended.fail(error);
                None
            }
        };
        may_die("kept");
        if let Some(conflict) = lost_images(&changes).filter(|_| self.applies(ended)) {
            ended.fail(conflict);
        }
        let applied_by = match &kept {
            Some(kept) if self.applies(ended) => self.apply(stage, kept, ended).await,
            _ => None,
        };
        let is_undecided = kept.is_some() && applied_by.is_none();
        let left = kept.as_ref().and_then(|kept| not_applicable(&kept.set));
        let sha256 = kept.map(|kept| kept.sha256);
        let mut workspace = stage.report(Some(&changes), sha256, applied_by);
        workspace.notes.extend(left);
        workspace.notes.extend(self.source_note());
        Verified {
            report: self.describe(&changes, is_clean).await,
            workspace: Some(workspace),
            is_undecided,
        }
    }

    /// Stores the changes of a staged run, so that they can be decided about by any later process.
    async fn keep_changes(
        &self,
        stage: &Stage,
        changes: &Arc<Changes>,
    ) -> Result<Option<KeptChanges>, AbpError> {
        if self.accepted.plan.order().workspace.mode != WorkspaceMode::Staged {
            return Ok(None);
        }
        let changes = Arc::clone(changes);
        let made = stage.with(move |workspace| {
            let (set, images) = workspace.change_set(&changes)?;
            let document = set.to_document()?;
            Ok((set, images, document))
        });
        let (set, images, document) = made.await?;
        if set.applicable_paths().is_empty() {
            return Ok(None);
        }
        let hash = Hash::of(&document);
        let images = images.into_iter();
        let images = images.map(|image| (image.sha256, image.bytes)).collect();
        let store = &self.accepted.store;
        store
            .keep_change_set(self.accepted.run_id, document, *hash.as_bytes(), images)
            .await?;
        Ok(Some(KeptChanges {
            set,
            sha256: hash.to_string(),
        }))
    }

    /// Whether the result is applied without a further decision.
    fn applies(&self, ended: &Ended) -> bool {
        ended.outcome == Outcome::Complete
            && self.accepted.plan.order().lane == ExecutionLane::WorkspaceFirst
    }

    /// Applies the result as the lane says; who applied it, where it was applied.
    async fn apply(
        &mut self,
        stage: &Stage,
        kept: &KeptChanges,
        ended: &mut Ended,
    ) -> Option<String> {
        let undecided = Undecided {
            run_id: self.accepted.run_id,
            changes: kept.set.clone(),
            tree: stage.root(),
            policy: &self.accepted.policy,
            own: self.accepted.runtime.own_dirs(),
        };
        let request = ApplyRequest {
            decider: Decider {
                by: LANE.to_owned(),
                via: "lane".to_owned(),
            },
            paths: Vec::new(),
            host_files: HostFiles::Refuse,
        };
        match undecided.apply(&self.accepted.store, &request).await {
            Ok(_) => Some(LANE.to_owned()),
            // The work is done; that a person has to agree to some of it does not make it a failure.
            Err(error) if error.code() == ErrorCode::ApprovalRequired => {
                let message = error.message().to_owned();
                self.recorder
                    .record(AgentEventKind::Warning { message }, None)
                    .await;
                None
            }
            Err(error) => {
                ended.fail(error);
                None
            }
        }
    }

    /// Says what the verification of a stage cannot see: processes without a sandbox can write elsewhere.
    fn source_note(&self) -> Option<String> {
        let is_staged = self.accepted.plan.order().workspace.mode == WorkspaceMode::Staged;
        // Only a session with processes says whether they reach the host's state.
        let has_processes = self.engaged.state.is_some();
        let is_confined = self
            .engaged
            .sandbox
            .as_ref()
            .is_some_and(|sandbox| !sandbox.layers.is_empty());
        (is_staged && has_processes && !is_confined).then(|| SOURCE_NOTE.to_owned())
    }

    /// Holds the verified changes against the policy, whatever the backend announced. A breach fails the
    /// run, so nothing of it is applied. Returns whether there was none.
    async fn judge_changes(&mut self, changes: &Changes, ended: &mut Ended) -> bool {
        let mut breaches = Vec::new();
        for change in changes.files() {
            let target = change.path.to_string_lossy();
            let action = Action {
                tool_name: VERIFICATION,
                tool_use_id: None,
                target: Some(&target),
            };
            let judged = self.gate.change(action, &change.path, &mut self.recorder);
            if let Err(reason) = judged.await {
                breaches.push(reason);
                continue;
            }
            // A repository is not looked into: a rule about its content is about it.
            if change.kind == ChangeKind::Special {
                let inside = change.path.join("HEAD");
                let judged = self.gate.change(action, &inside, &mut self.recorder);
                breaches.extend(judged.await.err());
            }
        }
        let Some(first) = breaches.first() else {
            return true;
        };
        let others = match breaches.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} more"),
        };
        let message = format!("the run changed what it may not change: {first}{others}");
        ended.breach(AbpError::new(ErrorCode::PolicyDenied, message));
        false
    }

    async fn describe(&mut self, changes: &Changes, is_clean: bool) -> VerificationReport {
        let diff = changes.git_diff();
        let git_diff = if diff.len() <= MAX_DIFF_BYTES {
            Some(diff)
        } else {
            let message = format!(
                "the diff has {} bytes and is too large for the receipt",
                diff.len()
            );
            self.recorder
                .record(AgentEventKind::Warning { message }, None)
                .await;
            None
        };
        VerificationReport {
            git_diff,
            git_status: Some(changes.git_status()),
            harness_ok: is_clean,
            check: self.check.take(),
        }
    }

    async fn announce(&mut self, ended: &Ended) {
        if let Some(error) = &ended.error {
            let kind = AgentEventKind::Error {
                message: error.to_string(),
                error_code: Some(error.code()),
            };
            self.recorder.record(kind, None).await;
        }
        let message = match ended.outcome {
            Outcome::Complete => "complete",
            Outcome::Partial => "partial",
            Outcome::Failed => "failed",
            Outcome::Cancelled => "cancelled",
        };
        let message = message.to_owned();
        self.recorder
            .record(AgentEventKind::RunCompleted { message }, None)
            .await;
    }

    async fn receipt(self, verified: Verified, mut ended: Ended) -> Result<Receipt, RuntimeError> {
        let order = self.accepted.plan.order();
        let clock = self.recorder.clock;
        let enforcement = EnforcementReport {
            contained_by: self.engaged.contained_by.map(str::to_owned),
            state: self.engaged.state,
            sandbox: self.engaged.sandbox.clone(),
            ..self.gate.report(
                &self.engaged.holders,
                &self.engaged.mounted,
                self.engaged.asked_tools,
            )
        };
        let recorded = self.recorder.finish().await;
        if let Some(problem) = recorded.problem {
            let message = format!("events are missing in the store: {problem}");
            ended.fail(AbpError::new(ErrorCode::ReceiptStoreFailed, message));
        }
        let redactor = &recorded.redactor;
        let model = model_report(
            order.config.model.clone(),
            ended.model,
            self.engaged.measures_usage,
        );
        ReceiptBuilder::new(
            self.accepted.run_id,
            order.id,
            self.engaged.identity,
            clock.started_at(),
            clock.elapsed_ms(),
            ended.outcome,
        )
        .work_order_sha256(self.accepted.plan.order_sha256().to_owned())
        .task(presentable(order.task.clone(), redactor)?)
        .model(model)
        .usage_source(self.accepted.meter.provenance())
        .exchanges(ended.exchanges)
        .lineage(order.lineage.clone())
        .capabilities(self.engaged.manifest)
        .mode(self.accepted.plan.mode())
        .usage_raw(presentable(ended.usage_raw, redactor)?)
        .usage(self.accepted.meter.usage())
        .trace(recorded.embedded)
        .trace_digest(recorded.digest)
        .artifacts(presentable(ended.artifacts, redactor)?)
        .verification(presentable(verified.report, redactor)?)
        .workspace(presentable(verified.workspace, redactor)?)
        .cancel_reason(ended.cancel_reason)
        .error(presentable(
            ended.error.map(|error| error.to_dto()),
            redactor,
        )?)
        .plan(self.engaged.plan.map(|plan| plan.report().clone()))
        .enforcement(enforcement)
        .adaptations(recorded.adaptations)
        .mcp(presentable(self.mcp, redactor)?)
        .build_hashed()
        .map_err(|error| RuntimeError::Lost(error.to_string()))
    }
}

/// The conflict of a run on a live source that changed a file which was changed there, too: half of its
/// result is not applied without a decision.
fn lost_images(changes: &Changes) -> Option<AbpError> {
    let lost = FileKind::Special(SpecialKind::ChangedInSource);
    let is_lost = |change: &&FileChange| change.before.as_ref().map(Entry::kind) == Some(lost);
    let first = changes.files().iter().find(is_lost)?;
    let message = format!(
        "{} was changed in the source while the run changed it; nothing is applied",
        first.path.display()
    );
    Some(AbpError::new(ErrorCode::WorkspaceConflict, message))
}

/// Names how many changes no application writes: ignored files, FIFOs, sockets, devices, repositories.
fn not_applicable(set: &ChangeSet) -> Option<String> {
    let is_left = |change: &&ChangedPath| {
        let after = change.after().map(Entry::kind);
        change.is_ignored() || matches!(after, Some(FileKind::Special(_)))
    };
    let left = set.changes().iter().filter(is_left).count();
    (left > 0).then(|| {
        format!(
            "changed paths that are ignored or that no patch can carry, and are not applied: {left}"
        )
    })
}

/// The model asked for and the one used; nothing where neither is known.
fn model_report(
    asked: Option<String>,
    used: Option<String>,
    is_measured: bool,
) -> Option<ModelReport> {
    if asked.is_none() && used.is_none() {
        return None;
    }
    let source = used.as_ref().map(|_| match is_measured {
        true => Attestation::Measured,
        false => Attestation::Claimed,
    });
    Some(ModelReport {
        asked,
        used,
        source,
    })
}

/// What a backend said, without secrets and safe to hash.
fn presentable<T: Serialize + DeserializeOwned>(
    said: T,
    redactor: &Redactor,
) -> Result<T, RuntimeError> {
    let lost = |error: serde_json::Error| RuntimeError::Lost(error.to_string());
    let mut value = admit_value(serde_json::to_value(said).map_err(lost)?).value;
    redactor.redact_value(&mut value);
    serde_json::from_value(value).map_err(lost)
}

impl Ended {
    /// The policy was broken: that is the error, unless the run failed for another reason before.
    fn breach(&mut self, error: AbpError) {
        if self.outcome != Outcome::Failed {
            self.error = None;
        }
        self.fail(error);
    }

    /// Something failed after the backend's work; what went wrong first is what is told.
    fn fail(&mut self, error: AbpError) {
        self.outcome = Outcome::Failed;
        self.error.get_or_insert(error);
    }
}
