//! Money as integer micro-dollars.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;

/// An amount in millionths of a US dollar. Floating point appears only on the wire.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MicroUsd(u64);

impl MicroUsd {
    const PER_DOLLAR: f64 = 1_000_000.0;

    /// An amount from micro-dollars.
    #[must_use]
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// The amount in micro-dollars.
    #[must_use]
    pub const fn micros(self) -> u64 {
        self.0
    }

    /// Reads a dollar figure from the wire, rounded to the nearest micro-dollar.
    ///
    /// `None` for figures that are negative, not finite, or beyond what a double holds exactly.
    #[must_use]
    pub fn from_dollars(dollars: f64) -> Option<Self> {
        let micros = (dollars * Self::PER_DOLLAR).round();
        let exact = 0.0..=9_007_199_254_740_991.0;
        // The range makes the conversion exact.
        exact.contains(&micros).then_some(Self(micros as u64))
    }

    /// The amount as a dollar figure for the wire.
    #[must_use]
    pub fn dollars(self) -> f64 {
        self.0 as f64 / Self::PER_DOLLAR
    }
}

impl Add for MicroUsd {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl Sum for MicroUsd {
    fn sum<I: Iterator<Item = Self>>(amounts: I) -> Self {
        amounts.fold(Self::default(), Add::add)
    }
}

impl fmt::Display for MicroUsd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${}.{:06}", self.0 / 1_000_000, self.0 % 1_000_000)
    }
}
