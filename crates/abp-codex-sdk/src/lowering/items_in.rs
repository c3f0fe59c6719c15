//! Reading items: the input of a request and the output of an answer.

use std::borrow::Cow;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrMessage, IrRole, IrThinkingKind, IrToolInput, IrVendorField, Leaf,
    RawJson,
};
use abp_dialect::{DialectError, How, Item};
use abp_json::{Kind, Limits, Tape};

use super::parts_in::{block, read_content};
use super::settle_empty;
use crate::wire;

/// Reads the input of a request.
pub(super) fn read_input(
    input: Item<'_>,
    messages: &mut Vec<IrMessage>,
) -> Result<(), DialectError> {
    match input.kind() {
        Kind::String => {
            let (content, plain) = read_content(input)?;
            messages.push(message(IrRole::User, content, plain, input));
            Ok(())
        }
        Kind::Array => input
            .items()
            .try_for_each(|item| read_input_item(item, messages)),
        _ => Err(input.wrong("a string or an array")),
    }
}

/// The type of an item. A message may come without one, and so may a reference to an item.
pub(crate) fn item_kind(item: Item<'_>) -> Cow<'_, str> {
    match item.tag_of("type") {
        Some(kind) => kind,
        None if item.get("role").is_some() => Cow::Borrowed("message"),
        None => Cow::Borrowed("item_reference"),
    }
}

/// Reads an item of the model's side. Every block has the item as its origin.
///
/// Returns whether the item is a message whose content is a string.
pub(crate) fn model_blocks(
    item: Item<'_>,
    kind: &str,
) -> Result<(Vec<IrBlock>, bool), DialectError> {
    let single = |block| Ok((vec![block], false));
    match kind {
        "message" if message_role(item) == Some(IrRole::Assistant) => read_assistant(item),
        "reasoning" => Ok((read_reasoning(item)?, false)),
        "function_call" => single(read_call(item, item.get("arguments"), read_arguments)?),
        "custom_tool_call" => single(read_call(item, item.get("input"), |input| {
            input.text().map(IrToolInput::Text)
        })?),
        _ => single(opaque(item, kind)),
    }
}

/// Reads the arguments of a call: JSON in a string, in theory.
pub(super) fn read_arguments(arguments: Item<'_>) -> Result<IrToolInput, DialectError> {
    if arguments.kind() == Kind::Object {
        arguments.note(How::Converted("json_in_text"));
        return Ok(IrToolInput::Json(arguments.raw()));
    }
    let text = arguments.text()?;
    if text.is_empty() {
        arguments.note(How::Converted("empty_arguments"));
        return Ok(IrToolInput::Json(text.with(RawJson::trusted("{}"))));
    }
    let is_object = Tape::parse_str(&text, &Limits::default())
        .is_ok_and(|tape| tape.root().kind() == Kind::Object);
    Ok(if is_object {
        IrToolInput::Json(Leaf::new(RawJson::trusted(text.value), text.origin))
    } else {
        IrToolInput::Invalid(text)
    })
}

fn read_input_item(item: Item<'_>, messages: &mut Vec<IrMessage>) -> Result<(), DialectError> {
    let item = item.object()?;
    settle_empty(item);
    let kind = item_kind(item);
    let role = match kind.as_ref() {
        "message" => message_role(item).unwrap_or(IrRole::Assistant),
        kind => wire::opaque_role(kind),
    };
    match (role, kind.as_ref()) {
        (IrRole::Assistant, kind) => {
            let (blocks, plain) = model_blocks(item, kind)?;
            join_assistant(messages, blocks, plain, item);
        }
        (role, "message") => {
            let (content, plain) = read_content(item.need("content")?)?;
            let mut message = message(role, content, plain, item);
            message.vendor = read_vendor(item, &["id", "phase"]);
            messages.push(message);
        }
        (_, "function_call_output" | "custom_tool_call_output") => {
            let result = read_result(item)?;
            messages.push(message(IrRole::Tool, vec![result], false, item));
        }
        (role, kind) => messages.push(message(role, vec![opaque(item, kind)], false, item)),
    }
    Ok(())
}

/// Consecutive items of the model's side are one message. It is plain when it holds one text, and
/// that was a string.
fn join_assistant(
    messages: &mut Vec<IrMessage>,
    mut blocks: Vec<IrBlock>,
    plain: bool,
    item: Item<'_>,
) {
    let says = |block: &IrBlock| {
        matches!(
            block.body,
            IrContentBlock::Text { .. } | IrContentBlock::Refusal { .. }
        )
    };
    match messages.last_mut() {
        Some(last) if last.role == IrRole::Assistant => {
            if blocks.iter().any(says) {
                last.plain = plain && !last.content.iter().any(says);
            }
            last.content.append(&mut blocks);
        }
        _ => messages.push(message(IrRole::Assistant, blocks, plain, item)),
    }
}

fn message(role: IrRole, content: Vec<IrBlock>, plain: bool, at: Item<'_>) -> IrMessage {
    IrMessage {
        role,
        content,
        plain,
        vendor: Vec::new(),
        origin: at.origin(),
    }
}

fn message_role(item: Item<'_>) -> Option<IrRole> {
    wire::role(&item.tag_of("role")?)
}

fn opaque(item: Item<'_>, kind: &str) -> IrBlock {
    let body = IrContentBlock::Opaque {
        kind: kind.to_owned(),
        native: item.raw(),
    };
    block(body, Vec::new(), item)
}

/// What belongs to an item besides its content. That it is complete goes without saying.
fn read_vendor(item: Item<'_>, names: &[&str]) -> Vec<IrVendorField> {
    let mut vendor = item.vendor_fields(names);
    match item.some("status") {
        Some(status) if status.view().as_str().as_deref() == Some("completed") => {
            status.structure();
        }
        Some(status) => vendor.push(status.vendor("status")),
        None => {}
    }
    vendor
}

fn read_assistant(item: Item<'_>) -> Result<(Vec<IrBlock>, bool), DialectError> {
    let (mut blocks, plain) = read_content(item.need("content")?)?;
    if blocks.is_empty() {
        blocks.push(IrContentBlock::text("").into());
    }
    for block in &mut blocks {
        block.origin = item.origin();
    }
    if let Some(first) = blocks.first_mut() {
        first.vendor.extend(read_vendor(item, &["id", "phase"]));
    }
    Ok((blocks, plain))
}

fn read_reasoning(item: Item<'_>) -> Result<Vec<IrBlock>, DialectError> {
    let mut item_id = item.opt_text("id")?;
    let mut encrypted = item.opt_text("encrypted_content")?;
    let mut vendor = read_vendor(item, &[]);
    let mut texts = read_reasoning_texts(item, "summary", IrThinkingKind::Summary)?;
    texts.extend(read_reasoning_texts(item, "content", IrThinkingKind::Raw)?);
    if texts.is_empty() {
        texts.push((Leaf::from(""), IrThinkingKind::Summary));
    }
    let blocks = texts.into_iter().map(|(text, kind)| {
        let body = IrContentBlock::Thinking {
            text,
            kind,
            signature: None,
            encrypted: encrypted.take(),
            item_id: item_id.take(),
        };
        block(body, std::mem::take(&mut vendor), item)
    });
    Ok(blocks.collect())
}

fn read_reasoning_texts(
    item: Item<'_>,
    key: &str,
    kind: IrThinkingKind,
) -> Result<Vec<(Leaf<String>, IrThinkingKind)>, DialectError> {
    let parts = item.some(key).into_iter().flat_map(Item::items);
    parts
        .filter_map(|part| {
            let text = part.some("text")?;
            part.get("type").into_iter().for_each(Item::structure);
            Some(text.text().map(|text| (text, kind)))
        })
        .collect()
}

fn read_call(
    item: Item<'_>,
    input: Option<Item<'_>>,
    read: impl FnOnce(Item<'_>) -> Result<IrToolInput, DialectError>,
) -> Result<IrBlock, DialectError> {
    let input = match input {
        Some(input) if input.kind() != Kind::Null => read(input)?,
        _ => IrToolInput::Json(RawJson::trusted("{}").into()),
    };
    let body = IrContentBlock::ToolUse {
        id: item.opt_text("call_id")?,
        name: item.need("name")?.text()?,
        input,
        item_id: item.opt_text("id")?,
        signature: None,
    };
    Ok(block(
        body,
        read_vendor(item, &["caller", "namespace"]),
        item,
    ))
}

fn read_result(item: Item<'_>) -> Result<IrBlock, DialectError> {
    let (content, plain) = match item.get("output") {
        Some(output) if output.kind() == Kind::Object => {
            let value = output.raw();
            let json = block(IrContentBlock::Json { value }, Vec::new(), output);
            (vec![json], false)
        }
        Some(output) => read_content(output)?,
        None => (Vec::new(), false),
    };
    let body = IrContentBlock::ToolResult {
        tool_use_id: item.opt_text("call_id")?,
        name: item.opt_text("name")?,
        content,
        plain,
        is_error: None,
    };
    Ok(block(
        body,
        read_vendor(item, &["caller", "id", "namespace"]),
        item,
    ))
}
