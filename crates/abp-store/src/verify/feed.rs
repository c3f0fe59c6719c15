//! Reads the log with everything that belongs to its entries, and hands it to the verifier.

use abp_receipt::Hash;
use tokio::sync::mpsc;

use crate::engine::sql::{self, Row};
use crate::log::number;
use crate::read::project;
use crate::segment::SegmentRow;
use crate::{EventRecord, Project, StoreReader};

/// How many events are asked for at a time; a page has bounded bytes as well.
const EVENTS: u32 = 1_000;

/// A piece on its way to the verifier. The events of a run follow the entry of its end.
pub(super) enum Fed {
    Entry(Box<LogRow>),
    /// The events of the run that the last entry ends were erased.
    Erasure(ErasureRow),
    Events(Vec<EventRecord>),
    /// The rest of the events cannot be read.
    EventsUnreadable(String),
    EventsEnd,
}

/// An entry with what is joined to it. An entry that could not be read is `None`.
pub(super) struct LogRow {
    pub(super) seq: u64,
    pub(super) entry: Option<(Vec<u8>, Hash)>,
    pub(super) receipt: Joined<ReceiptRow>,
    pub(super) started: Joined<StartedRow>,
    pub(super) decision: Joined<DecisionRow>,
    pub(super) segment: Joined<SegmentRow>,
}

/// The removal of a run's events, as it is stored.
pub(super) struct ErasureRow {
    /// The entry of the log that it names.
    pub(super) entry: Vec<u8>,
    /// Whether every event is gone.
    pub(super) is_done: bool,
}

/// A row that belongs to an entry.
pub(super) enum Joined<T> {
    Absent,
    Unreadable,
    Present(Box<T>),
}

/// A receipt, with what it vouches for.
pub(super) struct ReceiptRow {
    pub(super) run: i64,
    pub(super) run_id: String,
    pub(super) sha256: String,
    pub(super) document: Vec<u8>,
    pub(super) outcome: Option<String>,
    pub(super) ended_at: Option<i64>,
    pub(super) change_set: Option<ChangeSetRow>,
}

pub(super) struct ChangeSetRow {
    pub(super) sha256: Vec<u8>,
    pub(super) state: String,
    /// Whether there are decisions about it, which vouch for it as the receipt does.
    pub(super) has_decisions: bool,
}

/// A run, as it was when it started.
pub(super) struct StartedRow {
    pub(super) run_id: String,
    pub(super) accepted_at: i64,
    /// Absent where it was erased, after the events.
    pub(super) order_json: Option<String>,
    pub(super) order_sha256: String,
    pub(super) backend: String,
    pub(super) backend_asked: Option<String>,
    pub(super) principal: Option<String>,
    pub(super) idempotency_key: Option<String>,
    pub(super) request_sha256: Option<String>,
    pub(super) project: Option<Project>,
}

pub(super) struct DecisionRow {
    pub(super) run_id: Option<String>,
    pub(super) kind: String,
    pub(super) document: Vec<u8>,
    /// The hash of the change set, as its own row has it.
    pub(super) change_set: Option<Vec<u8>>,
}

/// The columns of each joined row, in the order in which they are read, and the joins.
const ENTRIES: &str = "SELECT log.seq, entry, leaf,
        receipts.run, ended.run_id, receipts.document, ended.outcome, ended.ended_at,
        change_sets.sha256, change_sets.state,
        EXISTS (SELECT 1 FROM decisions AS d WHERE d.run = receipts.run), receipts.sha256,
        started.run_id, started.accepted_at,
        CASE WHEN started.work_order = '' AND started.id IN (SELECT run FROM erasures)
            THEN NULL ELSE started.work_order END, started.work_order_sha256,
        started.backend, started.backend_asked, started.principal, started.idempotency_key,
        started.request_sha256, started.project_path, started.project_inode,
        started.project_born,
        decisions.log_seq, decided.run_id, decisions.kind, decisions.document, changes.sha256,
        segments.seq, first_started_at, min_id, max_id, count, root, body
    FROM log
        LEFT JOIN receipts ON receipts.log_seq = log.seq
        LEFT JOIN runs AS ended ON ended.id = receipts.run
        LEFT JOIN change_sets ON change_sets.run = receipts.run
        LEFT JOIN runs AS started ON started.log_seq = log.seq
        LEFT JOIN decisions ON decisions.log_seq = log.seq
        LEFT JOIN runs AS decided ON decided.id = decisions.run
        LEFT JOIN change_sets AS changes ON changes.run = decisions.run
        LEFT JOIN exchange_segments AS segments ON segments.seq = log.seq
    WHERE log.seq >= ? AND log.seq < ? ORDER BY log.seq LIMIT 256";

impl StoreReader {
    /// Sends the entries below `size`, page by page; what cannot be read in a page is read alone.
    pub(super) async fn feed(&self, size: u64, verifier: &mpsc::Sender<Fed>) {
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
                    let row = self.read_alone(next).await;
                    if !self.send_entry(row, verifier).await {
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
        verifier: &mpsc::Sender<Fed>,
    ) -> Result<bool, sqlx::Error> {
        let mut rows = sql::query(ENTRIES)
            .bind(number(*next).unwrap_or(i64::MAX))
            .bind(number(size).unwrap_or(i64::MAX))
            .fetch(&self.pool);
        let mut found = false;
        while let Some(row) = rows.next().await {
            let row = read_row(&row?)?;
            found = true;
            *next = row.seq + 1;
            if matches!(row.receipt, Joined::Present(_)) {
                // Its events are read by the same connection: several verifications at a time must
                // not wait for each other's.
                drop(rows);
                return Ok(self.send_entry(row, verifier).await);
            }
            if !self.send_entry(row, verifier).await {
                return Ok(false);
            }
        }
        Ok(found)
    }

    /// Sends an entry, and the events of the run that it ends; `false` where the verifier is gone.
    async fn send_entry(&self, row: LogRow, verifier: &mpsc::Sender<Fed>) -> bool {
        let run = match &row.receipt {
            Joined::Present(receipt) => Some(receipt.run),
            Joined::Absent | Joined::Unreadable => None,
        };
        if verifier.send(Fed::Entry(Box::new(row))).await.is_err() {
            return false;
        }
        let Some(run) = run else { return true };
        if let Some(erasure) = self.erasure_of(run).await
            && verifier.send(erasure).await.is_err()
        {
            return false;
        }
        let mut next = 0;
        loop {
            let fed = match self.events_of(run, next).await {
                Ok(page) if page.is_empty() => Fed::EventsEnd,
                Ok(page) => {
                    next = page.last().map_or(next, |event| event.seq + 1);
                    Fed::Events(page)
                }
                Err(problem) => Fed::EventsUnreadable(problem),
            };
            let is_last = !matches!(fed, Fed::Events(_));
            if verifier.send(fed).await.is_err() {
                return false;
            }
            if is_last {
                return true;
            }
        }
    }

    /// The removal of a run's events, where there was one.
    async fn erasure_of(&self, run: i64) -> Option<Fed> {
        let found: Result<Option<(Vec<u8>, bool)>, sqlx::Error> = sql::query_as(
            "SELECT CAST(entry AS BLOB), is_done FROM erasures
            JOIN log ON log.seq = erasures.log_seq WHERE run = ?",
        )
        .bind(run)
        .fetch_optional(&self.pool)
        .await;
        match found {
            Ok(found) => found.map(|(entry, is_done)| Fed::Erasure(ErasureRow { entry, is_done })),
            // The events are then compared as if they were all there.
            Err(error) => {
                tracing::warn!(target: "abp.store", %error, run, "unreadable");
                None
            }
        }
    }

    async fn events_of(&self, run: i64, from: u64) -> Result<Vec<EventRecord>, String> {
        let query = sql::query(
            "SELECT seq, json FROM events WHERE run = ? AND seq >= ? ORDER BY seq LIMIT ?",
        )
        .bind(run)
        .bind(number(from).unwrap_or(i64::MAX))
        .bind(EVENTS);
        let page = self
            .page(query, |row| {
                let event = EventRecord {
                    seq: row.try_get::<i64>(0)?.unsigned_abs(),
                    json: row.try_get(1)?,
                };
                let size = event.json.len();
                Ok((event, size))
            })
            .await;
        page.map_err(|error| error.to_string())
    }

    /// Reads an entry and each row that belongs to it by itself, so that a damaged page costs only
    /// what is on it.
    async fn read_alone(&self, seq: u64) -> LogRow {
        let place = number(seq).unwrap_or(i64::MAX);
        let entry = sql::query_as::<(Vec<u8>, Vec<u8>)>(
            "SELECT CAST(entry AS BLOB), leaf FROM log WHERE seq = ?",
        )
        .bind(place)
        .fetch_optional(&self.pool)
        .await;
        let entry = match entry {
            Ok(Some((entry, leaf))) => Hash::try_from(leaf.as_slice())
                .ok()
                .map(|leaf| (entry, leaf)),
            Ok(None) | Err(_) => None,
        };
        let receipt = "SELECT receipts.run, runs.run_id, document, outcome, ended_at,
                change_sets.sha256, change_sets.state,
                EXISTS (SELECT 1 FROM decisions WHERE decisions.run = receipts.run),
                receipts.sha256
            FROM receipts LEFT JOIN runs ON runs.id = receipts.run
                LEFT JOIN change_sets ON change_sets.run = receipts.run
            WHERE receipts.log_seq = ?";
        let started = "SELECT run_id, accepted_at,
                CASE WHEN work_order = '' AND id IN (SELECT run FROM erasures)
                    THEN NULL ELSE work_order END, work_order_sha256, backend,
                backend_asked, principal, idempotency_key, request_sha256, project_path,
                project_inode, project_born
            FROM runs WHERE log_seq = ?";
        let decision = "SELECT decisions.log_seq, runs.run_id, kind, document, change_sets.sha256
            FROM decisions LEFT JOIN runs ON runs.id = decisions.run
                LEFT JOIN change_sets ON change_sets.run = decisions.run
            WHERE decisions.log_seq = ?";
        let segment = "SELECT seq, first_started_at, min_id, max_id, count, root, body
            FROM exchange_segments WHERE seq = ?";
        LogRow {
            seq,
            entry,
            receipt: self
                .joined(receipt, place, |row| read_receipt(row, 0))
                .await,
            started: self
                .joined(started, place, |row| read_started(row, 0))
                .await,
            decision: self
                .joined(decision, place, |row| read_decision(row, 0))
                .await,
            segment: self
                .joined(segment, place, |row| read_segment(row, 0))
                .await,
        }
    }

    async fn joined<T>(
        &self,
        query: &'static str,
        place: i64,
        read: impl Fn(&Row) -> Result<Joined<T>, sqlx::Error>,
    ) -> Joined<T> {
        let row = sql::query(query)
            .bind(place)
            .fetch_optional(&self.pool)
            .await;
        match row.and_then(|row| row.as_ref().map(read).transpose()) {
            Ok(Some(joined)) => joined,
            Ok(None) => Joined::Absent,
            Err(_) => Joined::Unreadable,
        }
    }
}

fn read_row(row: &Row) -> Result<LogRow, sqlx::Error> {
    let leaf: &[u8] = row.try_get(2)?;
    let leaf = Hash::try_from(leaf).map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(LogRow {
        seq: row.try_get::<i64>(0)?.unsigned_abs(),
        entry: Some((row.try_get::<String>(1)?.into_bytes(), leaf)),
        receipt: read_receipt(row, 3)?,
        started: read_started(row, 12)?,
        decision: read_decision(row, 24)?,
        segment: read_segment(row, 29)?,
    })
}

fn read_receipt(row: &Row, first: usize) -> Result<Joined<ReceiptRow>, sqlx::Error> {
    let Some(run) = row.try_get::<Option<i64>>(first)? else {
        return Ok(Joined::Absent);
    };
    let change_set: Option<Vec<u8>> = row.try_get(first + 5)?;
    let state: Option<String> = row.try_get(first + 6)?;
    let has_decisions = row.try_get(first + 7)?;
    Ok(Joined::Present(Box::new(ReceiptRow {
        run,
        // A receipt whose run is gone belongs to no run.
        run_id: row
            .try_get::<Option<String>>(first + 1)?
            .unwrap_or_default(),
        sha256: row.try_get(first + 8)?,
        document: row.try_get(first + 2)?,
        outcome: row.try_get(first + 3)?,
        ended_at: row.try_get(first + 4)?,
        change_set: change_set.map(|sha256| ChangeSetRow {
            sha256,
            state: state.unwrap_or_default(),
            has_decisions,
        }),
    })))
}

fn read_started(row: &Row, first: usize) -> Result<Joined<StartedRow>, sqlx::Error> {
    let Some(run_id) = row.try_get::<Option<String>>(first)? else {
        return Ok(Joined::Absent);
    };
    Ok(Joined::Present(Box::new(StartedRow {
        run_id,
        accepted_at: row.try_get(first + 1)?,
        order_json: row.try_get(first + 2)?,
        order_sha256: row.try_get(first + 3)?,
        backend: row.try_get(first + 4)?,
        backend_asked: row.try_get(first + 5)?,
        principal: row.try_get(first + 6)?,
        idempotency_key: row.try_get(first + 7)?,
        request_sha256: row.try_get(first + 8)?,
        project: project(row, first + 9)?,
    })))
}

fn read_decision(row: &Row, first: usize) -> Result<Joined<DecisionRow>, sqlx::Error> {
    if row.try_get::<Option<i64>>(first)?.is_none() {
        return Ok(Joined::Absent);
    }
    Ok(Joined::Present(Box::new(DecisionRow {
        run_id: row.try_get(first + 1)?,
        kind: row.try_get(first + 2)?,
        document: row.try_get(first + 3)?,
        change_set: row.try_get(first + 4)?,
    })))
}

fn read_segment(row: &Row, first: usize) -> Result<Joined<SegmentRow>, sqlx::Error> {
    if row.try_get::<Option<i64>>(first)?.is_none() {
        return Ok(Joined::Absent);
    }
    let segment = SegmentRow::read(row, first + 1)?;
    Ok(Joined::Present(Box::new(segment)))
}
