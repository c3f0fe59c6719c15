//! The policy a run is held to.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Allow and deny rules for tools, paths and network, as glob patterns.
///
/// Deny always wins over allow; an empty profile allows everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PolicyProfile {
    /// Tools that may be used; empty means all.
    pub allowed_tools: Vec<String>,
    /// Tools that may not be used.
    pub disallowed_tools: Vec<String>,
    /// Paths that may not be read.
    pub deny_read: Vec<String>,
    /// Paths that may not be written.
    pub deny_write: Vec<String>,
    /// Hosts that may be reached; empty means all.
    pub allow_network: Vec<String>,
    /// Hosts that may not be reached.
    pub deny_network: Vec<String>,
    /// Tools that need a person's approval.
    pub require_approval_for: Vec<String>,
}
