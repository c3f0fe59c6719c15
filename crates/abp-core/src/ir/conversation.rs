//! A conversation with everything a model needs to go on with it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrMessage, IrRole, IrSettings, IrToolDefinition, IrUsage};

/// A conversation, the tools it may use and how the answer should be made.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrConversation {
    /// The messages, oldest first.
    pub messages: Vec<IrMessage>,
    /// The tools the model may call.
    pub tools: Vec<IrToolDefinition>,
    /// How the answer should be made.
    #[serde(skip_serializing_if = "IrSettings::is_empty")]
    pub settings: IrSettings,
    /// What the conversation used so far.
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
