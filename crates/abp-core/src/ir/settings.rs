//! How an answer should be made.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrToolChoice, IrVendorField, Leaf, Origin, RawJson};

/// How an answer should be made. Numbers keep their spelling.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrSettings {
    /// The model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<Leaf<String>>,
    /// The most tokens the answer may have, reasoning included.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_tokens: Option<Leaf<RawJson>>,
    /// Sampling temperature.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub temperature: Option<Leaf<RawJson>>,
    /// Nucleus sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_p: Option<Leaf<RawJson>>,
    /// Sampling among the k likeliest tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_k: Option<Leaf<RawJson>>,
    /// The seed of sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub seed: Option<Leaf<RawJson>>,
    /// Penalty for frequent tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frequency_penalty: Option<Leaf<RawJson>>,
    /// Penalty for tokens already present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub presence_penalty: Option<Leaf<RawJson>>,
    /// How many answers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub candidate_count: Option<Leaf<RawJson>>,
    /// Whether the answer should carry log probabilities.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub logprobs: Option<Leaf<bool>>,
    /// How many alternatives each token should carry.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top_logprobs: Option<Leaf<RawJson>>,
    /// Texts that end the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<IrStop>,
    /// The form of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_format: Option<IrResponseFormat>,
    /// How much the model should reason, and how much of it should show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<IrReasoning>,
    /// Which tools the model may or must call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tool_choice: Option<IrToolChoice>,
    /// Whether several tools may be called at once.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub parallel_tool_calls: Option<Leaf<bool>>,
    /// Whether the answer is streamed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stream: Option<Leaf<bool>>,
    /// Whether a stream should end with its usage.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_usage: Option<Leaf<bool>>,
    /// Who the answer is for, as the caller names them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<Leaf<String>>,
    /// Tools and choices were given in the form that predates tools.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub legacy_functions: bool,
    /// What only the source's dialect knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
}

impl IrSettings {
    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Texts that end the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrStop {
    /// The texts.
    pub sequences: Vec<Leaf<String>>,
    /// Whether the source gave one string instead of a list.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub plain: bool,
}

/// The form of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrResponseFormat {
    /// The form.
    #[serde(flatten)]
    pub kind: IrResponseFormatKind,
    /// What only the source's dialect knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
    /// The setting in the source.
    #[serde(skip)]
    pub origin: Origin,
}

/// The form of the answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrResponseFormatKind {
    /// Text, as is usual.
    Text,
    /// Any JSON object.
    JsonObject,
    /// JSON that a schema describes.
    JsonSchema {
        /// The schema.
        schema: Option<Leaf<RawJson>>,
        /// Its name.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        name: Option<Leaf<String>>,
        /// What it is for.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<Leaf<String>>,
        /// Whether the answer must follow it exactly.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        strict: Option<Leaf<bool>>,
    },
}

/// How much the model should reason, and how much of it should show.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrReasoning {
    /// Whether it should reason at all, where the source says so in so many words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Leaf<IrReasoningMode>>,
    /// How hard: `none`, `minimal`, `low`, `medium`, `high`, `xhigh`, `max`, or a newer word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<Leaf<String>>,
    /// The most tokens it may spend on reasoning.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget_tokens: Option<Leaf<RawJson>>,
    /// Which summary of the reasoning should show: `auto`, `concise`, `detailed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub summary: Option<Leaf<String>>,
    /// Whether the reasoning should show.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub include_thoughts: Option<Leaf<bool>>,
    /// What only the source's dialect knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
}

/// Whether a model should reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrReasoningMode {
    /// Yes, within its budget.
    Enabled,
    /// No.
    Disabled,
    /// As it finds fit.
    Adaptive,
}
