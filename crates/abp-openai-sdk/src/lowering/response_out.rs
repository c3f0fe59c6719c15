//! Writing answers.

use abp_core::ir::{
    IrBlock, IrChoice, IrContentBlock, IrFinish, IrFinishReason, IrMessage, IrResponse, Origin,
    RawJson,
};
use abp_dialect::{Exchange, How, Lowering};

use super::message_out::{self, Piece};
use super::{assistant_out, usage};
use crate::{Flavour, wire};

/// Writes an answer.
pub(crate) fn write(
    flavour: &Flavour,
    response: &IrResponse,
    exchange: &Exchange,
    out: &mut Lowering<'_>,
) {
    let changed = |choice: &IrChoice| !matches!(choice.origin, Origin::Node(_));
    let anew = exchange.model.is_some() || response.choices.iter().any(changed);
    let sections: &[&str] = match anew {
        true => &["choices", "model"],
        false => &[],
    };
    out.object(|out| {
        if out.copy_native_members(sections) {
            if anew {
                put_model(response, exchange, out);
                write_choices(flavour, response, exchange, out);
            }
            return;
        }
        put_head(response, exchange, out);
        write_choices(flavour, response, exchange, out);
        if let Some(counts) = &response.usage {
            usage::put(counts, out);
        }
        out.put_vendor(&response.vendor, |from, name| {
            wire::RESPONSE_MEMBERS.contains(&name) && wire::shared_member(from, name)
        });
    });
}

fn put_head(response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
    match &response.id {
        Some(id) => out.put("id", id),
        None => out.made("id", "chatcmpl-abp", "response_id", "an answer needs an id"),
    }
    out.tag("object", "chat.completion");
    match &response.created {
        Some(created) => out.put("created", created),
        None => out.made("created", &0, "created", "the source does not say when"),
    }
    put_model(response, exchange, out);
}

fn put_model(response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
    match (&exchange.model, &response.model) {
        (Some(asked), model) => {
            let from = model.as_ref().map(|model| model.origin).unwrap_or_default();
            out.put_as("model", asked, &[from], &How::Converted("model_alias"));
        }
        (None, model) => out.put_opt("model", model.as_ref()),
    }
}

fn write_choices(
    flavour: &Flavour,
    response: &IrResponse,
    exchange: &Exchange,
    out: &mut Lowering<'_>,
) {
    out.put_array("choices", |out| {
        for choice in &response.choices {
            if !out.copy_native(choice.origin) {
                write_choice(flavour, choice, exchange.legacy_functions, out);
            }
        }
    });
}

fn write_choice(flavour: &Flavour, choice: &IrChoice, legacy: bool, out: &mut Lowering<'_>) {
    let IrChoice {
        index,
        message,
        finish,
        vendor,
        origin: _,
    } = choice;
    out.object(|out| {
        out.tag("index", &u64::from(*index));
        out.put_object("message", |out| {
            write_message(flavour, message, legacy, out);
        });
        let call = |block: &IrBlock| matches!(block.body, IrContentBlock::ToolUse { .. });
        let calls = match (message.content.iter().any(call), legacy) {
            (false, _) => Calls::None,
            (true, false) => Calls::Tools,
            (true, true) => Calls::Functions,
        };
        match finish {
            Some(finish) => put_finish(finish, calls, out),
            None => {
                let word = finish_word(IrFinishReason::Stop, calls).0;
                out.made(
                    "finish_reason",
                    word,
                    "finish_reason",
                    "the source gives no reason",
                );
            }
        }
        out.put_vendor(vendor, |from, name| {
            wire::CHOICE_MEMBERS.contains(&name) && wire::shared_member(from, name)
        });
    });
}

/// The calls in an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Calls {
    /// There are none.
    None,
    /// Calls of tools.
    Tools,
    /// A call of a function, in the form that predates tools.
    Functions,
}

/// The word for the end of an answer; one with calls never ends in a plain stop.
fn finish_word(reason: IrFinishReason, calls: Calls) -> (&'static str, Option<&'static str>) {
    match (reason, calls) {
        (IrFinishReason::Stop | IrFinishReason::ToolUse, Calls::Functions) => {
            ("function_call", None)
        }
        (IrFinishReason::Stop, Calls::Tools) => ("tool_calls", None),
        _ => wire::finish_word(reason),
    }
}

/// Writes why an answer ended.
pub(crate) fn put_finish(finish: &IrFinish, calls: Calls, out: &mut Lowering<'_>) {
    let IrFinish {
        reason,
        native,
        stop_sequence,
        details,
    } = finish;
    let (word, unsaid) = finish_word(*reason, calls);
    match native {
        Some(native) if *reason == IrFinishReason::Other && out.same_family() => {
            out.put("finish_reason", native);
        }
        Some(native) => {
            let how = match unsaid {
                _ if native.value == word => How::AsIs,
                Some(reason) => How::degraded("finish_reason", reason),
                None => How::Converted("finish_reason"),
            };
            out.put_as("finish_reason", word, &[native.origin], &how);
        }
        None => {
            let label = match reason {
                IrFinishReason::Incomplete => "broken_off",
                _ => "finish_reason",
            };
            out.made("finish_reason", word, label, "the source gives no reason");
        }
    }
    if let Some(text) = stop_sequence {
        out.drop(
            text.origin,
            "stop_sequence",
            "which text was met is not said",
        );
    }
    if let Some(details) = details {
        out.drop(details.origin, "finish_details", "an end has no details");
    }
}

fn write_message(flavour: &Flavour, message: &IrMessage, legacy: bool, out: &mut Lowering<'_>) {
    out.tag("role", "assistant");
    let sorted = assistant_out::sort(message, out);
    let pieces: Vec<Piece<'_>> = sorted
        .texts
        .iter()
        .filter_map(|block| message_out::piece(block))
        .collect();
    if pieces.is_empty() && !(sorted.calls.is_empty() && sorted.refusals.is_empty()) {
        out.tag("content", &RawJson::trusted("null"));
    } else {
        message_out::put_text("content", &pieces, "", out);
    }
    assistant_out::put_thinking(flavour, &sorted.thinking, out);
    if sorted.refusals.is_empty() {
        out.tag("refusal", &RawJson::trusted("null"));
    }
    assistant_out::put_refusals(&sorted.refusals, out);
    write_annotations(&sorted.texts, out);
    match sorted.calls.as_slice() {
        [] => {}
        calls if legacy => put_function_call(calls, out),
        calls => out.put_array("tool_calls", |out| {
            for call in calls {
                out.object(|out| assistant_out::put_call(call, out));
            }
        }),
    }
}

/// Writes the sources of all texts, counted from the start of the first.
fn write_annotations(texts: &[&IrBlock], out: &mut Lowering<'_>) {
    let mut placed = Vec::new();
    let mut before = 0;
    for block in texts {
        let IrContentBlock::Text { text, citations } = &block.body else {
            continue;
        };
        for citation in citations {
            if citation.url.is_some() {
                placed.push((citation, before));
            } else {
                let reason = "a source without an address has no form here";
                out.drop(citation.native.origin, "citation", reason);
            }
        }
        before += text.chars().count() as u64;
    }
    if placed.is_empty() {
        return;
    }
    out.put_array("annotations", |out| {
        for (citation, before) in placed {
            out.object(|out| assistant_out::put_citation(citation, before, out));
        }
    });
}

/// Writes a call as whoever asked with functions expects it: one, without an id.
fn put_function_call(calls: &[&IrBlock], out: &mut Lowering<'_>) {
    for (number, block) in calls.iter().enumerate() {
        let IrContentBlock::ToolUse {
            id,
            name,
            input,
            item_id,
            signature,
        } = &block.body
        else {
            continue;
        };
        if number > 0 {
            out.drop(
                block.origin,
                "parallel_call",
                "a function is called one at a time",
            );
            continue;
        }
        out.put_object("function_call", |out| {
            assistant_out::put_function(name, input, out);
        });
        if let Some(id) = id {
            // The answer names the function, so nobody asks for the id.
            out.note(id.origin, How::Converted("named_by_call"));
        }
        for leaf in [item_id, signature].into_iter().flatten() {
            out.drop(
                leaf.origin,
                "function_call",
                "a function's call has no more members",
            );
        }
    }
}
