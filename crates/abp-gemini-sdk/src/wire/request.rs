//! What is asked of `generateContent` and its relatives.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Extra;

/// A request to `generateContent`. The model is part of the address.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateContentRequest {
    /// The conversation so far.
    pub contents: Vec<Content>,
    /// What the model is told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_instruction: Option<Content>,
    /// The tools that the model may use.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether it has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_config: Option<ToolConfig>,
    /// How the answer is made, and what it looks like.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_config: Option<GenerationConfig>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl GenerateContentRequest {
    /// Asks to go on with a conversation.
    pub fn new(contents: impl Into<Vec<Content>>) -> Self {
        Self {
            contents: contents.into(),
            ..Self::default()
        }
    }

    /// Asks one thing.
    pub fn text(text: impl Into<String>) -> Self {
        Self::new([Content::user(text)])
    }

    /// With instructions.
    #[must_use]
    pub fn system_instruction(mut self, text: impl Into<String>) -> Self {
        self.system_instruction = Some(Content {
            role: None,
            ..Content::user(text)
        });
        self
    }

    /// With functions that the model may call.
    #[must_use]
    pub fn functions(mut self, functions: impl Into<Vec<FunctionDeclaration>>) -> Self {
        self.tools.push(Tool {
            function_declarations: functions.into(),
            extra: Extra::new(),
        });
        self
    }

    /// With a word on whether it has to.
    #[must_use]
    pub fn function_calling(mut self, mode: FunctionCallingMode) -> Self {
        let config = self.tool_config.get_or_insert_default();
        config.function_calling_config.get_or_insert_default().mode = Some(mode);
        self
    }

    /// With settings.
    #[must_use]
    pub fn generation_config(mut self, config: GenerationConfig) -> Self {
        self.generation_config = Some(config);
        self
    }
}

/// A question of how many tokens a request has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CountTokensRequest {
    /// A conversation, where nothing else counts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub contents: Vec<Content>,
    /// A whole request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generate_content_request: Option<GenerateContentRequest>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl From<Vec<Content>> for CountTokensRequest {
    fn from(contents: Vec<Content>) -> Self {
        Self {
            contents,
            ..Self::default()
        }
    }
}

impl From<GenerateContentRequest> for CountTokensRequest {
    fn from(request: GenerateContentRequest) -> Self {
        Self {
            generate_content_request: Some(request),
            ..Self::default()
        }
    }
}

/// What somebody says.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Content {
    /// Who speaks: `user` or `model`; nobody where it is an instruction.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<String>,
    /// What is said.
    #[serde(default)]
    pub parts: Vec<Part>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Content {
    /// What somebody says in parts.
    pub fn new(role: impl Into<String>, parts: impl Into<Vec<Part>>) -> Self {
        Self {
            role: Some(role.into()),
            parts: parts.into(),
            extra: Extra::new(),
        }
    }

    /// What the user says.
    pub fn user(text: impl Into<String>) -> Self {
        Self::new("user", [Part::text(text)])
    }

    /// What the model said.
    pub fn model(text: impl Into<String>) -> Self {
        Self::new("model", [Part::text(text)])
    }
}

/// A part of what is said: text, or one of the others.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Part {
    /// Text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// Whether the text is a thought of the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought: Option<bool>,
    /// The proof that the thoughts before it are the model's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
    /// An image, a sound or another file, itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inline_data: Option<Blob>,
    /// A file somewhere else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_data: Option<FileData>,
    /// A call of a function.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_call: Option<FunctionCall>,
    /// What a function answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_response: Option<FunctionResponse>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Part {
    /// Text.
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: Some(text.into()),
            ..Self::default()
        }
    }

    /// An image, a sound or another file, in base64.
    pub fn inline_data(mime_type: impl Into<String>, base64: impl Into<String>) -> Self {
        Self {
            inline_data: Some(Blob {
                mime_type: mime_type.into(),
                data: base64.into(),
                extra: Extra::new(),
            }),
            ..Self::default()
        }
    }

    /// What a function answered to a call. The vendor wants an object: anything else becomes the
    /// `output` of one.
    #[must_use]
    pub fn function_response(call: &FunctionCall, answer: Value) -> Self {
        let response = match answer {
            Value::Object(members) => Value::Object(members),
            other => json!({ "output": other }),
        };
        Self {
            function_response: Some(FunctionResponse {
                id: call.id.clone(),
                name: call.name.clone(),
                response,
                extra: Extra::new(),
            }),
            ..Self::default()
        }
    }
}

/// A file itself.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Blob {
    /// Its media type.
    pub mime_type: String,
    /// It, in base64.
    pub data: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A file somewhere else.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileData {
    /// Its media type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mime_type: Option<String>,
    /// Where it is.
    pub file_uri: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A call of a function.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct FunctionCall {
    /// What the answer to it is matched by, where the model says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// The arguments.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub args: Value,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What a function answered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionResponse {
    /// The call that it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The function.
    pub name: String,
    /// The answer: an object.
    pub response: Value,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Tools that the model may use.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Tool {
    /// Functions of the caller's.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub function_declarations: Vec<FunctionDeclaration>,
    /// Everything else, such as the vendor's own tools.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A function that the model may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionDeclaration {
    /// Its name.
    pub name: String,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Its arguments, in the vendor's own language for schemas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters: Option<Value>,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub parameters_json_schema: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl FunctionDeclaration {
    /// A function, with the JSON Schema of its arguments.
    pub fn new(name: impl Into<String>, description: impl Into<String>, parameters: Value) -> Self {
        Self {
            name: name.into(),
            description: Some(description.into()),
            parameters_json_schema: Some(parameters),
            ..Self::default()
        }
    }
}

/// Whether the model uses tools.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ToolConfig {
    /// Whether it calls functions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function_calling_config: Option<FunctionCallingConfig>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Whether the model calls functions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FunctionCallingConfig {
    /// Whether it does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<FunctionCallingMode>,
    /// Which ones it may call; all where there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_function_names: Vec<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Whether the model calls functions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FunctionCallingMode {
    /// As it likes.
    Auto,
    /// Always.
    Any,
    /// Never.
    None,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

/// How an answer is made, and what it looks like.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerationConfig {
    /// How much chance there is in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From how much of the probability a token is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// From how many a token is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<f64>,
    /// How many answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidate_count: Option<u64>,
    /// The most tokens of an answer, reasoning included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_output_tokens: Option<u64>,
    /// Texts before which the answer ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_sequences: Vec<String>,
    /// Makes chance repeatable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seed: Option<i64>,
    /// The media type of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_mime_type: Option<String>,
    /// What a JSON answer looks like, in the vendor's own language for schemas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_schema: Option<Value>,
    /// The JSON Schema of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_json_schema: Option<Value>,
    /// Whether the model reasons, and whether it tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_config: Option<ThinkingConfig>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl GenerationConfig {
    /// An answer in JSON that keeps to a schema.
    #[must_use]
    pub fn json_schema(schema: Value) -> Self {
        Self {
            response_mime_type: Some("application/json".to_owned()),
            response_json_schema: Some(schema),
            ..Self::default()
        }
    }
}

/// Whether the model reasons, and whether it tells.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ThinkingConfig {
    /// Whether its thoughts are part of the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub include_thoughts: Option<bool>,
    /// In how many tokens it reasons at most; -1 for as many as it likes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking_budget: Option<i64>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}
