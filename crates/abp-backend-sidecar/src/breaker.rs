//! Keeps a sidecar that cannot start from being started over and over.

use std::time::Duration;

/// The wait after the first failure; it doubles with every further one.
const FIRST_WAIT: Duration = Duration::from_millis(100);
/// The longest wait.
const LONGEST_WAIT: Duration = Duration::from_secs(30);
/// So many failures in a row, and nobody is kept waiting any more: attempts are refused.
const OPEN_AFTER: u32 = 5;

/// Counts failures in a row. Time enters as a value, counted from any fixed moment.
#[derive(Debug, Default)]
pub struct Breaker {
    failures: u32,
    retry_at: Duration,
}

/// Whether an attempt may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// At once.
    Closed,
    /// After a wait.
    BackingOff {
        /// Failures in a row.
        failures: u32,
        /// How long to wait.
        wait: Duration,
    },
    /// Not now.
    Open {
        /// Failures in a row.
        failures: u32,
        /// When one attempt may be made again.
        retry_in: Duration,
    },
}

impl Breaker {
    /// Whether an attempt may be made now.
    #[must_use]
    pub fn state(&self, now: Duration) -> BreakerState {
        let failures = self.failures;
        let wait = self.retry_at.saturating_sub(now);
        if failures == 0 || wait.is_zero() {
            BreakerState::Closed
        } else if failures < OPEN_AFTER {
            BreakerState::BackingOff { failures, wait }
        } else {
            let retry_in = wait;
            BreakerState::Open { failures, retry_in }
        }
    }

    /// An attempt failed.
    pub fn failed(&mut self, now: Duration) {
        let doubled = FIRST_WAIT.saturating_mul(1 << self.failures.min(16));
        self.failures = self.failures.saturating_add(1);
        self.retry_at = now + doubled.min(LONGEST_WAIT);
    }

    /// An attempt succeeded.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c22_a_restart_storm_backs_off_opens_and_recovers() {
        let mut breaker = Breaker::default();
        let mut now = Duration::ZERO;
        let mut attempts = 0;
        // An hour of somebody who tries as soon as it is allowed.
        while now < Duration::from_secs(3_600) {
            match breaker.state(now) {
                BreakerState::Closed => {
                    attempts += 1;
                    breaker.failed(now);
                }
                BreakerState::BackingOff { failures, wait } => {
                    assert!(failures < OPEN_AFTER && wait <= Duration::from_millis(1_600));
                    now += wait;
                }
                BreakerState::Open { failures, retry_in } => {
                    assert!(failures >= OPEN_AFTER && retry_in <= LONGEST_WAIT);
                    now += retry_in;
                }
            }
        }
        assert!((120..=140).contains(&attempts), "{attempts} attempts");
        breaker.succeeded();
        assert_eq!(breaker.state(now), BreakerState::Closed);
        breaker.failed(now);
        let wait = FIRST_WAIT;
        assert_eq!(
            breaker.state(now),
            BreakerState::BackingOff { failures: 1, wait }
        );
    }
}
