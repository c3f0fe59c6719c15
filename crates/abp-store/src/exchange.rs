//! The exchanges of a gateway: a record of each, sealed many at a time.
//!
//! There are too many of them for a row and a signature each. Their records wait in a [ring] that is
//! bounded by bytes, and at most every [`INTERVAL`](ring::INTERVAL) the writer seals what waits into
//! one [segment](crate::segment), with one entry in the signed log.

mod codec;
mod read;
mod ring;

pub(crate) use codec::{RecordProblem, decode};
#[cfg(test)]
pub(crate) use codec::{encode, tests::record};
pub(crate) use ring::{Drain, Pending, Ring};

use std::sync::Arc;

use abp_core::{ExecutionMode, MicroUsd, Outcome, Timestamp, UsageNormalized};
use abp_receipt::Hash;
use uuid::Uuid;

use crate::command::Command;
use crate::{Store, StoreError};

/// What happened in one exchange with a model's API.
///
/// When it is recorded, every text is cut to 200 bytes at a character, and a list of emulated features
/// that is too long ends in how many more there were.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExchangeRecord {
    /// The exchange.
    pub run_id: Uuid,
    /// Who asked.
    pub principal: String,
    /// When the request came.
    pub started_at: Timestamp,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// How long the first byte of the answer took, in microseconds.
    pub first_byte_us: Option<u64>,
    /// The dialect of the caller.
    pub caller_dialect: String,
    /// The upstream that answered.
    pub upstream: String,
    /// Its dialect.
    pub upstream_dialect: String,
    /// The model the caller named.
    pub model_asked: String,
    /// The model the upstream was asked for.
    pub model_sent: String,
    /// What was asked for.
    pub operation: String,
    /// Whether the answer came as a stream.
    pub streamed: bool,
    /// Whether the request was carried as it is or translated.
    pub mode: ExecutionMode,
    /// The HTTP status of the answer; 0 where there was none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub error_code: Option<String>,
    /// How often an upstream was asked.
    pub attempts: u8,
    /// The hash of the caller's request.
    pub request_sha256: [u8; 32],
    /// The hash of what was sent upstream.
    pub sent_sha256: [u8; 32],
    /// The hash of what came back.
    pub received_sha256: [u8; 32],
    /// The hash of what the caller got.
    pub delivered_sha256: [u8; 32],
    /// The size of the caller's request.
    pub request_bytes: u64,
    /// The size of what the caller got.
    pub response_bytes: u64,
    /// What was used.
    pub usage: ExchangeUsage,
    /// What that cost.
    pub cost: Option<MicroUsd>,
    /// Whether nobody counted what was used, so that usage and cost are estimates.
    pub cost_is_estimate: bool,
    /// The hash of the [ledger](ExchangeLog::keep_ledger) of what the translation kept and lost.
    pub ledger: Option<[u8; 32]>,
    /// The features that were emulated.
    pub emulated: Vec<String>,
    /// Whether the caller went away before the end.
    pub client_closed: bool,
}

/// What an exchange used; `None` is unknown, which is not zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ExchangeUsage {
    /// Tokens read.
    pub input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
    /// Tokens read from a cache.
    pub cache_read_tokens: Option<u64>,
    /// Tokens written to a cache.
    pub cache_write_tokens: Option<u64>,
    /// Requests, where a vendor bills by request.
    pub request_units: Option<u64>,
}

impl From<&UsageNormalized> for ExchangeUsage {
    fn from(usage: &UsageNormalized) -> Self {
        Self {
            input_tokens: usage.input_tokens,
            output_tokens: usage.output_tokens,
            cache_read_tokens: usage.cache_read_tokens,
            cache_write_tokens: usage.cache_write_tokens,
            request_units: usage.request_units,
        }
    }
}

/// A record that was found, with what proves it.
///
/// The leaf, the index, the count and the path lead to the root, which entry `segment` of the signed
/// log names: [`abp_receipt::verify_inclusion`] takes them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FoundExchange {
    /// The record.
    pub record: ExchangeRecord,
    /// The entry of the log that seals it.
    pub segment: u64,
    /// Its place in the segment, from 0.
    pub index: u64,
    /// How many records the segment has.
    pub count: u64,
    /// The hash of the record as a leaf of the segment's tree.
    pub leaf: Hash,
    /// The path from the leaf to the root.
    pub path: Vec<Hash>,
    /// The root of the segment's tree.
    pub root: Hash,
}

/// How the exchange log of this process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExchangeHealth {
    /// How much of the ring is taken: by records that wait, and by exchanges under way.
    pub taken_bytes: usize,
    /// How much there is to take. Nothing is admitted when all of it is taken.
    pub capacity_bytes: usize,
    /// Records and ledgers that wait to be sealed.
    pub waiting: u64,
    /// Records and ledgers that are durable.
    pub sealed: u64,
    /// Records and ledgers that could not be written before the store closed.
    pub lost: u64,
}

/// A change to the exchange log.
#[derive(Debug)]
pub(crate) enum ExchangeChange {
    /// This process will have records on their way.
    Open,
    /// What waits is to be written.
    Seal,
    /// Nothing is on its way any more.
    Close,
}

/// Where exchanges are recorded. Cloning the handle is cheap.
///
/// Recording an exchange waits for nothing, so it promises less than the rest of the store:
///
/// - A record is durable when it is sealed: when [`Self::flush`] or [`Store::close`] returns, or
///   by itself within a tenth of a second and the time the disk takes. A process that is killed, or
///   loses its power, loses at most what it recorded in that time. That this may have happened is
///   counted, once for every such process: [`StoreReader::exchange_crashes`](crate::StoreReader::exchange_crashes).
/// - What is sealed is as safe as everything else: one entry of the signed log binds every byte of it,
///   and what was changed or removed since is reported by its segment.
/// - Records wait in a ring that is [bounded](crate::StoreOptions::exchange_ring_bytes). Room for a record
///   is taken before the exchange begins: when there is none, [`Self::admit`] says so at once, and
///   the exchange should be refused. No record that was admitted is ever dropped to make room.
/// - While the disk is full or fails, records stay in the ring and are written, once, when it works
///   again. [`Health::exchanges`](crate::Health::exchanges) tells how many wait, and how many were lost
///   because the store was closed before they came or before they could be written.
#[derive(Debug, Clone)]
pub struct ExchangeLog {
    store: Store,
    ring: Arc<Ring>,
}

/// Room for the record of an exchange that is about to begin. Dropping it gives the room back.
#[derive(Debug)]
#[must_use = "an exchange that leaves no record cannot be accounted for"]
pub struct ExchangePermit {
    ring: Arc<Ring>,
    used: bool,
}

impl Store {
    /// The exchange log.
    ///
    /// From here on the store knows that this process may have records on their way: where it ends
    /// without [closing](Store::close), that is [counted](crate::StoreReader::exchange_crashes).
    #[must_use]
    pub fn exchange_log(&self) -> ExchangeLog {
        let ring = Arc::clone(self.ring());
        if ring.mark_opened() {
            // Every segment notes it too, where it was not noted.
            self.want(Command::Exchanges(ExchangeChange::Open));
        }
        ExchangeLog {
            store: self.clone(),
            ring,
        }
    }
}

impl ExchangeLog {
    /// Takes room for the record of an exchange, before anything is sent; `None` at once where there
    /// is none, and the exchange should then be refused. Takes no lock.
    #[must_use]
    pub fn admit(&self) -> Option<ExchangePermit> {
        self.ring.take_room_for_record().then(|| ExchangePermit {
            ring: Arc::clone(&self.ring),
            used: false,
        })
    }

    /// Keeps a ledger that records refer to by the hash of its text; it is written together with the
    /// next segment. Known ones cost next to nothing.
    ///
    /// `false` where it is not kept: there is no room, it is larger than 256 KB, or its hash is
    /// another.
    pub fn keep_ledger(&self, sha256: [u8; 32], json: &str) -> bool {
        self.ring.keep_ledger(sha256, json)
    }

    /// Waits until everything recorded until now is durable.
    ///
    /// # Errors
    /// Fails where it cannot be written. What waits goes on waiting.
    pub async fn flush(&self) -> Result<(), StoreError> {
        let recorded = self.ring.recorded();
        while self.ring.sealed() < recorded {
            let seal = Command::Exchanges(ExchangeChange::Seal);
            self.store.ask(seal).await?;
        }
        Ok(())
    }
}

impl ExchangePermit {
    /// Records how the exchange went. Never waits for the disk, and never fails.
    pub fn record(mut self, record: &ExchangeRecord) {
        self.used = true;
        self.ring.push(record);
    }
}

impl Drop for ExchangePermit {
    fn drop(&mut self) {
        if !self.used {
            self.ring.give_back_record();
        }
    }
}
