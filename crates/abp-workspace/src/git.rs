//! The repository a stage starts with, because agents expect one.
//!
//! It is made after the copy and before the agent runs, and never read again by the host: from then
//! on it is the agent's. It is no part of the workspace: changes in it are not reported, changes to the
//! files beside it always are.

use std::path::Path;
use std::time::{Duration, Instant};

use abp_git::Git;

use crate::manifest::Manifest;

/// Whether a stage started as a git repository.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GitBaseline {
    /// It did, with everything in one commit.
    Made,
    /// It did not.
    Skipped {
        /// Why.
        reason: String,
    },
}

/// Up to which size a stage starts as a git repository. Making one takes several times as long as
/// the copy, so large trees start without.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GitLimits {
    /// Files and links.
    pub max_files: u64,
    /// Bytes in all of them.
    pub max_bytes: u64,
    /// The time after which git is ended.
    pub max_time: Duration,
}

impl Default for GitLimits {
    fn default() -> Self {
        Self {
            max_files: 2_000,
            max_bytes: 32 << 20,
            max_time: Duration::from_secs(5),
        }
    }
}

/// Makes a just filled tree a repository where that is quick.
pub(crate) fn make_baseline(limits: GitLimits, manifest: &Manifest, tree: &Path) -> GitBaseline {
    let started = Instant::now();
    let (files, bytes) = (manifest.files(), manifest.bytes());
    let made = if files > limits.max_files {
        Err(format!("{files} files are more than {}", limits.max_files))
    } else if bytes > limits.max_bytes {
        Err(format!("{bytes} bytes are more than {}", limits.max_bytes))
    } else {
        Git::find()
            .and_then(|git| git.ensure_git_repo(tree, limits.max_time))
            .map_err(|error| error.to_string())
    };
    let took_ms = started.elapsed().as_millis();
    match made {
        Ok(()) => {
            tracing::debug!(target: "abp.workspace", files, bytes, took_ms, "stage is a repository");
            GitBaseline::Made
        }
        Err(reason) => {
            tracing::debug!(target: "abp.workspace", files, bytes, took_ms, reason, "stage is no repository");
            GitBaseline::Skipped { reason }
        }
    }
}
