//! Removing the events of runs that have ended.
//!
//! An entry of the log comes first, so that a store without the events is still a sound one; then the rows
//! go in small transactions, so that others can write in between. A process that dies in the middle leaves
//! an erasure that is not done, and the next one goes on with it.
//!
//! ```text
//! begin_erasure ─▶ entry `events_erased`, row of `erasures`
//! erase_events  ─▶ 1,000 rows, 1,000 rows, …, the erasure is done
//! ```

use abp_core::Timestamp;
use abp_receipt::EntryKind;
use uuid::Uuid;

use crate::command::Command;
use crate::engine::sql::{self, Row};
use crate::read::{MAX_PAGE_ROWS, Unreadable, uuid_of};
use crate::{Store, StoreError, StoreReader};

/// The most events that are deleted in one transaction.
pub(crate) const ERASE_AT_ONCE: u64 = 1_000;

/// A step of removing the events of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) enum EraseChange {
    /// Logs that the events go.
    Begin(Uuid),
    /// Deletes the next of them.
    Go(Uuid),
    /// Deletes the order and the questions of a run whose events are gone.
    Order(Uuid),
}

impl EraseChange {
    pub(crate) fn run_id(self) -> Uuid {
        match self {
            Self::Begin(run_id) | Self::Go(run_id) | Self::Order(run_id) => run_id,
        }
    }
}

/// A run whose events may be removed: it has ended, and nothing about it is undecided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasableRun {
    /// Its place among the runs; the next page begins after it.
    pub number: i64,
    /// The run.
    pub run_id: Uuid,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How many events it has.
    pub events: u64,
    /// The size of them.
    pub bytes: u64,
}

/// A run that has ended and whose changes wait for a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UndecidedRun {
    /// The run.
    pub run_id: Uuid,
    /// From when on they wait as they are: the end of the run, or the last decision about a part of them.
    pub since: Timestamp,
}

/// The removal of a run's events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErasureRecord {
    /// When.
    pub at: Timestamp,
    /// How many events there were.
    pub events: u64,
}

impl Store {
    /// Logs that the events of a run are removed; `false` where that was done before. Readers find no
    /// events from then on, or the first of them.
    ///
    /// # Errors
    /// Refuses a run that has not ended, and one whose changes are undecided.
    pub async fn begin_erasure(&self, run_id: Uuid) -> Result<bool, StoreError> {
        self.ask_whether(Command::Erase(EraseChange::Begin(run_id)))
            .await
    }

    /// Deletes some more of the events of a run whose removal is logged, and returns how many; none are
    /// left where it is zero.
    ///
    /// # Errors
    /// Fails where the removal is not logged.
    pub async fn erase_events(&self, run_id: Uuid) -> Result<u64, StoreError> {
        self.ask_count(Command::Erase(EraseChange::Go(run_id)))
            .await
    }

    /// Deletes the order of a run and the questions it asked, once its events are gone; `false` where that
    /// was done before. The receipt, the entries of the log and the hash of the order stay.
    ///
    /// # Errors
    /// Refuses a run whose events are there.
    pub async fn erase_order(&self, run_id: Uuid) -> Result<bool, StoreError> {
        self.ask_whether(Command::Erase(EraseChange::Order(run_id)))
            .await
    }
}

impl StoreReader {
    /// Runs whose events may be removed, that ended before a time, in the order in which they were
    /// accepted, after the one with that number.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn erasable_runs(
        &self,
        ended_before: Timestamp,
        after: i64,
        limit: u32,
    ) -> Result<Vec<ErasableRun>, StoreError> {
        let query = sql::query(
            "SELECT id, run_id, ended_at,
                (SELECT count(*) FROM events WHERE run = runs.id),
                (SELECT coalesce(sum(octet_length(json)), 0) FROM events WHERE run = runs.id)
            FROM runs
            WHERE id > ?1 AND ended_at < ?2
                AND EXISTS (SELECT 1 FROM events WHERE run = runs.id)
                AND NOT EXISTS (SELECT 1 FROM erasures WHERE run = runs.id)
                AND NOT EXISTS (SELECT 1 FROM change_sets WHERE run = runs.id
                    AND state IN ('proposed', 'applying', 'conflict'))
            ORDER BY id LIMIT ?3",
        )
        .bind(after)
        .bind(ended_before.as_unix_millis())
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let run = ErasableRun {
                number: row.try_get(0)?,
                run_id: uuid_of(row.try_get(1)?, self.path())?,
                ended_at: Timestamp::from_unix_millis(row.try_get(2)?),
                events: row.try_get::<i64>(3)?.unsigned_abs(),
                bytes: row.try_get::<i64>(4)?.unsigned_abs(),
            };
            Ok((run, 0))
        })
        .await
    }

    /// Runs whose removal of events a process began and did not end.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn open_erasures(&self) -> Result<Vec<Uuid>, StoreError> {
        let query = sql::query(
            "SELECT run_id FROM erasures JOIN runs ON runs.id = erasures.run
            WHERE NOT is_done ORDER BY run",
        );
        self.page(query, |row| self.run_id_of(row)).await
    }

    /// The size of all stored events. Every one of them is looked at.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn event_bytes(&self) -> Result<u64, StoreError> {
        let bytes: i64 =
            sql::query_scalar("SELECT coalesce(sum(octet_length(json)), 0) FROM events")
                .fetch_one(&self.pool)
                .await
                .map_err(|error| self.failed(&error))?;
        Ok(bytes.unsigned_abs())
    }

    /// The removal of a run's events, where there was one.
    ///
    /// # Errors
    /// Fails where the database cannot be read, or the log has another entry for it.
    pub async fn erasure(&self, run_id: Uuid) -> Result<Option<ErasureRecord>, StoreError> {
        let entry: Option<String> = sql::query_scalar(
            "SELECT entry FROM erasures JOIN log ON log.seq = erasures.log_seq
            WHERE run = (SELECT id FROM runs WHERE run_id = ?)",
        )
        .bind(run_id.to_string())
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let Some(entry) = entry else { return Ok(None) };
        let entry = self.entry_of(&entry)?;
        match entry.kind {
            EntryKind::EventsErased { events, .. } => Ok(Some(ErasureRecord {
                at: entry.at,
                events,
            })),
            _ => Err(self.broken(format!("entry {} removes no events", entry.seq))),
        }
    }

    /// Runs that ended before a time and whose changes are undecided since then, oldest first.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn undecided_before(
        &self,
        time: Timestamp,
        limit: u32,
    ) -> Result<Vec<UndecidedRun>, StoreError> {
        let query = sql::query(
            "SELECT run_id, CASE WHEN ended_at > state_at THEN ended_at ELSE state_at END AS since
            FROM change_sets JOIN runs ON runs.id = change_sets.run
            WHERE change_sets.state IN ('proposed', 'conflict') AND ended_at < ?1 AND state_at < ?1
            ORDER BY since LIMIT ?2",
        )
        .bind(time.as_unix_millis())
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let run = UndecidedRun {
                run_id: uuid_of(row.try_get(0)?, self.path())?,
                since: Timestamp::from_unix_millis(row.try_get(1)?),
            };
            Ok((run, 0))
        })
        .await
    }

    fn run_id_of(&self, row: &Row) -> Result<(Uuid, usize), Unreadable> {
        Ok((uuid_of(row.try_get(0)?, self.path())?, 0))
    }
}
