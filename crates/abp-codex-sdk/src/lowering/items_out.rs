//! Writing a conversation as input items.

use std::collections::BTreeSet;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrMessage, IrRole, IrThinkingKind, IrToolInput, Leaf, Origin,
};
use abp_dialect::{How, Lowering};

use super::parts_out::{drop_foreign, write_part};
use super::{Run, is_own, messages, put_own, runs, same_spelling};
use crate::wire;

/// Writes messages as items of an array.
pub(super) fn write_messages(messages: &[IrMessage], out: &mut Lowering<'_>) {
    let custom = custom_calls(messages);
    let mut copied = Origin::Host;
    for message in messages {
        if is_copyable(message, out) {
            copy_items(message, &mut copied, out);
        } else {
            write_message(message, &custom, out);
        }
    }
}

/// Whether a message is the source's own, and an item there: text that is a member of the request
/// itself is none.
fn is_copyable(message: &IrMessage, out: &Lowering<'_>) -> bool {
    out.native()
        && matches!(message.origin, Origin::Node(_))
        && out.source_key(message.origin).is_none()
}

/// Copies the items a message was read from. Blocks of one item follow each other.
fn copy_items(message: &IrMessage, copied: &mut Origin, out: &mut Lowering<'_>) {
    let mut copy = |origin: Origin| {
        if *copied != origin {
            out.copy_native(origin);
            *copied = origin;
        }
    };
    if message.role == IrRole::Assistant {
        message.content.iter().for_each(|block| copy(block.origin));
    } else {
        copy(message.origin);
    }
}

/// The ids of calls that take free text: their answers are items of another type.
fn custom_calls(messages: &[IrMessage]) -> BTreeSet<&str> {
    let blocks = messages.iter().flat_map(|message| &message.content);
    blocks
        .filter_map(|block| match &block.body {
            IrContentBlock::ToolUse {
                id: Some(id),
                input: IrToolInput::Text(_),
                ..
            } => Some(id.as_str()),
            _ => None,
        })
        .collect()
}

fn write_message(message: &IrMessage, custom: &BTreeSet<&str>, out: &mut Lowering<'_>) {
    for run in runs(&message.content) {
        match run {
            Run::Parts(parts) if message.role == IrRole::Assistant => {
                let items = messages(parts, out.source());
                items.for_each(|parts| write_message_item(message, parts, out));
            }
            Run::Parts(parts) => write_message_item(message, parts, out),
            Run::Reasoning(thoughts) if is_own(out.source()) || are_recovered(thoughts) => {
                write_reasoning(thoughts, out);
            }
            Run::Reasoning(thoughts) => thoughts.iter().for_each(|block| drop_thought(block, out)),
            Run::Single(block) => write_single(block, custom, out),
        }
    }
}

fn write_message_item(message: &IrMessage, parts: &[IrBlock], out: &mut Lowering<'_>) {
    out.object(|out| {
        out.tag("type", "message");
        out.tag("role", wire::role_word(message.role));
        match parts {
            [block] if message.plain => write_plain(block, message.role, out),
            _ if out.profile().plain_text_only && parts.iter().all(is_text) => {
                write_joined(parts, out);
            }
            _ => out.put_array("content", |out| {
                parts
                    .iter()
                    .for_each(|block| write_part(block, message.role, out));
            }),
        }
        put_own(&message.vendor, &[], out);
        // What belongs to an assistant's item is on its first block.
        if let (IrRole::Assistant, Some(first)) = (message.role, parts.first()) {
            put_own(&first.vendor, &["logprobs", "prompt_cache_breakpoint"], out);
        }
    });
}

fn is_text(block: &IrBlock) -> bool {
    matches!(block.body, IrContentBlock::Text { .. })
}

/// Content that can be one string.
fn write_plain(block: &IrBlock, role: IrRole, out: &mut Lowering<'_>) {
    match &block.body {
        IrContentBlock::Text { text, citations } if citations.is_empty() => {
            out.put("content", text);
        }
        _ => out.put_array("content", |out| write_part(block, role, out)),
    }
}

/// Texts as one string, for a target that takes no parts.
fn write_joined(parts: &[IrBlock], out: &mut Lowering<'_>) {
    let texts = parts.iter().filter_map(|block| match &block.body {
        IrContentBlock::Text { text, .. } => Some(text),
        _ => None,
    });
    let (texts, origins): (Vec<_>, Vec<_>) = texts.map(|text| (text.as_str(), text.origin)).unzip();
    let how = match texts.len() {
        1 => How::AsIs,
        _ => How::degraded("text_blocks_joined", "the target takes plain strings only"),
    };
    out.put_as("content", &texts.join("\n"), &origins, &how);
}

/// Whether reasoning was kept for this vendor, and can be read by it without its having kept it too.
fn are_recovered(thoughts: &[IrBlock]) -> bool {
    let first = thoughts.first().map(|block| &block.body);
    matches!(first, Some(IrContentBlock::Thinking { encrypted: Some(text), .. })
        if text.origin == Origin::RECOVERED)
}

/// Reasoning that this vendor gave, to be read by it again.
fn write_reasoning(thoughts: &[IrBlock], out: &mut Lowering<'_>) {
    let text_of = |block: &IrBlock, wanted: IrThinkingKind| match &block.body {
        IrContentBlock::Thinking { text, kind, .. } if *kind == wanted && !text.is_empty() => {
            Some(text.clone())
        }
        _ => None,
    };
    let texts = |kind| -> Vec<Leaf<String>> {
        thoughts
            .iter()
            .filter_map(|block| text_of(block, kind))
            .collect()
    };
    out.object(|out| {
        out.tag("type", "reasoning");
        if let Some(IrBlock {
            body: IrContentBlock::Thinking {
                item_id, encrypted, ..
            },
            vendor,
            ..
        }) = thoughts.first()
        {
            out.put_opt("id", item_id.as_ref());
            out.put_opt("encrypted_content", encrypted.as_ref());
            put_own(vendor, &[], out);
        }
        write_thoughts(
            "summary",
            "summary_text",
            &texts(IrThinkingKind::Summary),
            out,
        );
        let raw = texts(IrThinkingKind::Raw);
        if !raw.is_empty() {
            write_thoughts("content", "reasoning_text", &raw, out);
        }
    });
}

/// Writes the texts of a reasoning item.
pub(super) fn write_thoughts(
    key: &str,
    kind: &str,
    texts: &[Leaf<String>],
    out: &mut Lowering<'_>,
) {
    out.put_array(key, |out| {
        for text in texts {
            out.object(|out| {
                out.tag("type", kind);
                out.put("text", text);
            });
        }
    });
}

/// Another vendor's reasoning has no id here, and would be refused.
fn drop_thought(block: &IrBlock, out: &mut Lowering<'_>) {
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
    out.drop(
        text.origin,
        "foreign_thinking",
        "reasoning of another vendor is not taken back",
    );
    drop_proofs(
        [signature.as_ref(), encrypted.as_ref(), item_id.as_ref()],
        out,
    );
}

/// Proofs and ciphertext are only for the vendor that made them.
pub(super) fn drop_proofs(leaves: [Option<&Leaf<String>>; 3], out: &mut Lowering<'_>) {
    let labels = ["thinking_signature", "encrypted_reasoning", "item_id"];
    for (leaf, label) in leaves.into_iter().zip(labels) {
        let origin = leaf.map_or(Origin::Host, |leaf| leaf.origin);
        out.drop(origin, label, "only the vendor that made it can read it");
    }
}

fn write_single(block: &IrBlock, custom: &BTreeSet<&str>, out: &mut Lowering<'_>) {
    match &block.body {
        IrContentBlock::ToolUse { .. } => write_call(block, out),
        IrContentBlock::ToolResult { .. } => write_result(block, custom, out),
        IrContentBlock::RedactedThinking { data } => out.drop(
            data.origin,
            "redacted_thinking",
            "only the vendor that made it can read it",
        ),
        IrContentBlock::Opaque { native, .. } if is_own(out.source()) => out.value(native),
        _ => drop_foreign(block, out),
    }
}

fn write_call(block: &IrBlock, out: &mut Lowering<'_>) {
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
    let own = is_own(out.source());
    drop_proofs(
        [signature.as_ref(), None, item_id.as_ref().filter(|_| !own)],
        out,
    );
    out.object(|out| {
        out.tag("type", call_type(input));
        out.put_opt("id", item_id.as_ref().filter(|_| own));
        out.put_opt("call_id", id.as_ref());
        out.put("name", name);
        write_call_input(input, out);
        put_own(&block.vendor, &[], out);
    });
}

/// The type of a call's item.
pub(super) fn call_type(input: &IrToolInput) -> &'static str {
    match input {
        IrToolInput::Text(_) => "custom_tool_call",
        IrToolInput::Json(_) | IrToolInput::Invalid(_) => "function_call",
    }
}

/// Writes what a call takes: free text, or JSON in a string.
pub(super) fn write_call_input(input: &IrToolInput, out: &mut Lowering<'_>) {
    match input {
        IrToolInput::Text(text) => out.put("input", text),
        IrToolInput::Invalid(text) => out.put("arguments", text),
        IrToolInput::Json(json) => {
            let how = if same_spelling(out.source()) {
                How::AsIs
            } else {
                How::Converted("json_in_text")
            };
            out.put_as("arguments", json.text(), &[json.origin], &how);
        }
    }
}

fn write_result(block: &IrBlock, custom: &BTreeSet<&str>, out: &mut Lowering<'_>) {
    let IrContentBlock::ToolResult {
        tool_use_id,
        name,
        content,
        plain,
        is_error,
    } = &block.body
    else {
        return;
    };
    let is_custom = tool_use_id
        .as_ref()
        .is_some_and(|id| custom.contains(id.as_str()));
    let kind = if is_custom {
        "custom_tool_call_output"
    } else {
        "function_call_output"
    };
    let failed = is_error.as_ref().filter(|failed| failed.value);
    if let (Some(flag), None) = (is_error, failed) {
        out.note(flag.origin, How::Converted("no_error"));
    }
    out.object(|out| {
        out.tag("type", kind);
        out.put_opt("call_id", tool_use_id.as_ref());
        match name {
            Some(name) if is_own(out.source()) => out.put("name", name),
            Some(name) => out.note(name.origin, How::Converted("named_by_call")),
            None => {}
        }
        match (content.as_slice(), failed) {
            ([], None) => out.tag("output", ""),
            ([block], failed) if *plain || is_json(block) => write_output_text(block, failed, out),
            (blocks, failed) => out.put_array("output", |out| {
                if let Some(failed) = failed {
                    write_failure_part(failed, out);
                }
                blocks
                    .iter()
                    .for_each(|block| write_part(block, IrRole::Tool, out));
            }),
        }
        put_own(&block.vendor, &[], out);
    });
}

fn is_json(block: &IrBlock) -> bool {
    matches!(block.body, IrContentBlock::Json { .. })
}

/// A call's answer as one string. There is no flag for errors, so the text says it.
fn write_output_text(block: &IrBlock, failed: Option<&Leaf<bool>>, out: &mut Lowering<'_>) {
    let (text, origin, how) = match &block.body {
        IrContentBlock::Text { text, .. } => (text.as_str(), text.origin, How::AsIs),
        IrContentBlock::Json { value } => {
            (value.text(), value.origin, How::Converted("json_in_text"))
        }
        _ => return out.put_array("output", |out| write_part(block, IrRole::Tool, out)),
    };
    match failed {
        None => out.put_as("output", text, &[origin], &how),
        Some(failed) => {
            let marked = format!("Error: {text}");
            out.put_as(
                "output",
                &marked,
                &[origin, failed.origin],
                &error_as_text(),
            );
        }
    }
}

fn write_failure_part(failed: &Leaf<bool>, out: &mut Lowering<'_>) {
    out.object(|out| {
        out.tag("type", "input_text");
        out.put_as("text", "Error:", &[failed.origin], &error_as_text());
    });
}

fn error_as_text() -> How {
    How::degraded(
        "is_error",
        "an answer has no flag for errors; its text says it",
    )
}
