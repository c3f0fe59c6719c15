//! What an answer used.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrVendorField, Leaf, Origin};

/// Token counts; `None` is unknown, which is not zero.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrUsage {
    /// Tokens read, those from or into a cache included.
    pub input_tokens: Option<Leaf<u64>>,
    /// Tokens written, reasoning included.
    pub output_tokens: Option<Leaf<u64>>,
    /// Tokens written to a cache.
    pub cache_creation_tokens: Option<Leaf<u64>>,
    /// Tokens read from a cache.
    pub cache_read_tokens: Option<Leaf<u64>>,
    /// Tokens of reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<Leaf<u64>>,
    /// All tokens.
    pub total_tokens: Option<Leaf<u64>>,
    /// What only the source's dialect knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
    /// The counts in the source.
    #[serde(skip)]
    pub origin: Origin,
}
