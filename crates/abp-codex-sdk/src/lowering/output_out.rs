//! Writing the items of an answer, whole or as they grow.

use abp_core::ir::{IrBlock, IrContentBlock, IrRole, IrThinkingKind, Leaf, RawJson};
use abp_dialect::{Dialect, How, Lowering};

use super::items_out::{call_type, drop_proofs, write_call_input};
use super::parts_out::{drop_foreign, write_annotations, write_part};
use super::{Run, constant, is_own, messages, put_own, runs};

/// Blocks that make one item of the output.
#[derive(Debug, Clone, Copy)]
pub(crate) enum OutputItem<'b> {
    /// A message.
    Message(&'b [IrBlock]),
    /// Reasoning.
    Reasoning(&'b [IrBlock]),
    /// A call.
    Call(&'b IrBlock),
    /// An item that only this dialect has.
    Native(&'b Leaf<RawJson>),
}

/// Writes the items that blocks make.
pub(super) fn write_output(blocks: &[IrBlock], response: &str, out: &mut Lowering<'_>) {
    let mut index = 0;
    let mut write = |item: OutputItem<'_>, out: &mut Lowering<'_>| {
        let id = format!("{}_{response}_{index}", item_prefix(item));
        write_item(item, &id, "completed", out);
        index += 1;
    };
    for run in runs(blocks) {
        match run {
            Run::Parts(parts) => messages(parts, out.source())
                .for_each(|parts| write(OutputItem::Message(parts), out)),
            Run::Reasoning(thoughts) => write(OutputItem::Reasoning(thoughts), out),
            Run::Single(block) => match &block.body {
                IrContentBlock::ToolUse { .. } => write(OutputItem::Call(block), out),
                IrContentBlock::Opaque { native, .. } if is_own(out.source()) => {
                    write(OutputItem::Native(native), out);
                }
                IrContentBlock::RedactedThinking { data } => out.drop(
                    data.origin,
                    "redacted_thinking",
                    "only the vendor that made it can read it",
                ),
                _ => drop_foreign(block, out),
            },
        }
    }
}

/// What the ids of an item start with.
pub(crate) fn item_prefix(item: OutputItem<'_>) -> &'static str {
    match item {
        OutputItem::Reasoning(_) => "rs",
        OutputItem::Call(block) => match &block.body {
            IrContentBlock::ToolUse { input, .. } if call_type(input) == "custom_tool_call" => {
                "ctc"
            }
            _ => "fc",
        },
        OutputItem::Message(_) | OutputItem::Native(_) => "msg",
    }
}

/// Writes an item of the output; `id` is for those that have none of their own.
pub(crate) fn write_item(item: OutputItem<'_>, id: &str, status: &str, out: &mut Lowering<'_>) {
    match item {
        OutputItem::Native(native) => out.value(native),
        OutputItem::Message(parts) => out.object(|out| write_message(parts, id, status, out)),
        OutputItem::Reasoning(thoughts) => {
            thoughts.iter().for_each(|block| settle_thought(block, out));
            out.object(|out| write_reasoning(thoughts, id, out));
        }
        OutputItem::Call(block) => write_call(block, id, status, out),
    }
}

/// The item's own id, where it was read from this dialect; else the one made for it.
fn write_id(own_id: Option<&Leaf<String>>, id: &str, out: &mut Lowering<'_>) {
    match own_id.filter(|_| is_own(out.source())) {
        Some(own_id) => out.put("id", own_id),
        None => out.made("id", id, "item_id", "every item needs an id"),
    }
}

fn write_message(parts: &[IrBlock], id: &str, status: &str, out: &mut Lowering<'_>) {
    let vendor = parts.first().map_or(&[][..], |first| &first.vendor);
    let has = |name: &str| is_own(out.source()) && vendor.iter().any(|field| field.name == name);
    let (has_id, has_status) = (has("id"), has("status"));
    if !has_id {
        out.made("id", id, "item_id", "every item needs an id");
    }
    out.tag("type", "message");
    if !has_status {
        out.tag("status", status);
    }
    out.tag("role", "assistant");
    out.put_array("content", |out| {
        parts.iter().for_each(|block| write_output_part(block, out));
    });
    put_own(vendor, &["logprobs", "prompt_cache_breakpoint"], out);
}

/// Writes a part of a message.
pub(crate) fn write_output_part(block: &IrBlock, out: &mut Lowering<'_>) {
    match &block.body {
        IrContentBlock::Text { text, citations } => out.object(|out| {
            out.tag("type", "output_text");
            out.put("text", text);
            write_annotations(citations, out);
            let logprobs = block.vendor.iter().find(|field| field.name == "logprobs");
            match logprobs.filter(|_| is_own(out.source())) {
                Some(logprobs) => out.put("logprobs", &logprobs.value),
                None => out.tag("logprobs", &constant("[]")),
            }
        }),
        IrContentBlock::Json { .. } | IrContentBlock::Refusal { .. } => {
            write_part(block, IrRole::Assistant, out);
        }
        _ => drop_foreign(block, out),
    }
}

/// Reasoning is shown as a summary, which is what clients of this dialect show; only this vendor's
/// own stays what it is.
pub(crate) fn shown_kind(kind: IrThinkingKind, source: Option<Dialect>) -> IrThinkingKind {
    if is_own(source) {
        kind
    } else {
        IrThinkingKind::Summary
    }
}

/// How reasoning reaches a client of this dialect.
pub(crate) fn thinking_how(kind: IrThinkingKind, source: Option<Dialect>) -> How {
    if shown_kind(kind, source) == kind {
        How::AsIs
    } else {
        How::degraded(
            "thinking_kind",
            "reasoning is shown as if it were a summary",
        )
    }
}

fn write_reasoning(thoughts: &[IrBlock], id: &str, out: &mut Lowering<'_>) {
    let first = thoughts.first().map(|block| (&block.body, &block.vendor));
    let own_id = match first {
        Some((IrContentBlock::Thinking { item_id, .. }, _)) => item_id.as_ref(),
        _ => None,
    };
    write_id(own_id, id, out);
    out.tag("type", "reasoning");
    let source = out.source();
    out.put_array("summary", |out| {
        write_thoughts(thoughts, IrThinkingKind::Summary, "summary_text", out);
    });
    let is_raw = |block: &IrBlock| match &block.body {
        IrContentBlock::Thinking { kind, text, .. } => {
            shown_kind(*kind, source) == IrThinkingKind::Raw && !text.is_empty()
        }
        _ => false,
    };
    if thoughts.iter().any(is_raw) {
        out.put_array("content", |out| {
            write_thoughts(thoughts, IrThinkingKind::Raw, "reasoning_text", out);
        });
    }
    if is_own(source) {
        let encrypted = thoughts.iter().find_map(|block| match &block.body {
            IrContentBlock::Thinking { encrypted, .. } => encrypted.as_ref(),
            _ => None,
        });
        out.put_opt("encrypted_content", encrypted);
    }
    put_own(first.map_or(&[][..], |(_, vendor)| vendor), &[], out);
}

fn write_thoughts(
    thoughts: &[IrBlock],
    wanted: IrThinkingKind,
    part: &str,
    out: &mut Lowering<'_>,
) {
    let source = out.source();
    for block in thoughts {
        if let IrContentBlock::Thinking { text, kind, .. } = &block.body
            && shown_kind(*kind, source) == wanted
            && !text.is_empty()
        {
            out.object(|out| {
                out.tag("type", part);
                let how = thinking_how(*kind, source);
                out.put_as("text", &text.value, &[text.origin], &how);
            });
        }
    }
}

/// Remarks on what of a thought is not written.
fn settle_thought(block: &IrBlock, out: &mut Lowering<'_>) {
    if let IrContentBlock::Thinking {
        text,
        kind: _,
        signature,
        encrypted,
        item_id,
    } = &block.body
    {
        if text.is_empty() {
            out.note(text.origin, How::Converted("no_summary"));
        }
        let own = is_own(out.source());
        let foreign = |leaf: &'_ Option<Leaf<String>>| leaf.clone().filter(|_| !own);
        let (encrypted, item_id) = (foreign(encrypted), foreign(item_id));
        drop_proofs(
            [signature.as_ref(), encrypted.as_ref(), item_id.as_ref()],
            out,
        );
    }
}

fn write_call(block: &IrBlock, id: &str, status: &str, out: &mut Lowering<'_>) {
    let IrContentBlock::ToolUse {
        id: call_id,
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
    let has_status = own && block.vendor.iter().any(|field| field.name == "status");
    out.object(|out| {
        write_id(item_id.as_ref(), id, out);
        out.tag("type", call_type(input));
        if !has_status {
            out.tag("status", status);
        }
        match call_id {
            Some(call_id) => out.put("call_id", call_id),
            None => out.made("call_id", id, "tool_id", "every call needs an id"),
        }
        out.put("name", name);
        write_call_input(input, out);
        put_own(&block.vendor, &[], out);
    });
}
