//! Writing requests.

use abp_core::ir::{
    IrContentBlock, IrConversation, IrMessage, IrRole, IrToolDefinition, IrToolKind, Leaf, Origin,
    RawJson,
};
use abp_dialect::{How, Lowering};
use abp_json::{Limits, Tape, Writer};

use super::items_out::write_messages;
use super::settings_out::write_settings;
use super::{constant, is_own, put_own};
use crate::wire;

/// Writes a request.
pub(crate) fn write_request(conversation: &IrConversation, out: &mut Lowering<'_>) {
    let IrConversation {
        messages,
        tools,
        settings,
        usage: _,
    } = conversation;
    let (instructions, input) = split_instructions(messages, out);
    let has = [instructions.is_some(), !input.is_empty(), !tools.is_empty()];
    let is_copied = |section: &str| settings.vendor.iter().any(|field| field.name == section);
    // A section that says nothing has no other trace in the representation than its copy.
    let written: Vec<_> = wire::SECTIONS
        .into_iter()
        .zip(has)
        .filter(|(section, has)| *has || !is_copied(section))
        .map(|(section, _)| section)
        .collect();
    out.object(|out| {
        if !out.copy_native_members(&written) {
            write_settings(settings, tools, out);
        }
        if let Some((message, text)) = instructions {
            put_text("instructions", message, text, out);
        }
        // Only this dialect has requests without a conversation.
        if !(is_own(out.source()) && input.is_empty()) {
            write_input(input, out);
        }
        if !tools.is_empty() {
            out.put_array("tools", |out| {
                tools.iter().for_each(|tool| write_tool(tool, out));
            });
        }
    });
}

/// A message that is a member of the request itself, and its text.
type Instructions<'m> = Option<(&'m IrMessage, &'m Leaf<String>)>;

/// The instructions outside the conversation, if it starts with some that fit, and the rest.
fn split_instructions<'m>(
    messages: &'m [IrMessage],
    out: &Lowering<'_>,
) -> (Instructions<'m>, &'m [IrMessage]) {
    let first = messages.split_first();
    let found = first.and_then(|(first, rest)| Some((first, instructions_text(first, out)?, rest)));
    match found {
        Some((first, text, rest)) => (Some((first, text)), rest),
        None => (None, messages),
    }
}

fn instructions_text<'m>(message: &'m IrMessage, out: &Lowering<'_>) -> Option<&'m Leaf<String>> {
    // A message of this dialect stays where it was.
    let is_item = is_own(out.source())
        && matches!(message.origin, Origin::Node(_))
        && out.source_key(message.origin).as_deref() != Some("instructions");
    match (message.role, message.content.as_slice()) {
        (IrRole::System, [block]) if message.plain && !is_item => match &block.body {
            IrContentBlock::Text { text, .. } => Some(text),
            _ => None,
        },
        _ => None,
    }
}

fn write_input(messages: &[IrMessage], out: &mut Lowering<'_>) {
    if let [only] = messages
        && out.source_key(only.origin).as_deref() == Some("input")
        && let [block] = only.content.as_slice()
        && let IrContentBlock::Text { text, .. } = &block.body
    {
        return put_text("input", only, text, out);
    }
    out.put_array("input", |out| write_messages(messages, out));
}

/// Writes a message that is a member of the request itself.
fn put_text(key: &str, message: &IrMessage, text: &Leaf<String>, out: &mut Lowering<'_>) {
    out.key(key);
    if !out.copy_native(message.origin) {
        out.value(text);
    }
}

fn write_tool(tool: &IrToolDefinition, out: &mut Lowering<'_>) {
    if out.copy_native(tool.origin) {
        return;
    }
    let IrToolDefinition {
        name,
        description,
        parameters_schema,
        kind,
        strict,
        vendor,
        origin,
    } = tool;
    match kind {
        IrToolKind::Server { native, .. } if is_own(out.source()) => out.value(native),
        IrToolKind::Custom { format } => out.object(|out| {
            out.tag("type", "custom");
            out.put("name", name);
            out.put_opt("description", description.as_ref());
            if let Some(format) = format {
                write_custom_format(format, out);
            }
            put_own(vendor, &[], out);
        }),
        IrToolKind::Function => out.object(|out| {
            out.tag("type", "function");
            out.put("name", name);
            out.put_opt("description", description.as_ref());
            write_parameters(parameters_schema.as_ref(), out);
            write_strict(strict.as_ref(), out);
            put_own(vendor, &[], out);
        }),
        _ => out.refuse(
            *origin,
            "server_tool",
            format!("{} is a tool of another vendor", name.value),
        ),
    }
}

fn write_parameters(schema: Option<&Leaf<RawJson>>, out: &mut Lowering<'_>) {
    match schema {
        Some(schema) => out.put("parameters", schema),
        None if is_own(out.source()) => {}
        None => out.made(
            "parameters",
            &constant(r#"{"type":"object","properties":{}}"#),
            "parameters_default",
            "a function has to say what it takes",
        ),
    }
}

/// This vendor makes functions strict unless told not to, which would change optional arguments.
fn write_strict(strict: Option<&Leaf<bool>>, out: &mut Lowering<'_>) {
    match strict {
        Some(strict) => out.put("strict", strict),
        None if is_own(out.source()) => {}
        None => out.made(
            "strict",
            &false,
            "strict_default",
            "functions are strict here unless told not to be",
        ),
    }
}

/// Chat completions keep a grammar in an object of its own; here it is part of the format.
fn write_custom_format(format: &Leaf<RawJson>, out: &mut Lowering<'_>) {
    match flattened_grammar(format.text()) {
        Some(flat) => {
            let how = How::Converted("flat_grammar");
            out.put_as("format", &RawJson::trusted(flat), &[format.origin], &how);
        }
        None => out.put("format", format),
    }
}

fn flattened_grammar(format: &str) -> Option<String> {
    let tape = Tape::parse_str(format, &Limits::default()).ok()?;
    let grammar = tape.root().get("grammar")?;
    let mut writer = Writer::default();
    writer.begin_object();
    writer.key("type");
    writer.string("grammar");
    for (key, value) in grammar.entries() {
        writer.key(&key.as_str()?);
        writer.raw(value.raw());
    }
    writer.end_object();
    Some(writer.into_text())
}
