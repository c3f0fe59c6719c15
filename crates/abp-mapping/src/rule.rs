//! One rule: what becomes of a feature on its way between two dialects.

use abp_dialect::Dialect;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::Feature;

/// How true a feature stays.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Fidelity {
    /// It can be mapped back exactly.
    Lossless,
    /// Something of it is lost, and a label names it.
    LossyLabeled {
        /// What.
        warning: String,
    },
    /// It is refused, or left out for callers who allow that.
    Unsupported {
        /// Why.
        reason: String,
    },
}

impl Fidelity {
    /// A sign for tables.
    #[must_use]
    pub fn symbol(&self) -> &'static str {
        match self {
            Self::Lossless => "=",
            Self::LossyLabeled { .. } => "~",
            Self::Unsupported { .. } => "x",
        }
    }

    /// Whether the feature does not arrive at all.
    #[must_use]
    pub fn is_unsupported(&self) -> bool {
        matches!(self, Self::Unsupported { .. })
    }
}

/// What becomes of a feature on its way between two dialects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MappingRule {
    /// The dialect it comes from.
    pub source_dialect: Dialect,
    /// The dialect it goes to.
    pub target_dialect: Dialect,
    /// The feature.
    pub feature: Feature,
    /// How true it stays.
    pub fidelity: Fidelity,
}
