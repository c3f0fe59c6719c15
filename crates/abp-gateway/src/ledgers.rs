//! The ledgers of exchanges, each of them kept once.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use abp_store::ExchangeLog;
use abp_translate::LedgerEntry;
use sha2::{Digest as _, Sha256};

/// How many entries are remembered, in all ledgers together.
const MAX_ENTRIES: usize = 16 * 1024;

/// What became of a part of the request or of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Told {
    /// Which of the two.
    pub(crate) document: &'static str,
    pub(crate) entry: LedgerEntry,
}

/// Ledgers that are in the log, with their hashes.
///
/// Exchanges of the same form have the same ledger. Looking for it takes a fraction of the time that
/// writing it out and hashing it takes.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    hashes: HashMap<Box<[Told]>, [u8; 32], foldhash::fast::RandomState>,
    entries: usize,
}

impl Ledgers {
    /// Keeps a ledger under its hash, which is `None` where there is nothing to tell or no room for it.
    pub(crate) fn keep(&self, told: &[Told], log: &ExchangeLog) -> Option<[u8; 32]> {
        if told.is_empty() {
            return None;
        }
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hash) = known().hashes.get(told) {
            return Some(*hash);
        }
        let entries: Vec<LedgerEntry> = told.iter().map(Told::placed).collect();
        let json = serde_json::to_string(&entries).ok()?;
        let hash: [u8; 32] = Sha256::digest(&json).into();
        if !log.keep_ledger(hash, &json) {
            return None;
        }
        let mut known = known();
        if known.entries >= MAX_ENTRIES {
            *known = Known::default();
        }
        known.entries += told.len();
        known.hashes.insert(told.into(), hash);
        Some(hash)
    }
}

impl Told {
    /// The entry with pointers that begin with the document.
    fn placed(&self) -> LedgerEntry {
        let place = |pointer: &Option<String>| {
            let pointer = pointer.as_ref()?;
            Some(format!("/{}{pointer}", self.document))
        };
        LedgerEntry {
            source: place(&self.entry.source),
            target: place(&self.entry.target),
            ..self.entry.clone()
        }
    }
}
