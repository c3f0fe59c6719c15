//! Reading a request.

use std::borrow::Cow;

use abp_core::ir::{
    IrConversation, IrReasoning, IrReasoningMode, IrResponseFormat, IrResponseFormatKind,
    IrSettings, IrStop, IrToolChoice, IrToolChoiceMode, IrToolDefinition, IrToolKind, Leaf,
    RawJson,
};
use abp_dialect::{Dialect, DialectError, How, Item};

use super::content_in::{read_content, read_instructions};
use crate::schema;
use crate::wire::{Fields, is_named, numbered, numbered_word, vendor};

/// Reads a request for content, or for the number of its tokens, which has the same form.
pub(crate) fn read_request(root: Item<'_>) -> Result<IrConversation, DialectError> {
    let fields = Fields::of(root)?;
    if !fields.has("contents") {
        return Err(DialectError::NotThis {
            dialect: Dialect::Gemini,
            what: "request",
            problem: "it has no contents".to_owned(),
        });
    }
    let mut conversation = IrConversation::default();
    if let Some(instructions) = fields.get("systemInstruction") {
        conversation
            .messages
            .extend(read_instructions(instructions)?);
    }
    for content in fields.repeated("contents") {
        read_content(content, &mut conversation.messages)?;
    }
    for tool in fields.repeated("tools") {
        read_tool(tool, &mut conversation.tools)?;
    }
    conversation.settings = read_settings(fields)?;
    Ok(conversation)
}

/// Reads one tool: any number of functions, and what the vendor carries out itself. They share the
/// tool's origin, because it is one value of the source.
fn read_tool(item: Item<'_>, tools: &mut Vec<IrToolDefinition>) -> Result<(), DialectError> {
    let fields = Fields::of(item)?;
    for declaration in fields.repeated("functionDeclarations") {
        let function = read_function(Fields::of(declaration)?)?;
        tools.push(IrToolDefinition {
            origin: item.origin(),
            ..function
        });
    }
    for (key, value) in item.entries() {
        if value.view().is_null() {
            value.structure();
            continue;
        }
        if is_named(&key, "functionDeclarations") {
            continue;
        }
        let kind = key.into_owned();
        let name = Leaf::from(kind.as_str());
        let native = value.raw();
        tools.push(IrToolDefinition {
            kind: IrToolKind::Server { kind, native },
            origin: item.origin(),
            ..IrToolDefinition::function(name, None, None)
        });
    }
    Ok(())
}

fn read_function(fields: Fields<'_>) -> Result<IrToolDefinition, DialectError> {
    let schema = match fields.get("parametersJsonSchema") {
        Some(schema) => Some(schema.raw()),
        None => fields.get("parameters").map(read_schema),
    };
    let name = fields.item().need("name")?.text()?;
    let mut function = IrToolDefinition::function(name, fields.text("description")?, schema);
    function.vendor = fields.vendor(vendor::DECLARATION);
    Ok(function)
}

/// Takes a schema in the vendor's own language as JSON Schema.
fn read_schema(item: Item<'_>) -> Leaf<RawJson> {
    let native = item.raw();
    match schema::to_json_schema(item.view()) {
        Some(converted) => {
            item.note(How::Converted("schema_dialect"));
            native.with(RawJson::trusted(converted))
        }
        None => native,
    }
}

fn read_settings(fields: Fields<'_>) -> Result<IrSettings, DialectError> {
    let mut settings = IrSettings {
        model: fields.text("model")?,
        vendor: fields.vendor(vendor::REQUEST),
        ..IrSettings::default()
    };
    if let Some(config) = fields.fields("toolConfig")? {
        settings.vendor.extend(config.vendor(vendor::TOOL_CONFIG));
        if let Some(calling) = config.fields("functionCallingConfig")? {
            settings.tool_choice = read_tool_choice(calling, &mut settings)?;
        }
    }
    if let Some(config) = fields.fields("generationConfig")? {
        read_generation(config, &mut settings)?;
    }
    Ok(settings)
}

/// Reads which functions may be called. `VALIDATED` is the usual choice with a promise about schemas
/// that no other vendor gives, so it stays under its own name.
fn read_tool_choice(
    calling: Fields<'_>,
    settings: &mut IrSettings,
) -> Result<Option<IrToolChoice>, DialectError> {
    settings
        .vendor
        .extend(calling.vendor(vendor::FUNCTION_CALLING));
    let names = calling.repeated("allowedFunctionNames").map(Item::text);
    let mut names = names.collect::<Result<Vec<_>, _>>()?;
    let mode = calling.get("mode");
    let word = mode.and_then(|mode| {
        let numbered = numbered_word(mode.view(), numbered::CALLING_MODE);
        mode.tag().or(numbered.map(Cow::Borrowed))
    });
    let mut origin = calling.item().origin();
    let choice = match (word.as_deref(), names.len()) {
        (Some("NONE"), _) => IrToolChoiceMode::None,
        (Some("AUTO"), 0) => IrToolChoiceMode::Auto,
        (Some("ANY"), 0) => IrToolChoiceMode::Required,
        (Some("ANY"), 1) => IrToolChoiceMode::Named {
            name: names.remove(0),
        },
        (Some("ANY"), _) => IrToolChoiceMode::Allowed {
            names,
            required: true,
        },
        (_, count) => {
            settings.vendor.extend(calling.vendor(&["mode"]));
            if count == 0 {
                return Ok(None);
            }
            IrToolChoiceMode::Allowed {
                names,
                required: false,
            }
        }
    };
    // A choice without names is its word.
    if let Some(mode) = mode
        && matches!(
            choice,
            IrToolChoiceMode::None | IrToolChoiceMode::Auto | IrToolChoiceMode::Required
        )
    {
        mode.taken();
        origin = mode.origin();
    }
    Ok(Some(IrToolChoice {
        mode: choice,
        origin,
    }))
}

fn read_generation(config: Fields<'_>, settings: &mut IrSettings) -> Result<(), DialectError> {
    settings.max_tokens = config.number("maxOutputTokens")?;
    settings.temperature = config.number("temperature")?;
    settings.top_p = config.number("topP")?;
    settings.top_k = config.number("topK")?;
    settings.seed = config.number("seed")?;
    settings.frequency_penalty = config.number("frequencyPenalty")?;
    settings.presence_penalty = config.number("presencePenalty")?;
    settings.candidate_count = config.number("candidateCount")?;
    settings.logprobs = config.flag("responseLogprobs")?;
    settings.top_logprobs = config.number("logprobs")?;
    settings.stop = read_stop(config)?;
    if let Some(thinking) = config.fields("thinkingConfig")? {
        settings.reasoning = Some(read_thinking(thinking)?);
    }
    settings.vendor.extend(config.vendor(vendor::GENERATION));
    // Text is what everybody answers with.
    let mut modalities = config.repeated("responseModalities");
    if let (Some(only), None) = (modalities.next(), modalities.next())
        && only.view().as_str().as_deref() == Some("TEXT")
    {
        only.repeats();
    }
    read_format(config, settings);
    Ok(())
}

fn read_stop(config: Fields<'_>) -> Result<Option<IrStop>, DialectError> {
    let Some(item) = config.get("stopSequences") else {
        return Ok(None);
    };
    let sequences = config.repeated("stopSequences").map(Item::text);
    let sequences = sequences.collect::<Result<Vec<_>, _>>()?;
    if sequences.is_empty() {
        item.structure();
        return Ok(None);
    }
    Ok(Some(IrStop {
        sequences,
        plain: false,
    }))
}

/// Reads the form of the answer: a media type, and a schema in one of two languages.
fn read_format(config: Fields<'_>, settings: &mut IrSettings) {
    let schema = ["responseJsonSchema", "_responseJsonSchema"]
        .iter()
        .find_map(|name| config.get(name))
        .map(Item::raw)
        .or_else(|| config.get("responseSchema").map(read_schema));
    let mime = config.get("responseMimeType");
    let word = mime.and_then(|mime| mime.view().as_str());
    let kind = match (word.as_deref(), schema) {
        (Some("application/json") | None, Some(schema)) => IrResponseFormatKind::JsonSchema {
            schema: Some(schema),
            name: None,
            description: None,
            strict: None,
        },
        (Some("application/json"), None) => IrResponseFormatKind::JsonObject,
        (Some("text/plain"), None) => IrResponseFormatKind::Text,
        // A form of its own: an answer that is one word of a list.
        _ => {
            let names = ["responseMimeType", "responseSchema", "responseJsonSchema"];
            settings.vendor.extend(config.vendor(&names));
            return;
        }
    };
    let origin = mime.map_or(config.item().origin(), Item::origin);
    match (&kind, mime) {
        (IrResponseFormatKind::JsonSchema { .. }, Some(mime)) => mime.structure(),
        (_, Some(mime)) => mime.taken(),
        (_, None) => {}
    }
    settings.response_format = Some(IrResponseFormat {
        kind,
        vendor: Vec::new(),
        origin,
    });
}

/// Reads how much to reason. A budget of 0 means not at all, and of -1 as the model likes.
fn read_thinking(thinking: Fields<'_>) -> Result<IrReasoning, DialectError> {
    let mut reasoning = IrReasoning {
        include_thoughts: thinking.flag("includeThoughts")?,
        ..IrReasoning::default()
    };
    if let Some(item) = thinking.get("thinkingBudget") {
        let budget = item.number()?;
        let mode = match budget.text() {
            "0" => Some(IrReasoningMode::Disabled),
            "-1" => Some(IrReasoningMode::Adaptive),
            _ => None,
        };
        match mode {
            Some(mode) => {
                item.note(How::Converted("thinking_budget"));
                reasoning.mode = Some(budget.with(mode));
            }
            None => reasoning.budget_tokens = Some(budget),
        }
    }
    if let Some(item) = thinking.get("thinkingLevel") {
        let level = item.text()?;
        item.note(How::Converted("effort_word"));
        reasoning.effort = Some(level.with(level.to_ascii_lowercase()));
    }
    Ok(reasoning)
}
