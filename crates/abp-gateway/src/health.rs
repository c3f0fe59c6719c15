//! Whether an upstream may be asked: what its last answers say, kept apart by who got them.
//!
//! A request can be made to fail by its own content, and a model can fail while others of its vendor do
//! well. So failed answers count for the key and the model that got them, and open a breaker for nobody
//! else. Only what no request can cause, an address at which nothing answers, counts for all.
//!
//! Only what failed has an entry. A success of a key and a model that never failed, which is nearly every
//! exchange, looks at one counter.

use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use abp_backend_core::{
    BreakerSettings, CircuitBreaker, CircuitState, LONGEST_REST, UpstreamError,
};
use abp_error::ErrorCode;

use crate::lock::lock;

/// How many pairs of key and model are remembered for one upstream.
const MAX_PAIRS: usize = 4096;

/// The health of one upstream.
#[derive(Debug)]
pub(crate) struct Health {
    address: Mutex<CircuitBreaker>,
    pairs: Mutex<HashMap<Pair, Condition>>,
    /// Whether there may be pairs.
    has_pairs: AtomicBool,
}

/// The requests whose answers are judged together.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Pair {
    key: u64,
    model: String,
}

#[derive(Debug)]
struct Condition {
    breaker: CircuitBreaker,
    /// The vendor answered 429 and named this time.
    limited_until: Option<Instant>,
}

/// The requests of a key for a model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Asking<'a> {
    pub(crate) key: u64,
    pub(crate) model: &'a str,
}

/// A reason to ask nothing now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Closed {
    pub(crate) rest: Duration,
    pub(crate) code: ErrorCode,
}

/// What came of a call that was let through.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Ended<'a> {
    /// An answer that says nothing against the upstream.
    Well,
    /// The vendor's 429, with the time for which it wants to be left alone.
    Limited(Option<Duration>),
    /// An answer that says the upstream cannot, with the time it names.
    Unwell(Option<Duration>),
    /// No answer.
    NoAnswer(&'a UpstreamError),
}

impl Default for Health {
    fn default() -> Self {
        Self {
            address: Mutex::new(CircuitBreaker::new(BreakerSettings::default())),
            pairs: Mutex::default(),
            has_pairs: AtomicBool::new(false),
        }
    }
}

impl Health {
    /// Lets a call through. Its end has to be told.
    pub(crate) fn allow(&self, asking: Asking<'_>, now: Instant) -> Result<(), Closed> {
        lock(&self.address).allow(now).map_err(Closed::broken)?;
        let allowed = self.with(asking, |condition| condition.breaker.allow(now));
        match allowed {
            Some(Err(rest)) => {
                lock(&self.address).unmade(now);
                Err(Closed::broken(rest))
            }
            Some(Ok(())) | None => Ok(()),
        }
    }

    /// How long nothing may be sent, from this moment on.
    pub(crate) fn closed(&self, asking: Asking<'_>, now: Instant) -> Option<Closed> {
        let open = |breaker: &CircuitBreaker| match breaker.state(now) {
            CircuitState::Open { retry_in } => Some(Closed::broken(retry_in)),
            CircuitState::Closed | CircuitState::HalfOpen => None,
        };
        let address = open(&lock(&self.address));
        let pair = self.with(asking, |condition| {
            let limited = condition.limited_until;
            let rest = limited.and_then(|until| until.checked_duration_since(now));
            let limited = rest.filter(|rest| !rest.is_zero()).map(|rest| Closed {
                rest,
                code: ErrorCode::BackendRateLimited,
            });
            limited.or_else(|| open(&condition.breaker))
        });
        let longest = |one: Closed, other: Closed| match one.rest >= other.rest {
            true => one,
            false => other,
        };
        match (address, pair.flatten()) {
            (Some(address), Some(pair)) => Some(longest(address, pair)),
            (address, pair) => address.or(pair),
        }
    }

    /// A call that was let through was not made.
    pub(crate) fn unmade(&self, asking: Asking<'_>, now: Instant) {
        lock(&self.address).unmade(now);
        self.with(asking, |condition| condition.breaker.unmade(now));
    }

    /// A call that was let through has ended.
    pub(crate) fn ended(&self, asking: Asking<'_>, how: Ended<'_>, now: Instant) {
        if let Ended::NoAnswer(error) = how
            && !error.is_of_vendor()
        {
            return self.unmade(asking, now);
        }
        if let Ended::NoAnswer(
            UpstreamError::Unreachable(_) | UpstreamError::ConnectTimeout { .. },
        ) = how
        {
            lock(&self.address).failure(now, None);
            self.with(asking, |condition| condition.breaker.unmade(now));
            return;
        }
        // Something answers at the address.
        lock(&self.address).success(now);
        match how {
            Ended::Well => {
                self.with(asking, |condition| condition.breaker.success(now));
            }
            Ended::Limited(rest) => self.limited(asking, rest, now),
            Ended::Unwell(rest) => self.or_new(asking, now, |condition| {
                condition.breaker.failure(now, rest);
            }),
            Ended::NoAnswer(_) => self.or_new(asking, now, |condition| {
                condition.breaker.failure(now, None);
            }),
        }
    }

    /// The vendor's limit is no failure: it is told as what it is, and only waited for.
    fn limited(&self, asking: Asking<'_>, rest: Option<Duration>, now: Instant) {
        let until = rest.map(|rest| now + rest.min(LONGEST_REST));
        let note = |condition: &mut Condition| {
            condition.breaker.success(now);
            condition.limited_until = condition.limited_until.max(until);
        };
        match until {
            Some(_) => self.or_new(asking, now, note),
            None => drop(self.with(asking, note)),
        }
    }

    /// The worst that is known of it, for those who watch it.
    pub(crate) fn worst(&self, now: Instant) -> CircuitState {
        let address = lock(&self.address).state(now);
        let pairs = lock(&self.pairs);
        let pairs = pairs.values().map(|condition| condition.breaker.state(now));
        let rank = |state: &CircuitState| match state {
            CircuitState::Closed => 0,
            CircuitState::HalfOpen => 1,
            CircuitState::Open { .. } => 2,
        };
        pairs.fold(address, |worst, state| match rank(&state) > rank(&worst) {
            true => state,
            false => worst,
        })
    }

    fn with<T>(&self, asking: Asking<'_>, work: impl FnOnce(&mut Condition) -> T) -> Option<T> {
        if !self.has_pairs.load(Ordering::Relaxed) {
            return None;
        }
        lock(&self.pairs).get_mut(&asking.pair()).map(work)
    }

    fn or_new(&self, asking: Asking<'_>, now: Instant, work: impl FnOnce(&mut Condition)) {
        let mut pairs = lock(&self.pairs);
        if pairs.len() >= MAX_PAIRS {
            // Callers choose the names of models: what has healed makes room, and where nothing has,
            // a failure of one more pair is not remembered.
            pairs.retain(|_, condition| !condition.has_healed(now));
            if pairs.len() >= MAX_PAIRS {
                return;
            }
        }
        work(pairs.entry(asking.pair()).or_insert_with(|| Condition {
            breaker: CircuitBreaker::new(BreakerSettings::default()),
            limited_until: None,
        }));
        self.has_pairs.store(true, Ordering::Relaxed);
    }
}

impl Closed {
    fn broken(rest: Duration) -> Self {
        Self {
            rest,
            code: ErrorCode::CircuitBreakerOpen,
        }
    }
}

impl Asking<'_> {
    fn pair(&self) -> Pair {
        Pair {
            key: self.key,
            model: self.model.to_owned(),
        }
    }
}

impl Condition {
    fn has_healed(&self, now: Instant) -> bool {
        let limited = self.limited_until.is_some_and(|until| until > now);
        !limited && self.breaker.is_quiet(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Asking<'static> = Asking { key: 1, model: "m" };

    fn fail(health: &Health, asking: Asking<'_>, now: Instant) {
        for _ in 0..10 {
            health.ended(asking, Ended::Unwell(None), now);
        }
    }

    #[test]
    fn failures_close_an_upstream_for_the_pair_that_had_them() {
        let (health, now) = (Health::default(), Instant::now());
        fail(&health, ONE, now);
        let other_key = Asking { key: 2, ..ONE };
        let other_model = Asking { model: "n", ..ONE };
        let code = |asking| health.closed(asking, now).map(|closed| closed.code);
        assert_eq!(code(ONE), Some(ErrorCode::CircuitBreakerOpen));
        assert_eq!((code(other_key), code(other_model)), (None, None));
        assert!(health.allow(ONE, now).is_err());
        assert!(health.allow(other_key, now).is_ok());
        assert!(matches!(health.worst(now), CircuitState::Open { .. }));
        // One probe, which decides.
        let later = now + Duration::from_secs(16);
        assert!(health.allow(ONE, later).is_ok());
        assert!(health.allow(ONE, later).is_err());
        health.ended(ONE, Ended::Well, later);
        assert!(health.allow(ONE, later).is_ok());
    }

    #[test]
    fn an_address_that_does_not_answer_is_closed_for_all() {
        let (health, now) = (Health::default(), Instant::now());
        let gone = UpstreamError::Unreachable("refused".to_owned());
        for _ in 0..5 {
            health.ended(ONE, Ended::NoAnswer(&gone), now);
        }
        let other = Asking { key: 2, model: "n" };
        assert!(health.closed(other, now).is_some());
        let silent = UpstreamError::FirstByteTimeout { limit_ms: 1 };
        let health = Health::default();
        for _ in 0..5 {
            health.ended(ONE, Ended::NoAnswer(&silent), now);
        }
        assert!(health.closed(ONE, now).is_some());
        assert!(health.closed(other, now).is_none());
    }

    #[test]
    fn a_limit_stays_a_limit() {
        let (health, now) = (Health::default(), Instant::now());
        for _ in 0..20 {
            health.ended(ONE, Ended::Limited(None), now);
        }
        assert_eq!(health.closed(ONE, now), None);
        let wait = Duration::from_secs(7);
        health.ended(ONE, Ended::Limited(Some(wait)), now);
        let expected = Closed {
            rest: wait,
            code: ErrorCode::BackendRateLimited,
        };
        assert_eq!(health.closed(ONE, now), Some(expected));
        assert_eq!(health.closed(Asking { key: 2, ..ONE }, now), None);
        assert_eq!(health.closed(ONE, now + wait), None);
    }

    #[test]
    fn pairs_are_bounded_and_make_room() {
        let (health, now) = (Health::default(), Instant::now());
        let names: Vec<String> = (0..2 * MAX_PAIRS).map(|one| one.to_string()).collect();
        for model in &names {
            health.ended(Asking { key: 1, model }, Ended::Unwell(None), now);
        }
        assert_eq!(lock(&health.pairs).len(), MAX_PAIRS);
        let later = now + Duration::from_secs(60);
        fail(&health, ONE, later);
        assert_eq!(lock(&health.pairs).len(), 1);
    }
}
