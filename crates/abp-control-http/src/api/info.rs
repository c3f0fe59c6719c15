//! What the server is made of.

use abp_core::{CapabilityManifest, Timestamp};
use abp_error::ErrorCode;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The backends.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct BackendPage {
    /// The backends, by name.
    pub backends: Vec<BackendView>,
}

/// A backend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BackendView {
    /// Its name.
    pub name: String,
    /// Whether a run that names none gets this one.
    pub is_default: bool,
    /// Why it cannot be opened, where that is certain.
    pub problem: Option<String>,
}

/// What the backends can do.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityPage {
    /// The backends, by name.
    pub backends: Vec<CapabilityView>,
}

/// What a backend can do, as far as it says before it is opened.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CapabilityView {
    /// Its name.
    pub backend: String,
    /// Its capabilities; absent where they are known only when it is opened.
    pub capabilities: Option<CapabilityManifest>,
}

/// The servers that carry runs out.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct NodePage {
    /// The servers.
    pub nodes: Vec<NodeView>,
}

/// A server that carries runs out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct NodeView {
    /// Its name, until it stops.
    pub node_id: String,
    /// Its version.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// How many runs go on in it, those that wait for a person included.
    pub running: u32,
    /// The most runs that go on in it at once, those that wait for a person aside.
    pub max_running: u32,
}

/// The configuration in force, with secrets hidden.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConfigView {
    /// The values.
    pub config: Value,
    /// The origin of each value, by dotted key.
    pub origins: Value,
}

/// A document to be checked.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", content = "document", rename_all = "snake_case")]
pub enum ValidateRequest {
    /// A work order.
    WorkOrder(Value),
    /// A receipt. Its hashes are checked; `POST /receipts/verify` also looks it up in the log.
    Receipt(Value),
    /// A policy profile.
    Policy(Value),
}

/// What is wrong with a document.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ValidationReport {
    /// Whether nothing is.
    pub is_valid: bool,
    /// Every problem.
    pub problems: Vec<ValidationFinding>,
}

/// A problem of a document.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ValidationFinding {
    /// The machine-readable code.
    pub code: ErrorCode,
    /// What is wrong, and where.
    pub message: String,
}
