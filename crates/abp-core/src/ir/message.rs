//! Messages and their content.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrMedia, IrVendorField, Leaf, Origin, RawJson};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrRole {
    /// Instructions.
    System,
    /// Instructions of the application, which rank below the vendor's own.
    Developer,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool's answer.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrMessage {
    /// Who speaks.
    pub role: IrRole,
    /// What is said.
    pub content: Vec<IrBlock>,
    /// Whether the content was, or can be, written as one string.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
    /// What only the source's dialect knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
    /// The message in the source. A message that was changed has none.
    #[serde(skip)]
    pub origin: Origin,
}

impl IrMessage {
    /// A message of content blocks.
    #[must_use]
    pub fn new(role: IrRole, content: Vec<IrContentBlock>) -> Self {
        Self {
            role,
            content: content.into_iter().map(IrBlock::from).collect(),
            plain: false,
            vendor: Vec::new(),
            origin: Origin::Host,
        }
    }

    /// A message of one text.
    pub fn text(role: IrRole, text: impl Into<String>) -> Self {
        Self {
            plain: true,
            ..Self::new(role, vec![IrContentBlock::text(text.into())])
        }
    }

    /// Adds content that the source did not have.
    pub fn push(&mut self, block: IrContentBlock) {
        self.content.push(block.into());
        self.plain = false;
        self.origin = Origin::Host;
    }
}

/// A piece of content, with what belongs to it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrBlock {
    /// The content.
    #[serde(flatten)]
    pub body: IrContentBlock,
    /// What only the source's dialect knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
    /// The block in the source.
    #[serde(skip)]
    pub origin: Origin,
}

impl From<IrContentBlock> for IrBlock {
    fn from(body: IrContentBlock) -> Self {
        Self {
            body,
            vendor: Vec::new(),
            origin: Origin::Host,
        }
    }
}

/// A piece of content.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrContentBlock {
    /// Text.
    Text {
        /// The text.
        text: Leaf<String>,
        /// What the text is based on.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        citations: Vec<IrCitation>,
    },
    /// JSON that is not text: a structured answer of a tool.
    Json {
        /// The value.
        value: Leaf<RawJson>,
    },
    /// An image.
    Image {
        /// The image.
        #[serde(flatten)]
        media: IrMedia,
        /// How closely the model should look.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        detail: Option<Leaf<String>>,
    },
    /// A document.
    Document {
        /// The document.
        #[serde(flatten)]
        media: IrMedia,
        /// Its title or file name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        title: Option<Leaf<String>>,
    },
    /// A sound.
    Audio {
        /// The sound.
        #[serde(flatten)]
        media: IrMedia,
    },
    /// A film.
    Video {
        /// The film.
        #[serde(flatten)]
        media: IrMedia,
    },
    /// A call of a tool.
    ToolUse {
        /// The id that the answer names; some vendors give none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        id: Option<Leaf<String>>,
        /// The tool.
        name: Leaf<String>,
        /// The arguments.
        input: IrToolInput,
        /// The id of the call as an item of its own, where that differs.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item_id: Option<Leaf<String>>,
        /// The vendor's proof of the reasoning that led to the call.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Leaf<String>>,
    },
    /// The answer to a call.
    ToolResult {
        /// The call's id.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        tool_use_id: Option<Leaf<String>>,
        /// The tool, where the vendor names it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Leaf<String>>,
        /// The answer.
        content: Vec<IrBlock>,
        /// Whether the answer was, or can be, written as one string.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        plain: bool,
        /// Whether the answer is an error.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        is_error: Option<Leaf<bool>>,
    },
    /// The model's reasoning.
    Thinking {
        /// The text; may be empty where the vendor keeps it to itself.
        text: Leaf<String>,
        /// Whether this is the reasoning itself.
        #[serde(default)]
        kind: IrThinkingKind,
        /// The vendor's proof that it is its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        signature: Option<Leaf<String>>,
        /// The reasoning as only the vendor can read it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        encrypted: Option<Leaf<String>>,
        /// The id of the reasoning as an item of its own.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        item_id: Option<Leaf<String>>,
    },
    /// Reasoning that the vendor hides; only it can read the data.
    RedactedThinking {
        /// The data.
        data: Leaf<String>,
    },
    /// The model's words when it declines.
    Refusal {
        /// The words.
        text: Leaf<String>,
    },
    /// Something that exists in one dialect only.
    Opaque {
        /// The dialect's name for it.
        kind: String,
        /// All of it, as it was spelled.
        native: Leaf<RawJson>,
    },
}

impl IrContentBlock {
    /// Text without citations.
    pub fn text(text: impl Into<Leaf<String>>) -> Self {
        Self::Text {
            text: text.into(),
            citations: Vec::new(),
        }
    }
}

/// The arguments of a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IrToolInput {
    /// A JSON object, as it was spelled.
    Json(Leaf<RawJson>),
    /// Free text: the tool takes no JSON.
    Text(Leaf<String>),
    /// What should have been a JSON object and is none.
    Invalid(Leaf<String>),
}

/// Whether reasoning is given as it was or retold.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum IrThinkingKind {
    /// The reasoning itself.
    #[default]
    Raw,
    /// A summary of it.
    Summary,
}

/// A source that a text names.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrCitation {
    /// Where the source is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub url: Option<Leaf<String>>,
    /// What it is called.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<Leaf<String>>,
    /// The words of the source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub quote: Option<Leaf<String>>,
    /// The part of the text that rests on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub range: Option<IrRange>,
    /// All of it, as the source spelled it.
    pub native: Leaf<RawJson>,
}

/// A part of a text, in characters (Unicode scalar values) of its block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IrRange {
    /// The first character.
    pub start: Leaf<u64>,
    /// The one after the last.
    pub end: Leaf<u64>,
}
