//! Directories of runs that bring no files.

use abp_core::{WorkspaceMode, WorkspaceSpec};
use abp_error::{AbpError, ErrorCode};

use crate::ControlPlane;

/// The ending of the empty directory beside that of the stages. Runs get a copy of it.
const EMPTY: &str = "empty";

impl ControlPlane {
    /// The workspace of a run that brings no files: an empty directory of our own. Anything that may be
    /// found in it is left out.
    ///
    /// # Errors
    /// Fails where the directory cannot be made.
    pub async fn empty_workspace(&self, spec: WorkspaceSpec) -> Result<WorkspaceSpec, AbpError> {
        let root = self.config().stages_dir.with_extension(EMPTY);
        let failed = |message: &str| AbpError::new(ErrorCode::WorkspaceInitFailed, message);
        tokio::fs::create_dir_all(&root)
            .await
            .map_err(|error| failed("the empty workspace cannot be made").with_source(error))?;
        let text = root.to_str();
        let text = text.ok_or_else(|| failed("the path of the workspace is not valid text"))?;
        Ok(WorkspaceSpec {
            root: text.to_owned(),
            exclude: vec!["**".to_owned()],
            mode: WorkspaceMode::Staged,
            ..spec
        })
    }
}
