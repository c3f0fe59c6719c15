//! Checks a whole log, entry by entry, against the checkpoints a verifier holds.
//!
//! The log is untrusted; the checkpoints and the keys are the verifier's own. One older checkpoint
//! is enough to notice that the log was cut or rewritten below its size, without asking anybody.

use std::collections::{BTreeMap, BTreeSet};

use abp_core::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use super::{Edited, EntryKind, LogEntry, LogError, LogPlace, LogProblem};
use crate::merkle::{Frontier, leaf_hash};
use crate::{CheckpointError, Hash, KeyError, KeyRing, SignedCheckpoint};

/// The most problems that are listed; all are counted.
const MAX_PROBLEMS: usize = 1_000;

/// What a log is checked against.
#[derive(Debug, Clone, Copy)]
pub struct LogCheck<'a> {
    /// The log it should be.
    pub origin: &'a str,
    /// Checkpoints of it that the verifier has, in any order.
    pub checkpoints: &'a [SignedCheckpoint],
    /// The keys the verifier trusts. Rotations found in the log are followed.
    pub keys: &'a KeyRing,
    /// Runs that are known to be under way.
    pub running: &'a BTreeSet<Uuid>,
}

/// An entry as a log stores it.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    entry: Result<LogEntry, LogError>,
    computed: Option<Hash>,
    recorded: Option<Hash>,
}

/// What became of the receipt of a run that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoredReceipt {
    /// It is there, and its document hashes to this: [`abp_core::document_hash`], not the hash the
    /// document claims.
    Present(Hash),
    /// It is there and cannot be read.
    Unreadable,
    /// It is not there.
    Missing,
    /// Nobody looked.
    Unchecked,
}

/// What was found in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LogReport {
    /// How many entries there are.
    pub size: u64,
    /// The root of their tree.
    pub root: Hash,
    /// How many of them, from the first, a good checkpoint covers.
    pub signed_size: u64,
    /// Runs that started and did not end, and are known to be under way.
    pub open_runs: Vec<Uuid>,
    /// How often an entry is older than the one before it. Clocks go back; that is no problem.
    pub clock_inversions: u64,
    /// What is wrong: at most the first thousand.
    pub problems: Vec<LogProblem>,
    /// How much is wrong.
    pub problem_count: u64,
}

impl LogReport {
    /// Whether nothing is wrong.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        self.problem_count == 0
    }
}

impl StoredEntry {
    /// An entry stored as the content of its leaf, with the leaf hash that was stored beside it.
    ///
    /// With the stored hash a changed entry is named by its index; without it the change shows at
    /// the next checkpoint.
    #[must_use]
    pub fn read(bytes: &[u8], recorded: Option<Hash>) -> Self {
        Self {
            entry: LogEntry::from_leaf_bytes(bytes),
            computed: Some(leaf_hash(bytes)),
            recorded,
        }
    }

    /// The entry, where it can be read.
    #[must_use]
    pub fn entry(&self) -> Option<&LogEntry> {
        self.entry.as_ref().ok()
    }
}

impl From<LogEntry> for StoredEntry {
    fn from(entry: LogEntry) -> Self {
        match entry.leaf_hash() {
            Ok(hash) => Self {
                entry: Ok(entry),
                computed: Some(hash),
                recorded: None,
            },
            Err(error) => Self {
                entry: Err(error),
                computed: None,
                recorded: None,
            },
        }
    }
}

/// Checks a log: entries in the order in which they are stored, and what became of the receipts.
///
/// Everything is checked and everything wrong is reported; nothing found in the log stops it.
pub fn verify_log<E: Into<StoredEntry>>(
    entries: impl IntoIterator<Item = E>,
    mut receipts: impl FnMut(Uuid) -> StoredReceipt,
    check: &LogCheck<'_>,
) -> LogReport {
    let mut verifier = Verifier::new(check);
    for entry in entries {
        verifier.take(entry.into(), &mut receipts);
    }
    verifier.finish()
}

struct Verifier<'a> {
    check: &'a LogCheck<'a>,
    keys: KeyRing,
    frontier: Frontier,
    /// The roots at the sizes of the checkpoints, as far as the log reaches.
    roots: BTreeMap<u64, Option<Hash>>,
    runs: BTreeMap<Uuid, Run>,
    previous: Option<(u64, Timestamp)>,
    clock_inversions: u64,
    problems: Problems,
}

/// Where a run started and ended.
#[derive(Default)]
struct Run {
    started: Option<u64>,
    ended: Option<u64>,
}

#[derive(Default)]
struct Problems {
    listed: Vec<LogProblem>,
    count: u64,
}

impl<'a> Verifier<'a> {
    fn new(check: &'a LogCheck<'a>) -> Self {
        let sizes = check.checkpoints.iter();
        let mut verifier = Self {
            check,
            keys: check.keys.clone(),
            frontier: Frontier::default(),
            roots: sizes
                .map(|signed| (signed.checkpoint().size(), None))
                .collect(),
            runs: BTreeMap::new(),
            previous: None,
            clock_inversions: 0,
            problems: Problems::default(),
        };
        verifier.note_root();
        verifier
    }

    fn take(&mut self, stored: StoredEntry, receipts: &mut impl FnMut(Uuid) -> StoredReceipt) {
        let index = self.frontier.size();
        let StoredEntry {
            entry,
            computed,
            recorded,
        } = stored;
        let run_id = entry.as_ref().ok().and_then(LogEntry::run_id);
        let edit = match (&entry, computed, recorded) {
            (Err(error), ..) => Some(error.to_string()),
            (Ok(_), Some(computed), Some(recorded)) if computed != recorded => {
                Some(format!("its hash is {computed}, recorded is {recorded}"))
            }
            _ => None,
        };
        if let Some(detail) = edit {
            self.problems.add(LogProblem::Edit {
                index,
                run_id,
                what: Edited::Entry,
                detail,
            });
        }
        // Where the recorded hashes lead to the checkpoints, the edits listed are all there are.
        let leaf = recorded.or(computed).unwrap_or_else(|| leaf_hash(&[]));
        self.frontier.push(leaf);
        self.note_root();
        match entry {
            Ok(entry) => self.take_entry(index, &entry, receipts),
            // The number of an unreadable entry is taken to be right: the next one will tell.
            Err(_) => {
                if let Some((seq, _)) = &mut self.previous {
                    *seq = seq.saturating_add(1);
                }
            }
        }
    }

    fn take_entry(
        &mut self,
        index: u64,
        entry: &LogEntry,
        receipts: &mut impl FnMut(Uuid) -> StoredReceipt,
    ) {
        if entry.origin != self.check.origin {
            self.problems.add(LogProblem::WrongOrigin {
                place: LogPlace::Entry(index),
                origin: entry.origin.clone(),
            });
        }
        let expected = self
            .previous
            .map_or(index, |(seq, _)| seq.saturating_add(1));
        if entry.seq != expected {
            self.problems.add(LogProblem::Reorder {
                index,
                expected,
                found: entry.seq,
            });
        }
        if self.previous.is_some_and(|(_, before)| entry.at < before) {
            self.clock_inversions += 1;
        }
        self.previous = Some((entry.seq, entry.at));
        match &entry.kind {
            EntryKind::RunStarted { run_id, .. } => self.start(index, *run_id),
            EntryKind::RunEnded {
                run_id,
                receipt_sha256,
            } => {
                self.end(index, *run_id);
                let receipt = receipts(*run_id);
                self.compare_receipt(index, *run_id, receipt_sha256, receipt);
            }
            // The store that keeps the document compares it with the hash.
            EntryKind::Decision { run_id, .. } => self.decide(index, *run_id),
            // The store that kept the events knows whether they are gone.
            EntryKind::EventsErased { run_id, .. } => self.erase(index, *run_id),
            // The store that keeps the records compares them with the root.
            EntryKind::ExchangesSealed { .. } => {}
            EntryKind::KeyRotated { .. } => {
                if let Err(error) = self.keys.follow_from_here(entry) {
                    let place = LogPlace::Entry(index);
                    let detail = error.to_string();
                    self.problems.add(match error {
                        KeyError::Unknown { .. } => LogProblem::UnknownKey { place, detail },
                        _ => LogProblem::BadSignature { place, detail },
                    });
                }
            }
        }
    }

    fn start(&mut self, index: u64, run_id: Uuid) {
        let run = self.runs.entry(run_id).or_default();
        match run.started {
            Some(first) => self.problems.add(LogProblem::DuplicateStart {
                run_id,
                index,
                first,
            }),
            None => run.started = Some(index),
        }
    }

    fn end(&mut self, index: u64, run_id: Uuid) {
        let run = self.runs.entry(run_id).or_default();
        if run.started.is_none() {
            self.problems
                .add(LogProblem::MissingStart { run_id, index });
        }
        match run.ended {
            Some(first) => self.problems.add(LogProblem::DuplicateEnd {
                run_id,
                index,
                first,
            }),
            None => run.ended = Some(index),
        }
    }

    fn decide(&mut self, index: u64, run_id: Uuid) {
        if self
            .runs
            .get(&run_id)
            .is_none_or(|run| run.started.is_none())
        {
            self.problems
                .add(LogProblem::StrayDecision { run_id, index });
        }
    }

    fn erase(&mut self, index: u64, run_id: Uuid) {
        let run = self.runs.get(&run_id);
        if run.is_none_or(|run| run.ended.is_none()) {
            self.problems
                .add(LogProblem::StrayErasure { run_id, index });
        }
    }

    fn compare_receipt(
        &mut self,
        index: u64,
        run_id: Uuid,
        recorded: &Hash,
        receipt: StoredReceipt,
    ) {
        let detail = match receipt {
            StoredReceipt::Unchecked => return,
            StoredReceipt::Present(found) if found == *recorded => return,
            StoredReceipt::Present(found) => {
                format!("its hash is {found}, recorded is {recorded}")
            }
            StoredReceipt::Unreadable => "it cannot be read".to_owned(),
            StoredReceipt::Missing => {
                self.problems
                    .add(LogProblem::MissingReceipt { run_id, index });
                return;
            }
        };
        self.problems.add(LogProblem::Edit {
            index,
            run_id: Some(run_id),
            what: Edited::Receipt,
            detail,
        });
    }

    fn note_root(&mut self) {
        if let Some(root) = self.roots.get_mut(&self.frontier.size()) {
            *root = Some(self.frontier.root());
        }
    }

    fn finish(mut self) -> LogReport {
        let signed_size = self.judge_checkpoints();
        let mut open_runs = Vec::new();
        let mut without_end: Vec<(u64, Uuid)> = self
            .runs
            .iter()
            .filter(|(_, run)| run.ended.is_none())
            .filter_map(|(run_id, run)| Some((run.started?, *run_id)))
            .collect();
        without_end.sort_unstable();
        for (index, run_id) in without_end {
            if self.check.running.contains(&run_id) {
                open_runs.push(run_id);
            } else {
                self.problems.add(LogProblem::MissingEnd { run_id, index });
            }
        }
        LogReport {
            size: self.frontier.size(),
            root: self.frontier.root(),
            signed_size,
            open_runs,
            clock_inversions: self.clock_inversions,
            problems: self.problems.listed,
            problem_count: self.problems.count,
        }
    }

    /// Compares the log with every checkpoint that can be believed, smallest first; returns the size
    /// of the largest that agrees.
    ///
    /// Of several that disagree the smallest tells where, and of several that are too large the
    /// largest tells how much is missing; the others follow from them.
    fn judge_checkpoints(&mut self) -> u64 {
        let mut checkpoints: Vec<&SignedCheckpoint> = self.check.checkpoints.iter().collect();
        checkpoints.sort_by_key(|signed| signed.checkpoint().size());
        let (mut intact, mut rewrite, mut truncation) = (0, None, None);
        for signed in checkpoints {
            let checkpoint = signed.checkpoint();
            let checkpoint_size = checkpoint.size();
            let place = LogPlace::Checkpoint(checkpoint_size);
            if checkpoint.origin() != self.check.origin {
                let origin = checkpoint.origin().to_owned();
                self.problems.add(LogProblem::WrongOrigin { place, origin });
                continue;
            }
            if let Err(error) = signed.verify(&self.keys) {
                let detail = error.to_string();
                self.problems.add(match error {
                    CheckpointError::UnknownKey { .. } => LogProblem::UnknownKey { place, detail },
                    _ => LogProblem::BadSignature { place, detail },
                });
                continue;
            }
            match self.roots.get(&checkpoint_size).copied().flatten() {
                None => {
                    truncation = Some(LogProblem::Truncation {
                        size: self.frontier.size(),
                        checkpoint_size,
                    });
                }
                Some(computed) if computed != *checkpoint.root() => {
                    rewrite.get_or_insert(LogProblem::Rewrite {
                        checkpoint_size,
                        expected: *checkpoint.root(),
                        computed,
                        intact,
                    });
                }
                Some(_) => intact = checkpoint_size,
            }
        }
        for problem in [rewrite, truncation].into_iter().flatten() {
            self.problems.add(problem);
        }
        intact
    }
}

impl Problems {
    fn add(&mut self, problem: LogProblem) {
        self.count += 1;
        if self.listed.len() < MAX_PROBLEMS {
            self.listed.push(problem);
        }
    }
}
