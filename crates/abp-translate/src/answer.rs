//! From answers to the events of a run.
//!
//! Words become messages, calls become calls, and everything else an answer can hold becomes a
//! `content_block`: sources, media, refusals, hidden reasoning, and blocks that only one vendor knows,
//! which keep the vendor's name and spelling. What is no content but should be known is a warning.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrFinish, IrFinishReason, IrMedia, IrMediaData,
    IrResponse, IrToolInput, Leaf, RawJson,
};
use abp_core::{AgentEventKind, PresentationType};
use abp_json::Limits;
use serde_json::{Map, Value, json};

use crate::normalized_usage;

/// The block type of a refusal. The words themselves are a message like any other; the block says that
/// they are one.
const REFUSAL: &str = "REFUSAL";
/// The block type of a structured value that is no text.
const JSON: &str = "JSON";

/// What an answer means for a run. Only the first choice counts, since a run asks for one; that there
/// are others is a warning.
#[must_use]
pub fn map_response(response: &IrResponse) -> Vec<AgentEventKind> {
    let mut events = Vec::new();
    let Some(choice) = response.choices.first() else {
        return events;
    };
    for block in &choice.message.content {
        add_block(block, &mut events);
    }
    if response.choices.len() > 1 {
        events.push(AgentEventKind::Warning {
            message: format!(
                "the vendor gave {} answers; the run takes the first",
                response.choices.len()
            ),
        });
    }
    events.extend(choice.finish.as_ref().and_then(warning));
    if let Some(usage) = &response.usage {
        events.push(AgentEventKind::UsageUpdated {
            usage: normalized_usage(usage),
        });
    }
    events
}

fn add_block(block: &IrBlock, events: &mut Vec<AgentEventKind>) {
    match &block.body {
        IrContentBlock::Text { text, citations } => {
            events.push(message(text));
            if !citations.is_empty() {
                let citations: Vec<_> = citations.iter().map(citation).collect();
                let data = json!({ "citations": citations });
                events.push(shown(&PresentationType::CitationBlock, data));
            }
        }
        IrContentBlock::Refusal { text } => {
            events.push(message(text));
            let data = json!({
                "description": "the model declined to answer",
                "refusal": text.value,
            });
            events.push(named(REFUSAL, data));
        }
        IrContentBlock::Thinking {
            text,
            signature,
            encrypted,
            ..
        } => {
            if !text.is_empty() {
                events.push(AgentEventKind::ThinkingDelta {
                    text: text.value.clone(),
                });
            }
            // A proof belongs to its text; without one it is all that there is of the reasoning.
            let proof = signature.as_ref().filter(|_| text.is_empty());
            events.extend(hidden("encrypted", encrypted.as_ref()));
            events.extend(hidden("signature", proof));
        }
        IrContentBlock::RedactedThinking { data } => events.extend(hidden("redacted", Some(data))),
        IrContentBlock::ToolUse {
            id, name, input, ..
        } => events.push(AgentEventKind::ToolCall {
            tool_name: name.value.clone(),
            tool_use_id: id.as_ref().map(|id| id.value.clone()),
            parent_tool_use_id: None,
            input: arguments(input),
        }),
        IrContentBlock::ToolResult {
            tool_use_id,
            name,
            content,
            is_error,
            ..
        } => events.push(AgentEventKind::ToolResult {
            tool_name: name
                .as_ref()
                .map(|name| name.value.clone())
                .unwrap_or_default(),
            tool_use_id: tool_use_id.as_ref().map(|id| id.value.clone()),
            output: serde_json::to_value(content).unwrap_or_default(),
            is_error: is_error.as_ref().is_some_and(|flag| flag.value),
        }),
        IrContentBlock::Image { media, .. }
        | IrContentBlock::Audio { media }
        | IrContentBlock::Video { media } => events.push(medium(media, None)),
        IrContentBlock::Document { media, title } => {
            events.push(medium(media, title.as_ref()));
        }
        IrContentBlock::Json { value } => events.push(named(JSON, admitted(value))),
        IrContentBlock::Opaque { kind, native } => events.push(opaque(kind, native)),
        // A kind that is newer than this function: all of it, under its own name.
        _ => {
            let data = serde_json::to_value(&block.body).unwrap_or_default();
            let kind = data.get("type").and_then(Value::as_str);
            events.push(named(kind.unwrap_or(JSON), data.clone()));
        }
    }
}

fn message(text: &Leaf<String>) -> AgentEventKind {
    AgentEventKind::AssistantMessage {
        text: text.value.clone(),
    }
}

fn named(block_type: &str, data: Value) -> AgentEventKind {
    AgentEventKind::ContentBlock {
        block_type: block_type.to_owned(),
        data,
    }
}

fn shown(block_type: &PresentationType, data: Value) -> AgentEventKind {
    named(block_type.as_str(), data)
}

/// A source. What the vendor says about it besides stays under `native`.
fn citation(citation: &IrCitation) -> Value {
    let mut fields = Map::new();
    let mut put = |name: &str, leaf: Option<&Leaf<String>>| {
        if let Some(leaf) = leaf {
            fields.insert(name.to_owned(), Value::String(leaf.value.clone()));
        }
    };
    let url = citation.url.as_ref();
    put("source_id", url.or(citation.title.as_ref()));
    put("uri", url);
    put("title", citation.title.as_ref().or(url));
    put("snippet", citation.quote.as_ref());
    if let Some(range) = &citation.range {
        let range = json!({ "start": range.start.value, "end": range.end.value });
        fields.insert("range".to_owned(), range);
    }
    fields.insert("native".to_owned(), admitted(&citation.native));
    Value::Object(fields)
}

/// Reasoning that only its vendor can read.
fn hidden(form: &str, data: Option<&Leaf<String>>) -> Option<AgentEventKind> {
    let data = json!({ form: data?.value });
    Some(shown(&PresentationType::ThoughtTrace, data))
}

/// An image, a sound, a film or a document as the one item of a carousel.
fn medium(media: &IrMedia, title: Option<&Leaf<String>>) -> AgentEventKind {
    let mime = media.media_type.as_ref().map(|kind| kind.value.as_str());
    let (form, content) = match &media.data {
        IrMediaData::Base64(data) => ("url", json!(data_url(mime, &data.value))),
        IrMediaData::Url(url) => ("url", json!(url.value)),
        IrMediaData::FileId(id) => ("file_id", json!(id.value)),
        IrMediaData::Text(text) => ("text", json!(text.value)),
        other => ("content", json!(other)),
    };
    let members = [
        (form, Some(content)),
        ("mime_type", mime.map(|mime| json!(mime))),
        ("title", title.map(|title| json!(title.value))),
    ];
    let members = members.into_iter();
    let members = members.filter_map(|(name, value)| Some((name.to_owned(), value?)));
    let item: Map<String, Value> = members.collect();
    shown(&PresentationType::MediaCarousel, json!({ "items": [item] }))
}

fn data_url(mime: Option<&str>, base64: &str) -> String {
    let mime = mime.unwrap_or("application/octet-stream");
    format!("data:{mime};base64,{base64}")
}

/// A block of one vendor. Gemini's streams have no other form for media, which are shown as such.
fn opaque(kind: &str, native: &Leaf<RawJson>) -> AgentEventKind {
    let data = admitted(native);
    let inline = ["inlineData", "inline_data"]
        .iter()
        .find_map(|name| data.get(name));
    let text = |names: [&str; 2]| {
        let found = names.iter().find_map(|name| inline?.get(name));
        found.and_then(Value::as_str)
    };
    if let Some(base64) = text(["data", "data"]) {
        let media = IrMedia {
            media_type: text(["mimeType", "mime_type"]).map(Leaf::from),
            data: IrMediaData::Base64(Leaf::from(base64)),
        };
        return medium(&media, None);
    }
    let kind = if kind.is_empty() { JSON } else { kind };
    named(kind, data)
}

/// Arguments as an event carries them; what is no JSON is told as the text it is.
fn arguments(input: &IrToolInput) -> Value {
    match input {
        IrToolInput::Json(json) => admitted(json),
        IrToolInput::Text(text) | IrToolInput::Invalid(text) => Value::String(text.value.clone()),
    }
}

/// Foreign JSON as an event carries it.
fn admitted(json: &Leaf<RawJson>) -> Value {
    let text = json.text();
    abp_json::admit_text(text.as_bytes(), &Limits::default()).map_or_else(
        |_| Value::String(text.to_owned()),
        |admitted| admitted.value,
    )
}

/// An end that the reader of a run should know of, with what the vendor says about it.
fn warning(finish: &IrFinish) -> Option<AgentEventKind> {
    let told = match finish.reason {
        IrFinishReason::Length => "the answer was cut off at its limit of tokens",
        IrFinishReason::ContentFilter => "the vendor's filter ended the answer",
        IrFinishReason::Refusal => "the model declined",
        IrFinishReason::Pause => "the vendor paused the turn",
        IrFinishReason::Error => "the model's answer is not usable",
        IrFinishReason::Incomplete => "the answer broke off",
        _ => return None,
    };
    let message = match &finish.details {
        Some(details) => format!("{told}: {}", details.text()),
        None => told.to_owned(),
    };
    Some(AgentEventKind::Warning { message })
}
