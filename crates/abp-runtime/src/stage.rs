//! The workspace of a run, off the async workers.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::{LeftOut, SourceView, StageKind, WorkspaceMode, WorkspaceReport, WorkspaceSpec};
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;
use abp_policy::Holders;
use abp_sandbox::Overlay;
use abp_workspace::{
    Changes, Error as WorkspaceError, GitBaseline, PreparedWorkspace, StageForm, WorkspaceManager,
};
use uuid::Uuid;

/// The most changed paths that a receipt names; the change set names all.
pub(crate) const MAX_PATHS: usize = 10_000;

/// A prepared workspace that blocking work can share.
#[derive(Debug, Clone)]
pub(crate) struct Stage {
    workspace: Arc<PreparedWorkspace>,
    mode: WorkspaceMode,
}

impl Stage {
    pub(crate) async fn prepare(
        manager: WorkspaceManager,
        spec: WorkspaceSpec,
        run_id: Uuid,
        hidden: GlobList,
    ) -> Result<Self, AbpError> {
        let mode = spec.mode;
        let workspace = blocking(move || manager.prepare(&spec, run_id, &hidden)).await?;
        Ok(Self {
            workspace: Arc::new(workspace),
            mode,
        })
    }

    /// Moves the stage of an earlier attempt out of the way, whether or not its process still uses it.
    pub(crate) async fn evict(manager: WorkspaceManager, run_id: Uuid) -> Result<(), AbpError> {
        blocking(move || manager.evict(run_id)).await
    }

    pub(crate) fn root(&self) -> &Path {
        self.workspace.root()
    }

    /// The directory it was copied from; `None` in place.
    pub(crate) fn source(&self) -> Option<PathBuf> {
        let is_staged = self.workspace.is_staged();
        is_staged.then(|| self.workspace.source().to_owned())
    }

    /// The overlays that the sandbox of the run mounts.
    pub(crate) fn overlays(&self) -> Vec<Overlay> {
        self.workspace.overlays().to_vec()
    }

    /// Makes the layers on which a check sees the result of the run.
    pub(crate) async fn make_check_layers(&self) -> Result<Vec<Overlay>, AbpError> {
        self.with(PreparedWorkspace::make_check_layers).await
    }

    /// Throws away what a check wrote.
    pub(crate) async fn remove_check_layers(&self) -> Result<(), AbpError> {
        self.with(PreparedWorkspace::remove_check_layers).await
    }

    /// What the host's own handling of this workspace holds of a policy.
    pub(crate) fn holders(&self) -> Holders {
        Holders::of_workspace(self.mode)
    }

    /// Runs blocking work on the workspace.
    pub(crate) async fn with<T: Send + 'static>(
        &self,
        work: impl FnOnce(&PreparedWorkspace) -> Result<T, WorkspaceError> + Send + 'static,
    ) -> Result<T, AbpError> {
        let workspace = Arc::clone(&self.workspace);
        blocking(move || work(&workspace)).await
    }

    /// What the receipt says about the workspace. `change_set_sha256` names the stored change set.
    pub(crate) fn report(
        &self,
        changes: Option<&Changes>,
        change_set_sha256: Option<String>,
        applied_by: Option<String>,
    ) -> WorkspaceReport {
        let baseline = self.workspace.baseline();
        let (stage, stage_reason, source) = match self.workspace.form() {
            StageForm::Overlay => (Some(StageKind::Overlay), None, Some(SourceView::Live)),
            StageForm::Copy { reason } => (
                Some(StageKind::Copy),
                reason.clone(),
                Some(SourceView::Snapshot),
            ),
            _ => (None, None, None),
        };
        let (left_out, left_out_count): (&[LeftOut], u64) = self.workspace.left_out();
        WorkspaceReport {
            mode: self.mode,
            stage,
            stage_reason,
            source,
            files: Some(baseline.files()),
            bytes: Some(baseline.bytes()),
            baseline_sha256: baseline.content_sha256(),
            changes: changes.map(Changes::summary),
            final_sha256: changes.and_then(|changes| changes.manifest().content_sha256()),
            left_out: left_out.to_vec(),
            left_out_count,
            paths: changes.map_or_else(Vec::new, |changes| changes.path_changes(MAX_PATHS)),
            change_set_sha256,
            applied: applied_by.is_some(),
            applied_by,
            notes: self.notes(changes),
        }
    }

    fn notes(&self, changes: Option<&Changes>) -> Vec<String> {
        let mut notes = match self.workspace.git_baseline() {
            GitBaseline::Skipped { reason } if self.workspace.is_staged() => {
                vec![format!("the stage has no baseline repository: {reason}")]
            }
            GitBaseline::Skipped { .. } | GitBaseline::Made => Vec::new(),
        };
        notes.extend(changes.into_iter().flat_map(Changes::notes).cloned());
        notes
    }

    /// Moves the staged copy to the trash.
    pub(crate) async fn discard(self) -> Result<(), AbpError> {
        let workspace = self.into_workspace()?;
        blocking(move || workspace.discard()).await
    }

    /// Leaves the staged copy until somebody decides about it, and says where it is.
    pub(crate) async fn keep(self) -> Result<PathBuf, AbpError> {
        let workspace = self.into_workspace()?;
        blocking(move || workspace.keep()).await
    }

    fn into_workspace(self) -> Result<PreparedWorkspace, AbpError> {
        let in_use = || AbpError::new(ErrorCode::Internal, "the workspace is still in use");
        Arc::into_inner(self.workspace).ok_or_else(in_use)
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, WorkspaceError> + Send + 'static,
) -> Result<T, AbpError> {
    match tokio::task::spawn_blocking(work).await {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(workspace_error(&error)),
        Err(panic) => Err(AbpError::new(
            ErrorCode::Internal,
            format!("work on the workspace panicked: {panic}"),
        )),
    }
}

/// A workspace error in the form in which errors of different crates meet.
#[must_use]
pub fn workspace_error(error: &WorkspaceError) -> AbpError {
    use std::error::Error as _;
    let result = AbpError::new(error.code(), error.to_string());
    match error.source() {
        Some(source) => result.with_source(source.to_string()),
        None => result,
    }
}

/// Keeps the host's own directories out of a workspace that contains them: they are not staged, and a run
/// in place is refused, because nothing would stand between the agent and the keys.
///
/// # Errors
/// Refuses a workspace inside such a directory, and one in place around it.
pub(crate) fn keep_state_out(spec: &mut WorkspaceSpec, own: &[PathBuf]) -> Result<(), AbpError> {
    // A root that is not there is refused where it is opened.
    let Ok(root) = Path::new(&spec.root).canonicalize() else {
        return Ok(());
    };
    for directory in own.iter().filter_map(|own| own.canonicalize().ok()) {
        let refused = |how: &str| {
            let message = format!(
                "the workspace {} {how} the state of ABP in {}; choose another workspace, or another state \
                 directory with --state-dir",
                root.display(),
                directory.display()
            );
            AbpError::new(ErrorCode::WorkspaceInitFailed, message)
        };
        if root.starts_with(&directory) {
            return Err(refused("is inside"));
        }
        let Ok(inside) = directory.strip_prefix(&root) else {
            continue;
        };
        if spec.mode == WorkspaceMode::PassThrough {
            return Err(refused("contains"));
        }
        spec.exclude.push(escaped(&inside.to_string_lossy()));
    }
    Ok(())
}

/// A pattern that matches exactly this path.
fn escaped(path: &str) -> String {
    let mut pattern = String::with_capacity(path.len());
    for character in path.chars() {
        if "*?[]{}!\\".contains(character) {
            pattern.push('\\');
        }
        pattern.push(character);
    }
    pattern
}
