//! Writing requests: tools and the choice among them; settings and messages have their own files.

use std::collections::HashSet;

use abp_core::ir::{
    IrConversation, IrToolChoice, IrToolChoiceMode, IrToolDefinition, IrToolKind, Leaf, Origin,
    RawJson, custom_tool_names,
};
use abp_dialect::{How, Lowering, WireFamily};
use abp_json::{Limits, Tape, Writer};

use super::{message_out, settings_out};
use crate::Flavour;

/// Writes a request.
pub(crate) fn write(flavour: &Flavour, conversation: &IrConversation, out: &mut Lowering<'_>) {
    let IrConversation {
        messages,
        tools,
        settings,
        usage: _,
    } = conversation;
    let changed = |tool: &IrToolDefinition| !matches!(tool.origin, Origin::Node(_));
    if tools.iter().any(changed) {
        out.rewrite();
    }
    out.object(|out| {
        if !out.copy_native_members(&["messages"]) {
            settings_out::write(flavour, settings, out);
            write_tools(flavour, tools, out);
            write_choice(conversation, out);
        }
        out.put_array("messages", |out| message_out::write(flavour, messages, out));
    });
}

fn write_tools(flavour: &Flavour, tools: &[IrToolDefinition], out: &mut Lowering<'_>) {
    let (written, refused): (Vec<_>, Vec<_>) =
        tools.iter().partition(|tool| takes(flavour, tool, out));
    for tool in refused {
        let reason = format!(
            "{} is carried out by the source's vendor only",
            tool.name.value
        );
        out.refuse(tool.origin, "server_tool", reason);
    }
    if written.is_empty() {
        return;
    }
    out.put_array("tools", |out| {
        for tool in written {
            write_tool(tool, out);
        }
    });
}

/// Whether the target has this kind of tool.
fn takes(flavour: &Flavour, tool: &IrToolDefinition, out: &Lowering<'_>) -> bool {
    match &tool.kind {
        IrToolKind::Server { kind, .. } => {
            out.same_family() && flavour.server_tools.contains(&kind.as_str())
        }
        _ => true,
    }
}

fn write_tool(tool: &IrToolDefinition, out: &mut Lowering<'_>) {
    let IrToolDefinition {
        name,
        description,
        parameters_schema,
        kind,
        strict,
        vendor: _,
        origin: _,
    } = tool;
    match kind {
        IrToolKind::Server { native, .. } => out.value(native),
        IrToolKind::Custom { format } => out.object(|out| {
            out.tag("type", "custom");
            out.put_object("custom", |out| {
                out.put("name", name);
                out.put_opt("description", description.as_ref());
                if let Some(format) = format {
                    put_grammar(format, out);
                }
            });
        }),
        _ => out.object(|out| {
            out.tag("type", "function");
            out.put_object("function", |out| {
                out.put("name", name);
                out.put_opt("description", description.as_ref());
                out.put_opt("parameters", parameters_schema.as_ref());
                out.put_opt("strict", strict.as_ref());
            });
        }),
    }
}

/// Writes the form of a free text: a grammar has an object of its own here.
fn put_grammar(format: &Leaf<RawJson>, out: &mut Lowering<'_>) {
    match nested_grammar(format.text()) {
        Some(nested) => {
            let how = How::Converted("grammar_form");
            out.put_as("format", &nested, &[format.origin], &how);
        }
        None => out.put("format", format),
    }
}

fn nested_grammar(flat: &str) -> Option<RawJson> {
    let tape = Tape::parse_str(flat, &Limits::default()).ok()?;
    tape.root().get("syntax")?;
    let mut writer = Writer::default();
    writer.begin_object();
    writer.key("type");
    writer.string("grammar");
    writer.key("grammar");
    writer.begin_object();
    for (key, value) in tape.root().entries() {
        let key = key.as_str()?;
        if key != "type" {
            writer.key(&key);
            writer.raw(value.raw());
        }
    }
    writer.end_object();
    writer.end_object();
    Some(RawJson::trusted(writer.into_text()))
}

/// Writes which tools may be called; without tools the vendor takes neither choice.
fn write_choice(conversation: &IrConversation, out: &mut Lowering<'_>) {
    let settings = &conversation.settings;
    let choice = settings.tool_choice.as_ref();
    let parallel = settings.parallel_tool_calls.as_ref();
    if conversation.tools.is_empty() {
        let origins = [
            choice.map(|choice| choice.origin),
            parallel.map(|leaf| leaf.origin),
        ];
        for origin in origins.into_iter().flatten() {
            out.drop(origin, "choice_without_tools", "there is no tool to choose");
        }
        return;
    }
    if let Some(choice) = choice {
        put_choice(&conversation.tools, choice, out);
    }
    out.put_opt("parallel_tool_calls", parallel);
}

fn put_choice(tools: &[IrToolDefinition], choice: &IrToolChoice, out: &mut Lowering<'_>) {
    let mut word = |word: &str| {
        let how = How::Converted("tool_choice");
        out.put_as("tool_choice", word, &[choice.origin], &how);
    };
    match &choice.mode {
        IrToolChoiceMode::Auto => word("auto"),
        IrToolChoiceMode::None => word("none"),
        IrToolChoiceMode::Required => word("required"),
        IrToolChoiceMode::Named { name } => {
            out.note(choice.origin, How::Converted("tool_choice"));
            let custom = custom_tool_names(tools);
            out.put_object("tool_choice", |out| put_named(&custom, name, out));
        }
        IrToolChoiceMode::Allowed { names, required } => {
            out.note(choice.origin, How::Converted("tool_choice"));
            let custom = custom_tool_names(tools);
            out.put_object("tool_choice", |out| {
                out.tag("type", "allowed_tools");
                out.put_object("allowed_tools", |out| {
                    out.tag("mode", if *required { "required" } else { "auto" });
                    out.put_array("tools", |out| {
                        for name in names {
                            out.object(|out| put_named(&custom, name, out));
                        }
                    });
                });
            });
        }
        IrToolChoiceMode::Other { native } => put_other(native, out),
        _ => out.drop(choice.origin, "tool_choice", "there is no such choice here"),
    }
}

fn put_other(native: &Leaf<RawJson>, out: &mut Lowering<'_>) {
    if out.source().map(abp_dialect::Dialect::family) == Some(WireFamily::Chat) {
        out.put("tool_choice", native);
    } else {
        out.refuse(
            native.origin,
            "tool_choice",
            "the choice exists in the source's dialect only",
        );
    }
}

/// Writes a reference to a tool: its kind, and under that its name.
fn put_named(custom: &HashSet<&str>, name: &Leaf<String>, out: &mut Lowering<'_>) {
    let is_custom = custom.contains(name.as_str());
    let kind = if is_custom { "custom" } else { "function" };
    out.tag("type", kind);
    out.put_object(kind, |out| out.put("name", name));
}
