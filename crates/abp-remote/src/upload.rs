//! Uploading the files of a workspace: only those that the server does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use abp_control_http::api::{BlobStored, ManifestEntry, WorkspaceManifest, WorkspaceView};
use abp_core::WorkspaceSpec;
use abp_error::{AbpError, ErrorCode};
use abp_glob::GlobList;
use abp_workspace::{Entry, FileKind, WorkspaceManager};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{HeaderMap, Method};
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::Remote;

/// How many files are uploaded at once.
const AT_ONCE: usize = 8;

/// An uploaded workspace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UploadSummary {
    /// The id that submissions name.
    pub workspace_id: String,
    /// How many files and links the workspace has.
    pub entries: usize,
    /// How many blobs were uploaded.
    pub uploaded: usize,
    /// How many bytes these had.
    pub uploaded_bytes: u64,
}

/// A copy of the files at one moment, and their hashes.
struct Snapshot {
    manifest: WorkspaceManifest,
    /// The copy of each blob, by its hash.
    files: BTreeMap<String, PathBuf>,
    /// Removes the copy when it is dropped.
    _dir: tempfile::TempDir,
}

impl Remote {
    /// Uploads the files of a directory as a run would stage them: by the rules of the specification, and
    /// without the paths that `hidden` names.
    ///
    /// # Errors
    /// Fails where the directory cannot be read, and as the server refuses it.
    pub async fn upload(
        &self,
        spec: &WorkspaceSpec,
        hidden: &GlobList,
    ) -> Result<UploadSummary, AbpError> {
        let (spec, hidden) = (spec.clone(), hidden.clone());
        let taken = tokio::task::spawn_blocking(move || snapshot(&spec, &hidden)).await;
        let snapshot = taken.map_err(|error| internal(&error))??;
        let view: WorkspaceView = self.post("/workspaces", &snapshot.manifest).await?;
        let wanted: BTreeSet<String> = view.missing.into_iter().collect();
        let uploaded = wanted.len();
        let uploaded_bytes = self.upload_blobs(wanted, &snapshot.files).await?;
        Ok(UploadSummary {
            workspace_id: view.workspace_id,
            entries: snapshot.manifest.entries.len(),
            uploaded,
            uploaded_bytes,
        })
    }

    async fn upload_blobs(
        &self,
        wanted: BTreeSet<String>,
        files: &BTreeMap<String, PathBuf>,
    ) -> Result<u64, AbpError> {
        let mut uploads = JoinSet::new();
        let mut total = 0;
        for sha256 in wanted {
            // A server that asks for anything else gets nothing.
            let Some(path) = files.get(&sha256).cloned() else {
                let message = "the server asks for a file that is not part of the workspace";
                return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
            };
            if uploads.len() >= AT_ONCE {
                total += finished(uploads.join_next().await)?;
            }
            let remote = self.clone();
            uploads.spawn(async move { remote.upload_blob(&sha256, &path).await });
        }
        while let Some(done) = uploads.join_next().await {
            total += finished(Some(done))?;
        }
        Ok(total)
    }

    async fn upload_blob(&self, sha256: &str, path: &Path) -> Result<u64, AbpError> {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        let bytes = read.map_err(|error| internal(&error))?;
        let bytes = bytes.map_err(|error| internal(&error))?;
        let mut headers = HeaderMap::new();
        let media = HeaderValue::from_static("application/octet-stream");
        headers.insert(CONTENT_TYPE, media);
        let path = format!("/blobs/{sha256}");
        let answer = self.send(Method::PUT, &path, headers, Bytes::from(bytes));
        let stored: BlobStored = crate::client::read_json(answer.await?).await?;
        Ok(stored.size)
    }
}

fn finished(
    done: Option<Result<Result<u64, AbpError>, tokio::task::JoinError>>,
) -> Result<u64, AbpError> {
    match done {
        Some(Ok(size)) => size,
        Some(Err(error)) => Err(internal(&error)),
        None => Ok(0),
    }
}

/// Copies the files as a run's stage would, so that what is hashed is what is uploaded.
fn snapshot(spec: &WorkspaceSpec, hidden: &GlobList) -> Result<Snapshot, AbpError> {
    let dir = tempfile::tempdir().map_err(|error| internal(&error))?;
    let manager = WorkspaceManager::new(dir.path().join("stages")).without_git_baseline();
    let prepared = manager
        .prepare(spec, Uuid::new_v4(), hidden)
        .map_err(|error| AbpError::new(error.code(), error.to_string()))?;
    let root = prepared.root().to_owned();
    let mut entries = Vec::new();
    let mut files = BTreeMap::new();
    for entry in prepared.baseline().entries() {
        let Some(path) = entry.path().to_str() else {
            let message = format!(
                "{} is no valid text, and cannot be uploaded",
                entry.path().display()
            );
            return Err(AbpError::new(ErrorCode::WorkspaceInitFailed, message));
        };
        match entry.kind() {
            FileKind::File => {
                let sha256 = hex(entry);
                files.insert(sha256.clone(), root.join(path));
                entries.push(ManifestEntry::File {
                    path: path.to_owned(),
                    sha256,
                    size: entry.size(),
                    executable: entry.mode() & 0o111 != 0,
                });
            }
            FileKind::Symlink => entries.push(ManifestEntry::Link {
                path: path.to_owned(),
                target: entry.target().to_string_lossy().into_owned(),
            }),
            _ => {}
        }
    }
    Ok(Snapshot {
        manifest: WorkspaceManifest { entries },
        files,
        _dir: dir,
    })
}

fn hex(entry: &Entry) -> String {
    let bytes = entry.sha256().iter();
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

fn internal(error: &dyn std::fmt::Display) -> AbpError {
    AbpError::new(ErrorCode::WorkspaceInitFailed, error.to_string())
}
