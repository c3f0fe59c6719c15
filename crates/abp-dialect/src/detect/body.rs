//! The signs in a body: of a request, an answer, a stream's event or an error.

use abp_json::{Kind, View};

use super::{DetectionReason, Scales, has};
use crate::Dialect::{self, Claude, Codex, Copilot, Gemini, Kimi, OpenAi};

/// Members of a document that tell by being there, whatever they hold.
const MEMBERS: [(&str, Dialect, f64); 61] = [
    ("choices", OpenAi, 0.9),
    ("frequency_penalty", OpenAi, 0.1),
    ("function_call", OpenAi, 0.5),
    ("functions", OpenAi, 0.7),
    ("logit_bias", OpenAi, 0.6),
    ("logprobs", OpenAi, 0.6),
    ("max_completion_tokens", OpenAi, 0.8),
    ("messages", OpenAi, 0.3),
    ("modalities", OpenAi, 0.4),
    ("n", OpenAi, 0.6),
    ("prediction", OpenAi, 0.5),
    ("presence_penalty", OpenAi, 0.1),
    ("provider", OpenAi, 0.3),
    ("reasoning_effort", OpenAi, 0.7),
    ("response_format", OpenAi, 0.7),
    ("seed", OpenAi, 0.4),
    ("stop", OpenAi, 0.6),
    ("stream_options", OpenAi, 0.7),
    ("system_fingerprint", OpenAi, 0.6),
    ("web_search_options", OpenAi, 0.5),
    ("background", Codex, 0.5),
    ("conversation", Codex, 0.5),
    ("include", Codex, 0.4),
    ("incomplete_details", Codex, 0.8),
    ("input", Codex, 0.6),
    ("instructions", Codex, 0.6),
    ("max_output_tokens", Codex, 0.5),
    ("output", Codex, 0.7),
    ("previous_response_id", Codex, 0.9),
    ("prompt", Codex, 0.4),
    ("sequence_number", Codex, 0.8),
    ("text", Codex, 0.3),
    ("truncation", Codex, 0.5),
    ("anthropic_beta", Claude, 0.9),
    ("anthropic_version", Claude, 0.95),
    ("cache_control", Claude, 0.6),
    ("container", Claude, 0.4),
    ("input_tokens", Claude, 0.4),
    ("max_tokens", Claude, 0.2),
    ("mcp_servers", Claude, 0.6),
    ("output_config", Claude, 0.7),
    ("output_format", Claude, 0.5),
    ("stop_reason", Claude, 0.8),
    ("stop_sequences", Claude, 0.8),
    ("system", Claude, 0.8),
    ("top_k", Claude, 0.2),
    ("cachedContent", Gemini, 0.8),
    ("candidates", Gemini, 0.9),
    ("generateContentRequest", Gemini, 0.9),
    ("generationConfig", Gemini, 0.8),
    ("generation_config", Gemini, 0.8),
    ("promptFeedback", Gemini, 0.8),
    ("safetySettings", Gemini, 0.7),
    ("systemInstruction", Gemini, 0.8),
    ("system_instruction", Gemini, 0.8),
    ("toolConfig", Gemini, 0.7),
    ("totalTokens", Gemini, 0.7),
    ("usageMetadata", Gemini, 0.8),
    ("copilot_confirmations", Copilot, 0.8),
    ("copilot_references", Copilot, 0.8),
    ("copilot_usage", Copilot, 0.6),
];

/// Starts of models' names.
const MODELS: [(&str, Dialect, f64); 9] = [
    ("claude", Claude, 0.5),
    ("gemini", Gemini, 0.4),
    ("models/", Gemini, 0.6),
    ("gpt-", OpenAi, 0.2),
    ("chatgpt-", OpenAi, 0.2),
    ("codex-", Codex, 0.3),
    ("kimi-", Kimi, 0.7),
    ("moonshot-", Kimi, 0.7),
    ("copilot", Copilot, 0.6),
];

/// Weighs a body.
pub(super) fn weigh(root: View<'_>, scales: &mut Scales) {
    // Gemini sends a stream, or an error in its stead, as an array.
    let root = root.items().next().unwrap_or(root);
    for (key, value) in root.entries().filter(|(_, value)| !value.is_null()) {
        let Some(key) = key.as_str() else { continue };
        if let Some(&(name, dialect, weight)) = MEMBERS.iter().find(|(name, ..)| *name == key) {
            scales.add(dialect, weight, DetectionReason::Body(name));
        }
        weigh_member(root, &key, value, scales);
    }
    if has(root, "messages") && !has(root, "max_tokens") {
        see(OpenAi, 0.3, "messages without max_tokens", scales);
    }
}

fn weigh_member(root: View<'_>, key: &str, value: View<'_>, scales: &mut Scales) {
    match key {
        "model" => model(value, scales),
        "messages" => value.items().for_each(|item| message(item, scales)),
        "contents" => contents(value, scales),
        "tools" => value.items().for_each(|item| tool(item, scales)),
        "tool_choice" => tool_choice(value, scales),
        "thinking" => thinking(value, scales),
        "context_management" if value.kind() == Kind::Array => {
            see(Codex, 0.5, "context_management[]", scales);
        }
        "context_management" => see(Claude, 0.5, "context_management", scales),
        "object" => object(value, scales),
        "type" => event_type(root, value, scales),
        "usage" => usage(value, scales),
        "error" => error(root, value, scales),
        _ => {}
    }
}

fn see(dialect: Dialect, weight: f64, what: &'static str, scales: &mut Scales) {
    scales.add(dialect, weight, DetectionReason::Body(what));
}

fn is(object: View<'_>, key: &str, kind: Kind) -> bool {
    object.get(key).is_some_and(|value| value.kind() == kind)
}

fn model(value: View<'_>, scales: &mut Scales) {
    let Some(name) = value.as_str() else { return };
    for (start, dialect, weight) in MODELS {
        if name.starts_with(start) {
            scales.add(dialect, weight, DetectionReason::Model(start));
        }
    }
    if name.contains('/') && !name.starts_with("models/") {
        see(OpenAi, 0.3, "a model named with its vendor", scales);
    }
}

fn contents(value: View<'_>, scales: &mut Scales) {
    let has_parts = has(value, "parts") || value.items().any(|item| has(item, "parts"));
    if has_parts {
        see(Gemini, 0.95, "contents[].parts", scales);
    } else {
        see(Gemini, 0.4, "contents", scales);
    }
}

fn message(message: View<'_>, scales: &mut Scales) {
    match message.get("role").and_then(View::as_str).as_deref() {
        Some("system" | "developer") => see(OpenAi, 0.6, "a system message", scales),
        Some("tool" | "function") => see(OpenAi, 0.9, "a message of a tool", scales),
        _ => {}
    }
    for (key, dialect, weight, what) in [
        ("tool_calls", OpenAi, 0.9, "messages[].tool_calls"),
        (
            "reasoning_content",
            OpenAi,
            0.6,
            "messages[].reasoning_content",
        ),
        ("partial", Kimi, 0.7, "messages[].partial"),
        (
            "copilot_cache_control",
            Copilot,
            0.8,
            "messages[].copilot_cache_control",
        ),
        (
            "copilot_references",
            Copilot,
            0.8,
            "messages[].copilot_references",
        ),
    ] {
        if has(message, key) {
            see(dialect, weight, what, scales);
        }
    }
    if is(message, "content", Kind::String) {
        see(OpenAi, 0.1, "messages[].content as text", scales);
    }
    if let Some(content) = message.get("content") {
        content.items().for_each(|part| content_part(part, scales));
    }
}

fn content_part(part: View<'_>, scales: &mut Scales) {
    match part.get("type").and_then(View::as_str).as_deref() {
        Some("image_url" | "input_audio" | "file" | "video_url" | "refusal") => {
            see(OpenAi, 0.9, "a content part of chat completions", scales);
        }
        Some("tool_use" | "tool_result" | "thinking" | "redacted_thinking" | "compaction") => {
            see(Claude, 0.95, "a content block of messages", scales);
        }
        Some("image" | "document") if has(part, "source") => {
            see(Claude, 0.95, "content[].source", scales);
        }
        Some(word) if word.ends_with("_tool_use") || word.ends_with("_tool_result") => {
            see(Claude, 0.95, "a content block of a server's tool", scales);
        }
        _ => {}
    }
}

fn tool(tool: View<'_>, scales: &mut Scales) {
    let word = tool.get("type").and_then(View::as_str);
    match word.as_deref() {
        Some("builtin_function") => see(Kimi, 0.9, "tools[] with a builtin_function", scales),
        Some("function") if has(tool, "function") => see(OpenAi, 0.9, "tools[].function", scales),
        Some("function") => see(Codex, 0.9, "tools[].name of a function", scales),
        Some(word) if is_dated(word) => see(Claude, 0.8, "tools[] of a dated type", scales),
        _ if has(tool, "input_schema") => see(Claude, 0.9, "tools[].input_schema", scales),
        None if has(tool, "functionDeclarations") || has(tool, "function_declarations") => {
            see(Gemini, 0.9, "tools[].functionDeclarations", scales);
        }
        _ => {}
    }
}

/// Whether a word ends with a day, as the types of Claude's own tools do.
fn is_dated(word: &str) -> bool {
    let end = word.rsplit('_').next().unwrap_or_default();
    end.len() == 8 && end.bytes().all(|byte| byte.is_ascii_digit())
}

fn tool_choice(choice: View<'_>, scales: &mut Scales) {
    match choice.get("type").and_then(View::as_str).as_deref() {
        Some("auto" | "any" | "tool" | "none") => see(Claude, 0.5, "tool_choice.type", scales),
        Some("function") if has(choice, "function") => {
            see(OpenAi, 0.6, "tool_choice.function", scales);
        }
        Some("function") => see(Codex, 0.5, "tool_choice.name", scales),
        _ => {}
    }
}

fn thinking(thinking: View<'_>, scales: &mut Scales) {
    if has(thinking, "keep") {
        see(Kimi, 0.7, "thinking.keep", scales);
    }
    if has(thinking, "budget_tokens") {
        see(Claude, 0.5, "thinking.budget_tokens", scales);
    }
}

fn object(value: View<'_>, scales: &mut Scales) {
    let Some(word) = value.as_str() else { return };
    if word.starts_with("chat.completion") {
        see(OpenAi, 0.95, "an object called chat.completion", scales);
    } else if word == "response" || word.starts_with("response.") {
        see(Codex, 0.95, "an object called response", scales);
    }
}

fn event_type(root: View<'_>, value: View<'_>, scales: &mut Scales) {
    let Some(word) = value.as_str() else { return };
    match &*word {
        "message" if has(root, "content") => see(Claude, 0.8, "a type called message", scales),
        "message_start"
        | "message_delta"
        | "message_stop"
        | "content_block_start"
        | "content_block_delta"
        | "content_block_stop" => {
            see(Claude, 0.95, "a type of an event of messages", scales);
        }
        "ping" => see(Claude, 0.6, "a type called ping", scales),
        // The events of Responses are numbered, their errors too.
        "error" if has(root, "error") && !has(root, "sequence_number") => {
            see(Claude, 0.8, "an error's type", scales);
        }
        word if word.starts_with("response.") => {
            see(Codex, 0.95, "a type called response", scales);
        }
        _ => {}
    }
}

fn usage(usage: View<'_>, scales: &mut Scales) {
    if has(usage, "prompt_tokens") {
        see(OpenAi, 0.6, "usage.prompt_tokens", scales);
    }
    if has(usage, "cache_creation_input_tokens") {
        see(Claude, 0.6, "usage.cache_creation_input_tokens", scales);
    }
    if has(usage, "input_tokens_details") {
        see(Codex, 0.6, "usage.input_tokens_details", scales);
    }
}

fn error(root: View<'_>, error: View<'_>, scales: &mut Scales) {
    if is(error, "status", Kind::String) && is(error, "code", Kind::Number) {
        see(Gemini, 0.9, "error.status", scales);
    } else if has(error, "message") && !is(root, "type", Kind::String) {
        // Responses has the same error; only the route can tell the two apart.
        see(OpenAi, 0.5, "error.message", scales);
        see(Codex, 0.3, "an error of OpenAI", scales);
    }
}
