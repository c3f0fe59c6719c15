//! The events of a written stream.

use abp_core::ir::{IrBlockStart, IrCitation, IrError, Leaf, Origin};
use abp_dialect::{EventSink, Fate, How, Lowering};
use abp_json::push_string;

use crate::lowering::{self, constant};

/// The block whose turn it is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Current {
    pub(super) block: u32,
    pub(super) index: u64,
    pub(super) form: Form,
}

/// What the pieces of a block are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    Text,
    Refusal,
    Thinking,
    /// Arguments as JSON.
    Input,
    /// Free text that becomes the one argument of a call.
    FreeText,
    /// The block came whole.
    Whole,
}

pub(super) fn write_error(error: &IrError, out: &mut EventSink<'_>) {
    out.event(Some("error"), |out| {
        lowering::write_error_members(error, out);
    });
}

pub(super) fn write_start(start: &IrBlockStart, out: &mut Lowering<'_>) {
    if let IrBlockStart::Opaque { native, .. } = start {
        out.value(native);
        return;
    }
    out.object(|out| match start {
        IrBlockStart::Thinking {
            kind: _,
            item_id,
            encrypted,
        } => {
            out.tag("type", "thinking");
            out.tag("thinking", "");
            out.tag("signature", "");
            if let Some(item_id) = item_id {
                out.drop(item_id.origin, "item_id", "reasoning has no id here");
            }
            if let Some(encrypted) = encrypted {
                let reason = "only its own vendor can read it";
                out.drop(encrypted.origin, "encrypted_reasoning", reason);
            }
        }
        IrBlockStart::RedactedThinking { data } => {
            out.tag("type", "redacted_thinking");
            out.put("data", data);
        }
        IrBlockStart::ToolUse {
            id,
            name,
            custom: _,
            item_id,
        } => {
            out.tag("type", "tool_use");
            match id {
                Some(id) => out.put("id", id),
                None => out.made(
                    "id",
                    "toolu_0",
                    "tool_id",
                    "the source gives the call no id",
                ),
            }
            out.put("name", name);
            out.tag("input", &constant("{}"));
            if let Some(item_id) = item_id {
                out.drop(item_id.origin, "item_id", "a call has one id here");
            }
        }
        _ => {
            out.tag("type", "text");
            out.tag("text", "");
        }
    });
}

/// Writes a piece of what the block is made of; an empty one says nothing.
pub(super) fn write_piece(current: Current, text: &Leaf<String>, out: &mut EventSink<'_>) {
    if text.is_empty() {
        out.carried(text.origin);
        return;
    }
    let refused = How::degraded("refusal", "the vendor has no form for a refusal but text");
    let (kind, member, how) = match current.form {
        Form::Text => ("text_delta", "text", How::AsIs),
        Form::Refusal => ("text_delta", "text", refused),
        Form::Thinking => ("thinking_delta", "thinking", How::AsIs),
        Form::Input => ("input_json_delta", "partial_json", How::AsIs),
        Form::FreeText => {
            let escaped = escape(text);
            write_delta(current, "input_json_delta", out, |out| {
                let how = How::emulated("custom_tool", "the vendor's tools take JSON only");
                out.put_as("partial_json", &escaped, &[text.origin], &how);
            });
            return;
        }
        Form::Whole => {
            drop_part(
                text.origin,
                "foreign_content",
                "the block was complete",
                out,
            );
            return;
        }
    };
    write_delta(current, kind, out, |out| {
        out.put_as(member, &text.value, &[text.origin], &how);
    });
}

pub(super) fn write_json_piece(current: Current, json: &'static str, out: &mut EventSink<'_>) {
    write_delta(current, "input_json_delta", out, |out| {
        out.tag("partial_json", json);
    });
}

pub(super) fn write_signature(current: Current, signature: &Leaf<String>, out: &mut EventSink<'_>) {
    write_delta(current, "signature_delta", out, |out| {
        out.put("signature", signature);
    });
}

pub(super) fn write_citation(current: Current, citation: &IrCitation, out: &mut EventSink<'_>) {
    write_delta(current, "citations_delta", out, |out| {
        out.key("citation");
        lowering::write_citation(citation, out);
    });
}

fn write_delta(
    current: Current,
    kind: &'static str,
    out: &mut EventSink<'_>,
    fill: impl FnOnce(&mut Lowering<'_>),
) {
    out.event(Some("content_block_delta"), |out| {
        out.tag("type", "content_block_delta");
        out.tag("index", &current.index);
        out.put_object("delta", |out| {
            out.tag("type", kind);
            fill(out);
        });
    });
}

/// A text as it stands within a JSON string.
fn escape(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    push_string(&mut quoted, text);
    quoted.pop();
    quoted.split_off(1)
}

/// Leaves a part of the source out.
pub(super) fn drop_part(
    origin: Origin,
    label: &'static str,
    reason: &'static str,
    out: &mut EventSink<'_>,
) {
    let (label, reason) = (label.into(), reason.into());
    out.remark(origin, Fate::Dropped { label, reason });
}
