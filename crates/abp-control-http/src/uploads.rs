//! Uploaded files: content-addressed, by principal.
//!
//! ```text
//! uploads/PRINCIPAL/blobs/ab/abcd…      a file, under the SHA-256 of its bytes
//! uploads/PRINCIPAL/manifests/ID.json   a workspace
//! uploads/PRINCIPAL/trees/NAME          the source directory of one run
//! uploads/PRINCIPAL/incoming/UUID       a blob that is still arriving
//! ```
//!
//! Principals share nothing: a hash that one of them uploaded is missing for every other, so knowing the
//! hash of a file gives nobody the file, and the answer says nothing about what others have.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use abp_error::{AbpError, ErrorCode};
use sha2::{Digest as _, Sha256};
use uuid::Uuid;

use crate::api::{ManifestEntry, WorkspaceManifest, WorkspaceView};
use crate::bundle::BundledBlob;
use crate::manifest::{CheckedManifest, hex, is_hash};

/// The uploads of all principals.
#[derive(Debug)]
pub(crate) struct Uploads {
    root: PathBuf,
    /// The most bytes of blobs that a principal has.
    max_bytes: u64,
    /// The bytes that each principal has, once they were counted.
    stored: Mutex<HashMap<String, u64>>,
}

/// The uploads of one principal.
#[derive(Debug)]
pub(crate) struct PrincipalUploads<'u> {
    all: &'u Uploads,
    name: String,
    dir: PathBuf,
}

/// A blob that is arriving. What is not finished is removed.
#[derive(Debug)]
pub(crate) struct BlobWriter {
    file: File,
    path: PathBuf,
    hash: Sha256,
    size: u64,
}

impl Drop for BlobWriter {
    fn drop(&mut self) {
        // Gone already where the blob was finished.
        drop(fs::remove_file(&self.path));
    }
}

impl Uploads {
    pub(crate) fn new(root: PathBuf, max_bytes: u64) -> Self {
        Self {
            root,
            max_bytes,
            stored: Mutex::default(),
        }
    }

    /// The uploads of a principal.
    pub(crate) fn of(&self, principal: &str) -> PrincipalUploads<'_> {
        let hash = hex(&Sha256::digest(principal.as_bytes()));
        let name = hash.get(..32).unwrap_or(&hash).to_owned();
        PrincipalUploads {
            all: self,
            dir: self.root.join(&name),
            name,
        }
    }
}

impl PrincipalUploads<'_> {
    /// Stores a manifest and says which of its blobs are missing. Those that are there are kept for longer.
    pub(crate) fn add_workspace(
        &self,
        manifest: &CheckedManifest,
    ) -> Result<WorkspaceView, AbpError> {
        let mut missing = Vec::new();
        let mut missing_bytes: u64 = 0;
        for (sha256, size) in manifest.blobs() {
            match self
                .has_blob(sha256, size)
                .map_err(|error| failed(&error))?
            {
                true => {}
                false => {
                    missing.push(sha256.to_owned());
                    missing_bytes = missing_bytes.saturating_add(size);
                }
            }
        }
        self.check_room(missing_bytes)?;
        let document = WorkspaceManifest {
            entries: manifest.entries.clone(),
        };
        self.write_manifest(&manifest.id, &document)
            .map_err(|error| failed(&error))?;
        Ok(WorkspaceView {
            workspace_id: manifest.id.clone(),
            missing,
            missing_bytes,
        })
    }

    fn write_manifest(&self, id: &str, manifest: &WorkspaceManifest) -> io::Result<()> {
        let bytes = serde_json::to_vec(manifest)?;
        let dir = self.make_dir("manifests")?;
        let temporary = self.make_dir("incoming")?.join(Uuid::new_v4().to_string());
        let mut file = new_file(&temporary, 0o600)?;
        file.write_all(&bytes)?;
        file.sync_data()?;
        fs::rename(&temporary, dir.join(format!("{id}.json")))
    }

    /// The manifest of a workspace; `None` where the principal has none of that id.
    pub(crate) fn workspace(&self, id: &str) -> Result<Option<CheckedManifest>, AbpError> {
        if !is_hash(id) {
            return Ok(None);
        }
        let path = self.dir.join("manifests").join(format!("{id}.json"));
        let bytes = match fs::read(path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&error)),
        };
        let manifest: WorkspaceManifest = serde_json::from_slice(&bytes)
            .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
        // Checked again: it was on a disk meanwhile.
        let checked = CheckedManifest::check(manifest).map_err(|refusal| refusal.error)?;
        Ok(Some(checked))
    }

    /// Begins a blob.
    pub(crate) fn begin_blob(&self) -> Result<BlobWriter, AbpError> {
        let begin = || {
            let path = self.make_dir("incoming")?.join(Uuid::new_v4().to_string());
            let file = new_file(&path, 0o600)?;
            Ok(BlobWriter {
                file,
                path,
                hash: Sha256::new(),
                size: 0,
            })
        };
        begin().map_err(|error: io::Error| failed(&error))
    }

    /// Finishes a blob, which has to have this hash.
    pub(crate) fn finish_blob(&self, blob: &BlobWriter, sha256: &str) -> Result<u64, AbpError> {
        let found = hex(&blob.hash.clone().finalize());
        if found != sha256 {
            let message = format!("the bytes have the SHA-256 {found}");
            return Err(AbpError::new(ErrorCode::BlobHashMismatch, message).with_place("sha256"));
        }
        let size = blob.size;
        let is_new = !self
            .has_blob(sha256, size)
            .map_err(|error| failed(&error))?;
        if is_new {
            self.check_room(size)?;
            // Not synced: the bytes are hashed again when they are used, and a blob that a crash damaged is then
            // missing. Ten thousand files would wait a minute for the disk.
            let place = || {
                let path = self.blob_path(sha256);
                make_dirs(path.parent().unwrap_or(&self.dir))?;
                fs::rename(&blob.path, path)
            };
            place().map_err(|error| failed(&error))?;
            let mut stored = self.stored();
            *stored.entry(self.name.clone()).or_default() += size;
        }
        Ok(size)
    }

    /// Stores a blob of a bundle.
    pub(crate) fn store_blob(&self, blob: &BundledBlob) -> Result<(), AbpError> {
        let mut writer = self.begin_blob()?;
        writer.write(&blob.bytes)?;
        self.finish_blob(&writer, &blob.sha256)?;
        Ok(())
    }

    /// Whether a blob is there, which is then kept for longer.
    pub(crate) fn has_blob(&self, sha256: &str, size: u64) -> io::Result<bool> {
        let file = match File::open(self.blob_path(sha256)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error),
        };
        let known = file.metadata()?;
        if known.len() != size {
            return Ok(false);
        }
        file.set_modified(SystemTime::now())?;
        Ok(true)
    }

    /// Makes the source directory of a run. One of the same name that is there already is used as it is.
    pub(crate) fn make_tree(
        &self,
        manifest: &CheckedManifest,
        name: &str,
    ) -> Result<PathBuf, AbpError> {
        let make = || {
            let trees = self.make_dir("trees")?;
            let tree = trees.join(name);
            if tree.is_dir() {
                return Ok(tree);
            }
            let partial = trees.join(format!("{name}.{}", Uuid::new_v4()));
            let made = self.fill_tree(manifest, &partial).and_then(|()| {
                match fs::rename(&partial, &tree) {
                    // The same request came twice at once.
                    Err(_) if tree.is_dir() => fs::remove_dir_all(&partial),
                    renamed => renamed,
                }
            });
            if made.is_err() {
                drop(fs::remove_dir_all(&partial));
            }
            made.map(|()| tree)
        };
        make().map_err(|error: io::Error| failed(&error))
    }

    fn fill_tree(&self, manifest: &CheckedManifest, tree: &Path) -> io::Result<()> {
        make_dirs(tree)?;
        let mut above = PathBuf::new();
        for entry in &manifest.entries {
            let path = tree.join(entry.path());
            let parent = path.parent().unwrap_or(tree);
            if parent != above {
                make_dirs(parent)?;
                parent.clone_into(&mut above);
            }
            match entry {
                ManifestEntry::File {
                    sha256, executable, ..
                } => self.copy_blob(sha256, &path, *executable)?,
                ManifestEntry::Link { target, .. } => std::os::unix::fs::symlink(target, &path)?,
            }
        }
        Ok(())
    }

    /// Copies a blob, whose bytes are hashed again on the way.
    fn copy_blob(&self, sha256: &str, to: &Path, executable: bool) -> io::Result<()> {
        let mut from = File::open(self.blob_path(sha256))?;
        let mode = if executable { 0o755 } else { 0o644 };
        let mut file = new_file(to, mode)?;
        let mut hash = Sha256::new();
        let mut buffer = vec![0; 64 << 10];
        loop {
            let count = from.read(&mut buffer)?;
            let Some(bytes) = buffer.get(..count).filter(|bytes| !bytes.is_empty()) else {
                break;
            };
            hash.update(bytes);
            file.write_all(bytes)?;
        }
        if hex(&hash.finalize()) != sha256 {
            // It is missing from now on, and asked for again.
            fs::remove_file(self.blob_path(sha256))?;
            let message =
                format!("the blob {sha256} was changed on the disk; upload the workspace again");
            return Err(io::Error::new(io::ErrorKind::InvalidData, message));
        }
        Ok(())
    }

    /// The hashes of a manifest that are missing.
    pub(crate) fn missing(&self, manifest: &CheckedManifest) -> Result<Vec<String>, AbpError> {
        let mut missing = Vec::new();
        for (sha256, size) in manifest.blobs() {
            if !self
                .has_blob(sha256, size)
                .map_err(|error| failed(&error))?
            {
                missing.push(sha256.to_owned());
            }
        }
        Ok(missing)
    }

    fn check_room(&self, more: u64) -> Result<(), AbpError> {
        let max = self.all.max_bytes;
        let counted = || self.stored_bytes().map_err(|error| failed(&error));
        if counted()?.saturating_add(more) <= max {
            return Ok(());
        }
        // Housekeeping, of this process or another, may have removed blobs since they were counted.
        self.stored().remove(&self.name);
        let has = counted()?;
        if has.saturating_add(more) <= max {
            return Ok(());
        }
        let message = format!("uploads of this key have {has} bytes, and may have {max}");
        Err(AbpError::new(ErrorCode::RateLimitExceeded, message).with_context("full", "uploads"))
    }

    fn stored_bytes(&self) -> io::Result<u64> {
        if let Some(known) = self.stored().get(&self.name) {
            return Ok(*known);
        }
        let mut total: u64 = 0;
        for dir in entries(&self.dir.join("blobs"))? {
            for blob in entries(&dir)? {
                total = total.saturating_add(fs::symlink_metadata(blob)?.len());
            }
        }
        self.stored().insert(self.name.clone(), total);
        Ok(total)
    }

    fn stored(&self) -> std::sync::MutexGuard<'_, HashMap<String, u64>> {
        let stored = self.all.stored.lock();
        stored.unwrap_or_else(PoisonError::into_inner)
    }

    fn blob_path(&self, sha256: &str) -> PathBuf {
        let shard = sha256.get(..2).unwrap_or("xx");
        self.dir.join("blobs").join(shard).join(sha256)
    }

    fn make_dir(&self, name: &str) -> io::Result<PathBuf> {
        let dir = self.dir.join(name);
        make_dirs(&dir)?;
        Ok(dir)
    }
}

impl BlobWriter {
    pub(crate) fn write(&mut self, bytes: &[u8]) -> Result<(), AbpError> {
        self.hash.update(bytes);
        self.size = self.size.saturating_add(bytes.len() as u64);
        self.file.write_all(bytes).map_err(|error| failed(&error))
    }
}

fn new_file(path: &Path, mode: u32) -> io::Result<File> {
    OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(mode)
        .open(path)
}

fn make_dirs(path: &Path) -> io::Result<()> {
    fs::DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(path)
}

/// The entries of a directory; none where there is no such directory.
fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(found) => found.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn failed(error: &io::Error) -> AbpError {
    let message = format!("uploads cannot be stored: {error}");
    AbpError::new(ErrorCode::WorkspaceInitFailed, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key whose uploads are full may send more once housekeeping has removed some of them.
    #[test]
    fn removed_blobs_make_room() {
        let dir = tempfile::tempdir().expect("a directory");
        let uploads = Uploads::new(dir.path().join("uploads"), 4);
        let own = uploads.of("key_1");
        let add = |content: &[u8]| {
            let mut blob = own.begin_blob().expect("a blob");
            blob.write(content).expect("bytes");
            let sha256 = hex(&Sha256::digest(content));
            own.finish_blob(&blob, &sha256).map(|_| sha256)
        };
        let old = add(b"old").expect("room");
        add(b"new").expect_err("no room");
        fs::remove_file(own.blob_path(&old)).expect("removed");
        add(b"new").expect("room again");
        assert_eq!(own.stored_bytes().expect("bytes"), 3);
    }
}
