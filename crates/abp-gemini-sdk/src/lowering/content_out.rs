//! Writing what is said: contents and their parts.

use std::collections::HashMap;

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMessage, IrRole, IrToolInput, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, How, Lowering, WireFamily};
use abp_json::{Kind, Limits, Tape};

use super::media::{is_written as is_media_written, write_media};
use crate::dialect::Family;
use crate::wire::{INVALID_ARGUMENTS, NO_SIGNATURE, SIGNATURE, vendor};

/// What the writing of a part depends on.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Side {
    /// The model that is asked.
    pub(crate) family: Family,
    /// Whether this is an answer instead of a request.
    pub(crate) answer: bool,
    /// Whether the source speaks this dialect, too.
    pub(crate) own: bool,
}

/// Writes the conversation, turn by turn.
pub(super) fn write_contents(messages: &[IrMessage], side: Side, out: &mut Lowering<'_>) {
    let mut called = HashMap::new();
    for turn in messages.chunk_by(|left, right| same_turn(left, right, side)) {
        let blocks = turn.iter().flat_map(|message| &message.content);
        let mut blocks: Vec<&IrBlock> = blocks.collect();
        match turn.first().map(|message| message.role) {
            // The vendor counts on answers in the order of the calls.
            Some(IrRole::Tool) => blocks.sort_by_key(|block| position(block, &called)),
            _ => called = places_of_calls(&blocks),
        }
        write_turn(turn, &blocks, side, out);
    }
}

/// Whether two messages in a row are one turn. Users and models take turns with this vendor, and all
/// answers to the calls of a turn have to stand together.
fn same_turn(left: &IrMessage, right: &IrMessage, side: Side) -> bool {
    let split = left.origin == right.origin && matches!(left.origin, Origin::Node(_));
    split || (!side.own && left.role == right.role)
}

/// The calls of a turn by their ids, in the order in which they were made.
fn places_of_calls<'b>(blocks: &[&'b IrBlock]) -> HashMap<&'b str, usize> {
    let mut places = HashMap::new();
    for block in blocks {
        if let IrContentBlock::ToolUse { id: Some(id), .. } = &block.body {
            let next = places.len();
            places.entry(id.value.as_str()).or_insert(next);
        }
    }
    places
}

fn position(block: &IrBlock, called: &HashMap<&str, usize>) -> usize {
    let answered = match &block.body {
        IrContentBlock::ToolResult { tool_use_id, .. } => tool_use_id.as_ref(),
        _ => None,
    };
    let found = answered.and_then(|id| called.get(id.value.as_str()));
    found.copied().unwrap_or(usize::MAX)
}

fn write_turn(turn: &[IrMessage], blocks: &[&IrBlock], side: Side, out: &mut Lowering<'_>) {
    let Some(first) = turn.first() else {
        return;
    };
    if out.copy_native(first.origin) {
        return;
    }
    for pair in turn.windows(2) {
        if let [left, right] = pair
            && left.role == right.role
            && left.role != IrRole::Tool
        {
            let how = How::degraded(
                "messages_merged",
                "messages of one speaker in a row are one turn",
            );
            out.note(out.member(right.origin, "role"), how);
        }
    }
    if !blocks.iter().any(|block| is_written(block, side)) {
        write_blocks(blocks, side, out);
        return;
    }
    out.object(|out| {
        out.put_array("parts", |out| write_blocks(blocks, side, out));
        let role = match first.role {
            IrRole::Assistant => "model",
            _ => "user",
        };
        out.tag("role", role);
    });
}

/// Writes the parts of a turn. Newer models refuse calls without proof, so the first of a turn gets a
/// stand-in where the source has none.
pub(super) fn write_blocks(blocks: &[&IrBlock], side: Side, out: &mut Lowering<'_>) {
    let proven = |block: &&IrBlock| matches!(&block.body, IrContentBlock::ToolUse { signature, .. } if signature.is_some());
    let mut wanting = side.family == Family::Three && !side.answer && !blocks.iter().any(proven);
    for block in blocks {
        match &block.body {
            IrContentBlock::ToolUse { .. } => {
                write_call(block, wanting, side, out);
                wanting = false;
            }
            _ => write_block(block, side, out),
        }
    }
}

/// Whether a block leaves anything in the target.
fn is_written(block: &IrBlock, side: Side) -> bool {
    match &block.body {
        IrContentBlock::Thinking { .. } => side.own || side.answer,
        IrContentBlock::RedactedThinking { .. } => false,
        IrContentBlock::Opaque { .. } => side.own,
        IrContentBlock::Image { media, .. }
        | IrContentBlock::Document { media, .. }
        | IrContentBlock::Audio { media }
        | IrContentBlock::Video { media } => is_media_written(media, side),
        _ => true,
    }
}

/// Writes a block as one part; as none where the vendor has no place for it, and as several where it
/// holds others.
pub(super) fn write_block(block: &IrBlock, side: Side, out: &mut Lowering<'_>) {
    match &block.body {
        IrContentBlock::Text { text, citations } => {
            out.object(|out| {
                out.put("text", text);
                write_beside(block, side, out);
            });
            if !side.answer {
                drop_citations(citations, out);
            }
        }
        IrContentBlock::Json { value } => {
            let how = How::Converted("json_in_text");
            out.object(|out| out.put_as("text", value.text(), &[value.origin], &how));
        }
        IrContentBlock::Image { media, detail } => {
            write_media(block, media, "image/jpeg", side, out);
            drop_leaf(detail.as_ref(), "image_detail", out);
        }
        IrContentBlock::Document { media, title } => {
            write_media(block, media, "application/pdf", side, out);
            drop_leaf(title.as_ref(), "document_title", out);
        }
        IrContentBlock::Audio { media } => write_media(block, media, "audio/wav", side, out),
        IrContentBlock::Video { media } => write_media(block, media, "video/mp4", side, out),
        IrContentBlock::ToolUse { .. } => write_call(block, false, side, out),
        IrContentBlock::ToolResult { .. } => write_result(block, side, out),
        IrContentBlock::Thinking { .. } => write_thinking(block, side, out),
        IrContentBlock::RedactedThinking { data } => {
            let reason = "only the vendor that hid it can read it";
            out.drop(data.origin, "redacted_thinking", reason);
        }
        IrContentBlock::Refusal { text } => {
            let how = How::degraded("refusal", "Gemini has no words for a refusal but text");
            out.object(|out| out.put_as("text", &text.value, &[text.origin], &how));
        }
        IrContentBlock::Opaque { native, .. } if side.own => out.value(native),
        IrContentBlock::Opaque { kind, native } => {
            let reason = format!("{kind} exists in its own dialect only");
            out.drop(native.origin, "opaque_block", reason);
        }
        _ => out.drop(block.origin, "opaque_block", "Gemini has no such content"),
    }
}

/// Members of a part that only this dialect knows.
pub(super) fn write_beside(block: &IrBlock, side: Side, out: &mut Lowering<'_>) {
    if side.own {
        let inner = |name: &str| {
            vendor::FUNCTION_CALL.contains(&name) || vendor::FUNCTION_RESPONSE.contains(&name)
        };
        out.put_vendor(&block.vendor, |_, name| !inner(name));
    }
}

fn drop_citations(citations: &[IrCitation], out: &mut Lowering<'_>) {
    for citation in citations {
        let reason = "Gemini names sources in answers only";
        out.drop(citation.native.origin, "citations", reason);
    }
}

fn drop_leaf<T>(leaf: Option<&Leaf<T>>, label: &'static str, out: &mut Lowering<'_>) {
    if let Some(leaf) = leaf {
        out.drop(leaf.origin, label, "Gemini has no field for it");
    }
}

fn write_call(block: &IrBlock, wanting: bool, side: Side, out: &mut Lowering<'_>) {
    let IrContentBlock::ToolUse {
        id,
        name,
        input,
        item_id,
        signature,
    } = &block.body
    else {
        return;
    };
    drop_leaf(item_id.as_ref(), "item_id", out);
    out.object(|out| {
        out.put_object("functionCall", |out| {
            out.put_opt("id", id.as_ref());
            out.put("name", name);
            write_arguments(input, out);
        });
        match signature {
            Some(signature) => out.put(SIGNATURE, signature),
            None if wanting => out.made(
                SIGNATURE,
                NO_SIGNATURE,
                "thought_signature_placeholder",
                "the model wants proof of its reasoning with a call, and the source has none",
            ),
            None => {}
        }
        write_beside(block, side, out);
    });
}

/// Writes `args`: an object, whatever the source has.
pub(crate) fn write_arguments(input: &IrToolInput, out: &mut Lowering<'_>) {
    match input {
        IrToolInput::Json(json) if out.source().is_some_and(has_arguments_in_text) => {
            out.put_as(
                "args",
                &json.value,
                &[json.origin],
                &How::Converted("json_in_text"),
            );
        }
        IrToolInput::Json(json) => out.put("args", json),
        IrToolInput::Text(text) => out.put_object("args", |out| {
            let how = How::Converted("custom_tool_input");
            out.put_as("input", &text.value, &[text.origin], &how);
        }),
        IrToolInput::Invalid(text) => out.put_object("args", |out| {
            let how = How::degraded(
                "invalid_arguments",
                "the arguments are no JSON object and are kept as text inside one",
            );
            out.put_as(INVALID_ARGUMENTS, &text.value, &[text.origin], &how);
        }),
    }
}

fn has_arguments_in_text(source: Dialect) -> bool {
    matches!(source.family(), WireFamily::Chat | WireFamily::Responses)
}

fn write_thinking(block: &IrBlock, side: Side, out: &mut Lowering<'_>) {
    let IrContentBlock::Thinking {
        text,
        kind: _,
        signature,
        encrypted,
        item_id,
    } = &block.body
    else {
        return;
    };
    drop_leaf(item_id.as_ref(), "item_id", out);
    drop_leaf(encrypted.as_ref(), "encrypted_reasoning", out);
    if let Some(signature) = signature.as_ref().filter(|_| !side.own) {
        let reason = "the proof is another vendor's";
        out.drop(signature.origin, "thinking_signature", reason);
    }
    if !side.own && !side.answer {
        let reason = "Gemini takes no reasoning but its own";
        out.drop(text.origin, "foreign_thinking", reason);
        return;
    }
    out.object(|out| {
        out.put("text", text);
        // An empty text only carries its proof.
        if !text.is_empty() {
            out.tag("thought", &true);
        }
        out.put_opt(SIGNATURE, signature.as_ref().filter(|_| side.own));
        write_beside(block, side, out);
    });
}

fn write_result(block: &IrBlock, side: Side, out: &mut Lowering<'_>) {
    let IrContentBlock::ToolResult {
        tool_use_id,
        name,
        content,
        plain: _,
        is_error,
    } = &block.body
    else {
        return;
    };
    let (said, media): (Vec<&IrBlock>, Vec<&IrBlock>) =
        content.iter().partition(|block| is_said(block));
    let inside = side.family.has_media_in_results();
    out.object(|out| {
        out.put_object("functionResponse", |out| {
            out.put_opt("id", tool_use_id.as_ref());
            match name {
                Some(name) => out.put("name", name),
                None => out.refuse(
                    block.origin,
                    "tool_result_name",
                    "Gemini wants the tool's name",
                ),
            }
            out.key("response");
            write_said(&said, is_error.as_ref(), out);
            if inside && media.iter().any(|block| is_written(block, side)) {
                out.put_array("parts", |out| write_blocks(&media, side, out));
            } else if inside {
                write_blocks(&media, side, out);
            }
            if side.own {
                out.put_vendor(&block.vendor, |_, name| {
                    vendor::FUNCTION_RESPONSE.contains(&name)
                });
            }
        });
        write_beside(block, side, out);
    });
    if !inside {
        for block in media {
            let how = How::degraded(
                "tool_result_media",
                "the model takes no media inside a tool's answer; they follow it",
            );
            out.note(block.origin, how);
            write_block(block, side, out);
        }
    }
}

fn is_said(block: &IrBlock) -> bool {
    matches!(
        block.body,
        IrContentBlock::Text { .. } | IrContentBlock::Json { .. } | IrContentBlock::Refusal { .. }
    )
}

/// Writes `response`, which has to be an object.
fn write_said(said: &[&IrBlock], is_error: Option<&Leaf<bool>>, out: &mut Lowering<'_>) {
    let failed = is_error.is_some_and(|failed| failed.value);
    if let Some(flag) = is_error {
        let how = if failed {
            How::degraded("is_error", "an error is told by the member's name alone")
        } else {
            How::Converted("is_error")
        };
        out.note(flag.origin, how);
    }
    match said {
        [] if failed => out.object(|out| {
            out.made(
                "error",
                &true,
                "empty_error",
                "the tool failed and said nothing",
            );
        }),
        [] => out.object(|_| {}),
        [only] if !failed && is_object(only) => write_value(only, "json_in_text", out),
        _ => out.object(|out| {
            out.key(if failed { "error" } else { "output" });
            match said {
                [only] => write_value(only, "wrapped_output", out),
                _ => out.array(|out| {
                    for block in said {
                        write_value(block, "wrapped_output", out);
                    }
                }),
            }
        }),
    }
}

fn is_object(block: &IrBlock) -> bool {
    let text = match &block.body {
        IrContentBlock::Json { value } => value.text(),
        IrContentBlock::Text { text, .. } => text.as_str(),
        _ => return false,
    };
    Tape::parse_str(text, &Limits::default()).is_ok_and(|tape| tape.root().kind() == Kind::Object)
}

/// Writes a piece of a tool's answer; `label` says what that does to text.
fn write_value(block: &IrBlock, label: &'static str, out: &mut Lowering<'_>) {
    match &block.body {
        IrContentBlock::Json { value } => out.value(value),
        IrContentBlock::Text { text, citations } => {
            let how = How::Converted(label);
            if label == "json_in_text" {
                let json = RawJson::trusted(text.value.as_str());
                out.value_as(&json, &[text.origin], &how);
            } else {
                out.value_as(&text.value, &[text.origin], &how);
            }
            drop_citations(citations, out);
        }
        IrContentBlock::Refusal { text } => out.value(text),
        _ => {}
    }
}
