//! The rules as they are today.

use abp_dialect::Dialect;

use crate::{Feature, Fidelity, MappingRegistry, MappingRule};

/// One feature between all pairs.
struct Grid {
    feature: Feature,
    /// A row for each source and a column for each target, in the order of [`Dialect::ALL`]:
    /// `=` lossless, `~` lossy, `x` unsupported, `.` the source has no such feature.
    cells: [&'static str; 6],
    /// What is lost where it is lossy.
    warning: &'static str,
    /// Why it is unsupported where it is.
    reason: &'static str,
}

const GRIDS: [Grid; 0] = [];

/// The registry of everything known: every feature between every ordered pair of dialects.
#[must_use]
pub fn known_rules() -> MappingRegistry {
    let mut registry = MappingRegistry::new();
    for grid in &GRIDS {
        for (from, row) in Dialect::ALL.into_iter().zip(grid.cells) {
            for (to, cell) in Dialect::ALL.into_iter().zip(row.chars()) {
                if let Some(fidelity) = grid.fidelity(cell) {
                    registry.insert(MappingRule {
                        source_dialect: from,
                        target_dialect: to,
                        feature: grid.feature,
                        fidelity,
                    });
                }
            }
        }
    }
    registry
}

impl Grid {
    fn fidelity(&self, cell: char) -> Option<Fidelity> {
        match cell {
            '=' => Some(Fidelity::Lossless),
            '~' => Some(Fidelity::LossyLabeled {
                warning: self.warning.to_owned(),
            }),
            'x' => Some(Fidelity::Unsupported {
                reason: self.reason.to_owned(),
            }),
            _ => None,
        }
    }
}
