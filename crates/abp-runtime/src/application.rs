//! Applying the changes of a run to its source, inside the guarantees of the store.
//!
//! Every step is durable in the store before the next one touches the source, so that after a kill at any
//! moment [`recover_applications`] leaves all of it, or none plus the saves of the user:
//!
//! ```text
//! plan (nothing written) ─ begin ─ copy new contents ─ journal ─ change names ─ journal ─ clean up ─ end
//! ```
//!
//! The end is an entry of the signed log: who applied which paths of which change set.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use abp_core::{Receipt, Timestamp, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use abp_policy::PolicyEngine;
use abp_receipt::DecisionKind;
use abp_store::{
    ApplicationEnd, ChangeSetState, Decider, DecisionRecord, OpenApplication, Store, StoreError,
    path_text,
};
use abp_workspace::{
    Application, ApplyJournal, ChangeSet, Error as WorkspaceError, RecoveryOutcome,
    WorkspaceManager,
};
use tokio::runtime::Handle;
use uuid::Uuid;

use crate::RuntimeError;
use crate::mortality::may_die;
use crate::stage::workspace_error;

/// How many decisions are read at a time.
const PAGE: u32 = 1_000;

/// Changes of a run to be applied.
#[derive(Debug, Clone)]
pub struct ApplyRequest {
    /// Who applies them, and by which way.
    pub decider: Decider,
    /// The paths to apply, each with everything beneath it; all of them where the list is empty.
    pub paths: Vec<PathBuf>,
    /// Whether paths are written that run code or steer tools on the developer's machine.
    pub host_files: HostFiles,
}

/// Whether an application may write paths that take effect on the developer's machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostFiles {
    /// A change set with such paths is refused, and the paths are named.
    Refuse,
    /// A person has agreed.
    Write,
}

/// Changes that are in the source now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The paths that were decided about.
    pub paths: Vec<PathBuf>,
    /// How many paths of the run are still undecided.
    pub remaining: u64,
}

/// The stored changes of a run, and the tree that holds the new contents.
#[derive(Debug)]
pub(crate) struct Undecided<'a> {
    pub(crate) run_id: Uuid,
    pub(crate) changes: ChangeSet,
    pub(crate) tree: &'a Path,
    pub(crate) policy: &'a PolicyEngine,
    /// The host's own directories, which no application writes to.
    pub(crate) own: Vec<PathBuf>,
}

impl Undecided<'_> {
    /// Applies the changes, all of the request or nothing.
    ///
    /// # Errors
    /// Says what stands in the way: a denied path, a path that needs agreement, a conflict, a stage that
    /// was written after the end. The source is as it was then.
    pub(crate) async fn apply(
        &self,
        store: &Store,
        request: &ApplyRequest,
    ) -> Result<Applied, AbpError> {
        let decided = decided_paths(store, self.run_id).await?;
        let application = self.plan(store, request, &decided).await?;
        let paths = application.paths().to_vec();
        self.judge(&paths)?;
        self.keep_off_state(&paths)?;
        self.check_host_files(&paths, request.host_files)?;
        let journal = document(application.journal())?;
        may_die("apply-planned");
        let texts: Vec<_> = paths.iter().map(|path| path_text(path)).collect();
        let begun =
            store.begin_application(self.run_id, request.decider.clone(), texts.clone(), journal);
        let id = begun.await?;
        may_die("apply-begun");
        let staged = match blocking(move || application.stage_contents()).await {
            Ok(staged) => staged,
            Err(error) => return Err(withdraw(store, id, error).await),
        };
        may_die("apply-contents");
        store
            .update_application(id, document(staged.journal())?)
            .await?;
        may_die("apply-committing");
        let committed = match blocking(move || staged.commit()).await {
            Ok(committed) => committed,
            Err(error) => return Err(withdraw(store, id, error).await),
        };
        may_die("apply-committed");
        store
            .update_application(id, document(committed.journal())?)
            .await?;
        may_die("apply-finished");
        blocking(move || committed.clean_up())
            .await
            .map_err(|error| workspace_error(&error))?;
        may_die("apply-cleaned");
        let remaining = self.remaining(&decided, &texts);
        let end = ApplicationEnd::Applied {
            paths: texts,
            remaining,
        };
        store.end_application(id, end).await?;
        may_die("apply-ended");
        Ok(Applied { paths, remaining })
    }

    /// Plans the application; nothing is written. Paths that were applied before are left out.
    async fn plan(
        &self,
        store: &Store,
        request: &ApplyRequest,
        decided: &BTreeSet<String>,
    ) -> Result<Application, AbpError> {
        let (changes, tree) = (self.changes.clone(), self.tree.to_owned());
        let mut selected = request.paths.clone();
        if selected.is_empty() && !decided.is_empty() {
            let open = |path: &PathBuf| !decided.contains(&path_text(path));
            selected = changes.applicable_paths();
            selected.retain(open);
        }
        let (store, run_id, handle) = (store.clone(), self.run_id, Handle::current());
        let planned = blocking(move || {
            // A failure to read an image shows as a missing one, and then as a conflict.
            let image = |sha256: &[u8; 32]| {
                let read = handle.block_on(store.before_image(run_id, *sha256));
                read.unwrap_or_else(|error| {
                    tracing::error!(target: "abp.workspace", %error, "a stored file cannot be read");
                    None
                })
            };
            Application::begin(&tree, &changes, &selected, image)
        });
        planned.await.map_err(|error| workspace_error(&error))
    }

    /// A path that the policy of the run denies is not applied, whatever became of the run.
    fn judge(&self, paths: &[PathBuf]) -> Result<(), AbpError> {
        let mut judged = paths.iter().map(|path| self.policy.can_write_path(path));
        match judged.find(|decision| !decision.is_allowed()) {
            None => Ok(()),
            Some(denied) => {
                let message = format!(
                    "nothing is applied: {}; apply other paths by name, or discard the run",
                    denied.reason
                );
                Err(AbpError::new(ErrorCode::PolicyDenied, message))
            }
        }
    }

    /// A change at the place of the host's state would replace keys and records with the agent's.
    fn keep_off_state(&self, paths: &[PathBuf]) -> Result<(), AbpError> {
        let root = self.changes.source().path();
        let own: Vec<_> = self
            .own
            .iter()
            .filter_map(|own| own.canonicalize().ok())
            .collect();
        let hits = |path: &&PathBuf| {
            let target = root.join(path);
            own.iter()
                .any(|own| target.starts_with(own) || own.starts_with(&target))
        };
        match paths.iter().find(hits) {
            None => Ok(()),
            Some(path) => {
                let message = format!("nothing is applied: {} is ABP's own state", path.display());
                Err(AbpError::new(ErrorCode::PolicyDenied, message))
            }
        }
    }

    fn check_host_files(&self, paths: &[PathBuf], allowed: HostFiles) -> Result<(), AbpError> {
        if allowed == HostFiles::Write {
            return Ok(());
        }
        let steering = self.changes.host_executed();
        let steering: Vec<_> = steering
            .iter()
            .filter(|(path, _)| paths.contains(path))
            .map(|(path, reason)| format!("{} ({reason})", path.display()))
            .collect();
        if steering.is_empty() {
            return Ok(());
        }
        let message = format!(
            "nothing is applied: {} would take effect on this machine; agree to it explicitly, or apply other \
             paths by name",
            steering.join(", ")
        );
        Err(AbpError::new(ErrorCode::ApprovalRequired, message))
    }

    fn remaining(&self, decided: &BTreeSet<String>, now: &[String]) -> u64 {
        let open = self.changes.applicable_paths();
        let open = open.iter().map(|path| path_text(path));
        open.filter(|path| !decided.contains(path) && !now.contains(path))
            .count() as u64
    }
}

/// The state of the decision about the changes of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DecisionState {
    /// The run changed nothing that could be applied.
    Nothing,
    /// The changes, or some of them, wait for a decision.
    Open(Box<ChangeSet>),
    /// The changes were applied, discarded, or removed because of their age.
    Decided {
        /// What became of them.
        state: ChangeSetState,
        /// Who decided; empty where the run itself did.
        by: String,
        /// When.
        at: Timestamp,
    },
}

/// Reads how far the changes of a run are decided. The document is the one the receipt names, or an error.
pub(crate) async fn decision_state(store: &Store, run_id: Uuid) -> Result<DecisionState, AbpError> {
    let Some(record) = store.change_set(run_id).await? else {
        return Ok(DecisionState::Nothing);
    };
    if record.state.is_decided() {
        return Ok(DecisionState::Decided {
            state: record.state,
            by: record.state_by,
            at: record.state_at,
        });
    }
    let lost = |problem: String| {
        let message = format!("the stored changes of run {run_id} cannot be trusted: {problem}");
        AbpError::new(ErrorCode::ReceiptChainBroken, message)
    };
    let document = record
        .document
        .ok_or_else(|| lost("the document is not there".to_owned()))?;
    let changes = ChangeSet::from_document(&document).map_err(|error| workspace_error(&error))?;
    let receipt = logged_receipt(store, run_id).await?;
    let logged = receipt
        .and_then(|receipt| receipt.workspace)
        .and_then(|workspace| workspace.change_set_sha256);
    let found = changes.sha256().map_err(|error| workspace_error(&error))?;
    if logged.as_deref() != Some(&found) {
        return Err(lost("the receipt names another change set".to_owned()));
    }
    Ok(DecisionState::Open(Box::new(changes)))
}

/// The receipt of a run, checked against its own hash and against the entry of the log.
async fn logged_receipt(store: &Store, run_id: Uuid) -> Result<Option<Receipt>, AbpError> {
    let Some(record) = store.receipt(run_id).await? else {
        return Ok(None);
    };
    let receipt = abp_core::verify_receipt_document(&record.document).map_err(|problems| {
        let problem = problems.first().map(ToString::to_string);
        let message = format!(
            "the receipt of run {run_id} is not what was logged: {}",
            problem.unwrap_or_default()
        );
        AbpError::new(ErrorCode::ReceiptHashMismatch, message)
    })?;
    if receipt.receipt_sha256.as_deref() != Some(&record.sha256) {
        let message = format!("the receipt of run {run_id} differs from its entry in the log");
        return Err(AbpError::new(ErrorCode::ReceiptHashMismatch, message));
    }
    Ok(Some(receipt))
}

/// The policy that a stored run is held to.
pub(crate) fn policy_of(order_json: &str) -> Result<PolicyEngine, RuntimeError> {
    let order: WorkOrder = abp_core::read_document(order_json.as_bytes())
        .map_err(|error| RuntimeError::Lost(format!("the stored order cannot be read: {error}")))?;
    Ok(PolicyEngine::new(&order.policy)?)
}

/// Brings every application whose process is gone to its end: all of it, or none plus the user's saves.
/// Returns how many there were.
pub(crate) async fn recover_applications(
    store: &Store,
    workspaces: &WorkspaceManager,
) -> Result<usize, RuntimeError> {
    let mut recovered = 0;
    for open in store.open_applications().await? {
        // The files of another node are its own to finish.
        let is_abandoned = !open.owner_alive && !open.own && open.is_local;
        // Of several processes that find the same application, one gets it.
        if is_abandoned && store.adopt_application(open.id).await? {
            recover_one(store, workspaces, &open).await?;
            recovered += 1;
        }
    }
    Ok(recovered)
}

async fn recover_one(
    store: &Store,
    workspaces: &WorkspaceManager,
    open: &OpenApplication,
) -> Result<(), RuntimeError> {
    let Some(stored) = store.application(open.id).await? else {
        return Ok(());
    };
    let bytes = stored.journal;
    let outcome = blocking(move || abp_workspace::recover(&ApplyJournal::from_document(&bytes)?));
    let outcome = outcome.await.map_err(|error| RuntimeError::Recovery {
        run_id: open.run_id,
        source: workspace_error(&error),
    })?;
    let end = match outcome {
        RecoveryOutcome::Applied => ApplicationEnd::Applied {
            remaining: remaining_of(store, open.run_id, &stored.paths).await?,
            paths: stored.paths,
        },
        RecoveryOutcome::RolledBack { saves } => ApplicationEnd::RolledBack {
            saves: saves.iter().map(|path| path_text(path)).collect(),
        },
        RecoveryOutcome::NothingWritten => ApplicationEnd::Withdrawn,
    };
    let is_done = matches!(end, ApplicationEnd::Applied { remaining: 0, .. });
    store.end_application(open.id, end).await?;
    tracing::warn!(target: "abp.workspace", run_id = %open.run_id, "an interrupted application was brought to its end");
    if is_done {
        discard_stage(workspaces.clone(), open.run_id).await;
    }
    Ok(())
}

async fn remaining_of(store: &Store, run_id: Uuid, now: &[String]) -> Result<u64, RuntimeError> {
    let record = store.change_set(run_id).await?;
    let Some(document) = record.and_then(|record| record.document) else {
        return Ok(0);
    };
    let changes = ChangeSet::from_document(&document)
        .map_err(|error| RuntimeError::Lost(error.to_string()))?;
    let decided = decided_paths(store, run_id).await?;
    let paths = changes.applicable_paths();
    let open = paths.iter().map(|path| path_text(path));
    let open = open.filter(|path| !decided.contains(path) && !now.contains(path));
    Ok(open.count() as u64)
}

/// The paths of a run that are in the source already. A decision also names the paths of an
/// application that was rolled back, and those are as undecided as before.
pub(crate) async fn decided_paths(
    store: &Store,
    run_id: Uuid,
) -> Result<BTreeSet<String>, StoreError> {
    let mut decided = BTreeSet::new();
    let mut next = 0;
    loop {
        let page = store.decisions(run_id, next, PAGE).await?;
        let Some(last) = page.last() else {
            return Ok(decided);
        };
        next = last.seq + 1;
        for DecisionRecord { decision, .. } in page {
            match decision.kind {
                DecisionKind::Applied | DecisionKind::PartiallyApplied => {
                    decided.extend(decision.paths);
                }
                DecisionKind::RolledBack | DecisionKind::Discarded | DecisionKind::Expired => {}
            }
        }
    }
}

/// Moves a stage to the trash; a stage that stays is swept later.
pub(crate) async fn discard_stage(workspaces: WorkspaceManager, run_id: Uuid) {
    match blocking(move || workspaces.discard(run_id)).await {
        Ok(()) | Err(WorkspaceError::NoStage { .. }) => {}
        Err(error) => {
            tracing::warn!(target: "abp.workspace", %run_id, %error, "a stage could not be discarded");
        }
    }
}

/// Ends an application that a step gave up. One that could not be undone stays open for the recovery.
async fn withdraw(store: &Store, id: Uuid, error: WorkspaceError) -> AbpError {
    let told = workspace_error(&error);
    let end = match error {
        WorkspaceError::RecoveryNeeded { .. } => return told,
        WorkspaceError::Conflict { .. } | WorkspaceError::SourceChanged { .. } => {
            ApplicationEnd::Conflict
        }
        _ => ApplicationEnd::Withdrawn,
    };
    if let Err(error) = store.end_application(id, end).await {
        tracing::error!(target: "abp.workspace", %error, "the end of an application was not recorded");
    }
    told
}

fn document(journal: &ApplyJournal) -> Result<Vec<u8>, AbpError> {
    let document = journal.to_document();
    document.map_err(|error| workspace_error(&error))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, WorkspaceError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done,
        // The runtime does not cancel work that began, so this is a defect in it: it goes on here.
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}
