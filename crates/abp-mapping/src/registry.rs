//! Rules, found by their pair and feature.

use std::collections::BTreeMap;

use abp_dialect::Dialect;

use crate::{Feature, Fidelity, MappingRule};

/// What a feature counts that is carried with a labelled loss.
const LOSSY_SHARE: f64 = 0.5;

/// How much of what a request uses a pair of dialects carries.
#[derive(Debug, Clone, PartialEq)]
pub struct PairFidelity {
    /// From 0 (nothing arrives) to 1 (everything arrives as it was): a feature counts one where it is
    /// carried without loss, a half where something of it is lost, and nothing where it is refused.
    pub score: f64,
    /// A sentence for every feature that does not arrive as it was.
    pub losses: Vec<String>,
}

/// Rules by source, target and feature; there is one for each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MappingRegistry {
    rules: BTreeMap<(Dialect, Dialect, Feature), MappingRule>,
}

impl MappingRegistry {
    /// A registry without rules.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a rule, in the place of one for the same pair and feature.
    pub fn insert(&mut self, rule: MappingRule) {
        let key = (rule.source_dialect, rule.target_dialect, rule.feature);
        self.rules.insert(key, rule);
    }

    /// The rule for a pair and a feature; `None` where the source has no such feature.
    #[must_use]
    pub fn lookup(&self, from: Dialect, to: Dialect, feature: Feature) -> Option<&MappingRule> {
        self.rules.get(&(from, to, feature))
    }

    /// How much of these features a pair carries. Features without a rule are not the source's and
    /// take nothing away.
    #[must_use]
    pub fn fidelity<'f>(
        &self,
        from: Dialect,
        to: Dialect,
        features: impl IntoIterator<Item = &'f Feature>,
    ) -> PairFidelity {
        let (mut count, mut sum) = (0_u32, 0.0);
        let mut losses = Vec::new();
        let rules = features.into_iter();
        for rule in rules.filter_map(|feature| self.lookup(from, to, *feature)) {
            count += 1;
            sum += match &rule.fidelity {
                Fidelity::Lossless => 1.0,
                Fidelity::LossyLabeled { warning } => {
                    losses.push(format!("{} arrives with a loss: {warning}", rule.feature));
                    LOSSY_SHARE
                }
                Fidelity::Unsupported { reason } => {
                    losses.push(format!("{} does not arrive: {reason}", rule.feature));
                    0.0
                }
            };
        }
        let score = if count == 0 {
            1.0
        } else {
            sum / f64::from(count)
        };
        PairFidelity { score, losses }
    }

    /// Every rule, by source, target and feature.
    pub fn iter(&self) -> impl Iterator<Item = &MappingRule> {
        self.rules.values()
    }

    /// How many rules there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.rules.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.rules.is_empty()
    }
}
