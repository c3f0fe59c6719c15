//! Writing how much to reason.

use abp_core::ir::{IrReasoning, IrReasoningMode, Leaf, Origin, RawJson};
use abp_dialect::{How, Lowering};

use super::content_out::Side;
use crate::dialect::Family;

/// A member to write, and what it stands for.
pub(super) struct Member {
    pub(super) name: &'static str,
    pub(super) value: RawJson,
    pub(super) from: Origin,
    pub(super) how: How,
}

/// How much to reason, in the terms of the model: a level, a budget, or nothing at all.
pub(super) fn thinking_config(
    asked: &IrReasoning,
    side: Side,
    out: &mut Lowering<'_>,
) -> Vec<Member> {
    let IrReasoning {
        mode,
        effort,
        budget_tokens,
        summary,
        include_thoughts,
        vendor: _,
    } = asked;
    let mut plan = Vec::new();
    if matches!(side.family, Family::One | Family::Two) && !side.own {
        let reason = "the model does not reason";
        let origins = [
            mode.as_ref().map(|leaf| leaf.origin),
            effort.as_ref().map(|leaf| leaf.origin),
            budget_tokens.as_ref().map(|leaf| leaf.origin),
            summary.as_ref().map(|leaf| leaf.origin),
            include_thoughts.as_ref().map(|leaf| leaf.origin),
        ];
        for origin in origins.into_iter().flatten() {
            out.drop(origin, "reasoning", reason);
        }
        return plan;
    }
    // The vendor takes a budget or a level, not both. A budget says more; off says all.
    if let Some(off) = mode
        .as_ref()
        .filter(|mode| mode.value == IrReasoningMode::Disabled)
    {
        plan.push(turned_off(off, side));
        drop_other(effort.as_ref(), out);
        drop_other(budget_tokens.as_ref(), out);
    } else if let Some(budget) = budget_tokens {
        plan.push(with_budget(budget, side));
        drop_other(effort.as_ref(), out);
        implied(mode.as_ref(), out);
    } else if let Some(effort) = effort {
        plan.extend(with_effort(effort, side, out));
        implied(mode.as_ref(), out);
    } else if let Some(mode) = mode {
        plan.extend(on_its_own(mode, side, out));
    }
    match (include_thoughts, summary) {
        (Some(include), summary) => {
            let value = RawJson::trusted(include.value.to_string());
            plan.push(member("includeThoughts", value, include.origin, How::AsIs));
            drop_other(summary.as_ref(), out);
        }
        (None, Some(summary)) => {
            let how = match summary.as_str() {
                "auto" => How::Converted("include_thoughts"),
                _ => How::degraded("reasoning_summary", "Gemini has one kind of summary"),
            };
            let value = RawJson::trusted("true");
            plan.push(member("includeThoughts", value, summary.origin, how));
        }
        (None, None) => {}
    }
    plan
}

fn member(name: &'static str, value: RawJson, from: Origin, how: How) -> Member {
    Member {
        name,
        value,
        from,
        how,
    }
}

fn level(word: &'static str, from: Origin, how: How) -> Member {
    let value = RawJson::trusted(format!("\"{word}\""));
    member("thinkingLevel", value, from, how)
}

fn drop_other<T>(leaf: Option<&Leaf<T>>, out: &mut Lowering<'_>) {
    if let Some(leaf) = leaf {
        let reason = "Gemini takes one word on how much to reason";
        out.drop(leaf.origin, "reasoning_effort", reason);
    }
}

/// That the model should reason follows from how much it should.
fn implied(mode: Option<&Leaf<IrReasoningMode>>, out: &mut Lowering<'_>) {
    if let Some(mode) = mode {
        out.note(mode.origin, How::Converted("thinking_implied"));
    }
}

fn turned_off(mode: &Leaf<IrReasoningMode>, side: Side) -> Member {
    if side.family == Family::Three && !side.own {
        let how = How::degraded(
            "reasoning_effort",
            "the model always reasons; this is the least",
        );
        return level("MINIMAL", mode.origin, how);
    }
    let how = How::Converted("thinking_budget");
    member("thinkingBudget", RawJson::from(0), mode.origin, how)
}

fn with_budget(budget: &Leaf<RawJson>, side: Side) -> Member {
    if side.family != Family::Three || side.own {
        return member(
            "thinkingBudget",
            budget.value.clone(),
            budget.origin,
            How::AsIs,
        );
    }
    let word = match budget.as_u64() {
        Some(0..=1024) => "LOW",
        Some(1025..=8192) => "MEDIUM",
        _ => "HIGH",
    };
    let how = How::degraded(
        "thinking_budget",
        "the model knows levels of reasoning, no budget",
    );
    level(word, budget.origin, how)
}

fn with_effort(effort: &Leaf<String>, side: Side, out: &mut Lowering<'_>) -> Option<Member> {
    if side.family == Family::TwoFive && !side.own {
        return effort_as_budget(effort, out);
    }
    let exact = How::Converted("effort_word");
    let nearest = || How::degraded("reasoning_effort", "the nearest level that Gemini has");
    let (word, how) = match effort.as_str() {
        "minimal" => ("MINIMAL", exact),
        "low" => ("LOW", exact),
        "medium" => ("MEDIUM", exact),
        "high" => ("HIGH", exact),
        "none" => ("MINIMAL", nearest()),
        "xhigh" | "max" => ("HIGH", nearest()),
        _ => {
            out.drop(
                effort.origin,
                "reasoning_effort",
                "Gemini has no such level",
            );
            return None;
        }
    };
    Some(level(word, effort.origin, how))
}

/// The budgets that the vendor itself gives for these words.
fn effort_as_budget(effort: &Leaf<String>, out: &mut Lowering<'_>) -> Option<Member> {
    let budget = match effort.as_str() {
        "none" => 0,
        "minimal" | "low" => 1024,
        "medium" => 8192,
        "high" | "xhigh" | "max" => 24_576,
        _ => {
            out.drop(
                effort.origin,
                "reasoning_effort",
                "Gemini has no such level",
            );
            return None;
        }
    };
    let how = How::degraded(
        "reasoning_effort",
        "the model knows a budget of tokens, no levels",
    );
    Some(member(
        "thinkingBudget",
        RawJson::from(budget),
        effort.origin,
        how,
    ))
}

/// Reasoning without a measure: a budget that the model chooses, which newer ones do anyway.
fn on_its_own(mode: &Leaf<IrReasoningMode>, side: Side, out: &mut Lowering<'_>) -> Option<Member> {
    let how = How::Converted("thinking_budget");
    if side.family == Family::Three && !side.own {
        out.note(mode.origin, how);
        return None;
    }
    Some(member(
        "thinkingBudget",
        RawJson::trusted("-1"),
        mode.origin,
        how,
    ))
}
