//! Pools that one key cannot empty.
//!
//! A pool is a count of things that all keys share: requests at once, bytes of bodies in memory, requests
//! that an upstream has. A key may hold at most as much as is free, so whatever one key does, there is as
//! much left for the others as it has itself. In a pool of 100, one key alone gets 50, a second one then
//! 25, a third one 12: each newcomer finds something, and no share has to be configured. (The rule is known
//! from switches as dynamic thresholds.) The operator's own key is bounded by the pool alone.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::Principal;
use crate::lock::lock;

/// A count that keys share.
#[derive(Debug)]
pub(crate) struct Pool {
    size: u64,
    taken: Mutex<Taken>,
}

#[derive(Debug, Default)]
struct Taken {
    total: u64,
    /// By the number of the principal; none that holds nothing.
    by_key: HashMap<u64, u64>,
}

/// Why a pool gives nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// The key holds its share, or as much as it may ever hold.
    OfKey,
    /// There is not as much left for anybody.
    OfAll,
}

/// A part of a pool, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Share {
    pool: Arc<Pool>,
    owner: Owner,
    amount: u64,
}

/// The side of a principal that a pool sees.
#[derive(Debug, Clone, Copy)]
struct Owner {
    number: u64,
    is_operator: bool,
}

impl Pool {
    pub(crate) fn new(size: u64) -> Arc<Self> {
        Arc::new(Self {
            size,
            taken: Mutex::default(),
        })
    }

    /// Takes a part, of which the principal may hold `limit` at most where that is set.
    pub(crate) fn take(
        self: &Arc<Self>,
        principal: &Principal,
        amount: u64,
        limit: Option<u64>,
    ) -> Result<Share, NoRoom> {
        let mut share = Share {
            pool: Arc::clone(self),
            owner: Owner {
                number: principal.number,
                is_operator: principal.is_operator,
            },
            amount: 0,
        };
        share.grow(amount, limit)?;
        Ok(share)
    }
}

impl Share {
    /// Takes more of the same pool.
    pub(crate) fn grow(&mut self, more: u64, limit: Option<u64>) -> Result<(), NoRoom> {
        let mut taken = lock(&self.pool.taken);
        let free = self.pool.size.saturating_sub(taken.total);
        if more > free {
            return Err(NoRoom::OfAll);
        }
        let held = taken.by_key.get(&self.owner.number).copied();
        let held = held.unwrap_or_default().saturating_add(more);
        let most = if self.owner.is_operator {
            u64::MAX
        } else {
            free
        };
        if held > most.min(limit.unwrap_or(u64::MAX)) {
            return Err(NoRoom::OfKey);
        }
        if held > 0 {
            taken.by_key.insert(self.owner.number, held);
        }
        taken.total = taken.total.saturating_add(more);
        self.amount = self.amount.saturating_add(more);
        Ok(())
    }

    pub(crate) fn amount(&self) -> u64 {
        self.amount
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if self.amount == 0 {
            return;
        }
        let mut taken = lock(&self.pool.taken);
        taken.total = taken.total.saturating_sub(self.amount);
        let held = taken.by_key.get(&self.owner.number).copied();
        match held.unwrap_or_default().saturating_sub(self.amount) {
            0 => drop(taken.by_key.remove(&self.owner.number)),
            left => drop(taken.by_key.insert(self.owner.number, left)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(number: u64) -> Principal {
        let mut principal = Principal::operator();
        principal.number = number;
        principal.is_operator = false;
        principal
    }

    fn most(pool: &Arc<Pool>, principal: &Principal) -> Vec<Share> {
        std::iter::from_fn(|| pool.take(principal, 1, None).ok()).collect()
    }

    #[test]
    fn no_key_takes_what_is_left_for_others() {
        let pool = Pool::new(100);
        let held: Vec<_> = (1..=7).map(|number| most(&pool, &key(number))).collect();
        let counts: Vec<_> = held.iter().map(Vec::len).collect();
        assert_eq!(counts, [50, 25, 13, 6, 3, 2, 1]);
        assert!(matches!(pool.take(&key(1), 1, None), Err(NoRoom::OfAll)));
        drop(held);
        let taken = lock(&pool.taken);
        assert_eq!((taken.total, taken.by_key.len()), (0, 0));
    }

    #[test]
    fn limits_of_a_key_the_operator_and_amounts() {
        let pool = Pool::new(100);
        let refused = |taken: Result<Share, NoRoom>| taken.expect_err("refused");
        assert_eq!(refused(pool.take(&key(1), 11, Some(10))), NoRoom::OfKey);
        assert_eq!(refused(pool.take(&key(1), 101, None)), NoRoom::OfAll);
        let mut share = pool.take(&key(1), 30, None).expect("30 of 100");
        assert_eq!(share.grow(41, None), Err(NoRoom::OfKey), "71 of 70");
        share.grow(40, None).expect("70 of 70");
        assert_eq!(share.amount(), 70);
        let operator = Principal::operator();
        let all = pool.take(&operator, 30, None).expect("everything left");
        assert_eq!(refused(pool.take(&operator, 1, None)), NoRoom::OfAll);
        drop((share, all));
        assert_eq!(most(&pool, &operator).len(), 100);
        // A pool of one is for whoever comes first.
        assert_eq!(most(&Pool::new(1), &key(1)).len(), 1);
    }
}
