//! Checking the whole store: the log against its checkpoints, every receipt against the log, and the
//! database against itself.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;

use abp_core::document_hash;
use abp_receipt::{
    EntryKind, Hash, KeyRing, LogCheck, LogEntry, LogReport, SignedCheckpoint, StoredEntry,
    StoredReceipt, verify_log,
};
use futures_core::Stream as _;
use sqlx::Row as _;
use sqlx::sqlite::{SqliteConnection, SqliteRow};
use tokio::sync::mpsc;
use uuid::Uuid;

use crate::log::number;
use crate::segment::SegmentRow;
use crate::{StoreError, StoreReader};

/// How many entries, with their receipts, wait for the verifier.
const AHEAD: usize = 8;
/// How many of its own checkpoints a store is checked against, spread over its log.
const MAX_CHECKPOINTS: i64 = 1_000;
/// What is wrong with a segment that is in the database only.
const UNLOGGED: &str = "the log does not have it";
/// How many problems the database lists.
const QUICK_CHECK: &str = "PRAGMA quick_check(20)";

/// What a store is checked against, besides itself.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The keys to trust. Without them, the key the log began with.
    pub keys: Option<KeyRing>,
    /// Checkpoints that were kept elsewhere. Only they can show that a store was replaced by an
    /// older copy, or rewritten by somebody who has its key.
    pub kept: Vec<SignedCheckpoint>,
}

/// What was found in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// What was found in its log.
    pub log: LogReport,
    /// What is wrong besides that.
    pub problems: Vec<StoreProblem>,
}

/// Something wrong with a store that its log alone does not show.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreProblem {
    /// No checkpoint covers the entries from here on.
    Unsigned {
        /// The first of them.
        seq: u64,
    },
    /// A receipt is stored that the log does not have.
    UnloggedReceipt {
        /// The entry it claims, which is not the end of its run.
        seq: u64,
    },
    /// A segment of the exchange log is not the one that was sealed, or is gone.
    Segment {
        /// Its entry in the log.
        seq: u64,
        /// What is wrong with it.
        problem: String,
    },
    /// A checkpoint cannot be read.
    UnreadableCheckpoint {
        /// What is wrong with it.
        problem: String,
    },
    /// The database's own structure is damaged.
    Database {
        /// What the database says.
        problem: String,
    },
}

impl StoreReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.log.is_ok() && self.problems.is_empty()
    }
}

impl fmt::Display for StoreProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsigned { seq } => write!(f, "no checkpoint covers the entries from {seq} on"),
            Self::UnloggedReceipt { seq } => {
                write!(
                    f,
                    "a receipt claims entry {seq}, which is not the end of its run"
                )
            }
            Self::Segment { seq, problem } => write!(f, "exchange segment {seq}: {problem}"),
            Self::UnreadableCheckpoint { problem } => {
                write!(f, "a checkpoint cannot be read: {problem}")
            }
            Self::Database { problem } => write!(f, "the database is damaged: {problem}"),
        }
    }
}

/// An entry on its way to the verifier. What could not be read is `None`.
struct LogRow {
    seq: u64,
    entry: Option<(Vec<u8>, Hash)>,
    receipt: ReceiptRow,
    segment: FoundSegment,
}

type Found<T> = Result<Option<T>, sqlx::Error>;

enum ReceiptRow {
    Absent,
    Unreadable,
    Present { run_id: String, document: Vec<u8> },
}

enum FoundSegment {
    Absent,
    Unreadable,
    Present(Box<SegmentRow>),
}

impl StoreReader {
    /// Checks the whole store: every entry, the signatures of its checkpoints, that every receipt and
    /// every segment of exchanges is the one that was logged, and the structure of the database. Runs
    /// that have no receipt yet are taken to be under way.
    ///
    /// What cannot be read is reported by its place in the log; everything else is still checked. Of
    /// very many checkpoints a thousand are checked, spread over the log, and always the newest.
    ///
    /// # Errors
    /// Fails only where the store cannot be read at all.
    pub async fn verify(&self, options: VerifyOptions) -> Result<StoreReport, StoreError> {
        let mut problems = Vec::new();
        let keys = match options.keys {
            Some(keys) => keys,
            None => KeyRing::of(self.first_key().await?),
        };
        // Read together: whatever is written later is not looked at.
        let mut snapshot = self
            .pool
            .begin()
            .await
            .map_err(|error| self.failed(&error))?;
        let (size, running) = self.extent(&mut snapshot).await?;
        let mut checkpoints = options.kept;
        checkpoints.extend(
            self.spread_checkpoints(&mut snapshot, &mut problems)
                .await?,
        );
        drop(snapshot);
        let origin = self.origin().to_owned();
        let (sender, mut receiver) = mpsc::channel::<LogRow>(AHEAD);
        let verifier = tokio::task::spawn_blocking(move || {
            let mut found = Vec::new();
            let current = Cell::new(StoredReceipt::Unchecked);
            let entries = std::iter::from_fn(|| {
                let row = receiver.blocking_recv()?;
                let (entry, receipt, logged) = judge(&row);
                if !logged {
                    found.push(StoreProblem::UnloggedReceipt { seq: row.seq });
                }
                found.extend(judge_segment(&row, entry.entry()));
                current.set(receipt);
                Some(entry)
            });
            let check = LogCheck {
                origin: &origin,
                checkpoints: &checkpoints,
                keys: &keys,
                running: &running,
            };
            let report = verify_log(entries, |_| current.get(), &check);
            (report, found)
        });
        self.feed(size, &sender).await;
        drop(sender);
        let (log, found) = verifier.await.map_err(|_| StoreError::Closed)?;
        problems.extend(found);
        if log.signed_size < log.size && log.is_ok() {
            let seq = log.signed_size;
            problems.push(StoreProblem::Unsigned { seq });
        }
        problems.extend(self.unlogged_segments(size).await);
        problems.extend(self.quick_check().await);
        Ok(StoreReport { log, problems })
    }

    /// The size of the log, and the runs without an end in it.
    async fn extent(
        &self,
        snapshot: &mut SqliteConnection,
    ) -> Result<(u64, BTreeSet<Uuid>), StoreError> {
        let row = sqlx::query(
            "SELECT (SELECT coalesce(max(seq) + 1, 0) FROM log),
                (SELECT group_concat(run_id) FROM runs WHERE ended_at IS NULL)",
        )
        .fetch_one(snapshot)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = || {
            Ok((
                row.try_get::<i64, _>(0)?,
                row.try_get::<Option<&str>, _>(1)?,
            ))
        };
        let (size, running) = read().map_err(|error: sqlx::Error| self.failed(&error))?;
        let running = running.unwrap_or_default().split(',');
        let running = running.filter_map(|run_id| run_id.parse().ok()).collect();
        Ok((size.unsigned_abs(), running))
    }

    async fn spread_checkpoints(
        &self,
        snapshot: &mut SqliteConnection,
        problems: &mut Vec<StoreProblem>,
    ) -> Result<Vec<SignedCheckpoint>, StoreError> {
        let notes: Vec<String> = sqlx::query_scalar(
            "SELECT note FROM (
                SELECT note, row_number() OVER (ORDER BY size DESC) - 1 AS place,
                    1 + (SELECT count(*) FROM checkpoints) / ? AS stride
                FROM checkpoints
            ) WHERE place % stride = 0",
        )
        .bind(MAX_CHECKPOINTS)
        .fetch_all(snapshot)
        .await
        .map_err(|error| self.failed(&error))?;
        let mut checkpoints = Vec::with_capacity(notes.len());
        for note in notes {
            match note.parse() {
                Ok(checkpoint) => checkpoints.push(checkpoint),
                Err(error) => problems.push(StoreProblem::UnreadableCheckpoint {
                    problem: format!("{error}"),
                }),
            }
        }
        Ok(checkpoints)
    }

    /// Sends the entries below `size`, page by page; what cannot be read in a page is read alone.
    async fn feed(&self, size: u64, verifier: &mpsc::Sender<LogRow>) {
        let mut next = 0;
        while next < size {
            let (from, to) = (next, size);
            let sent = self.feed_readable(&mut next, to, verifier).await;
            match sent {
                Ok(true) => {}
                // The verifier is gone, or there is nothing more.
                Ok(false) => return,
                Err(error) => {
                    tracing::warn!(target: "abp.store", %error, from, at = next, "unreadable");
                    if verifier.send(self.read_alone(next).await).await.is_err() {
                        return;
                    }
                    next += 1;
                }
            }
        }
    }

    /// Sends entries until one cannot be read; `next` is then that one.
    async fn feed_readable(
        &self,
        next: &mut u64,
        size: u64,
        verifier: &mpsc::Sender<LogRow>,
    ) -> Result<bool, sqlx::Error> {
        let mut rows = sqlx::query(
            "SELECT log.seq, entry, leaf, runs.run_id, document, segments.seq,
                first_started_at, min_id, max_id, count, root, body
            FROM log
                LEFT JOIN receipts ON receipts.log_seq = log.seq
                LEFT JOIN runs ON runs.id = receipts.run
                LEFT JOIN exchange_segments AS segments ON segments.seq = log.seq
            WHERE log.seq >= ? AND log.seq < ? ORDER BY log.seq LIMIT 256",
        )
        .bind(number(*next).unwrap_or(i64::MAX))
        .bind(number(size).unwrap_or(i64::MAX))
        .fetch(&self.pool);
        let mut found = false;
        while let Some(row) =
            std::future::poll_fn(|context| Pin::new(&mut rows).poll_next(context)).await
        {
            let row = read_row(&row?)?;
            found = true;
            *next = row.seq + 1;
            if verifier.send(row).await.is_err() {
                return Ok(false);
            }
        }
        Ok(found)
    }

    async fn read_alone(&self, seq: u64) -> LogRow {
        let place = number(seq).unwrap_or(i64::MAX);
        let entry: Found<(Vec<u8>, Vec<u8>)> =
            sqlx::query_as("SELECT CAST(entry AS BLOB), leaf FROM log WHERE seq = ?")
                .bind(place)
                .fetch_optional(&self.pool)
                .await;
        let entry = match entry {
            Ok(Some((entry, leaf))) => Hash::try_from(leaf.as_slice())
                .ok()
                .map(|leaf| (entry, leaf)),
            Ok(None) | Err(_) => None,
        };
        let receipt: Found<(String, Vec<u8>)> = sqlx::query_as(
            "SELECT runs.run_id, document FROM receipts JOIN runs ON runs.id = receipts.run
            WHERE log_seq = ?",
        )
        .bind(place)
        .fetch_optional(&self.pool)
        .await;
        let receipt = match receipt {
            Ok(Some((run_id, document))) => ReceiptRow::Present { run_id, document },
            Ok(None) => ReceiptRow::Absent,
            Err(_) => ReceiptRow::Unreadable,
        };
        let segment = sqlx::query(
            "SELECT first_started_at, min_id, max_id, count, root, body FROM exchange_segments
            WHERE seq = ?",
        )
        .bind(place)
        .fetch_optional(&self.pool)
        .await
        .and_then(|row| row.map(|row| SegmentRow::read(&row, 0)).transpose());
        let segment = match segment {
            Ok(Some(row)) => FoundSegment::Present(Box::new(row)),
            Ok(None) => FoundSegment::Absent,
            Err(_) => FoundSegment::Unreadable,
        };
        LogRow {
            seq,
            entry,
            receipt,
            segment,
        }
    }

    /// Segments that claim entries beyond the end of the log; all others are compared with theirs.
    async fn unlogged_segments(&self, size: u64) -> Vec<StoreProblem> {
        let claimed: Result<Vec<i64>, sqlx::Error> = sqlx::query_scalar(
            "SELECT seq FROM exchange_segments
            WHERE (seq < 0 OR seq >= ?) AND seq NOT IN (SELECT seq FROM log) LIMIT 20",
        )
        .bind(number(size).unwrap_or(i64::MAX))
        .fetch_all(&self.pool)
        .await;
        let problem = |seq: i64| StoreProblem::Segment {
            seq: seq.unsigned_abs(),
            problem: UNLOGGED.to_owned(),
        };
        match claimed {
            Ok(claimed) => claimed.into_iter().map(problem).collect(),
            Err(error) => vec![StoreProblem::Database {
                problem: error.to_string(),
            }],
        }
    }

    async fn quick_check(&self) -> Vec<StoreProblem> {
        let found: Result<Vec<String>, sqlx::Error> =
            sqlx::query_scalar(QUICK_CHECK).fetch_all(&self.pool).await;
        let problem = |problem: String| StoreProblem::Database { problem };
        match found {
            Ok(lines) => lines
                .into_iter()
                .filter(|line| line != "ok")
                .map(problem)
                .collect(),
            Err(error) => vec![problem(error.to_string())],
        }
    }
}

fn read_row(row: &SqliteRow) -> Result<LogRow, sqlx::Error> {
    let leaf: &[u8] = row.try_get(2)?;
    let leaf = Hash::try_from(leaf).map_err(|error| sqlx::Error::Decode(error.into()))?;
    let run_id: Option<String> = row.try_get(3)?;
    Ok(LogRow {
        seq: row.try_get::<i64, _>(0)?.unsigned_abs(),
        entry: Some((row.try_get::<String, _>(1)?.into_bytes(), leaf)),
        receipt: match run_id {
            None => ReceiptRow::Absent,
            Some(run_id) => ReceiptRow::Present {
                run_id,
                document: row.try_get(4)?,
            },
        },
        segment: match row.try_get::<Option<i64>, _>(5)? {
            None => FoundSegment::Absent,
            Some(_) => FoundSegment::Present(Box::new(SegmentRow::read(row, 6)?)),
        },
    })
}

/// The entry and its receipt as the verifier wants them, and whether the receipt belongs there.
fn judge(row: &LogRow) -> (StoredEntry, StoredReceipt, bool) {
    let Some((bytes, leaf)) = &row.entry else {
        return (StoredEntry::read(&[], None), StoredReceipt::Unchecked, true);
    };
    let entry = StoredEntry::read(bytes, Some(*leaf));
    let ended = LogEntry::from_leaf_bytes(bytes)
        .ok()
        .and_then(|entry| match entry.kind {
            EntryKind::RunEnded { run_id, .. } => Some(run_id.to_string()),
            _ => None,
        });
    match (&row.receipt, ended) {
        (ReceiptRow::Absent, _) => (entry, StoredReceipt::Missing, true),
        (ReceiptRow::Unreadable, _) => (entry, StoredReceipt::Unreadable, true),
        (ReceiptRow::Present { run_id, document }, Some(ended)) if *run_id == ended => {
            let hash = document_hash(document)
                .ok()
                .and_then(|hash| hash.parse().ok());
            let receipt = hash.map_or(StoredReceipt::Unreadable, StoredReceipt::Present);
            (entry, receipt, true)
        }
        (ReceiptRow::Present { .. }, _) => (entry, StoredReceipt::Missing, false),
    }
}

/// What is wrong with the segment at an entry, or with there being one or none. Of an entry that
/// cannot be read nobody knows.
fn judge_segment(row: &LogRow, entry: Option<&LogEntry>) -> Option<StoreProblem> {
    let sealed = match entry?.kind {
        EntryKind::ExchangesSealed { count, root } => Some((count, root)),
        _ => None,
    };
    let problem = match (&row.segment, sealed) {
        (FoundSegment::Absent, None) => None,
        (FoundSegment::Absent, Some(_)) => Some("it is missing".to_owned()),
        (FoundSegment::Unreadable, _) => Some("it cannot be read".to_owned()),
        (FoundSegment::Present(_), None) => Some(UNLOGGED.to_owned()),
        (FoundSegment::Present(segment), Some((count, root))) => segment.problem(count, root),
    };
    let seq = row.seq;
    problem.map(|problem| StoreProblem::Segment { seq, problem })
}
