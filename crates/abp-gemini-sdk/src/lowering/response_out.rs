//! Writing an answer.

use abp_core::ir::{
    IrBlock, IrChoice, IrContentBlock, IrFinish, IrFinishReason, IrResponse, Origin,
};
use abp_dialect::{Dialect, Exchange, How, Lowering};

use super::content_out::{Side, write_blocks};
use super::response_in::PIECES;
use super::usage::write_usage;
use crate::dialect::Family;
use crate::grounding::{self, Widths, Written};
use crate::wire::{finish_word, vendor};

/// Writes an answer.
pub(crate) fn write_response(response: &IrResponse, exchange: &Exchange, out: &mut Lowering<'_>) {
    let IrResponse {
        id,
        model,
        created,
        choices,
        usage,
        vendor: fields,
    } = response;
    let pieces = fields.iter().find(|field| field.name == PIECES);
    if pieces.is_some_and(|pieces| out.copy_native(pieces.value.origin)) {
        return;
    }
    let side = Side {
        family: Family::Unknown,
        answer: true,
        own: out.source() == Some(Dialect::Gemini),
    };
    // A prompt without an answer is told by feedback, not by a candidate.
    let answered = choices.iter().any(|choice| !is_made(choice));
    out.object(|out| {
        let except: &[&str] = if answered { &["candidates"] } else { &[] };
        let copied = out.copy_native_members(except);
        if answered || !copied {
            out.put_array("candidates", |out| {
                for choice in choices {
                    write_choice(choice, side, out);
                }
            });
        }
        if copied {
            return;
        }
        if let Some(usage) = usage {
            write_usage(usage, side.own, out);
        }
        match (&exchange.model, model) {
            (Some(asked), Some(model)) => {
                let how = How::Converted("model_alias");
                out.put_as("modelVersion", asked, &[model.origin], &how);
            }
            (_, model) => out.put_opt("modelVersion", model.as_ref()),
        }
        out.put_opt("responseId", id.as_ref());
        if side.own {
            out.put_vendor(fields, |_, name| vendor::RESPONSE.contains(&name));
        }
    });
    if let Some(created) = created {
        out.drop(
            created.origin,
            "created",
            "Gemini does not say when it answered",
        );
    }
}

fn is_made(choice: &IrChoice) -> bool {
    !matches!(choice.origin, Origin::Node(_)) && choice.message.content.is_empty()
}

fn write_choice(choice: &IrChoice, side: Side, out: &mut Lowering<'_>) {
    let IrChoice {
        index,
        message,
        finish,
        vendor: fields,
        origin,
    } = choice;
    let unchanged = matches!(message.origin, Origin::Node(_));
    if unchanged && out.copy_native(*origin) {
        return;
    }
    let blocks: Vec<&IrBlock> = message.content.iter().collect();
    let citations = plan_citations(&blocks, side.own, out);
    out.object(|out| {
        out.put_object("content", |out| {
            out.put_array("parts", |out| write_blocks(&blocks, side, out));
            out.tag("role", "model");
        });
        if let Some(finish) = finish {
            write_finish(finish, side.own, out);
        }
        out.tag("index", &u64::from(*index));
        grounding::write(&citations, out);
        if side.own {
            out.put_vendor(fields, |_, name| vendor::CANDIDATE.contains(&name));
        }
    });
}

/// Collects the citations of all texts. Every block is one part of an answer.
fn plan_citations(blocks: &[&IrBlock], own: bool, out: &mut Lowering<'_>) -> Vec<Written> {
    let mut planned = Vec::new();
    for (part, block) in (0..).zip(blocks) {
        let IrContentBlock::Text { text, citations } = &block.body else {
            continue;
        };
        let mut widths = Widths::default();
        if !citations.is_empty() {
            widths.push(text);
        }
        for citation in citations {
            let lose = |origin, reason| out.drop(origin, "citations", reason);
            planned.extend(grounding::plan(citation, part, &widths, own, lose));
        }
    }
    planned
}

/// Writes why a candidate ended.
pub(crate) fn write_finish(finish: &IrFinish, own: bool, out: &mut Lowering<'_>) {
    let IrFinish {
        reason,
        native,
        stop_sequence,
        details,
    } = finish;
    let (word, exact) = finish_word(*reason);
    let how = if exact {
        How::Converted("finish_reason")
    } else {
        How::degraded(
            "finish_reason",
            "the nearest word that Gemini has for this end",
        )
    };
    match native {
        Some(native) if own => out.put("finishReason", native),
        Some(native) => out.put_as("finishReason", word, &[native.origin], &how),
        None if *reason == IrFinishReason::Incomplete => out.made(
            "finishReason",
            word,
            "incomplete",
            "the source broke off without saying why",
        ),
        None => out.tag("finishReason", word),
    }
    if let Some(sequence) = stop_sequence {
        let reason = "Gemini does not say which stop sequence it met";
        out.drop(sequence.origin, "stop_sequence", reason);
    }
    match details {
        Some(details) if own => out.put("finishMessage", details),
        Some(details) => out.drop(
            details.origin,
            "finish_details",
            "Gemini has no place for more about an end",
        ),
        None => {}
    }
}
