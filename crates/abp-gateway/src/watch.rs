//! Followers of single keys: whoever lent a key learns of each exchange when it ends.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use abp_store::ExchangeRecord;
use abp_translate::FidelityLevel;
use tokio::sync::mpsc;

use crate::gateway::Gateway;
use crate::lock::lock;

/// An exchange that ended.
#[derive(Debug, Clone)]
pub struct EndedExchange {
    /// Its record, as it is logged.
    pub record: ExchangeRecord,
    /// How true the translation was.
    pub fidelity: FidelityLevel,
    /// How many members were lost.
    pub losses: usize,
}

/// The followers, by the id of the key.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    /// How many there are, so that an exchange without any takes no lock.
    count: AtomicUsize,
    by_key: Mutex<HashMap<String, mpsc::UnboundedSender<EndedExchange>>>,
}

impl Watchers {
    /// Tells whoever follows the exchange's key.
    pub(crate) fn tell(&self, record: &ExchangeRecord, fidelity: FidelityLevel, losses: usize) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let followers = lock(&self.by_key);
        if let Some(follower) = followers.get(&record.principal) {
            // Whoever went away is removed by `unwatch`.
            drop(follower.send(EndedExchange {
                record: record.clone(),
                fidelity,
                losses,
            }));
        }
    }
}

impl Gateway {
    /// Follows the exchanges of a key from now on, in place of whoever followed it before.
    #[must_use]
    pub fn watch(&self, key: &str) -> mpsc::UnboundedReceiver<EndedExchange> {
        let (sender, receiver) = mpsc::unbounded_channel();
        let watchers = &self.shared.watchers;
        let mut followers = lock(&watchers.by_key);
        followers.insert(key.to_owned(), sender);
        watchers.count.store(followers.len(), Ordering::Release);
        receiver
    }

    /// Ends the following of a key; its receiver ends once what was told is taken.
    pub fn unwatch(&self, key: &str) {
        let watchers = &self.shared.watchers;
        let mut followers = lock(&watchers.by_key);
        followers.remove(key);
        watchers.count.store(followers.len(), Ordering::Release);
    }
}
