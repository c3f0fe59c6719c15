//! Reading the content of messages and of calls' answers.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMedia, IrMediaData, IrRange, IrVendorField, Leaf,
};
use abp_dialect::{DialectError, Item};
use abp_json::Kind;

use super::settle_empty;

/// Reads content: a string, or a list of parts. Returns whether it was a string.
pub(super) fn read_content(content: Item<'_>) -> Result<(Vec<IrBlock>, bool), DialectError> {
    match content.kind() {
        Kind::String => {
            let text = IrContentBlock::text(content.text()?);
            Ok((vec![block(text, Vec::new(), content)], true))
        }
        Kind::Array => {
            let parts = content.items().map(read_part).collect::<Result<_, _>>()?;
            Ok((parts, false))
        }
        Kind::Null => Ok((Vec::new(), false)),
        _ => Err(content.wrong("a string or an array")),
    }
}

/// Reads a part of a message's content.
pub(crate) fn read_part(part: Item<'_>) -> Result<IrBlock, DialectError> {
    let part = part.object()?;
    settle_empty(part);
    let kind = part.tag_of("type").unwrap_or_default();
    let mut vendor = part.vendor_fields(&["prompt_cache_breakpoint"]);
    let body = match kind.as_ref() {
        "input_text" | "output_text" | "text" => {
            read_logprobs(part, &mut vendor);
            Some(IrContentBlock::Text {
                text: part.need("text")?.text()?,
                citations: read_citations(part),
            })
        }
        "refusal" => {
            let text = part.need("refusal")?.text()?;
            Some(IrContentBlock::Refusal { text })
        }
        "input_image" => read_image(part)?,
        "input_file" => {
            vendor.extend(part.vendor_fields(&["detail"]));
            read_file(part)?
        }
        _ => None,
    };
    let body = body.unwrap_or_else(|| {
        vendor.clear();
        IrContentBlock::Opaque {
            kind: kind.into_owned(),
            native: part.raw(),
        }
    });
    Ok(block(body, vendor, part))
}

/// Reads a source that a text names.
pub(crate) fn read_citation(annotation: Item<'_>) -> IrCitation {
    let native = annotation.vendor("annotations").value;
    let kind = annotation.tag_of("type");
    if kind.as_deref() != Some("url_citation") {
        return IrCitation {
            url: None,
            title: None,
            quote: None,
            range: None,
            native,
        };
    }
    let text = |key| annotation.some(key)?.text().ok();
    let place = |key| {
        annotation
            .some(key)
            .filter(|at| at.view().as_u64().is_some())
    };
    // Half a range is none.
    let range = place("start_index").zip(place("end_index"));
    let range = range.and_then(|(start, end)| start.count().ok().zip(end.count().ok()));
    IrCitation {
        url: text("url"),
        title: text("title"),
        quote: None,
        range: range.map(|(start, end)| IrRange { start, end }),
        native,
    }
}

/// A block with what belongs to it, read from a place.
pub(super) fn block(body: IrContentBlock, vendor: Vec<IrVendorField>, at: Item<'_>) -> IrBlock {
    IrBlock {
        body,
        vendor,
        origin: at.origin(),
    }
}

fn read_citations(part: Item<'_>) -> Vec<IrCitation> {
    let annotations = part.some("annotations").into_iter();
    annotations
        .flat_map(Item::items)
        .map(read_citation)
        .collect()
}

/// Log probabilities are always there in answers, and empty unless they were asked for.
fn read_logprobs(part: Item<'_>, vendor: &mut Vec<IrVendorField>) {
    match part.some("logprobs") {
        Some(logprobs) if logprobs.view().is_empty() => logprobs.structure(),
        Some(logprobs) => vendor.push(logprobs.vendor("logprobs")),
        None => {}
    }
}

fn read_image(part: Item<'_>) -> Result<Option<IrContentBlock>, DialectError> {
    let media = match (part.some("image_url"), part.some("file_id")) {
        (Some(url), _) => Some(media_at(url.text()?)),
        (None, Some(id)) => Some(media(IrMediaData::FileId(id.text()?))),
        (None, None) => None,
    };
    let detail = part.opt_text("detail")?;
    Ok(media.map(|media| IrContentBlock::Image { media, detail }))
}

fn read_file(part: Item<'_>) -> Result<Option<IrContentBlock>, DialectError> {
    let members = ["file_data", "file_url", "file_id"].map(|key| part.some(key));
    let media = match members {
        [Some(data), _, _] => Some(match split_data_url(data.text()?) {
            Ok(inline) => inline,
            Err(base64) => media(IrMediaData::Base64(base64)),
        }),
        [_, Some(url), _] => Some(media_at(url.text()?)),
        [_, _, Some(id)] => Some(media(IrMediaData::FileId(id.text()?))),
        [None, None, None] => None,
    };
    let title = part.opt_text("filename")?;
    Ok(media.map(|media| IrContentBlock::Document { media, title }))
}

fn media_at(url: Leaf<String>) -> IrMedia {
    split_data_url(url).unwrap_or_else(|url| media(IrMediaData::Url(url)))
}

fn media(data: IrMediaData) -> IrMedia {
    IrMedia {
        media_type: None,
        data,
    }
}

/// Takes a base64 data URL apart; gives back what is none.
fn split_data_url(url: Leaf<String>) -> Result<IrMedia, Leaf<String>> {
    let inline = url.strip_prefix("data:");
    match inline.and_then(|inline| inline.split_once(";base64,")) {
        Some((media_type, data)) if !media_type.is_empty() => Ok(IrMedia {
            media_type: Some(url.with(media_type.to_owned())),
            data: IrMediaData::Base64(url.with(data.to_owned())),
        }),
        _ => Err(url),
    }
}
