//! Checks the whole store: the log against its checkpoints, everything else against the log, and the
//! database against itself.
//!
//! One pass over the log, in its order, with everything that belongs to an entry joined to it:
//!
//! ```text
//! run_started  ↔ the run's row and stored order (bound by hashes in the entry)
//! run_ended    ↔ the receipt, and through it the outcome, the end, every event, the change set
//! decision     ↔ the decision's document
//! exchanges    ↔ their segment
//! ```
//!
//! Then the row that holds the log's end and keys is compared with the log, and the tables are looked
//! through for rows that no entry has, for states that no decision led to, and for images that a change
//! set names. At most a few rows are in memory. `docs/store_verification.md` lists every column.

mod feed;
mod head;
mod judge;
mod problem;
mod standing;
mod tables;

pub use problem::{RunPart, StoreProblem};

use std::cell::Cell;
use std::collections::BTreeSet;

use abp_receipt::{KeyRing, LogCheck, LogReport, SignedCheckpoint, StoredReceipt, verify_log};
use tokio::sync::mpsc;
use uuid::Uuid;

use self::feed::Fed;
use self::judge::Judge;
use crate::engine::sql::{self, Snapshot};
use crate::{StoreError, StoreReader};

/// How many pieces wait for the verifier.
const AHEAD: usize = 8;
/// How many of its own checkpoints a store is checked against, spread over its log.
const MAX_CHECKPOINTS: i64 = 1_000;
/// The most problems that are listed; all are counted.
const MAX_PROBLEMS: usize = 1_000;

/// What a store is checked against, besides itself.
#[derive(Debug, Clone, Default)]
pub struct VerifyOptions {
    /// The keys to trust. Without them, the key the log began with.
    pub keys: Option<KeyRing>,
    /// Checkpoints that were kept elsewhere. Only they can show that a store was replaced by an
    /// older copy, or rewritten by an attacker who has its key.
    pub kept: Vec<SignedCheckpoint>,
}

/// What was found in a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreReport {
    /// What was found in its log.
    pub log: LogReport,
    /// What is wrong besides that: at most the first thousand.
    pub problems: Vec<StoreProblem>,
    /// How much is wrong besides that.
    pub problem_count: u64,
    /// How much of the store the log covers.
    pub coverage: StoreCoverage,
}

/// How much of a store its log covers. What is not covered may have been changed unseen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StoreCoverage {
    /// The runs that the log has.
    pub runs: u64,
    /// Runs of releases that logged the hash of the order only: their rows and stored orders are not
    /// covered.
    pub unbound_runs: u64,
    /// Receipts without a digest of the events, or that say that events did not reach the store: the
    /// events of their runs are not covered.
    pub undigested_traces: u64,
    /// Runs whose events were removed by an entry of the log: only the receipt says what happened.
    pub erased_traces: u64,
}

impl StoreReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.log.is_ok() && self.problem_count == 0
    }
}

/// Problems on their way into a report.
#[derive(Debug, Default)]
struct Findings {
    listed: Vec<StoreProblem>,
    count: u64,
    coverage: StoreCoverage,
}

impl Findings {
    fn add(&mut self, problem: StoreProblem) {
        self.count += 1;
        if self.listed.len() < MAX_PROBLEMS {
            self.listed.push(problem);
        }
    }
}

impl StoreReader {
    /// Checks the whole store: every entry, the signatures of its checkpoints, that every run, stored
    /// order, event, receipt, change set, decision and segment of exchanges is the one that was
    /// logged, and the structure of the database. Runs that have no receipt yet are taken to be under
    /// way; of their events only the order is checked.
    ///
    /// What cannot be read is reported by its place in the log; everything else is still checked. Of
    /// very many checkpoints a thousand are checked, spread over the log, and always the newest.
    ///
    /// # Errors
    /// Fails only where the store cannot be read at all.
    pub async fn verify(&self, options: VerifyOptions) -> Result<StoreReport, StoreError> {
        let mut findings = Findings::default();
        let keys = match options.keys {
            Some(keys) => keys,
            None => KeyRing::of(self.first_key().await?),
        };
        // Read together: whatever is written later is not looked at.
        let mut snapshot = self
            .pool
            .snapshot()
            .await
            .map_err(|error| self.failed(&error))?;
        let (size, running) = self.extent(&mut snapshot).await?;
        let head = self.head_row(&mut snapshot).await?;
        let mut checkpoints = options.kept;
        checkpoints.extend(
            self.spread_checkpoints(&mut snapshot, &mut findings)
                .await?,
        );
        drop(snapshot);
        let origin = self.origin().to_owned();
        let (sender, mut receiver) = mpsc::channel::<Fed>(AHEAD);
        let verifier = tokio::task::spawn_blocking(move || {
            let current = Cell::new(StoredReceipt::Unchecked);
            let mut judge = Judge::new(findings);
            let entries = std::iter::from_fn(|| {
                let entry = judge.next_entry(&mut receiver)?;
                current.set(entry.receipt);
                Some(entry.stored)
            });
            let check = LogCheck {
                origin: &origin,
                checkpoints: &checkpoints,
                keys: &keys,
                running: &running,
            };
            let report = verify_log(entries, |_| current.get(), &check);
            (report, judge.finish())
        });
        self.feed(size, &sender).await;
        drop(sender);
        let (log, mut findings) = verifier.await.map_err(|_| StoreError::Closed)?;
        if log.signed_size < log.size && log.is_ok() {
            let seq = log.signed_size;
            findings.add(StoreProblem::Unsigned { seq });
        }
        self.check_head(&head, &log, &mut findings).await?;
        self.check_tables(size, &mut findings).await;
        Ok(StoreReport {
            log,
            problems: findings.listed,
            problem_count: findings.count,
            coverage: findings.coverage,
        })
    }

    /// The size of the log, and the runs without an end in it.
    async fn extent(&self, snapshot: &mut Snapshot) -> Result<(u64, BTreeSet<Uuid>), StoreError> {
        let size: i64 = sql::query_scalar("SELECT coalesce(max(seq) + 1, 0) FROM log")
            .fetch_one(&mut *snapshot)
            .await
            .map_err(|error| self.failed(&error))?;
        let running: Vec<String> =
            sql::query_scalar("SELECT run_id FROM runs WHERE ended_at IS NULL")
                .fetch_all(snapshot)
                .await
                .map_err(|error| self.failed(&error))?;
        let running = running.iter();
        let running = running.filter_map(|run_id| run_id.parse().ok()).collect();
        Ok((size.unsigned_abs(), running))
    }

    async fn spread_checkpoints(
        &self,
        snapshot: &mut Snapshot,
        findings: &mut Findings,
    ) -> Result<Vec<SignedCheckpoint>, StoreError> {
        let notes: Vec<(i64, String)> = sql::query_as(
            "SELECT size, note FROM (
                SELECT size, note, row_number() OVER (ORDER BY size DESC) - 1 AS place,
                    1 + (SELECT count(*) FROM checkpoints) / ? AS stride
                FROM checkpoints
            ) AS numbered WHERE place % stride = 0",
        )
        .bind(MAX_CHECKPOINTS)
        .fetch_all(snapshot)
        .await
        .map_err(|error| self.failed(&error))?;
        let mut checkpoints = Vec::with_capacity(notes.len());
        for (size, note) in notes {
            match note.parse::<SignedCheckpoint>() {
                Ok(checkpoint) => {
                    let signed = checkpoint.checkpoint().size();
                    if u64::try_from(size) != Ok(signed) {
                        findings.add(StoreProblem::Checkpoint { size, signed });
                    }
                    checkpoints.push(checkpoint);
                }
                Err(error) => findings.add(StoreProblem::UnreadableCheckpoint {
                    problem: format!("{error}"),
                }),
            }
        }
        Ok(checkpoints)
    }
}
