//! Writing the content of messages and of calls' answers.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMedia, IrMediaData, IrRole, IrVendorField, Leaf, Origin,
};
use abp_dialect::{Dialect, How, Lowering};

use super::{is_own, put_own, same_spelling, same_vendor};

/// Writes a part of a message's content.
pub(super) fn write_part(block: &IrBlock, role: IrRole, out: &mut Lowering<'_>) {
    let assistant = role == IrRole::Assistant;
    match &block.body {
        IrContentBlock::Text { text, citations } => {
            let kind = if assistant {
                "output_text"
            } else {
                "input_text"
            };
            write_text(kind, text, citations, &block.vendor, out);
        }
        IrContentBlock::Json { value } => out.object(|out| {
            out.tag(
                "type",
                if assistant {
                    "output_text"
                } else {
                    "input_text"
                },
            );
            let how = How::Converted("json_in_text");
            out.put_as("text", value.text(), &[value.origin], &how);
        }),
        IrContentBlock::Refusal { text } if assistant => out.object(|out| {
            out.tag("type", "refusal");
            out.put("refusal", text);
        }),
        IrContentBlock::Refusal { text } => write_text("input_text", text, &[], &[], out),
        IrContentBlock::Opaque { native, .. } if is_own(out.source()) => out.value(native),
        _ if assistant => out.drop(
            block.origin,
            "assistant_media",
            "an assistant's message holds text only",
        ),
        IrContentBlock::Image { media, detail } => {
            write_image(media, detail.as_ref(), block, out);
        }
        IrContentBlock::Document { media, title } => {
            write_document(media, title.as_ref(), block, out);
        }
        IrContentBlock::Audio { .. } => {
            out.refuse(block.origin, "audio", "OpenAI Responses takes no sound");
        }
        IrContentBlock::Video { .. } => {
            out.refuse(block.origin, "video", "OpenAI Responses takes no films");
        }
        _ => drop_foreign(block, out),
    }
}

/// Says that a block of another dialect has no form here.
pub(super) fn drop_foreign(block: &IrBlock, out: &mut Lowering<'_>) {
    let origin = match &block.body {
        IrContentBlock::Opaque { native, .. } => native.origin,
        _ => block.origin,
    };
    out.drop(
        origin,
        "foreign_block",
        "the block exists in its own dialect only",
    );
}

/// Writes a source that a text names.
pub(crate) fn write_citation(citation: &IrCitation, out: &mut Lowering<'_>) {
    if is_own(out.source()) {
        return out.value(&citation.native);
    }
    let how = if same_spelling(out.source()) {
        How::Converted("citation")
    } else {
        How::degraded(
            "citation",
            "only the address, the title and the range have a form",
        )
    };
    out.note(citation.native.origin, how);
    out.object(|out| {
        out.tag("type", "url_citation");
        out.put_opt("url", citation.url.as_ref());
        match &citation.title {
            Some(title) => out.put("title", title),
            None => out.tag("title", ""),
        }
        if let Some(range) = &citation.range {
            out.put("start_index", &range.start);
            out.put("end_index", &range.end);
        }
    });
}

/// Whether there is a form for a source that a text names: the vendor's own, and addresses.
pub(crate) fn has_citation_form(citation: &IrCitation, own: bool) -> bool {
    own || citation.url.is_some()
}

/// Writes the sources that a text names, and says which have no form.
pub(super) fn write_annotations(citations: &[IrCitation], out: &mut Lowering<'_>) {
    let own = is_own(out.source());
    for citation in citations {
        if !has_citation_form(citation, own) {
            out.drop(
                citation.native.origin,
                "citation",
                "only sources with an address have a form",
            );
        }
    }
    out.put_array("annotations", |out| {
        for citation in citations
            .iter()
            .filter(|known| has_citation_form(known, own))
        {
            write_citation(citation, out);
        }
    });
}

fn write_text(
    kind: &str,
    text: &Leaf<String>,
    citations: &[IrCitation],
    vendor: &[IrVendorField],
    out: &mut Lowering<'_>,
) {
    out.object(|out| {
        out.tag("type", kind);
        out.put("text", text);
        if !citations.is_empty() {
            write_annotations(citations, out);
        }
        out.put_vendor(vendor, |from, name| match from {
            // What belongs to the message around is on its first part.
            Dialect::Codex => !["id", "phase", "status"].contains(&name),
            Dialect::OpenAi => name == "prompt_cache_breakpoint",
            _ => false,
        });
    });
}

fn write_image(
    media: &IrMedia,
    detail: Option<&Leaf<String>>,
    block: &IrBlock,
    out: &mut Lowering<'_>,
) {
    match &media.data {
        IrMediaData::FileId(id) if !same_vendor(out.source()) => {
            drop_media_type(media, out);
            refuse_file(id, out);
        }
        IrMediaData::Base64(_) | IrMediaData::Url(_) | IrMediaData::FileId(_) => {
            out.object(|out| {
                out.tag("type", "input_image");
                write_media(media, ["image_url", "image_url", "file_id"], out);
                out.put_opt("detail", detail);
                put_own(&block.vendor, &[], out);
            });
        }
        _ => drop_foreign(block, out),
    }
}

fn write_document(
    media: &IrMedia,
    title: Option<&Leaf<String>>,
    block: &IrBlock,
    out: &mut Lowering<'_>,
) {
    let as_text = || How::degraded("document_as_text", "documents of text are files here");
    match &media.data {
        IrMediaData::FileId(id) if !same_vendor(out.source()) => {
            drop_media_type(media, out);
            refuse_file(id, out);
        }
        IrMediaData::Base64(_) | IrMediaData::Url(_) | IrMediaData::FileId(_) => {
            out.object(|out| {
                out.tag("type", "input_file");
                match (title, &media.data) {
                    (Some(title), _) => out.put("filename", title),
                    (None, IrMediaData::Base64(_)) if !is_own(out.source()) => out.made(
                        "filename",
                        default_filename(media),
                        "filename_default",
                        "content in a request needs a file name",
                    ),
                    (None, _) => {}
                }
                write_media(media, ["file_data", "file_url", "file_id"], out);
                put_own(&block.vendor, &[], out);
            });
        }
        IrMediaData::Text(text) => {
            drop_media_type(media, out);
            if let Some(title) = title {
                out.drop(title.origin, "document_title", "a text has no title");
            }
            out.object(|out| {
                out.tag("type", "input_text");
                out.put_as("text", &text.value, &[text.origin], &as_text());
            });
        }
        IrMediaData::Blocks(blocks) => {
            if let Some(title) = title {
                out.drop(title.origin, "document_title", "a text has no title");
            }
            out.note(block.origin, as_text());
            for block in blocks {
                write_part(block, IrRole::User, out);
            }
        }
        _ => drop_foreign(block, out),
    }
}

/// Writes inline content, an address or a file's id under its key, in this order.
fn write_media(media: &IrMedia, keys: [&str; 3], out: &mut Lowering<'_>) {
    let [inline, address, file] = keys;
    match &media.data {
        IrMediaData::Base64(data) => write_inline(inline, media, data, out),
        IrMediaData::Url(url) => {
            drop_media_type(media, out);
            out.put(address, url);
        }
        IrMediaData::FileId(id) => {
            drop_media_type(media, out);
            out.put(file, id);
        }
        _ => {}
    }
}

fn write_inline(key: &str, media: &IrMedia, data: &Leaf<String>, out: &mut Lowering<'_>) {
    let Some(media_type) = &media.media_type else {
        return out.put(key, data);
    };
    let url = format!("data:{};base64,{}", media_type.value, data.value);
    let how = if same_spelling(out.source()) {
        How::AsIs
    } else {
        How::Converted("data_url")
    };
    let mut from = vec![data.origin];
    if media_type.origin != data.origin {
        from.push(media_type.origin);
    }
    out.put_as(key, &url, &from, &how);
}

fn default_filename(media: &IrMedia) -> &'static str {
    match media.media_type.as_ref().map(|known| known.as_str()) {
        Some("application/pdf") => "document.pdf",
        Some("text/plain") => "document.txt",
        _ => "document",
    }
}

fn drop_media_type(media: &IrMedia, out: &mut Lowering<'_>) {
    let origin = media
        .media_type
        .as_ref()
        .map_or(Origin::Host, |known| known.origin);
    out.drop(origin, "media_type", "the vendor finds the media type out");
}

fn refuse_file(id: &Leaf<String>, out: &mut Lowering<'_>) {
    out.refuse(id.origin, "file_id", "the file is another vendor's");
}
