//! Writing requests.

use std::collections::HashSet;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrMessage, IrRole, IrSettings, IrToolChoiceMode,
    IrToolDefinition, IrToolKind, Leaf, Origin, RawJson,
};
use abp_dialect::{How, Lowering};
use abp_json::{Limits, Tape};

use super::content_out::{Place, admit, write_block, write_content};
use super::settings_out::{Request, asks_for_json, write_settings};
use super::{constant, is_own, put_own};
use crate::dialect::{Target, WireVersion};
use crate::wire;

/// What asks for JSON where no schema can.
const JSON_INSTRUCTION: &str = "Answer with one JSON object and nothing else.";

/// Writes a request.
pub(crate) fn write_request(conversation: &IrConversation, out: &mut Lowering<'_>) {
    let IrConversation {
        messages,
        tools,
        settings,
        usage: _,
    } = conversation;
    let asked = out.profile().model.as_deref();
    let model = asked.or(settings.model.as_deref().map(String::as_str));
    let target = Target::new(model, out.profile());
    let leading = messages
        .iter()
        .take_while(|message| is_leading(message, out))
        .count();
    let (instructions, turns) = messages.split_at_checked(leading).unwrap_or_default();
    let tools = choose_tools(tools, settings, out);
    out.object(|out| {
        if out.native() && fits_version(settings, &target) {
            copy_settings(instructions, &tools, out);
        } else {
            let request = Request {
                settings,
                turns,
                has_tools: !tools.is_empty(),
                target,
            };
            write_settings(&request, out);
        }
        write_system(instructions, settings, out);
        out.put_array("messages", |out| write_turns(turns, target.version, out));
        if !tools.is_empty() {
            out.put_array("tools", |out| {
                for tool in tools {
                    write_tool(tool, out);
                }
            });
        }
    });
}

/// Copies everything that is no section, or a section that the representation has no trace of.
fn copy_settings(instructions: &[IrMessage], tools: &[&IrToolDefinition], out: &mut Lowering<'_>) {
    let mut sections = vec!["messages"];
    if !instructions.is_empty() {
        sections.push("system");
    }
    if !tools.is_empty() {
        sections.push("tools");
    }
    out.copy_native_members(&sections);
}

/// Whether settings of this dialect can stay as they are in this version of the wire.
fn fits_version(settings: &IrSettings, target: &Target) -> bool {
    let sampled =
        settings.temperature.is_some() || settings.top_p.is_some() || settings.top_k.is_some();
    target.version == WireVersion::V2023 || !sampled
}

/// Whether a message belongs outside the conversation. What the source itself has within the
/// conversation stays there.
fn is_leading(message: &IrMessage, out: &Lowering<'_>) -> bool {
    let within = out.native() && out.member(message.origin, "role") != message.origin;
    matches!(message.role, IrRole::System | IrRole::Developer) && !within
}

/// Writes the instructions: as a string where there is one plain message, else as blocks.
fn write_system(instructions: &[IrMessage], settings: &IrSettings, out: &mut Lowering<'_>) {
    let wants_json = !out.native() && asks_for_json(settings);
    if let ([message], false) = (instructions, wants_json) {
        out.key("system");
        if !out.copy_native(message.origin) {
            write_instruction(message, out);
        }
        return;
    }
    if instructions.is_empty() && !wants_json {
        return;
    }
    out.put_array("system", |out| {
        for message in instructions {
            write_instruction_blocks(message, out);
        }
        if wants_json {
            write_json_instruction(settings, out);
        }
    });
}

/// Writes the value of `system`. Unlike a block, a string may be empty.
fn write_instruction(message: &IrMessage, out: &mut Lowering<'_>) {
    match message.content.as_slice() {
        [
            IrBlock {
                body: IrContentBlock::Text { text, .. },
                vendor,
                ..
            },
        ] if message.plain && vendor.is_empty() => out.value(text),
        blocks => {
            let blocks = admitted(blocks, Place::Instructions, out);
            out.array(|out| {
                for block in blocks {
                    write_block(block, Place::Instructions, out);
                }
            });
        }
    }
}

fn write_instruction_blocks(message: &IrMessage, out: &mut Lowering<'_>) {
    // Only a message that is one block of the source can be copied as a block.
    let block = message.content.first().map(|block| block.origin);
    if block == Some(message.origin) && out.copy_native(message.origin) {
        return;
    }
    for block in admitted(&message.content, Place::Instructions, out) {
        write_block(block, Place::Instructions, out);
    }
}

fn write_json_instruction(settings: &IrSettings, out: &mut Lowering<'_>) {
    let origin = settings
        .response_format
        .as_ref()
        .map(|format| format.origin);
    let reason = "the vendor wants a schema for JSON; an instruction asks for it instead";
    out.object(|out| {
        out.tag("type", "text");
        let how = How::emulated("json_object", reason);
        out.put_as(
            "text",
            JSON_INSTRUCTION,
            &[origin.unwrap_or_default()],
            &how,
        );
    });
}

fn admitted<'b>(
    blocks: impl IntoIterator<Item = &'b IrBlock>,
    place: Place,
    out: &mut Lowering<'_>,
) -> Vec<&'b IrBlock> {
    let mut kept = Vec::new();
    for block in blocks {
        if admit(block, place, out) {
            kept.push(block);
        }
    }
    kept
}

/// Writes the conversation. Answers to calls and what the user says next are one message.
fn write_turns(turns: &[IrMessage], version: WireVersion, out: &mut Lowering<'_>) {
    let mut rest = turns;
    while let Some((turn, after)) = rest.split_at_checked(turn_length(rest)) {
        if turn.is_empty() {
            return;
        }
        if !copy_turn(turn, version, out) {
            write_turn(turn, version, out);
        }
        rest = after;
    }
}

fn turn_length(messages: &[IrMessage]) -> usize {
    let results = messages
        .iter()
        .take_while(|message| message.role == IrRole::Tool)
        .count();
    let next = messages.get(results).map(|message| message.role);
    match (results, next) {
        (0, _) => messages.len().min(1),
        (_, Some(IrRole::User)) => results + 1,
        _ => results,
    }
}

/// Copies a turn where none of it was changed. Messages that were one message in the source are
/// copied once.
fn copy_turn(turn: &[IrMessage], version: WireVersion, out: &mut Lowering<'_>) -> bool {
    let unchanged = turn.iter().all(|message| {
        matches!(message.origin, Origin::Node(_))
            && (version == WireVersion::V2023 || newest_takes(message))
    });
    if !unchanged || !out.native() {
        return false;
    }
    let mut previous = Origin::Host;
    for message in turn {
        if message.origin != previous {
            out.copy_native(message.origin);
        }
        previous = message.origin;
    }
    true
}

/// Whether a message obeys what is new in the newest version of the wire.
fn newest_takes(message: &IrMessage) -> bool {
    !message.content.iter().any(|block| match &block.body {
        IrContentBlock::Text { citations, .. } => {
            message.role == IrRole::User && !citations.is_empty()
        }
        IrContentBlock::Document { .. } => message.role == IrRole::Assistant,
        _ => false,
    })
}

fn write_turn(turn: &[IrMessage], version: WireVersion, out: &mut Lowering<'_>) {
    let (role, place) = match turn.first().map(|message| message.role) {
        Some(IrRole::Assistant) => ("assistant", Place::Assistant(version)),
        Some(IrRole::System | IrRole::Developer) => ("system", Place::Instructions),
        _ => ("user", Place::User(version)),
    };
    let blocks = turn.iter().flat_map(|message| &message.content);
    let blocks = admitted(blocks, place, out);
    if blocks.is_empty() {
        for message in turn {
            let reason = "nothing is left of the message that the vendor would take";
            out.drop(message.origin, "empty_message", reason);
        }
        return;
    }
    let plain = matches!(turn, [message] if message.plain);
    out.object(|out| {
        out.tag("role", role);
        write_content("content", &blocks, plain, place, out);
        for message in turn {
            put_own(&message.vendor, out);
        }
    });
}

/// The tools that the vendor can be told of and that the choice allows.
fn choose_tools<'t>(
    tools: &'t [IrToolDefinition],
    settings: &IrSettings,
    out: &mut Lowering<'_>,
) -> Vec<&'t IrToolDefinition> {
    let allowed = match settings.tool_choice.as_ref().map(|choice| &choice.mode) {
        Some(IrToolChoiceMode::Allowed { names, .. }) => {
            let names = names.iter().map(|name| name.value.as_str());
            Some(names.collect::<HashSet<_>>())
        }
        _ => None,
    };
    let own = is_own(out.source());
    let mut chosen = Vec::new();
    for tool in tools {
        let name = tool.name.value.as_str();
        if allowed.as_ref().is_some_and(|names| !names.contains(name)) {
            let reason = "the choice leaves it out, and the vendor has no other way to say so";
            out.drop(tool.origin, "allowed_tools", reason);
            continue;
        }
        match &tool.kind {
            IrToolKind::Function => chosen.push(tool),
            IrToolKind::Server { .. } if own => chosen.push(tool),
            IrToolKind::Server { kind, native } => {
                let reason = format!("{kind:?} is a tool that another vendor carries out");
                out.refuse(native.origin, "server_tool", reason);
            }
            _ => out.refuse(
                tool.origin,
                "custom_tool",
                "the vendor's tools take JSON only",
            ),
        }
    }
    chosen
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
        origin: _,
    } = tool;
    if let IrToolKind::Server { native, .. } = kind {
        out.value(native);
        return;
    }
    out.object(|out| {
        out.put("name", name);
        out.put_opt("description", description.as_ref());
        match parameters_schema {
            Some(schema) => write_schema(schema, out),
            None => out.tag("input_schema", &constant(wire::NO_ARGUMENTS)),
        }
        out.put_opt("strict", strict.as_ref());
        put_own(vendor, out);
    });
}

/// Writes a tool's schema. The vendor wants it to say that it describes an object.
fn write_schema(schema: &Leaf<RawJson>, out: &mut Lowering<'_>) {
    match typed(schema.text()) {
        None => out.put("input_schema", schema),
        Some(typed) => {
            let how = How::Converted("schema_type");
            out.put_as("input_schema", &typed, &[schema.origin], &how);
        }
    }
}

/// The schema with the type of an object, where it has no type.
fn typed(schema: &str) -> Option<RawJson> {
    let tape = Tape::parse_str(schema, &Limits::default()).ok()?;
    let root = tape.root();
    if root.is_empty() {
        return Some(constant(wire::NO_ARGUMENTS));
    }
    if root.get("type").is_some() {
        return None;
    }
    let members = schema.trim_start().strip_prefix('{')?;
    Some(RawJson::trusted(format!(r#"{{"type":"object",{members}"#)))
}
