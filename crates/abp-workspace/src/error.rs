//! The errors of workspaces, and the stable code of each.

use std::io;
use std::path::PathBuf;

use abp_error::ErrorCode;
use abp_glob::GlobError;
use uuid::Uuid;

use crate::conflict::Conflict;
use crate::quote::display_path;

/// A failure of staging, verifying, using or applying a workspace.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The root is missing, not a directory, or cannot be read.
    #[error("cannot open workspace root {}", root.display())]
    Root {
        /// The root as the work order names it.
        root: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The directory for stages, or this run's place in it, cannot be created or opened.
    #[error("cannot set up stage directory {}", path.display())]
    StageDirectory {
        /// The directory.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A run has no stage: it was removed, or there never was one.
    #[error("run {run_id} has no stage")]
    NoStage {
        /// The run.
        run_id: Uuid,
    },
    /// Some process uses the stage.
    #[error("stage {} is in use", path.display())]
    StageInUse {
        /// The stage.
        path: PathBuf,
    },
    /// The stage or its tree was moved away, and something else has its name.
    #[error("stage {} was moved or replaced during the run", path.display())]
    StageReplaced {
        /// The stage or its tree.
        path: PathBuf,
    },
    /// A file of the stage is not the one that was verified at the end of the run.
    #[error(
        "{} was changed in the stage after the end of the run",
        display_path(path)
    )]
    StageChanged {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// The source is not the directory the run was started on.
    #[error("source {} was replaced since the run started: {reason}", path.display())]
    SourceReplaced {
        /// The source.
        path: PathBuf,
        /// The difference.
        reason: &'static str,
    },
    /// A stored document cannot be used.
    #[error("{what} cannot be read: {reason}")]
    Document {
        /// The kind of document.
        what: &'static str,
        /// The first thing that is wrong with it.
        reason: String,
    },
    /// A run changed more paths than a change set can name.
    #[error("run changed {count} paths, more than a change set of {max} paths can hold")]
    TooManyChanges {
        /// The number of changed paths.
        count: u64,
        /// The limit.
        max: u64,
    },
    /// Another run works in place on the same directory, or another process applies to it.
    #[error("another run or application works in {}", root.display())]
    Busy {
        /// The directory.
        root: PathBuf,
    },
    /// A list of the workspace specification cannot be compiled.
    #[error("workspace list {list}: {problem}")]
    Pattern {
        /// `include` or `exclude`.
        list: &'static str,
        /// The problem.
        problem: GlobError,
    },
    /// A `.gitignore` would cost too much to honour.
    #[error("cannot honour {}: {reason}", display_path(path))]
    Gitignore {
        /// The file, relative to the root.
        path: PathBuf,
        /// The problem.
        reason: String,
    },
    /// A budget of [`StageLimits`](crate::StageLimits) is used up, or the disk nearly full.
    #[error("workspace exceeds {limit} of {max} at {}", display_path(path))]
    TooLarge {
        /// The budget.
        limit: &'static str,
        /// The limit.
        max: u64,
        /// The path at which it was exceeded, relative to the root.
        path: PathBuf,
    },
    /// The preparation was stopped from outside.
    #[error("preparation of the workspace was stopped")]
    Stopped,
    /// Copying or scanning failed.
    #[error("cannot {action} {}", display_path(path))]
    Scan {
        /// The action that failed.
        action: &'static str,
        /// The path relative to the root.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// A path leads out of the workspace, absolutely, by `..` or through a link.
    #[error("path {path:?} leads out of the workspace")]
    LeavesRoot {
        /// The path as it was asked for.
        path: String,
    },
    /// A path is malformed, or its links lead in a circle.
    #[error("path {path:?} cannot be resolved: {reason}")]
    Unresolvable {
        /// The path as it was asked for.
        path: String,
        /// The reason.
        reason: &'static str,
    },
    /// Repository metadata and the state directory are not written by tools.
    #[error("path {} is not writable by tools", display_path(path))]
    Protected {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// A file cannot be read or written during the run.
    #[error("cannot {action} {}", display_path(path))]
    Access {
        /// The action that failed.
        action: &'static str,
        /// The path relative to the root.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
    /// The path has something other than a regular file.
    #[error("{} is not a regular file", display_path(path))]
    NotAFile {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// A file is larger than the reader allows.
    #[error("{} has {size} bytes, more than {max}", display_path(path))]
    FileTooLarge {
        /// The path relative to the root.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The reader's limit.
        max: u64,
    },
    /// The stored original bytes are not those of the manifest.
    #[error("stored baseline of {} is damaged", display_path(path))]
    BaselineDamaged {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// A file of the workspace or of the source changed between being looked at and being used.
    #[error("{} changed while it was being used", display_path(path))]
    ChangedMeanwhile {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// Changes made in place need no application.
    #[error("workspace is not staged")]
    NotStaged,
    /// The source changed since staging in ways that do not go together with the run's changes;
    /// nothing was applied.
    #[error("changes conflict with the source: {}", listed(conflicts.iter()))]
    Conflict {
        /// Everything that stands in the way, sorted by path.
        conflicts: Vec<Conflict>,
    },
    /// The run made links that lead out of the workspace; nothing was applied.
    #[error("links lead out of the workspace: {}", listed(paths.iter().map(|path| display_path(path))))]
    UnsafeLinks {
        /// The links, relative to the root.
        paths: Vec<PathBuf>,
    },
    /// A selected path is not among the changes that can be applied.
    #[error("cannot apply {}: {reason}", display_path(path))]
    UnknownChange {
        /// The path as it was selected.
        path: PathBuf,
        /// Why it cannot be applied.
        reason: &'static str,
    },
    /// A path lies on another file system than the root of the source; nothing was applied.
    #[error(
        "cannot apply {}: it is on another file system than the source",
        display_path(path)
    )]
    OtherDevice {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// The source was saved between planning and committing; everything was rolled back.
    #[error("source changed while changes were applied, nothing was applied: {}; apply again", listed(paths.iter().map(|path| display_path(path))))]
    SourceChanged {
        /// The paths with a save of the user.
        paths: Vec<PathBuf>,
    },
    /// An application could be neither finished nor undone; the next command tries again.
    #[error(
        "application is unfinished at {}; free the path and run any command to finish it",
        display_path(path)
    )]
    RecoveryNeeded {
        /// The path that failed.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The source can be copied and not shown under an overlay. Preparing falls back to a copy.
    #[error("no overlay stage can be made: {reason}")]
    NoOverlay {
        /// The reason.
        reason: String,
    },
    /// The host itself cannot use an overlay, which is mounted in the sandbox alone.
    #[error(
        "cannot {action} {}: the workspace is an overlay that only its sandbox sees",
        display_path(path)
    )]
    OnlyInSandbox {
        /// The attempt.
        action: &'static str,
        /// The path.
        path: PathBuf,
    },
    /// A stage could not be moved to the trash, or the trash not be emptied.
    #[error("cannot remove stage {}", path.display())]
    Remove {
        /// The stage.
        path: PathBuf,
        /// The reason.
        source: io::Error,
    },
}

impl Error {
    /// The error's stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Root { .. }
            | Self::StageDirectory { .. }
            | Self::NoStage { .. }
            | Self::NoOverlay { .. } => ErrorCode::WorkspaceInitFailed,
            Self::StageInUse { .. } | Self::Busy { .. } => ErrorCode::WorkspaceBusy,
            Self::StageReplaced { .. } | Self::StageChanged { .. } => {
                ErrorCode::WorkspaceStageChanged
            }
            Self::Pattern { .. } | Self::UnknownChange { .. } => ErrorCode::ValidationFailed,
            Self::Gitignore { .. } | Self::TooLarge { .. } | Self::Scan { .. } => {
                ErrorCode::WorkspaceStagingFailed
            }
            Self::Stopped => ErrorCode::RunCancelled,
            Self::LeavesRoot { .. } | Self::Protected { .. } | Self::UnsafeLinks { .. } => {
                ErrorCode::PolicyDenied
            }
            Self::Access { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ErrorCode::ExecutionPermissionDenied
            }
            Self::Conflict { .. } | Self::SourceReplaced { .. } | Self::SourceChanged { .. } => {
                ErrorCode::WorkspaceConflict
            }
            Self::Unresolvable { .. }
            | Self::Access { .. }
            | Self::NotAFile { .. }
            | Self::FileTooLarge { .. }
            | Self::BaselineDamaged { .. }
            | Self::ChangedMeanwhile { .. }
            | Self::TooManyChanges { .. }
            | Self::OtherDevice { .. }
            | Self::RecoveryNeeded { .. }
            | Self::Remove { .. } => ErrorCode::ExecutionWorkspaceError,
            Self::NotStaged | Self::Document { .. } | Self::OnlyInSandbox { .. } => {
                ErrorCode::Internal
            }
        }
    }
}

fn listed(items: impl ExactSizeIterator<Item = impl ToString>) -> String {
    const SHOWN: usize = 10;
    let more = items.len().saturating_sub(SHOWN);
    let mut text: Vec<String> = items.take(SHOWN).map(|item| item.to_string()).collect();
    if more > 0 {
        text.push(format!("and {more} more"));
    }
    text.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What to do about an error follows from its code: a busy or changed place is none that is missing.
    #[test]
    fn help_is_about_the_error() {
        let path = PathBuf::from("p");
        let (root, run_id) = (path.clone(), Uuid::nil());
        let cases = [
            (Error::Busy { root }, ErrorCode::WorkspaceBusy, "Wait until"),
            (
                Error::StageInUse { path: path.clone() },
                ErrorCode::WorkspaceBusy,
                "Wait until",
            ),
            (
                Error::StageChanged { path: path.clone() },
                ErrorCode::WorkspaceStageChanged,
                "abp discard",
            ),
            (
                Error::StageReplaced { path },
                ErrorCode::WorkspaceStageChanged,
                "abp discard",
            ),
            (
                Error::NoStage { run_id },
                ErrorCode::WorkspaceInitFailed,
                "Check that",
            ),
        ];
        for (error, code, help) in cases {
            assert_eq!(error.code(), code, "{error}");
            assert!(code.remedy().contains(help), "{error}: {}", code.remedy());
        }
    }
}
