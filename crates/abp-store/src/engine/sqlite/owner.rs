//! Which process a run belongs to, and whether that process still lives.
//!
//! Every open store has a token, and holds a lock on a file of that name for as long as it lives.
//! The kernel gives the lock back when the process ends, however it ends. A file that is gone, or
//! that can be locked, belongs to nobody.

use std::fs::{self, File, TryLockError};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::StoreError;
use crate::layout::create_private;

/// The lock that says that this process lives.
#[derive(Debug)]
pub(crate) struct OwnerLock {
    token: String,
    path: PathBuf,
    /// Holds the lock.
    _file: File,
}

impl OwnerLock {
    /// Takes a token that nobody has, and removes the files of owners that are gone.
    pub(crate) fn take(owners: &Path) -> Result<Self, StoreError> {
        sweep(owners);
        loop {
            let token = Uuid::now_v7().to_string();
            let path = owners.join(&token);
            let failed = || StoreError::io("lock", &path);
            let file = create_private(&path).map_err(failed())?;
            file.lock().map_err(failed())?;
            // Another process may have swept the file away before it was locked.
            if file.metadata().map_err(failed())?.nlink() > 0 {
                return Ok(Self {
                    token,
                    path,
                    _file: file,
                });
            }
        }
    }

    pub(crate) fn token(&self) -> &str {
        &self.token
    }
}

impl Drop for OwnerLock {
    fn drop(&mut self) {
        // A file that is left behind is swept away later.
        drop(fs::remove_file(&self.path));
    }
}

/// Whether the process with that token still lives.
///
/// Asks for a shared lock, so that two who ask at the same time do not see each other.
pub(crate) fn is_alive(owners: &Path, token: &str) -> bool {
    let Ok(file) = File::open(owners.join(token)) else {
        return false;
    };
    matches!(file.try_lock_shared(), Err(TryLockError::WouldBlock))
}

/// Removes what dead owners left. What cannot be removed stays: it does no harm.
fn sweep(owners: &Path) {
    for entry in fs::read_dir(owners).into_iter().flatten().flatten() {
        if let Ok(file) = File::open(entry.path())
            && file.try_lock().is_ok()
        {
            drop(fs::remove_file(entry.path()));
        }
    }
}
