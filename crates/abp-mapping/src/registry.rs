//! Rules, found by their pair and feature.

use std::collections::BTreeMap;

use abp_dialect::Dialect;

use crate::{Feature, MappingRule};

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
