//! The database below the store.
//!
//! Above this module are the types of the store, its [`Command`](crate::command::Command)s and its
//! readers, which know no database. Below it are the files, locks, connections, schemas and error codes
//! of each. The statements between them are written once, for [`sql`].

pub(crate) mod connection;
pub(crate) mod owners;
pub(crate) mod postgres;
pub(crate) mod sql;
pub(crate) mod sqlite;

use std::time::Duration;

use abp_core::Timestamp;

use self::connection::Connection;
use self::owners::Owners;
use self::postgres::PostgresEngine;
use self::sqlite::SqliteEngine;
use crate::StoreError;
use crate::error::Failure;

/// The database, as the one task that writes sees it.
#[derive(Debug)]
pub(crate) enum Engine {
    Sqlite(SqliteEngine),
    Postgres(PostgresEngine),
}

/// A transaction that may write.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Entered {
    /// Its time.
    pub(crate) now: Timestamp,
    /// Its number among those of this process, by which the database tells later whether it is there.
    pub(crate) transaction: Option<i64>,
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
            Self::Postgres(engine) => engine.token(),
        }
    }

    /// Tells which other processes live.
    pub(crate) fn owners(&self) -> &Owners {
        match self {
            Self::Sqlite(engine) => engine.owners(),
            Self::Postgres(engine) => engine.owners(),
        }
    }

    pub(crate) async fn connect(&self) -> Result<Connection, sqlx::Error> {
        match self {
            Self::Sqlite(engine) => engine.connect().await,
            Self::Postgres(engine) => engine.connect().await,
        }
    }

    /// Makes sure that a transaction meets the tables it knows.
    pub(crate) async fn enter(
        &self,
        transaction: &mut Connection,
        clock: fn() -> Timestamp,
    ) -> Result<Entered, Blocked> {
        match self {
            Self::Sqlite(engine) => {
                engine.require_current(transaction).await?;
                Ok(Entered {
                    now: clock(),
                    transaction: None,
                })
            }
            Self::Postgres(engine) => engine.enter(transaction).await,
        }
    }

    /// Whether a transaction that failed with this error may succeed when it is tried again.
    pub(crate) fn may_retry(&self, error: &sqlx::Error) -> bool {
        match self {
            // A write that failed on this disk is never tried again and then called durable.
            Self::Sqlite(_) => false,
            Self::Postgres(_) => matches!(Failure::of(error), Failure::Busy | Failure::Disk(_)),
        }
    }

    /// Whether one statement that fails fails everything that is written with it.
    pub(crate) fn fails_together(&self) -> bool {
        match self {
            Self::Sqlite(_) => false,
            Self::Postgres(_) => true,
        }
    }

    /// Whether a transaction is durable although its commit was answered by an error; `None` where that
    /// cannot be found out.
    pub(crate) async fn was_committed(&self, entered: Entered, patience: Duration) -> Option<bool> {
        match (self, entered.transaction) {
            (Self::Postgres(engine), Some(transaction)) => {
                engine.was_committed(transaction, patience).await
            }
            _ => Some(false),
        }
    }

    /// The meaning of a failed statement. For some writes the database does not say that the disk is
    /// full, only that they failed.
    pub(crate) fn judge(&self, error: &sqlx::Error) -> Failure {
        match self {
            Self::Sqlite(engine) => engine.judge(error),
            Self::Postgres(_) => Failure::of(error),
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
            Self::Postgres(_) => Ok(()),
        }
    }

    pub(crate) async fn close(self) {
        match self {
            Self::Sqlite(engine) => engine.close().await,
            Self::Postgres(engine) => engine.close().await,
        }
    }
}
