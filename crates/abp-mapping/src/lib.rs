//! What survives between two dialects, feature by feature.
//!
//! [`known_rules`] says for every feature and every ordered pair of dialects whether it is carried
//! without loss, with a labelled loss, or not at all. The table is data, not a promise: a test
//! translates a request with each feature between every pair and compares what the codecs did.

mod feature;
mod known;
mod matrix;
mod registry;
mod rule;

pub use feature::Feature;
pub use known::known_rules;
pub use matrix::MappingMatrix;
pub use registry::MappingRegistry;
pub use rule::{Fidelity, MappingRule};
