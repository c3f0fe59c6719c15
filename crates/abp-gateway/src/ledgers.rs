//! The ledgers of exchanges, each of them kept once.

use std::collections::HashMap;
use std::sync::Mutex;

use abp_store::ExchangeLog;
use abp_translate::{Action, Ledger, LedgerEntry};
use sha2::{Digest as _, Sha256};

use crate::lock::lock;

/// How many entries are remembered, in all ledgers together.
const MAX_ENTRIES: usize = 16 * 1024;

/// The documents of an exchange, as pointers in its ledger begin.
pub(crate) const REQUEST: &str = "request";
pub(crate) const ANSWER: &str = "answer";

/// What became of the request, or of the answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Told {
    /// Which of the two.
    pub(crate) document: &'static str,
    pub(crate) ledger: Ledger,
}

/// Ledgers that are in the log, with their hashes.
///
/// Exchanges of the same form have the same ledger. Looking for it takes a fraction of the time that
/// writing it out and hashing it takes.
#[derive(Debug, Default)]
pub(crate) struct Ledgers {
    logged: Mutex<Logged>,
}

#[derive(Debug, Default)]
struct Logged {
    /// `None` where there is nothing to tell.
    hashes: HashMap<Box<[Told]>, Option<[u8; 32]>, foldhash::fast::RandomState>,
    entries: usize,
}

impl Ledgers {
    /// Keeps a ledger under its hash, which is `None` where there is nothing to tell or no room for it.
    pub(crate) fn keep(&self, told: &[Told], log: &ExchangeLog) -> Option<[u8; 32]> {
        if told.is_empty() {
            return None;
        }
        let logged = || lock(&self.logged);
        if let Some(hash) = logged().hashes.get(told) {
            return *hash;
        }
        let entries: Vec<LedgerEntry> = told.iter().flat_map(Told::entries).collect();
        let hash = if entries.is_empty() {
            None
        } else {
            let json = serde_json::to_string(&entries).ok()?;
            let hash: [u8; 32] = Sha256::digest(&json).into();
            if !log.keep_ledger(hash, &json) {
                return None;
            }
            Some(hash)
        };
        let count: usize = told.iter().map(|told| told.ledger.entries().len()).sum();
        let mut logged = logged();
        if logged.entries + count > MAX_ENTRIES {
            *logged = Logged::default();
        }
        logged.entries += count;
        logged.hashes.insert(told.into(), hash);
        hash
    }
}

impl Told {
    /// What did not simply arrive, with pointers that begin with the document.
    fn entries(&self) -> impl Iterator<Item = LedgerEntry> {
        let place = |pointer: &Option<String>| {
            let pointer = pointer.as_ref()?;
            Some(format!("/{}{pointer}", self.document))
        };
        let entries = self.ledger.entries().iter();
        let told = entries.filter(|entry| entry.action != Action::Kept && !entry.is_structure());
        told.map(move |entry| LedgerEntry {
            source: place(&entry.source),
            target: place(&entry.target),
            ..entry.clone()
        })
    }
}
