//! What is asked of Responses, and what they answer.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::Extra;
use super::chat::Role;
use super::error::ErrorObject;
use super::read::text_or_list;

/// A request to Responses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseRequest {
    /// The model.
    pub model: String,
    /// What is asked, or the conversation so far.
    pub input: ResponseInput,
    /// What the model is told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instructions: Option<String>,
    /// The kept answer that this goes on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub previous_response_id: Option<String>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<ResponseTool>,
    /// Whether it has to: `auto`, `none`, `required`, or an object that names a tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<Value>,
    /// What the answer's text has to look like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<Value>,
    /// How much the model reasons, and what it tells of that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<Value>,
    /// How much chance there is in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// The most tokens of an answer, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Whether the answer is kept, so that it can be asked for again and gone on from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<bool>,
    /// Whether the answer comes in pieces. The client sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl ResponseRequest {
    /// Asks a model.
    pub fn new(model: impl Into<String>, input: impl Into<ResponseInput>) -> Self {
        Self {
            model: model.into(),
            input: input.into(),
            ..Self::default()
        }
    }

    /// With instructions.
    #[must_use]
    pub fn instructions(mut self, instructions: impl Into<String>) -> Self {
        self.instructions = Some(instructions.into());
        self
    }

    /// As the next question after a kept answer.
    #[must_use]
    pub fn previous_response(mut self, id: impl Into<String>) -> Self {
        self.previous_response_id = Some(id.into());
        self
    }

    /// With tools that the model may call.
    #[must_use]
    pub fn tools(mut self, tools: impl Into<Vec<ResponseTool>>) -> Self {
        self.tools = tools.into();
        self
    }

    /// With an answer of so many tokens at most.
    #[must_use]
    pub fn max_output_tokens(mut self, tokens: u64) -> Self {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// With an answer in JSON that keeps to a schema.
    #[must_use]
    pub fn json_schema(mut self, name: &str, schema: &Value) -> Self {
        self.text = Some(json!({
            "format": { "type": "json_schema", "name": name, "schema": schema, "strict": true },
        }));
        self
    }
}

/// What is asked.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ResponseInput {
    /// Text of the user.
    Text(String),
    /// Messages, calls of tools and their answers.
    Items(Vec<ResponseItem>),
}

impl Default for ResponseInput {
    fn default() -> Self {
        Self::Items(Vec::new())
    }
}

impl<'de> Deserialize<'de> for ResponseInput {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_list(deserializer, Self::Text, Self::Items)
    }
}

impl From<&str> for ResponseInput {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for ResponseInput {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<ResponseItem>> for ResponseInput {
    fn from(items: Vec<ResponseItem>) -> Self {
        Self::Items(items)
    }
}

/// A step of a conversation, asked or answered: what was answered can be sent back as it is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseItem {
    /// A message.
    Message(ResponseMessage),
    /// A call of a function.
    FunctionCall(ResponseFunctionCall),
    /// What a function answered.
    FunctionCallOutput {
        /// The call that it answers.
        call_id: String,
        /// A text, or a list of parts.
        output: Value,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// What the model thought. It is of use only to the model that wrote it.
    Reasoning {
        /// What it tells of that.
        #[serde(default)]
        summary: Vec<Value>,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ResponseItem {
    /// What the user says.
    pub fn user(content: impl Into<ResponseContent>) -> Self {
        Self::Message(ResponseMessage {
            role: Role::User,
            content: content.into(),
            extra: Extra::new(),
        })
    }

    /// What a function answered to a call.
    pub fn function_call_output(call_id: impl Into<String>, output: impl Into<Value>) -> Self {
        Self::FunctionCallOutput {
            call_id: call_id.into(),
            output: output.into(),
            extra: Extra::new(),
        }
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseMessage {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: ResponseContent,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is said.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum ResponseContent {
    /// Text and nothing else.
    Text(String),
    /// Texts, images and other things.
    Parts(Vec<ResponsePart>),
}

impl ResponseContent {
    fn output_text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Parts(parts) => parts.iter().filter_map(ResponsePart::output_text).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for ResponseContent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text_or_list(deserializer, Self::Text, Self::Parts)
    }
}

impl From<&str> for ResponseContent {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for ResponseContent {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Vec<ResponsePart>> for ResponseContent {
    fn from(parts: Vec<ResponsePart>) -> Self {
        Self::Parts(parts)
    }
}

/// A part of what is said.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponsePart {
    /// Text of a request.
    InputText {
        /// The text.
        text: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// An image of a request.
    InputImage {
        /// Its address; one that starts with `data:` is the image itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        image_url: Option<String>,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Text of the model.
    OutputText {
        /// The text.
        text: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Words with which the model declined.
    Refusal {
        /// The words.
        refusal: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ResponsePart {
    /// Text of a request.
    pub fn text(text: impl Into<String>) -> Self {
        Self::InputText {
            text: text.into(),
            extra: Extra::new(),
        }
    }

    /// An image at an address.
    pub fn image_url(url: impl Into<String>) -> Self {
        Self::InputImage {
            image_url: Some(url.into()),
            extra: Extra::new(),
        }
    }

    fn output_text(&self) -> Option<&str> {
        match self {
            Self::OutputText { text, .. } => Some(text),
            _ => None,
        }
    }
}

/// A call of a function.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseFunctionCall {
    /// What the answer to it is matched by.
    pub call_id: String,
    /// The function.
    pub name: String,
    /// The arguments: JSON that the model wrote, so it may be none.
    pub arguments: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A tool that the model may call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ResponseTool {
    /// A function of the caller's.
    Function {
        /// Its name.
        name: String,
        /// What it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
        /// The JSON Schema of its arguments.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        parameters: Option<Value>,
        /// Whether the model keeps to the schema in every case.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<bool>,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ResponseTool {
    /// A function, with the JSON Schema of its arguments.
    pub fn function(
        name: impl Into<String>,
        description: impl Into<String>,
        parameters: Value,
    ) -> Self {
        Self::Function {
            name: name.into(),
            description: Some(description.into()),
            parameters: Some(parameters),
            strict: Some(false),
            extra: Extra::new(),
        }
    }
}

/// An answer of Responses.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Response {
    /// Its name, by which it can be asked for again.
    pub id: String,
    /// When it was made, in seconds since 1970.
    #[serde(default)]
    pub created_at: f64,
    /// How far it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ResponseStatus>,
    /// The model that made it.
    #[serde(default)]
    pub model: String,
    /// What was answered.
    #[serde(default)]
    pub output: Vec<ResponseItem>,
    /// The tokens it took.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<ResponseUsage>,
    /// Why it failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorObject>,
    /// Why it is not complete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incomplete_details: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Response {
    /// The text of the answer.
    #[must_use]
    pub fn output_text(&self) -> String {
        let messages = self.output.iter().filter_map(|item| match item {
            ResponseItem::Message(message) => Some(message.content.output_text()),
            _ => None,
        });
        messages.collect()
    }

    /// The functions that the model calls.
    pub fn function_calls(&self) -> impl Iterator<Item = &ResponseFunctionCall> {
        self.output.iter().filter_map(|item| match item {
            ResponseItem::FunctionCall(call) => Some(call),
            _ => None,
        })
    }
}

/// How far an answer is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResponseStatus {
    /// It is all there.
    Completed,
    /// It ended early.
    Incomplete,
    /// It is being made.
    InProgress,
    /// It could not be made.
    Failed,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

/// The tokens that an answer took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ResponseUsage {
    /// Those of the request.
    #[serde(default)]
    pub input_tokens: u64,
    /// Those of the answer, reasoning included.
    #[serde(default)]
    pub output_tokens: u64,
    /// Both.
    #[serde(default)]
    pub total_tokens: u64,
    /// Everything else, such as what came from a cache.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a kept answer was an answer to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputItemList {
    /// The items, each in the form its type has.
    pub data: Vec<serde_json::Value>,
    /// Whether there are more.
    #[serde(default)]
    pub has_more: bool,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How long a request is.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct InputTokenCount {
    /// In tokens.
    pub input_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// That a kept answer is gone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DeletedResponse {
    /// Its name.
    pub id: String,
    /// Whether it is.
    pub deleted: bool,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}
