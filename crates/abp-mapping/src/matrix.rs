//! Which dialect can stand in for which.

use abp_dialect::Dialect;

use crate::{Feature, MappingRegistry};

/// Yes or no for every pair: whether the features in question arrive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MappingMatrix {
    supported: Vec<(Dialect, Dialect)>,
}

impl MappingMatrix {
    /// The pairs for which none of the features is unsupported. Features that the source does not
    /// have stand in nobody's way.
    #[must_use]
    pub fn from_registry(registry: &MappingRegistry, features: &[Feature]) -> Self {
        let arrives = |from, to| {
            features.iter().all(|feature| {
                registry
                    .lookup(from, to, *feature)
                    .is_none_or(|rule| !rule.fidelity.is_unsupported())
            })
        };
        let pairs = Dialect::ALL
            .iter()
            .flat_map(|from| Dialect::ALL.iter().map(move |to| (*from, *to)));
        Self {
            supported: pairs.filter(|(from, to)| arrives(*from, *to)).collect(),
        }
    }

    /// Whether the features arrive.
    #[must_use]
    pub fn is_supported(&self, from: Dialect, to: Dialect) -> bool {
        self.supported.contains(&(from, to))
    }
}
