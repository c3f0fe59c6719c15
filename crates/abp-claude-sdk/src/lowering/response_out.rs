//! Writing answers.

use abp_core::ir::{IrChoice, IrFinish, IrFinishReason, IrResponse, IrUsage, Leaf};
use abp_dialect::{Exchange, How, Lowering};

use super::content_out::{Place, admit, write_block};
use super::response_in::cached_tokens;
use super::{constant, is_own, put_own};

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
    let (first, others) = match choices.as_slice() {
        [first, others @ ..] => (Some(first), others),
        [] => (None, [].as_slice()),
    };
    out.object(|out| {
        if out.native() {
            write_own(first, model.as_ref(), exchange, out);
            return;
        }
        write_id(id.as_ref(), out);
        out.tag("type", "message");
        out.tag("role", "assistant");
        write_model(model.as_ref(), exchange.model.as_deref(), out);
        write_answer(first, out);
        write_finish(first.and_then(|choice| choice.finish.as_ref()), out);
        out.put_object("usage", |out| write_usage(usage.as_ref(), out));
        put_own(vendor, out);
        if let Some(created) = created {
            out.drop(created.origin, "created", "an answer has no date here");
        }
        for choice in others {
            out.drop(
                choice.origin,
                "extra_choices",
                "the vendor gives one answer",
            );
        }
    });
}

/// Writes an answer of this dialect: everything stays but the content that was changed, and the
/// model where the caller asked for another.
fn write_own(
    choice: Option<&IrChoice>,
    model: Option<&Leaf<String>>,
    exchange: &Exchange,
    out: &mut Lowering<'_>,
) {
    let mut changed = Vec::new();
    if choice.is_some() {
        changed.push("content");
    }
    if exchange.model.is_some() {
        changed.push("model");
    }
    out.copy_native_members(&changed);
    if exchange.model.is_some() {
        write_model(model, exchange.model.as_deref(), out);
    }
    if let Some(choice) = choice {
        out.key("content");
        if !out.copy_native(choice.message.origin) {
            write_blocks(choice, out);
        }
    }
}

fn write_answer(choice: Option<&IrChoice>, out: &mut Lowering<'_>) {
    out.key("content");
    match choice {
        Some(choice) => write_blocks(choice, out),
        None => out.array(|_| {}),
    }
}

fn write_blocks(choice: &IrChoice, out: &mut Lowering<'_>) {
    out.array(|out| {
        for block in &choice.message.content {
            if admit(block, Place::Answer, out) {
                write_block(block, Place::Answer, out);
            }
        }
    });
}

pub(crate) fn write_id(id: Option<&Leaf<String>>, out: &mut Lowering<'_>) {
    match id {
        Some(id) => out.put("id", id),
        None => out.made("id", "msg_0", "response_id", "the source gives no id"),
    }
}

/// Writes the model as the caller named it.
pub(crate) fn write_model(
    model: Option<&Leaf<String>>,
    asked: Option<&str>,
    out: &mut Lowering<'_>,
) {
    match (model, asked) {
        (Some(model), Some(asked)) if model.as_str() != asked => {
            out.put_as(
                "model",
                asked,
                &[model.origin],
                &How::Converted("model_alias"),
            );
        }
        (Some(model), _) => out.put("model", model),
        (None, Some(asked)) => {
            out.made(
                "model",
                asked,
                "model_alias",
                "the model that was asked for",
            );
        }
        (None, None) => out.made("model", "unknown", "model", "the source names no model"),
    }
}

/// Writes why an answer ended.
pub(crate) fn write_finish(finish: Option<&IrFinish>, out: &mut Lowering<'_>) {
    let null = constant("null");
    let Some(finish) = finish else {
        out.tag("stop_reason", &null);
        out.tag("stop_sequence", &null);
        return;
    };
    let IrFinish {
        reason,
        native,
        stop_sequence,
        details,
    } = finish;
    match native {
        Some(native) if is_own(out.source()) => out.put("stop_reason", native),
        native => match (stop_word(*reason), native) {
            ((word, how), Some(native)) => {
                out.put_as("stop_reason", word, &[native.origin], &how);
            }
            ((word, How::Degraded { label, reason }), None) => {
                out.made("stop_reason", word, label, reason);
            }
            ((word, _), None) => out.tag("stop_reason", word),
        },
    }
    match stop_sequence {
        Some(text) => out.put("stop_sequence", text),
        None => out.tag("stop_sequence", &null),
    }
    if let Some(details) = details {
        if is_own(out.source()) {
            out.put("stop_details", details);
        } else {
            let reason = "the vendor's details of an ending are its own";
            out.drop(details.origin, "finish_details", reason);
        }
    }
}

/// The vendor's word for the end of an answer. One that broke off must not look complete.
pub(crate) fn stop_word(reason: IrFinishReason) -> (&'static str, How) {
    let converted = How::Converted("finish_reason");
    match reason {
        IrFinishReason::Stop => ("end_turn", converted),
        IrFinishReason::StopSequence => ("stop_sequence", converted),
        IrFinishReason::Length => ("max_tokens", converted),
        IrFinishReason::ToolUse => ("tool_use", converted),
        IrFinishReason::Pause => ("pause_turn", converted),
        IrFinishReason::Refusal => ("refusal", converted),
        IrFinishReason::ContentFilter => (
            "refusal",
            How::degraded(
                "content_filter",
                "the vendor has one word for a filter and a refusal",
            ),
        ),
        IrFinishReason::Error => (
            "max_tokens",
            How::degraded(
                "finish_error",
                "the vendor has no word for an unusable answer",
            ),
        ),
        IrFinishReason::Incomplete => (
            "max_tokens",
            How::degraded("incomplete", "the answer broke off"),
        ),
        _ => (
            "end_turn",
            How::degraded("finish_reason", "the vendor does not know this ending"),
        ),
    }
}

/// Writes token counts into an object. Input and output have to be there.
pub(crate) fn write_usage(usage: Option<&IrUsage>, out: &mut Lowering<'_>) {
    let unknown = IrUsage::default();
    let IrUsage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        reasoning_tokens,
        total_tokens,
        vendor,
        origin: _,
    } = usage.unwrap_or(&unknown);
    let missing = "the vendor wants a count and the source gives none";
    match input_tokens {
        Some(input) => {
            let cached = cached_tokens(cache_creation_tokens.as_ref(), cache_read_tokens.as_ref());
            let fresh = input.value.saturating_sub(cached.unwrap_or_default());
            let how = if fresh == input.value {
                How::AsIs
            } else {
                How::Converted("usage_inclusive")
            };
            out.put_as("input_tokens", &fresh, &[input.origin], &how);
        }
        None => out.made("input_tokens", &0_u64, "usage_unknown", missing),
    }
    out.put_opt(
        "cache_creation_input_tokens",
        cache_creation_tokens.as_ref(),
    );
    out.put_opt("cache_read_input_tokens", cache_read_tokens.as_ref());
    match output_tokens {
        Some(output) => out.put("output_tokens", output),
        None => out.made("output_tokens", &0_u64, "usage_unknown", missing),
    }
    if let Some(reasoning) = reasoning_tokens {
        out.put_object("output_tokens_details", |out| {
            out.put("thinking_tokens", reasoning);
        });
    }
    if let Some(total) = total_tokens {
        out.note(total.origin, How::Converted("usage_total"));
    }
    put_own(vendor, out);
}
