//! Writing what an assistant said: in a request's history, and in an answer.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMessage, IrToolInput, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, How, Lowering, WireFamily};

use super::message_out::{PARAGRAPH, leave_out, pieces, put_text, put_vendor, write_pieces};
use crate::Flavour;

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

/// Writes a message of a request's history.
pub(super) fn write_history(flavour: &Flavour, message: &IrMessage, out: &mut Lowering<'_>) {
    out.object(|out| {
        out.tag("role", "assistant");
        put_vendor(flavour, message, out);
        let sorted = sort(message, out);
        if flavour.replays_reasoning {
            put_thinking(flavour, &sorted.thinking, out);
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
pub(super) fn put_thinking(
    flavour: &Flavour,
    thinking: &[&IrContentBlock],
    out: &mut Lowering<'_>,
) {
    let mut texts = Vec::new();
    for block in thinking {
        if let IrContentBlock::Thinking { text, .. } = block
            && (!text.is_empty() || text.origin != Origin::Host)
        {
            texts.push(text);
        }
        drop_proofs(block, out);
    }
    if !texts.is_empty() {
        put_joined(flavour.reasoning_member, &texts, PARAGRAPH, out);
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
