//! Writing answers. The last event of a stream is written by the same functions.

use std::borrow::Cow;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrFinish, IrFinishReason, IrResponse, IrUsage, IrVendorField, Leaf,
    Origin, RawJson,
};
use abp_dialect::{Dialect, Exchange, How, Lowering};

use super::output_out::write_output;
use super::{constant, is_own, put_own};
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
    /// What it repeats of its request, where another vendor gives it.
    pub(crate) echo: Vec<(String, RawJson)>,
}

impl Head {
    /// What is known before anything is read.
    pub(crate) fn new(exchange: &Exchange) -> Self {
        Self {
            alias: exchange.model.clone(),
            echo: exchange.expected.echo.clone(),
            ..Self::default()
        }
    }
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
        created: created.clone(),
        ..Head::new(exchange)
    };
    out.object(|out| {
        if !out.copy_native_members(&["output"]) {
            write_head(&head, out);
            write_finish(finish, vendor, out);
            write_echo(&head.echo, vendor, out);
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

/// Writes the members that say which answer this is. Clients expect all of them, even where another
/// dialect does not tell.
pub(crate) fn write_head(head: &Head, out: &mut Lowering<'_>) {
    let expected = !is_own(out.source());
    match &head.id {
        Some(id) => out.put("id", id),
        None if expected => out.made("id", "resp_abp", "response_id", "an answer needs an id"),
        None => {}
    }
    match &head.created {
        Some(created) => out.put("created_at", created),
        None if expected => {
            out.made(
                "created_at",
                &0,
                "created_unknown",
                "the source does not say when",
            );
        }
        None => {}
    }
    match (&head.alias, &head.model) {
        (Some(alias), Some(model)) => {
            let how = How::Converted("model_alias");
            out.put_as("model", alias, &[model.origin], &how);
        }
        (Some(alias), None) => out.made("model", alias, "model_alias", "what the caller asked"),
        (None, Some(model)) => out.put("model", model),
        (None, None) if expected => {
            out.made(
                "model",
                "unknown",
                "model_unknown",
                "the source does not say",
            );
        }
        (None, None) => {}
    }
}

/// Writes what the answer is and the members that repeat the request. Another dialect's answer does not
/// know them, and clients expect them nevertheless.
pub(crate) fn write_echo(
    echo: &[(String, RawJson)],
    vendor: &[IrVendorField],
    out: &mut Lowering<'_>,
) {
    if vendor.iter().all(|field| field.name != "object") {
        out.tag("object", "response");
    }
    if !is_own(out.source()) {
        for (name, value) in echo {
            out.made(name, value, "request_echo", "what the caller asked");
        }
        for (name, unknown) in wire::REQUIRED_ECHO {
            if echo.iter().all(|(known, _)| known != name) {
                out.tag(name, &constant(unknown));
            }
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
    if is_own(out.source()) {
        let status = vendor.iter().find(|field| field.name == "status");
        return out.put_opt("status", status.map(|status| &status.value));
    }
    out.tag("status", "completed");
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
            out.put_object("incomplete_details", |out| match (reason, native) {
                (IrFinishReason::Incomplete, None) => {
                    out.made(
                        "reason",
                        word,
                        "broken_off",
                        "the source did not say how it ends",
                    );
                }
                (reason, Some(native))
                    if is_own(out.source()) && wire::is_unknown_word(*reason, native) =>
                {
                    out.put("reason", native);
                }
                _ => out.put_as("reason", word, &[from], &how),
            });
        }
    }
    match (ending, details) {
        (Ending::Failed, Some(details)) if is_own(out.source()) => out.put("error", details),
        (Ending::Failed, _) => {
            let word = native.as_ref().map_or("error", |native| native.as_str());
            out.put_object("error", |out| {
                out.tag("code", "server_error");
                out.tag(
                    "message",
                    &format!("the model's answer is not usable: {word}"),
                );
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
                out.made(
                    "total_tokens",
                    &total,
                    "usage_total",
                    "the sum of both counts",
                );
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
