//! Writing how an answer should be made.

use std::collections::HashSet;

use abp_core::ir::{
    IrReasoning, IrReasoningMode, IrResponseFormat, IrResponseFormatKind, IrSettings, IrToolChoice,
    IrToolChoiceMode, IrToolDefinition, IrVendorField, Leaf, Origin, RawJson, custom_tool_names,
};
use abp_dialect::{Dialect, How, Lowering, WireFamily};

use super::{constant, is_own, put_own, same_spelling};
use crate::{manifest, wire};

/// Vendor fields that are written at another place than the request's root, or not from here.
const ELSEWHERE: [&str; 6] = [
    "format",
    "include",
    "input",
    "instructions",
    "tools",
    "verbosity",
];

/// Writes the settings into the request's root.
pub(super) fn write_settings(
    settings: &IrSettings,
    tools: &[IrToolDefinition],
    out: &mut Lowering<'_>,
) {
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
        tool_choice,
        parallel_tool_calls,
        stream,
        include_usage,
        user,
        legacy_functions: _,
        vendor,
    } = settings;
    write_model(model.as_ref(), out);
    write_max_tokens(max_tokens.as_ref(), out);
    let thinks = thinks(model.as_ref(), reasoning.as_ref(), out);
    put_sampling("temperature", temperature.as_ref(), thinks, out);
    put_sampling("top_p", top_p.as_ref(), thinks, out);
    drop_number(top_k.as_ref(), "top_k", out);
    drop_number(seed.as_ref(), "seed", out);
    drop_number(frequency_penalty.as_ref(), "frequency_penalty", out);
    drop_number(presence_penalty.as_ref(), "presence_penalty", out);
    write_candidate_count(candidate_count.as_ref(), out);
    write_include(logprobs.as_ref(), vendor, thinks && !tools.is_empty(), out);
    out.put_opt("top_logprobs", top_logprobs.as_ref());
    for sequence in stop.iter().flat_map(|stop| &stop.sequences) {
        out.refuse(
            sequence.origin,
            "stop_sequences",
            "OpenAI Responses has no stop sequences",
        );
    }
    write_text(response_format.as_ref(), vendor, out);
    if let Some(reasoning) = reasoning {
        write_reasoning(reasoning, out);
    }
    if let Some(choice) = tool_choice {
        write_tool_choice(choice, tools, out);
    }
    out.put_opt("parallel_tool_calls", parallel_tool_calls.as_ref());
    out.put_opt("stream", stream.as_ref());
    if let Some(asked) = include_usage {
        write_include_usage(asked, out);
    }
    if let Some(user) = user {
        write_user(user, out);
    }
    write_vendor(vendor, out);
}

/// Writes who the answer is for. The vendor refuses a longer name than this, and other vendors' agents
/// have such.
fn write_user(user: &Leaf<String>, out: &mut Lowering<'_>) {
    const LONGEST: usize = 64;
    if is_own(out.source()) || user.value.chars().count() <= LONGEST {
        out.put("user", user);
    } else {
        let reason = format!("the vendor takes {LONGEST} characters");
        out.drop(user.origin, "user_too_long", reason);
    }
}

fn write_model(model: Option<&Leaf<String>>, out: &mut Lowering<'_>) {
    match (out.profile().model.as_deref(), model) {
        (Some(alias), Some(model)) => {
            out.put_as(
                "model",
                alias,
                &[model.origin],
                &How::Converted("model_alias"),
            );
        }
        (Some(alias), None) => {
            out.made(
                "model",
                alias,
                "model_alias",
                "the target asks for this model",
            );
        }
        (None, model) => out.put_opt("model", model),
    }
}

fn write_max_tokens(max_tokens: Option<&Leaf<RawJson>>, out: &mut Lowering<'_>) {
    match max_tokens {
        Some(limit)
            if limit
                .as_u64()
                .is_some_and(|limit| limit < wire::MIN_OUTPUT_TOKENS) =>
        {
            let how = How::degraded("max_tokens_minimum", "fewer than 16 tokens are refused");
            out.put_as(
                "max_output_tokens",
                &wire::MIN_OUTPUT_TOKENS,
                &[limit.origin],
                &how,
            );
        }
        limit => out.put_opt("max_output_tokens", limit),
    }
}

fn drop_number(number: Option<&Leaf<RawJson>>, label: &'static str, out: &mut Lowering<'_>) {
    if let Some(number) = number {
        out.drop(number.origin, label, "OpenAI Responses has no such setting");
    }
}

fn write_candidate_count(count: Option<&Leaf<RawJson>>, out: &mut Lowering<'_>) {
    match count {
        Some(count) if count.as_u64() == Some(1) => {
            out.note(count.origin, How::Converted("one_candidate"));
        }
        Some(count) => out.refuse(
            count.origin,
            "candidate_count",
            "OpenAI Responses gives one answer",
        ),
        None => {}
    }
}

/// Whether another dialect's request is for a model that reasons, and is not kept from it.
fn thinks(
    model: Option<&Leaf<String>>,
    reasoning: Option<&IrReasoning>,
    out: &Lowering<'_>,
) -> bool {
    let name = out.profile().model.as_deref();
    let name = name.or(model.map(|model| model.as_str()));
    !is_own(out.source())
        && name.is_some_and(manifest::reasons)
        && !reasoning.is_some_and(turned_off)
}

/// Whether the effort that is asked for is none.
fn turned_off(reasoning: &IrReasoning) -> bool {
    let IrReasoning {
        mode,
        effort,
        budget_tokens,
        ..
    } = reasoning;
    match (effort, mode, budget_tokens) {
        (Some(effort), _, _) => effort.value == "none",
        (None, Some(mode), _) if mode.value == IrReasoningMode::Disabled => true,
        (None, _, budget) => budget.as_ref().and_then(|budget| budget.as_u64()) == Some(0),
    }
}

fn put_sampling(key: &str, leaf: Option<&Leaf<RawJson>>, thinks: bool, out: &mut Lowering<'_>) {
    match leaf {
        Some(leaf) if thinks => {
            let reason = "a model that reasons takes no parameters of sampling";
            out.drop(leaf.origin, "sampling_parameter", reason);
        }
        leaf => out.put_opt(key, leaf),
    }
}

/// Asks for more than the answer. A caller with tools comes back, and has no place for reasoning
/// meanwhile: it is asked for in the form in which it can be kept.
fn write_include(
    logprobs: Option<&Leaf<bool>>,
    vendor: &[IrVendorField],
    keeps: bool,
    out: &mut Lowering<'_>,
) {
    let own = is_own(out.source());
    let asked = logprobs.filter(|asked| asked.value);
    if let (Some(declined), None) = (logprobs, asked) {
        out.note(declined.origin, How::Converted("no_logprobs"));
    }
    let others: Vec<_> = vendor
        .iter()
        .filter(|field| own && field.name == "include")
        .collect();
    if asked.is_none() && others.is_empty() && !keeps {
        return;
    }
    out.put_array("include", |out| {
        if keeps {
            let reason = "the caller has no place for it until the next turn";
            out.made_value(wire::INCLUDE_REASONING, "kept_reasoning", reason);
        }
        if let Some(asked) = asked {
            let how = How::Converted("include");
            out.value_as(wire::INCLUDE_LOGPROBS, &[asked.origin], &how);
        }
        for field in others {
            out.value(&field.value);
        }
    });
}

/// The form of the text: its format, and how wordy it should be.
fn write_text(format: Option<&IrResponseFormat>, vendor: &[IrVendorField], out: &mut Lowering<'_>) {
    let source = out.source();
    let known = |field: &&IrVendorField| match field.name.as_str() {
        "verbosity" => same_spelling(source),
        "format" => is_own(source),
        _ => false,
    };
    let fields: Vec<_> = vendor.iter().filter(known).collect();
    if format.is_none() && fields.is_empty() {
        return;
    }
    out.put_object("text", |out| {
        if let Some(format) = format {
            write_format(format, out);
        }
        for field in fields {
            out.put(&field.name, &field.value);
        }
    });
}

fn write_format(format: &IrResponseFormat, out: &mut Lowering<'_>) {
    let IrResponseFormat {
        kind,
        vendor,
        origin,
    } = format;
    out.put_object("format", |out| {
        let word = match kind {
            IrResponseFormatKind::JsonObject => "json_object",
            IrResponseFormatKind::JsonSchema { .. } => "json_schema",
            _ => "text",
        };
        let from = out.member(*origin, "type");
        out.put_as("type", word, &[from], &How::Converted("response_format"));
        if let IrResponseFormatKind::JsonSchema {
            schema,
            name,
            description,
            strict,
        } = kind
        {
            match name {
                Some(name) => out.put("name", name),
                None => out.made(
                    "name",
                    "answer",
                    "schema_name_default",
                    "a schema needs a name",
                ),
            }
            out.put_opt("description", description.as_ref());
            match schema {
                Some(schema) => out.put("schema", schema),
                None => out.made(
                    "schema",
                    &constant(r#"{"type":"object"}"#),
                    "schema_default",
                    "the form of the answer needs a schema",
                ),
            }
            out.put_opt("strict", strict.as_ref());
        }
        put_own(vendor, &[], out);
    });
}

fn write_reasoning(reasoning: &IrReasoning, out: &mut Lowering<'_>) {
    out.put_object("reasoning", |out| {
        write_effort(reasoning, out);
        write_summary(reasoning, out);
        put_own(&reasoning.vendor, &[], out);
    });
}

/// How hard to think: as the source says, or as much as its budget and its switch amount to.
fn write_effort(reasoning: &IrReasoning, out: &mut Lowering<'_>) {
    let IrReasoning {
        mode,
        effort,
        budget_tokens,
        ..
    } = reasoning;
    let budget = budget_tokens.as_ref();
    let off = mode
        .as_ref()
        .filter(|mode| mode.value == IrReasoningMode::Disabled);
    let quantised = budget.and_then(|budget| effort_of(budget.as_u64()?));
    match (effort, off, budget.zip(quantised)) {
        (Some(effort), _, _) => {
            out.put("effort", effort);
            drop_number(budget, "budget_tokens", out);
        }
        (None, Some(off), _) => {
            let how = How::degraded("reasoning_mode", "no effort is the nearest to no reasoning");
            out.put_as("effort", "none", &[off.origin], &how);
            drop_number(budget, "budget_tokens", out);
        }
        (None, None, Some((budget, word))) => {
            let how = How::degraded("budget_tokens", "budgets are words here");
            out.put_as("effort", word, &[budget.origin], &how);
        }
        (None, None, None) => drop_number(budget, "budget_tokens", out),
    }
    if let Some(mode) = mode.as_ref().filter(|_| off.is_none()) {
        // The model reasons by itself; how much was said above.
        out.note(mode.origin, How::Converted("reasoning_mode"));
    }
    if let (Some(off), Some(_)) = (off, effort) {
        out.drop(
            off.origin,
            "reasoning_mode",
            "the effort says how much to reason",
        );
    }
}

fn effort_of(budget: u64) -> Option<&'static str> {
    match budget {
        0 => Some("none"),
        1..=2_048 => Some("low"),
        2_049..=8_192 => Some("medium"),
        _ => Some("high"),
    }
}

fn write_summary(reasoning: &IrReasoning, out: &mut Lowering<'_>) {
    match (&reasoning.summary, &reasoning.include_thoughts) {
        (Some(summary), shown) => {
            out.put("summary", summary);
            if let Some(shown) = shown {
                out.note(shown.origin, How::Converted("include_thoughts"));
            }
        }
        (None, Some(shown)) if shown.value => {
            let how = How::Converted("include_thoughts");
            out.put_as("summary", "auto", &[shown.origin], &how);
        }
        (None, Some(hidden)) => out.note(hidden.origin, How::Converted("include_thoughts")),
        (None, None) => {}
    }
}

fn write_tool_choice(choice: &IrToolChoice, tools: &[IrToolDefinition], out: &mut Lowering<'_>) {
    let from = word_origin(choice.origin, out);
    let how = if same_spelling(out.source()) {
        How::AsIs
    } else {
        How::Converted("tool_choice")
    };
    let word = |word: &str, out: &mut Lowering<'_>| out.put_as("tool_choice", word, &[from], &how);
    match &choice.mode {
        IrToolChoiceMode::Auto => word("auto", out),
        IrToolChoiceMode::None => word("none", out),
        IrToolChoiceMode::Required => word("required", out),
        IrToolChoiceMode::Named { name } => {
            out.key("tool_choice");
            write_named(name, &custom_tool_names(tools), out);
        }
        IrToolChoiceMode::Allowed { names, required } => out.put_object("tool_choice", |out| {
            let custom = custom_tool_names(tools);
            out.tag("type", "allowed_tools");
            out.tag("mode", if *required { "required" } else { "auto" });
            out.put_array("tools", |out| {
                names
                    .iter()
                    .for_each(|name| write_named(name, &custom, out));
            });
        }),
        IrToolChoiceMode::Other { native } if is_own(out.source()) => {
            out.put("tool_choice", native);
        }
        _ => out.refuse(
            choice.origin,
            "tool_choice",
            "the choice exists in another dialect only",
        ),
    }
}

fn write_named(name: &Leaf<String>, custom: &HashSet<&str>, out: &mut Lowering<'_>) {
    let is_custom = custom.contains(name.as_str());
    out.object(|out| {
        out.tag("type", if is_custom { "custom" } else { "function" });
        out.put("name", name);
    });
}

/// The word in a choice: the choice itself, or its member.
fn word_origin(choice: Origin, out: &Lowering<'_>) -> Origin {
    out.member(out.member(choice, "type"), "mode")
}

fn write_include_usage(asked: &Leaf<bool>, out: &mut Lowering<'_>) {
    if asked.value {
        out.note(asked.origin, How::Converted("usage_always_streamed"));
    } else {
        out.drop(
            asked.origin,
            "include_usage",
            "a stream always ends with its usage",
        );
    }
}

fn write_vendor(vendor: &[IrVendorField], out: &mut Lowering<'_>) {
    out.put_vendor(vendor, |from, name| match from.family() {
        WireFamily::Responses => !ELSEWHERE.contains(&name),
        WireFamily::Chat => wire::SHARED_WITH_CHAT.contains(&name),
        _ => false,
    });
    let said = vendor.iter().any(|field| field.name == "store");
    let stores_by_default = out.source() == Some(Dialect::Codex);
    if !said && !stores_by_default {
        out.made(
            "store",
            &false,
            "store_default",
            "answers are stored here unless told not to be",
        );
    }
}
