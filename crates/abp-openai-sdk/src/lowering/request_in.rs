//! Reading requests.

use abp_core::ir::{
    IrConversation, IrReasoning, IrReasoningMode, IrResponseFormat, IrResponseFormatKind,
    IrSettings, IrStop, IrToolChoice, IrToolChoiceMode, IrToolDefinition, IrToolKind, Leaf,
    RawJson,
};
use abp_dialect::{DialectError, How, Item};
use abp_json::{Kind, Writer};

use super::{message_in, shape};
use crate::{Flavour, wire};

/// Reads a request.
pub(crate) fn read(flavour: &Flavour, root: Item<'_>) -> Result<IrConversation, DialectError> {
    let root = root.object()?;
    let messages = root
        .need("messages")?
        .array()?
        .map(|message| message_in::read(flavour, message))
        .collect::<Result<_, _>>()?;
    Ok(IrConversation {
        messages,
        tools: tools(root)?,
        settings: settings(flavour, root)?,
        usage: None,
    })
}

fn settings(flavour: &Flavour, root: Item<'_>) -> Result<IrSettings, DialectError> {
    let mut vendor = root.vendor_fields(flavour.request_members);
    vendor.extend(root.vendor_fields(wire::COMPATIBLE_MEMBERS));
    let include_usage = match root.some("stream_options") {
        Some(options) => {
            vendor.extend(options.vendor_fields(&["include_obfuscation"]));
            options.opt_flag("include_usage")?
        }
        None => None,
    };
    let max_tokens = match root.opt_number("max_completion_tokens")? {
        Some(limit) => {
            vendor.extend(root.vendor_fields(&["max_tokens"]));
            Some(limit)
        }
        None => root.opt_number("max_tokens")?,
    };
    let (response_format, unknown_format) = match root.some("response_format") {
        Some(format) => read_format(format)?,
        None => (None, None),
    };
    vendor.extend(unknown_format);
    let tool_choice = match root.some("tool_choice") {
        Some(choice) => Some(read_choice(choice)?),
        None => root.some("function_call").map(read_choice).transpose()?,
    };
    Ok(IrSettings {
        model: root.opt_text("model")?,
        max_tokens,
        temperature: root.opt_number("temperature")?,
        top_p: root.opt_number("top_p")?,
        top_k: root.opt_number("top_k")?,
        seed: root.opt_number("seed")?,
        frequency_penalty: root.opt_number("frequency_penalty")?,
        presence_penalty: root.opt_number("presence_penalty")?,
        candidate_count: root.opt_number("n")?,
        logprobs: root.opt_flag("logprobs")?,
        top_logprobs: root.opt_number("top_logprobs")?,
        stop: root.some("stop").map(read_stop).transpose()?,
        response_format,
        reasoning: read_reasoning(root)?,
        tool_choice,
        parallel_tool_calls: root.opt_flag("parallel_tool_calls")?,
        stream: root.opt_flag("stream")?,
        include_usage,
        user: root.opt_text("user")?,
        legacy_functions: ["functions", "function_call"]
            .iter()
            .any(|key| root.some(key).is_some()),
        vendor,
    })
}

fn read_stop(stop: Item<'_>) -> Result<IrStop, DialectError> {
    if stop.kind() == Kind::String {
        return Ok(IrStop {
            sequences: vec![stop.text()?],
            plain: true,
        });
    }
    Ok(IrStop {
        sequences: stop.array()?.map(Item::text).collect::<Result<_, _>>()?,
        plain: false,
    })
}

type Format = (
    Option<IrResponseFormat>,
    Option<abp_core::ir::IrVendorField>,
);

/// Reads the form of the answer; one that only a compatible server knows stays its own.
fn read_format(format: Item<'_>) -> Result<Format, DialectError> {
    let kind = format.object()?.need("type")?;
    let word = kind.tag().ok_or_else(|| kind.wrong("a string"))?;
    let found = match &*word {
        "text" | "json_object" => {
            kind.taken();
            match &*word {
                "text" => IrResponseFormatKind::Text,
                _ => IrResponseFormatKind::JsonObject,
            }
        }
        "json_schema" => {
            let schema = format.need("json_schema")?.object()?;
            IrResponseFormatKind::JsonSchema {
                schema: schema.opt_raw("schema"),
                name: schema.opt_text("name")?,
                description: schema.opt_text("description")?,
                strict: schema.opt_flag("strict")?,
            }
        }
        _ => return Ok((None, Some(format.vendor("response_format")))),
    };
    let format = IrResponseFormat {
        kind: found,
        vendor: Vec::new(),
        origin: format.origin(),
    };
    Ok((Some(format), None))
}

/// Reads how much to reason: OpenAI's word, and the objects of its relatives.
fn read_reasoning(root: Item<'_>) -> Result<Option<IrReasoning>, DialectError> {
    let mut found = IrReasoning {
        effort: root.opt_text("reasoning_effort")?,
        ..IrReasoning::default()
    };
    let object = |key| root.some(key).filter(|item| item.kind() == Kind::Object);
    if let Some(thinking) = object("thinking") {
        found.mode = read_mode(thinking);
        found.budget_tokens = thinking.opt_number("budget_tokens")?;
        found
            .vendor
            .extend(thinking.vendor_fields(&["clear_thinking", "keep", "type"]));
        if let (Some(kind), Some(_)) = (thinking.some("type"), &found.mode) {
            kind.taken();
            found.vendor.retain(|field| field.name != "type");
        }
    }
    if let Some(reasoning) = object("reasoning") {
        if found.effort.is_none() {
            found.effort = reasoning.opt_text("effort")?;
        }
        if found.budget_tokens.is_none() {
            found.budget_tokens = reasoning.opt_number("max_tokens")?;
        }
        if let Some(enabled) = reasoning.opt_flag("enabled")? {
            found.mode = Some(enabled.with(match enabled.value {
                true => IrReasoningMode::Enabled,
                false => IrReasoningMode::Disabled,
            }));
        }
        found.vendor.extend(reasoning.vendor_fields(&["exclude"]));
    }
    Ok((found != IrReasoning::default()).then_some(found))
}

fn read_mode(thinking: Item<'_>) -> Option<Leaf<IrReasoningMode>> {
    let kind = thinking.some("type")?;
    let mode = match &*kind.view().as_str()? {
        "enabled" => IrReasoningMode::Enabled,
        "disabled" => IrReasoningMode::Disabled,
        "adaptive" => IrReasoningMode::Adaptive,
        _ => return None,
    };
    Some(Leaf::new(mode, kind.origin()))
}

fn read_choice(choice: Item<'_>) -> Result<IrToolChoice, DialectError> {
    let native = || IrToolChoiceMode::Other {
        native: choice.raw(),
    };
    let mode = if choice.kind() == Kind::String {
        choice.taken();
        match choice.view().as_str().as_deref() {
            Some("auto") => IrToolChoiceMode::Auto,
            Some("none") => IrToolChoiceMode::None,
            Some("required" | "any") => IrToolChoiceMode::Required,
            _ => native(),
        }
    } else {
        let choice = choice.object()?;
        match choice.tag_of("type").as_deref() {
            Some("function" | "custom") | None => match tool_name(choice)? {
                Some(name) => IrToolChoiceMode::Named { name },
                None => native(),
            },
            // The vendor's other API writes the same choice without the inner object.
            Some("allowed_tools") => read_allowed(choice.some("allowed_tools").unwrap_or(choice))?,
            Some(_) => native(),
        }
    };
    Ok(IrToolChoice {
        mode,
        origin: choice.origin(),
    })
}

/// The tool that a choice names: nested for tools, plain for functions.
fn tool_name(choice: Item<'_>) -> Result<Option<Leaf<String>>, DialectError> {
    let nested = choice.some("function").or_else(|| choice.some("custom"));
    nested.unwrap_or(choice).opt_text("name")
}

fn read_allowed(allowed: Item<'_>) -> Result<IrToolChoiceMode, DialectError> {
    let mode = allowed.object()?.tag_of("mode");
    let mut names = Vec::new();
    for tool in allowed.need("tools")?.array()? {
        shape(tool, &["type"]);
        names.extend(tool_name(tool)?);
    }
    Ok(IrToolChoiceMode::Allowed {
        names,
        required: mode.as_deref() == Some("required"),
    })
}

fn tools(root: Item<'_>) -> Result<Vec<IrToolDefinition>, DialectError> {
    let mut tools = Vec::new();
    if let Some(list) = root.some("tools") {
        for tool in list.array()? {
            tools.push(read_tool(tool.object()?)?);
        }
    }
    if let Some(list) = root.some("functions") {
        for function in list.array()? {
            tools.push(read_function(function, function.object()?)?);
        }
    }
    Ok(tools)
}

fn read_tool(tool: Item<'_>) -> Result<IrToolDefinition, DialectError> {
    let kind = tool.tag_of("type").unwrap_or_default();
    match &*kind {
        "function" | "" => read_function(tool, tool.need("function")?.object()?),
        "custom" => read_custom(tool, tool.need("custom")?.object()?),
        other => {
            let named = tool.some("function").unwrap_or(tool).some("name");
            let name = named.and_then(|name| name.text().ok());
            let native = tool.raw();
            Ok(IrToolDefinition {
                name: name.unwrap_or_else(|| native.with(other.to_owned())),
                description: None,
                parameters_schema: None,
                kind: IrToolKind::Server {
                    kind: other.to_owned(),
                    native,
                },
                strict: None,
                vendor: Vec::new(),
                origin: tool.origin(),
            })
        }
    }
}

fn read_function(tool: Item<'_>, function: Item<'_>) -> Result<IrToolDefinition, DialectError> {
    Ok(IrToolDefinition {
        name: function.need("name")?.text()?,
        description: function.opt_text("description")?,
        parameters_schema: function.opt_raw("parameters"),
        kind: IrToolKind::Function,
        strict: function.opt_flag("strict")?,
        vendor: tool.vendor_fields(&["cache_control"]),
        origin: tool.origin(),
    })
}

fn read_custom(tool: Item<'_>, custom: Item<'_>) -> Result<IrToolDefinition, DialectError> {
    Ok(IrToolDefinition {
        name: custom.need("name")?.text()?,
        description: custom.opt_text("description")?,
        parameters_schema: None,
        kind: IrToolKind::Custom {
            format: custom.some("format").map(read_grammar),
        },
        strict: None,
        vendor: Vec::new(),
        origin: tool.origin(),
    })
}

/// Reads the form of a free text. In the representation a grammar is flat, as Responses has it.
fn read_grammar(format: Item<'_>) -> Leaf<RawJson> {
    let Some(grammar) = format
        .some("grammar")
        .filter(|item| item.kind() == Kind::Object)
    else {
        return format.raw();
    };
    format.taken();
    format.note(How::Converted("grammar_form"));
    let mut writer = Writer::default();
    writer.begin_object();
    writer.key("type");
    writer.string("grammar");
    for (key, value) in grammar.entries() {
        writer.key(&key);
        writer.raw(value.view().raw());
    }
    writer.end_object();
    Leaf::new(RawJson::trusted(writer.into_text()), format.origin())
}
