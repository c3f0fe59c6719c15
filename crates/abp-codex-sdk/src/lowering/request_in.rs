//! Reading requests.

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrMessage, IrReasoning, IrResponseFormat,
    IrResponseFormatKind, IrRole, IrSettings, IrToolChoice, IrToolChoiceMode, IrToolDefinition,
    IrToolKind, IrVendorField, Leaf, RawJson,
};
use abp_dialect::{DialectError, How, Item};
use abp_json::Kind;

use super::items_in::read_input;
use super::settle_empty;
use crate::wire;

/// Reads a request.
pub(crate) fn read_request(root: Item<'_>) -> Result<IrConversation, DialectError> {
    let root = root.object()?;
    settle_empty(root);
    let mut settings = read_settings(root)?;
    let mut messages = Vec::new();
    if let Some(instructions) = root.some("instructions") {
        messages.push(read_instructions(instructions)?);
    }
    if let Some(input) = root.some("input") {
        read_input(input, &mut messages)?;
    }
    let mut tools = Vec::new();
    if let Some(list) = root.some("tools") {
        tools = list.array()?.map(read_tool).collect::<Result<_, _>>()?;
    }
    settings.vendor.extend(empty_sections(root));
    Ok(IrConversation {
        messages,
        tools,
        settings,
        usage: None,
    })
}

fn read_instructions(instructions: Item<'_>) -> Result<IrMessage, DialectError> {
    let text = IrContentBlock::text(instructions.text()?);
    Ok(IrMessage {
        role: IrRole::System,
        content: vec![IrBlock {
            origin: instructions.origin(),
            ..text.into()
        }],
        plain: true,
        vendor: Vec::new(),
        origin: instructions.origin(),
    })
}

/// Sections that are there and say nothing. They leave no other trace in the representation, and
/// would be missing from a copy.
fn empty_sections(root: Item<'_>) -> Vec<IrVendorField> {
    let section = |name: &str| root.get(name).map(|item| (name.to_owned(), item));
    wire::SECTIONS
        .into_iter()
        .filter_map(section)
        .filter(|(_, item)| item.kind() != Kind::String && item.view().is_empty())
        .map(|(name, item)| {
            item.structure();
            let value = Leaf::new(RawJson::trusted(item.view().raw()), item.origin());
            IrVendorField { name, value }
        })
        .collect()
}

fn read_settings(root: Item<'_>) -> Result<IrSettings, DialectError> {
    let mut settings = IrSettings {
        model: root.opt_text("model")?,
        max_tokens: root.opt_number("max_output_tokens")?,
        temperature: root.opt_number("temperature")?,
        top_p: root.opt_number("top_p")?,
        top_logprobs: root.opt_number("top_logprobs")?,
        reasoning: root.some("reasoning").map(read_reasoning).transpose()?,
        tool_choice: root.some("tool_choice").map(read_tool_choice).transpose()?,
        parallel_tool_calls: root.opt_flag("parallel_tool_calls")?,
        stream: root.opt_flag("stream")?,
        user: root.opt_text("user")?,
        vendor: root.vendor_fields(wire::REQUEST_VENDOR),
        ..IrSettings::default()
    };
    if let Some(text) = root.some("text") {
        read_text_settings(text, &mut settings)?;
    }
    if let Some(include) = root.some("include") {
        read_include(include, &mut settings)?;
    }
    Ok(settings)
}

fn read_reasoning(reasoning: Item<'_>) -> Result<IrReasoning, DialectError> {
    let reasoning = reasoning.object()?;
    settle_empty(reasoning);
    Ok(IrReasoning {
        effort: reasoning.opt_text("effort")?,
        summary: reasoning.opt_text("summary")?,
        vendor: reasoning.vendor_fields(&["context", "generate_summary", "mode"]),
        ..IrReasoning::default()
    })
}

fn read_text_settings(text: Item<'_>, settings: &mut IrSettings) -> Result<(), DialectError> {
    let text = text.object()?;
    settings.vendor.extend(text.vendor_fields(&["verbosity"]));
    let Some(format) = text.some("format") else {
        return Ok(());
    };
    let format = format.object()?;
    settle_empty(format);
    let kind = match format.tag_of("type").unwrap_or_default().as_ref() {
        "text" => IrResponseFormatKind::Text,
        "json_object" => IrResponseFormatKind::JsonObject,
        "json_schema" => IrResponseFormatKind::JsonSchema {
            schema: format.opt_raw("schema"),
            name: format.opt_text("name")?,
            description: format.opt_text("description")?,
            strict: format.opt_flag("strict")?,
        },
        _ => {
            settings.vendor.push(format.vendor("format"));
            return Ok(());
        }
    };
    settings.response_format = Some(IrResponseFormat {
        kind,
        vendor: Vec::new(),
        origin: format.origin(),
    });
    Ok(())
}

/// What the answer should include. Log probabilities are a setting; the rest is the vendor's.
fn read_include(include: Item<'_>, settings: &mut IrSettings) -> Result<(), DialectError> {
    for item in include.array()? {
        if item.view().as_str().as_deref() == Some(wire::INCLUDE_LOGPROBS) {
            item.taken();
            item.note(How::Converted("include"));
            settings.logprobs = Some(Leaf::new(true, item.origin()));
        } else {
            settings.vendor.push(item.vendor("include"));
        }
    }
    Ok(())
}

fn read_tool_choice(choice: Item<'_>) -> Result<IrToolChoice, DialectError> {
    let mode = match choice.kind() {
        Kind::String => match choice.text()?.as_str() {
            "auto" => Some(IrToolChoiceMode::Auto),
            "none" => Some(IrToolChoiceMode::None),
            "required" => Some(IrToolChoiceMode::Required),
            _ => None,
        },
        Kind::Object => match choice.tag_of("type").unwrap_or_default().as_ref() {
            "function" | "custom" => Some(IrToolChoiceMode::Named {
                name: named(choice).need("name")?.text()?,
            }),
            "allowed_tools" => read_allowed(choice.some("allowed_tools").unwrap_or(choice)),
            _ => None,
        },
        _ => return Err(choice.wrong("a string or an object")),
    };
    Ok(IrToolChoice {
        mode: mode.unwrap_or_else(|| IrToolChoiceMode::Other {
            native: choice.raw(),
        }),
        origin: choice.origin(),
    })
}

/// The object that holds the name of a tool: the vendor's other API writes one around it.
fn named(choice: Item<'_>) -> Item<'_> {
    let inner = choice.some("function").or_else(|| choice.some("custom"));
    inner.unwrap_or(choice)
}

/// A choice among tools, where all of them have names.
fn read_allowed(choice: Item<'_>) -> Option<IrToolChoiceMode> {
    let named = |tool: Item<'_>| {
        let kind = tool.tag_of("type")?;
        let is_named = matches!(kind.as_ref(), "function" | "custom");
        is_named.then(|| self::named(tool).get("name")?.text().ok())?
    };
    let names = choice
        .some("tools")?
        .items()
        .map(named)
        .collect::<Option<_>>()?;
    let required = choice.tag_of("mode").as_deref() == Some("required");
    Some(IrToolChoiceMode::Allowed { names, required })
}

fn read_tool(tool: Item<'_>) -> Result<IrToolDefinition, DialectError> {
    let tool = tool.object()?;
    settle_empty(tool);
    let kind = tool.tag_of("type");
    match kind.as_deref() {
        Some("function") | None => Ok(IrToolDefinition {
            name: tool.need("name")?.text()?,
            description: tool.opt_text("description")?,
            parameters_schema: tool.opt_raw("parameters"),
            kind: IrToolKind::Function,
            strict: tool.opt_flag("strict")?,
            vendor: tool.vendor_fields(&["allowed_callers", "defer_loading", "output_schema"]),
            origin: tool.origin(),
        }),
        Some("custom") => Ok(IrToolDefinition {
            name: tool.need("name")?.text()?,
            description: tool.opt_text("description")?,
            parameters_schema: None,
            kind: IrToolKind::Custom {
                format: tool.opt_raw("format"),
            },
            strict: None,
            vendor: tool.vendor_fields(&["allowed_callers", "defer_loading"]),
            origin: tool.origin(),
        }),
        Some(kind) => Ok(read_server_tool(tool, kind)),
    }
}

/// A tool that the vendor carries out is known by its name, if it has one, or else by its type.
fn read_server_tool(tool: Item<'_>, kind: &str) -> IrToolDefinition {
    let native = tool.raw();
    let name = tool.some("name").and_then(|name| name.text().ok());
    IrToolDefinition {
        name: name.unwrap_or_else(|| Leaf::from(kind)),
        description: None,
        parameters_schema: None,
        kind: IrToolKind::Server {
            kind: kind.to_owned(),
            native,
        },
        strict: None,
        vendor: Vec::new(),
        origin: tool.origin(),
    }
}
