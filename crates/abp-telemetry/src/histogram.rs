//! Durations by size, and the counters beneath everything here.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::DurationSummary;

/// A number that only grows, or that is set. Nothing depends on the order of updates.
#[derive(Debug, Default)]
pub(crate) struct Counter(AtomicU64);

impl Counter {
    pub(crate) fn add(&self, more: u64) {
        if more > 0 {
            self.0.fetch_add(more, Ordering::Relaxed);
        }
    }

    pub(crate) fn take_away(&self, less: u64) {
        self.0.fetch_sub(less, Ordering::Relaxed);
    }

    pub(crate) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(crate) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// Buckets to a doubling: a percentile is at most an eighth too high.
const STEPS: u64 = 8;
const STEP_BITS: u32 = STEPS.trailing_zeros();
/// Durations are counted in microseconds; what is longer than 2^40 of them (12 days) counts as
/// that.
const MAX_BITS: u32 = 40;
const BUCKETS: usize = ((MAX_BITS - STEP_BITS + 1) as usize) * STEPS as usize;

/// The bounds that are told: every doubling from about a millisecond to about 18 minutes.
const FIRST_BOUND: u32 = 10;
const LAST_BOUND: u32 = 30;

/// Durations by size.
#[derive(Debug)]
pub(crate) struct Histogram {
    buckets: [Counter; BUCKETS],
    sum_us: Counter,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: std::array::from_fn(|_| Counter::default()),
            sum_us: Counter::default(),
        }
    }
}

impl Histogram {
    pub(crate) fn record(&self, duration: Duration) {
        let us = u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
        let us = us.min((1 << MAX_BITS) - 1);
        if let Some(bucket) = self.buckets.get(bucket_of(us)) {
            bucket.add(1);
        }
        self.sum_us.add(us);
    }

    pub(crate) fn summary(&self) -> DurationSummary {
        let counts: Vec<u64> = self.buckets.iter().map(Counter::get).collect();
        let count: u64 = counts.iter().sum();
        let percentile = |share: u64| {
            let rank = (count * share).div_ceil(100).max(1);
            let mut so_far = 0;
            let found = counts.iter().position(|bucket| {
                so_far += bucket;
                so_far >= rank
            });
            Duration::from_micros(found.map_or(0, last_of))
        };
        let bounds = (FIRST_BOUND..=LAST_BOUND).map(|bits| {
            let below = counts.iter().take(bucket_of(1 << bits)).sum();
            (Duration::from_micros(1 << bits), below)
        });
        DurationSummary {
            count,
            sum: Duration::from_micros(self.sum_us.get()),
            p50: percentile(50),
            p95: percentile(95),
            p99: percentile(99),
            below: bounds.collect(),
        }
    }
}

/// The bucket of a duration: the small ones have one each, then each doubling has as many.
fn bucket_of(us: u64) -> usize {
    let doublings = (u64::BITS - us.leading_zeros()).saturating_sub(STEP_BITS + 1);
    ((us >> doublings) + u64::from(doublings) * STEPS) as usize
}

/// The longest duration of a bucket.
fn last_of(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    let doublings = (bucket / STEPS).saturating_sub(1);
    ((bucket - doublings * STEPS + 1) << doublings) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_follow_each_other_without_a_gap() {
        let mut last = None;
        for bucket in 0..BUCKETS {
            let end = last_of(bucket);
            assert_eq!(bucket_of(end), bucket);
            let start = last.map_or(0, |last| last + 1);
            assert_eq!(bucket_of(start), bucket, "{start}");
            assert!(end - start <= start / STEPS, "{start}..={end} is too wide");
            last = Some(end);
        }
        assert_eq!(last, Some((1 << MAX_BITS) - 1));
    }

    #[test]
    fn percentiles_are_an_eighth_too_high_at_most() {
        let histogram = Histogram::default();
        assert_eq!(histogram.summary().p99, Duration::ZERO);
        for ms in 1..=1_000 {
            histogram.record(Duration::from_millis(ms));
        }
        histogram.record(Duration::MAX);
        let summary = histogram.summary();
        let cases = [(summary.p50, 501), (summary.p95, 951), (summary.p99, 991)];
        for (found, exact) in cases {
            let exact = Duration::from_millis(exact);
            assert!(
                found >= exact && found <= exact * 9 / 8,
                "{found:?} {exact:?}"
            );
        }
        assert_eq!(summary.count, 1_001);
        let below: Vec<_> = summary.below.iter().map(|(_, count)| *count).collect();
        assert_eq!(below[..4], [1, 2, 4, 8], "1.024, 2.048, 4.096 and 8.192 ms");
        assert_eq!(below.last(), Some(&1_000));
    }
}
