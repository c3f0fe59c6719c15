//! Whether, when and how often a request is sent again.

use std::time::{Duration, SystemTime};

use http::{HeaderMap, StatusCode};

/// Whether an answer of this status may be different the next time.
///
/// A vendor that answers so has not begun to generate, or says that it failed while doing so:
/// - 408, 425: the request did not arrive in full, or too early;
/// - 409: both OpenAI and Anthropic report a lock that could not be had in time so, and their own
///   clients try again;
/// - 429, 503, 529: too much at once, by the caller's share or by all;
/// - 500, 502, 504: something broke on the way.
///
/// Everything else says something about the request itself, which would be the same again.
#[must_use]
pub fn is_retryable(status: StatusCode) -> bool {
    matches!(
        status.as_u16(),
        408 | 409 | 425 | 429 | 500 | 502 | 503 | 504 | 529
    )
}

/// The time for which a vendor asks to be left alone; `None` where it names none, or none that can be
/// understood.
///
/// `retry-after` is in seconds or a date; `retry-after-ms`, which OpenAI sends beside it, is finer.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = |name| Some(headers.get(name)?.to_str().ok()?.trim());
    let milliseconds = text("retry-after-ms").and_then(|text| seconds(text, 1_000.0));
    milliseconds.or_else(|| {
        let text = text("retry-after")?;
        seconds(text, 1.0).or_else(|| {
            let date = httpdate::parse_http_date(text).ok()?;
            Some(date.duration_since(now).unwrap_or_default())
        })
    })
}

/// A number of which there are so many to a second. Some vendors send fractions.
fn seconds(text: &str, per_second: f64) -> Option<Duration> {
    let number: f64 = text.parse().ok()?;
    Duration::try_from_secs_f64(number / per_second).ok()
}

/// How many requests may be sent again: a share of those that were sent, and a few besides.
///
/// Where a vendor answers everything with an error, sending again makes it worse. So retries are paid
/// for: every request adds a part of one, every retry takes a whole one.
#[derive(Debug, Clone)]
pub struct RetryBudget {
    percent: u64,
    /// In hundredths of a retry.
    balance: u64,
    most: u64,
}

impl RetryBudget {
    /// The most that can be saved up beyond the floor: a quiet day must not pay for a storm.
    const SAVINGS: u64 = 100;

    /// A budget of `percent` of all requests, and `floor` retries that need no request.
    #[must_use]
    pub fn new(percent: u32, floor: u32) -> Self {
        let floor = u64::from(floor);
        Self {
            percent: u64::from(percent),
            balance: floor * 100,
            most: (floor + Self::SAVINGS) * 100,
        }
    }

    /// A request is sent for the first time.
    pub fn request(&mut self) {
        self.balance = (self.balance + self.percent).min(self.most);
    }

    /// Takes a retry from the budget; `false` where there is none.
    pub fn try_retry(&mut self) -> bool {
        let left = self.balance.checked_sub(100);
        self.balance = left.unwrap_or(self.balance);
        left.is_some()
    }
}

impl Default for RetryBudget {
    /// A tenth of all requests, and ten.
    fn default() -> Self {
        Self::new(10, 10)
    }
}

/// How long to wait before a request is sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The longest wait before the first retry; it doubles with every further one.
    pub first: Duration,
    /// The longest wait of all.
    pub longest: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_millis(500),
            longest: Duration::from_secs(8),
        }
    }
}

impl Backoff {
    /// The wait before a retry, counted from 0. All of it is chance (`random` is any 64 bits), so that
    /// those who failed together do not come back together.
    #[must_use]
    pub fn wait(&self, retry: u32, random: u64) -> Duration {
        let doubled = self.first.saturating_mul(1 << retry.min(30));
        let most = doubled.min(self.longest).as_nanos();
        // Nanoseconds of any wait that makes sense leave room for the product.
        let share = most.saturating_mul(u128::from(random)) >> 64;
        Duration::from_nanos(u64::try_from(share).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn statuses_worth_another_try() {
        let retried: Vec<u16> = (100..600)
            .filter(|&status| is_retryable(StatusCode::from_u16(status).unwrap()))
            .collect();
        assert_eq!(retried, [408, 409, 425, 429, 500, 502, 503, 504, 529]);
    }

    #[test]
    fn the_vendors_word_is_read_in_every_form() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_770);
        let check = |name: &'static str, value: &'static [u8], expected: Option<f64>| {
            let mut headers = HeaderMap::new();
            headers.insert(name, HeaderValue::from_bytes(value).unwrap());
            assert_eq!(
                retry_after(&headers, now),
                expected.map(Duration::from_secs_f64),
                "{name}: {}",
                String::from_utf8_lossy(value)
            );
        };
        check("retry-after", b"3", Some(3.0));
        check("retry-after", b" 0 ", Some(0.0));
        check("retry-after", b"1.5", Some(1.5));
        check("retry-after-ms", b"250", Some(0.25));
        check("retry-after", b"Sun, 06 Nov 1994 08:49:37 GMT", Some(7.0));
        check("retry-after", b"Sunday, 06-Nov-94 08:49:37 GMT", Some(7.0));
        check("retry-after", b"Sat, 06 Nov 1993 08:49:37 GMT", Some(0.0));
        for nonsense in ["", "-3", "inf", "nan", "1e400", "soon", "Sun, 99 Nov 1994"] {
            check("retry-after", nonsense.as_bytes(), None);
        }
        check("retry-after", b"\xff", None);
        let both = [("retry-after", "2"), ("retry-after-ms", "1200")];
        let both = both.map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers = HeaderMap::from_iter(both);
        assert_eq!(
            retry_after(&headers, now),
            Some(Duration::from_millis(1200))
        );
    }

    #[test]
    fn b20_a_vendor_that_fails_always_is_asked_little_more_than_once() {
        for (requests, floor) in [(1u64, 0u32), (5, 10), (1_000, 10), (100_000, 3)] {
            let mut budget = RetryBudget::new(10, floor);
            let mut attempts = 0;
            for _ in 0..requests {
                budget.request();
                attempts += 1;
                // Three attempts each, were there no budget.
                attempts += (0..2).filter(|_| budget.try_retry()).count() as u64;
            }
            assert!(
                attempts * 10 <= requests * 11 + u64::from(floor) * 10,
                "{attempts} attempts for {requests} requests"
            );
            // The budget is there to be used, too.
            let wanted = (requests / 10 + u64::from(floor)).min(requests * 2);
            assert!(
                attempts >= requests + wanted - 1,
                "{attempts} for {requests}"
            );
        }
    }

    #[test]
    fn b20_a_quiet_day_does_not_pay_for_a_storm() {
        let mut budget = RetryBudget::new(10, 10);
        (0..1_000_000).for_each(|_| budget.request());
        assert_eq!((0..10_000).filter(|_| budget.try_retry()).count(), 110);
    }

    proptest! {
        #[test]
        fn b20_waits_are_chance_within_a_bound_that_doubles(retry in 0u32..40, random: u64) {
            let backoff = Backoff::default();
            let wait = backoff.wait(retry, random);
            let bound = Duration::from_millis(500 << retry.min(4));
            prop_assert!(wait < bound.max(Duration::from_nanos(1)));
            prop_assert!(bound - backoff.wait(retry, u64::MAX) < Duration::from_micros(1));
            prop_assert_eq!(backoff.wait(retry, 0), Duration::ZERO);
            prop_assert!(backoff.wait(retry, random / 2) <= wait);
        }
    }
}
