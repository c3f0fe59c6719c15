//! Figures of interleaved rounds.

use std::time::Duration;

/// One figure for each round.
#[derive(Debug, Clone, Default)]
pub(super) struct Series(Vec<f64>);

impl Series {
    pub(super) fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
    }

    /// By how much more, round by round.
    pub(super) fn minus(&self, floor: &Self) -> Self {
        let rounds = self.0.iter().zip(&floor.0);
        rounds.map(|(figure, floor)| figure - floor).collect()
    }

    /// How many times as much, round by round.
    pub(super) fn over(&self, floor: &Self) -> Self {
        let rounds = self.0.iter().zip(&floor.0);
        rounds.map(|(figure, floor)| figure / floor).collect()
    }
}

impl FromIterator<f64> for Series {
    fn from_iter<I: IntoIterator<Item = f64>>(figures: I) -> Self {
        Self(figures.into_iter().collect())
    }
}

impl Extend<f64> for Series {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, figures: I) {
        self.0.extend(figures);
    }
}

/// The time that this share of all times does not exceed.
pub(super) fn percentile(times: &mut [Duration], share: f64) -> Duration {
    times.sort_unstable();
    let last = times.len().saturating_sub(1);
    let at = (last as f64 * share).round() as usize;
    times.get(at).copied().unwrap_or_default()
}

pub(super) fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

pub(super) fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_each_other() {
        let ours = Series::from_iter([2.0, 30.0, 8.0]);
        let floor = Series::from_iter([1.0, 10.0, 2.0]);
        assert_eq!(ours.over(&floor).median(), 3.0);
        assert_eq!(ours.minus(&floor).median(), 6.0);
    }

    #[test]
    fn percentiles_count_from_the_shortest() {
        let mut times: Vec<_> = (0..=100).rev().map(Duration::from_millis).collect();
        for (share, expected) in [(0.0, 0), (0.5, 50), (0.99, 99), (1.0, 100)] {
            let found = percentile(&mut times, share);
            assert_eq!(found, Duration::from_millis(expected), "{share}");
        }
    }
}
