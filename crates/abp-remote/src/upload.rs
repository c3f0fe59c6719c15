//! Uploading the files of a workspace: only those that the server does not have.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use abp_control_http::api::{
    BlobStored, BlobsStored, ManifestEntry, WorkspaceManifest, WorkspaceView,
};
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

/// The number of requests that are under way at once.
const AT_ONCE: usize = 8;
/// Files of at most this many bytes share requests.
const BUNDLED: u64 = 256 << 10;
/// A request of small files has about this many bytes at most.
const BUNDLE_BYTES: u64 = 4 << 20;
/// The most small files of one request.
const BUNDLE_FILES: usize = 1_000;

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
    files: BTreeMap<String, SnapshotFile>,
    /// Removes the copy when it is dropped.
    _dir: tempfile::TempDir,
}

/// The copy of a file.
#[derive(Debug, Clone)]
struct SnapshotFile {
    path: PathBuf,
    size: u64,
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
        files: &BTreeMap<String, SnapshotFile>,
    ) -> Result<u64, AbpError> {
        let mut small = Vec::new();
        let mut uploads = Uploads::default();
        for sha256 in wanted {
            // A server that asks for anything else gets nothing.
            let Some(file) = files.get(&sha256).cloned() else {
                let message = "the server asks for a file that is not part of the workspace";
                return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
            };
            if file.size <= BUNDLED {
                small.push((sha256, file));
                continue;
            }
            let remote = self.clone();
            let upload = async move { remote.upload_blob(&sha256, &file.path).await };
            uploads.add(upload).await?;
        }
        for bundle in bundles(small) {
            let remote = self.clone();
            let upload = async move { remote.upload_bundle(bundle).await };
            uploads.add(upload).await?;
        }
        uploads.finish().await
    }

    /// Uploads many small files in one request.
    async fn upload_bundle(&self, files: Vec<(String, SnapshotFile)>) -> Result<u64, AbpError> {
        let read = tokio::task::spawn_blocking(move || {
            let mut body = Vec::new();
            for (sha256, file) in files {
                let bytes = std::fs::read(&file.path)?;
                body.extend_from_slice(format!("{sha256} {}\n", bytes.len()).as_bytes());
                body.extend_from_slice(&bytes);
            }
            Ok::<_, std::io::Error>(body)
        });
        let body = read.await.map_err(|error| internal(&error))?;
        let body = body.map_err(|error| internal(&error))?;
        let answer = self.send(Method::POST, "/blobs", octets(), Bytes::from(body));
        let stored: BlobsStored = crate::client::read_json(answer.await?).await?;
        Ok(stored.bytes)
    }

    async fn upload_blob(&self, sha256: &str, path: &Path) -> Result<u64, AbpError> {
        let path = path.to_owned();
        let read = tokio::task::spawn_blocking(move || std::fs::read(path)).await;
        let bytes = read.map_err(|error| internal(&error))?;
        let bytes = bytes.map_err(|error| internal(&error))?;
        let path = format!("/blobs/{sha256}");
        let answer = self.send(Method::PUT, &path, octets(), Bytes::from(bytes));
        let stored: BlobStored = crate::client::read_json(answer.await?).await?;
        Ok(stored.size)
    }
}

/// The headers of a request whose body is bytes.
fn octets() -> HeaderMap {
    let mut headers = HeaderMap::new();
    let media = HeaderValue::from_static("application/octet-stream");
    headers.insert(CONTENT_TYPE, media);
    headers
}

/// Groups small files into requests.
fn bundles(files: Vec<(String, SnapshotFile)>) -> Vec<Vec<(String, SnapshotFile)>> {
    let mut bundles = Vec::new();
    let (mut bundle, mut size) = (Vec::new(), 0);
    for (sha256, file) in files {
        size += file.size;
        bundle.push((sha256, file));
        if size >= BUNDLE_BYTES || bundle.len() >= BUNDLE_FILES {
            bundles.push(std::mem::take(&mut bundle));
            size = 0;
        }
    }
    if !bundle.is_empty() {
        bundles.push(bundle);
    }
    bundles
}

/// Uploads under way, a few at once.
#[derive(Default)]
struct Uploads {
    tasks: JoinSet<Result<u64, AbpError>>,
    bytes: u64,
}

impl Uploads {
    async fn add(
        &mut self,
        upload: impl Future<Output = Result<u64, AbpError>> + Send + 'static,
    ) -> Result<(), AbpError> {
        if self.tasks.len() >= AT_ONCE {
            self.join_one().await?;
        }
        self.tasks.spawn(upload);
        Ok(())
    }

    async fn finish(mut self) -> Result<u64, AbpError> {
        while !self.tasks.is_empty() {
            self.join_one().await?;
        }
        Ok(self.bytes)
    }

    async fn join_one(&mut self) -> Result<(), AbpError> {
        if let Some(done) = self.tasks.join_next().await {
            self.bytes += done.map_err(|error| internal(&error))??;
        }
        Ok(())
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
                let copy = SnapshotFile {
                    path: root.join(path),
                    size: entry.size(),
                };
                files.insert(sha256.clone(), copy);
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
