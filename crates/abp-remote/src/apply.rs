//! Applying the changes of a remote run to a local directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use abp_error::{AbpError, ErrorCode};
use abp_runtime::may_die;
use abp_workspace::{Application, ChangeSet, ChangedPath, CommittedApplication, FileKind};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::Remote;
use crate::journal::JournalFile;

/// What to apply, and where.
#[derive(Debug, Clone)]
pub struct LocalApply {
    /// The directory that the run's workspace was uploaded from.
    pub root: PathBuf,
    /// The paths, each with everything beneath it; all where the list is empty.
    pub paths: Vec<PathBuf>,
    /// Agrees to paths that run code or steer tools on this machine.
    pub agree_to_host_files: bool,
    /// The directory of the journals, which [`recover_applies`](crate::recover_applies) reads after a crash.
    pub journals: PathBuf,
}

/// Applies undecided changes of a run, three-way, all of them or none. Returns the applied paths.
///
/// # Errors
/// Says what stands in the way; the directory is as it was then.
pub async fn apply_locally(
    remote: &Remote,
    run_id: Uuid,
    request: LocalApply,
) -> Result<Vec<PathBuf>, AbpError> {
    let document = remote.bytes(&format!("/runs/{run_id}/change_set")).await?;
    let changes = ChangeSet::from_document(&document).map_err(|error| workspace(&error))?;
    let changes = changes
        .for_source(&request.root)
        .map_err(|error| workspace(&error))?;
    let host_files = changes.host_executed();
    if let (false, [(first, reason), ..]) = (request.agree_to_host_files, host_files.as_slice()) {
        let more = host_files.len() - 1;
        let message = format!(
            "{} takes effect on this machine ({reason}), and {more} more; agree to it to apply the run",
            first.display()
        );
        return Err(AbpError::new(ErrorCode::ApprovalRequired, message));
    }
    check_nesting(&changes)?;
    let tree = tempfile::tempdir().map_err(|error| failed(&error))?;
    let mut before = BTreeMap::new();
    for change in changes.changes() {
        if let Some(entry) = change.after() {
            let content = match entry.kind() {
                FileKind::File => Some(content(remote, run_id, entry.sha256()).await?),
                _ => None,
            };
            let path = tree.path().join(change.path());
            write_entry(&path, entry.kind(), entry.mode(), entry.target(), content)
                .map_err(|error| failed(&error))?;
        }
        if let (Some(old), Some(_)) = (change.before(), change.after())
            && old.kind() == FileKind::File
        {
            // Only needed where the local file was changed too; without it that is a conflict.
            if let Ok(image) = content(remote, run_id, old.sha256()).await {
                before.insert(*old.sha256(), image);
            }
        }
    }
    let applied = tokio::task::spawn_blocking(move || {
        write_changes(run_id, &request, &changes, tree.path(), &before)
    });
    applied.await.map_err(|error| failed(&error))?
}

/// Writes the changes into the directory. Every step is durable in the journal before the next one touches
/// the directory.
fn write_changes(
    run_id: Uuid,
    request: &LocalApply,
    changes: &ChangeSet,
    tree: &Path,
    before: &BTreeMap<[u8; 32], Vec<u8>>,
) -> Result<Vec<PathBuf>, AbpError> {
    let journal = JournalFile::begin(&request.journals, run_id)?;
    let committed = match commit(&journal, request, changes, tree, before) {
        Ok(committed) => committed,
        // What could not be committed was undone.
        Err(error) => {
            journal.end()?;
            return Err(error);
        }
    };
    may_die("remote-apply-committed");
    journal.write(committed.journal())?;
    let paths = committed.paths().to_vec();
    committed.clean_up().map_err(|error| workspace(&error))?;
    journal.end()?;
    Ok(paths)
}

fn commit(
    journal: &JournalFile,
    request: &LocalApply,
    changes: &ChangeSet,
    tree: &Path,
    before: &BTreeMap<[u8; 32], Vec<u8>>,
) -> Result<CommittedApplication, AbpError> {
    let images = |sha256: &[u8; 32]| before.get(sha256).cloned();
    let planned = Application::begin(tree, changes, &request.paths, images)
        .map_err(|error| workspace(&error))?;
    journal.write(planned.journal())?;
    let staged = planned
        .stage_contents()
        .map_err(|error| workspace(&error))?;
    journal.write(staged.journal())?;
    may_die("remote-apply-committing");
    staged.commit().map_err(|error| workspace(&error))
}

/// Refuses a change set in which something lies beneath a file or a link: a server could lead writes out of
/// the tree with it.
fn check_nesting(changes: &ChangeSet) -> Result<(), AbpError> {
    let is_leaf = |kind: FileKind| kind != FileKind::Directory;
    let after = changes
        .changes()
        .iter()
        .filter(|change| change.after().is_some());
    let leaves: BTreeSet<&Path> = after
        .clone()
        .filter(|change| change.after().is_some_and(|entry| is_leaf(entry.kind())))
        .map(ChangedPath::path)
        .collect();
    for change in after {
        let mut above = change.path().ancestors().skip(1);
        if above.any(|above| leaves.contains(above)) {
            let message = format!("{} lies beneath a file or a link", change.path().display());
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
    }
    Ok(())
}

/// The content of a changed file, whose hash is checked.
async fn content(remote: &Remote, run_id: Uuid, sha256: &[u8; 32]) -> Result<Vec<u8>, AbpError> {
    let name: String = sha256.iter().map(|byte| format!("{byte:02x}")).collect();
    let bytes = remote
        .bytes(&format!("/runs/{run_id}/blobs/{name}"))
        .await?;
    if Sha256::digest(&bytes).as_slice() != sha256 {
        let message = format!("the server's content of {name} has another hash");
        return Err(AbpError::new(ErrorCode::BlobHashMismatch, message));
    }
    Ok(bytes.into())
}

/// Makes an entry of the tree that stands for the agent's. Reading the document checked that paths are
/// relative and have no dots.
fn write_entry(
    path: &Path,
    kind: FileKind,
    mode: u32,
    target: &Path,
    content: Option<Vec<u8>>,
) -> std::io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    if let Some(parent) = path.parent() {
        std::fs::create_dir_all(parent)?;
    }
    match kind {
        FileKind::File => {
            std::fs::write(path, content.unwrap_or_default())?;
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode & 0o777))
        }
        FileKind::Directory => std::fs::create_dir_all(path),
        FileKind::Symlink => std::os::unix::fs::symlink(target, path),
        _ => Ok(()),
    }
}

fn workspace(error: &abp_workspace::Error) -> AbpError {
    AbpError::new(error.code(), error.to_string())
}

fn failed(error: &dyn std::fmt::Display) -> AbpError {
    AbpError::new(ErrorCode::WorkspaceInitFailed, error.to_string())
}
