//! Claude Code's messages, as far as they have a meaning in ABP.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A line of Claude Code's `stream-json` output. Members that ABP has no meaning for are passed over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ClaudeMessage {
    /// The session began (`init`), or something else about it.
    System {
        /// The kind of message.
        subtype: String,
        /// The session.
        #[serde(default)]
        session_id: String,
    },
    /// A message of the model, or a block of one.
    Assistant {
        /// Its content.
        message: AssistantBody,
        /// The call of a subagent that it belongs to.
        #[serde(default)]
        parent_tool_use_id: Option<String>,
        /// The session.
        #[serde(default)]
        session_id: String,
    },
    /// Results of tools, or a prompt.
    User {
        /// Its content.
        message: UserBody,
        /// The call of a subagent that it belongs to.
        #[serde(default)]
        parent_tool_use_id: Option<String>,
        /// The session.
        #[serde(default)]
        session_id: String,
    },
    /// A piece of a message, in the form of the Messages API's stream.
    StreamEvent {
        /// The event of the stream.
        event: Value,
        /// The call of a subagent that it belongs to.
        #[serde(default)]
        parent_tool_use_id: Option<String>,
        /// The session.
        #[serde(default)]
        session_id: String,
    },
    /// A question of Claude Code, which waits for the answer.
    ControlRequest {
        /// Comes back in the answer.
        request_id: String,
        /// The question.
        request: ControlRequest,
    },
    /// The end.
    Result {
        /// `success`, or the kind of failure.
        subtype: String,
        /// Whether the work failed.
        is_error: bool,
        /// The last message, or the reason of the failure.
        #[serde(default)]
        result: String,
        /// The session.
        #[serde(default)]
        session_id: String,
        /// The usage of all requests.
        #[serde(default)]
        usage: ClaudeUsage,
    },
}

/// The content of a message of the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AssistantBody {
    /// Always `assistant`.
    pub role: String,
    /// The blocks.
    pub content: Vec<ContentBlock>,
}

/// The content of a message to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct UserBody {
    /// Always `user`.
    pub role: String,
    /// The blocks.
    pub content: Vec<ContentBlock>,
}

/// A block of content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
    },
    /// Reasoning.
    Thinking {
        /// The reasoning.
        thinking: String,
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
    /// The answer of a tool.
    ToolResult {
        /// The call's id.
        tool_use_id: String,
        /// The answer.
        content: Value,
        /// Whether the answer is an error.
        #[serde(default)]
        is_error: bool,
    },
    /// Another block, such as an image.
    #[serde(other)]
    Other,
}

/// Tokens, as the Messages API counts them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct ClaudeUsage {
    /// Tokens read, without those from or into a cache.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// Tokens read from a cache.
    pub cache_read_input_tokens: u64,
    /// Tokens written to a cache.
    pub cache_creation_input_tokens: u64,
}

/// The question whether a tool may be used.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "subtype", rename_all = "snake_case")]
pub enum ControlRequest {
    /// Whether a tool may be used.
    CanUseTool {
        /// The tool.
        tool_name: String,
        /// The arguments.
        input: Value,
        /// The call's id.
        #[serde(default)]
        tool_use_id: Option<String>,
    },
}

/// The answer to a [`ControlRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "behavior", rename_all = "snake_case")]
pub enum ToolPermission {
    /// The tool may be used.
    Allow,
    /// The tool may not be used.
    Deny {
        /// The reason, for the model.
        message: String,
    },
}
