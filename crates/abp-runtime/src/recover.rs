//! Runs that a crash left without an end.

use std::path::Path;

use abp_core::{
    AgentEvent, AgentEventKind, Attestation, BackendIdentity, CancelReason, EventDigest,
    EventOrigin, Outcome, Receipt, Timestamp, UsageNormalized, WorkOrder, WorkspaceMode,
    WorkspaceReport, read_document,
};
use abp_error::{AbpError, AbpErrorDto, ErrorCode};
use abp_receipt::{Hash, ReceiptBuilder};
use abp_store::lifecycle::Recovery;
use abp_store::{CancelRecord, ChangeSetState, Store, TakenOver, UnfinishedRun};
use abp_workspace::ChangeSet;
use uuid::Uuid;

use crate::RuntimeError;
use crate::mortality::may_die;
use crate::record::now;
use crate::stage::MAX_PATHS;
use crate::store::receipt_path;
use crate::trace::MAX_EMBEDDED_BYTES;

/// How many events are read at a time.
const PAGE: u32 = 1_000;

/// What the journal of an interrupted run holds.
struct Journaled {
    digest: EventDigest,
    embedded: Option<Vec<AgentEvent>>,
    bytes: usize,
    usage: UsageNormalized,
    usage_source: Option<Attestation>,
    last: Option<Timestamp>,
    /// Why the rest of the journal cannot be read.
    problem: Option<String>,
}

/// How many of the newest receipts are looked at for a missing copy: a crash leaves out only those
/// that were being written.
const RECENT: u32 = 256;

/// Looks after every run that was interrupted: its process is gone, or lost its lease. Where another attempt
/// may be made it is queued again; otherwise it gets its terminal receipt. Returns how many there were.
pub(crate) async fn recover(store: &Store) -> Result<usize, RuntimeError> {
    let mut recovered = 0;
    for unfinished in store.unfinished().await? {
        if !unfinished.is_interrupted(now()) {
            continue;
        }
        let run_id = unfinished.run.run_id;
        // Of several processes that find the same run, one gets it.
        let Some(taken) = store.take_over(run_id).await? else {
            continue;
        };
        // One run that cannot be recovered must not keep everybody from the store.
        match recover_run(&store.with_lease(taken.lease), &unfinished, &taken).await {
            Ok(what) => {
                recovered += 1;
                tracing::warn!(target: "abp.runtime", %run_id, "an interrupted run was {what}");
            }
            Err(error) => {
                tracing::error!(target: "abp.runtime", %run_id, %error, "an interrupted run could not be recovered");
            }
        }
    }
    Ok(recovered)
}

async fn recover_run(
    store: &Store,
    unfinished: &UnfinishedRun,
    taken: &TakenOver,
) -> Result<&'static str, RuntimeError> {
    may_die("taken_over");
    let recovery = Recovery::decide(
        taken.attempt,
        taken.max_attempts,
        taken.has_submission,
        unfinished.run.cancel.is_some(),
    );
    match recovery {
        Recovery::GiveBack => {
            store.requeue(taken.lease).await?;
            Ok("queued again")
        }
        Recovery::End => {
            end(store, unfinished, None).await?;
            Ok("ended")
        }
    }
}

/// Receipts that are in the store and have no copy for people yet.
pub(crate) async fn missing_copies(
    store: &Store,
    state_dir: &Path,
) -> Result<Vec<(Uuid, Vec<u8>)>, RuntimeError> {
    let mut missing = Vec::new();
    for summary in store.receipts(None, RECENT).await? {
        if !receipt_path(state_dir, summary.run_id).exists()
            && let Some(receipt) = store.receipt(summary.run_id).await?
        {
            missing.push((summary.run_id, receipt.document));
        }
    }
    Ok(missing)
}

/// Ends a run with what the store holds of it: because of that error, because somebody cancelled it, or
/// because its host ended.
pub(crate) async fn end(
    store: &Store,
    unfinished: &UnfinishedRun,
    error: Option<AbpError>,
) -> Result<Receipt, RuntimeError> {
    let run = &unfinished.run;
    let journaled = Journaled::read(store, run.run_id).await?;
    let workspace = workspace(store, run.run_id).await?;
    let receipt = receipt(unfinished, journaled, workspace, error)?;
    let lost = |error: abp_core::ContractError| RuntimeError::Lost(error.to_string());
    let document = receipt.to_document().map_err(lost)?;
    let hash = receipt.receipt_sha256.clone().unwrap_or_default();
    store.finish(run.run_id, document, &hash).await?;
    Ok(receipt)
}

impl Journaled {
    async fn read(store: &Store, run_id: Uuid) -> Result<Self, RuntimeError> {
        let mut journaled = Self {
            digest: EventDigest::default(),
            embedded: Some(Vec::new()),
            bytes: 0,
            usage: UsageNormalized::default(),
            usage_source: None,
            last: None,
            problem: None,
        };
        loop {
            let page = store.events(run_id, journaled.digest.count(), PAGE).await?;
            if page.is_empty() {
                return Ok(journaled);
            }
            for record in page {
                if let Err(problem) = journaled.take(&record.json) {
                    journaled.problem = Some(format!("event {}: {problem}", record.seq));
                    return Ok(journaled);
                }
            }
        }
    }

    fn take(&mut self, json: &str) -> Result<(), String> {
        let event: AgentEvent = serde_json::from_str(json).map_err(|error| error.to_string())?;
        self.digest
            .push(&event)
            .map_err(|error| error.to_string())?;
        self.last = Some(event.ts);
        if let AgentEventKind::UsageUpdated { usage } = &event.kind {
            self.usage = usage.clone();
            self.usage_source = Some(match event.origin {
                Some(EventOrigin::Gateway) => Attestation::Measured,
                _ => Attestation::Claimed,
            });
        }
        self.bytes = self.bytes.saturating_add(json.len());
        if self.bytes > MAX_EMBEDDED_BYTES {
            self.embedded = None;
        } else if let Some(events) = &mut self.embedded {
            events.push(event);
        }
        Ok(())
    }
}

/// What the store knows of the workspace: the run may have ended its work, and even applied it.
async fn workspace(store: &Store, run_id: Uuid) -> Result<Option<WorkspaceReport>, RuntimeError> {
    let Some(record) = store.change_set(run_id).await? else {
        return Ok(None);
    };
    let by = record.state_by.clone();
    let applied_by = (record.state == ChangeSetState::Applied).then_some(by);
    let lost = |error: abp_workspace::Error| RuntimeError::Lost(error.to_string());
    let changes = record.document.as_deref().map(ChangeSet::from_document);
    let changes = changes.transpose().map_err(lost)?;
    let baseline = changes.as_ref().and_then(ChangeSet::baseline_sha256);
    let after = changes.as_ref().and_then(ChangeSet::final_sha256);
    Ok(Some(WorkspaceReport {
        mode: WorkspaceMode::Staged,
        stage: None,
        stage_reason: None,
        source: None,
        files: None,
        bytes: None,
        baseline_sha256: baseline.map(str::to_owned),
        final_sha256: after.map(str::to_owned),
        changes: None,
        left_out: Vec::new(),
        left_out_count: 0,
        paths: changes.map_or_else(Vec::new, |changes| changes.path_changes(MAX_PATHS)),
        change_set_sha256: Some(Hash::from_bytes(record.sha256).to_string()),
        applied: applied_by.is_some(),
        applied_by,
        notes: vec!["the host ended before the run did; this is what the store holds".to_owned()],
    }))
}

fn receipt(
    UnfinishedRun { run, alive_at, .. }: &UnfinishedRun,
    journaled: Journaled,
    workspace: Option<WorkspaceReport>,
    error: Option<AbpError>,
) -> Result<Receipt, RuntimeError> {
    // A damaged order costs its id and task, not the receipt.
    let order = read_document::<WorkOrder>(run.order_json.as_bytes()).ok();
    let order_id = order.as_ref().map_or_else(Uuid::nil, |order| order.id);
    let started = run.accepted_at;
    // The last sign of life: an event, or the note that the run goes on.
    let last = journaled.last.unwrap_or(started);
    let last = last.max(alive_at.unwrap_or(started));
    let took = last
        .as_unix_millis()
        .saturating_sub(started.as_unix_millis());
    let backend = BackendIdentity {
        id: run.backend.clone(),
        backend_version: None,
        adapter_version: None,
    };
    let (outcome, cancel_reason, error) = match (error, &run.cancel) {
        (Some(error), _) => (Outcome::Failed, None, error.to_dto()),
        (None, Some(cancel)) => {
            let error = cancelled_by(cancel).to_dto();
            (Outcome::Cancelled, Some(CancelReason::User), error)
        }
        (None, None) => {
            let error = AbpErrorDto {
                code: ErrorCode::RunInterrupted,
                message: "the host ended before the run did".to_owned(),
                context: std::collections::BTreeMap::new(),
                source_message: journaled.problem,
            };
            (Outcome::Failed, None, error)
        }
    };
    let took = u64::try_from(took).unwrap_or(0);
    let digest = journaled.digest.finish(journaled.embedded.is_some());
    ReceiptBuilder::new(run.run_id, order_id, backend, started, took, outcome)
        .cancel_reason(cancel_reason)
        .work_order_sha256(run.order_sha256.clone())
        .task(order.as_ref().map(|order| order.task.clone()))
        .lineage(order.and_then(|order| order.lineage))
        .workspace(workspace)
        .usage_source(journaled.usage_source)
        .usage(journaled.usage)
        .trace(journaled.embedded.unwrap_or_default())
        .trace_digest(digest)
        .error(error)
        .build_hashed()
        .map_err(|error| RuntimeError::Lost(error.to_string()))
}

/// Says who cancelled a run, and why.
pub(crate) fn cancelled_by(cancel: &CancelRecord) -> AbpError {
    let CancelRecord {
        by, via, reason, ..
    } = cancel;
    let why = reason.as_ref().map(|reason| format!(": {reason}"));
    let message = format!(
        "the run was cancelled by {by} ({via}){}",
        why.unwrap_or_default()
    );
    AbpError::new(ErrorCode::RunCancelled, message)
}
