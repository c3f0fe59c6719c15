//! What is asked of Chat Completions.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::Extra;
use super::read::{null_as_default, text_or_list};

/// A request to Chat Completions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatCompletionRequest {
    /// The model.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<ChatMessage>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether it has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether it may call several at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<bool>,
    /// What the answer has to look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_format: Option<ResponseFormat>,
    /// How much chance there is in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From how much of the probability a token is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// How many answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Where the answer ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// The most tokens of an answer, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_completion_tokens: Option<u64>,
    /// The same, for models that do not reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<u64>,
    /// How much the model reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_effort: Option<String>,
    /// Makes chance repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// Whether the answer comes in pieces. The client sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// How it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream_options: Option<StreamOptions>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatCompletionRequest {
    /// Asks a model to go on with a conversation.
    pub fn new(model: impl Into<String>, messages: impl Into<Vec<ChatMessage>>) -> Self {
        Self {
            model: model.into(),
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// With tools that the model may call.
    #[must_use]
    pub fn tools(mut self, tools: impl Into<Vec<Tool>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// With a word on whether it has to.
    #[must_use]
    pub fn tool_choice(mut self, choice: ToolChoice) -> Self {
        self.tool_choice = Some(choice);
        self
    }

    /// With a form for the answer.
    #[must_use]
    pub fn response_format(mut self, format: ResponseFormat) -> Self {
        self.response_format = Some(format);
        self
    }

    /// With more or less chance.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }

    /// With an answer of so many tokens at most.
    #[must_use]
    pub fn max_completion_tokens(mut self, tokens: u64) -> Self {
        self.max_completion_tokens = Some(tokens);
        self
    }

    /// With the usage as the last piece of a stream.
    #[must_use]
    pub fn include_usage(mut self) -> Self {
        let options = self.stream_options.get_or_insert_default();
        options.include_usage = Some(true);
        self
    }
}

/// A message of a conversation, asked or answered: an answer's message can be sent back as it is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said; nothing where tools are called instead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// The words with which the model declined.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// The tools that the model calls.
    #[serde(
        default,
        deserialize_with = "null_as_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ChatMessage {
    /// A message of somebody.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Self {
            role,
            content: Some(content.into()),
            ..Self::default()
        }
    }

    /// Instructions, for models that know them by this name.
    pub fn system(content: impl Into<Content>) -> Self {
        Self::new(Role::System, content)
    }

    /// Instructions.
    pub fn developer(content: impl Into<Content>) -> Self {
        Self::new(Role::Developer, content)
    }

    /// What the user says.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(Role::User, content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new(Role::Assistant, content)
    }

    /// What a tool answered to a call.
    pub fn tool(call_id: impl Into<String>, content: impl Into<Content>) -> Self {
        Self {
            tool_call_id: Some(call_id.into()),
            ..Self::new(Role::Tool, content)
        }
    }

    /// The text of the message.
    #[must_use]
    pub fn text(&self) -> String {
        self.content.as_ref().map(Content::text).unwrap_or_default()
    }
}

/// Who speaks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Whoever instructs the model.
    System,
    /// The same, by its newer name.
    Developer,
    /// The user.
    #[default]
    User,
    /// The model.
    Assistant,
    /// A tool.
    Tool,
    /// Somebody else.
    #[serde(untagged)]
    Other(String),
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Content {
    /// Text and nothing else.
    Text(String),
    /// Texts, images and other things.
    Parts(Vec<ContentPart>),
}

impl Content {
    /// All of its text.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().filter_map(ContentPart::as_text).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Content {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_list(deserializer, Self::Text, Self::Parts)
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

impl From<Vec<ContentPart>> for Content {
    fn from(parts: Vec<ContentPart>) -> Self {
        Self::Parts(parts)
    }
}

/// A part of what is said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ContentPart {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// An image.
    ImageUrl {
        /// Where it is.
        image_url: ImageUrl,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ContentPart {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text {
            text: text.into(),
            extra: Extra::new(),
        }
    }

    /// An image at an address.
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::ImageUrl {
            image_url: ImageUrl {
                url: url.into(),
                ..ImageUrl::default()
            },
            extra: Extra::new(),
        }
    }

    /// An image itself, in base64.
    #[must_use]
    pub fn image(media_type: &str, base64: &str) -> Self {
        Self::image_url(format!("data:{media_type};base64,{base64}"))
    }

    fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text { text, .. } => Some(text),
            Self::ImageUrl { .. } | Self::Other(_) => None,
        }
    }
}

/// Where an image is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ImageUrl {
    /// Its address; one that starts with `data:` is the image itself.
    pub url: String,
    /// How closely it is looked at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Tool {
    /// A function of the caller's.
    Function {
        /// The function.
        function: FunctionDefinition,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl Tool {
    /// A function, with the JSON Schema of its arguments.
    pub fn function(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Value,
    ) -> Self {
        Self::Function {
            function: FunctionDefinition {
                name: name.into(),
                description: Some(description.into()),
                parameters: Some(parameters),
                ..FunctionDefinition::default()
            },
            extra: Extra::new(),
        }
    }
}

/// A function that the model may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionDefinition {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// Whether the model keeps to the schema in every case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto,
    /// Never.
    None,
    /// Always.
    Required,
    /// One function, or what else the vendor knows.
    #[serde(untagged)]
    Other(Value),
}

impl ToolChoice {
    /// Always this function.
    #[must_use]
    pub fn function(name: &str) -> Self {
        Self::Other(serde_json::json!({ "type": "function", "function": { "name": name } }))
    }
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolCall {
    /// What the answer to it is matched by.
    pub id: String,
    /// What kind of tool it is.
    #[serde(rename = "type", default = "function_type")]
    pub kind: String,
    /// The function, where it is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<FunctionCall>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

fn function_type() -> String {
    "function".to_owned()
}

/// A call of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// The function.
    pub name: String,
    /// The arguments: JSON that the model wrote, so it may be none.
    pub arguments: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What an answer has to look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseFormat {
    /// Text.
    Text {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Some JSON object.
    JsonObject {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// JSON by a schema.
    JsonSchema {
        /// The schema.
        json_schema: JsonSchemaFormat,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ResponseFormat {
    /// Some JSON object.
    #[must_use]
    pub fn json_object() -> Self {
        Self::JsonObject {
            extra: Extra::new(),
        }
    }

    /// JSON that keeps to a schema.
    pub fn json_schema(name: impl Into<String>, schema: Value) -> Self {
        Self::JsonSchema {
            json_schema: JsonSchemaFormat {
                name: name.into(),
                schema: Some(schema),
                strict: Some(true),
                ..JsonSchemaFormat::default()
            },
            extra: Extra::new(),
        }
    }
}

/// The schema of an answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JsonSchemaFormat {
    /// Its name.
    pub name: String,
    /// The schema.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schema: Option<Value>,
    /// Whether the model keeps to it in every case.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub strict: Option<bool>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Where an answer ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Stop {
    /// Before this text.
    One(String),
    /// Before any of these.
    Many(Vec<String>),
}

impl<'de> Deserialize<'de> for Stop {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_list(deserializer, Self::One, Self::Many)
    }
}

/// How an answer comes in pieces.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StreamOptions {
    /// Whether the last piece tells the usage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_usage: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}
