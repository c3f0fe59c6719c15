//! Writing the messages of a request: what users and tools say, and instructions.

use abp_core::ir::{IrBlock, IrContentBlock, IrMessage, IrRole, Leaf, Origin};
use abp_dialect::{Dialect, How, Lowering, WireFamily};

use super::assistant_out;
use super::media::{self, Part};
use crate::Flavour;

/// What separates texts of a request that have to become one.
pub(super) const PARAGRAPH: &str = "\n\n";

/// A piece of text, and the part of the source it is made of.
#[derive(Debug)]
pub(super) struct Piece<'a> {
    text: &'a str,
    origin: Origin,
    how: How,
    part: Part<'a>,
}

/// Writes the messages of a request.
pub(super) fn write(flavour: &Flavour, messages: &[IrMessage], out: &mut Lowering<'_>) {
    let mut moved = Vec::new();
    for message in messages {
        if message.role != IrRole::Tool {
            write_moved(flavour, &mut moved, out);
        }
        if out.copy_native(message.origin) {
            continue;
        }
        match message.role {
            IrRole::Tool => write_results(flavour, message, &mut moved, out),
            IrRole::Assistant => assistant_out::write_history(flavour, message, out),
            IrRole::Developer => write_spoken(flavour, "developer", message, out),
            IrRole::System => write_spoken(flavour, "system", message, out),
            _ => write_spoken(flavour, "user", message, out),
        }
    }
    write_moved(flavour, &mut moved, out);
}

/// Writes what results held besides text, as something the user says.
fn write_moved(flavour: &Flavour, moved: &mut Vec<&IrBlock>, out: &mut Lowering<'_>) {
    if moved.is_empty() {
        return;
    }
    out.object(|out| {
        out.tag("role", "user");
        out.put_array("content", |out| {
            for block in moved.drain(..) {
                write_part(flavour, block, out);
            }
        });
    });
}

fn write_spoken(flavour: &Flavour, role: &str, message: &IrMessage, out: &mut Lowering<'_>) {
    out.object(|out| {
        out.tag("role", role);
        put_vendor(flavour, message, out);
        let texts = |block: &IrBlock| matches!(block.body, IrContentBlock::Text { .. });
        let one = message.content.len() <= 1 && message.plain;
        if message.content.iter().all(texts) && (one || out.profile().plain_text_only) {
            let pieces = pieces(&message.content, out);
            put_text("content", &pieces, PARAGRAPH, out);
            return;
        }
        out.put_array("content", |out| {
            for block in &message.content {
                write_part(flavour, block, out);
            }
        });
    });
}

/// Writes what a relative says of a message besides its content.
pub(super) fn put_vendor(flavour: &Flavour, message: &IrMessage, out: &mut Lowering<'_>) {
    let related = out.source().map(Dialect::family) == Some(WireFamily::Chat);
    for field in &message.vendor {
        // What was made is meant for this target, whoever the source is.
        let made = matches!(field.value.origin, Origin::Made(_));
        if made || (related && flavour.message_members.contains(&field.name.as_str())) {
            out.put(&field.name, &field.value);
        }
    }
}

/// Writes a part of what a user says.
fn write_part(flavour: &Flavour, block: &IrBlock, out: &mut Lowering<'_>) {
    let part = Part {
        origin: block.origin,
        vendor: &block.vendor,
    };
    match &block.body {
        IrContentBlock::Text { .. } | IrContentBlock::Json { .. } => {
            let pieces = pieces(std::slice::from_ref(block), out);
            write_pieces(&pieces, out);
        }
        IrContentBlock::Image { media, detail } => {
            media::write_image(media, detail.as_ref(), part, out);
        }
        IrContentBlock::Document { media, title } => {
            media::write_document(media, title.as_ref(), part, out);
        }
        IrContentBlock::Audio { media } => media::write_audio(media, part, out),
        IrContentBlock::Video { media } => media::write_video(flavour, media, part, out),
        body => leave_out(block.origin, body, out),
    }
}

/// Remarks on content that has no place where it stands.
pub(super) fn leave_out(origin: Origin, body: &IrContentBlock, out: &mut Lowering<'_>) {
    match body {
        IrContentBlock::Opaque { kind, native } => {
            let reason = format!("{kind} exists in the source's dialect only");
            out.drop(native.origin, kind.clone(), reason);
        }
        _ => out.drop(
            origin,
            "misplaced_content",
            "this content has no place here",
        ),
    }
}

/// The texts among blocks; citations of a request are lost.
pub(super) fn pieces<'a>(blocks: &'a [IrBlock], out: &mut Lowering<'_>) -> Vec<Piece<'a>> {
    blocks
        .iter()
        .filter_map(|block| {
            if let IrContentBlock::Text { citations, .. } = &block.body {
                for citation in citations {
                    out.drop(
                        citation.native.origin,
                        "citation",
                        "requests name no sources",
                    );
                }
            }
            piece(block)
        })
        .collect()
}

pub(super) fn piece(block: &IrBlock) -> Option<Piece<'_>> {
    let (text, origin, how) = match &block.body {
        IrContentBlock::Text { text, .. } => (text.as_str(), text.origin, How::AsIs),
        IrContentBlock::Json { value } => {
            (value.text(), value.origin, How::Converted("json_in_text"))
        }
        _ => return None,
    };
    let part = Part {
        origin: block.origin,
        vendor: &block.vendor,
    };
    Some(Piece {
        text,
        origin,
        how,
        part,
    })
}

/// Writes each text as a part.
pub(super) fn write_pieces(pieces: &[Piece<'_>], out: &mut Lowering<'_>) {
    for piece in pieces {
        piece.part.write("text", out, |out| {
            out.put_as("text", piece.text, &[piece.origin], &piece.how);
        });
    }
}

/// Writes texts as one string.
pub(super) fn put_text(key: &str, pieces: &[Piece<'_>], between: &str, out: &mut Lowering<'_>) {
    match pieces {
        [] => out.tag(key, ""),
        [piece] => out.put_as(key, piece.text, &[piece.origin], &piece.how),
        several => {
            let texts: Vec<_> = several.iter().map(|piece| piece.text).collect();
            let from: Vec<_> = several.iter().map(|piece| piece.origin).collect();
            let how = How::degraded("text_blocks_joined", "several texts became one string");
            out.put_as(key, &texts.join(between), &from, &how);
        }
    }
}

/// Writes the answers of tools: one message each. What is no text follows in a user's message.
fn write_results<'a>(
    flavour: &Flavour,
    message: &'a IrMessage,
    moved: &mut Vec<&'a IrBlock>,
    out: &mut Lowering<'_>,
) {
    for block in &message.content {
        let IrContentBlock::ToolResult {
            tool_use_id,
            name,
            content,
            plain,
            is_error,
        } = &block.body
        else {
            leave_out(block.origin, &block.body, out);
            continue;
        };
        out.object(|out| {
            out.tag("role", "tool");
            out.put_opt("tool_call_id", tool_use_id.as_ref());
            if let Some(name) = name {
                put_result_name(flavour, name, out);
            }
            put_result(content, *plain, is_error.as_ref(), out);
        });
        for block in content.iter().filter(|block| piece(block).is_none()) {
            let how = How::degraded(
                "tool_result_media",
                "an answer of a tool is text; the rest follows as the user's",
            );
            out.note(block.origin, how);
            moved.push(block);
        }
    }
}

fn put_result_name(flavour: &Flavour, name: &Leaf<String>, out: &mut Lowering<'_>) {
    if (flavour.rules)(out.profile()).named_results {
        out.put("name", name);
    } else {
        // The call with the same id names it.
        out.note(name.origin, How::Converted("named_by_call"));
    }
}

fn put_result(
    content: &[IrBlock],
    plain: bool,
    is_error: Option<&Leaf<bool>>,
    out: &mut Lowering<'_>,
) {
    let pieces = pieces(content, out);
    if let Some(failed) = is_error {
        if failed.value {
            put_failure(&pieces, failed, out);
            return;
        }
        out.note(failed.origin, How::Converted("no_error"));
    }
    let lone_json = matches!(pieces.as_slice(), [piece] if piece.how != How::AsIs);
    let one = pieces.len() <= 1 && (plain || lone_json);
    if pieces.is_empty() && !content.is_empty() {
        let text = "The result follows in the next message.";
        out.made(
            "content",
            text,
            "tool_result_media",
            "the answer is no text",
        );
    } else if one || pieces.is_empty() || out.profile().plain_text_only {
        put_text("content", &pieces, PARAGRAPH, out);
    } else {
        out.put_array("content", |out| write_pieces(&pieces, out));
    }
}

/// Says in the text itself that a tool failed.
fn put_failure(pieces: &[Piece<'_>], failed: &Leaf<bool>, out: &mut Lowering<'_>) {
    let texts: Vec<_> = pieces.iter().map(|piece| piece.text).collect();
    let mut from = vec![failed.origin];
    from.extend(pieces.iter().map(|piece| piece.origin));
    let how = How::emulated("tool_error", "no member marks an error; the text says so");
    let text = format!("Error: {}", texts.join(PARAGRAPH));
    out.put_as("content", &text, &from, &how);
}
