//! Why the store did not do what it was asked.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::Timestamp;
use abp_error::{AbpError, ErrorCode};
use abp_receipt::Hash;
use sqlx::postgres::PgDatabaseError;
use uuid::Uuid;

use crate::engine::postgres;
use crate::{ChangeSetState, Lease, StateDirProblem};

/// Why the store did not do what it was asked.
///
/// One failed commit fails everything that was in it, so an error can be cloned.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file or directory of the store cannot be used.
    #[error("cannot {action} {}; check that it exists and that you may write there", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: Arc<io::Error>,
    },
    /// The state directory is not this user's alone.
    #[error("the state directory {} is not safe: {problem}", path.display())]
    UnsafeStateDir {
        /// The directory.
        path: PathBuf,
        /// Why it is not safe.
        problem: StateDirProblem,
    },
    /// Others may read or change what only the owner may.
    #[error("{} has mode {mode:04o}; {remedy}", path.display())]
    Permissions {
        /// The file or directory.
        path: PathBuf,
        /// Its permission bits.
        mode: u32,
        /// What to do.
        remedy: &'static str,
    },
    /// The store was written by a newer release. It was not touched.
    #[error(
        "{} has version {found}, and this release knows versions up to {supported}; use a newer release, or another state directory",
        path.display()
    )]
    NewerVersion {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: i64,
        /// The newest version this release knows.
        supported: i64,
    },
    /// There is no store in the directory.
    #[error("there is no store at {}; run something first, or name another state directory", path.display())]
    NoStore {
        /// Where it would be.
        path: PathBuf,
    },
    /// The store is of an older version, which only a process that writes brings up to date.
    #[error("{} has the older version {found}; run something to bring it up to date", path.display())]
    OlderVersion {
        /// The database.
        path: PathBuf,
        /// Its version.
        found: usize,
    },
    /// The tables on Postgres are not those of this release, and only a command brings them up to date.
    #[error("{} has schema version {found}, and this release needs {supported}; run `abp migrate`", path.display())]
    NotMigrated {
        /// The database.
        path: PathBuf,
        /// The version found; 0 where there are no tables.
        found: i64,
        /// The version of this release.
        supported: i64,
    },
    /// The address of the database cannot be used.
    #[error(
        "the address of the database cannot be used: {problem}; it looks like postgres://USER:PASSWORD@HOST:5432/DATABASE"
    )]
    DatabaseUrl {
        /// What is wrong with it.
        problem: String,
    },
    /// The keys of a store on Postgres are the operator's, and no process replaces them.
    #[error("the keys of {} are its operator's: make the new key where all nodes can be given it", path.display())]
    OperatorKey {
        /// The database.
        path: PathBuf,
    },
    /// The file is a database, but not one of this store.
    #[error("{} is not a store of ABP; move it away, or use another state directory", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The database is damaged.
    #[error("{} is damaged: {problem}; move the directory away and restore it from a backup, or begin anew without it", path.display())]
    Damaged {
        /// The database.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
    /// Another process kept the database locked for too long. Nothing was written.
    #[error("{} was locked by another process for too long; try again", path.display())]
    Busy {
        /// The database.
        path: PathBuf,
    },
    /// There is no space left. Only receipts of running runs are still taken.
    #[error("no space is left for {}; free some, and the store goes on by itself", path.display())]
    DiskFull {
        /// The database.
        path: PathBuf,
    },
    /// A write failed, so nothing is taken before a new write was seen to reach the disk.
    #[error("{} cannot be written durably: {problem}; check the disk and its file system", path.display())]
    NotDurable {
        /// The database.
        path: PathBuf,
        /// What failed.
        problem: String,
    },
    /// A statement failed for a reason that is none of the above.
    #[error("{} refused a statement: {problem}", path.display())]
    Database {
        /// The database.
        path: PathBuf,
        /// What the database said.
        problem: String,
    },
    /// There is a run of that id already.
    #[error("run {0} exists already")]
    DuplicateRun(Uuid),
    /// The idempotency key belongs to a run of another request.
    #[error("idempotency key {key:?} was used by run {run_id} for another request")]
    KeyReused {
        /// The key.
        key: String,
        /// The run it belongs to.
        run_id: Uuid,
    },
    /// There is no run of that id.
    #[error("there is no run {0}")]
    UnknownRun(Uuid),
    /// The run belongs to another process, or was taken over by one.
    #[error("run {0} belongs to another process")]
    NotOwner(Uuid),
    /// The run has its receipt already.
    #[error("run {0} has its receipt already")]
    RunOver(Uuid),
    /// The events of the run may not be removed.
    #[error("the events of run {0} stay: it has not ended, or its changes are undecided")]
    NotErasable(Uuid),
    /// A backup or a state directory cannot be made there.
    #[error("{} is there already, or cannot be made there; name a directory that does not exist, outside the state directory", path.display())]
    BackupTarget {
        /// The directory that was named.
        path: PathBuf,
    },
    /// A file of a backup is not as it was written.
    #[error("the backup is damaged: {}: {problem}; use another backup", path.display())]
    BackupDamaged {
        /// The file.
        path: PathBuf,
        /// What was found.
        problem: String,
    },
    /// As many runs wait as may.
    #[error("there are {limit} {what}, which is the limit; try again when some have begun")]
    QueueFull {
        /// What there are so many of.
        what: &'static str,
        /// The limit.
        limit: u32,
    },
    /// What the run was submitted with is not stored: only the process that accepted it can carry it out.
    #[error("run {0} was not queued, and no other process can carry it out")]
    NotQueueable(Uuid),
    /// What a run was submitted with does not open with the key in that file.
    #[error("the submission of run {run_id} does not open with the key in {}", path.display())]
    SealBroken {
        /// The run.
        run_id: Uuid,
        /// The key file.
        path: PathBuf,
    },
    /// A run was claimed, and what it was submitted with does not open. It is this process's to end.
    #[error("run {} cannot be carried out: {problem}", lease.run_id)]
    Unopened {
        /// The right to write for it.
        lease: Lease,
        /// Why it does not open.
        problem: String,
    },
    /// There is no approval of that id.
    #[error("there is no approval {0}")]
    UnknownApproval(Uuid),
    /// The event is not the next one of its run.
    #[error("event {seq} of run {run_id} is out of order: the next one is {expected}")]
    OutOfOrder {
        /// The run.
        run_id: Uuid,
        /// The number given.
        seq: u64,
        /// The number expected.
        expected: u64,
    },
    /// The receipt's document does not have the hash it was said to have.
    #[error("the receipt of run {run_id} does not have the hash {given}: {problem}")]
    ReceiptMismatch {
        /// The run.
        run_id: Uuid,
        /// The hash given.
        given: String,
        /// What is wrong.
        problem: String,
    },
    /// Bytes do not have the hash they were given with.
    #[error("{what} has the hash {found}, expected is {given}")]
    WrongHash {
        /// Which bytes.
        what: &'static str,
        /// The hash given.
        given: Hash,
        /// The hash they have.
        found: Hash,
    },
    /// The run has other changes already.
    #[error("run {0} has other changes stored already")]
    ChangeSetExists(Uuid),
    /// The run has no changes that could be decided.
    #[error("run {0} has no changes to decide about")]
    NoChangeSet(Uuid),
    /// The changes are decided, or being applied.
    #[error("the changes of run {run_id} {}", describe_state(*state, by, *at))]
    ChangeSetDecided {
        /// The run.
        run_id: Uuid,
        /// The state they are in.
        state: ChangeSetState,
        /// Who brought them into it.
        by: String,
        /// When.
        at: Timestamp,
    },
    /// There is no application of that id that did not end.
    #[error("there is no open application {0}")]
    NoApplication(Uuid),
    /// The application belongs to another process.
    #[error("application {0} belongs to another process")]
    ForeignApplication(Uuid),
    /// There is an API key with that id or that secret already.
    #[error("API key {0:?} or its secret exists already")]
    DuplicateApiKey(String),
    /// There is no API key of that id that may be used.
    #[error("there is no API key {0:?}, or it was revoked")]
    UnknownApiKey(String),
    /// The exchange has a reservation already.
    #[error("exchange {0} has a reservation already")]
    DuplicateReservation(Uuid),
    /// The private key that signs the log is gone.
    #[error("key {key_id} is needed, and {} is missing; restore the file", path.display())]
    KeyMissing {
        /// Where it should be.
        path: PathBuf,
        /// Its id.
        key_id: String,
    },
    /// A key file does not hold the key it is named for.
    #[error("{} does not hold key {key_id}; restore the file", path.display())]
    KeyUnusable {
        /// The file.
        path: PathBuf,
        /// The key expected.
        key_id: String,
    },
    /// The log cannot have that name, or has another one.
    #[error("the log cannot be named {origin:?}: {problem}")]
    Origin {
        /// The name asked for.
        origin: String,
        /// Why not.
        problem: String,
    },
    /// The log in the database is not one that can be continued.
    #[error(
        "the log in {} cannot be continued: {problem}; verify it, and restore the directory from a backup or use another",
        path.display()
    )]
    LogBroken {
        /// The database.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// A text is not a SHA-256 value.
    #[error("{what} is not 64 lower-case hexadecimal digits")]
    NotAHash {
        /// What it should have been.
        what: &'static str,
    },
    /// A number cannot be stored.
    #[error("{what} is too large to be stored")]
    TooLarge {
        /// What.
        what: &'static str,
    },
    /// The store was closed.
    #[error("the store is closed")]
    Closed,
    /// The task that writes ended by a panic. What was acknowledged is safe.
    #[error("the store's writer is gone; start again, and what is unfinished is recovered")]
    WriterGone,
}

impl StoreError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Permissions { .. }
            | Self::NewerVersion { .. }
            | Self::NoStore { .. }
            | Self::OlderVersion { .. }
            | Self::Foreign { .. }
            | Self::NotMigrated { .. }
            | Self::DatabaseUrl { .. }
            | Self::OperatorKey { .. }
            | Self::KeyMissing { .. }
            | Self::KeyUnusable { .. }
            | Self::BackupTarget { .. }
            | Self::Origin { .. } => ErrorCode::ConfigInvalid,
            Self::UnsafeStateDir { .. } => ErrorCode::StateDirUnsafe,
            Self::Damaged { .. } | Self::LogBroken { .. } | Self::BackupDamaged { .. } => {
                ErrorCode::ReceiptChainBroken
            }
            Self::KeyReused { .. } => ErrorCode::IdempotencyKeyReused,
            Self::ReceiptMismatch { .. } => ErrorCode::ReceiptHashMismatch,
            Self::UnknownApiKey(_) => ErrorCode::Unauthenticated,
            Self::ChangeSetDecided { .. } => ErrorCode::ChangeSetDecided,
            Self::NoChangeSet(_) | Self::NoApplication(_) | Self::UnknownApproval(_) => {
                ErrorCode::NotFound
            }
            Self::QueueFull { .. } => ErrorCode::RunLimitReached,
            Self::DuplicateRun(_)
            | Self::WrongHash { .. }
            | Self::ChangeSetExists(_)
            | Self::DuplicateApiKey(_)
            | Self::DuplicateReservation(_)
            | Self::UnknownRun(_)
            | Self::RunOver(_)
            | Self::NotErasable(_)
            | Self::NotAHash { .. }
            | Self::TooLarge { .. } => ErrorCode::ValidationFailed,
            Self::Io { .. }
            | Self::Busy { .. }
            | Self::DiskFull { .. }
            | Self::NotDurable { .. }
            | Self::Database { .. }
            | Self::NotOwner(_)
            | Self::NotQueueable(_)
            | Self::SealBroken { .. }
            | Self::Unopened { .. }
            | Self::ForeignApplication(_)
            | Self::OutOfOrder { .. }
            | Self::Closed
            | Self::WriterGone => ErrorCode::ReceiptStoreFailed,
        }
    }

    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Io {
            action,
            path,
            source: Arc::new(source),
        }
    }
}

impl From<StoreError> for AbpError {
    fn from(error: StoreError) -> Self {
        Self::new(error.code(), error.to_string()).with_source(error)
    }
}

/// Says how far changes are decided, by whom and since when.
fn describe_state(state: ChangeSetState, by: &str, at: Timestamp) -> String {
    match state {
        ChangeSetState::Proposed => "are not decided".to_owned(),
        ChangeSetState::Conflict => format!("met a conflict when {by} applied them at {at}"),
        ChangeSetState::Applying => format!("are being applied by {by} since {at}"),
        ChangeSetState::Applied => format!("are already applied, by {by} at {at}"),
        ChangeSetState::Discarded => format!("are already discarded, by {by} at {at}"),
        ChangeSetState::Expired => format!("have expired and were removed by {by} at {at}"),
    }
}

/// What a failed statement means for the store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Failure {
    /// Another process holds the lock; nothing is wrong.
    Busy,
    /// There is no space.
    Full,
    /// The file is not what it was.
    Damaged(String),
    /// The disk does not do what it was told.
    Disk(String),
    /// Anything else.
    Other(String),
}

impl Failure {
    /// Judges by the primary result code, which is the low byte of the one reported.
    pub(crate) fn of(error: &sqlx::Error) -> Self {
        let text = error.to_string();
        match error {
            sqlx::Error::Database(database) => {
                if let Some(error) = database.try_downcast_ref::<PgDatabaseError>() {
                    return postgres::failure::judge(error);
                }
                let code = database.code().and_then(|code| code.parse::<u32>().ok());
                match code.unwrap_or_default() & 0xff {
                    5 | 6 => Self::Busy,
                    13 => Self::Full,
                    11 | 26 => Self::Damaged(text),
                    8 | 10 => Self::Disk(text),
                    14 => Self::Disk(cannot_open(text)),
                    _ => Self::Other(text),
                }
            }
            sqlx::Error::Io(_)
            | sqlx::Error::Tls(_)
            | sqlx::Error::Protocol(_)
            | sqlx::Error::PoolTimedOut
            | sqlx::Error::WorkerCrashed => Self::Disk(text),
            sqlx::Error::ColumnDecode { .. } | sqlx::Error::Decode(_) => Self::Damaged(text),
            _ => Self::Other(text),
        }
    }

    pub(crate) fn into_error(self, path: &Path) -> StoreError {
        let path = path.to_owned();
        match self {
            Self::Busy => StoreError::Busy { path },
            Self::Full => StoreError::DiskFull { path },
            Self::Damaged(problem) => StoreError::Damaged { path, problem },
            Self::Disk(problem) => StoreError::NotDurable { path, problem },
            Self::Other(problem) => StoreError::Database { path, problem },
        }
    }
}

/// The database does not say why it cannot open a file; that too many are open is found by trying.
fn cannot_open(text: String) -> String {
    match File::open("/") {
        Err(error) => format!("{text}: {error}"),
        Ok(_) => text,
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Busy => f.write_str("locked"),
            Self::Full => f.write_str("no space left"),
            Self::Damaged(text) | Self::Disk(text) | Self::Other(text) => f.write_str(text),
        }
    }
}
