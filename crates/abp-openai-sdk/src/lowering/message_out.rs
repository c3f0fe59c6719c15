//! Writing messages: those of a request, and what an assistant's messages have in common.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMessage, IrRole, IrToolInput, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, How, Lowering, WireFamily};

use super::media::{self, Part};
use crate::Flavour;

/// What separates texts of a request that have to become one.
const PARAGRAPH: &str = "\n\n";

/// A piece of text, and the part of the source it is made of.
#[derive(Debug)]
pub(crate) struct Piece<'a> {
    text: &'a str,
    origin: Origin,
    how: How,
    part: Part<'a>,
}

/// Writes the messages of a request.
pub(super) fn write(flavour: &Flavour, messages: &[IrMessage], out: &mut Lowering<'_>) {
    let mut moved = Vec::new();
    for message in messages {
        if message.role != IrRole::Tool {
            write_moved(flavour, &mut moved, out);
        }
        if out.copy_native(message.origin) {
            continue;
        }
        match message.role {
            IrRole::Tool => write_results(flavour, message, &mut moved, out),
            IrRole::Assistant => write_assistant(flavour, message, out),
            IrRole::Developer => write_spoken(flavour, "developer", message, out),
            IrRole::System => write_spoken(flavour, "system", message, out),
            _ => write_spoken(flavour, "user", message, out),
        }
    }
    write_moved(flavour, &mut moved, out);
}

/// Writes what results held besides text, as something the user says.
fn write_moved(flavour: &Flavour, moved: &mut Vec<&IrBlock>, out: &mut Lowering<'_>) {
    if moved.is_empty() {
        return;
    }
    out.object(|out| {
        out.tag("role", "user");
        out.put_array("content", |out| {
            for block in moved.drain(..) {
                write_part(flavour, block, out);
            }
        });
    });
}

fn write_spoken(flavour: &Flavour, role: &str, message: &IrMessage, out: &mut Lowering<'_>) {
    out.object(|out| {
        out.tag("role", role);
        put_vendor(flavour, message, out);
        let texts = |block: &IrBlock| matches!(block.body, IrContentBlock::Text { .. });
        let one = message.content.len() <= 1 && message.plain;
        if message.content.iter().all(texts) && (one || out.profile().plain_text_only) {
            let pieces = pieces(&message.content, out);
            put_text("content", &pieces, PARAGRAPH, out);
            return;
        }
        out.put_array("content", |out| {
            for block in &message.content {
                write_part(flavour, block, out);
            }
        });
    });
}

fn put_vendor(flavour: &Flavour, message: &IrMessage, out: &mut Lowering<'_>) {
    out.put_vendor(&message.vendor, |from, name| {
        from.family() == WireFamily::Chat && flavour.message_members.contains(&name)
    });
}

/// Writes a part of what a user says.
fn write_part(flavour: &Flavour, block: &IrBlock, out: &mut Lowering<'_>) {
    let part = Part {
        origin: block.origin,
        vendor: &block.vendor,
    };
    match &block.body {
        IrContentBlock::Text { .. } | IrContentBlock::Json { .. } => {
            let pieces = pieces(std::slice::from_ref(block), out);
            write_pieces(&pieces, out);
        }
        IrContentBlock::Image { media, detail } => {
            media::write_image(media, detail.as_ref(), part, out);
        }
        IrContentBlock::Document { media, title } => {
            media::write_document(media, title.as_ref(), part, out);
        }
        IrContentBlock::Audio { media } => media::write_audio(media, part, out),
        IrContentBlock::Video { media } => media::write_video(flavour, media, part, out),
        body => leave_out(block.origin, body, out),
    }
}

/// Remarks on content that has no place where it stands.
fn leave_out(origin: Origin, body: &IrContentBlock, out: &mut Lowering<'_>) {
    match body {
        IrContentBlock::Opaque { kind, native } => {
            let reason = format!("{kind} exists in the source's dialect only");
            out.drop(native.origin, kind.clone(), reason);
        }
        _ => out.drop(
            origin,
            "misplaced_content",
            "this content has no place here",
        ),
    }
}

/// The texts among blocks; citations of a request are lost.
pub(super) fn pieces<'a>(blocks: &'a [IrBlock], out: &mut Lowering<'_>) -> Vec<Piece<'a>> {
    blocks
        .iter()
        .filter_map(|block| {
            if let IrContentBlock::Text { citations, .. } = &block.body {
                for citation in citations {
                    out.drop(
                        citation.native.origin,
                        "citation",
                        "requests name no sources",
                    );
                }
            }
            piece(block)
        })
        .collect()
}

pub(super) fn piece(block: &IrBlock) -> Option<Piece<'_>> {
    let (text, origin, how) = match &block.body {
        IrContentBlock::Text { text, .. } => (text.as_str(), text.origin, How::AsIs),
        IrContentBlock::Json { value } => {
            (value.text(), value.origin, How::Converted("json_in_text"))
        }
        _ => return None,
    };
    let part = Part {
        origin: block.origin,
        vendor: &block.vendor,
    };
    Some(Piece {
        text,
        origin,
        how,
        part,
    })
}

/// Writes each text as a part.
pub(super) fn write_pieces(pieces: &[Piece<'_>], out: &mut Lowering<'_>) {
    for piece in pieces {
        piece.part.write("text", out, |out| {
            out.put_as("text", piece.text, &[piece.origin], &piece.how);
        });
    }
}

/// Writes texts as one string.
pub(super) fn put_text(key: &str, pieces: &[Piece<'_>], between: &str, out: &mut Lowering<'_>) {
    match pieces {
        [] => out.tag(key, ""),
        [piece] => out.put_as(key, piece.text, &[piece.origin], &piece.how),
        several => {
            let texts: Vec<_> = several.iter().map(|piece| piece.text).collect();
            let from: Vec<_> = several.iter().map(|piece| piece.origin).collect();
            let how = How::degraded("text_blocks_joined", "several texts became one string");
            out.put_as(key, &texts.join(between), &from, &how);
        }
    }
}

/// Writes the answers of tools: one message each. What is no text follows in a user's message.
fn write_results<'a>(
    flavour: &Flavour,
    message: &'a IrMessage,
    moved: &mut Vec<&'a IrBlock>,
    out: &mut Lowering<'_>,
) {
    for block in &message.content {
        let IrContentBlock::ToolResult {
            tool_use_id,
            name,
            content,
            plain,
            is_error,
        } = &block.body
        else {
            leave_out(block.origin, &block.body, out);
            continue;
        };
        out.object(|out| {
            out.tag("role", "tool");
            out.put_opt("tool_call_id", tool_use_id.as_ref());
            if let Some(name) = name {
                put_result_name(flavour, name, out);
            }
            put_result(content, *plain, is_error.as_ref(), out);
        });
        for block in content.iter().filter(|block| piece(block).is_none()) {
            let how = How::degraded(
                "tool_result_media",
                "an answer of a tool is text; the rest follows as the user's",
            );
            out.note(block.origin, how);
            moved.push(block);
        }
    }
}

fn put_result_name(flavour: &Flavour, name: &Leaf<String>, out: &mut Lowering<'_>) {
    if (flavour.rules)(out.profile()).named_results {
        out.put("name", name);
    } else {
        // The call with the same id names it.
        out.note(name.origin, How::Converted("named_by_call"));
    }
}

fn put_result(
    content: &[IrBlock],
    plain: bool,
    is_error: Option<&Leaf<bool>>,
    out: &mut Lowering<'_>,
) {
    let pieces = pieces(content, out);
    match is_error {
        Some(failed) if failed.value => put_failure(&pieces, failed, out),
        Some(failed) => out.note(failed.origin, How::Converted("no_error")),
        None => {}
    }
    if is_error.is_some_and(|failed| failed.value) {
        return;
    }
    if pieces.is_empty() && !content.is_empty() {
        let text = "The result follows in the next message.";
        out.made(
            "content",
            text,
            "tool_result_media",
            "the answer is no text",
        );
    } else if pieces.len() <= 1 && plain || pieces.is_empty() || out.profile().plain_text_only {
        put_text("content", &pieces, PARAGRAPH, out);
    } else if let ([piece], true) = (pieces.as_slice(), content.len() == 1) {
        put_lone_result(piece, out);
    } else {
        out.put_array("content", |out| write_pieces(&pieces, out));
    }
}

/// A lone piece of JSON is a string here; a lone text stays the part it was.
fn put_lone_result(piece: &Piece<'_>, out: &mut Lowering<'_>) {
    if piece.how == How::AsIs {
        out.put_array("content", |out| {
            write_pieces(std::slice::from_ref(piece), out);
        });
    } else {
        put_text("content", std::slice::from_ref(piece), PARAGRAPH, out);
    }
}

/// Says in the text itself that a tool failed.
fn put_failure(pieces: &[Piece<'_>], failed: &Leaf<bool>, out: &mut Lowering<'_>) {
    let texts: Vec<_> = pieces.iter().map(|piece| piece.text).collect();
    let mut from = vec![failed.origin];
    from.extend(pieces.iter().map(|piece| piece.origin));
    let how = How::emulated("tool_error", "no member marks an error; the text says so");
    let text = format!("Error: {}", texts.join(PARAGRAPH));
    out.put_as("content", &text, &from, &how);
}

/// What an assistant said, sorted by the members that hold it.
#[derive(Debug, Default)]
pub(super) struct Sorted<'a> {
    pub(super) thinking: Vec<&'a IrContentBlock>,
    pub(super) texts: Vec<&'a IrBlock>,
    pub(super) refusals: Vec<&'a Leaf<String>>,
    pub(super) calls: Vec<&'a IrBlock>,
}

/// Sorts what an assistant said; what has no member is remarked on.
pub(super) fn sort<'a>(message: &'a IrMessage, out: &mut Lowering<'_>) -> Sorted<'a> {
    let mut sorted = Sorted::default();
    for block in &message.content {
        let after_calls = !sorted.calls.is_empty();
        match &block.body {
            IrContentBlock::Text { .. } | IrContentBlock::Json { .. } => sorted.texts.push(block),
            IrContentBlock::Thinking { .. } => sorted.thinking.push(&block.body),
            IrContentBlock::Refusal { text } => sorted.refusals.push(text),
            IrContentBlock::ToolUse { .. } => {
                sorted.calls.push(block);
                continue;
            }
            IrContentBlock::RedactedThinking { data } => {
                let reason = "only its own vendor can read it";
                out.drop(data.origin, "redacted_thinking", reason);
                continue;
            }
            IrContentBlock::Image { .. }
            | IrContentBlock::Document { .. }
            | IrContentBlock::Audio { .. }
            | IrContentBlock::Video { .. } => {
                let reason = "an assistant's message holds text only";
                out.drop(block.origin, "assistant_media", reason);
                continue;
            }
            body => {
                leave_out(block.origin, body, out);
                continue;
            }
        }
        if after_calls {
            let how = How::degraded("block_order", "calls come after everything else");
            out.note(block.origin, how);
        }
    }
    sorted
}

fn write_assistant(flavour: &Flavour, message: &IrMessage, out: &mut Lowering<'_>) {
    out.object(|out| {
        out.tag("role", "assistant");
        put_vendor(flavour, message, out);
        let sorted = sort(message, out);
        if flavour.replays_reasoning {
            put_thinking(&sorted.thinking, out);
        } else {
            for thinking in &sorted.thinking {
                drop_thinking(thinking, out);
            }
        }
        let pieces: Vec<_> = sorted
            .texts
            .iter()
            .flat_map(|block| pieces(std::slice::from_ref(*block), out))
            .collect();
        let one = pieces.len() == 1 && (message.plain || !sorted.calls.is_empty());
        if pieces.is_empty() && !(sorted.calls.is_empty() && sorted.refusals.is_empty()) {
            out.tag("content", &RawJson::trusted("null"));
        } else if one || pieces.is_empty() || out.profile().plain_text_only {
            put_text("content", &pieces, "", out);
        } else {
            out.put_array("content", |out| write_pieces(&pieces, out));
        }
        put_refusals(&sorted.refusals, out);
        if !sorted.calls.is_empty() {
            out.put_array("tool_calls", |out| {
                for call in &sorted.calls {
                    out.object(|out| put_call(call, out));
                }
            });
        }
    });
}

/// Writes the words of a model that declined.
pub(super) fn put_refusals(refusals: &[&Leaf<String>], out: &mut Lowering<'_>) {
    if refusals.is_empty() {
        return;
    }
    put_joined("refusal", refusals, "", out);
}

fn put_joined(key: &str, texts: &[&Leaf<String>], between: &str, out: &mut Lowering<'_>) {
    match texts {
        [text] => out.put(key, text),
        several => {
            let joined: Vec<_> = several.iter().map(|text| text.as_str()).collect();
            let from: Vec<_> = several.iter().map(|text| text.origin).collect();
            let how = How::degraded("text_blocks_joined", "several texts became one string");
            out.put_as(key, &joined.join(between), &from, &how);
        }
    }
}

/// Writes reasoning as text. Its proofs are worth nothing to another vendor.
pub(super) fn put_thinking(thinking: &[&IrContentBlock], out: &mut Lowering<'_>) {
    let mut texts = Vec::new();
    for block in thinking {
        if let IrContentBlock::Thinking { text, .. } = block
            && (!text.is_empty() || matches!(text.origin, Origin::Node(_)))
        {
            texts.push(text);
        }
        drop_proofs(block, out);
    }
    if !texts.is_empty() {
        put_joined("reasoning_content", &texts, PARAGRAPH, out);
    }
}

fn drop_thinking(block: &IrContentBlock, out: &mut Lowering<'_>) {
    if let IrContentBlock::Thinking { text, .. } = block {
        out.drop(
            text.origin,
            "thinking",
            "reasoning is not sent back to the vendor",
        );
    }
    drop_proofs(block, out);
}

fn drop_proofs(block: &IrContentBlock, out: &mut Lowering<'_>) {
    let IrContentBlock::Thinking {
        signature,
        encrypted,
        item_id,
        ..
    } = block
    else {
        return;
    };
    let dropped = [
        ("thinking_signature", signature),
        ("encrypted_reasoning", encrypted),
        ("reasoning_item_id", item_id),
    ];
    for (label, leaf) in dropped {
        if let Some(leaf) = leaf {
            out.drop(
                leaf.origin,
                label,
                "only its own vendor knows what it means",
            );
        }
    }
}

/// Writes the members of a call.
pub(super) fn put_call(block: &IrBlock, out: &mut Lowering<'_>) {
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
    match id {
        Some(id) => out.put("id", id),
        None => out.made(
            "id",
            &format!("call_{}", name.value),
            "minted_tool_id",
            "a call needs one",
        ),
    }
    match input {
        IrToolInput::Text(text) => {
            out.tag("type", "custom");
            out.put_object("custom", |out| {
                out.put("name", name);
                out.put("input", text);
            });
        }
        IrToolInput::Json(_) | IrToolInput::Invalid(_) => {
            out.tag("type", "function");
            out.put_object("function", |out| put_function(name, input, out));
        }
    }
    if let Some(item_id) = item_id {
        out.drop(item_id.origin, "item_id", "a call has one id here");
    }
    if let Some(signature) = signature {
        put_signature(signature, out);
    }
}

/// Writes a call's name and its arguments, which are JSON in a string.
pub(super) fn put_function(name: &Leaf<String>, input: &IrToolInput, out: &mut Lowering<'_>) {
    out.put("name", name);
    let (text, origin) = match input {
        IrToolInput::Json(json) => (json.text(), json.origin),
        IrToolInput::Text(text) | IrToolInput::Invalid(text) => (text.as_str(), text.origin),
    };
    let how = match out.source() {
        Some(Dialect::Claude | Dialect::Gemini) => How::Converted("json_in_text"),
        _ => How::AsIs,
    };
    out.put_as("arguments", text, &[origin], &how);
}

/// Writes Gemini's proof where Google's own compatible server puts it, so that it can come back.
pub(crate) fn put_signature(signature: &Leaf<String>, out: &mut Lowering<'_>) {
    let own = matches!(
        out.source().map(Dialect::family),
        Some(WireFamily::GenerateContent | WireFamily::Chat)
    );
    if own {
        out.put_object("extra_content", |out| {
            out.put_object("google", |out| out.put("thought_signature", signature));
        });
    } else {
        let reason = "only its own vendor knows what it means";
        out.drop(signature.origin, "thinking_signature", reason);
    }
}

/// Writes a source that an answer names; `before` characters stand before the text it belongs to.
pub(crate) fn put_citation(citation: &IrCitation, before: u64, out: &mut Lowering<'_>) {
    let IrCitation {
        url,
        title,
        quote,
        range,
        native: _,
    } = citation;
    out.tag("type", "url_citation");
    out.put_object("url_citation", |out| {
        out.put_opt("url", url.as_ref());
        out.put_opt("title", title.as_ref());
        if let Some(range) = range {
            for (key, place) in [("start_index", &range.start), ("end_index", &range.end)] {
                let how = match before {
                    0 => How::AsIs,
                    _ => How::Converted("citation_offset"),
                };
                out.put_as(key, &(place.value + before), &[place.origin], &how);
            }
        }
        if let Some(quote) = quote {
            if out.same_family() {
                out.put("content", quote);
            } else {
                out.drop(
                    quote.origin,
                    "citation_quote",
                    "sources come without their words",
                );
            }
        }
    });
}
