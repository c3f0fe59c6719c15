//! Where the store keeps its files, and who may read them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::StoreError;

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Everybody but the owner.
const OTHERS: u32 = 0o077;
/// How often a lock that somebody else has is asked for.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// The files below a state directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the directories that are missing, for the owner alone.
    pub(crate) fn prepare(root: &Path) -> Result<Self, StoreError> {
        let layout = Self {
            root: root.to_owned(),
        };
        for directory in [root.to_owned(), layout.owners(), layout.keys()] {
            DirBuilder::new()
                .recursive(true)
                .mode(PRIVATE_DIR)
                .create(&directory)
                .map_err(StoreError::io("create", &directory))?;
        }
        let mode = mode_of(root)?;
        if mode & 0o1002 == 0o0002 {
            return Err(StoreError::Permissions {
                path: root.to_owned(),
                mode,
                remedy: "everybody may replace what is in it: run `chmod o-w` on it",
            });
        }
        Ok(layout)
    }

    /// The files of a store that should be there.
    pub(crate) fn existing(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.root.join("store.db")
    }

    pub(crate) fn owners(&self) -> PathBuf {
        self.root.join("owners")
    }

    pub(crate) fn keys(&self) -> PathBuf {
        self.root.join("keys")
    }

    pub(crate) fn reserve(&self) -> PathBuf {
        self.root.join("reserve")
    }

    /// Makes an empty database file where there is none, so that it is private from the start: the
    /// database gives its other files the same permissions.
    ///
    /// A file that is gone although there are keys of its log is not made again: that would hide the
    /// loss. An existing file is never opened here. Closing it would take away the locks that the same
    /// process holds on it.
    pub(crate) fn create_database(&self) -> Result<(), StoreError> {
        let path = self.database();
        let size = fs::metadata(&path).map_or(0, |file| file.len());
        let had_keys = fs::read_dir(self.keys()).is_ok_and(|mut keys| keys.next().is_some());
        // Smaller than any header: a database would be taken for an empty one, and begun anew.
        let problem = match (size, had_keys) {
            (0, true) => Some("it is gone, and the keys of its log are there".to_owned()),
            (1..512, _) => Some(format!("it has {size} bytes")),
            _ => None,
        };
        if let Some(problem) = problem {
            return Err(StoreError::Damaged { path, problem });
        }
        match create_private(&path) {
            Ok(_) => sync_directory(&self.root),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                let mode = mode_of(&path)?;
                if mode & OTHERS == 0 {
                    return Ok(());
                }
                tracing::warn!(target: "abp.store", path = %path.display(), "made private again");
                fs::set_permissions(&path, fs::Permissions::from_mode(PRIVATE_FILE))
                    .map_err(StoreError::io("change the permissions of", &path))
            }
            Err(error) => Err(StoreError::io("create", &path)(error)),
        }
    }

    /// Waits until no other process sets the store up. The lock ends with the file.
    pub(crate) async fn lock_setup(&self, patience: Duration) -> Result<File, StoreError> {
        let path = self.root.join("setup.lock");
        let failed = || StoreError::io("lock", &path);
        let file = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(PRIVATE_FILE)
            .open(&path)
            .map_err(failed())?;
        let deadline = Instant::now() + patience;
        loop {
            match file.try_lock() {
                Ok(()) => return Ok(file),
                Err(fs::TryLockError::WouldBlock) if Instant::now() < deadline => {
                    sleep(LOCK_POLL).await;
                }
                Err(fs::TryLockError::WouldBlock) => return Err(StoreError::Busy { path }),
                Err(fs::TryLockError::Error(error)) => return Err(failed()(error)),
            }
        }
    }
}

/// Makes a file that was not there, for the owner alone.
pub(crate) fn create_private(path: &Path) -> io::Result<File> {
    OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(PRIVATE_FILE)
        .open(path)
}

/// Makes the names in a directory durable.
pub(crate) fn sync_directory(path: &Path) -> Result<(), StoreError> {
    File::open(path)
        .and_then(|directory| directory.sync_all())
        .map_err(StoreError::io("sync", path))
}

/// Refuses an open file that anybody but the owner may read or change.
pub(crate) fn require_private(file: &File, path: &Path) -> Result<(), StoreError> {
    let metadata = file.metadata().map_err(StoreError::io("inspect", path))?;
    let mode = metadata.permissions().mode() & 0o7777;
    if mode & OTHERS == 0 {
        return Ok(());
    }
    Err(StoreError::Permissions {
        path: path.to_owned(),
        mode,
        remedy: "it is a secret: run `chmod 600` on it, and rotate the key if others could read it",
    })
}

fn mode_of(path: &Path) -> Result<u32, StoreError> {
    let metadata = fs::metadata(path).map_err(StoreError::io("inspect", path))?;
    Ok(metadata.permissions().mode() & 0o7777)
}
