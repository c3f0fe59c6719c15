//! Where the store keeps its files, and who may read them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::time::{Instant, sleep};

use crate::StoreError;
use crate::state_dir::require_safe;

const PRIVATE_DIR: u32 = 0o700;
const PRIVATE_FILE: u32 = 0o600;
/// Everybody but the owner.
const OTHERS: u32 = 0o077;
/// What is wrong with a database that is not there, or empty, beside keys of its log.
const GONE: &str = "it is gone, and the keys of its log are there";
/// How often a lock that somebody else has is asked for.
const LOCK_POLL: Duration = Duration::from_millis(5);

/// The files below a state directory.
#[derive(Debug, Clone)]
pub(crate) struct Layout {
    root: PathBuf,
}

impl Layout {
    /// Makes the directories that are missing, for the owner alone, and refuses a state directory
    /// that others can reach.
    pub(crate) fn prepare(root: &Path) -> Result<Self, StoreError> {
        let layout = Self::existing(root);
        create_directory(root)?;
        require_safe(root)?;
        create_directory(&layout.owners())?;
        create_directory(&layout.keys())?;
        Ok(layout)
    }

    /// The files of a store that should be there.
    pub(crate) fn existing(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
        }
    }

    /// The files of a store, where there is one. Creates nothing.
    pub(crate) fn find(root: &Path) -> Result<Option<Self>, StoreError> {
        let layout = Self::existing(root);
        let path = layout.database();
        match fs::metadata(&path) {
            Ok(_) => {}
            // A database that is gone although its keys are there is a loss, not an empty place.
            Err(error) if error.kind() == io::ErrorKind::NotFound && !layout.has_keys() => {
                return Ok(None);
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let problem = GONE.to_owned();
                return Err(StoreError::Damaged { path, problem });
            }
            Err(error) => return Err(StoreError::io("inspect", &path)(error)),
        }
        require_safe(root)?;
        Ok(Some(layout))
    }

    fn has_keys(&self) -> bool {
        fs::read_dir(self.keys()).is_ok_and(|mut keys| keys.next().is_some())
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
        // Smaller than any header: a database would be taken for an empty one, and begun anew.
        let problem = match (size, self.has_keys()) {
            (0, true) => Some(GONE.to_owned()),
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

/// Makes a directory and those above it, for the owner alone, where they are missing.
pub(crate) fn create_directory(path: &Path) -> Result<(), StoreError> {
    DirBuilder::new()
        .recursive(true)
        .mode(PRIVATE_DIR)
        .create(path)
        .map_err(StoreError::io("create", path))
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
