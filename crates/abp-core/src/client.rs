//! What the client that follows a run can render.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The rendering capabilities of a client. A work order without them is for a standard rich client.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientCapabilities {
    /// Presentation events the client can render, e.g. `CITATION_BLOCK`.
    pub supported_events: Vec<String>,
    /// Whether the client prefers markdown over plain text.
    pub prefers_markdown: bool,
    /// Preferred image resolution: `low`, `high` or `auto`.
    pub image_resolution: Option<String>,
}

impl Default for ClientCapabilities {
    fn default() -> Self {
        Self {
            supported_events: Vec::new(),
            prefers_markdown: true,
            image_resolution: None,
        }
    }
}
