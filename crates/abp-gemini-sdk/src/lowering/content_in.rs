//! Reading what is said: contents and their parts.

use abp_core::ir::{
    IrBlock, IrContentBlock, IrMessage, IrRole, IrThinkingKind, IrToolInput, IrVendorField, Leaf,
    Origin, RawJson,
};
use abp_dialect::{DialectError, Item};
use abp_json::Kind;

use super::media::{read_file, read_inline};
use crate::wire::{Fields, SIGNATURE, is_named, vendor};

/// Reads instructions: one message, whatever their role.
pub(super) fn read_instructions(item: Item<'_>) -> Result<Option<IrMessage>, DialectError> {
    if item.kind() == Kind::String {
        let content = vec![block(IrContentBlock::text(item.text()?), item)];
        return Ok(Some(message(IrRole::System, content, item)));
    }
    let fields = Fields::of(item)?;
    if let Some(role) = fields.get("role") {
        role.structure();
    }
    let content = read_parts(fields)?;
    Ok((!content.is_empty()).then(|| message(IrRole::System, content, item)))
}

/// Reads one content: a message, or two where answers of tools are among its parts.
pub(super) fn read_content(
    item: Item<'_>,
    messages: &mut Vec<IrMessage>,
) -> Result<(), DialectError> {
    let fields = Fields::of(item)?;
    let (role, vendor) = read_role(fields);
    let mut results = Vec::new();
    let mut rest = Vec::new();
    for block in read_parts(fields)? {
        match block.body {
            IrContentBlock::ToolResult { .. } => results.push(block),
            _ => rest.push(block),
        }
    }
    if !results.is_empty() {
        let answers = message(IrRole::Tool, results, item);
        messages.push(IrMessage {
            plain: false,
            ..answers
        });
        if rest.is_empty() {
            return Ok(());
        }
    }
    messages.push(IrMessage {
        vendor,
        ..message(role, rest, item)
    });
    Ok(())
}

/// Who speaks; a word that nobody knows is kept under its name.
fn read_role(fields: Fields<'_>) -> (IrRole, Vec<IrVendorField>) {
    let Some(item) = fields.get("role") else {
        return (IrRole::User, Vec::new());
    };
    match item.tag().as_deref() {
        Some("model") => (IrRole::Assistant, Vec::new()),
        Some("user" | "function" | "tool") => (IrRole::User, Vec::new()),
        _ => (IrRole::User, vec![item.vendor("role")]),
    }
}

pub(super) fn read_parts(fields: Fields<'_>) -> Result<Vec<IrBlock>, DialectError> {
    let blocks = fields.repeated("parts").map(read_part);
    blocks.filter_map(Result::transpose).collect()
}

/// A message that is plain where it is one text.
pub(super) fn message(role: IrRole, content: Vec<IrBlock>, item: Item<'_>) -> IrMessage {
    let plain = matches!(
        content.as_slice(),
        [IrBlock {
            body: IrContentBlock::Text { .. },
            ..
        }]
    );
    IrMessage {
        role,
        content,
        plain,
        vendor: Vec::new(),
        origin: item.origin(),
    }
}

fn block(body: IrContentBlock, item: Item<'_>) -> IrBlock {
    IrBlock {
        body,
        vendor: Vec::new(),
        origin: item.origin(),
    }
}

/// Reads one part; a part that says nothing is none.
pub(crate) fn read_part(item: Item<'_>) -> Result<Option<IrBlock>, DialectError> {
    let part = Fields::of(item)?;
    let mut beside = part.vendor(vendor::PART);
    let body = if let Some(text) = part.text("text")? {
        let body = read_text(part, text)?;
        // A thought keeps its proof itself.
        if matches!(body, IrContentBlock::Text { .. }) {
            beside.extend(part.vendor(&[SIGNATURE]));
        }
        body
    } else if let Some(call) = part.fields("functionCall")? {
        beside.extend(call.vendor(vendor::FUNCTION_CALL));
        read_thought(part)?;
        read_call(call, part.text(SIGNATURE)?)?
    } else if let Some(response) = part.fields("functionResponse")? {
        beside.extend(response.vendor(vendor::FUNCTION_RESPONSE));
        beside.extend(part.vendor(&[SIGNATURE]));
        read_result(response)?
    } else if let Some(media) = read_media(part)? {
        if read_thought(part)? {
            beside.extend(part.vendor(&["thought"]));
        }
        beside.extend(part.vendor(&[SIGNATURE]));
        media
    } else {
        return read_other(part);
    };
    Ok(Some(IrBlock {
        vendor: beside,
        ..block(body, item)
    }))
}

fn read_media(part: Fields<'_>) -> Result<Option<IrContentBlock>, DialectError> {
    if let Some(blob) = part.fields("inlineData")? {
        return read_inline(blob).map(Some);
    }
    part.fields("fileData")?.map(read_file).transpose()
}

/// Text, or a thought. An empty text with a proof only carries the proof.
fn read_text(part: Fields<'_>, text: Leaf<String>) -> Result<IrContentBlock, DialectError> {
    let thought = read_thought(part)?;
    if thought || (text.is_empty() && part.has(SIGNATURE)) {
        return Ok(thinking(text, part.text(SIGNATURE)?));
    }
    Ok(IrContentBlock::text(text))
}

fn read_thought(part: Fields<'_>) -> Result<bool, DialectError> {
    let Some(item) = part.get("thought") else {
        return Ok(false);
    };
    let thought = item.flag()?;
    item.structure();
    Ok(thought.value)
}

fn thinking(text: Leaf<String>, signature: Option<Leaf<String>>) -> IrContentBlock {
    IrContentBlock::Thinking {
        text,
        kind: IrThinkingKind::Summary,
        signature,
        encrypted: None,
        item_id: None,
    }
}

fn read_call(
    call: Fields<'_>,
    signature: Option<Leaf<String>>,
) -> Result<IrContentBlock, DialectError> {
    let args = match call.get("args") {
        Some(args) => args.object()?.raw(),
        None => Leaf::from(RawJson::trusted("{}")),
    };
    Ok(IrContentBlock::ToolUse {
        id: call.text("id")?,
        name: call.item().need("name")?.text()?,
        input: IrToolInput::Json(args),
        item_id: None,
        signature,
    })
}

/// Reads a tool's answer. The vendor documents `output` and `error` for what is one value.
fn read_result(response: Fields<'_>) -> Result<IrContentBlock, DialectError> {
    let mut content = Vec::new();
    let mut is_error = None;
    let media: Vec<_> = response.repeated("parts").collect();
    if let Some(value) = response.get("response") {
        let said = value.object()?;
        if let Some((name, text)) = only_text(said) {
            is_error = (name == "error").then(|| Leaf::from(true));
            content.push(block(IrContentBlock::text(text.text()?), said));
        } else if said.view().is_empty() && !media.is_empty() {
            said.structure();
        } else {
            let value = said.raw();
            content.push(block(IrContentBlock::Json { value }, said));
        }
    }
    let plain = matches!(
        content.as_slice(),
        [IrBlock {
            body: IrContentBlock::Text { .. },
            ..
        }]
    ) && media.is_empty();
    for part in media {
        content.extend(read_part(part)?);
    }
    Ok(IrContentBlock::ToolResult {
        tool_use_id: response.text("id")?,
        name: response.text("name")?,
        content,
        plain,
        is_error,
    })
}

/// The text in an answer that has nothing else.
fn only_text(value: Item<'_>) -> Option<(&'static str, Item<'_>)> {
    let mut entries = value.entries();
    let (name, text) = entries.next()?;
    let name = match name.as_ref() {
        "output" => "output",
        "error" => "error",
        _ => return None,
    };
    (entries.next().is_none() && text.kind() == Kind::String).then_some((name, text))
}

/// A part that carries a proof alone, or something that no other dialect has.
fn read_other(part: Fields<'_>) -> Result<Option<IrBlock>, DialectError> {
    let kind = part.item().entries().find_map(|(key, value)| {
        let beside = ["thought", SIGNATURE];
        let mut beside = beside.iter().chain(vendor::PART);
        let known = beside.any(|name| is_named(&key, name));
        (!known && !value.view().is_null()).then(|| key.into_owned())
    });
    let body = if let Some(kind) = kind {
        let native = part.item().raw();
        IrContentBlock::Opaque { kind, native }
    } else if let Some(signature) = part.text(SIGNATURE)? {
        read_thought(part)?;
        thinking(Leaf::new(String::new(), Origin::Host), Some(signature))
    } else {
        return Ok(None);
    };
    Ok(Some(block(body, part.item())))
}
