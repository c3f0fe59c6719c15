//! The database: how it is opened, what is in it, and how an older one becomes a newer one.

use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqliteSynchronous};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, Row as _};

use crate::StoreError;
use crate::error::Failure;

/// Says "a store of ABP" in the header of the file: the bytes of `ABPs`.
const APPLICATION_ID: i64 = 0x4142_5073;

/// What makes each version out of the one before it; the first makes an empty database version 1.
/// A step that was released is never changed.
const STEPS: &[&str] = &[
    "
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY,
        run_id TEXT NOT NULL UNIQUE,
        idempotency_key TEXT UNIQUE,
        accepted_at INTEGER NOT NULL,
        work_order TEXT NOT NULL,
        work_order_sha256 TEXT NOT NULL,
        backend TEXT NOT NULL,
        owner TEXT NOT NULL,
        stage TEXT,
        ended_at INTEGER,
        outcome TEXT
    ) STRICT;
    CREATE INDEX unfinished_runs ON runs (id) WHERE ended_at IS NULL;
    CREATE INDEX staged_runs ON runs (id) WHERE stage IS NOT NULL;
    CREATE TABLE events (
        run INTEGER NOT NULL REFERENCES runs (id),
        seq INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (run, seq)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE log (
        seq INTEGER PRIMARY KEY,
        entry TEXT NOT NULL,
        leaf BLOB NOT NULL
    ) STRICT;
    CREATE TABLE receipts (
        run INTEGER PRIMARY KEY REFERENCES runs (id),
        log_seq INTEGER NOT NULL UNIQUE REFERENCES log (seq),
        sha256 TEXT NOT NULL,
        document BLOB NOT NULL
    ) STRICT;
    CREATE TABLE checkpoints (
        size INTEGER PRIMARY KEY,
        note TEXT NOT NULL
    ) STRICT;
    CREATE TABLE head (
        id INTEGER PRIMARY KEY CHECK (id = 1),
        origin TEXT NOT NULL,
        first_key TEXT NOT NULL,
        key TEXT NOT NULL,
        frontier TEXT NOT NULL,
        probes INTEGER NOT NULL DEFAULT 0
    ) STRICT;
",
    "
    ALTER TABLE runs ADD COLUMN request_sha256 TEXT;
    DROP INDEX staged_runs;
    ALTER TABLE runs DROP COLUMN stage;
",
    "
    ALTER TABLE head ADD COLUMN keys_version INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE head ADD COLUMN exchange_crashes INTEGER NOT NULL DEFAULT 0;
    CREATE TABLE api_keys (
        id TEXT NOT NULL UNIQUE,
        name TEXT NOT NULL,
        sha256 BLOB NOT NULL UNIQUE,
        models TEXT NOT NULL,
        requests_per_minute INTEGER,
        tokens_per_minute INTEGER,
        budget INTEGER,
        token_budget INTEGER,
        max_output_tokens INTEGER,
        created_at INTEGER NOT NULL,
        expires_at INTEGER,
        revoked_at INTEGER
    ) STRICT;
    CREATE TABLE budgets (
        key TEXT NOT NULL PRIMARY KEY REFERENCES api_keys (id),
        spent INTEGER NOT NULL DEFAULT 0,
        spent_tokens INTEGER NOT NULL DEFAULT 0,
        reserved INTEGER NOT NULL DEFAULT 0,
        reserved_tokens INTEGER NOT NULL DEFAULT 0,
        requests INTEGER NOT NULL DEFAULT 0,
        abandoned INTEGER NOT NULL DEFAULT 0
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE reservations (
        exchange BLOB NOT NULL PRIMARY KEY,
        key TEXT NOT NULL REFERENCES budgets (key),
        cost INTEGER NOT NULL,
        tokens INTEGER NOT NULL,
        owner TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE answers (
        principal TEXT NOT NULL,
        id TEXT NOT NULL,
        upstream TEXT NOT NULL,
        native INTEGER NOT NULL,
        model TEXT NOT NULL,
        created_at INTEGER NOT NULL,
        input_items TEXT NOT NULL,
        answer TEXT NOT NULL,
        previous TEXT,
        PRIMARY KEY (principal, id)
    ) STRICT;
    CREATE INDEX answers_by_age ON answers (created_at);
    CREATE TABLE reasoning (
        principal TEXT NOT NULL,
        vendor TEXT NOT NULL,
        call_id TEXT NOT NULL,
        model TEXT NOT NULL,
        kept_at INTEGER NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (principal, vendor, call_id, model)
    ) STRICT;
    CREATE INDEX reasoning_by_age ON reasoning (kept_at);
    CREATE TABLE exchange_segments (
        seq INTEGER PRIMARY KEY REFERENCES log (seq),
        first_started_at INTEGER NOT NULL,
        min_id BLOB NOT NULL,
        max_id BLOB NOT NULL,
        count INTEGER NOT NULL,
        root BLOB NOT NULL,
        body BLOB NOT NULL
    ) STRICT;
    CREATE INDEX segments_by_id ON exchange_segments (max_id, min_id);
    CREATE TABLE exchange_writers (owner TEXT NOT NULL PRIMARY KEY) STRICT, WITHOUT ROWID;
    CREATE TABLE ledgers (
        sha256 BLOB NOT NULL PRIMARY KEY,
        json TEXT NOT NULL
    ) STRICT;
",
    // Every run is joined to the entry of its start, also runs of older releases. An entry that is
    // damaged costs its own run that link and nothing else.
    "
    ALTER TABLE runs ADD COLUMN log_seq INTEGER REFERENCES log (seq);
    ALTER TABLE runs ADD COLUMN project_path TEXT;
    ALTER TABLE runs ADD COLUMN project_inode INTEGER;
    ALTER TABLE runs ADD COLUMN project_born INTEGER;
    ALTER TABLE runs ADD COLUMN principal TEXT;
    ALTER TABLE runs ADD COLUMN backend_asked TEXT;
    CREATE TEMP TABLE starts (run_id TEXT PRIMARY KEY, seq INTEGER) WITHOUT ROWID;
    INSERT OR IGNORE INTO starts
        SELECT json_extract(entry, '$.kind.run_id'), seq FROM log
        WHERE CASE WHEN json_valid(entry)
            THEN json_extract(entry, '$.kind.type') = 'run_started'
                AND json_extract(entry, '$.kind.run_id') IS NOT NULL
            ELSE 0 END
        ORDER BY seq;
    UPDATE runs SET log_seq = (SELECT seq FROM starts WHERE starts.run_id = runs.run_id);
    DROP TABLE starts;
    CREATE UNIQUE INDEX runs_by_start ON runs (log_seq);
    CREATE INDEX runs_by_project ON runs (project_path) WHERE project_path IS NOT NULL;
    CREATE TABLE run_blobs (
        run INTEGER NOT NULL REFERENCES runs (id),
        sha256 BLOB NOT NULL,
        chunk INTEGER NOT NULL,
        bytes BLOB NOT NULL,
        UNIQUE (run, sha256, chunk)
    ) STRICT;
    CREATE TABLE change_sets (
        run INTEGER PRIMARY KEY REFERENCES runs (id),
        sha256 BLOB NOT NULL,
        state TEXT NOT NULL,
        state_at INTEGER NOT NULL,
        state_by TEXT NOT NULL
    ) STRICT;
    CREATE INDEX undecided_change_sets ON change_sets (run)
        WHERE state IN ('proposed', 'applying', 'conflict');
    CREATE TABLE applications (
        id TEXT NOT NULL PRIMARY KEY,
        run INTEGER NOT NULL UNIQUE REFERENCES change_sets (run),
        owner TEXT NOT NULL,
        decided_by TEXT NOT NULL,
        via TEXT NOT NULL,
        begun_at INTEGER NOT NULL,
        paths TEXT NOT NULL,
        journal BLOB NOT NULL
    ) STRICT;
    CREATE TABLE decisions (
        log_seq INTEGER PRIMARY KEY REFERENCES log (seq),
        run INTEGER NOT NULL REFERENCES runs (id),
        kind TEXT NOT NULL,
        document BLOB NOT NULL
    ) STRICT;
    CREATE INDEX decisions_by_run ON decisions (run, log_seq);
",
];

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
mod tests {
    use super::*;

    const FIRST: &str = "CREATE TABLE a (x INTEGER) STRICT; INSERT INTO a VALUES (1);";
    const SECOND: &str = "ALTER TABLE a ADD COLUMN y TEXT NOT NULL DEFAULT 'old';";
    const FAILS: &str = "ALTER TABLE a ADD COLUMN z TEXT; INSERT INTO nowhere VALUES (1);";

    /// F9: an older database becomes a newer one as a whole or not at all; a newer one is refused.
    #[tokio::test]
    async fn f9_migration_is_whole_or_nothing() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        let options = options(&path, Duration::from_secs(1)).create_if_missing(true);
        let mut connection = options.connect().await.expect("a connection");
        let cases: [(&[&str], bool, i64, i64); 7] = [
            (&[FIRST], true, 1, 1),
            (&[FIRST], true, 1, 1),
            (&[FIRST, FAILS], false, 1, 1),
            (&[FIRST, SECOND, FAILS], false, 1, 1),
            (&[FIRST, SECOND], true, 2, 2),
            (&[FIRST, SECOND], true, 2, 2),
            (&[FIRST], false, 2, 2),
        ];
        for (place, (steps, fine, version, columns)) in cases.into_iter().enumerate() {
            let migrated = migrate_by(&mut connection, &path, steps).await;
            assert_eq!(migrated.is_ok(), fine, "{place}: {migrated:?}");
            let found = standing(&mut connection).await.expect("readable");
            assert_eq!(
                (found.application, found.version),
                (APPLICATION_ID, version),
                "{place}"
            );
            let count: (i64, i64) = sqlx::query_as(
                "SELECT (SELECT count(*) FROM pragma_table_info('a')), (SELECT count(*) FROM a)",
            )
            .fetch_one(&mut connection)
            .await
            .expect("readable");
            assert_eq!(count, (columns, 1), "{place}");
        }
    }

    /// F9: the steps that were released bring a store of the first version up to date.
    #[tokio::test]
    async fn f9_a_store_of_the_first_version_is_taken_over() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("store.db");
        let options = options(&path, Duration::from_secs(1)).create_if_missing(true);
        let mut connection = options.connect().await.expect("a connection");
        let first = STEPS.get(..1).expect("the first step");
        let made = migrate_by(&mut connection, &path, first).await;
        made.expect("the first version");
        let insert = "INSERT INTO runs (run_id, idempotency_key, accepted_at, work_order,
            work_order_sha256, backend, owner, stage) VALUES ('r', 'k', 1, '{}', 's', 'b', 'o', 'x')";
        let inserted = sqlx::raw_sql(insert).execute(&mut connection).await;
        inserted.expect("a run");
        let migrated = migrate(&mut connection, &path).await;
        migrated.expect("the newest version");
        let kept: (String, String, Option<String>) =
            sqlx::query_as("SELECT run_id, idempotency_key, request_sha256 FROM runs")
                .fetch_one(&mut connection)
                .await
                .expect("the run");
        assert_eq!(kept, ("r".to_owned(), "k".to_owned(), None));
    }
}
