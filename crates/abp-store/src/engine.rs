//! The database below the store.
//!
//! Above this module are the types of the store, its [`Command`](crate::command::Command)s and its
//! readers, which know no database. Below it are the files, locks, connections, schemas and error codes
//! of each. The statements between them are written once, for [`sql`].

pub(crate) mod connection;
pub(crate) mod owners;
pub(crate) mod sql;
pub(crate) mod sqlite;

use abp_core::Timestamp;

use self::connection::Connection;
use self::owners::Owners;
use self::sqlite::SqliteEngine;
use crate::StoreError;
use crate::error::Failure;

/// The database, as the one task that writes sees it.
#[derive(Debug)]
pub(crate) enum Engine {
    Sqlite(SqliteEngine),
}

/// Why a transaction goes no further.
#[derive(Debug)]
pub(crate) enum Blocked {
    /// The database said no.
    Database(sqlx::Error),
    /// We say no.
    Refused(StoreError),
}

impl From<sqlx::Error> for Blocked {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

impl From<StoreError> for Blocked {
    fn from(error: StoreError) -> Self {
        Self::Refused(error)
    }
}

impl Engine {
    /// Names this process among all that write.
    pub(crate) fn token(&self) -> &str {
        match self {
            Self::Sqlite(engine) => engine.token(),
        }
    }

    /// Tells which other processes live.
    pub(crate) fn owners(&self) -> &Owners {
        match self {
            Self::Sqlite(engine) => engine.owners(),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, sqlx::Error> {
        match self {
            Self::Sqlite(engine) => engine.connect().await,
        }
    }

    /// Makes sure that a transaction meets the tables it knows, and returns its time.
    pub(crate) async fn enter(
        &self,
        transaction: &mut Connection,
        clock: fn() -> Timestamp,
    ) -> Result<Timestamp, Blocked> {
        match self {
            Self::Sqlite(engine) => engine.require_current(transaction).await?,
        }
        Ok(clock())
    }

    /// What a failed statement means. For some writes the database does not say that the disk is
    /// full, only that they failed.
    pub(crate) fn judge(&self, error: &sqlx::Error) -> Failure {
        match self {
            Self::Sqlite(engine) => engine.judge(error),
        }
    }

    /// Notes how much was written; tidies up where that is due.
    pub(crate) async fn wrote(
        &mut self,
        bytes: usize,
        connection: Option<&mut Connection>,
    ) -> Result<(), sqlx::Error> {
        match self {
            Self::Sqlite(engine) => engine.wrote(bytes, connection).await,
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(engine) => engine.close().await,
        }
    }
}
