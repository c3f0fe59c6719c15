//! What `generateContent` and its relatives answer. A piece of a stream is an answer like a whole one.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;
use super::request::{Content, FunctionCall, Part};

/// An answer, or a piece of one.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct GenerateContentResponse {
    /// The answers, one unless more were asked for; none where the request was refused.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub candidates: Vec<Candidate>,
    /// What the vendor thinks of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_feedback: Option<PromptFeedback>,
    /// The tokens it took so far.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage_metadata: Option<UsageMetadata>,
    /// The model that made it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model_version: Option<String>,
    /// Its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub response_id: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl GenerateContentResponse {
    /// What the first answer says, which is also what goes back into the conversation.
    #[must_use]
    pub fn content(&self) -> Option<&Content> {
        self.candidates.first()?.content.as_ref()
    }

    /// The text of the first answer, without thoughts.
    #[must_use]
    pub fn text(&self) -> String {
        let spoken = self.parts().filter(|part| part.thought != Some(true));
        spoken.filter_map(|part| part.text.as_deref()).collect()
    }

    /// The functions that the first answer calls.
    pub fn function_calls(&self) -> impl Iterator<Item = &FunctionCall> {
        self.parts().filter_map(|part| part.function_call.as_ref())
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.content()
            .into_iter()
            .flat_map(|content| &content.parts)
    }
}

/// One of the answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Candidate {
    /// Which one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u64>,
    /// What it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content: Option<Content>,
    /// Why it ended, once it has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<FinishReason>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// Why an answer ended. A call of a function ends with `Stop`, too.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum FinishReason {
    /// It was complete.
    Stop,
    /// It had as many tokens as it may have.
    MaxTokens,
    /// It was not safe.
    Safety,
    /// It was somebody else's text.
    Recitation,
    /// The call of a function could not be read.
    MalformedFunctionCall,
    /// Something else.
    #[serde(untagged)]
    Other(String),
}

/// What the vendor thinks of a request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PromptFeedback {
    /// Why there is no answer to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub block_reason: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The tokens that an answer took.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct UsageMetadata {
    /// Those of the request, cached ones included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt_token_count: Option<u64>,
    /// Those of the answers, without thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub candidates_token_count: Option<u64>,
    /// Those of the thoughts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thoughts_token_count: Option<u64>,
    /// Those that came from a cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_content_token_count: Option<u64>,
    /// All.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub total_token_count: Option<u64>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// How many tokens a request has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct CountTokensResponse {
    /// So many.
    #[serde(default)]
    pub total_tokens: u64,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Model {
    /// Its name, after `models/`.
    pub name: String,
    /// Its name for people.
    #[serde(default)]
    pub display_name: String,
    /// What it can be asked for.
    #[serde(default)]
    pub supported_generation_methods: Vec<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The models that are served.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ListModelsResponse {
    /// The models.
    #[serde(default)]
    pub models: Vec<Model>,
    /// Where the list goes on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next_page_token: Option<String>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorResponse {
    /// The error.
    pub error: ErrorStatus,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorStatus {
    /// The HTTP status.
    #[serde(default)]
    pub code: u16,
    /// What is wrong, for people.
    #[serde(default)]
    pub message: String,
    /// What is wrong, for programs.
    #[serde(default)]
    pub status: String,
    /// More about it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub details: Vec<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.error.status, self.error.message)
    }
}
