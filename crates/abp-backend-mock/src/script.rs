//! Scripts.

use abp_core::{AgentEventKind, CapabilityManifest, UsageNormalized};
use abp_error::ErrorCode;
use serde::Deserialize;

/// What a scripted backend is and does. Written by operators, so unknown fields are refused.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MockScript {
    /// The name to register the backend under.
    pub name: String,
    /// What it says it can do; the mock's own manifest when omitted.
    #[serde(default)]
    pub manifest: Option<CapabilityManifest>,
    /// What it can really do once it is open; the same as `manifest` when omitted.
    #[serde(default)]
    pub opened_manifest: Option<CapabilityManifest>,
    /// The operator's preference; higher is better.
    #[serde(default)]
    pub priority: u32,
    /// What it does; the default demonstration when omitted.
    #[serde(default)]
    pub steps: Option<Vec<Step>>,
    /// Whether this is the embedded demonstration. A script that an operator wrote is not, whatever it
    /// says.
    #[serde(skip)]
    pub is_demonstration: bool,
}

impl MockScript {
    /// The default demonstration, under the name `mock`.
    #[must_use]
    pub fn demonstration() -> Self {
        Self {
            name: "mock".to_owned(),
            manifest: None,
            opened_manifest: None,
            priority: 0,
            steps: None,
            is_demonstration: true,
        }
    }
}

/// One step of a script.
#[derive(Debug, Clone, Deserialize)]
#[serde(tag = "do", rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Streams a text, then gives it whole.
    Say {
        /// The text.
        text: String,
    },
    /// Streams reasoning.
    Think {
        /// The text.
        text: String,
    },
    /// Reads a file through the gate.
    Read {
        /// The file.
        path: String,
    },
    /// Writes a file through the gate.
    Write {
        /// The file.
        path: String,
        /// Its content.
        content: String,
    },
    /// Reports the usage so far.
    Usage {
        /// The totals.
        usage: UsageNormalized,
    },
    /// Reports an event, as an agent with tools of its own would.
    Emit {
        /// The event, without its time.
        event: AgentEventKind,
    },
    /// Begins a session of the agent's own, or goes on with the earlier one that it is given.
    Session {
        /// The id of a new session.
        id: String,
    },
    /// Waits.
    Sleep {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// Fails.
    Fail {
        /// With this code.
        code: ErrorCode,
        /// And this message.
        message: String,
    },
}
