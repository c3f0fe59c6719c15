//! What is asked of Messages.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::Extra;
use super::content::Content;

/// A request to Messages.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct MessageRequest {
    /// The model.
    pub model: String,
    /// The most tokens of an answer, reasoning included.
    pub max_tokens: u64,
    /// The conversation so far.
    pub messages: Vec<MessageParam>,
    /// What the model is told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Content>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether it has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether it reasons before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// What the answer has to look like, and how hard the model works for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output_config: Option<Value>,
    /// How much chance there is in the answer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub temperature: Option<f64>,
    /// From how much of the probability a token is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_p: Option<f64>,
    /// From how many a token is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top_k: Option<u64>,
    /// Texts before which the answer ends.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stop_sequences: Vec<String>,
    /// Whether the answer comes in pieces. The client sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stream: Option<bool>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl MessageRequest {
    /// Asks a model to go on with a conversation, in so many tokens at most.
    pub fn new(
        model: impl Into<String>,
        max_tokens: u64,
        messages: impl Into<Vec<MessageParam>>,
    ) -> Self {
        Self {
            model: model.into(),
            max_tokens,
            messages: messages.into(),
            ..Self::default()
        }
    }

    /// With instructions.
    #[must_use]
    pub fn system(mut self, system: impl Into<Content>) -> Self {
        self.system = Some(system.into());
        self
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

    /// With so many tokens to reason in.
    #[must_use]
    pub fn thinking_budget(mut self, budget_tokens: u64) -> Self {
        self.thinking = Some(Thinking::Enabled {
            budget_tokens,
            extra: Extra::new(),
        });
        self
    }

    /// With an answer in JSON that keeps to a schema.
    #[must_use]
    pub fn json_schema(mut self, schema: &Value) -> Self {
        let format = json!({ "type": "json_schema", "schema": schema });
        self.output_config = Some(json!({ "format": format }));
        self
    }

    /// With more or less chance.
    #[must_use]
    pub fn temperature(mut self, temperature: f64) -> Self {
        self.temperature = Some(temperature);
        self
    }
}

/// A question of how many tokens a request has.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CountTokensRequest {
    /// The model.
    pub model: String,
    /// The conversation so far.
    pub messages: Vec<MessageParam>,
    /// What the model is told before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system: Option<Content>,
    /// The tools that the model may call.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tools: Vec<Tool>,
    /// Whether it has to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<ToolChoice>,
    /// Whether it reasons before it answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thinking: Option<Thinking>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl From<MessageRequest> for CountTokensRequest {
    /// What of a request counts.
    fn from(request: MessageRequest) -> Self {
        Self {
            model: request.model,
            messages: request.messages,
            system: request.system,
            tools: request.tools,
            tool_choice: request.tool_choice,
            thinking: request.thinking,
            extra: Extra::new(),
        }
    }
}

/// A message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MessageParam {
    /// Who speaks.
    pub role: Role,
    /// What is said.
    pub content: Content,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl MessageParam {
    /// A message of somebody.
    pub fn new(role: Role, content: impl Into<Content>) -> Self {
        Self {
            role,
            content: content.into(),
            extra: Extra::new(),
        }
    }

    /// What the user says, and what tools answered.
    pub fn user(content: impl Into<Content>) -> Self {
        Self::new(Role::User, content)
    }

    /// What the model said.
    pub fn assistant(content: impl Into<Content>) -> Self {
        Self::new(Role::Assistant, content)
    }
}

/// Who speaks.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// The user.
    User,
    /// The model.
    Assistant,
    /// Somebody else.
    #[serde(untagged)]
    Other(String),
}

/// A tool that the model may call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Tool {
    /// Which of the vendor's own tools it is; nothing, or `custom`, for one of the caller's.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What it is for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub input_schema: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl Tool {
    /// A tool of the caller's, with the JSON Schema of its arguments.
    pub fn new(
        name: impl Into<String>,
        description: impl Into<String>,
        input_schema: Value,
    ) -> Self {
        Self {
            name: Some(name.into()),
            description: Some(description.into()),
            input_schema: Some(input_schema),
            ..Self::default()
        }
    }
}

/// Whether the model calls tools.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ToolChoice {
    /// As it likes.
    Auto {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Always.
    Any {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Always this one.
    Tool {
        /// Its name.
        name: String,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Never.
    None {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

impl ToolChoice {
    /// As the model likes.
    #[must_use]
    pub fn auto() -> Self {
        Self::Auto {
            extra: Extra::new(),
        }
    }

    /// Always some tool.
    #[must_use]
    pub fn any() -> Self {
        Self::Any {
            extra: Extra::new(),
        }
    }

    /// Never.
    #[must_use]
    pub fn none() -> Self {
        Self::None {
            extra: Extra::new(),
        }
    }

    /// Always this tool.
    pub fn tool(name: impl Into<String>) -> Self {
        Self::Tool {
            name: name.into(),
            extra: Extra::new(),
        }
    }
}

/// Whether the model reasons before it answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Thinking {
    /// It does.
    Enabled {
        /// In so many tokens at most.
        budget_tokens: u64,
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// As much as it likes.
    Adaptive {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// It does not.
    Disabled {
        /// Everything else.
        #[serde(flatten)]
        extra: Extra,
    },
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}
