//! Money as integer micro-dollars, and what models cost.

use std::collections::BTreeMap;
use std::fmt;
use std::iter::Sum;
use std::ops::Add;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::UsageNormalized;

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

/// What a model costs, in dollars.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ModelPrice {
    /// For a million tokens read.
    #[schemars(range(min = 0))]
    pub input_usd_per_mtok: f64,
    /// For a million tokens written.
    #[schemars(range(min = 0))]
    pub output_usd_per_mtok: f64,
    /// For a million tokens read from a cache.
    #[schemars(range(min = 0))]
    pub cache_read_usd_per_mtok: f64,
    /// For a million tokens written to a cache.
    #[schemars(range(min = 0))]
    pub cache_write_usd_per_mtok: f64,
    /// For one request, where a vendor bills by request.
    #[schemars(range(min = 0))]
    pub request_usd: f64,
}

impl ModelPrice {
    /// Every rate.
    #[must_use]
    pub fn rates(&self) -> [f64; 5] {
        [
            self.input_usd_per_mtok,
            self.output_usd_per_mtok,
            self.cache_read_usd_per_mtok,
            self.cache_write_usd_per_mtok,
            self.request_usd,
        ]
    }

    /// What the usage costs, rounded up to the micro-dollar.
    #[must_use]
    pub fn cost(&self, usage: &UsageNormalized) -> MicroUsd {
        let per_mtok = [
            (usage.input_tokens, self.input_usd_per_mtok),
            (usage.output_tokens, self.output_usd_per_mtok),
            (usage.cache_read_tokens, self.cache_read_usd_per_mtok),
            (usage.cache_write_tokens, self.cache_write_usd_per_mtok),
        ];
        let tokens = per_mtok
            .into_iter()
            .map(|(count, rate)| charge(count, rate, 1_000_000));
        tokens
            .chain([charge(usage.request_units, self.request_usd, 1)])
            .sum()
    }
}

/// `count` units at `rate` dollars for every `per` of them.
fn charge(count: Option<u64>, rate: f64, per: u128) -> MicroUsd {
    let rate = u128::from(MicroUsd::from_dollars(rate).unwrap_or_default().micros());
    let exact = u128::from(count.unwrap_or(0)) * rate;
    MicroUsd::from_micros(u64::try_from(exact.div_ceil(per)).unwrap_or(u64::MAX))
}

/// Prices by model. `*` is for every model that has no entry of its own.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PriceTable {
    prices: BTreeMap<String, ModelPrice>,
}

impl PriceTable {
    /// The price of a model.
    #[must_use]
    pub fn get(&self, model: Option<&str>) -> Option<&ModelPrice> {
        model
            .and_then(|model| self.prices.get(model))
            .or_else(|| self.prices.get("*"))
    }

    /// The price of a model that has an entry of its own.
    #[must_use]
    pub fn exact(&self, model: &str) -> Option<&ModelPrice> {
        self.prices.get(model)
    }

    /// Sets the price of a model.
    pub fn set(&mut self, model: impl Into<String>, price: ModelPrice) {
        self.prices.insert(model.into(), price);
    }

    /// The first model with a price that is negative or not a number.
    #[must_use]
    pub fn first_invalid(&self) -> Option<&str> {
        let valid = |price: &ModelPrice| {
            price
                .rates()
                .into_iter()
                .all(|rate| MicroUsd::from_dollars(rate).is_some())
        };
        self.prices
            .iter()
            .find(|(_, price)| !valid(price))
            .map(|(model, _)| model.as_str())
    }
}
