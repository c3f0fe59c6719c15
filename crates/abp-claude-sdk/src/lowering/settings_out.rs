//! Writing settings.

use abp_core::ir::{
    IrMessage, IrReasoning, IrResponseFormat, IrResponseFormatKind, IrSettings, IrToolChoice,
    IrToolChoiceMode, IrVendorField, Leaf, Origin, RawJson,
};
use abp_dialect::{Dialect, How, Lowering};

use super::thinking_out::{
    Effort, Thinking, drop_overruled, plan_effort, plan_thinking, write_thinking,
};
use crate::dialect::{Sampling, Target};
use crate::wire;

/// What the settings of a request depend on.
pub(super) struct Request<'r> {
    pub(super) settings: &'r IrSettings,
    /// The conversation, leading instructions left out.
    pub(super) turns: &'r [IrMessage],
    pub(super) has_tools: bool,
    pub(super) target: Target,
}

impl Request<'_> {
    /// The limit of tokens that will be written.
    pub(super) fn max_tokens(&self) -> u64 {
        let asked = self
            .settings
            .max_tokens
            .as_ref()
            .and_then(|number| number.as_u64());
        asked.unwrap_or(self.target.model.max_tokens)
    }

    /// Whether the model has to call a tool.
    pub(super) fn forces_tool(&self) -> bool {
        let mode = self
            .settings
            .tool_choice
            .as_ref()
            .map(|choice| &choice.mode);
        self.has_tools
            && matches!(
                mode,
                Some(
                    IrToolChoiceMode::Required
                        | IrToolChoiceMode::Named { .. }
                        | IrToolChoiceMode::Allowed { required: true, .. }
                )
            )
    }
}

/// Writes everything that is neither conversation nor tools.
pub(super) fn write_settings(request: &Request<'_>, out: &mut Lowering<'_>) {
    let IrSettings {
        model,
        max_tokens,
        temperature: _,
        top_p: _,
        top_k: _,
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
    } = request.settings;
    write_model(model.as_ref(), out);
    write_limit(max_tokens.as_ref(), request, out);
    let unset = IrReasoning::default();
    let reasoning = reasoning.as_ref().unwrap_or(&unset);
    let thinking = plan_thinking(reasoning, request, out);
    let effort = plan_effort(reasoning, request, out);
    drop_overruled(reasoning, &thinking, effort.as_ref(), out);
    write_thinking(&thinking, reasoning, request, out);
    write_sampling(request, &thinking, out);
    if let Some(stop) = stop {
        out.put_array("stop_sequences", |out| {
            for text in &stop.sequences {
                out.value(text);
            }
        });
    }
    write_tool_choice(
        tool_choice.as_ref(),
        parallel_tool_calls.as_ref(),
        request,
        out,
    );
    write_output(response_format.as_ref(), effort.as_ref(), vendor, out);
    out.put_opt("stream", stream.as_ref());
    if let Some(user) = user {
        out.put_object("metadata", |out| out.put("user_id", user));
    }
    if let Some(include_usage) = include_usage {
        out.note(include_usage.origin, How::Converted("usage_always"));
    }
    for (leaf, label) in [
        (seed, "seed"),
        (frequency_penalty, "frequency_penalty"),
        (presence_penalty, "presence_penalty"),
    ] {
        if let Some(leaf) = leaf {
            out.drop(leaf.origin, label, "the vendor has no such setting");
        }
    }
    refuse_several(candidate_count.as_ref(), out);
    refuse_logprobs(logprobs.as_ref(), top_logprobs.as_ref(), out);
    out.put_vendor(vendor, |from, name| {
        from == Dialect::Claude && !wire::OUTPUT_VENDOR.contains(&name)
    });
}

fn write_model(model: Option<&Leaf<String>>, out: &mut Lowering<'_>) {
    let alias = out.profile().model.as_deref();
    match (model, alias) {
        (Some(model), Some(alias)) if model.as_str() != alias => {
            out.put_as(
                "model",
                alias,
                &[model.origin],
                &How::Converted("model_alias"),
            );
        }
        (Some(model), _) => out.put("model", model),
        (None, Some(alias)) => {
            out.made(
                "model",
                alias,
                "model_alias",
                "the target's model was set by its profile",
            );
        }
        (None, None) => {}
    }
}

fn write_limit(max_tokens: Option<&Leaf<RawJson>>, request: &Request<'_>, out: &mut Lowering<'_>) {
    match max_tokens {
        Some(max_tokens) => out.put("max_tokens", max_tokens),
        None => {
            let reason = "the vendor wants a limit and the source sets none";
            out.made(
                "max_tokens",
                &request.max_tokens(),
                "max_tokens_default",
                reason,
            );
        }
    }
}

fn write_sampling(request: &Request<'_>, thinking: &Thinking, out: &mut Lowering<'_>) {
    let IrSettings {
        temperature,
        top_p,
        top_k,
        ..
    } = request.settings;
    let thinks = thinking.is_on();
    let sampling = request.target.sampling();
    let value = |number: &Leaf<RawJson>| number.as_f64().unwrap_or_default();
    let refusal = |clashes: bool| match sampling {
        Sampling::None => Some("the target takes no sampling parameters"),
        _ if clashes && thinks => Some("the vendor does not take it together with reasoning"),
        _ => None,
    };
    if let Some(temperature) = temperature {
        let warm = value(temperature);
        match refusal(warm < 1.0) {
            Some(reason) => out.drop(temperature.origin, "temperature", reason),
            None if warm > 1.0 => {
                let how = How::degraded("temperature_range", "the vendor's temperatures end at 1");
                out.put_as("temperature", &1_u64, &[temperature.origin], &how);
            }
            None => out.put("temperature", temperature),
        }
    }
    if let Some(top_p) = top_p {
        let both = sampling == Sampling::One && temperature.is_some() && !thinks;
        let reason = both.then_some("the model takes temperature or top_p, not both");
        match reason.or(refusal(value(top_p) < 0.95)) {
            Some(reason) => out.drop(top_p.origin, "top_p", reason),
            None => out.put("top_p", top_p),
        }
    }
    if let Some(top_k) = top_k {
        match refusal(true) {
            Some(reason) => out.drop(top_k.origin, "top_k", reason),
            None => out.put("top_k", top_k),
        }
    }
}

fn write_tool_choice(
    choice: Option<&IrToolChoice>,
    parallel: Option<&Leaf<bool>>,
    request: &Request<'_>,
    out: &mut Lowering<'_>,
) {
    if !request.has_tools {
        let reason = "there are no tools to choose from";
        if let Some(choice) = choice {
            out.drop(choice.origin, "tool_choice", reason);
        }
        if let Some(parallel) = parallel {
            out.drop(parallel.origin, "parallel_tool_calls", reason);
        }
        return;
    }
    let word = choice.and_then(|choice| choice_word(choice, out));
    let origin = choice.map(|choice| out.member(choice.origin, "type"));
    let parallel = parallel.filter(|parallel| {
        let meaningless = word == Some("none");
        if meaningless {
            let reason = "no tool may be called at all";
            out.drop(parallel.origin, "parallel_tool_calls", reason);
        }
        !meaningless
    });
    if word.is_none() && parallel.is_none() {
        return;
    }
    out.put_object("tool_choice", |out| {
        match word {
            Some(word) => {
                let from = [origin.unwrap_or_default()];
                out.put_as("type", word, &from, &How::Converted("tool_choice"));
            }
            None => out.tag("type", "auto"),
        }
        if let Some(IrToolChoiceMode::Named { name }) = choice.map(|choice| &choice.mode) {
            out.put("name", name);
        }
        if let Some(parallel) = parallel {
            let how = How::Converted("inverted");
            out.put_as(
                "disable_parallel_tool_use",
                &!parallel.value,
                &[parallel.origin],
                &how,
            );
        }
    });
}

/// The vendor's word for a choice. Where there is none, says so.
fn choice_word(choice: &IrToolChoice, out: &mut Lowering<'_>) -> Option<&'static str> {
    match &choice.mode {
        IrToolChoiceMode::Auto => Some("auto"),
        IrToolChoiceMode::None => Some("none"),
        IrToolChoiceMode::Required => Some("any"),
        IrToolChoiceMode::Named { .. } => Some("tool"),
        IrToolChoiceMode::Allowed { required, .. } => {
            let reason = "the vendor is told of the allowed tools only";
            out.note(choice.origin, How::emulated("allowed_tools", reason));
            Some(if *required { "any" } else { "auto" })
        }
        _ => {
            let reason = "a choice that only another dialect knows";
            out.refuse(choice.origin, "tool_choice", reason);
            None
        }
    }
}

/// Whether JSON is asked for without a schema.
pub(super) fn asks_for_json(settings: &IrSettings) -> bool {
    let kind = settings.response_format.as_ref().map(|format| &format.kind);
    matches!(
        kind,
        Some(
            IrResponseFormatKind::JsonObject
                | IrResponseFormatKind::JsonSchema { schema: None, .. }
        )
    )
}

fn write_output(
    format: Option<&IrResponseFormat>,
    effort: Option<&Effort>,
    vendor: &[IrVendorField],
    out: &mut Lowering<'_>,
) {
    let schema = format.and_then(|format| write_format_remarks(format, out));
    let own =
        |from: Dialect, name: &str| from == Dialect::Claude && wire::OUTPUT_VENDOR.contains(&name);
    let source = out.source();
    let has_own = vendor
        .iter()
        .any(|field| source.is_some_and(|from| own(from, &field.name)));
    if schema.is_none() && effort.is_none() && !has_own {
        return;
    }
    out.put_object("output_config", |out| {
        if let Some(Effort { word, from, how }) = effort {
            out.put_as("effort", word, &[*from], how);
        }
        if let Some(schema) = schema {
            out.put_object("format", |out| {
                out.tag("type", "json_schema");
                out.put("schema", schema);
            });
        }
        out.put_vendor(vendor, own);
    });
}

/// The schema of the answer. What else is said of its form has no place here.
fn write_format_remarks<'f>(
    format: &'f IrResponseFormat,
    out: &mut Lowering<'_>,
) -> Option<&'f Leaf<RawJson>> {
    let IrResponseFormatKind::JsonSchema {
        schema,
        name,
        description,
        strict,
    } = &format.kind
    else {
        // Text is what answers are made of anyway; any JSON is asked for by an instruction.
        if format.kind == IrResponseFormatKind::Text {
            out.note(format.origin, How::Converted("text_format"));
        }
        return None;
    };
    let lost: [(Option<Origin>, &'static str); 3] = [
        (name.as_ref().map(|leaf| leaf.origin), "schema_name"),
        (
            description.as_ref().map(|leaf| leaf.origin),
            "schema_description",
        ),
        (strict.as_ref().map(|leaf| leaf.origin), "schema_strict"),
    ];
    for (origin, label) in lost {
        let reason = "the vendor takes the schema alone";
        out.drop(origin.unwrap_or_default(), label, reason);
    }
    schema.as_ref()
}

fn refuse_several(count: Option<&Leaf<RawJson>>, out: &mut Lowering<'_>) {
    let Some(count) = count else {
        return;
    };
    if count.as_u64() == Some(1) {
        out.note(count.origin, How::Converted("one_answer"));
    } else {
        out.refuse(
            count.origin,
            "candidate_count",
            "the vendor gives one answer",
        );
    }
}

fn refuse_logprobs(
    logprobs: Option<&Leaf<bool>>,
    top_logprobs: Option<&Leaf<RawJson>>,
    out: &mut Lowering<'_>,
) {
    let reason = "the vendor tells no probabilities";
    let unwanted = logprobs.is_none_or(|logprobs| !logprobs.value);
    if let Some(logprobs) = logprobs {
        if logprobs.value {
            out.refuse(logprobs.origin, "logprobs", reason);
        } else {
            out.note(logprobs.origin, How::Converted("no_logprobs"));
        }
    }
    if let Some(top) = top_logprobs {
        if unwanted && top.as_u64() == Some(0) {
            out.note(top.origin, How::Converted("no_logprobs"));
        } else {
            out.refuse(top.origin, "top_logprobs", reason);
        }
    }
}
