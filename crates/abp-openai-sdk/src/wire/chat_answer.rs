//! What Chat Completions answer, whole and in pieces.

use serde::{Deserialize, Serialize};

use super::Extra;
use super::chat::{ChatMessage, Role};
use super::read::null_as_default;

/// An answer of Chat Completions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatCompletion {
    /// Its name.
    #[serde(default)]
    pub id: String,
    /// When it was made, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    /// The model that made it.
    #[serde(default)]
    pub model: String,
    /// The answers, one unless more were asked for.
    pub choices: Vec<Choice>,
    /// The tokens it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<CompletionUsage>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatCompletion {
    /// The message of the first answer, which is also what goes back into the conversation.
    #[must_use]
    pub fn message(&self) -> Option<&ChatMessage> {
        self.choices.first().map(|choice| &choice.message)
    }

    /// The text of the first answer.
    #[must_use]
    pub fn text(&self) -> String {
        self.message().map(ChatMessage::text).unwrap_or_default()
    }
}

/// One of the answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Choice {
    /// Which one.
    #[serde(default)]
    pub index: u64,
    /// What it says.
    pub message: ChatMessage,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// It was complete, or a stop came.
    Stop,
    /// It had as many tokens as it may have.
    Length,
    /// The model calls tools.
    ToolCalls,
    /// A filter took something away.
    ContentFilter,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

/// The tokens that an answer took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionUsage {
    /// Those of the request.
    #[serde(default)]
    pub prompt_tokens: u64,
    /// Those of the answer, reasoning included.
    #[serde(default)]
    pub completion_tokens: u64,
    /// Both.
    #[serde(default)]
    pub total_tokens: u64,
    /// What is known of those of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_tokens_details: Option<PromptTokensDetails>,
    /// What is known of those of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub completion_tokens_details: Option<CompletionTokensDetails>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is known of the tokens of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PromptTokensDetails {
    /// Those that came from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_tokens: Option<u64>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is known of the tokens of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CompletionTokensDetails {
    /// Those of the reasoning.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_tokens: Option<u64>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A piece of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatCompletionChunk {
    /// The answer's name.
    #[serde(default)]
    pub id: String,
    /// When it was begun, in seconds since 1970.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<u64>,
    /// The model that makes it.
    #[serde(default)]
    pub model: String,
    /// What is added to the answers.
    pub choices: Vec<ChunkChoice>,
    /// The tokens it took, in the last piece where it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<CompletionUsage>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatCompletionChunk {
    /// The text that is added to the first answer.
    #[must_use]
    pub fn text(&self) -> &str {
        let first = self.choices.iter().find(|choice| choice.index == 0);
        first
            .and_then(|choice| choice.delta.content.as_deref())
            .unwrap_or_default()
    }
}

/// What is added to one of the answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ChunkChoice {
    /// Which one.
    #[serde(default)]
    pub index: u64,
    /// What is added.
    #[serde(default, deserialize_with = "null_as_default")]
    pub delta: ChoiceDelta,
    /// Why it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is added to a message.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChoiceDelta {
    /// Who speaks, at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<Role>,
    /// Text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// Words with which the model declines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Calls of tools.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<ToolCallDelta>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is added to a call of a tool.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCallDelta {
    /// Which call of the message.
    #[serde(default)]
    pub index: u64,
    /// What the answer to it is matched by, at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionCallDelta>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is added to a call of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCallDelta {
    /// The function, at the start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// More of the arguments' JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub arguments: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}
