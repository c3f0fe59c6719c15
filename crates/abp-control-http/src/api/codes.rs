//! One-time codes.

use abp_core::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A code that stands for the caller's key, once.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct OneTimeCode {
    /// The code.
    pub code: String,
    /// When it is no longer good.
    pub expires_at: Timestamp,
}

/// The key that a code stood for.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct RedeemedKey {
    /// The key.
    pub key: String,
}
