//! Journals of applications on this machine, so that one that was interrupted is brought to its end.
//!
//! The journal of an application is a file, written anew and synced before each step that touches the
//! directory. Its process holds a lock on a file beside it; a journal without a locked one was abandoned:
//!
//! ```text
//! lock ─ plan ─ journal ─ copy new contents ─ journal ─ change names ─ journal ─ clean up ─ remove journal
//! ```

use std::fs::{self, File, TryLockError};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use abp_error::{AbpError, ErrorCode};
use abp_workspace::{ApplyJournal, RecoveryOutcome, recover};
use uuid::Uuid;

/// The ending of a journal's name.
const JOURNAL: &str = "journal";
/// The ending of a lock's name.
const LOCK: &str = "lock";

/// The journal of an application that goes on.
#[derive(Debug)]
pub(crate) struct JournalFile {
    path: PathBuf,
    /// Let go when this is dropped, or when the process dies.
    _lock: File,
}

/// An interrupted application that was brought to its end.
#[derive(Debug)]
pub struct RecoveredApply {
    /// The run.
    pub run_id: Uuid,
    /// Its result.
    pub outcome: RecoveryOutcome,
}

impl JournalFile {
    /// Begins the journal of a run's application, after an earlier one was brought to its end.
    pub(crate) fn begin(dir: &Path, run_id: Uuid) -> Result<Self, AbpError> {
        fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(dir)
            .map_err(|error| failed(dir, &error))?;
        let busy = || {
            let message =
                format!("the changes of run {run_id} are being applied by another process");
            AbpError::new(ErrorCode::NothingToDecide, message)
        };
        let journal = Self::lock(dir, run_id)?.ok_or_else(busy)?;
        journal.recover()?;
        Ok(journal)
    }

    /// Takes the lock of a run; `None` where another process has it.
    fn lock(dir: &Path, run_id: Uuid) -> Result<Option<Self>, AbpError> {
        let path = dir.join(format!("{run_id}.{LOCK}"));
        let opened = File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .mode(0o600)
            .open(&path);
        let lock = opened.map_err(|error| failed(&path, &error))?;
        match lock.try_lock() {
            Ok(()) => Ok(Some(Self {
                path: dir.join(format!("{run_id}.{JOURNAL}")),
                _lock: lock,
            })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&path, &error)),
        }
    }

    /// Writes the journal; it is durable when this returns.
    pub(crate) fn write(&self, journal: &ApplyJournal) -> Result<(), AbpError> {
        let document = journal
            .to_document()
            .map_err(|error| AbpError::new(error.code(), error.to_string()))?;
        let write = || {
            let temporary = self.path.with_extension("new");
            let mut file = File::options()
                .create(true)
                .truncate(true)
                .write(true)
                .mode(0o600)
                .open(&temporary)?;
            file.write_all(&document)?;
            file.sync_all()?;
            fs::rename(&temporary, &self.path)?;
            match self.path.parent() {
                Some(dir) => File::open(dir)?.sync_all(),
                None => Ok(()),
            }
        };
        write().map_err(|error: io::Error| failed(&self.path, &error))
    }

    /// Ends the journal: the application has ended, in one way or another.
    pub(crate) fn end(self) -> Result<(), AbpError> {
        remove(&self.path)?;
        remove(&self.path.with_extension(LOCK))
    }

    /// Brings an application that was interrupted to its end, where there is one.
    fn recover(&self) -> Result<Option<RecoveryOutcome>, AbpError> {
        let document = match fs::read(&self.path) {
            Ok(document) => document,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(failed(&self.path, &error)),
        };
        let journal = ApplyJournal::from_document(&document);
        let outcome = journal.and_then(|journal| recover(&journal));
        let outcome = outcome.map_err(|error| AbpError::new(error.code(), error.to_string()))?;
        remove(&self.path)?;
        Ok(Some(outcome))
    }
}

/// Brings every application of a remote run that was interrupted on this machine to its end: all of it, or
/// none plus what the user saved since.
///
/// # Errors
/// Fails where a journal cannot be read or a directory cannot be written; the journal stays then.
pub fn recover_applies(dir: &Path) -> Result<Vec<RecoveredApply>, AbpError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(failed(dir, &error)),
    };
    let mut recovered = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let run_id = path
            .file_stem()
            .and_then(|stem| stem.to_str()?.parse().ok());
        let is_journal = path.extension().is_some_and(|ending| ending == JOURNAL);
        let Some(run_id) = run_id.filter(|_| is_journal) else {
            continue;
        };
        let Some(journal) = JournalFile::lock(dir, run_id)? else {
            continue;
        };
        if let Some(outcome) = journal.recover()? {
            recovered.push(RecoveredApply { run_id, outcome });
        }
        journal.end()?;
    }
    Ok(recovered)
}

fn remove(path: &Path) -> Result<(), AbpError> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed(path, &error)),
        _ => Ok(()),
    }
}

fn failed(path: &Path, error: &io::Error) -> AbpError {
    let message = format!("cannot use {}: {error}", path.display());
    AbpError::new(ErrorCode::WorkspaceInitFailed, message)
}
