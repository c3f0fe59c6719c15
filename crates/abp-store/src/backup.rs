//! Backups: a copy of everything in a state directory that cannot be made again, and putting it back.
//!
//! ```text
//! BACKUP/MANIFEST      the hash of the rest of this file, then what there is, as JSON
//! BACKUP/store.db      the database at one moment, by `VACUUM INTO`
//! BACKUP/keys/…        the keys that sign the log and open submissions: secrets
//! BACKUP/…             other files of the state directory
//! ```
//!
//! Processes may go on while a backup is written: the database is read in one transaction, which holds no
//! writer up. Keys are copied before and after it, so a key that is replaced meanwhile is there whichever of
//! the two the copied log is signed with. A backup gets its name when it is whole and was verified; a
//! restored state directory likewise.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use abp_core::Timestamp;
use abp_receipt::{Hash, HashStream};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::engine::sql::Pool;
use crate::keys::KeyDir;
use crate::layout::{Layout, create_private, sync_directory};
use crate::{StoreError, StoreReader, VerifyOptions};

const MANIFEST: &str = "MANIFEST";
const DATABASE: &str = "store.db";
/// The version of the manifest that this release writes and reads.
const FORMAT: u32 = 1;
/// Larger than any manifest.
const MAX_MANIFEST: u64 = 64 * 1024 * 1024;
/// Files that belong to running processes, or is made again: locks, the reserve, copies of receipts.
const LEFT_OUT: [&str; 6] = [
    "owners",
    "setup.lock",
    "reserve",
    "receipts",
    "sidecars",
    "agents",
];

/// The manifest of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupManifest {
    /// The version of this document.
    pub format: u32,
    /// When the backup was made.
    pub created_at: Timestamp,
    /// The log's name.
    pub origin: String,
    /// The number of entries of the log.
    pub log_size: u64,
    /// The signed checkpoint of the log, as a note.
    pub checkpoint: String,
    /// Every file by its path in the backup.
    pub files: BTreeMap<String, BackupFile>,
}

/// A file of a backup.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BackupFile {
    /// Its size in bytes.
    pub bytes: u64,
    /// The hash of its content.
    pub sha256: Hash,
    /// True of keys: who has the file can sign the log, open submissions or use the gateway.
    pub is_secret: bool,
}

impl BackupManifest {
    /// The size of all files.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.files.values().map(|file| file.bytes).sum()
    }
}

/// Writes a backup of a state directory to a directory that is not there yet, for its owner alone, and
/// verifies it. The store may be in use.
///
/// # Errors
/// Refuses a name that is taken, and a store that does not verify; leaves nothing behind then.
pub async fn write_backup(
    state_dir: &Path,
    target: &Path,
    at: Timestamp,
) -> Result<BackupManifest, StoreError> {
    let reader = StoreReader::open(state_dir).await?;
    let absolute = std::path::absolute(target).map_err(StoreError::io("find", target))?;
    if absolute.starts_with(std::path::absolute(state_dir).unwrap_or_default()) {
        return Err(StoreError::BackupTarget { path: absolute });
    }
    let place = NewDirectory::beside(target)?;
    let written = fill_backup(&reader, state_dir, place.path(), at).await;
    reader.close().await;
    let manifest = written?;
    check_backup(place.path()).await?;
    place.name(target)?;
    Ok(manifest)
}

/// Reads a backup and verifies every file, the log and everything that the log covers.
///
/// # Errors
/// Names the file that is not as it was written.
pub async fn check_backup(backup: &Path) -> Result<BackupManifest, StoreError> {
    let manifest = read_manifest(backup)?;
    let (place, expected) = (backup.to_owned(), manifest.files.clone());
    blocking(move || check_files(&place, &expected)).await?;
    let damaged = |problem: String| StoreError::BackupDamaged {
        path: backup.join(DATABASE),
        problem,
    };
    let reader = StoreReader::open(backup).await?;
    let checked = check_log(&reader, &manifest).await;
    reader.close().await;
    match checked? {
        None => Ok(manifest),
        Some(problem) => Err(damaged(problem)),
    }
}

/// Makes a state directory from a backup, after both were verified.
///
/// # Errors
/// Refuses a state directory that is there and not empty, and a backup that is not as it was written.
pub async fn restore_backup(backup: &Path, state_dir: &Path) -> Result<BackupManifest, StoreError> {
    require_free(state_dir)?;
    let manifest = check_backup(backup).await?;
    let place = NewDirectory::beside(state_dir)?;
    let (from, to, files) = (
        backup.to_owned(),
        place.path().to_owned(),
        manifest.files.clone(),
    );
    blocking(move || {
        for path in files.keys() {
            copy_private(&from.join(path), &to.join(path))?;
        }
        // Also what changed in the backup while it was copied.
        check_files(&to, &files)
    })
    .await?;
    place.name(state_dir)?;
    Ok(manifest)
}

async fn fill_backup(
    reader: &StoreReader,
    state_dir: &Path,
    place: &Path,
    at: Timestamp,
) -> Result<BackupManifest, StoreError> {
    let copy = |from: &Path| {
        let (from, to) = (from.to_owned(), place.to_owned());
        blocking(move || copy_state(&from, &to))
    };
    copy(state_dir).await?;
    reader.copy_database(&place.join(DATABASE)).await?;
    copy(state_dir).await?;
    let copied = StoreReader::open(place).await?;
    let read = async {
        let checkpoint = copied.latest_checkpoint().await?;
        let key = copied.public_key().await?;
        KeyDir::new(Layout::existing(place).keys()).load(&key)?;
        Ok::<_, StoreError>(checkpoint)
    };
    let checkpoint = read.await;
    let origin = copied.origin().to_owned();
    copied.close().await;
    let checkpoint = checkpoint?;
    let root = place.to_owned();
    let files = blocking(move || list_files(&root)).await?;
    let manifest = BackupManifest {
        format: FORMAT,
        created_at: at,
        origin,
        log_size: checkpoint.checkpoint().size(),
        checkpoint: checkpoint.to_string(),
        files,
    };
    write_manifest(place, &manifest)?;
    Ok(manifest)
}

/// The first problem of the log of a backup, or with anything that it covers.
async fn check_log(
    reader: &StoreReader,
    manifest: &BackupManifest,
) -> Result<Option<String>, StoreError> {
    let checkpoint = reader.latest_checkpoint().await?;
    if checkpoint.to_string() != manifest.checkpoint || reader.origin() != manifest.origin {
        return Ok(Some("its log is not the one of the manifest".to_owned()));
    }
    let report = reader.verify(VerifyOptions::default()).await?;
    if report.is_ok() {
        return Ok(None);
    }
    let logged = report.log.problems.first().map(ToString::to_string);
    let stored = report.problems.first().map(ToString::to_string);
    Ok(logged.or(stored))
}

impl StoreReader {
    /// Writes the database as it is now to a new file. Writers go on meanwhile.
    async fn copy_database(&self, to: &Path) -> Result<(), StoreError> {
        // Made here, so that it is private from the start; the database takes an empty file.
        drop(create_private(to).map_err(StoreError::io("create", to))?);
        let failed = |error: sqlx::Error| self.failed(&error);
        let pool = match &self.pool {
            Pool::Sqlite(pool) => pool,
            // No configuration leads here; its database has tools for this.
            Pool::Postgres(_) => {
                return Err(StoreError::BackupTarget {
                    path: to.to_owned(),
                });
            }
        };
        let mut connection = pool.acquire().await.map_err(failed)?;
        // The connection changes nothing but the file that it is told to make.
        let target = to.to_string_lossy().into_owned();
        for pragma in ["PRAGMA query_only = OFF", "PRAGMA synchronous = FULL"] {
            sqlx::query(pragma)
                .execute(&mut *connection)
                .await
                .map_err(failed)?;
        }
        let copied = sqlx::query("VACUUM INTO ?")
            .bind(target)
            .execute(&mut *connection)
            .await
            .map_err(failed);
        // Not for others to use: it may write now.
        drop(connection.close().await);
        copied?;
        let synced = File::open(to).and_then(|file| file.sync_all());
        synced.map_err(StoreError::io("sync", to))
    }
}

/// Copies what belongs into a backup, but for the database. A file that is there already is copied again.
fn copy_state(state_dir: &Path, place: &Path) -> Result<(), StoreError> {
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let directory = state_dir.join(&below);
        for entry in fs::read_dir(&directory).map_err(StoreError::io("read", &directory))? {
            let entry = entry.map_err(StoreError::io("read", &directory))?;
            let (path, kind) = (below.join(entry.file_name()), entry.file_type());
            let kind = kind.map_err(StoreError::io("inspect", &entry.path()))?;
            if is_left_out(&path) {
                continue;
            }
            if kind.is_dir() {
                waiting.push(path);
            } else if kind.is_file() {
                copy_changing(&entry.path(), &place.join(&path))?;
            }
        }
    }
    Ok(())
}

fn is_left_out(path: &Path) -> bool {
    let first = path.components().next();
    let first = first.and_then(|first| first.as_os_str().to_str());
    // The database and its other files are one thing, which is copied as one.
    first.is_some_and(|first| LEFT_OUT.contains(&first) || first.starts_with(DATABASE))
}

/// Copies a file that may be gone by now: a key that was replaced.
fn copy_changing(from: &Path, to: &Path) -> Result<(), StoreError> {
    match copy_private(from, to) {
        Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => Ok(()),
        copied => copied,
    }
}

/// Copies a file for its owner alone, durably. Links are not followed.
fn copy_private(from: &Path, to: &Path) -> Result<(), StoreError> {
    let mut source = OpenOptions::new()
        .read(true)
        .custom_flags(rustix::fs::OFlags::NOFOLLOW.bits().cast_signed())
        .open(from)
        .map_err(StoreError::io("open", from))?;
    if let Some(directory) = to.parent() {
        make_private(directory)?;
    }
    let copied = OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(to)
        .and_then(|mut file| {
            io::copy(&mut source, &mut file)?;
            file.sync_all()
        });
    copied.map_err(StoreError::io("write", to))
}

fn make_private(directory: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(directory)
        .map_err(StoreError::io("create", directory))
}

/// Every file below a directory, but for the manifest.
fn list_files(root: &Path) -> Result<BTreeMap<String, BackupFile>, StoreError> {
    let mut files = BTreeMap::new();
    for path in names(root)? {
        let file = root.join(&path);
        let (bytes, sha256) = hash_file(&file)?;
        let is_secret = path.starts_with("keys/") || path.ends_with(".key");
        files.insert(
            path,
            BackupFile {
                bytes,
                sha256,
                is_secret,
            },
        );
    }
    Ok(files)
}

/// The paths of all files below a directory, but for the manifest.
fn names(root: &Path) -> Result<BTreeSet<String>, StoreError> {
    let mut found = BTreeSet::new();
    let mut waiting = vec![PathBuf::new()];
    while let Some(below) = waiting.pop() {
        let directory = root.join(&below);
        for entry in fs::read_dir(&directory).map_err(StoreError::io("read", &directory))? {
            let entry = entry.map_err(StoreError::io("read", &directory))?;
            let path = below.join(entry.file_name());
            let kind = entry
                .file_type()
                .map_err(StoreError::io("inspect", &entry.path()))?;
            let name = path.to_string_lossy().into_owned();
            if kind.is_dir() {
                waiting.push(path);
            } else if name != MANIFEST {
                found.insert(name);
            }
        }
    }
    Ok(found)
}

/// Compares every file with what the manifest says of it.
fn check_files(root: &Path, expected: &BTreeMap<String, BackupFile>) -> Result<(), StoreError> {
    let damaged = |path: &str, problem: String| StoreError::BackupDamaged {
        path: root.join(path),
        problem,
    };
    let found = names(root)?;
    for (path, file) in expected {
        if !found.contains(path) {
            return Err(damaged(path, "it is missing".to_owned()));
        }
        let (bytes, sha256) = hash_file(&root.join(path))?;
        if (bytes, sha256) != (file.bytes, file.sha256) {
            let problem = format!(
                "it has {bytes} bytes with the hash {sha256}, written were {} with {}",
                file.bytes, file.sha256
            );
            return Err(damaged(path, problem));
        }
    }
    match found.iter().find(|path| !expected.contains_key(*path)) {
        Some(path) => Err(damaged(path, "it is no part of the backup".to_owned())),
        None => Ok(()),
    }
}

fn hash_file(path: &Path) -> Result<(u64, Hash), StoreError> {
    let failed = || StoreError::io("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let mut hasher = HashStream::default();
    let mut buffer = vec![0; 256 * 1024];
    let mut bytes = 0;
    loop {
        let read = file.read(&mut buffer).map_err(failed())?;
        let Some(piece) = buffer.get(..read).filter(|piece| !piece.is_empty()) else {
            return Ok((bytes, hasher.finish()));
        };
        hasher.push(piece);
        bytes += piece.len() as u64;
    }
}

fn write_manifest(place: &Path, manifest: &BackupManifest) -> Result<(), StoreError> {
    let path = place.join(MANIFEST);
    let failed = || StoreError::io("write", &path);
    let mut text =
        serde_json::to_vec_pretty(manifest).map_err(|error| failed()(io::Error::other(error)))?;
    text.push(b'\n');
    let written = create_private(&path).and_then(|mut file| {
        writeln!(file, "{}", Hash::of(&text))?;
        file.write_all(&text)?;
        file.sync_all()
    });
    written.map_err(failed())
}

fn read_manifest(backup: &Path) -> Result<BackupManifest, StoreError> {
    let path = backup.join(MANIFEST);
    let damaged = |problem: String| StoreError::BackupDamaged {
        path: path.clone(),
        problem,
    };
    let mut bytes = Vec::new();
    File::open(&path)
        .and_then(|file| file.take(MAX_MANIFEST).read_to_end(&mut bytes))
        .map_err(StoreError::io("read", &path))?;
    let end = bytes.iter().position(|byte| *byte == b'\n');
    let (first, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
    let rest = rest.get(1..).unwrap_or_default();
    let found = Hash::of(rest);
    if first != found.to_string().as_bytes() {
        return Err(damaged(format!(
            "its hash is {found}, its first line is {:?}",
            String::from_utf8_lossy(first)
        )));
    }
    let manifest: BackupManifest =
        serde_json::from_slice(rest).map_err(|error| damaged(error.to_string()))?;
    if manifest.format != FORMAT {
        return Err(damaged(format!(
            "it has format {}, and this release reads format {FORMAT}",
            manifest.format
        )));
    }
    let is_plain = |path: &String| {
        let mut parts = Path::new(path).components();
        !path.is_empty() && parts.all(|part| matches!(part, Component::Normal(_)))
    };
    match manifest.files.keys().find(|path| !is_plain(path)) {
        Some(path) => Err(damaged(format!("it names the path {path:?}"))),
        None => Ok(manifest),
    }
}

/// Refuses a directory that is there and not empty.
fn require_free(target: &Path) -> Result<(), StoreError> {
    let taken = || StoreError::BackupTarget {
        path: target.to_owned(),
    };
    match fs::read_dir(target) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(taken()),
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => Err(taken()),
        Err(error) => Err(StoreError::io("read", target)(error)),
    }
}

/// A directory that gets its name when it is whole; what is not named is removed.
struct NewDirectory {
    path: PathBuf,
}

impl NewDirectory {
    /// Makes a directory beside the one that is wanted, which must not be there, or be empty.
    fn beside(target: &Path) -> Result<Self, StoreError> {
        require_free(target)?;
        let taken = || StoreError::BackupTarget {
            path: target.to_owned(),
        };
        let name = target.file_name().ok_or_else(taken)?;
        let mut partial = name.to_owned();
        partial.push(format!(".{}", Uuid::new_v4().simple()));
        let path = target.with_file_name(partial);
        make_private(&path)?;
        Ok(Self { path })
    }

    fn path(&self) -> &Path {
        &self.path
    }

    /// Gives it the name that was wanted, unless something else got it meanwhile.
    fn name(self, target: &Path) -> Result<(), StoreError> {
        sync_directory(&self.path)?;
        match fs::rename(&self.path, target) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
                return Err(StoreError::BackupTarget {
                    path: target.to_owned(),
                });
            }
            Err(error) => return Err(StoreError::io("rename to", target)(error)),
        }
        let parent = target
            .parent()
            .filter(|parent| !parent.as_os_str().is_empty());
        sync_directory(parent.unwrap_or(Path::new(".")))
    }
}

impl Drop for NewDirectory {
    fn drop(&mut self) {
        // Gone where it got its name.
        drop(fs::remove_dir_all(&self.path));
    }
}

/// Carries out what waits for the disk on a thread of its own.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, StoreError> + Send + 'static,
) -> Result<T, StoreError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|_| StoreError::Closed)?
}
