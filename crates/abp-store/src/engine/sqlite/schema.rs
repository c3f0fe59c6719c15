//! The database: how it is opened, what is in it, and how an older one becomes a newer one.

mod steps;

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use self::steps::STEPS;
use crate::StoreError;
use crate::engine::Blocked;
use crate::error::Failure;

/// Says "a store of ABP" in the header of the file: the bytes of `ABPs`.
const APPLICATION_ID: i64 = 0x4142_5073;

/// The version this release writes.
pub(crate) fn version() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// How every connection but the first look is opened.
pub(crate) fn options(path: &Path, patience: Duration) -> SqliteConnectOptions {
    bare(path)
        .busy_timeout(patience)
        .foreign_keys(true)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // The writer does it, so that its failure is seen.
        .pragma("wal_autocheckpoint", "0")
        .pragma("journal_size_limit", "16777216")
        .pragma("trusted_schema", "OFF")
        .pragma("cell_size_check", "ON")
}

/// How connections that only read are opened.
pub(crate) fn reading(path: &Path, patience: Duration) -> SqliteConnectOptions {
    leaving_nothing(path)
        .busy_timeout(patience)
        .pragma("trusted_schema", "OFF")
        .pragma("cell_size_check", "ON")
}

/// Opens so that nothing new is there when the last connection is closed.
///
/// The database needs its write-ahead file and its index even to read. Where another process has
/// them, or left them, a read-only connection uses them and changes nothing. Where they are not
/// there, a read-only connection would make them and could not remove them; one that may write, and
/// is told not to, removes them when it is closed.
fn leaving_nothing(path: &Path) -> SqliteConnectOptions {
    let mut wal = path.as_os_str().to_owned();
    wal.push("-wal");
    if Path::new(&wal).exists() {
        bare(path).read_only(true)
    } else {
        bare(path).pragma("query_only", "ON")
    }
}

fn bare(path: &Path) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .disable_statement_logging()
}

/// Looks at the version of a file without changing anything, and refuses what is not ours. An empty
/// file has version 0.
pub(crate) async fn inspect(path: &Path, patience: Duration) -> Result<usize, StoreError> {
    let failed = |error: sqlx::Error| Failure::of(&error).into_error(path);
    let found = match look(leaving_nothing(path).busy_timeout(patience)).await {
        // A process died while it made the database. What it left half done can only be undone by a
        // connection that may write, and nothing that was ever reported as done is in it.
        Err(error) if is_hot_journal(&error) => look(bare(path).busy_timeout(patience)).await,
        found => found,
    };
    judge(path, &found.map_err(failed)?, version())
}

async fn look(options: SqliteConnectOptions) -> Result<Standing, sqlx::Error> {
    let mut connection = options.connect().await?;
    let found = standing(&mut connection).await;
    // Nothing was written, so there is nothing that closing could lose.
    drop(connection.close().await);
    found
}

/// `SQLITE_READONLY_ROLLBACK`: a journal waits to be rolled back, and reading alone may not do it.
fn is_hot_journal(error: &sqlx::Error) -> bool {
    const READONLY_ROLLBACK: &str = "776";
    error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code)
        .is_some_and(|code| code == READONLY_ROLLBACK)
}

/// Brings a database to the version of this release, in one transaction.
pub(crate) async fn migrate(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), StoreError> {
    migrate_by(connection, path, STEPS).await
}

/// A write must not meet a database that another process has since made a newer one.
pub(crate) async fn require_current(
    connection: &mut SqliteConnection,
    path: &Path,
) -> Result<(), Blocked> {
    let found: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(connection)
        .await?;
    if found == version() {
        return Ok(());
    }
    Err(Blocked::Refused(StoreError::NewerVersion {
        path: path.to_owned(),
        found,
        supported: version(),
    }))
}

/// What the header says, and whether there is anything in the database.
struct Standing {
    application: i64,
    version: i64,
    tables: i64,
}

async fn standing(connection: &mut SqliteConnection) -> Result<Standing, sqlx::Error> {
    let row = sqlx::query(
        "SELECT (SELECT application_id FROM pragma_application_id),
                (SELECT user_version FROM pragma_user_version),
                (SELECT count(*) FROM sqlite_schema)",
    )
    .fetch_one(connection)
    .await?;
    Ok(Standing {
        application: row.try_get(0)?,
        version: row.try_get(1)?,
        tables: row.try_get(2)?,
    })
}

/// The version of a database of ours; 0 where it is empty.
fn judge(path: &Path, found: &Standing, supported: i64) -> Result<usize, StoreError> {
    let Standing {
        application,
        version,
        tables,
    } = *found;
    match (application, version) {
        (0, 0) if tables == 0 => Ok(0),
        (APPLICATION_ID, version) if version > supported => Err(StoreError::NewerVersion {
            path: path.to_owned(),
            found: version,
            supported,
        }),
        (APPLICATION_ID, version) => usize::try_from(version).map_err(|_| StoreError::Foreign {
            path: path.to_owned(),
        }),
        _ => Err(StoreError::Foreign {
            path: path.to_owned(),
        }),
    }
}

async fn migrate_by(
    connection: &mut SqliteConnection,
    path: &Path,
    steps: &[&'static str],
) -> Result<(), StoreError> {
    let failed = |error: sqlx::Error| Failure::of(&error).into_error(path);
    let supported = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let mut transaction = connection
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(failed)?;
    let found = standing(&mut transaction).await.map_err(failed)?;
    let done = judge(path, &found, supported)?;
    for step in steps.iter().skip(done) {
        sqlx::raw_sql(*step)
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
    }
    if done < steps.len() {
        let mark =
            format!("PRAGMA application_id = {APPLICATION_ID}; PRAGMA user_version = {supported};");
        sqlx::raw_sql(AssertSqlSafe(mark))
            .execute(&mut *transaction)
            .await
            .map_err(failed)?;
    }
    transaction.commit().await.map_err(failed)
}

#[cfg(test)]
mod tests;
