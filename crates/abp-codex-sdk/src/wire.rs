//! The vendor's names and words.

use abp_core::ir::{IrErrorKind, IrFinishReason, IrRole};

/// Parts of a request that are written from the conversation and not from the settings.
pub(crate) const SECTIONS: [&str; 3] = ["instructions", "input", "tools"];

/// Members of a request that no other form exists for.
pub(crate) const REQUEST_VENDOR: &[&str] = &[
    "background",
    "context_management",
    "conversation",
    "max_tool_calls",
    "metadata",
    "moderation",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
    "stream_options",
    "truncation",
];

/// Members of a request that mean the same in chat completions.
pub(crate) const SHARED_WITH_CHAT: &[&str] = &[
    "metadata",
    "moderation",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "service_tier",
    "store",
];

/// What `include` asks for to get log probabilities.
pub(crate) const INCLUDE_LOGPROBS: &str = "message.output_text.logprobs";

/// What `include` asks for to get reasoning that can be given back.
pub(crate) const INCLUDE_REASONING: &str = "reasoning.encrypted_content";

/// Members of an answer that no other form exists for; most of them repeat the request.
pub(crate) const RESPONSE_VENDOR: &[&str] = &[
    "background",
    "billing",
    "completed_at",
    "conversation",
    "copilot_usage",
    "frequency_penalty",
    "instructions",
    "max_output_tokens",
    "max_tool_calls",
    "metadata",
    "moderation",
    "parallel_tool_calls",
    "presence_penalty",
    "previous_response_id",
    "prompt",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "reasoning",
    "safety_identifier",
    "service_tier",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tool_usage",
    "tools",
    "top_logprobs",
    "top_p",
    "truncation",
    "user",
];

/// Members of an answer that only its end knows, or that its end may correct.
pub(crate) const RESPONSE_VENDOR_AT_END: &[&str] = &[
    "billing",
    "completed_at",
    "copilot_usage",
    "metadata",
    "moderation",
    "service_tier",
    "tool_usage",
];

/// Members that repeat the request and that every answer must have, with what stands for "unknown".
pub(crate) const REQUIRED_ECHO: [(&str, &str); 7] = [
    ("instructions", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("temperature", "null"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_p", "null"),
];

/// Members of usage that no other form exists for.
pub(crate) const USAGE_VENDOR: &[&str] = &[
    "audio_prompt_tokens",
    "context_details",
    "cost_in_usd_ticks",
    "num_server_side_tools_used",
    "num_sources_used",
];

/// The least that `max_output_tokens` may be.
pub(crate) const MIN_OUTPUT_TOKENS: u64 = 16;

/// The role a message item names.
pub(crate) fn role(word: &str) -> Option<IrRole> {
    match word {
        "system" => Some(IrRole::System),
        "developer" => Some(IrRole::Developer),
        "user" => Some(IrRole::User),
        "assistant" => Some(IrRole::Assistant),
        _ => None,
    }
}

/// The word for a role; a tool's words that are no answer to a call are the user's.
pub(crate) fn role_word(role: IrRole) -> &'static str {
    match role {
        IrRole::System => "system",
        IrRole::Developer => "developer",
        IrRole::Assistant => "assistant",
        _ => "user",
    }
}

/// Who brings an item that the representation has no form for.
pub(crate) fn opaque_role(kind: &str) -> IrRole {
    if kind.ends_with("_output") || kind.ends_with("_response") {
        IrRole::Tool
    } else if kind == "additional_tools" {
        IrRole::User
    } else {
        IrRole::Assistant
    }
}

/// Whether something that the representation has no form for is a part of a message's content
/// instead of an item.
pub(crate) fn is_content_part(kind: &str) -> bool {
    kind.starts_with("input_") || kind.starts_with("output_") || kind == "computer_screenshot"
}

/// Why an answer is incomplete.
pub(crate) fn incomplete_reason(word: &str) -> IrFinishReason {
    match word {
        "max_output_tokens" => IrFinishReason::Length,
        "content_filter" => IrFinishReason::ContentFilter,
        // Whatever the reason is, the answer must not look complete elsewhere.
        _ => IrFinishReason::Incomplete,
    }
}

/// Whether an ending is a word of this vendor that we do not know: it is kept where it comes from.
/// Without a word, an incomplete answer has its status instead.
pub(crate) fn is_unknown_word(reason: IrFinishReason, native: &str) -> bool {
    reason == IrFinishReason::Incomplete && native != Ending::Incomplete("").status()
}

/// How an answer ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// As it should.
    Completed,
    /// Too early, for this reason.
    Incomplete(&'static str),
    /// Not usable.
    Failed,
}

impl Ending {
    /// The ending for a reason, and whether it says the same.
    pub(crate) fn of(reason: IrFinishReason) -> (Self, bool) {
        match reason {
            IrFinishReason::Stop
            | IrFinishReason::StopSequence
            | IrFinishReason::ToolUse
            | IrFinishReason::Refusal => (Self::Completed, true),
            IrFinishReason::Length => (Self::Incomplete("max_output_tokens"), true),
            IrFinishReason::ContentFilter => (Self::Incomplete("content_filter"), true),
            IrFinishReason::Error => (Self::Failed, true),
            // Clients know two reasons. Of these, only the limit invites to go on.
            _ => (Self::Incomplete("max_output_tokens"), false),
        }
    }

    /// The answer's status.
    pub(crate) fn status(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Incomplete(_) => "incomplete",
            Self::Failed => "failed",
        }
    }

    /// The event that ends a stream.
    pub(crate) fn event(self) -> &'static str {
        match self {
            Self::Completed => "response.completed",
            Self::Incomplete(_) => "response.incomplete",
            Self::Failed => "response.failed",
        }
    }
}

/// The kind of error that a code or a type names.
pub(crate) fn error_kind(word: &str) -> Option<IrErrorKind> {
    Some(match word {
        "invalid_request_error" | "invalid_prompt" | "context_length_exceeded" => {
            IrErrorKind::InvalidRequest
        }
        "authentication_error" | "invalid_api_key" => IrErrorKind::Authentication,
        "insufficient_quota" | "billing_error" | "billing_hard_limit_reached" => {
            IrErrorKind::Billing
        }
        "permission_error" | "permission_denied" | "unsupported_country_region_territory" => {
            IrErrorKind::Permission
        }
        "not_found_error" | "model_not_found" => IrErrorKind::NotFound,
        "conflict_error" => IrErrorKind::Conflict,
        "request_too_large" => IrErrorKind::TooLarge,
        "rate_limit_error" | "rate_limit_exceeded" | "requests" | "tokens" => {
            IrErrorKind::RateLimit
        }
        "server_error" | "internal_error" | "api_error" => IrErrorKind::Server,
        "overloaded_error" | "server_is_overloaded" | "service_unavailable" | "slow_down" => {
            IrErrorKind::Overloaded
        }
        "timeout_error" | "timeout" | "vector_store_timeout" => IrErrorKind::Timeout,
        _ => return None,
    })
}

/// The kind of error that an HTTP status names.
pub(crate) fn error_kind_of_status(status: u16) -> Option<IrErrorKind> {
    Some(match status {
        400 | 422 => IrErrorKind::InvalidRequest,
        401 => IrErrorKind::Authentication,
        402 => IrErrorKind::Billing,
        403 => IrErrorKind::Permission,
        404 => IrErrorKind::NotFound,
        409 => IrErrorKind::Conflict,
        413 => IrErrorKind::TooLarge,
        429 => IrErrorKind::RateLimit,
        500 | 502 => IrErrorKind::Server,
        503 | 529 => IrErrorKind::Overloaded,
        408 | 504 => IrErrorKind::Timeout,
        _ => return None,
    })
}

/// The type and the HTTP status of a kind of error.
pub(crate) fn error_word(kind: IrErrorKind) -> (&'static str, u16) {
    match kind {
        IrErrorKind::InvalidRequest => ("invalid_request_error", 400),
        IrErrorKind::Authentication => ("authentication_error", 401),
        // The vendor answers an empty account as it answers haste.
        IrErrorKind::Billing => ("insufficient_quota", 429),
        IrErrorKind::Permission => ("permission_error", 403),
        IrErrorKind::NotFound => ("not_found_error", 404),
        IrErrorKind::Conflict => ("conflict_error", 409),
        IrErrorKind::TooLarge => ("request_too_large", 413),
        IrErrorKind::RateLimit => ("rate_limit_error", 429),
        IrErrorKind::Overloaded => ("overloaded_error", 503),
        IrErrorKind::Timeout => ("timeout_error", 504),
        _ => ("server_error", 500),
    }
}

/// The code of a kind of error inside a stream; clients decide by it whether to try again.
pub(crate) fn failure_code(kind: IrErrorKind) -> &'static str {
    match kind {
        IrErrorKind::InvalidRequest | IrErrorKind::TooLarge => "invalid_prompt",
        IrErrorKind::Billing => "insufficient_quota",
        IrErrorKind::RateLimit => "rate_limit_exceeded",
        IrErrorKind::Overloaded => "server_is_overloaded",
        _ => "server_error",
    }
}

/// What is streamed in pieces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Streamed {
    /// A message's text.
    Text,
    /// A message's refusal.
    Refusal,
    /// A summary of reasoning.
    Summary,
    /// Reasoning itself.
    Reasoning,
    /// A call's JSON.
    Arguments,
    /// A call's free text.
    Input,
}

/// The events and members of what is streamed in pieces.
#[derive(Debug)]
pub(crate) struct StreamedNames {
    /// The event of a piece.
    pub(crate) delta: &'static str,
    /// The event of the whole.
    pub(crate) done: &'static str,
    /// The member that holds the whole.
    pub(crate) member: &'static str,
    /// Where it is a part of an item, the type of the part.
    pub(crate) part: Option<&'static str>,
}

impl Streamed {
    /// Everything that is streamed in pieces.
    pub(crate) const ALL: [Self; 6] = [
        Self::Text,
        Self::Refusal,
        Self::Summary,
        Self::Reasoning,
        Self::Arguments,
        Self::Input,
    ];

    /// The events and members.
    pub(crate) fn names(self) -> &'static StreamedNames {
        match self {
            Self::Text => &StreamedNames {
                delta: "response.output_text.delta",
                done: "response.output_text.done",
                member: "text",
                part: Some("output_text"),
            },
            Self::Refusal => &StreamedNames {
                delta: "response.refusal.delta",
                done: "response.refusal.done",
                member: "refusal",
                part: Some("refusal"),
            },
            Self::Summary => &StreamedNames {
                delta: "response.reasoning_summary_text.delta",
                done: "response.reasoning_summary_text.done",
                member: "text",
                part: Some("summary_text"),
            },
            Self::Reasoning => &StreamedNames {
                delta: "response.reasoning_text.delta",
                done: "response.reasoning_text.done",
                member: "text",
                part: Some("reasoning_text"),
            },
            Self::Arguments => &StreamedNames {
                delta: "response.function_call_arguments.delta",
                done: "response.function_call_arguments.done",
                member: "arguments",
                part: None,
            },
            Self::Input => &StreamedNames {
                delta: "response.custom_tool_call_input.delta",
                done: "response.custom_tool_call_input.done",
                member: "input",
                part: None,
            },
        }
    }

    /// The member that numbers the parts of an item.
    pub(crate) fn index(self) -> Option<&'static str> {
        match self {
            Self::Summary => Some("summary_index"),
            Self::Text | Self::Refusal | Self::Reasoning => Some("content_index"),
            Self::Arguments | Self::Input => None,
        }
    }

    /// The events that open and close a part.
    pub(crate) fn frame(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Summary => Some((
                "response.reasoning_summary_part.added",
                "response.reasoning_summary_part.done",
            )),
            Self::Text | Self::Refusal | Self::Reasoning => {
                Some(("response.content_part.added", "response.content_part.done"))
            }
            Self::Arguments | Self::Input => None,
        }
    }

    /// What an event is about, and whether it holds the whole instead of a piece.
    pub(crate) fn of_event(name: &str) -> Option<(Self, bool)> {
        Self::ALL.into_iter().find_map(|streamed| {
            let names = streamed.names();
            (names.delta == name || names.done == name).then_some((streamed, names.done == name))
        })
    }

    /// What a part of this type is.
    pub(crate) fn of_part(kind: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|streamed| streamed.names().part == Some(kind))
    }
}

/// Members of events that only say where in the stream they belong, and padding.
pub(crate) const BOOKKEEPING: [&str; 7] = [
    "annotation_index",
    "content_index",
    "obfuscation",
    "output_index",
    "sequence_number",
    "summary_index",
    "type",
];

/// Whether an event tells how a tool of the vendor gets on; its item says the same in the end.
pub(crate) fn is_progress(event: &str) -> bool {
    event
        .strip_prefix("response.")
        .is_some_and(|rest| rest.contains("_call") || rest.starts_with("mcp_list_tools"))
}
