//! What is said, by either side.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Extra;

/// What is said.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Text and nothing else.
    Text(String),
    /// Texts, images, calls of tools and other things.
    Blocks(Vec<ContentBlock>),
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            Value::String(text) => Ok(Self::Text(text)),
            blocks => Vec::deserialize(blocks)
                .map(Self::Blocks)
                .map_err(D::Error::custom),
        }
    }
}

impl From<&str> for Content {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Content {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<ContentBlock>> for Content {
    fn from(blocks: Vec<ContentBlock>) -> Self {
        Self::Blocks(blocks)
    }
}

/// A part of what is said. What the model said can be sent back as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// An image.
    Image {
        /// Where it comes from.
        source: Source,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A document.
    Document {
        /// Where it comes from.
        source: Source,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// A call of a tool.
    ToolUse {
        /// What the answer to it is matched by.
        id: String,
        /// The tool.
        name: String,
        /// The arguments.
        input: Value,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What a tool answered.
    ToolResult {
        /// The call that it answers.
        tool_use_id: String,
        /// The answer.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        content: Option<Content>,
        /// Whether the tool failed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<bool>,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What the model thought.
    Thinking {
        /// The thoughts.
        thinking: String,
        /// The proof that they are the model's own.
        #[serde(default)]
        signature: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What the model thought and the vendor does not show.
    RedactedThinking {
        /// It, sealed.
        data: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ContentBlock {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            extra: Extra::new(),
        }
    }

    /// An image itself, in base64.
    pub fn image(media_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self::Image {
            source: Source::base64(media_type, base64),
            extra: Extra::new(),
        }
    }

    /// An image at an address.
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::Image {
            source: Source::Url {
                url: url.into(),
                extra: Extra::new(),
            },
            extra: Extra::new(),
        }
    }

    /// A document in PDF, in base64.
    pub fn pdf(base64: impl Into<String>) -> Self {
        Self::Document {
            source: Source::base64(super::PDF, base64),
            extra: Extra::new(),
        }
    }

    /// What a tool answered to a call.
    pub fn tool_result(tool_use_id: impl Into<String>, content: impl Into<Content>) -> Self {
        Self::ToolResult {
            tool_use_id: tool_use_id.into(),
            content: Some(content.into()),
            is_error: None,
            extra: Extra::new(),
        }
    }
}

/// Where an image or a document comes from.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Source {
    /// It is here.
    Base64 {
        /// Its media type.
        media_type: String,
        /// It, in base64.
        data: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// It is at an address.
    Url {
        /// The address.
        url: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl Source {
    fn base64(media_type: impl Into<String>, data: impl Into<String>) -> Self {
        Self::Base64 {
            media_type: media_type.into(),
            data: data.into(),
            extra: Extra::new(),
        }
    }
}
