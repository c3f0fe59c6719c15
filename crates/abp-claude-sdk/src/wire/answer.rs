//! What Messages answer, whole and in pieces.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;
use super::content::{Content, ContentBlock};
use super::request::{MessageParam, Role};

/// An answer of Messages.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// Its name.
    pub id: String,
    /// Who speaks: the model.
    pub role: Role,
    /// The model that made it.
    pub model: String,
    /// What it says.
    pub content: Vec<ContentBlock>,
    /// Why it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The text before which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<String>,
    /// The tokens it took.
    pub usage: Usage,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Message {
    /// The text of the answer.
    #[must_use]
    pub fn text(&self) -> String {
        let texts = self.content.iter().filter_map(|block| match block {
            ContentBlock::Text { text, .. } => Some(text.as_str()),
            _ => None,
        });
        texts.collect()
    }

    /// The answer as a part of the conversation.
    #[must_use]
    pub fn to_param(&self) -> MessageParam {
        MessageParam::new(self.role.clone(), Content::Blocks(self.content.clone()))
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It was complete.
    EndTurn,
    /// It had as many tokens as it may have.
    MaxTokens,
    /// One of the texts came before which it should end.
    StopSequence,
    /// The model calls tools.
    ToolUse,
    /// The vendor paused it: send it back to go on.
    PauseTurn,
    /// The model declined.
    Refusal,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

/// The tokens that an answer took. What came from a cache or went into it counts apart.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Usage {
    /// Those of the request; unknown in the course of a stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_tokens: Option<u64>,
    /// Those of the answer, reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Those that went into a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_creation_input_tokens: Option<u64>,
    /// Those that came from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_read_input_tokens: Option<u64>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessageStreamEvent {
    /// The answer is begun.
    MessageStart {
        /// The answer, as yet without content.
        message: Message,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A block is begun.
    ContentBlockStart {
        /// Which one.
        index: u64,
        /// The block, as yet without content.
        content_block: ContentBlock,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A block is added to.
    ContentBlockDelta {
        /// Which one.
        index: u64,
        /// What is added.
        delta: ContentDelta,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A block is complete.
    ContentBlockStop {
        /// Which one.
        index: u64,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What is known of the answer as a whole.
    MessageDelta {
        /// Why it ends.
        delta: MessageDelta,
        /// The tokens it took.
        usage: Usage,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// The answer is complete. It is the last event.
    MessageStop {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A sign of life.
    Ping {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl MessageStreamEvent {
    /// The text that is added.
    #[must_use]
    pub fn text(&self) -> &str {
        match self {
            Self::ContentBlockDelta {
                delta: ContentDelta::TextDelta { text, .. },
                ..
            } => text,
            _ => "",
        }
    }
}

/// What is added to a block.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentDelta {
    /// Text.
    TextDelta {
        /// The text.
        text: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// JSON of a call's arguments.
    InputJsonDelta {
        /// The JSON, cut anywhere.
        partial_json: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Thoughts.
    ThinkingDelta {
        /// The thoughts.
        thinking: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// The proof that the thoughts are the model's own.
    SignatureDelta {
        /// The proof.
        signature: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

/// What is known of an answer at its end.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageDelta {
    /// Why it ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<StopReason>,
    /// The text before which it ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How many tokens a request has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageTokensCount {
    /// So many.
    pub input_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ModelInfo {
    /// Its name.
    pub id: String,
    /// Its name for people.
    #[serde(default)]
    pub display_name: String,
    /// When it was made.
    #[serde(default)]
    pub created_at: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The models that are served.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelList {
    /// The models.
    pub data: Vec<ModelInfo>,
    /// Whether there are more.
    #[serde(default)]
    pub has_more: bool,
    /// The first of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_id: Option<String>,
    /// The last of these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_id: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The body of an error, and the event that ends a stream that failed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorResponse {
    /// The error.
    pub error: ErrorObject,
    /// What the vendor knows the request by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// What kind of error it is.
    #[serde(rename = "type")]
    pub kind: String,
    /// What is wrong, for people.
    pub message: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error.kind, self.error.message)
    }
}
