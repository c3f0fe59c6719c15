//! Undoing in an answer what its request's translation did.

use abp_core::ir::{IrContentBlock, IrMessage, IrResponse, IrToolInput, Leaf, Origin};
use abp_dialect::{Exchange, Fate, How, Note};
use abp_json::{Limits, Tape};

use crate::stop::cut_response;

/// Gives the caller its own names, ids and tools of free text back, and ends the answer where the
/// caller wanted it to.
pub fn restore_response(response: &mut IrResponse, exchange: &Exchange) -> Vec<Note> {
    let mut notes = Vec::new();
    for choice in &mut response.choices {
        if restore_message(&mut choice.message, exchange, &mut notes) {
            choice.origin = Origin::Host;
        }
    }
    cut_response(response, &exchange.stop_at, &mut notes);
    notes
}

fn restore_message(message: &mut IrMessage, exchange: &Exchange, notes: &mut Vec<Note>) -> bool {
    let mut changed = false;
    for block in &mut message.content {
        let IrContentBlock::ToolUse {
            id, name, input, ..
        } = &mut block.body
        else {
            continue;
        };
        changed |= restore_name(name, exchange, notes);
        if let Some(id) = id
            && let Some(source) = exchange.tool_ids.get(&id.value)
        {
            note(notes, id.origin, "tool_id_mapped");
            id.value.clone_from(source);
            changed = true;
        }
        if exchange.custom_tools.contains(&name.value)
            && let IrToolInput::Json(json) = input
            && let Some(text) = unwrap_input(json.text())
        {
            note(notes, json.origin, "custom_tool_input");
            *input = IrToolInput::Text(json.with(text));
            changed = true;
        }
    }
    if changed {
        message.origin = Origin::Host;
    }
    changed
}

/// Gives a tool its caller's name back; tells whether it had another.
pub(crate) fn restore_name(
    name: &mut Leaf<String>,
    exchange: &Exchange,
    notes: &mut Vec<Note>,
) -> bool {
    let Some(source) = exchange.tool_names.get(&name.value) else {
        return false;
    };
    note(notes, name.origin, "tool_name_mapped");
    name.value.clone_from(source);
    true
}

/// The text in `{"input": "text"}`; `None` where it is anything else.
pub(crate) fn unwrap_input(json: &str) -> Option<String> {
    let tape = Tape::parse_str(json, &Limits::default()).ok()?;
    let input = tape.root().get("input")?;
    (tape.root().len() == 1).then(|| input.as_str().map(std::borrow::Cow::into_owned))?
}

/// Remarks that a value was given its caller's form back.
pub(crate) fn note(notes: &mut Vec<Note>, origin: Origin, label: &'static str) {
    if matches!(origin, Origin::Node(_)) {
        notes.push(Note {
            origin,
            fate: Fate::Carried(How::Converted(label)),
        });
    }
}
