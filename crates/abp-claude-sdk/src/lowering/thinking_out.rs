//! How much the model should reason.
//!
//! Older models are given a budget of tokens, newer ones reason as they find fit and are told how
//! hard to work; between the two lies a generation that takes both. What cannot be said in so many
//! words to a model is said in the nearest words it takes, and labelled.

use abp_core::ir::{IrMessage, IrReasoning, IrReasoningMode, IrRole, Leaf, Origin, RawJson};
use abp_dialect::{How, Lowering};

use super::content_out::is_signed;
use super::settings_out::Request;
use super::{is_own, put_own};
use crate::dialect::ThinkingSupport;
use crate::wire;

/// The budget of a model that was told to reason, but not how much.
const USUAL_BUDGET: u64 = 8192;

/// What the request says about reasoning.
#[derive(Debug)]
pub(super) enum Thinking {
    /// Nothing.
    Unset,
    /// None.
    Off(Origin),
    /// As the model finds fit.
    Adaptive(Origin, How),
    /// Within a budget.
    Budget {
        tokens: RawJson,
        from: Origin,
        how: How,
    },
}

impl Thinking {
    pub(super) fn is_on(&self) -> bool {
        matches!(self, Self::Adaptive(..) | Self::Budget { .. })
    }
}

/// Decides what to say about reasoning.
pub(super) fn plan_thinking(
    reasoning: &IrReasoning,
    request: &Request<'_>,
    out: &mut Lowering<'_>,
) -> Thinking {
    if let Some(origin) = turned_off(reasoning) {
        if request.target.model.always_thinks {
            out.drop(
                origin,
                "thinking_always_on",
                "the model cannot be kept from reasoning",
            );
            return Thinking::Unset;
        }
        return Thinking::Off(origin);
    }
    if !asks_to_think(reasoning, is_own(out.source())) {
        return Thinking::Unset;
    }
    if request.forces_tool() {
        let reason = "the vendor does not reason before a call it is forced to make";
        drop_thinking(reasoning, "thinking_with_forced_tool", reason, out);
        return Thinking::Unset;
    }
    let budget = reasoning
        .budget_tokens
        .as_ref()
        .filter(|budget| budget.as_u64().is_some());
    match request.target.model.thinking {
        ThinkingSupport::None => {
            drop_thinking(reasoning, "thinking", "the model does not reason", out);
            Thinking::Unset
        }
        ThinkingSupport::Budget => plan_budget(reasoning, request, out),
        ThinkingSupport::Both if budget.is_some() => plan_budget(reasoning, request, out),
        ThinkingSupport::Both | ThinkingSupport::Adaptive => plan_adaptive(reasoning),
    }
}

/// Leaves out what other settings of the source decide otherwise.
pub(super) fn drop_overruled(
    reasoning: &IrReasoning,
    thinking: &Thinking,
    effort: Option<&Effort>,
    out: &mut Lowering<'_>,
) {
    let mode = reasoning.mode.as_ref().map(|mode| mode.origin);
    let mut used = Vec::from_iter(effort.map(|effort| effort.from));
    match thinking {
        // Whatever is not said was explained already.
        Thinking::Unset => return,
        Thinking::Off(from) | Thinking::Adaptive(from, _) => used.push(*from),
        Thinking::Budget { from, .. } => used.extend(mode.into_iter().chain([*from])),
    }
    for origin in switches(reasoning) {
        if !used.contains(&origin) {
            let reason = "other settings of the source decide how the model reasons";
            out.drop(origin, "reasoning", reason);
        }
    }
}

/// How hard the model is told to work.
#[derive(Debug)]
pub(super) struct Effort {
    pub(super) word: String,
    pub(super) from: Origin,
    pub(super) how: How,
}

/// Decides how hard the model is told to work.
pub(super) fn plan_effort(
    reasoning: &IrReasoning,
    request: &Request<'_>,
    out: &mut Lowering<'_>,
) -> Option<Effort> {
    let model = &request.target.model;
    let adapts = matches!(
        model.thinking,
        ThinkingSupport::Both | ThinkingSupport::Adaptive
    );
    if let Some(effort) = &reasoning.effort {
        if is_own(out.source()) {
            return Some(Effort {
                word: effort.value.clone(),
                from: effort.origin,
                how: How::AsIs,
            });
        }
        if !adapts || effort.as_str() == "none" {
            return None;
        }
        let (word, mut how) = nearest_effort(effort, model.knows_xhigh())?;
        if request.forces_tool() {
            let reason = "the vendor does not reason before a call it is forced to make";
            how = How::degraded("thinking_with_forced_tool", reason);
        }
        return Some(Effort {
            word: word.to_owned(),
            from: effort.origin,
            how,
        });
    }
    // A budget that the model does not take is turned into an effort.
    let budget = reasoning.budget_tokens.as_ref()?;
    let tokens = budget.as_u64().filter(|tokens| *tokens > 0)?;
    if model.thinking != ThinkingSupport::Adaptive || request.forces_tool() {
        return None;
    }
    let reason = "the model is told how hard to work, not how many tokens to spend";
    let how = How::degraded("thinking_budget", reason);
    Some(Effort {
        word: effort_of_budget(tokens).to_owned(),
        from: budget.origin,
        how,
    })
}

/// Writes what was decided.
pub(super) fn write_thinking(
    thinking: &Thinking,
    reasoning: &IrReasoning,
    request: &Request<'_>,
    out: &mut Lowering<'_>,
) {
    let converted = How::Converted("thinking_mode");
    match thinking {
        Thinking::Unset => drop_display(reasoning, "nothing is said about reasoning", out),
        Thinking::Off(origin) => {
            out.put_object("thinking", |out| {
                out.put_as("type", "disabled", &[*origin], &converted);
            });
            drop_display(reasoning, "there is no reasoning to show", out);
        }
        Thinking::Adaptive(origin, how) => out.put_object("thinking", |out| {
            out.put_as("type", "adaptive", &[*origin], how);
            write_display(reasoning, request, out);
            put_own(&reasoning.vendor, out);
        }),
        Thinking::Budget { tokens, from, how } => out.put_object("thinking", |out| {
            match reasoning.mode.as_ref().map(|mode| mode.origin) {
                Some(mode) => out.put_as("type", "enabled", &[mode], &converted),
                None => out.tag("type", "enabled"),
            }
            if *from == Origin::Host {
                let reason = "the vendor wants a budget and the source sets none";
                out.made("budget_tokens", tokens, "thinking_budget_default", reason);
            } else {
                out.put_as("budget_tokens", tokens, &[*from], how);
            }
            write_display(reasoning, request, out);
            put_own(&reasoning.vendor, out);
        }),
    }
}

/// What turns reasoning off, where something does.
fn turned_off(reasoning: &IrReasoning) -> Option<Origin> {
    let mode = reasoning.mode.as_ref();
    let mode = mode.filter(|mode| mode.value == IrReasoningMode::Disabled);
    let effort = reasoning
        .effort
        .as_ref()
        .filter(|word| word.as_str() == "none");
    let budget = reasoning
        .budget_tokens
        .as_ref()
        .filter(|tokens| tokens.as_u64() == Some(0));
    mode.map(|leaf| leaf.origin)
        .or(effort.map(|leaf| leaf.origin))
        .or(budget.map(|leaf| leaf.origin))
}

/// Whether the model is to reason. In this dialect effort alone does not say so; elsewhere it does.
fn asks_to_think(reasoning: &IrReasoning, own: bool) -> bool {
    reasoning.mode.is_some()
        || reasoning.budget_tokens.is_some()
        || (reasoning.effort.is_some() && !own)
}

fn plan_adaptive(reasoning: &IrReasoning) -> Thinking {
    if let Some(mode) = &reasoning.mode {
        let how = match mode.value {
            IrReasoningMode::Enabled if reasoning.budget_tokens.is_some() => {
                How::degraded("thinking_mode", "the model reasons as it finds fit")
            }
            _ => How::Converted("thinking_mode"),
        };
        return Thinking::Adaptive(mode.origin, how);
    }
    let source = reasoning.effort.as_ref().map(|effort| effort.origin);
    let source = source.or(reasoning.budget_tokens.as_ref().map(|budget| budget.origin));
    let how = How::degraded("reasoning_effort", "the model reasons as it finds fit");
    Thinking::Adaptive(source.unwrap_or_default(), how)
}

fn plan_budget(reasoning: &IrReasoning, request: &Request<'_>, out: &mut Lowering<'_>) -> Thinking {
    if lost_thinking(request.turns, is_own(out.source())) {
        let reason = "the calls under way were made with reasoning that the source does not have";
        drop_thinking(reasoning, "thinking_history", reason, out);
        return Thinking::Unset;
    }
    let (asked, from, how) = asked_budget(reasoning);
    let limit = request.max_tokens();
    let fitting = fitting_budget(asked, limit);
    match (fitting, &reasoning.budget_tokens) {
        (None, _) => {
            let reason = "the limit of tokens leaves no room for reasoning";
            drop_thinking(reasoning, "thinking_budget", reason, out);
            Thinking::Unset
        }
        (Some(tokens), Some(budget)) if tokens == asked && from == budget.origin => {
            Thinking::Budget {
                tokens: budget.value.clone(),
                from,
                how,
            }
        }
        (Some(tokens), _) => {
            let reason = "the budget has to be 1024 at least and less than the limit of tokens";
            let how = if tokens == asked {
                how
            } else {
                How::degraded("thinking_budget", reason)
            };
            Thinking::Budget {
                tokens: tokens.into(),
                from,
                how,
            }
        }
    }
}

/// The budget that the source asks for, what says so, and how it arrives.
fn asked_budget(reasoning: &IrReasoning) -> (u64, Origin, How) {
    let budget = reasoning.budget_tokens.as_ref();
    if let Some((tokens, leaf)) = budget.and_then(|leaf| Some((leaf.as_u64()?, leaf))) {
        return (tokens, leaf.origin, How::AsIs);
    }
    if let Some(effort) = &reasoning.effort {
        let reason = "the model is given a budget of tokens for its effort";
        let how = How::degraded("reasoning_effort", reason);
        return (budget_of_effort(effort), effort.origin, how);
    }
    let reason = "the model does not choose its budget itself";
    let how = How::degraded("thinking_budget", reason);
    let dynamic = budget.map(|leaf: &Leaf<RawJson>| leaf.origin);
    (USUAL_BUDGET, dynamic.unwrap_or_default(), how)
}

fn fitting_budget(asked: u64, limit: u64) -> Option<u64> {
    let least = asked.max(wire::LEAST_BUDGET);
    let fitting = if least < limit {
        least
    } else {
        (limit / 2).max(wire::LEAST_BUDGET)
    };
    (fitting < limit).then_some(fitting)
}

fn budget_of_effort(word: &str) -> u64 {
    match word {
        "minimal" => 1024,
        "low" => 2048,
        "high" => 16_384,
        "xhigh" => 24_576,
        "max" => 31_999,
        _ => USUAL_BUDGET,
    }
}

fn effort_of_budget(tokens: u64) -> &'static str {
    match tokens {
        0..=4_096 => "low",
        4_097..=12_288 => "medium",
        12_289..=24_576 => "high",
        24_577..=49_152 => "xhigh",
        _ => "max",
    }
}

/// The vendor's word for an effort; `None` where nobody knows how much it is.
fn nearest_effort(word: &str, knows_xhigh: bool) -> Option<(&'static str, How)> {
    let clamped = |word| {
        let how = How::degraded("reasoning_effort", "the model has no such effort");
        Some((word, how))
    };
    match word {
        "minimal" => clamped("low"),
        "xhigh" if !knows_xhigh => clamped("high"),
        _ => {
            let known = wire::EFFORTS.iter().find(|known| **known == word)?;
            Some((*known, How::AsIs))
        }
    }
}

/// Whether calls are under way whose reasoning is not there. With a budget, the vendor wants a turn
/// that made calls to start with its reasoning.
fn lost_thinking(turns: &[IrMessage], own: bool) -> bool {
    // What the user says next is part of the message that answers the calls.
    let turns = match turns {
        [before @ .., last] if last.role == IrRole::User => before,
        turns => turns,
    };
    let answered = turns
        .last()
        .is_some_and(|message| message.role == IrRole::Tool);
    let caller = turns
        .iter()
        .rev()
        .find(|message| message.role != IrRole::Tool);
    let caller = caller.filter(|message| message.role == IrRole::Assistant);
    let lacks = |message: &IrMessage| {
        let mut blocks = message.content.iter();
        !blocks.any(|block| is_signed(&block.body, own))
    };
    answered && caller.is_some_and(lacks)
}

fn write_display(reasoning: &IrReasoning, request: &Request<'_>, out: &mut Lowering<'_>) {
    if request.target.model.thinking == ThinkingSupport::Budget && !is_own(out.source()) {
        drop_display(reasoning, "the model always shows its reasoning", out);
        return;
    }
    match (&reasoning.include_thoughts, &reasoning.summary) {
        (Some(shows), summary) => {
            let word = if shows.value { "summarized" } else { "omitted" };
            let how = How::Converted("thinking_display");
            out.put_as("display", word, &[shows.origin], &how);
            if let Some(summary) = summary {
                let reason = "whether reasoning shows is said already";
                out.drop(summary.origin, "reasoning_summary", reason);
            }
        }
        (None, Some(summary)) => {
            let how = How::degraded("reasoning_summary", "the vendor has one kind of summary");
            out.put_as("display", "summarized", &[summary.origin], &how);
        }
        (None, None) => {}
    }
}

fn drop_display(reasoning: &IrReasoning, reason: &'static str, out: &mut Lowering<'_>) {
    if let Some(shows) = &reasoning.include_thoughts {
        out.drop(shows.origin, "include_thoughts", reason);
    }
    if let Some(summary) = &reasoning.summary {
        out.drop(summary.origin, "reasoning_summary", reason);
    }
}

/// Leaves out whatever would make the model reason.
fn drop_thinking(
    reasoning: &IrReasoning,
    label: &'static str,
    reason: &'static str,
    out: &mut Lowering<'_>,
) {
    for origin in switches(reasoning) {
        out.drop(origin, label, reason);
    }
}

/// Everything that turns reasoning on or off, or says how much.
fn switches(reasoning: &IrReasoning) -> impl Iterator<Item = Origin> {
    let switches = [
        reasoning.mode.as_ref().map(|leaf| leaf.origin),
        reasoning.effort.as_ref().map(|leaf| leaf.origin),
        reasoning.budget_tokens.as_ref().map(|leaf| leaf.origin),
    ];
    switches.into_iter().flatten()
}
