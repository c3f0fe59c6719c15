//! Reading messages: those of a request, and that of an answer.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMessage, IrRange, IrRole, IrThinkingKind, IrToolInput,
    Leaf, Origin, RawJson,
};
use abp_dialect::{DialectError, How, Item};
use abp_json::{Kind, Limits, Tape};

use super::{media, shape, unplaced};
use crate::{Flavour, wire};

/// The members that hold reasoning; the second is the name of some compatible servers, the third
/// Copilot's.
pub(crate) const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "reasoning_text"];

/// Reads a message of a request.
pub(super) fn read(flavour: &Flavour, message: Item<'_>) -> Result<IrMessage, DialectError> {
    let message = message.object()?;
    let role = message.need("role")?;
    let word = role.tag().ok_or_else(|| role.wrong("a string"))?;
    match wire::role(&word) {
        Some(IrRole::Tool) => tool_result(flavour, message),
        Some(IrRole::Assistant) => assistant(flavour, message),
        Some(known) => spoken(flavour, message, known),
        None => {
            role.taken();
            role.note(How::degraded(
                "message_role",
                "nobody knows this role; the user says it",
            ));
            spoken(flavour, message, IrRole::User)
        }
    }
}

fn spoken(flavour: &Flavour, message: Item<'_>, role: IrRole) -> Result<IrMessage, DialectError> {
    let mut blocks = Vec::new();
    let plain = content(message, &mut blocks)?;
    Ok(found(flavour, message, role, blocks, plain))
}

fn found(
    flavour: &Flavour,
    message: Item<'_>,
    role: IrRole,
    content: Vec<IrBlock>,
    plain: bool,
) -> IrMessage {
    let mut vendor = message.vendor_fields(flavour.message_members);
    vendor.extend(message.vendor_fields(wire::COMPATIBLE_MESSAGE_MEMBERS));
    IrMessage {
        role,
        content,
        plain,
        vendor,
        origin: message.origin(),
    }
}

fn tool_result(flavour: &Flavour, message: Item<'_>) -> Result<IrMessage, DialectError> {
    let mut blocks = Vec::new();
    let plain = content(message, &mut blocks)?;
    let tool_use_id = message.opt_text("tool_call_id")?;
    let mut vendor = message.vendor_fields(flavour.message_members);
    vendor.retain(|field| field.name != "name");
    let result = IrContentBlock::ToolResult {
        tool_use_id,
        name: message.opt_text("name")?,
        content: blocks,
        plain,
        is_error: None,
    };
    Ok(IrMessage {
        role: IrRole::Tool,
        content: vec![block(message, result)],
        plain: false,
        vendor,
        origin: message.origin(),
    })
}

/// Reads what an assistant said; the parts that have members of their own come in a fixed order.
pub(super) fn assistant(flavour: &Flavour, message: Item<'_>) -> Result<IrMessage, DialectError> {
    let mut blocks = Vec::new();
    reasoning(flavour, message, &mut blocks)?;
    let calls = tool_calls(message)?;
    let plain = match message.some("content") {
        Some(text) if !calls.is_empty() && text.view().string_source() == Some("") => {
            text.structure();
            false
        }
        _ => content(message, &mut blocks)?,
    };
    annotations(message, &mut blocks)?;
    if let Some(refusal) = message.some("refusal") {
        let text = refusal.text()?;
        if text.is_empty() {
            refusal.structure();
        } else {
            blocks.push(block(refusal, IrContentBlock::Refusal { text }));
        }
    }
    blocks.extend(calls);
    Ok(found(flavour, message, IrRole::Assistant, blocks, plain))
}

fn block(item: Item<'_>, body: IrContentBlock) -> IrBlock {
    IrBlock {
        origin: item.origin(),
        ..body.into()
    }
}

/// Reads reasoning. Where it may be sent back, an empty one is not the same as none.
fn reasoning(
    flavour: &Flavour,
    message: Item<'_>,
    blocks: &mut Vec<IrBlock>,
) -> Result<(), DialectError> {
    let texts = REASONING
        .iter()
        .filter_map(|key| Some((key, message.some(key)?)))
        .filter(|(_, item)| item.kind() == Kind::String);
    let mut first: Option<Leaf<String>> = None;
    for (key, item) in texts {
        let text = item.text()?;
        match &first {
            Some(first) if *first == text => item.repeats(),
            None if !text.is_empty() || flavour.replays_reasoning => {
                blocks.push(block(
                    item,
                    IrContentBlock::Thinking {
                        text: text.clone(),
                        kind: IrThinkingKind::Raw,
                        signature: None,
                        encrypted: None,
                        item_id: None,
                    },
                ));
                first = Some(text);
            }
            None => item.structure(),
            Some(_) => drop(item.vendor(key)),
        }
    }
    Ok(())
}

/// Reads content; tells whether it was one string.
fn content(message: Item<'_>, blocks: &mut Vec<IrBlock>) -> Result<bool, DialectError> {
    let Some(content) = message.some("content") else {
        return Ok(false);
    };
    if content.kind() == Kind::String {
        let text = IrContentBlock::text(content.text()?);
        blocks.push(block(content, text));
        return Ok(true);
    }
    if content.kind() != Kind::Array {
        return Err(content.wrong("a string or an array"));
    }
    for part in content.items() {
        blocks.push(read_part(part)?);
    }
    Ok(false)
}

/// Reads one part of content.
pub(crate) fn read_part(part: Item<'_>) -> Result<IrBlock, DialectError> {
    let part = part.object()?;
    let kind = part.tag_of("type").unwrap_or_default();
    let body = match &*kind {
        "text" => IrContentBlock::text(part.need("text")?.text()?),
        "refusal" => IrContentBlock::Refusal {
            text: part.need("refusal")?.text()?,
        },
        "image_url" => media::read_image(part.need("image_url")?)?,
        "input_audio" => media::read_audio(part.need("input_audio")?)?,
        "file" => media::read_file(part.need("file")?)?,
        "video_url" => media::read_video(part.need("video_url")?)?,
        other => IrContentBlock::Opaque {
            kind: other.to_owned(),
            native: part.raw(),
        },
    };
    let vendor = match body {
        IrContentBlock::Opaque { .. } => Vec::new(),
        _ => part.vendor_fields(wire::PART_MEMBERS),
    };
    Ok(IrBlock {
        vendor,
        ..block(part, body)
    })
}

/// Reads the sources of an answer; they belong to its text.
fn annotations(message: Item<'_>, blocks: &mut [IrBlock]) -> Result<(), DialectError> {
    let Some(list) = message
        .some("annotations")
        .filter(|list| !list.view().is_empty())
    else {
        return Ok(());
    };
    let text = blocks
        .iter_mut()
        .rev()
        .find_map(|block| match &mut block.body {
            IrContentBlock::Text { citations, .. } => Some(citations),
            _ => None,
        });
    match text {
        Some(citations) => {
            for annotation in list.array()? {
                citations.push(read_citation(annotation)?);
            }
        }
        None => unplaced(message, &["annotations"]),
    }
    Ok(())
}

/// Reads a source that an answer names.
pub(crate) fn read_citation(annotation: Item<'_>) -> Result<IrCitation, DialectError> {
    let Some(named) = annotation.some("url_citation") else {
        return Ok(IrCitation {
            url: None,
            title: None,
            quote: None,
            range: None,
            native: annotation.raw(),
        });
    };
    shape(annotation, &["type"]);
    // Half a range is none.
    let range = match named.some("start_index").zip(named.some("end_index")) {
        Some((start, end)) => Some(IrRange {
            start: start.count()?,
            end: end.count()?,
        }),
        None => None,
    };
    Ok(IrCitation {
        url: named.opt_text("url")?,
        title: named.opt_text("title")?,
        quote: named.opt_text("content")?,
        range,
        native: Leaf::new(
            RawJson::trusted(annotation.view().raw()),
            annotation.origin(),
        ),
    })
}

fn tool_calls(message: Item<'_>) -> Result<Vec<IrBlock>, DialectError> {
    let mut calls = Vec::new();
    if let Some(list) = message.some("tool_calls") {
        for call in list.array()? {
            calls.push(tool_call(call.object()?)?);
        }
    }
    if let Some(call) = message.some("function_call") {
        let name = call.object()?.need("name")?;
        if name.view().string_source() == Some("") {
            // Some servers fill in every member they know; a call without a name is none.
            call.structure();
        } else {
            calls.push(block(call, called(None, call, false)?));
        }
    }
    Ok(calls)
}

fn tool_call(call: Item<'_>) -> Result<IrBlock, DialectError> {
    let kind = call.tag_of("type");
    shape(call, &["index"]);
    let body = match (call.some("function"), call.some("custom")) {
        (Some(function), _) => called(read_id(call)?, function, false)?,
        (None, Some(custom)) => called(read_id(call)?, custom, true)?,
        (None, None) => IrContentBlock::Opaque {
            kind: kind.unwrap_or_default().into_owned(),
            native: call.raw(),
        },
    };
    let mut found = block(call, body);
    if let IrContentBlock::ToolUse { signature, .. } = &mut found.body {
        *signature = thought_signature(call)?;
    }
    Ok(found)
}

/// The id of a call; an empty one is none.
pub(crate) fn read_id(call: Item<'_>) -> Result<Option<Leaf<String>>, DialectError> {
    let Some(item) = call.some("id") else {
        return Ok(None);
    };
    let id = item.text()?;
    if id.is_empty() {
        item.structure();
        return Ok(None);
    }
    Ok(Some(id))
}

/// Gemini's proof of the reasoning behind a call, where Google's own compatible server puts it.
pub(crate) fn thought_signature(call: Item<'_>) -> Result<Option<Leaf<String>>, DialectError> {
    let google = call
        .some("extra_content")
        .and_then(|extra| extra.some("google"));
    match google {
        Some(google) => google.opt_text("thought_signature"),
        None => Ok(None),
    }
}

fn called(
    id: Option<Leaf<String>>,
    call: Item<'_>,
    custom: bool,
) -> Result<IrContentBlock, DialectError> {
    let input = if custom {
        IrToolInput::Text(call.need("input")?.text()?)
    } else {
        arguments(call)?
    };
    Ok(IrContentBlock::ToolUse {
        id,
        name: call.need("name")?.text()?,
        input,
        item_id: None,
        signature: None,
    })
}

/// Reads arguments: JSON in a string. What is none is kept as what it is.
fn arguments(call: Item<'_>) -> Result<IrToolInput, DialectError> {
    let empty = |origin| IrToolInput::Json(Leaf::new(RawJson::trusted("{}"), origin));
    let Some(item) = call.some("arguments") else {
        return Ok(empty(Origin::Host));
    };
    if item.kind() == Kind::Object {
        // Some local servers forget the string around them.
        item.note(How::Converted("json_in_text"));
        return Ok(IrToolInput::Json(item.raw()));
    }
    let text = item.text()?;
    if text.trim().is_empty() {
        item.note(How::Converted("empty_arguments"));
        return Ok(empty(text.origin));
    }
    let object = Tape::parse_str(&text, &Limits::default())
        .is_ok_and(|tape| tape.root().kind() == Kind::Object);
    Ok(if object {
        let origin = text.origin;
        IrToolInput::Json(Leaf::new(RawJson::trusted(text.value), origin))
    } else {
        IrToolInput::Invalid(text)
    })
}
