//! Reading: every answer is bounded, and longer ones come in pages.

mod size;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_core::Timestamp;
use uuid::Uuid;

use sqlx::sqlite::SqlitePoolOptions;

use crate::changes::{ChangeWatch, StoreChanges, WatchOptions};
use crate::engine::owners::Owners;
use crate::engine::postgres::{self, PostgresOptions};
use crate::engine::sql::{self, Pool, Row};
use crate::engine::sqlite::schema;
use crate::error::Failure;
use crate::layout::Layout;
use crate::log::number;
use crate::open::{LOG_ROWS, NO_HEAD};
use crate::project::ancestors_json;
use crate::record::{
    CancelRecord, EventRecord, ReceiptRecord, ReceiptSummary, RunFilter, RunRecord, UnfinishedRun,
};
use crate::{Project, RunState, StoreError};

/// The most rows of a page.
pub(crate) const MAX_PAGE_ROWS: u32 = 10_000;
/// A page ends after this many bytes; it has at least one row.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

/// How long a reader waits for a lock; writers take none that would make it.
const PATIENCE: Duration = Duration::from_secs(30);
/// How many reads go on at the same time.
const READERS: u32 = 4;

/// Reads a store: beside processes that write it, without its key, and without changing it. Cloning
/// is cheap.
#[derive(Debug, Clone)]
pub struct StoreReader {
    pub(crate) pool: Pool,
    path: PathBuf,
    owners: Owners,
    origin: String,
    /// The process that reads, where it also writes.
    token: Option<String>,
    changes: Arc<ChangeWatch>,
}

impl StoreReader {
    /// Opens the store of a state directory for reading.
    ///
    /// # Errors
    /// Fails where there is no store, or none that this release can read.
    pub async fn open(state_dir: &Path) -> Result<Self, StoreError> {
        let path = Layout::existing(state_dir).database();
        let found = Self::open_existing(state_dir).await?;
        found.ok_or(StoreError::NoStore { path })
    }

    /// Opens the store of a state directory for reading, where there is one. Creates nothing; files
    /// that the database needs while it is read are gone after [`close`](Self::close).
    ///
    /// # Errors
    /// Refuses a state directory that is not this user's alone, and a store of another version.
    pub async fn open_existing(state_dir: &Path) -> Result<Option<Self>, StoreError> {
        let Some(layout) = Layout::find(state_dir)? else {
            return Ok(None);
        };
        let path = layout.database();
        match schema::inspect(&path, PATIENCE).await? {
            0 => return Ok(None),
            found if i64::try_from(found) != Ok(schema::version()) => {
                return Err(StoreError::OlderVersion { path, found });
            }
            _ => {}
        }
        let reader = Self::new(&layout, String::new(), None, PATIENCE);
        let origin = sql::query_scalar("SELECT origin FROM head WHERE id = 1")
            .fetch_optional(&reader.pool)
            .await
            .map_err(|error| reader.failed(&error))?;
        let Some(origin) = origin else {
            let entries: i64 = sql::query_scalar(LOG_ROWS)
                .fetch_one(&reader.pool)
                .await
                .map_err(|error| reader.failed(&error))?;
            let lost = (entries > 0).then(|| reader.broken(NO_HEAD.to_owned()));
            reader.close().await;
            return lost.map_or(Ok(None), Err);
        };
        Ok(Some(Self { origin, ..reader }))
    }

    pub(crate) fn new(
        layout: &Layout,
        origin: String,
        token: Option<String>,
        patience: Duration,
    ) -> Self {
        let path = layout.database();
        let pool = SqlitePoolOptions::new()
            .max_connections(READERS)
            .idle_timeout(Duration::from_secs(60))
            .max_lifetime(None)
            .connect_lazy_with(schema::reading(&path, patience));
        let changes = Arc::new(ChangeWatch::new(WatchOptions::Sqlite(Box::new(
            schema::reading(&path, patience),
        ))));
        Self {
            pool: Pool::Sqlite(pool),
            path,
            owners: Owners::Files(layout.owners()),
            origin,
            token,
            changes,
        }
    }

    /// Reads a store on Postgres, for a process with that token where it also writes.
    pub(crate) fn on_postgres(
        options: &PostgresOptions,
        origin: String,
        token: Option<String>,
    ) -> Result<Self, StoreError> {
        let (connecting, path) = options.connecting()?;
        let watch = WatchOptions::Postgres(Box::new(connecting.clone()));
        Ok(Self {
            pool: options.pool(connecting),
            path,
            owners: Owners::Table,
            origin,
            token,
            changes: Arc::new(ChangeWatch::new(watch)),
        })
    }

    /// Opens a store on Postgres for reading.
    ///
    /// # Errors
    /// Fails where the database cannot be reached, or has no store that this release can read.
    pub async fn open_postgres(options: &PostgresOptions) -> Result<Self, StoreError> {
        let state = postgres::schema::inspect(options).await?;
        state.require_current()?;
        let reader = Self::on_postgres(options, String::new(), None)?;
        let origin: Option<String> = sql::query_scalar("SELECT origin FROM head WHERE id = 1")
            .fetch_optional(&reader.pool)
            .await
            .map_err(|error| reader.failed(&error))?;
        match origin {
            Some(origin) => Ok(Self { origin, ..reader }),
            None => {
                let path = reader.path.clone();
                reader.close().await;
                Err(StoreError::NoStore { path })
            }
        }
    }

    /// Tells of changes to the store by any process, this one included, within a tenth of a second.
    #[must_use]
    pub fn changes(&self) -> StoreChanges {
        self.changes.subscribe()
    }

    /// The name of the log.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// The database.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Runs, newest first.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn runs(&self, filter: &RunFilter, limit: u32) -> Result<Vec<RunRecord>, StoreError> {
        let query = sql::query(
            "SELECT id, run_id, accepted_at, work_order, work_order_sha256, backend, owner,
                ended_at, outcome, idempotency_key, backend_asked, principal, project_path,
                project_inode, project_born, state, attempt, cancel_at, cancel_by, cancel_via,
                cancel_reason
            FROM runs
            WHERE (?1 IS NULL OR (ended_at IS NOT NULL) = ?1)
                AND (?2 IS NULL OR backend = ?2)
                AND (?3 IS NULL OR outcome = ?3)
                AND (?4 IS NULL OR id < ?4)
                AND (?5 IS NULL OR project_path IN (SELECT value FROM json_each(?5)))
                AND (?6 IS NULL OR state = ?6)
                AND (?7 IS NULL OR principal = ?7)
            ORDER BY id DESC LIMIT ?8",
        )
        .bind(filter.ended)
        .bind(filter.backend.as_deref())
        .bind(filter.outcome.as_deref())
        .bind(filter.before)
        .bind(filter.directory.as_deref().map(ancestors_json))
        .bind(filter.state.map(RunState::as_str))
        .bind(filter.principal.as_deref())
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let run = run_record(row, &self.path)?;
            let size = run.order_json.len();
            Ok((run, size))
        })
        .await
    }

    /// One run.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn run(&self, run_id: Uuid) -> Result<Option<RunRecord>, StoreError> {
        let row = sql::query(
            "SELECT id, run_id, accepted_at, work_order, work_order_sha256, backend, owner,
                ended_at, outcome, idempotency_key, backend_asked, principal, project_path,
                project_inode, project_born, state, attempt, cancel_at, cancel_by, cancel_via,
                cancel_reason
            FROM runs WHERE run_id = ?",
        )
        .bind(run_id.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        row.map(|row| run_record(&row, &self.path)).transpose()
    }

    /// The run of a request, by its idempotency key as it is stored.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn run_of_request(&self, key: &str) -> Result<Option<RunRecord>, StoreError> {
        let found: Option<String> =
            sql::query_scalar("SELECT run_id FROM runs WHERE idempotency_key = ?")
                .bind(key)
                .fetch_optional(&self.pool)
                .await
                .map_err(|error| self.failed(&error))?;
        // An id that is none would not be found below either.
        match found.and_then(|run_id| run_id.parse().ok()) {
            Some(run_id) => self.run(run_id).await,
            None => Ok(None),
        }
    }

    /// How far a run is; `None` where there is no such run.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn run_state(&self, run_id: Uuid) -> Result<Option<RunState>, StoreError> {
        let state: Option<String> = sql::query_scalar("SELECT state FROM runs WHERE run_id = ?")
            .bind(run_id.to_string())
            .fetch_optional(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        let Some(state) = state else { return Ok(None) };
        let known = RunState::from_name(&state);
        known
            .map(Some)
            .ok_or_else(|| damaged(&self.path, "the state of a run", format!("{state:?}")))
    }

    /// A page of a run's events, from `from_seq` on. An empty page is the end, for now.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn events(
        &self,
        run_id: Uuid,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<EventRecord>, StoreError> {
        let query = sql::query(
            "SELECT seq, json FROM events
            WHERE run = (SELECT id FROM runs WHERE run_id = ?) AND seq >= ?
            ORDER BY seq LIMIT ?",
        )
        .bind(run_id.to_string())
        .bind(number(from_seq)?)
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let event = EventRecord {
                seq: row.try_get::<i64>(0)?.unsigned_abs(),
                json: row.try_get(1)?,
            };
            let size = event.json.len();
            Ok((event, size))
        })
        .await
    }

    /// The receipt of a run.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn receipt(&self, run_id: Uuid) -> Result<Option<ReceiptRecord>, StoreError> {
        let row = sql::query(
            "SELECT log_seq, sha256, document FROM receipts
            WHERE run = (SELECT id FROM runs WHERE run_id = ?)",
        )
        .bind(run_id.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: Row| {
            Ok(ReceiptRecord {
                run_id,
                log_seq: row.try_get::<i64>(0)?.unsigned_abs(),
                sha256: row.try_get(1)?,
                document: row.try_get(2)?,
            })
        };
        row.map(read)
            .transpose()
            .map_err(|error: sqlx::Error| self.failed(&error))
    }

    /// Receipts without their documents, newest first; only those before that place in the log.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn receipts(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<ReceiptSummary>, StoreError> {
        let query = sql::query(
            "SELECT runs.run_id, receipts.log_seq, sha256, CAST(length(document) AS BIGINT)
            FROM receipts JOIN runs ON runs.id = receipts.run
            WHERE ?1 IS NULL OR receipts.log_seq < ?1
            ORDER BY receipts.log_seq DESC LIMIT ?2",
        )
        .bind(before.map(number).transpose()?)
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let receipt = ReceiptSummary {
                run_id: uuid_of(row.try_get(0)?, &self.path)?,
                log_seq: row.try_get::<i64>(1)?.unsigned_abs(),
                sha256: row.try_get(2)?,
                bytes: row.try_get::<i64>(3)?.unsigned_abs(),
            };
            Ok((receipt, 0))
        })
        .await
    }

    /// The runs that were begun and have no receipt, oldest first: what there is to recover where no
    /// process has them.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn unfinished(&self) -> Result<Vec<UnfinishedRun>, StoreError> {
        self.unfinished_runs(None).await
    }

    /// A run that was begun and has no receipt.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn unfinished_run(&self, run_id: Uuid) -> Result<Option<UnfinishedRun>, StoreError> {
        let found = self.unfinished_runs(Some(run_id)).await?;
        Ok(found.into_iter().next())
    }

    /// Whether any run waits to be claimed.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn has_queued(&self) -> Result<bool, StoreError> {
        sql::query_scalar("SELECT EXISTS (SELECT 1 FROM runs WHERE state = 'queued')")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.failed(&error))
    }

    async fn unfinished_runs(
        &self,
        run_id: Option<Uuid>,
    ) -> Result<Vec<UnfinishedRun>, StoreError> {
        let rows = sql::query(
            "SELECT id, run_id, accepted_at, work_order, work_order_sha256, backend, owner,
                ended_at, outcome, idempotency_key, backend_asked, principal, project_path,
                project_inode, project_born, state, attempt, cancel_at, cancel_by, cancel_via,
                cancel_reason,
                (SELECT coalesce(max(seq) + 1, 0) FROM events WHERE run = runs.id), alive_at,
                lease_until
            FROM runs
            WHERE ended_at IS NULL AND state != 'queued' AND (?1 IS NULL OR run_id = ?1)
            ORDER BY id",
        )
        .bind(run_id.map(|run_id| run_id.to_string()))
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let mut unfinished = Vec::with_capacity(rows.len());
        for row in &rows {
            let run = run_record(row, &self.path)?;
            let (own, owner_alive) = self.ownership(&run.owner).await?;
            unfinished.push(UnfinishedRun {
                owner_alive,
                own,
                events: row
                    .try_get::<i64>(21)
                    .map_err(|error| self.failed(&error))?
                    .unsigned_abs(),
                alive_at: row
                    .try_get::<Option<i64>>(22)
                    .map_err(|error| self.failed(&error))?
                    .map(Timestamp::from_unix_millis),
                lease_until: row
                    .try_get::<Option<i64>>(23)
                    .map_err(|error| self.failed(&error))?
                    .map(Timestamp::from_unix_millis),
                run,
            });
        }
        Ok(unfinished)
    }

    /// Whether a token is that of this process, and whether its process lives.
    pub(crate) async fn ownership(&self, token: &str) -> Result<(bool, bool), StoreError> {
        if self.token.as_deref() == Some(token) {
            return Ok((true, true));
        }
        let is_alive = self.owners.is_alive(&self.pool, token).await;
        Ok((false, is_alive.map_err(|error| self.failed(&error))?))
    }

    /// Whether the process with that token is or was on this node.
    pub(crate) fn is_local(&self, token: &str) -> bool {
        let own = self.token.as_deref().unwrap_or_default();
        self.owners.is_same_node(token, own)
    }

    /// Reads rows until there are enough bytes; holds no more than that.
    pub(crate) async fn page<T>(
        &self,
        query: sql::Query,
        mut read: impl FnMut(&Row) -> Result<(T, usize), Unreadable>,
    ) -> Result<Vec<T>, StoreError> {
        let mut rows = query.fetch(&self.pool);
        let mut page = Vec::new();
        let mut bytes: usize = 0;
        while bytes < MAX_PAGE_BYTES {
            let Some(row) = rows.next().await else { break };
            let row = row.map_err(|error| self.failed(&error))?;
            let (item, size) = read(&row).map_err(|error| match error {
                Unreadable::Row(error) => self.failed(&error),
                Unreadable::Value(error) => error,
            })?;
            bytes = bytes.saturating_add(size);
            page.push(item);
        }
        Ok(page)
    }

    /// Closes the connections, and waits until they are closed.
    pub async fn close(&self) {
        self.pool.close().await;
    }

    pub(crate) fn failed(&self, error: &sqlx::Error) -> StoreError {
        match Failure::of(error) {
            // A read that failed says nothing about writing.
            Failure::Disk(problem) => Failure::Other(problem),
            failure => failure,
        }
        .into_error(&self.path)
    }
}

/// Why a row cannot be used.
pub(crate) enum Unreadable {
    Row(sqlx::Error),
    Value(StoreError),
}

impl From<sqlx::Error> for Unreadable {
    fn from(error: sqlx::Error) -> Self {
        Self::Row(error)
    }
}

impl From<StoreError> for Unreadable {
    fn from(error: StoreError) -> Self {
        Self::Value(error)
    }
}

fn run_record(row: &Row, path: &Path) -> Result<RunRecord, StoreError> {
    let read = || {
        Ok((
            RunRecord {
                number: row.try_get(0)?,
                run_id: Uuid::nil(),
                accepted_at: Timestamp::from_unix_millis(row.try_get(2)?),
                order_json: row.try_get(3)?,
                order_sha256: row.try_get(4)?,
                backend: row.try_get(5)?,
                owner: row.try_get(6)?,
                ended_at: row
                    .try_get::<Option<i64>>(7)?
                    .map(Timestamp::from_unix_millis),
                outcome: row.try_get(8)?,
                idempotency_key: row.try_get(9)?,
                backend_asked: row.try_get(10)?,
                principal: row.try_get(11)?,
                project: project(row, 12)?,
                state: RunState::Queued,
                attempt: row.try_get_u32(16)?,
                cancel: cancel_record(row, 17)?,
            },
            row.try_get::<&str>(1)?,
            row.try_get::<&str>(15)?,
        ))
    };
    let (run, run_id, state) =
        read().map_err(|error: sqlx::Error| Failure::of(&error).into_error(path))?;
    let run_id = uuid_of(run_id, path)?;
    let state = RunState::from_name(state)
        .ok_or_else(|| damaged(path, "the state of a run", format!("{state:?}")))?;
    Ok(RunRecord {
        run_id,
        state,
        ..run
    })
}

/// The request to cancel a run, from that column on.
pub(crate) fn cancel_record(row: &Row, first: usize) -> Result<Option<CancelRecord>, sqlx::Error> {
    let at: Option<i64> = row.try_get(first)?;
    let Some(at) = at else { return Ok(None) };
    let by: Option<String> = row.try_get(first + 1)?;
    let via: Option<String> = row.try_get(first + 2)?;
    Ok(Some(CancelRecord {
        at: Timestamp::from_unix_millis(at),
        by: by.unwrap_or_default(),
        via: via.unwrap_or_default(),
        reason: row.try_get(first + 3)?,
    }))
}

/// The project of a run, from that column on.
pub(crate) fn project(row: &Row, first: usize) -> Result<Option<Project>, sqlx::Error> {
    let path: Option<String> = row.try_get(first)?;
    let inode: Option<i64> = row.try_get(first + 1)?;
    let born: Option<i64> = row.try_get(first + 2)?;
    Ok(path.map(|path| Project {
        path,
        // The database has no unsigned numbers; every inode comes back as it was.
        inode: inode.unwrap_or_default().cast_unsigned(),
        born,
    }))
}

pub(crate) fn uuid_of(text: &str, path: &Path) -> Result<Uuid, StoreError> {
    text.parse()
        .map_err(|error| damaged(path, "a run id", error))
}

pub(crate) fn damaged(path: &Path, what: &str, error: impl std::fmt::Display) -> StoreError {
    StoreError::Damaged {
        path: path.to_owned(),
        problem: format!("{what} cannot be read: {error}"),
    }
}
