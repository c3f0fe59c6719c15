//! The vendor's words: roles, reasons, errors, and the members that no other dialect has; and its
//! documents as types, for those who write requests and read answers in Rust.
//!
//! Types are as open as the vendor is: what has no member of its own is kept in `extra` or in a
//! variant `Other`, and is written back as it was read.

mod chat;
mod chat_answer;
mod error;
mod read;
mod response_event;
mod responses;

use std::borrow::Cow;

use abp_core::ir::{IrErrorKind, IrFinishReason, IrRole};
use abp_dialect::{Dialect, WireFamily};

pub use chat::{
    ChatCompletionRequest, ChatMessage, Content, ContentPart, FunctionCall, FunctionDefinition,
    ImageUrl, JsonSchemaFormat, ResponseFormat, Role, Stop, StreamOptions, Tool, ToolCall,
    ToolChoice,
};
pub use chat_answer::{
    ChatCompletion, ChatCompletionChunk, Choice, ChoiceDelta, ChunkChoice, CompletionTokensDetails,
    CompletionUsage, FinishReason, FunctionCallDelta, PromptTokensDetails, ToolCallDelta,
};
pub use error::{ErrorObject, ErrorResponse, Model, ModelList};
pub use response_event::{
    ResponseItemEvent, ResponseSnapshot, ResponseStreamEvent, ResponseTextDelta,
};
pub use responses::{
    DeletedResponse, InputItemList, InputTokenCount, Response, ResponseContent,
    ResponseFunctionCall, ResponseInput, ResponseItem, ResponseMessage, ResponsePart,
    ResponseRequest, ResponseStatus, ResponseTool, ResponseUsage,
};

/// Members that have no type of their own, by name. They are sent, and kept, as they are.
pub type Extra = serde_json::Map<String, serde_json::Value>;

/// Members of a request that are OpenAI's alone, or that Responses has in the same meaning.
pub(crate) const REQUEST_MEMBERS: &[&str] = &[
    "audio",
    "logit_bias",
    "metadata",
    "modalities",
    "moderation",
    "prediction",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "verbosity",
    "web_search_options",
];

/// Members of a request that compatible servers added.
pub(crate) const COMPATIBLE_MEMBERS: &[&str] = &[
    "chat_template_kwargs",
    "enable_thinking",
    "include_reasoning",
    "min_p",
    "models",
    "plugins",
    "provider",
    "reasoning_format",
    "repetition_penalty",
    "route",
    "safe_prompt",
    "search_parameters",
    "transforms",
];

/// Members of a message besides its content.
pub(crate) const MESSAGE_MEMBERS: &[&str] = &["audio", "name"];

/// Members of an answer's message that compatible servers added.
pub(crate) const COMPATIBLE_MESSAGE_MEMBERS: &[&str] = &[
    "channel",
    "executed_tools",
    "extra_content",
    "images",
    "padding",
    "prefix",
    "reasoning_details",
    "thought_signature",
];

/// Members of a part of content, besides the part itself.
pub(crate) const PART_MEMBERS: &[&str] = &["cache_control", "prompt_cache_breakpoint"];

/// Members of an answer besides what every dialect has.
pub(crate) const RESPONSE_MEMBERS: &[&str] = &[
    "citations",
    "copilot_usage",
    "metadata",
    "moderation",
    "prompt_filter_results",
    "provider",
    "request_id",
    "search_results",
    "service_tier",
    "system_fingerprint",
    "timings",
    "usage_breakdown",
    "x_groq",
];

/// Members of a choice besides its message and its end.
pub(crate) const CHOICE_MEMBERS: &[&str] = &[
    "content_filter_results",
    "logprobs",
    "native_finish_reason",
    "stop_reason",
];

/// Members of usage, and of its two lists of details, that no other dialect has.
pub(crate) const USAGE_MEMBERS: &[&str] = &[
    "accepted_prediction_tokens",
    "audio_tokens",
    "completion_time",
    "cost",
    "cost_details",
    "image_tokens",
    "is_byok",
    "prompt_cache_miss_tokens",
    "prompt_time",
    "queue_time",
    "rejected_prediction_tokens",
    "search_context_size",
    "text_tokens",
    "total_time",
    "video_tokens",
];

/// Members of an error that compatible servers added.
pub(crate) const ERROR_MEMBERS: &[&str] = &[
    "details",
    "failed_generation",
    "innererror",
    "metadata",
    "status_code",
];

/// Whether a member of another dialect's request means the same in this one.
pub(crate) fn shared_member(from: Dialect, name: &str) -> bool {
    match from.family() {
        WireFamily::Chat => true,
        WireFamily::Responses => matches!(
            name,
            "metadata"
                | "moderation"
                | "prompt_cache_breakpoint"
                | "prompt_cache_key"
                | "prompt_cache_options"
                | "prompt_cache_retention"
                | "safety_identifier"
                | "service_tier"
                | "store"
                | "verbosity"
        ),
        _ => false,
    }
}

/// Who speaks; `None` for a word that nobody has used yet.
pub(crate) fn role(word: &str) -> Option<IrRole> {
    match word {
        "system" => Some(IrRole::System),
        "developer" => Some(IrRole::Developer),
        "user" => Some(IrRole::User),
        "assistant" => Some(IrRole::Assistant),
        "tool" | "function" => Some(IrRole::Tool),
        _ => None,
    }
}

/// Why an answer ended.
pub(crate) fn finish_reason(word: &str) -> IrFinishReason {
    match word {
        "stop" => IrFinishReason::Stop,
        "length" => IrFinishReason::Length,
        "tool_calls" | "function_call" => IrFinishReason::ToolUse,
        "content_filter" => IrFinishReason::ContentFilter,
        "error" => IrFinishReason::Error,
        _ => IrFinishReason::Other,
    }
}

/// The word for the end of an answer, and what it does not say.
pub(crate) fn finish_word(reason: IrFinishReason) -> (&'static str, Option<&'static str>) {
    match reason {
        IrFinishReason::Stop | IrFinishReason::StopSequence => ("stop", None),
        IrFinishReason::Length => ("length", None),
        IrFinishReason::ToolUse => ("tool_calls", None),
        IrFinishReason::ContentFilter => ("content_filter", None),
        IrFinishReason::Refusal => (
            "content_filter",
            Some("that the model itself declined has no word of its own"),
        ),
        IrFinishReason::Pause => (
            "length",
            Some("a pause has no word of its own; the answer is not complete"),
        ),
        IrFinishReason::Error | IrFinishReason::Incomplete => (
            "length",
            Some("a failure has no word of its own; the answer is not complete"),
        ),
        _ => ("stop", Some("the reason has no word here")),
    }
}

/// The media type of a sound's format.
pub(crate) fn audio_media_type(format: &str) -> Cow<'static, str> {
    match format {
        "mp3" => Cow::Borrowed("audio/mpeg"),
        "wav" => Cow::Borrowed("audio/wav"),
        other => Cow::Owned(format!("audio/{other}")),
    }
}

/// The format of a sound's media type, where the vendor takes it.
pub(crate) fn audio_format(media_type: &str) -> Option<&'static str> {
    match media_type {
        "audio/mpeg" | "audio/mp3" => Some("mp3"),
        "audio/wav" | "audio/wave" | "audio/x-wav" => Some("wav"),
        _ => None,
    }
}

/// What kind of error it is, by the code, the status, or the vendor's word, in this order: codes are
/// the most exact, and the word is often `invalid_request_error` whatever is wrong.
pub(crate) fn error_kind(code: Option<&str>, status: Option<u16>, word: &str) -> IrErrorKind {
    let by_code = code.and_then(|code| match code {
        "invalid_api_key" => Some(IrErrorKind::Authentication),
        "insufficient_quota" => Some(IrErrorKind::Billing),
        "model_not_found" => Some(IrErrorKind::NotFound),
        "rate_limit_exceeded" | "RateLimitReached" => Some(IrErrorKind::RateLimit),
        _ => None,
    });
    by_code
        .or_else(|| error_kind_of_word(word).filter(|kind| *kind == IrErrorKind::Billing))
        .or(status.map(IrErrorKind::of_status))
        .or_else(|| error_kind_of_word(word))
        .unwrap_or(IrErrorKind::Other)
}

fn error_kind_of_word(word: &str) -> Option<IrErrorKind> {
    Some(match word {
        "invalid_request_error" | "bad_request_error" | "content_filter" => {
            IrErrorKind::InvalidRequest
        }
        "authentication_error" | "invalid_authentication_error" => IrErrorKind::Authentication,
        "insufficient_quota" | "exceeded_current_quota_error" | "billing_error" => {
            IrErrorKind::Billing
        }
        "permission_error" | "permission_denied_error" => IrErrorKind::Permission,
        "not_found_error" | "resource_not_found_error" => IrErrorKind::NotFound,
        "conflict_error" => IrErrorKind::Conflict,
        "request_too_large" => IrErrorKind::TooLarge,
        "rate_limit_error" | "rate_limit_reached_error" | "requests" | "tokens" => {
            IrErrorKind::RateLimit
        }
        "server_error" | "internal_server_error" | "api_error" => IrErrorKind::Server,
        "overloaded_error" | "engine_overloaded_error" | "service_unavailable_error" => {
            IrErrorKind::Overloaded
        }
        "timeout_error" => IrErrorKind::Timeout,
        _ => return None,
    })
}

/// The vendor's word for an error, and its usual status.
pub(crate) fn error_word(kind: IrErrorKind) -> (&'static str, u16) {
    match kind {
        IrErrorKind::InvalidRequest => ("invalid_request_error", 400),
        IrErrorKind::Authentication => ("authentication_error", 401),
        IrErrorKind::Billing => ("insufficient_quota", 402),
        IrErrorKind::Permission => ("permission_error", 403),
        IrErrorKind::NotFound => ("not_found_error", 404),
        IrErrorKind::Conflict => ("conflict_error", 409),
        IrErrorKind::TooLarge => ("request_too_large", 413),
        IrErrorKind::RateLimit => ("rate_limit_error", 429),
        IrErrorKind::Overloaded => ("service_unavailable_error", 503),
        IrErrorKind::Timeout => ("timeout_error", 504),
        _ => ("server_error", 500),
    }
}

/// The status to answer with: the source's own where it stands for the same kind here.
pub(crate) fn error_status(kind: IrErrorKind, status: Option<u16>) -> u16 {
    let (_, usual) = error_word(kind);
    status
        .filter(|status| *status != 529 && IrErrorKind::of_status(*status) == kind)
        .unwrap_or(usual)
}
