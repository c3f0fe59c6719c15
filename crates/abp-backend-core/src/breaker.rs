//! Leaves a vendor alone that keeps failing, or that asks for it.

use std::time::{Duration, Instant};

/// The longest time a vendor is left alone: a mistaken `Retry-After` must not take it away for days.
pub const LONGEST_REST: Duration = Duration::from_secs(3_600);

/// When a breaker opens, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BreakerSettings {
    /// Failures within the window, at least, that open it.
    pub failures: u32,
    /// The share of all calls that they must be as well: five failures among thousands of calls are
    /// no reason to refuse the thousands.
    pub percent: u32,
    /// How long a call is remembered.
    pub window: Duration,
    /// How long the vendor is left alone where it does not say so itself.
    pub open_for: Duration,
}

impl Default for BreakerSettings {
    /// Five failures that are half of the calls of 30 s; 15 s of rest.
    fn default() -> Self {
        Self {
            failures: 5,
            percent: 50,
            window: Duration::from_secs(30),
            open_for: Duration::from_secs(15),
        }
    }
}

/// Whether a vendor may be called, by how its last calls ended. Time enters as a value.
///
/// Closed until too many calls fail; then open for a while; then half open: one call is let through,
/// and its end decides. A call whose end is never told counts as failed once its time is up.
#[derive(Debug)]
pub struct CircuitBreaker {
    settings: BreakerSettings,
    state: State,
}

/// What a breaker does with calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CircuitState {
    /// They are made.
    Closed,
    /// They are refused.
    Open {
        /// Until then.
        retry_in: Duration,
    },
    /// One may be made, or is under way; the others are refused.
    HalfOpen,
}

#[derive(Debug)]
enum State {
    Closed(Window),
    Open { until: Instant },
    HalfOpen { probed_at: Instant },
}

impl CircuitBreaker {
    /// A closed breaker.
    #[must_use]
    pub fn new(settings: BreakerSettings) -> Self {
        Self {
            settings,
            state: State::Closed(Window::default()),
        }
    }

    /// Whether a call may be made now. Who is let through tells how the call ended.
    ///
    /// # Errors
    /// Says how long to wait where it may not.
    pub fn allow(&mut self, now: Instant) -> Result<(), Duration> {
        let closed_until = match self.state {
            State::Closed(_) => return Ok(()),
            State::Open { until } => until,
            State::HalfOpen { probed_at } => probed_at + self.rest(),
        };
        if now < closed_until {
            return Err(closed_until - now);
        }
        self.state = State::HalfOpen { probed_at: now };
        Ok(())
    }

    /// A call that was let through was not made.
    pub fn unmade(&mut self, now: Instant) {
        if let State::HalfOpen { .. } = self.state {
            // Whoever comes next may probe.
            self.state = State::Open { until: now };
        }
    }

    /// A call succeeded.
    pub fn success(&mut self, now: Instant) {
        match &mut self.state {
            State::Closed(window) => window.counts(now, self.settings.window).calls += 1,
            State::HalfOpen { .. } => self.state = State::Closed(Window::default()),
            // It was made before the others failed.
            State::Open { .. } => {}
        }
    }

    /// A call failed; `retry_after` is the time for which the vendor asks to be left alone.
    pub fn failure(&mut self, now: Instant, retry_after: Option<Duration>) {
        if let Some(rest) = retry_after.filter(|rest| !rest.is_zero()) {
            return self.open(now, rest.min(LONGEST_REST));
        }
        let BreakerSettings {
            failures,
            percent,
            window: length,
            ..
        } = self.settings;
        let too_many = match &mut self.state {
            State::Closed(window) => {
                let counts = window.counts(now, length);
                counts.calls += 1;
                counts.failures += 1;
                let sum = window.sum();
                sum.failures >= u64::from(failures)
                    && sum.failures * 100 >= sum.calls * u64::from(percent)
            }
            State::HalfOpen { .. } => true,
            State::Open { .. } => false,
        };
        if too_many {
            self.open(now, self.rest());
        }
    }

    /// What would be done with a call now.
    #[must_use]
    pub fn state(&self, now: Instant) -> CircuitState {
        match self.state {
            State::Closed(_) => CircuitState::Closed,
            State::Open { until } if now < until => CircuitState::Open {
                retry_in: until - now,
            },
            State::Open { .. } | State::HalfOpen { .. } => CircuitState::HalfOpen,
        }
    }

    /// Whether nothing that it remembers speaks against a call.
    #[must_use]
    pub fn is_quiet(&self, now: Instant) -> bool {
        match &self.state {
            State::Closed(window) => {
                let began = window.half_began;
                let age = began.map(|began| now.saturating_duration_since(began));
                window.sum().failures == 0 || age.is_some_and(|age| age >= self.settings.window)
            }
            State::Open { .. } | State::HalfOpen { .. } => false,
        }
    }

    fn rest(&self) -> Duration {
        self.settings.open_for.min(LONGEST_REST)
    }

    fn open(&mut self, now: Instant, rest: Duration) {
        let asked = now + rest;
        let until = match self.state {
            State::Open { until } => until.max(asked),
            State::Closed(_) | State::HalfOpen { .. } => asked,
        };
        self.state = State::Open { until };
    }
}

/// The calls of the last while, as those of the current half of it and of the half before.
#[derive(Debug, Default)]
struct Window {
    half_began: Option<Instant>,
    current: Counts,
    before: Counts,
}

#[derive(Debug, Default, Clone, Copy)]
struct Counts {
    calls: u64,
    failures: u64,
}

impl Window {
    /// The counts of the half that `now` is in.
    fn counts(&mut self, now: Instant, length: Duration) -> &mut Counts {
        let half = length / 2;
        let began = *self.half_began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        if age >= half {
            let adjacent = age < length;
            self.before = if adjacent {
                self.current
            } else {
                Counts::default()
            };
            self.current = Counts::default();
            self.half_began = Some(if adjacent { began + half } else { now });
        }
        &mut self.current
    }

    fn sum(&self) -> Counts {
        Counts {
            calls: self.current.calls + self.before.calls,
            failures: self.current.failures + self.before.failures,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone, Copy)]
    enum Step {
        /// Asks for a call and is let through.
        Allowed,
        /// Asks for a call and is to wait so many seconds.
        Refused(u64),
        Good,
        Bad,
        /// Fails, and the vendor names so many seconds.
        BadFor(u64),
        Unmade,
    }

    use Step::{Allowed, Bad, BadFor, Good, Refused, Unmade};

    fn check(name: &str, steps: &[(u64, Step)]) {
        let start = Instant::now();
        let mut breaker = CircuitBreaker::new(BreakerSettings {
            failures: 3,
            percent: 50,
            window: Duration::from_secs(10),
            open_for: Duration::from_secs(5),
        });
        for (index, &(second, step)) in steps.iter().enumerate() {
            let now = start + Duration::from_secs(second);
            let wanted = match step {
                Allowed => Ok(()),
                Refused(wait) => Err(Duration::from_secs(wait)),
                Good => {
                    breaker.success(now);
                    continue;
                }
                Bad => {
                    breaker.failure(now, None);
                    continue;
                }
                Unmade => {
                    breaker.unmade(now);
                    continue;
                }
                BadFor(rest) => {
                    breaker.failure(now, Some(Duration::from_secs(rest)));
                    continue;
                }
            };
            assert_eq!(breaker.allow(now), wanted, "{name}, step {index}");
        }
    }

    #[test]
    fn whoever_does_not_probe_gives_the_probe_back() {
        check(
            "a probe that was not made",
            &[
                (0, Bad),
                (0, Bad),
                (0, Bad),
                (5, Allowed),
                (6, Unmade),
                (6, Allowed),
                (6, Refused(5)),
            ],
        );
    }

    #[test]
    fn it_opens_rests_probes_and_closes() {
        check(
            "failures in a row",
            &[(0, Bad), (1, Bad), (1, Allowed), (2, Bad), (3, Refused(4))],
        );
        check(
            "one probe, which succeeds",
            &[
                (0, Bad),
                (0, Bad),
                (0, Bad),
                (4, Refused(1)),
                (5, Allowed),
                (5, Refused(5)),
                (6, Good),
                (6, Allowed),
                (6, Allowed),
                (6, Bad),
                (6, Allowed),
            ],
        );
        check(
            "a probe that fails",
            &[
                (0, Bad),
                (0, Bad),
                (0, Bad),
                (5, Allowed),
                (7, Bad),
                (8, Refused(4)),
            ],
        );
        check(
            "a probe that nobody hears of again",
            &[
                (0, Bad),
                (0, Bad),
                (0, Bad),
                (5, Allowed),
                (9, Refused(1)),
                (10, Allowed),
            ],
        );
        check(
            "failures too far apart",
            &[
                (0, Bad),
                (6, Bad),
                (12, Bad),
                (18, Bad),
                (24, Bad),
                (24, Allowed),
            ],
        );
        check(
            "failures across the middle of the window",
            &[(0, Good), (4, Bad), (4, Bad), (5, Bad), (5, Refused(5))],
        );
        check(
            "failures that are few among the calls",
            &[
                (0, Good),
                (0, Good),
                (0, Good),
                (0, Good),
                (1, Bad),
                (1, Bad),
                (1, Bad),
                (1, Allowed),
            ],
        );
        check(
            "the vendor's own word, at the first failure",
            &[
                (0, BadFor(30)),
                (29, Refused(1)),
                (30, Allowed),
                (30, Refused(5)),
            ],
        );
        check(
            "a shorter word does not shorten a longer one",
            &[
                (0, BadFor(30)),
                (1, BadFor(2)),
                (2, Bad),
                (5, Good),
                (5, Refused(25)),
            ],
        );
        check(
            "a word that is too long",
            &[(0, BadFor(1 << 40)), (0, Refused(3_600))],
        );
        check(
            "no time at all is a failure like others",
            &[(0, BadFor(0)), (0, Allowed)],
        );
    }

    proptest! {
        /// Whatever happens: who waits as told gets through, and an open breaker lets one call through
        /// per rest.
        #[test]
        fn waiting_as_told_is_enough(steps in proptest::collection::vec((0u64..8, 0u8..4), 1..200)) {
            let mut now = Instant::now();
            let settings = BreakerSettings::default();
            let mut breaker = CircuitBreaker::new(settings);
            let mut probed: Option<Instant> = None;
            for (seconds, step) in steps {
                now += Duration::from_secs(seconds);
                let state = breaker.state(now);
                match step {
                    0 => breaker.success(now),
                    1 => breaker.failure(now, None),
                    2 => breaker.failure(now, Some(Duration::from_secs(seconds))),
                    _ => {}
                }
                if step != 3 {
                    probed = None;
                    continue;
                }
                match breaker.allow(now) {
                    Ok(()) if state == CircuitState::Closed => {}
                    Ok(()) => {
                        prop_assert!(probed.is_none_or(|last| now >= last + settings.open_for));
                        probed = Some(now);
                    }
                    Err(wait) => {
                        prop_assert!(!wait.is_zero() && wait <= LONGEST_REST);
                        now += wait;
                        prop_assert_eq!(breaker.allow(now), Ok(()));
                        probed = Some(now);
                    }
                }
            }
        }
    }
}
