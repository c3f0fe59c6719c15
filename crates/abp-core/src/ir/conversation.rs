//! Conversations, tools and usage.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{IrMessage, IrRole};

/// A conversation with the tools it may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrConversation {
    /// The messages, oldest first.
    pub messages: Vec<IrMessage>,
    /// The tools the model may call.
    pub tools: Vec<IrToolDefinition>,
    /// What the conversation used, in a response.
    pub usage: Option<IrUsage>,
}

impl IrConversation {
    /// A conversation of messages alone.
    #[must_use]
    pub fn from_messages(messages: Vec<IrMessage>) -> Self {
        Self {
            messages,
            ..Self::default()
        }
    }

    /// The first system message.
    pub fn system_mut(&mut self) -> Option<&mut IrMessage> {
        self.messages
            .iter_mut()
            .find(|message| message.role == IrRole::System)
    }
}

/// A function the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrToolDefinition {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: String,
    /// The JSON schema of its arguments.
    #[serde(alias = "parameters")]
    pub parameters_schema: Value,
}

/// Token counts; `None` is unknown, which is not zero.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrUsage {
    /// Tokens read.
    pub input_tokens: Option<u64>,
    /// Tokens written.
    pub output_tokens: Option<u64>,
    /// Tokens written to a cache.
    pub cache_creation_tokens: Option<u64>,
    /// Tokens read from a cache.
    pub cache_read_tokens: Option<u64>,
    /// All tokens.
    pub total_tokens: Option<u64>,
}
