//! Reading requests.

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrMessage, IrReasoning, IrReasoningMode,
    IrResponseFormat, IrResponseFormatKind, IrRole, IrSettings, IrStop, IrToolChoice,
    IrToolChoiceMode, IrToolDefinition, IrToolKind, Leaf, Origin,
};
use abp_dialect::{DialectError, How, Item};

use super::content_in::read_content;
use super::object;
use crate::wire;

/// Reads a request.
pub(crate) fn read_request(root: Item<'_>) -> Result<IrConversation, DialectError> {
    let root = object(root)?;
    let mut messages = match root.some("system") {
        Some(system) => read_system(system)?,
        None => Vec::new(),
    };
    for message in root.need("messages")?.array()? {
        read_message(message, &mut messages)?;
    }
    let mut tools = Vec::new();
    if let Some(list) = root.some("tools") {
        tools = list.array()?.map(read_tool).collect::<Result<_, _>>()?;
    }
    Ok(IrConversation {
        messages,
        tools,
        settings: read_settings(root)?,
        usage: None,
    })
}

/// A string or a single block is one message; of several blocks each is a message of its own, so
/// that they come back as blocks.
fn read_system(system: Item<'_>) -> Result<Vec<IrMessage>, DialectError> {
    let (blocks, plain) = read_content(system)?;
    if blocks.len() <= 1 {
        let whole = message(IrRole::System, blocks, plain, system.origin());
        return Ok(Some(whole)
            .filter(|message| !message.content.is_empty())
            .into_iter()
            .collect());
    }
    let apart = blocks.into_iter().map(|block| {
        let origin = block.origin;
        message(IrRole::System, vec![block], true, origin)
    });
    Ok(apart.collect())
}

/// A user's message that answers calls is two messages: the answers, and the rest.
fn read_message(item: Item<'_>, messages: &mut Vec<IrMessage>) -> Result<(), DialectError> {
    let role = read_role(item)?;
    let (blocks, plain) = read_content(item.need("content")?)?;
    let origin = item.origin();
    if role != IrRole::User || !blocks.iter().any(is_result) {
        messages.push(message(role, blocks, plain, origin));
        return Ok(());
    }
    let first_other = blocks.iter().position(|block| !is_result(block));
    let last_result = blocks.iter().rposition(is_result);
    if first_other.is_some_and(|other| Some(other) < last_result) {
        let reason = "answers to calls come before everything else the user says";
        item.note(How::degraded("tool_result_order", reason));
    }
    let (results, rest): (Vec<_>, Vec<_>) = blocks.into_iter().partition(is_result);
    messages.push(message(IrRole::Tool, results, false, origin));
    if !rest.is_empty() {
        messages.push(message(IrRole::User, rest, false, origin));
    }
    Ok(())
}

fn read_role(item: Item<'_>) -> Result<IrRole, DialectError> {
    let role = object(item)?.need("role")?;
    let word = role.tag().ok_or_else(|| role.wrong("a string"))?;
    Ok(match word.as_ref() {
        "assistant" => IrRole::Assistant,
        "system" => IrRole::System,
        "user" => IrRole::User,
        _ => {
            let reason = "nobody knows this role; the user says it";
            role.note(How::degraded("unknown_role", reason));
            IrRole::User
        }
    })
}

fn is_result(block: &IrBlock) -> bool {
    matches!(block.body, IrContentBlock::ToolResult { .. })
}

fn message(role: IrRole, content: Vec<IrBlock>, plain: bool, origin: Origin) -> IrMessage {
    IrMessage {
        role,
        content,
        plain,
        vendor: Vec::new(),
        origin,
    }
}

fn read_tool(tool: Item<'_>) -> Result<IrToolDefinition, DialectError> {
    let kind = object(tool)?.some("type").and_then(Item::tag);
    match kind.as_deref() {
        None | Some("custom") => Ok(IrToolDefinition {
            name: tool.need("name")?.text()?,
            description: tool.opt_text("description")?,
            parameters_schema: tool.opt_raw("input_schema"),
            kind: IrToolKind::Function,
            strict: tool.opt_flag("strict")?,
            vendor: tool.vendor_fields(wire::TOOL_VENDOR),
            origin: tool.origin(),
        }),
        Some(kind) => {
            let native = tool.raw();
            let name = tool.opt_text("name")?;
            Ok(IrToolDefinition {
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
            })
        }
    }
}

fn read_settings(root: Item<'_>) -> Result<IrSettings, DialectError> {
    let mut settings = IrSettings {
        model: root.opt_text("model")?,
        max_tokens: root.opt_number("max_tokens")?,
        temperature: root.opt_number("temperature")?,
        top_p: root.opt_number("top_p")?,
        top_k: root.opt_number("top_k")?,
        stream: root.opt_flag("stream")?,
        vendor: root.vendor_fields(wire::REQUEST_VENDOR),
        ..IrSettings::default()
    };
    if let Some(stop) = root.some("stop_sequences") {
        settings.stop = Some(IrStop {
            sequences: stop.array()?.map(Item::text).collect::<Result<_, _>>()?,
            plain: false,
        });
    }
    if let Some(metadata) = root.some("metadata") {
        settings.user = object(metadata)?.opt_text("user_id")?;
    }
    if let Some(choice) = root.some("tool_choice") {
        read_tool_choice(choice, &mut settings)?;
    }
    read_reasoning(root, &mut settings)?;
    read_output(root, &mut settings)?;
    Ok(settings)
}

fn read_tool_choice(choice: Item<'_>, settings: &mut IrSettings) -> Result<(), DialectError> {
    let word = choice.object()?.need("type")?;
    let mode = match word.view().as_str().as_deref() {
        Some("auto") => IrToolChoiceMode::Auto,
        Some("any") => IrToolChoiceMode::Required,
        Some("none") => IrToolChoiceMode::None,
        Some("tool") => IrToolChoiceMode::Named {
            name: choice.need("name")?.text()?,
        },
        _ => IrToolChoiceMode::Other {
            native: choice.raw(),
        },
    };
    // The name says it all: a target without this name has nothing else to say.
    match mode {
        IrToolChoiceMode::Named { .. } => word.structure(),
        _ => word.taken(),
    }
    settings.tool_choice = Some(IrToolChoice {
        mode,
        origin: choice.origin(),
    });
    if let Some(disable) = choice.some("disable_parallel_tool_use") {
        disable.note(How::Converted("inverted"));
        let disabled = disable.flag()?;
        settings.parallel_tool_calls = Some(disabled.with(!disabled.value));
    }
    Ok(())
}

fn read_reasoning(root: Item<'_>, settings: &mut IrSettings) -> Result<(), DialectError> {
    let mut reasoning = IrReasoning::default();
    if let Some(thinking) = root.some("thinking") {
        let word = object(thinking)?.need("type")?;
        let mode = match word.view().as_str().as_deref() {
            Some("enabled") => Some(IrReasoningMode::Enabled),
            Some("disabled") => Some(IrReasoningMode::Disabled),
            Some("adaptive") => Some(IrReasoningMode::Adaptive),
            _ => None,
        };
        match mode {
            Some(mode) => {
                word.taken();
                reasoning.mode = Some(Leaf::new(mode, word.origin()));
            }
            None => reasoning.vendor.push(word.vendor("type")),
        }
        reasoning.budget_tokens = thinking.opt_number("budget_tokens")?;
        if let Some(display) = thinking.some("display") {
            read_display(display, &mut reasoning);
        }
    }
    if let Some(config) = root.some("output_config") {
        reasoning.effort = object(config)?.opt_text("effort")?;
    }
    if reasoning != IrReasoning::default() {
        settings.reasoning = Some(reasoning);
    }
    Ok(())
}

fn read_display(display: Item<'_>, reasoning: &mut IrReasoning) {
    let shows = match display.view().as_str().as_deref() {
        Some("summarized") => true,
        Some("omitted") => false,
        _ => {
            reasoning.vendor.push(display.vendor("display"));
            return;
        }
    };
    display.taken();
    display.note(How::Converted("thinking_display"));
    reasoning.include_thoughts = Some(Leaf::new(shows, display.origin()));
}

/// The form of the answer is part of `output_config`; before that it had a member of its own.
fn read_output(root: Item<'_>, settings: &mut IrSettings) -> Result<(), DialectError> {
    let config = root.some("output_config");
    if let Some(config) = config {
        settings
            .vendor
            .extend(config.vendor_fields(&["task_budget"]));
    }
    let format = config.and_then(|config| config.some("format"));
    let Some(format) = format.or_else(|| root.some("output_format")) else {
        return Ok(());
    };
    if format.object()?.tag_of("type").as_deref() != Some("json_schema") {
        settings.vendor.push(format.vendor("format"));
        return Ok(());
    }
    settings.response_format = Some(IrResponseFormat {
        kind: IrResponseFormatKind::JsonSchema {
            schema: format.opt_raw("schema"),
            name: None,
            description: None,
            strict: None,
        },
        vendor: Vec::new(),
        origin: format.origin(),
    });
    Ok(())
}
