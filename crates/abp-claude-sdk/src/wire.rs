//! The vendor's words: members, types of blocks, reasons to stop, kinds of errors; and its documents
//! as types, for those who write requests and read answers in Rust.
//!
//! Types are as open as the vendor is: what has no member of its own is kept in `extra` or in a
//! variant `Other`, and is written back as it was read.

mod answer;
mod content;
mod request;

use abp_core::ir::{IrErrorKind, IrFinishReason};

pub use answer::{
    ContentDelta, ErrorObject, ErrorResponse, Message, MessageDelta, MessageStreamEvent,
    MessageTokensCount, ModelInfo, ModelList, StopReason, Usage,
};
pub use content::{Content, ContentBlock, Source};
pub use request::{
    CountTokensRequest, MessageParam, MessageRequest, Role, Thinking, Tool, ToolChoice,
};

/// Members that have no type of their own, by name. They are sent, and kept, as they are.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// Members of a request that no other dialect has.
pub(crate) const REQUEST_VENDOR: &[&str] = &[
    "anthropic_beta",
    "anthropic_version",
    "cache_control",
    "container",
    "context_management",
    "diagnostics",
    "fallback_credit_token",
    "fallbacks",
    "inference_geo",
    "mcp_servers",
    "service_tier",
    "speed",
];

/// Members of a request's `output_config` that no other dialect has.
pub(crate) const OUTPUT_VENDOR: &[&str] = &["format", "task_budget"];

/// Members of a function that no other dialect has.
pub(crate) const TOOL_VENDOR: &[&str] = &[
    "allowed_callers",
    "cache_control",
    "defer_loading",
    "eager_input_streaming",
    "input_examples",
];

/// Members of an answer that no other dialect has.
pub(crate) const RESPONSE_VENDOR: &[&str] = &["container", "context_management", "diagnostics"];

/// Counts and remarks on an answer's cost that no other dialect has.
pub(crate) const USAGE_VENDOR: &[&str] = &[
    "cache_creation",
    "fallback_credit",
    "inference_geo",
    "iterations",
    "server_tool_use",
    "service_tier",
    "speed",
];

/// The media types of images that the vendor takes.
pub(crate) const IMAGE_TYPES: [&str; 4] = ["image/jpeg", "image/png", "image/gif", "image/webp"];

/// The one media type of a document that travels as base64.
pub(crate) const PDF: &str = "application/pdf";

/// The media type of a document of plain text.
pub(crate) const PLAIN_TEXT: &str = "text/plain";

/// The schema of a tool that takes no arguments; the vendor wants one.
pub(crate) const NO_ARGUMENTS: &str = r#"{"type":"object","properties":{}}"#;

/// The fewest tokens that a budget of reasoning may have.
pub(crate) const LEAST_BUDGET: u64 = 1024;

/// How hard a model may be told to work, from least to most.
pub(crate) const EFFORTS: [&str; 5] = ["low", "medium", "high", "xhigh", "max"];

/// Types of blocks that the representation has a form for. All others are opaque.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BlockType {
    Text,
    Image,
    Document,
    ToolUse,
    ToolResult,
    Thinking,
    RedactedThinking,
}

impl BlockType {
    pub(crate) fn of(word: &str) -> Option<Self> {
        match word {
            "text" => Some(Self::Text),
            "image" => Some(Self::Image),
            "document" => Some(Self::Document),
            "tool_use" => Some(Self::ToolUse),
            "tool_result" => Some(Self::ToolResult),
            "thinking" => Some(Self::Thinking),
            "redacted_thinking" => Some(Self::RedactedThinking),
            _ => None,
        }
    }

    /// Members that no other dialect has.
    pub(crate) fn vendor(self) -> &'static [&'static str] {
        match self {
            Self::Text | Self::Image | Self::ToolResult => &["cache_control"],
            Self::Document => &["cache_control", "citations", "context"],
            Self::ToolUse => &["cache_control", "caller"],
            Self::Thinking | Self::RedactedThinking => &[],
        }
    }
}

/// What a reason to stop means. A pause for compaction wants to be asked again like any other.
pub(crate) fn finish_reason(word: &str) -> IrFinishReason {
    match word {
        "end_turn" => IrFinishReason::Stop,
        "max_tokens" | "model_context_window_exceeded" => IrFinishReason::Length,
        "stop_sequence" => IrFinishReason::StopSequence,
        "tool_use" => IrFinishReason::ToolUse,
        "pause_turn" | "compaction" => IrFinishReason::Pause,
        "refusal" => IrFinishReason::Refusal,
        _ => IrFinishReason::Other,
    }
}

/// Every kind of error with the vendor's word and status for it.
const ERRORS: [(IrErrorKind, &str, u16); 12] = [
    (IrErrorKind::InvalidRequest, "invalid_request_error", 400),
    (IrErrorKind::Authentication, "authentication_error", 401),
    (IrErrorKind::Billing, "billing_error", 402),
    (IrErrorKind::Permission, "permission_error", 403),
    (IrErrorKind::NotFound, "not_found_error", 404),
    (IrErrorKind::Conflict, "invalid_request_error", 409),
    (IrErrorKind::TooLarge, "request_too_large", 413),
    (IrErrorKind::RateLimit, "rate_limit_error", 429),
    (IrErrorKind::Server, "api_error", 500),
    (IrErrorKind::Overloaded, "overloaded_error", 529),
    (IrErrorKind::Overloaded, "overloaded_error", 503),
    (IrErrorKind::Timeout, "timeout_error", 504),
];

/// The kind of an error and its usual status. The word says more than the status, which a proxy may
/// have set.
pub(crate) fn error_kind(word: &str, status: Option<u16>) -> (IrErrorKind, Option<u16>) {
    let by = |matches: &dyn Fn(&str, u16) -> bool| {
        let row = ERRORS.iter().find(|(_, word, usual)| matches(word, *usual));
        row.map(|(kind, _, usual)| (*kind, Some(*usual)))
    };
    by(&|known, usual| known == word && Some(usual) == status)
        .or_else(|| by(&|known, _| known == word))
        .or_else(|| by(&|_, usual| Some(usual) == status))
        .unwrap_or((IrErrorKind::Other, None))
}

/// The vendor's word and status for a kind of error.
pub(crate) fn error_word(kind: IrErrorKind) -> Option<(&'static str, u16)> {
    let row = ERRORS.iter().find(|(known, _, _)| *known == kind);
    row.map(|(_, word, status)| (*word, *status))
}
