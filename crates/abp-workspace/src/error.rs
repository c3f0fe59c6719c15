//! What can go wrong with a workspace, and the code each case has at the edges.

use std::io;
use std::path::PathBuf;

use abp_error::ErrorCode;
use abp_glob::GlobError;

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
        /// Why.
        source: io::Error,
    },
    /// The directory for stages, or this run's place in it, cannot be created or opened.
    #[error("cannot set up stage directory {}", path.display())]
    StageDirectory {
        /// The directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another run works in place on the same directory.
    #[error("another run works in {}", root.display())]
    Busy {
        /// The directory.
        root: PathBuf,
    },
    /// A list of the workspace specification cannot be compiled.
    #[error("workspace list {list}: {problem}")]
    Pattern {
        /// `include` or `exclude`.
        list: &'static str,
        /// What is wrong.
        problem: GlobError,
    },
    /// A `.gitignore` would cost too much to honour.
    #[error("cannot honour {}: {reason}", display_path(path))]
    Gitignore {
        /// The file, relative to the root.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A budget of [`StageLimits`](crate::StageLimits) is used up, or the disk nearly full.
    #[error("workspace exceeds {limit} of {max} at {}", display_path(path))]
    TooLarge {
        /// The budget.
        limit: &'static str,
        /// How much it allows.
        max: u64,
        /// Where it was exceeded, relative to the root.
        path: PathBuf,
    },
    /// Copying or scanning failed.
    #[error("cannot {action} {}", display_path(path))]
    Scan {
        /// What was tried.
        action: &'static str,
        /// The path relative to the root.
        path: PathBuf,
        /// Why.
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
        /// Why.
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
        /// What was tried.
        action: &'static str,
        /// The path relative to the root.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// What is at the path is no regular file.
    #[error("{} is not a regular file", display_path(path))]
    NotAFile {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// A file is larger than the reader wants.
    #[error("{} has {size} bytes, more than {max}", display_path(path))]
    FileTooLarge {
        /// The path relative to the root.
        path: PathBuf,
        /// Its size.
        size: u64,
        /// The most the reader wants.
        max: u64,
    },
    /// The stored baseline is not what was stored.
    #[error("stored baseline of {} is damaged", display_path(path))]
    BaselineDamaged {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// A file of the workspace changed between being recorded and being used.
    #[error("{} changed while its changes were collected", display_path(path))]
    ChangedMeanwhile {
        /// The path relative to the root.
        path: PathBuf,
    },
    /// Changes made in place need no application.
    #[error("workspace is not staged")]
    NotStaged,
    /// The source no longer is what the run started with; nothing was applied.
    #[error("source changed since staging: {}", listed(paths))]
    Conflict {
        /// The paths that differ, relative to the root.
        paths: Vec<PathBuf>,
    },
    /// The run made links that lead out of the workspace; nothing was applied.
    #[error("links lead out of the workspace: {}", listed(paths))]
    UnsafeLinks {
        /// The links, relative to the root.
        paths: Vec<PathBuf>,
    },
    /// Applying stopped in the middle.
    #[error(
        "applied {done} of {total} changes, then failed at {}",
        display_path(path)
    )]
    ApplyIncomplete {
        /// Changes that were made.
        done: usize,
        /// Changes to make.
        total: usize,
        /// The path that failed.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A stage could not be removed completely.
    #[error("cannot remove stage {}", path.display())]
    Remove {
        /// The stage.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Error {
    /// The error's stable code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Root { .. } | Self::StageDirectory { .. } | Self::Busy { .. } => {
                ErrorCode::WorkspaceInitFailed
            }
            Self::Pattern { .. } => ErrorCode::ValidationFailed,
            Self::Gitignore { .. } | Self::TooLarge { .. } | Self::Scan { .. } => {
                ErrorCode::WorkspaceStagingFailed
            }
            Self::LeavesRoot { .. } | Self::Protected { .. } | Self::UnsafeLinks { .. } => {
                ErrorCode::PolicyDenied
            }
            Self::Access { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                ErrorCode::ExecutionPermissionDenied
            }
            Self::Conflict { .. } => ErrorCode::WorkspaceConflict,
            Self::Unresolvable { .. }
            | Self::Access { .. }
            | Self::NotAFile { .. }
            | Self::FileTooLarge { .. }
            | Self::BaselineDamaged { .. }
            | Self::ChangedMeanwhile { .. }
            | Self::ApplyIncomplete { .. }
            | Self::Remove { .. } => ErrorCode::ExecutionWorkspaceError,
            Self::NotStaged => ErrorCode::Internal,
        }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    const SHOWN: usize = 10;
    let mut text: Vec<String> = paths
        .iter()
        .take(SHOWN)
        .map(|path| display_path(path))
        .collect();
    if paths.len() > SHOWN {
        text.push(format!("and {} more", paths.len() - SHOWN));
    }
    text.join(", ")
}
