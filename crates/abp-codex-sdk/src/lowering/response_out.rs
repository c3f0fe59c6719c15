//! Writing answers. The last event of a stream is written by the same functions.

use std::borrow::Cow;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrFinish, IrFinishReason, IrResponse, IrRole, IrThinkingKind,
    IrUsage, IrVendorField, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, Exchange, How, Lowering};

use super::items_out::{call_type, drop_proofs, write_call_input};
use super::parts_out::{drop_foreign, write_annotations};
use super::{Run, constant, is_own, put_own, runs};
use crate::wire::{self, Ending};

/// What an answer says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Head {
    /// Its id.
    pub(crate) id: Option<Leaf<String>>,
    /// The model that gives it.
    pub(crate) model: Option<Leaf<String>>,
    /// The model as the caller named it.
    pub(crate) alias: Option<String>,
    /// When, as seconds since 1970.
    pub(crate) created: Option<Leaf<RawJson>>,
}

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

/// Writes an answer.
pub(crate) fn write_response(response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
    let IrResponse {
        id,
        model,
        created,
        choices,
        usage,
        vendor,
    } = response;
    let (choice, others) = match choices.split_first() {
        Some((choice, others)) => (Some(choice), others),
        None => (None, choices.as_slice()),
    };
    for other in others {
        out.drop(other.origin, "choices", "OpenAI Responses gives one answer");
    }
    let finish = choice.and_then(|choice| choice.finish.as_ref());
    let blocks = choice.map_or(&[][..], |choice| &choice.message.content);
    let head = Head {
        id: id.clone(),
        model: model.clone(),
        alias: exchange.model.clone(),
        created: created.clone(),
    };
    out.object(|out| {
        if !out.copy_native_members(&["output"]) {
            write_head(&head, out);
            write_finish(finish, vendor, out);
            write_echo(vendor, out);
            if let Some(usage) = usage {
                write_usage(usage, out);
            }
        }
        out.key("output");
        if !choice.is_some_and(|choice| out.copy_native(choice.origin)) {
            let id = head.id.as_ref().map_or("abp", |id| id.as_str());
            let blocks = with_refusal(blocks, finish);
            out.array(|out| write_output(&blocks, id, out));
        }
    });
}

/// Writes the members that say which answer this is.
pub(crate) fn write_head(head: &Head, out: &mut Lowering<'_>) {
    match &head.id {
        Some(id) => out.put("id", id),
        None => out.made("id", "resp_abp", "response_id", "an answer needs an id"),
    }
    out.tag("object", "response");
    match &head.created {
        Some(created) => out.put("created_at", created),
        None => out.made("created_at", &0, "created_unknown", "the source does not say when"),
    }
    match (&head.alias, &head.model) {
        (Some(alias), Some(model)) => {
            out.put_as("model", alias, &[model.origin], &How::Converted("model_alias"));
        }
        (Some(alias), None) => out.made("model", alias, "model_alias", "what the caller asked"),
        (None, Some(model)) => out.put("model", model),
        (None, None) => out.made("model", "unknown", "model_unknown", "the source does not say"),
    }
}

/// Writes the members that repeat the request. What is not known has to be there nevertheless.
pub(crate) fn write_echo(vendor: &[IrVendorField], out: &mut Lowering<'_>) {
    let own = is_own(out.source());
    for (name, unknown) in wire::REQUIRED_ECHO {
        if !(own && vendor.iter().any(|field| field.name == name)) {
            out.tag(name, &constant(unknown));
        }
    }
    out.put_vendor(vendor, |from, name| match from {
        Dialect::Codex => name != "status",
        Dialect::OpenAi => name == "service_tier",
        _ => false,
    });
}

fn write_finish(finish: Option<&IrFinish>, vendor: &[IrVendorField], out: &mut Lowering<'_>) {
    if let Some(finish) = finish {
        return write_ending(finish, out);
    }
    let unfinished = vendor
        .iter()
        .find(|field| is_own(out.source()) && field.name == "status");
    match unfinished {
        Some(status) => out.put("status", &status.value),
        None => out.tag("status", "completed"),
    }
    out.tag("error", &constant("null"));
    out.tag("incomplete_details", &constant("null"));
}

/// Writes why an answer ended.
pub(crate) fn write_ending(finish: &IrFinish, out: &mut Lowering<'_>) {
    let IrFinish {
        reason,
        native,
        stop_sequence,
        details,
    } = finish;
    let (ending, exact) = Ending::of(*reason);
    let how = if exact {
        How::Converted("finish_reason")
    } else {
        How::degraded("finish_reason", "OpenAI Responses has no such end")
    };
    let from = native.as_ref().map_or(Origin::Host, |native| native.origin);
    let origin = |leaf: Option<Origin>| leaf.unwrap_or_default();
    out.drop(
        origin(stop_sequence.as_ref().map(|text| text.origin)),
        "stop_sequence",
        "which text ended the answer has no place",
    );
    match ending {
        Ending::Completed | Ending::Failed => {
            out.put_as("status", ending.status(), &[from], &how);
            out.tag("incomplete_details", &constant("null"));
        }
        Ending::Incomplete(word) => {
            out.tag("status", ending.status());
            out.put_object("incomplete_details", |out| {
                out.put_as("reason", word, &[from], &how);
            });
        }
    }
    match (ending, details) {
        (Ending::Failed, Some(details)) if is_own(out.source()) => out.put("error", details),
        (Ending::Failed, _) => {
            let word = native.as_ref().map_or("error", |native| native.as_str());
            out.put_object("error", |out| {
                out.tag("code", "server_error");
                out.tag("message", &format!("the model's answer is not usable: {word}"));
            });
        }
        _ => out.tag("error", &constant("null")),
    }
    if !is_own(out.source()) {
        out.drop(
            origin(details.as_ref().map(|details| details.origin)),
            "finish_details",
            "more about the end has no place",
        );
    }
}

/// Writes what an answer used.
pub(crate) fn write_usage(usage: &IrUsage, out: &mut Lowering<'_>) {
    let IrUsage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        reasoning_tokens,
        total_tokens,
        vendor,
        origin: _,
    } = usage;
    out.put_object("usage", |out| {
        out.put_opt("input_tokens", input_tokens.as_ref());
        if cache_read_tokens.is_some() || cache_creation_tokens.is_some() {
            out.put_object("input_tokens_details", |out| {
                out.put_opt("cached_tokens", cache_read_tokens.as_ref());
                out.put_opt("cache_write_tokens", cache_creation_tokens.as_ref());
            });
        }
        out.put_opt("output_tokens", output_tokens.as_ref());
        if reasoning_tokens.is_some() {
            out.put_object("output_tokens_details", |out| {
                out.put_opt("reasoning_tokens", reasoning_tokens.as_ref());
            });
        }
        match (total_tokens, input_tokens, output_tokens) {
            (Some(total), _, _) => out.put("total_tokens", total),
            (None, Some(input), Some(output)) => {
                let total = input.value.saturating_add(output.value);
                out.made("total_tokens", &total, "usage_total", "the sum of both counts");
            }
            _ => {}
        }
        put_own(vendor, &[], out);
    });
}

/// An answer that ends with a refusal says so in its content, where clients look for it.
fn with_refusal<'b>(blocks: &'b [IrBlock], finish: Option<&IrFinish>) -> Cow<'b, [IrBlock]> {
    match finish {
        Some(finish) if needs_refusal(finish, blocks) => {
            let mut blocks = blocks.to_vec();
            blocks.push(IrBlock::from(refusal()));
            Cow::Owned(blocks)
        }
        _ => Cow::Borrowed(blocks),
    }
}

/// Whether an answer was refused and does not say so.
fn needs_refusal(finish: &IrFinish, blocks: &[IrBlock]) -> bool {
    let is_refusal = |block: &IrBlock| matches!(block.body, IrContentBlock::Refusal { .. });
    finish.reason == IrFinishReason::Refusal && !blocks.iter().any(is_refusal)
}

/// What stands for a refusal without words.
pub(crate) fn refusal() -> IrContentBlock {
    let text = "The model declined to answer.".to_owned();
    IrContentBlock::Refusal {
        text: Leaf::new(text, Origin::Made("refusal_text")),
    }
}

fn write_output(blocks: &[IrBlock], response: &str, out: &mut Lowering<'_>) {
    for (index, run) in runs(blocks).enumerate() {
        let item = match run {
            Run::Parts(parts) => OutputItem::Message(parts),
            Run::Reasoning(thoughts) => OutputItem::Reasoning(thoughts),
            Run::Single(block) => match &block.body {
                IrContentBlock::ToolUse { .. } => OutputItem::Call(block),
                IrContentBlock::Opaque { native, .. } if is_own(out.source()) => {
                    OutputItem::Native(native)
                }
                IrContentBlock::RedactedThinking { data } => {
                    out.drop(
                        data.origin,
                        "redacted_thinking",
                        "only the vendor that made it can read it",
                    );
                    continue;
                }
                _ => {
                    drop_foreign(block, out);
                    continue;
                }
            },
        };
        let id = format!("{}_{response}_{index}", item_prefix(item));
        write_item(item, &id, "completed", out);
    }
}

/// What the ids of an item start with.
pub(crate) fn item_prefix(item: OutputItem<'_>) -> &'static str {
    match item {
        OutputItem::Reasoning(_) => "rs",
        OutputItem::Call(block) => match &block.body {
            IrContentBlock::ToolUse { input, .. } if call_type(input) == "custom_tool_call" => "ctc",
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
            thoughts.iter().for_each(|block| drop_thought_proofs(block, out));
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
            super::parts_out::write_part(block, IrRole::Assistant, out);
        }
        _ => drop_foreign(block, out),
    }
}

/// Reasoning is shown as a summary, which is what clients of this dialect show; only this vendor's
/// own stays what it is.
pub(crate) fn shown_kind(kind: IrThinkingKind, source: Option<Dialect>) -> IrThinkingKind {
    if is_own(source) { kind } else { IrThinkingKind::Summary }
}

/// How reasoning reaches a client of this dialect.
pub(crate) fn thinking_how(kind: IrThinkingKind, source: Option<Dialect>) -> How {
    if shown_kind(kind, source) == kind {
        How::AsIs
    } else {
        How::degraded("thinking_kind", "reasoning is shown as if it were a summary")
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

fn drop_thought_proofs(block: &IrBlock, out: &mut Lowering<'_>) {
    if let IrContentBlock::Thinking {
        signature,
        encrypted,
        item_id,
        ..
    } = &block.body
    {
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
    drop_proofs([signature.as_ref(), None, item_id.as_ref().filter(|_| !own)], out);
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
