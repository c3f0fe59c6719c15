//! Writing a request.

use abp_core::ir::{
    IrBlock, IrConversation, IrMessage, IrRole, IrToolDefinition, IrToolKind, Origin,
};
use abp_dialect::{Dialect, How, Lowering};

use super::content_out::{Side, write_blocks, write_contents};
use super::settings_out::{drop_settings, write_settings};
use crate::dialect::Family;
use crate::schema::{self, Place};
use crate::wire::vendor;

/// Writes a request. The model and the choice of a stream are part of the address.
pub(crate) fn write_request(conversation: &IrConversation, out: &mut Lowering<'_>) {
    let IrConversation {
        messages,
        tools,
        settings,
        usage: _,
    } = conversation;
    let model = out.profile().model.as_deref();
    let model = model.or(settings.model.as_ref().map(|model| model.value.as_str()));
    let side = Side {
        family: Family::of(model),
        answer: false,
        own: out.source() == Some(Dialect::Gemini),
    };
    let leading = messages
        .iter()
        .take_while(|message| is_instruction(message));
    let (instructions, rest) = messages
        .split_at_checked(leading.count())
        .unwrap_or_default();
    out.object(|out| {
        let mut except = vec!["contents"];
        if !instructions.is_empty() {
            except.extend(["systemInstruction", "system_instruction"]);
        }
        if !tools.is_empty() {
            except.push("tools");
        }
        let copied = out.copy_native_members(&except);
        write_instructions(instructions, side, out);
        write_list(
            "contents",
            rest.first().map(|message| message.origin),
            out,
            |out| {
                write_contents(rest, side, out);
            },
        );
        if let Some(first) = tools.first() {
            write_list("tools", Some(first.origin), out, |out| {
                write_tools(tools, side, out);
            });
        }
        if !copied {
            write_settings(settings, !tools.is_empty(), side, out);
        }
    });
    if !out.native() {
        drop_settings(settings, out);
    }
}

/// Writes a list; as a single value where the source has one instead and it is copied.
fn write_list<'s>(
    key: &str,
    first: Option<Origin>,
    out: &mut Lowering<'s>,
    fill: impl FnOnce(&mut Lowering<'s>),
) {
    out.key(key);
    let single = out.native() && first.is_some_and(|first| out.source_key(first).is_some());
    if single {
        fill(out);
    } else {
        out.array(fill);
    }
}

fn is_instruction(message: &IrMessage) -> bool {
    matches!(message.role, IrRole::System | IrRole::Developer)
}

fn write_instructions(messages: &[IrMessage], side: Side, out: &mut Lowering<'_>) {
    if messages.is_empty() {
        return;
    }
    if let [only] = messages
        && out.native()
        && let Some(key) = out.source_key(only.origin)
    {
        out.key(&key);
        out.copy_native(only.origin);
        return;
    }
    out.key("systemInstruction");
    let blocks = messages.iter().flat_map(|message| &message.content);
    let blocks: Vec<&IrBlock> = blocks.collect();
    out.object(|out| out.put_array("parts", |out| write_blocks(&blocks, side, out)));
}

/// Writes the tools: functions that follow each other share one object, as this vendor has them.
fn write_tools(tools: &[IrToolDefinition], side: Side, out: &mut Lowering<'_>) {
    let mut copied = None;
    let same = |left: &IrToolDefinition, right: &IrToolDefinition| {
        is_function(left) && is_function(right) && (!side.own || left.origin == right.origin)
    };
    for group in tools.chunk_by(same) {
        let Some(first) = group.first() else {
            continue;
        };
        let origin = Some(first.origin).filter(|origin| matches!(origin, Origin::Node(_)));
        if origin.is_some() && origin == copied {
            continue;
        }
        if out.copy_native(first.origin) {
            copied = origin;
            continue;
        }
        match &first.kind {
            IrToolKind::Server { kind, native } if side.own => {
                out.object(|out| out.put(kind, native));
            }
            IrToolKind::Server { kind, native } => {
                let reason = format!("{kind} is carried out by another vendor");
                out.refuse(native.origin, "server_tool", reason);
                refuse_rest(first, "server_tool", out);
            }
            IrToolKind::Custom { .. } => refuse_rest(first, "custom_tool", out),
            _ => out.object(|out| {
                out.put_array("functionDeclarations", |out| {
                    for function in group {
                        write_function(function, side, out);
                    }
                });
            }),
        }
    }
}

fn is_function(tool: &IrToolDefinition) -> bool {
    matches!(tool.kind, IrToolKind::Function)
}

/// Refuses a tool as a whole.
fn refuse_rest(tool: &IrToolDefinition, label: &'static str, out: &mut Lowering<'_>) {
    let reason = format!("Gemini has no tool like {}", tool.name.value);
    out.refuse(tool.origin, label, reason);
}

fn write_function(function: &IrToolDefinition, side: Side, out: &mut Lowering<'_>) {
    let IrToolDefinition {
        name,
        description,
        parameters_schema,
        kind: _,
        strict,
        vendor: fields,
        origin: _,
    } = function;
    out.object(|out| {
        out.put("name", name);
        out.put_opt("description", description.as_ref());
        if let Some(parameters) = parameters_schema {
            schema::write(parameters, Place::Parameters, side.family, out);
        }
        if side.own {
            out.put_vendor(fields, |_, name| vendor::DECLARATION.contains(&name));
        }
    });
    match strict {
        Some(strict) if strict.value => out.drop(
            strict.origin,
            "strict",
            "Gemini cannot be told to follow a tool's schema exactly",
        ),
        Some(strict) => out.note(strict.origin, How::Converted("strict_default")),
        None => {}
    }
}
