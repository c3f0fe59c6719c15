//! What Responses answer in pieces.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;
use super::responses::{Response, ResponseItem};

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type")]
pub enum ResponseStreamEvent {
    /// The answer is begun.
    #[serde(rename = "response.created")]
    Created(ResponseSnapshot),
    /// The model is at work.
    #[serde(rename = "response.in_progress")]
    InProgress(ResponseSnapshot),
    /// The answer is complete. It is the last event.
    #[serde(rename = "response.completed")]
    Completed(ResponseSnapshot),
    /// The answer ended early. It is the last event.
    #[serde(rename = "response.incomplete")]
    Incomplete(ResponseSnapshot),
    /// The answer failed. It is the last event, and an error follows.
    #[serde(rename = "response.failed")]
    Failed(ResponseSnapshot),
    /// An item is begun.
    #[serde(rename = "response.output_item.added")]
    OutputItemAdded(ResponseItemEvent),
    /// An item is complete.
    #[serde(rename = "response.output_item.done")]
    OutputItemDone(ResponseItemEvent),
    /// Text is added.
    #[serde(rename = "response.output_text.delta")]
    OutputTextDelta(ResponseTextDelta),
    /// Words with which the model declines are added.
    #[serde(rename = "response.refusal.delta")]
    RefusalDelta(ResponseTextDelta),
    /// JSON of a call's arguments is added.
    #[serde(rename = "response.function_call_arguments.delta")]
    FunctionCallArgumentsDelta(ResponseTextDelta),
    /// A summary of the reasoning is added to.
    #[serde(rename = "response.reasoning_summary_text.delta")]
    ReasoningSummaryTextDelta(ResponseTextDelta),
    /// Anything else.
    #[serde(untagged)]
    Other(Value),
}

/// The answer as it is at some point.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseSnapshot {
    /// The answer.
    pub response: Response,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An item of an answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseItemEvent {
    /// Which one.
    #[serde(default)]
    pub output_index: u64,
    /// The item.
    pub item: ResponseItem,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// What is added to a text of an item.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResponseTextDelta {
    /// The item.
    #[serde(default)]
    pub item_id: String,
    /// Which one it is.
    #[serde(default)]
    pub output_index: u64,
    /// What is added.
    pub delta: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}
