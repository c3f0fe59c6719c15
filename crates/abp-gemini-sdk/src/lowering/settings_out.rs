//! Writing how an answer should be made.

use abp_core::ir::{
    IrResponseFormat, IrResponseFormatKind, IrSettings, IrStop, IrToolChoice, IrToolChoiceMode,
};
use abp_dialect::{How, Lowering};

use super::content_out::Side;
use super::thinking_out::{Member, thinking_config};
use crate::schema::{self, Place};
use crate::wire::vendor;

/// The most stop sequences that the vendor takes.
const MAX_STOPS: usize = 5;

/// Writes the settings that stand in the request.
pub(super) fn write_settings(
    settings: &IrSettings,
    has_tools: bool,
    side: Side,
    out: &mut Lowering<'_>,
) {
    let own =
        |names: &'static [&'static str]| move |_, name: &str| side.own && names.contains(&name);
    out.put_vendor(&settings.vendor, own(vendor::REQUEST));
    let kept = |names: &[&str]| {
        let mut fields = settings.vendor.iter();
        side.own && fields.any(|field| names.contains(&field.name.as_str()))
    };
    let calling =
        settings.tool_choice.is_some() || kept(&["mode"]) || kept(vendor::FUNCTION_CALLING);
    if calling || kept(vendor::TOOL_CONFIG) {
        out.put_object("toolConfig", |out| {
            if calling {
                out.put_object("functionCallingConfig", |out| {
                    write_tool_choice(settings, side, out);
                });
            }
            out.put_vendor(&settings.vendor, own(vendor::TOOL_CONFIG));
        });
    }
    let reasoning = settings.reasoning.as_ref();
    let thinking = reasoning.map_or_else(Vec::new, |asked| thinking_config(asked, side, out));
    if has_generation(settings) || !thinking.is_empty() || kept(vendor::GENERATION) {
        out.put_object("generationConfig", |out| {
            write_generation(settings, has_tools, side, out);
            if !thinking.is_empty() {
                out.put_object("thinkingConfig", |out| {
                    for Member {
                        name,
                        value,
                        from,
                        how,
                    } in &thinking
                    {
                        out.put_as(name, value, &[*from], how);
                    }
                });
            }
            let names = ["responseMimeType", "responseSchema", "responseJsonSchema"];
            out.put_vendor(&settings.vendor, |_, name| {
                side.own && (vendor::GENERATION.contains(&name) || names.contains(&name))
            });
        });
    }
}

/// Remarks on settings that have no place in a request.
pub(super) fn drop_settings(settings: &IrSettings, out: &mut Lowering<'_>) {
    let IrSettings {
        model,
        parallel_tool_calls,
        stream,
        include_usage,
        user,
        ..
    } = settings;
    // Both are part of the address, where whoever sends the request puts them.
    if let Some(model) = model {
        out.note(model.origin, How::Converted("model_in_route"));
    }
    if let Some(stream) = stream {
        out.note(stream.origin, How::Converted("stream_in_route"));
    }
    match parallel_tool_calls {
        Some(parallel) if parallel.value => {
            out.note(parallel.origin, How::Converted("parallel_tool_calls"));
        }
        Some(parallel) => out.drop(
            parallel.origin,
            "parallel_tool_calls",
            "Gemini cannot be kept from several calls at once",
        ),
        None => {}
    }
    if let Some(asked) = include_usage {
        // Every chunk of a stream has its usage; who did not ask for it is spared it later.
        out.note(asked.origin, How::Converted("usage_in_stream"));
    }
    if let Some(user) = user {
        out.drop(
            user.origin,
            "user",
            "Gemini has no field for the caller's user",
        );
    }
}

/// Whether any of the plain settings stands in `generationConfig`.
fn has_generation(settings: &IrSettings) -> bool {
    let numbers = [
        &settings.max_tokens,
        &settings.temperature,
        &settings.top_p,
        &settings.top_k,
        &settings.seed,
        &settings.frequency_penalty,
        &settings.presence_penalty,
        &settings.candidate_count,
        &settings.top_logprobs,
    ];
    numbers.iter().any(|number| number.is_some())
        || settings.logprobs.is_some()
        || settings.stop.is_some()
        || settings.response_format.is_some()
}

fn write_generation(settings: &IrSettings, has_tools: bool, side: Side, out: &mut Lowering<'_>) {
    let IrSettings {
        model: _,
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
        reasoning: _,
        tool_choice: _,
        parallel_tool_calls: _,
        stream: _,
        include_usage: _,
        user: _,
        legacy_functions: _,
        vendor: _,
    } = settings;
    out.put_opt("maxOutputTokens", max_tokens.as_ref());
    out.put_opt("temperature", temperature.as_ref());
    out.put_opt("topP", top_p.as_ref());
    out.put_opt("topK", top_k.as_ref());
    out.put_opt("seed", seed.as_ref());
    out.put_opt("frequencyPenalty", frequency_penalty.as_ref());
    out.put_opt("presencePenalty", presence_penalty.as_ref());
    out.put_opt("candidateCount", candidate_count.as_ref());
    let how = if side.own {
        How::AsIs
    } else {
        How::degraded("logprobs", "Gemini gives log probabilities in another form")
    };
    if let Some(logprobs) = logprobs {
        out.put_as(
            "responseLogprobs",
            &logprobs.value,
            &[logprobs.origin],
            &how,
        );
    }
    if let Some(top) = top_logprobs {
        out.put_as("logprobs", &top.value, &[top.origin], &how);
    }
    if let Some(stop) = stop {
        write_stop(stop, out);
    }
    if let Some(format) = response_format {
        write_format(format, has_tools, side, out);
    }
}

fn write_stop(stop: &IrStop, out: &mut Lowering<'_>) {
    out.put_array("stopSequences", |out| {
        for sequence in stop.sequences.iter().take(MAX_STOPS) {
            out.value(sequence);
        }
    });
    for sequence in stop.sequences.iter().skip(MAX_STOPS) {
        let reason = "Gemini takes five stop sequences at most";
        out.drop(sequence.origin, "stop_sequences", reason);
    }
}

fn write_format(format: &IrResponseFormat, has_tools: bool, side: Side, out: &mut Lowering<'_>) {
    let json = !matches!(format.kind, IrResponseFormatKind::Text);
    if json && has_tools && !side.own && !side.family.combines_json_and_tools() {
        out.refuse(
            format.origin,
            "structured_output_with_tools",
            "this model cannot be bound to JSON while tools are on offer",
        );
        return;
    }
    let how = How::Converted("response_format");
    match &format.kind {
        IrResponseFormatKind::Text => {
            out.put_as("responseMimeType", "text/plain", &[format.origin], &how);
        }
        IrResponseFormatKind::JsonObject => {
            out.put_as(
                "responseMimeType",
                "application/json",
                &[format.origin],
                &how,
            );
        }
        IrResponseFormatKind::JsonSchema {
            schema,
            name,
            description,
            strict,
        } => {
            out.tag("responseMimeType", "application/json");
            if let Some(schema) = schema {
                schema::write(schema, Place::Answer, side.family, out);
            }
            let reason = "Gemini has the schema alone";
            for (leaf, label) in [(name, "schema_name"), (description, "schema_description")] {
                if let Some(leaf) = leaf {
                    out.drop(leaf.origin, label, reason);
                }
            }
            if let Some(strict) = strict {
                out.drop(strict.origin, "strict", reason);
            }
        }
        _ => out.refuse(format.origin, "response_format", "Gemini has no such form"),
    }
}

fn write_tool_choice(settings: &IrSettings, side: Side, out: &mut Lowering<'_>) {
    let own_mode = side.own && settings.vendor.iter().any(|field| field.name == "mode");
    out.put_vendor(&settings.vendor, |_, name| {
        side.own && (name == "mode" || vendor::FUNCTION_CALLING.contains(&name))
    });
    let Some(IrToolChoice { mode, origin }) = &settings.tool_choice else {
        return;
    };
    let how = How::Converted("tool_choice");
    match mode {
        IrToolChoiceMode::Auto => out.put_as("mode", "AUTO", &[*origin], &how),
        IrToolChoiceMode::None => out.put_as("mode", "NONE", &[*origin], &how),
        IrToolChoiceMode::Required => out.put_as("mode", "ANY", &[*origin], &how),
        IrToolChoiceMode::Named { name } => {
            out.tag("mode", "ANY");
            out.put_array("allowedFunctionNames", |out| out.value(name));
        }
        IrToolChoiceMode::Allowed { names, required } => {
            // The vendor takes names only where it watches what is called.
            if !own_mode {
                out.tag("mode", if *required { "ANY" } else { "VALIDATED" });
            }
            out.put_array("allowedFunctionNames", |out| {
                names.iter().for_each(|name| out.value(name));
            });
        }
        IrToolChoiceMode::Other { native } => {
            out.refuse(native.origin, "tool_choice", "Gemini has no such choice");
        }
        _ => out.refuse(*origin, "tool_choice", "Gemini has no such choice"),
    }
}
