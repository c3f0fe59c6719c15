//! Messages and their content.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrRole {
    /// Instructions.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// A piece of content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// An image, inline.
    Image {
        /// Its media type.
        media_type: String,
        /// Its bytes, base64.
        data: String,
    },
    /// A call of a tool.
    ToolUse {
        /// The call's id.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
    },
    /// The answer to a call.
    ToolResult {
        /// The call's id.
        tool_use_id: String,
        /// The answer.
        content: Vec<Self>,
        /// Whether the answer is an error.
        #[serde(default)]
        is_error: bool,
    },
    /// The model's reasoning.
    Thinking {
        /// The text.
        text: String,
    },
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrMessage {
    /// Who speaks.
    pub role: IrRole,
    /// What is said.
    pub content: Vec<IrContentBlock>,
    /// What a vendor attached, carried through unread.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub metadata: BTreeMap<String, Value>,
}

impl IrMessage {
    /// A message of content blocks.
    #[must_use]
    pub fn new(role: IrRole, content: Vec<IrContentBlock>) -> Self {
        Self {
            role,
            content,
            metadata: BTreeMap::new(),
        }
    }

    /// A message of one text.
    pub fn text(role: IrRole, text: impl Into<String>) -> Self {
        Self::new(role, vec![IrContentBlock::Text { text: text.into() }])
    }
}
