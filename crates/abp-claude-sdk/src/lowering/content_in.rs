//! Reading the content of messages, of instructions and of calls' answers.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMedia, IrMediaData, IrRange, IrThinkingKind,
    IrToolInput, Leaf, Origin,
};
use abp_dialect::{DialectError, Item};
use abp_json::Kind;

use super::object;
use crate::wire::BlockType;

/// Reads content: a string, or a list of blocks. Returns whether it was a string.
pub(super) fn read_content(content: Item<'_>) -> Result<(Vec<IrBlock>, bool), DialectError> {
    match content.kind() {
        // A string is no block of the source, so that the block has no origin of its own.
        Kind::String => Ok((vec![IrContentBlock::text(content.text()?).into()], true)),
        Kind::Array => {
            let blocks = content.items().map(read_block).collect::<Result<_, _>>()?;
            Ok((blocks, false))
        }
        _ => Err(content.wrong("a string or an array")),
    }
}

/// Reads a block. A type that nobody else knows is kept as it is.
pub(super) fn read_block(item: Item<'_>) -> Result<IrBlock, DialectError> {
    let tag = object(item)?.need("type")?;
    let word = tag.tag().ok_or_else(|| tag.wrong("a string"))?;
    let Some(kind) = BlockType::of(&word) else {
        return Ok(opaque(item, &word));
    };
    let body = match kind {
        BlockType::Text => {
            let text = item.need("text")?.text()?;
            let citations = read_citations(item, text.chars().count() as u64)?;
            IrContentBlock::Text { text, citations }
        }
        BlockType::Image => match read_source(item.need("source")?)? {
            Some(media) => IrContentBlock::Image {
                media,
                detail: None,
            },
            None => return Ok(opaque(item, &word)),
        },
        BlockType::Document => match read_source(item.need("source")?)? {
            Some(media) => IrContentBlock::Document {
                media,
                title: item.opt_text("title")?,
            },
            None => return Ok(opaque(item, &word)),
        },
        BlockType::ToolUse => IrContentBlock::ToolUse {
            id: item.opt_text("id")?,
            name: item.need("name")?.text()?,
            input: IrToolInput::Json(item.need("input")?.object()?.raw()),
            item_id: None,
            signature: None,
        },
        BlockType::ToolResult => read_result(item)?,
        BlockType::Thinking => IrContentBlock::Thinking {
            text: item.need("thinking")?.text()?,
            kind: IrThinkingKind::Raw,
            signature: read_signature(item)?,
            encrypted: None,
            item_id: None,
        },
        BlockType::RedactedThinking => IrContentBlock::RedactedThinking {
            data: item.need("data")?.text()?,
        },
    };
    Ok(IrBlock {
        body,
        vendor: item.vendor_fields(kind.vendor()),
        origin: item.origin(),
    })
}

/// Reads the source that a text names. Most of it means nothing elsewhere.
///
/// A source belongs to its block as a whole; `length` is how many characters that are so far.
pub(crate) fn read_citation(item: Item<'_>, length: u64) -> Result<IrCitation, DialectError> {
    let native = item.object()?.vendor("citations").value;
    if let Some(tag) = item.get("type") {
        tag.structure();
    }
    let title = match item.opt_text("title")? {
        Some(title) => Some(title),
        None => item.opt_text("document_title")?,
    };
    Ok(IrCitation {
        url: item.opt_text("url")?,
        title,
        quote: item.opt_text("cited_text")?,
        range: Some(IrRange {
            start: Leaf::new(0, Origin::Made("citation_span")),
            end: Leaf::new(length, Origin::Made("citation_span")),
        }),
        native,
    })
}

fn opaque(item: Item<'_>, kind: &str) -> IrBlock {
    let native = item.raw();
    IrBlock {
        body: IrContentBlock::Opaque {
            kind: kind.to_owned(),
            native,
        },
        vendor: Vec::new(),
        origin: item.origin(),
    }
}

fn read_citations(item: Item<'_>, length: u64) -> Result<Vec<IrCitation>, DialectError> {
    match item.some("citations") {
        Some(citations) => citations
            .array()?
            .map(|citation| read_citation(citation, length))
            .collect(),
        None => Ok(Vec::new()),
    }
}

/// An empty signature is what this codec writes for reasoning that nobody signed.
pub(crate) fn read_signature(item: Item<'_>) -> Result<Option<Leaf<String>>, DialectError> {
    let signature = item.opt_text("signature")?;
    Ok(signature.filter(|signature| {
        let signed = !signature.is_empty();
        if !signed && let Some(member) = item.get("signature") {
            member.structure();
        }
        signed
    }))
}

fn read_result(item: Item<'_>) -> Result<IrContentBlock, DialectError> {
    let (content, plain) = match item.some("content") {
        Some(content) => read_content(content)?,
        None => (Vec::new(), false),
    };
    Ok(IrContentBlock::ToolResult {
        tool_use_id: item.opt_text("tool_use_id")?,
        name: None,
        content,
        plain,
        is_error: item.opt_flag("is_error")?,
    })
}

/// Reads where the content of an image or a document is; `None` where nobody knows the way.
fn read_source(source: Item<'_>) -> Result<Option<IrMedia>, DialectError> {
    let kind = source.object()?.tag_of("type").unwrap_or_default();
    let data = match kind.as_ref() {
        "base64" => IrMediaData::Base64(source.need("data")?.text()?),
        "text" => IrMediaData::Text(source.need("data")?.text()?),
        "url" => IrMediaData::Url(source.need("url")?.text()?),
        "file" => IrMediaData::FileId(source.need("file_id")?.text()?),
        "content" => IrMediaData::Blocks(read_content(source.need("content")?)?.0),
        _ => return Ok(None),
    };
    Ok(Some(IrMedia {
        media_type: source.opt_text("media_type")?,
        data,
    }))
}
