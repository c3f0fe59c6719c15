//! SQLite: one database file in a state directory.

pub(crate) mod owner;
pub(crate) mod reserve;
pub(crate) mod schema;

use std::path::PathBuf;
use std::sync::Arc;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};

use self::owner::OwnerLock;
use super::Blocked;
use super::connection::{Connection, Link};
use super::owners::Owners;
use crate::StoreError;
use crate::error::Failure;
use crate::writer::Status;

/// The bytes that are written before the write-ahead file is emptied into the database.
const CHECKPOINT_BYTES: usize = 16 * 1024 * 1024;
/// The bytes that a transaction writes besides its content: pages are written whole.
const COMMIT_OVERHEAD: usize = 16 * 1024;

/// The database file, as the task that writes it sees it.
#[derive(Debug)]
pub(crate) struct SqliteEngine {
    pub(crate) path: PathBuf,
    pub(crate) options: SqliteConnectOptions,
    pub(crate) owners: Owners,
    pub(crate) owner: OwnerLock,
    /// Keeps the shared index of the write-ahead file: without it, opening the database again would
    /// believe frames that were written and never reached the disk.
    pub(crate) keeper: SqliteConnection,
    pub(crate) status: Arc<Status>,
    /// The bytes that were written since the write-ahead file was last emptied.
    pub(crate) written: usize,
}

impl SqliteEngine {
    pub(super) fn token(&self) -> &str {
        self.owner.token()
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    pub(super) async fn connect(&self) -> Result<Connection, sqlx::Error> {
        Ok(self.options.connect().await?.into())
    }

    pub(super) async fn require_current(
        &self,
        transaction: &mut Connection,
    ) -> Result<(), Blocked> {
        match transaction.link() {
            Link::Sqlite(connection) => schema::require_current(connection, &self.path).await,
            Link::Postgres(_) => Err(StoreError::Closed.into()),
        }
    }

    pub(super) fn judge(&self, error: &sqlx::Error) -> Failure {
        match Failure::of(error) {
            Failure::Disk(_) if self.status.reserve.disk_is_full() => Failure::Full,
            failure => failure,
        }
    }

    pub(super) async fn wrote(
        &mut self,
        bytes: usize,
        connection: Option<&mut Connection>,
    ) -> Result<(), sqlx::Error> {
        self.written = self.written.saturating_add(bytes * 2 + COMMIT_OVERHEAD);
        if self.written < CHECKPOINT_BYTES {
            return Ok(());
        }
        self.written = 0;
        match connection.map(Connection::link) {
            Some(Link::Sqlite(connection)) => empty_write_ahead(connection).await,
            Some(Link::Postgres(_)) | None => Ok(()),
        }
    }

    pub(super) async fn close(self) {
        // What is not emptied into the database now is so when it is next opened.
        drop(self.keeper.close().await);
        drop(self.owner);
    }
}

/// Empties the write-ahead file into the database, as far as readers allow.
pub(crate) async fn empty_write_ahead(
    connection: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
        .fetch_one(connection)
        .await?;
    Ok(())
}
