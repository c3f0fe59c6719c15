//! Writing how an answer should be made.

use abp_core::ir::{
    IrReasoning, IrReasoningMode, IrResponseFormat, IrResponseFormatKind, IrSettings, IrStop, Leaf,
    Origin, RawJson,
};
use abp_dialect::{How, Lowering};

use crate::{Flavour, ModelFamily, ReasoningForm, wire};

/// The most stop sequences that the vendor takes.
const MAX_STOPS: usize = 4;

/// Writes the settings, except those that belong to tools.
pub(super) fn write(flavour: &Flavour, settings: &IrSettings, out: &mut Lowering<'_>) {
    let IrSettings {
        model,
        max_tokens,
        temperature,
        top_p,
        top_k,
        seed,
        frequency_penalty,
        presence_penalty,
        candidate_count,
        logprobs,
        top_logprobs,
        stop,
        response_format,
        reasoning,
        tool_choice: _,
        parallel_tool_calls: _,
        stream,
        include_usage,
        user,
        legacy_functions: _,
        vendor,
    } = settings;
    put_model(model.as_ref(), out);
    let name = out.profile().model.as_deref();
    let name = name.or(model.as_ref().map(|model| model.as_str()));
    let family = name.map(flavour.model_family);
    if let Some(limit) = max_tokens {
        let key = limit_member(flavour, limit, family, out);
        out.put(key, limit);
    }
    let sampling = Sampling {
        family,
        reasoning: reasoning.as_ref(),
    };
    sampling.put("temperature", temperature.as_ref(), out);
    sampling.put("top_p", top_p.as_ref(), out);
    sampling.put("frequency_penalty", frequency_penalty.as_ref(), out);
    sampling.put("presence_penalty", presence_penalty.as_ref(), out);
    sampling.put("logprobs", logprobs.as_ref(), out);
    sampling.put("top_logprobs", top_logprobs.as_ref(), out);
    out.put_opt("seed", seed.as_ref());
    if let Some(top_k) = top_k {
        out.drop(
            top_k.origin,
            "top_k",
            "the vendor does not sample among the k likeliest",
        );
    }
    if let Some(count) = candidate_count {
        put_count(flavour, count, out);
    }
    if let Some(stop) = stop {
        put_stop(stop, out);
    }
    if let Some(format) = response_format {
        put_format(format, out);
    }
    if let Some(reasoning) = reasoning {
        put_reasoning(flavour, family, reasoning, out);
    }
    put_stream(settings, stream.as_ref(), include_usage.as_ref(), out);
    if let Some(user) = user {
        put_user(user, out);
    }
    out.put_vendor(vendor, |from, name| {
        flavour.request_members.contains(&name) && wire::shared_member(from, name)
    });
}

fn put_model(model: Option<&Leaf<String>>, out: &mut Lowering<'_>) {
    let Some(wanted) = &out.profile().model else {
        out.put_opt("model", model);
        return;
    };
    let from = model.map(|model| model.origin).unwrap_or_default();
    out.put_as("model", wanted, &[from], &How::Converted("model_alias"));
}

/// The member that limits tokens. Models that reason refuse the older one, and servers that nobody
/// knows may not have the newer one.
fn limit_member(
    flavour: &Flavour,
    limit: &Leaf<RawJson>,
    family: Option<ModelFamily>,
    out: &Lowering<'_>,
) -> &'static str {
    let older = out.source_key(limit.origin).as_deref() == Some("max_tokens");
    // Who wrote its own limit knows its server.
    let known = out.same_family() && matches!(limit.origin, Origin::Node(_));
    match family {
        _ if !flavour.older_limit => "max_completion_tokens",
        Some(ModelFamily::Reasoning) => "max_completion_tokens",
        _ if older => "max_tokens",
        Some(ModelFamily::Other) if !known => "max_tokens",
        _ => "max_completion_tokens",
    }
}

/// Parameters of sampling, which models that reason refuse.
struct Sampling<'a> {
    family: Option<ModelFamily>,
    reasoning: Option<&'a IrReasoning>,
}

impl Sampling<'_> {
    fn put<T: abp_dialect::JsonValue>(
        &self,
        key: &str,
        leaf: Option<&Leaf<T>>,
        out: &mut Lowering<'_>,
    ) {
        let Some(leaf) = leaf else {
            return;
        };
        if self.refused() {
            let reason = "a model that reasons takes no parameters of sampling";
            out.drop(leaf.origin, "sampling_parameter", reason);
        } else {
            out.put(key, leaf);
        }
    }

    /// The newer models take them when they are told not to reason.
    fn refused(&self) -> bool {
        let effort = self
            .reasoning
            .and_then(|reasoning| reasoning.effort.as_ref());
        self.family == Some(ModelFamily::Reasoning)
            && effort.is_none_or(|effort| effort.value != "none")
    }
}

fn put_count(flavour: &Flavour, count: &Leaf<RawJson>, out: &mut Lowering<'_>) {
    if flavour.several_answers || count.as_u64() == Some(1) {
        out.put("n", count);
    } else {
        out.refuse(
            count.origin,
            "several_answers",
            "the vendor gives one answer",
        );
    }
}

fn put_stop(stop: &IrStop, out: &mut Lowering<'_>) {
    if let (true, [text]) = (stop.plain, stop.sequences.as_slice()) {
        out.put("stop", text);
        return;
    }
    out.put_array("stop", |out| {
        for text in stop.sequences.iter().take(MAX_STOPS) {
            out.value(text);
        }
    });
    for text in stop.sequences.iter().skip(MAX_STOPS) {
        out.refuse(
            text.origin,
            "stop_sequence",
            "the vendor takes four stop sequences",
        );
    }
}

fn put_format(format: &IrResponseFormat, out: &mut Lowering<'_>) {
    let how = How::Converted("response_format");
    out.put_object("response_format", |out| match &format.kind {
        IrResponseFormatKind::JsonObject => {
            out.put_as("type", "json_object", &[format.origin], &how);
        }
        IrResponseFormatKind::JsonSchema {
            schema,
            name,
            description,
            strict,
        } => {
            out.tag("type", "json_schema");
            out.put_object("json_schema", |out| {
                match name {
                    Some(name) => out.put("name", name),
                    None => out.made("name", "response", "schema_name", "a schema needs a name"),
                }
                out.put_opt("description", description.as_ref());
                out.put_opt("schema", schema.as_ref());
                out.put_opt("strict", strict.as_ref());
            });
        }
        _ => out.put_as("type", "text", &[format.origin], &how),
    });
}

fn put_reasoning(
    flavour: &Flavour,
    family: Option<ModelFamily>,
    reasoning: &IrReasoning,
    out: &mut Lowering<'_>,
) {
    let IrReasoning {
        mode,
        effort,
        budget_tokens,
        summary,
        include_thoughts,
        vendor: _,
    } = reasoning;
    if let Some(summary) = summary {
        out.drop(
            summary.origin,
            "reasoning_summary",
            "no summary can be asked for",
        );
    }
    if let Some(include) = include_thoughts {
        out.drop(
            include.origin,
            "include_thoughts",
            "reasoning cannot be asked for",
        );
    }
    if family == Some(ModelFamily::Classic) {
        let asked = [
            mode.as_ref().map(|mode| mode.origin),
            effort.as_ref().map(|effort| effort.origin),
            budget_tokens.as_ref().map(|budget| budget.origin),
        ];
        for origin in asked.into_iter().flatten() {
            out.drop(origin, "reasoning", "the model does not reason");
        }
        return;
    }
    match flavour.reasoning {
        ReasoningForm::Effort => put_effort(reasoning, out),
        ReasoningForm::Thinking => put_switch(reasoning, out),
    }
}

/// Writes the effort: the word itself, else the nearest to a budget, else what the mode says.
fn put_effort(reasoning: &IrReasoning, out: &mut Lowering<'_>) {
    let IrReasoning {
        mode,
        effort,
        budget_tokens,
        ..
    } = reasoning;
    let nearest = budget_tokens.as_ref().and_then(|budget| effort_of(budget));
    match (effort, budget_tokens, nearest) {
        (Some(effort), budget, _) => {
            out.put("reasoning_effort", effort);
            if let Some(budget) = budget {
                out.drop(
                    budget.origin,
                    "reasoning_budget",
                    "the effort says how much",
                );
            }
        }
        (None, Some(budget), Some(word)) => {
            let how = How::degraded("reasoning_budget", "a budget became the nearest effort");
            out.put_as("reasoning_effort", word, &[budget.origin], &how);
        }
        (None, Some(budget), None) => {
            out.drop(
                budget.origin,
                "reasoning_budget",
                "the model decides by itself",
            );
        }
        (None, None, _) => {}
    }
    let Some(mode) = mode else {
        return;
    };
    match mode.value {
        IrReasoningMode::Disabled if effort.is_none() && nearest.is_none() => {
            let how = How::Converted("reasoning_mode");
            out.put_as("reasoning_effort", "none", &[mode.origin], &how);
        }
        _ if effort.is_some() || nearest.is_some() => {
            out.note(mode.origin, How::Converted("reasoning_mode"));
        }
        _ => out.drop(mode.origin, "reasoning_mode", "the model decides by itself"),
    }
}

/// The effort nearest to a budget; `None` for one that the model chooses.
fn effort_of(budget: &RawJson) -> Option<&'static str> {
    match budget.as_u64()? {
        0 => Some("none"),
        1..=4_096 => Some("low"),
        4_097..=16_384 => Some("medium"),
        _ => Some("high"),
    }
}

/// Writes a switch: reasoning is on or off.
fn put_switch(reasoning: &IrReasoning, out: &mut Lowering<'_>) {
    let IrReasoning {
        mode,
        effort,
        budget_tokens,
        ..
    } = reasoning;
    let off = |word: &str| {
        if word == "none" {
            "disabled"
        } else {
            "enabled"
        }
    };
    let degree = How::degraded("reasoning_effort", "reasoning is on or off");
    let from_budget = budget_tokens
        .as_ref()
        .map(|budget| (off(effort_of(budget).unwrap_or("high")), budget.origin));
    let from_effort = effort.as_ref().map(|effort| (off(effort), effort.origin));
    let from_mode = mode.as_ref().map(|mode| match mode.value {
        IrReasoningMode::Disabled => ("disabled", mode.origin),
        _ => ("enabled", mode.origin),
    });
    let Some((word, _)) = from_mode.or(from_effort).or(from_budget) else {
        return;
    };
    let how = match from_mode {
        Some(_) => How::Converted("reasoning_mode"),
        None => degree.clone(),
    };
    let origins = [from_mode, from_effort, from_budget].map(|said| said.map(|(_, from)| from));
    let first = origins.iter().flatten().next().copied().unwrap_or_default();
    out.put_object("thinking", |out| out.put_as("type", word, &[first], &how));
    for origin in origins.into_iter().flatten().skip(1) {
        out.note(origin, degree.clone());
    }
}

/// Writes who the answer is for. The vendor refuses a longer name than this, and other vendors' agents
/// have such.
fn put_user(user: &Leaf<String>, out: &mut Lowering<'_>) {
    const LONGEST: usize = 64;
    if out.same_family() || user.value.chars().count() <= LONGEST {
        out.put("user", user);
    } else {
        let reason = format!("the vendor takes {LONGEST} characters");
        out.drop(user.origin, "user_too_long", reason);
    }
}

/// Writes whether to stream. Counts of tokens are always asked for: without them nobody knows what
/// the answer used.
fn put_stream(
    settings: &IrSettings,
    stream: Option<&Leaf<bool>>,
    include_usage: Option<&Leaf<bool>>,
    out: &mut Lowering<'_>,
) {
    out.put_opt("stream", stream);
    let streams = stream.is_some_and(|stream| stream.value);
    if !streams && include_usage.is_none() {
        return;
    }
    out.put_object("stream_options", |out| {
        match include_usage {
            Some(asked) => out.put("include_usage", asked),
            None => {
                let reason = "a stream tells what it used only when asked";
                out.made("include_usage", &true, "stream_usage", reason);
            }
        }
        out.put_vendor(&settings.vendor, |from, name| {
            name == "include_obfuscation" && from.family() == abp_dialect::WireFamily::Chat
        });
    });
}
