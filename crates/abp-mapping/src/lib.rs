//! What survives between two dialects, feature by feature.
//!
//! [`known_rules`] says for every feature and every ordered pair of dialects whether it is carried
//! without loss, with a labelled loss, or not at all. The table is data, not a promise: a test
//! translates a request with each feature between every pair and compares what the codecs did.
//! [`features_of`] finds the features that a request uses, and [`MappingRegistry::fidelity`] says how
//! much of them a pair of dialects carries: that figure is part of every choice of a backend.

mod feature;
mod known;
mod matrix;
mod registry;
mod rule;
mod used;

pub use feature::Feature;
pub use known::known_rules;
pub use matrix::MappingMatrix;
pub use registry::{MappingRegistry, PairFidelity};
pub use rule::{Fidelity, MappingRule};
pub use used::features_of;
