//! Where records wait until they are sealed: bounded by bytes, and never in the way of a caller.
//!
//! Room is taken before an exchange begins, for the largest record there can be, and what is not
//! needed of it is given back when the record comes. What waits keeps its room until it is durable.

use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_receipt::Hash;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use super::codec::{MAX_RECORD_BYTES, encode};
use super::{ExchangeHealth, ExchangeRecord};
use crate::engine::connection::Connection;
use crate::engine::sql;
use crate::segment::{LENGTH_BYTES, Segment};

/// How long a record waits at most before it is written, where the disk takes it.
pub(super) const INTERVAL: Duration = Duration::from_millis(100);
/// How long to wait after a segment could not be written.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);
/// A segment that has as much is written at once.
const SEGMENT_BYTES: usize = 256 * 1024;
/// What a record takes at most.
const RECORD_ROOM: usize = MAX_RECORD_BYTES + LENGTH_BYTES;
/// The largest ledger.
const MAX_LEDGER_BYTES: usize = 256 * 1024;
/// What a ledger takes besides its text.
const LEDGER_OVERHEAD: usize = 128;
/// The most that is written of ledgers at once.
const LEDGERS_AT_ONCE: usize = 1024 * 1024;
/// How many ledgers are known to be there already.
const MAX_KNOWN: usize = 4096;

/// What waits to be sealed, and how much room there is for more.
#[derive(Debug)]
pub(crate) struct Ring {
    capacity: usize,
    taken: AtomicUsize,
    /// Whether anything is admitted.
    closed: AtomicBool,
    /// Whether anybody ever wanted to record something.
    opened: AtomicBool,
    waiting: Mutex<Waiting>,
    known: Mutex<HashSet<[u8; 32]>>,
    wake: Notify,
    sealed: AtomicU64,
    lost: AtomicU64,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Segments in the making, the oldest first; only the last one grows.
    segments: VecDeque<Segment>,
    ledgers: VecDeque<Ledger>,
    /// Since when something waits.
    since: Option<Instant>,
    /// Records and ledgers that ever came.
    recorded: u64,
    /// Whether nobody is left to write.
    ended: bool,
}

/// A text that records refer to by its hash.
#[derive(Debug)]
pub(crate) struct Ledger {
    sha256: [u8; 32],
    json: String,
}

impl Ring {
    pub(crate) fn new(capacity: usize) -> Self {
        Self {
            capacity,
            taken: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            opened: AtomicBool::new(false),
            waiting: Mutex::default(),
            known: Mutex::default(),
            wake: Notify::new(),
            sealed: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }

    /// Whether this is the first time.
    pub(super) fn mark_opened(&self) -> bool {
        !self.opened.swap(true, Ordering::Relaxed)
    }

    /// Admits nothing any more.
    pub(crate) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
    }

    pub(super) fn take_room_for_record(&self) -> bool {
        !self.closed.load(Ordering::Relaxed) && self.take_room(RECORD_ROOM)
    }

    pub(super) fn give_back_record(&self) {
        self.give_back(RECORD_ROOM);
    }

    /// Takes a record for which there is room.
    pub(super) fn push(&self, record: &ExchangeRecord) {
        let bytes = encode(record);
        let size = bytes.len() + LENGTH_BYTES;
        let wake = {
            let mut waiting = self.lock();
            if waiting.ended {
                drop(waiting);
                self.give_back(RECORD_ROOM);
                self.lose(1);
                return;
            }
            let was_full = waiting.is_full();
            waiting.add(record, &bytes);
            waiting.begin() || (!was_full && waiting.is_full())
        };
        self.give_back(RECORD_ROOM - size);
        if wake {
            self.wake.notify_one();
        }
    }

    pub(super) fn keep_ledger(&self, sha256: [u8; 32], json: &str) -> bool {
        if self.known().contains(&sha256) {
            return true;
        }
        let is_good =
            json.len() <= MAX_LEDGER_BYTES && *Hash::of(json.as_bytes()).as_bytes() == sha256;
        if !is_good || self.closed.load(Ordering::Relaxed) {
            return false;
        }
        let ledger = Ledger {
            sha256,
            json: json.to_owned(),
        };
        if !self.take_room(ledger.size()) {
            return false;
        }
        let wake = {
            let mut waiting = self.lock();
            if waiting.ended {
                drop(waiting);
                self.give_back(ledger.size());
                return false;
            }
            waiting.recorded += 1;
            waiting.ledgers.push_back(ledger);
            waiting.begin()
        };
        let mut known = self.known();
        if known.len() >= MAX_KNOWN {
            // What is written again is not stored again.
            known.clear();
        }
        known.insert(sha256);
        drop(known);
        if wake {
            self.wake.notify_one();
        }
        true
    }

    /// How many records and ledgers ever came.
    pub(super) fn recorded(&self) -> u64 {
        self.lock().recorded
    }

    /// How many of them are durable.
    pub(super) fn sealed(&self) -> u64 {
        self.sealed.load(Ordering::Acquire)
    }

    pub(crate) fn health(&self) -> ExchangeHealth {
        let recorded = self.recorded();
        let (sealed, lost) = (self.sealed(), self.lost.load(Ordering::Relaxed));
        ExchangeHealth {
            taken_bytes: self.taken.load(Ordering::Relaxed),
            capacity_bytes: self.capacity,
            waiting: recorded.saturating_sub(sealed.saturating_add(lost)),
            sealed,
            lost,
        }
    }

    fn take_room(&self, bytes: usize) -> bool {
        let more = |taken: usize| {
            let more = taken.checked_add(bytes)?;
            (more <= self.capacity).then_some(more)
        };
        self.taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .is_ok()
    }

    fn give_back(&self, bytes: usize) {
        self.taken.fetch_sub(bytes, Ordering::Relaxed);
    }

    fn lose(&self, count: u64) {
        if count > 0 {
            self.lost.fetch_add(count, Ordering::Relaxed);
            tracing::error!(target: "abp.store", count, "records of exchanges were lost");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        // Nothing that is done under the lock leaves it half done.
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn known(&self) -> MutexGuard<'_, HashSet<[u8; 32]>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    /// Notes since when something waits; says whether nothing did before.
    fn begin(&mut self) -> bool {
        let is_first = self.since.is_none();
        if is_first {
            self.since = Some(Instant::now());
        }
        is_first
    }

    fn add(&mut self, record: &ExchangeRecord, bytes: &[u8]) {
        self.recorded += 1;
        match self.segments.back_mut() {
            Some(segment) if !is_full(segment) => segment.push(record, bytes),
            _ => {
                let mut segment = Segment::default();
                segment.push(record, bytes);
                self.segments.push_back(segment);
            }
        }
    }

    fn is_full(&self) -> bool {
        self.segments.front().is_some_and(is_full)
    }

    /// The oldest segment and as many ledgers as are written at once.
    fn take(&mut self) -> Pending {
        let mut bytes: usize = 0;
        let mut ledgers = Vec::new();
        while bytes < LEDGERS_AT_ONCE
            && let Some(ledger) = self.ledgers.pop_front()
        {
            bytes += ledger.size();
            ledgers.push(ledger);
        }
        let segment = self.segments.pop_front();
        let is_over = self.segments.is_empty() && self.ledgers.is_empty();
        // What is left came while this was being filled or written.
        self.since = (!is_over).then(Instant::now);
        Pending { segment, ledgers }
    }
}

fn is_full(segment: &Segment) -> bool {
    segment.body.len() >= SEGMENT_BYTES
}

impl Ledger {
    fn size(&self) -> usize {
        self.json.len() + LEDGER_OVERHEAD
    }

    /// Stores it, unless it is there.
    pub(crate) async fn insert(&self, connection: &mut Connection) -> Result<(), sqlx::Error> {
        sql::query("INSERT INTO ledgers (sha256, json) VALUES (?, ?) ON CONFLICT DO NOTHING")
            .bind(self.sha256.as_slice())
            .bind(self.json.as_str())
            .execute(connection)
            .await?;
        Ok(())
    }
}

/// What is written next.
#[derive(Debug, Default)]
pub(crate) struct Pending {
    pub(crate) segment: Option<Segment>,
    pub(crate) ledgers: Vec<Ledger>,
}

impl Pending {
    pub(crate) fn is_empty(&self) -> bool {
        self.segment.is_none() && self.ledgers.is_empty()
    }

    /// How many records and ledgers there are.
    fn count(&self) -> u64 {
        let records = self.segment.as_ref().map_or(0, |segment| segment.count);
        records + self.ledgers.len() as u64
    }

    fn bytes(&self) -> usize {
        let body = self
            .segment
            .as_ref()
            .map_or(0, |segment| segment.body.len());
        self.ledgers.iter().map(Ledger::size).sum::<usize>() + body
    }
}

/// The writer's end of the ring. What is left when it is gone is lost, and counted.
#[derive(Debug)]
pub(crate) struct Drain {
    ring: Arc<Ring>,
    pending: Pending,
    /// A segment that could not be written is not tried again before.
    not_before: Instant,
}

impl Drain {
    pub(crate) fn new(ring: Arc<Ring>) -> Self {
        Self {
            ring,
            pending: Pending::default(),
            not_before: Instant::now(),
        }
    }

    /// Waits until something should be written. May be dropped and asked again at any time.
    pub(crate) async fn due(&mut self) {
        loop {
            let woken = self.ring.wake.notified();
            match self.deadline() {
                None => woken.await,
                Some(at) if at <= Instant::now() => break,
                Some(at) => tokio::select! {
                    () = sleep_until(at) => {}
                    () = woken => {}
                },
            }
        }
        // Unless it succeeds.
        self.not_before = Instant::now() + RETRY_INTERVAL;
    }

    fn deadline(&self) -> Option<Instant> {
        if !self.pending.is_empty() {
            return Some(self.not_before);
        }
        let waiting = self.ring.lock();
        let since = waiting.since?;
        let wanted = if waiting.is_full() {
            since
        } else {
            since + INTERVAL
        };
        Some(wanted.max(self.not_before))
    }

    /// What is to be written now. What could not be written before comes first.
    pub(crate) fn gather(&mut self) {
        if self.pending.is_empty() {
            self.pending = self.ring.lock().take();
        }
    }

    /// What was gathered.
    pub(crate) fn pending(&self) -> &Pending {
        &self.pending
    }

    /// What was gathered is durable: its room, which is returned, is free.
    pub(crate) fn release(&mut self) -> usize {
        let done = std::mem::take(&mut self.pending);
        self.not_before = Instant::now();
        self.ring.give_back(done.bytes());
        self.ring.sealed.fetch_add(done.count(), Ordering::Release);
        done.bytes()
    }

    /// How many records and ledgers are durable.
    pub(crate) fn sealed(&self) -> u64 {
        self.ring.sealed()
    }

    /// Whether anything is still to be written.
    pub(crate) fn is_waiting(&self) -> bool {
        !self.pending.is_empty() || self.ring.lock().since.is_some()
    }

    pub(crate) fn was_opened(&self) -> bool {
        self.ring.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Drain {
    fn drop(&mut self) {
        self.ring.close();
        let mut waiting = self.ring.lock();
        waiting.ended = true;
        let left: u64 = waiting
            .segments
            .drain(..)
            .map(|segment| segment.count)
            .sum();
        let ledgers = waiting.ledgers.drain(..).count() as u64;
        drop(waiting);
        self.ring.lose(left + ledgers + self.pending.count());
    }
}
