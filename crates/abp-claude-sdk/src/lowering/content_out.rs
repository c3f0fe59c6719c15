//! Writing content.

use abp_core::ir::{
    IrBlock, IrCitation, IrContentBlock, IrMedia, IrMediaData, IrToolInput, Leaf, Origin,
};
use abp_dialect::{Dialect, How, Lowering, WireFamily};

use super::media_out::{Refusal, document_source, image_source, write_source};
use super::{constant, is_own, put_own};
use crate::dialect::WireVersion;

/// Where a block stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// Outside the conversation, or in a message of instructions.
    Instructions,
    /// A message of the user, answers to calls included.
    User(WireVersion),
    /// An earlier message of the model.
    Assistant(WireVersion),
    /// An answer to a call, or a document made of blocks.
    Inside,
    /// The answer to the request.
    Answer,
}

/// Tells whether a block can be written in its place, and remarks on it where it cannot.
pub(super) fn admit(block: &IrBlock, place: Place, out: &mut Lowering<'_>) -> bool {
    let Err(Refusal {
        label,
        reason,
        grave,
    }) = check(&block.body, place, is_own(out.source()))
    else {
        return true;
    };
    for origin in origins(block) {
        if grave && place != Place::Answer {
            out.refuse(origin, label, reason);
        } else {
            out.drop(origin, label, reason);
        }
    }
    false
}

fn check(body: &IrContentBlock, place: Place, own: bool) -> Result<(), Refusal> {
    match body {
        IrContentBlock::Text { text, .. } | IrContentBlock::Refusal { text } => {
            if text.is_empty() && place != Place::Answer {
                return Err(Refusal::loss("empty_text", "the vendor refuses empty text"));
            }
            Ok(())
        }
        IrContentBlock::Json { .. } => Ok(()),
        IrContentBlock::Image { media, .. } => {
            check_media_place(place)?;
            image_source(media, own).map(|_| ())
        }
        IrContentBlock::Document { media, .. } => {
            match place {
                Place::Assistant(WireVersion::V2026) => {
                    let reason = "this version takes no documents from the model";
                    return Err(Refusal::loss("assistant_document", reason));
                }
                // The version before takes back what the model was given.
                Place::Assistant(WireVersion::V2023) => {}
                _ => check_media_place(place)?,
            }
            document_source(media, own).map(|_| ())
        }
        IrContentBlock::Audio { .. } => Err(Refusal::grave("audio", "the vendor takes no sound")),
        IrContentBlock::Video { .. } => Err(Refusal::grave("video", "the vendor takes no films")),
        IrContentBlock::ToolUse { .. } => Ok(()),
        IrContentBlock::ToolResult { .. } if place == Place::Answer => {
            let reason = "an answer holds no answers to calls";
            Err(Refusal::loss("tool_result", reason))
        }
        IrContentBlock::ToolResult { .. } => Ok(()),
        IrContentBlock::Thinking { .. } => {
            if place == Place::Answer || is_signed(body, own) {
                return Ok(());
            }
            let reason = "the vendor takes back only reasoning that it signed";
            Err(Refusal::loss("foreign_thinking", reason))
        }
        IrContentBlock::RedactedThinking { .. } if !is_signed(body, own) => {
            let reason = "only its own vendor can read it";
            Err(Refusal::loss("redacted_thinking", reason))
        }
        IrContentBlock::RedactedThinking { .. } => Ok(()),
        IrContentBlock::Opaque { .. } if own => Ok(()),
        _ => {
            let reason = "content that only another dialect knows";
            Err(Refusal::grave("foreign_content", reason))
        }
    }
}

/// Whether a block is reasoning that the vendor made and can read again: `own` where the source speaks its
/// dialect, and otherwise what was kept for it.
pub(super) fn is_signed(body: &IrContentBlock, own: bool) -> bool {
    let proof = match body {
        IrContentBlock::Thinking { signature, .. } => signature.as_ref(),
        IrContentBlock::RedactedThinking { data } => Some(data),
        _ => None,
    };
    proof.is_some_and(|proof| own || proof.origin == Origin::RECOVERED)
}

fn check_media_place(place: Place) -> Result<(), Refusal> {
    match place {
        Place::User(_) | Place::Inside => Ok(()),
        Place::Instructions | Place::Assistant(_) | Place::Answer => {
            let reason = "the vendor takes images and documents from the user only";
            Err(Refusal::grave("media_place", reason))
        }
    }
}

/// Everything of a block that was read.
fn origins(block: &IrBlock) -> Vec<Origin> {
    let media = |media: &IrMedia| {
        let kind = media.media_type.as_ref().map(|kind| kind.origin);
        let data = match &media.data {
            IrMediaData::Base64(text)
            | IrMediaData::Url(text)
            | IrMediaData::FileId(text)
            | IrMediaData::Text(text) => Some(text.origin),
            _ => None,
        };
        [kind, data]
    };
    let of = |leaf: Option<&Leaf<String>>| leaf.map(|leaf| leaf.origin);
    let parts: Vec<Option<_>> = match &block.body {
        IrContentBlock::Text { text, .. } | IrContentBlock::Refusal { text } => {
            vec![Some(text.origin)]
        }
        IrContentBlock::Image { media: inner, .. }
        | IrContentBlock::Document { media: inner, .. }
        | IrContentBlock::Audio { media: inner }
        | IrContentBlock::Video { media: inner } => media(inner).to_vec(),
        IrContentBlock::Thinking {
            text,
            kind: _,
            signature,
            encrypted,
            item_id,
        } => vec![
            Some(text.origin),
            of(signature.as_ref()),
            of(encrypted.as_ref()),
            of(item_id.as_ref()),
        ],
        IrContentBlock::RedactedThinking { data } => vec![Some(data.origin)],
        IrContentBlock::Opaque { native, .. } => vec![Some(native.origin)],
        _ => Vec::new(),
    };
    parts.into_iter().flatten().chain([block.origin]).collect()
}

/// Writes content as a string where it was one, else as a list of blocks. Only blocks that were
/// admitted may be given.
pub(super) fn write_content(
    key: &str,
    blocks: &[&IrBlock],
    plain: bool,
    place: Place,
    out: &mut Lowering<'_>,
) {
    match blocks {
        [
            IrBlock {
                body: IrContentBlock::Text { text, citations },
                vendor,
                ..
            },
        ] if plain && citations.is_empty() && vendor.is_empty() => out.put(key, text),
        [
            IrBlock {
                body: IrContentBlock::Json { value },
                ..
            },
        ] if place == Place::Inside => {
            out.put_as(
                key,
                value.text(),
                &[value.origin],
                &How::Converted("json_in_text"),
            );
        }
        _ => out.put_array(key, |out| {
            for block in blocks {
                write_block(block, place, out);
            }
        }),
    }
}

/// Writes a block that was admitted.
pub(super) fn write_block(block: &IrBlock, place: Place, out: &mut Lowering<'_>) {
    if let IrContentBlock::Opaque { native, .. } = &block.body {
        out.value(native);
        return;
    }
    out.object(|out| {
        write_body(&block.body, place, out);
        put_own(&block.vendor, out);
    });
}

fn write_body(body: &IrContentBlock, place: Place, out: &mut Lowering<'_>) {
    match body {
        IrContentBlock::Text { text, citations } => {
            out.tag("type", "text");
            out.put("text", text);
            write_citations(citations, place, out);
        }
        IrContentBlock::Json { value } => {
            out.tag("type", "text");
            out.put_as(
                "text",
                value.text(),
                &[value.origin],
                &How::Converted("json_in_text"),
            );
        }
        IrContentBlock::Refusal { text } => {
            out.tag("type", "text");
            let how = How::degraded("refusal", "the vendor has no form for a refusal but text");
            out.put_as("text", &text.value, &[text.origin], &how);
        }
        IrContentBlock::Image { media, detail } => {
            out.tag("type", "image");
            if let Ok(source) = image_source(media, is_own(out.source())) {
                write_source(&source, out);
            }
            if let Some(detail) = detail {
                out.drop(
                    detail.origin,
                    "image_detail",
                    "the vendor decides how closely to look",
                );
            }
        }
        IrContentBlock::Document { media, title } => {
            out.tag("type", "document");
            if let Ok(source) = document_source(media, is_own(out.source())) {
                write_source(&source, out);
            }
            out.put_opt("title", title.as_ref());
        }
        IrContentBlock::ToolUse { .. } => write_call(body, out),
        IrContentBlock::ToolResult { .. } => write_result(body, out),
        IrContentBlock::Thinking { .. } => write_thinking(body, out),
        IrContentBlock::RedactedThinking { data } => {
            out.tag("type", "redacted_thinking");
            out.put("data", data);
        }
        // Sounds, films and foreign content were not admitted; opaque blocks are no objects of ours.
        _ => {}
    }
}

fn write_call(body: &IrContentBlock, out: &mut Lowering<'_>) {
    let IrContentBlock::ToolUse {
        id,
        name,
        input,
        item_id,
        signature,
    } = body
    else {
        return;
    };
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
    write_input(input, out);
    if let Some(item_id) = item_id {
        out.drop(item_id.origin, "item_id", "a call has one id here");
    }
    drop_signature(signature.as_ref(), out);
}

fn write_input(input: &IrToolInput, out: &mut Lowering<'_>) {
    match input {
        IrToolInput::Json(json) => {
            out.put_as(
                "input",
                &json.value,
                &[json.origin],
                &json_how(out.source()),
            );
        }
        IrToolInput::Text(text) => out.put_object("input", |out| {
            let how = How::emulated("custom_tool", "the vendor's tools take JSON only");
            out.put_as("input", &text.value, &[text.origin], &how);
        }),
        IrToolInput::Invalid(text) => out.put_object("input", |out| {
            let how = How::degraded("invalid_arguments", "the arguments are no JSON object");
            out.put_as("_invalid_arguments", &text.value, &[text.origin], &how);
        }),
    }
}

/// How arguments arrive: some dialects give them as JSON in a string.
fn json_how(source: Option<Dialect>) -> How {
    match source.map(Dialect::family) {
        Some(WireFamily::Chat | WireFamily::Responses) => How::Converted("json_in_text"),
        _ => How::AsIs,
    }
}

fn write_result(body: &IrContentBlock, out: &mut Lowering<'_>) {
    let IrContentBlock::ToolResult {
        tool_use_id,
        name,
        content,
        plain,
        is_error,
    } = body
    else {
        return;
    };
    out.tag("type", "tool_result");
    match tool_use_id {
        Some(id) => out.put("tool_use_id", id),
        None => out.made(
            "tool_use_id",
            "toolu_0",
            "tool_id",
            "the source gives the call no id",
        ),
    }
    if let Some(name) = name {
        out.note(name.origin, How::Converted("named_by_call"));
    }
    let mut kept = Vec::new();
    for block in content {
        // An empty string is an answer; only an empty block is refused.
        if (*plain && content.len() == 1) || admit(block, Place::Inside, out) {
            kept.push(block);
        }
    }
    if !kept.is_empty() {
        write_content("content", &kept, *plain, Place::Inside, out);
    }
    out.put_opt("is_error", is_error.as_ref());
}

fn write_thinking(body: &IrContentBlock, out: &mut Lowering<'_>) {
    let IrContentBlock::Thinking {
        text,
        kind: _,
        signature,
        encrypted,
        item_id,
    } = body
    else {
        return;
    };
    out.tag("type", "thinking");
    out.put("thinking", text);
    match signature {
        Some(signature) if is_own(out.source()) => out.put("signature", signature),
        foreign => {
            out.tag("signature", "");
            drop_signature(foreign.as_ref(), out);
        }
    }
    if let Some(encrypted) = encrypted {
        out.drop(
            encrypted.origin,
            "encrypted_reasoning",
            "only its own vendor can read it",
        );
    }
    if let Some(item_id) = item_id {
        out.drop(item_id.origin, "item_id", "reasoning has no id here");
    }
}

fn drop_signature(signature: Option<&Leaf<String>>, out: &mut Lowering<'_>) {
    if let Some(signature) = signature {
        let reason = "a signature means something to its own vendor only";
        out.drop(signature.origin, "thinking_signature", reason);
    }
}

fn write_citations(citations: &[IrCitation], place: Place, out: &mut Lowering<'_>) {
    let refused = place == Place::User(WireVersion::V2026);
    let source = out.source();
    let (cited, lost): (Vec<_>, Vec<_>) = citations
        .iter()
        .partition(|citation| !refused && cites(citation, source, place == Place::Answer));
    for citation in lost {
        let reason = "the vendor takes its own citations only, and not everywhere";
        out.drop(citation.native.origin, "citations", reason);
    }
    if !cited.is_empty() {
        out.put_array("citations", |out| {
            for citation in cited {
                write_citation(citation, out);
            }
        });
    }
}

/// Whether a citation can be written: the vendor's own, and in an answer whatever has an address.
pub(crate) fn cites(citation: &IrCitation, source: Option<Dialect>, answer: bool) -> bool {
    is_own(source) || (answer && citation.url.is_some())
}

/// Writes a citation; a foreign one in the form of the result of a search.
pub(crate) fn write_citation(citation: &IrCitation, out: &mut Lowering<'_>) {
    let IrCitation {
        url,
        title,
        quote,
        range,
        native,
    } = citation;
    if is_own(out.source()) {
        out.value(native);
        return;
    }
    let how = How::degraded(
        "citations",
        "only address, title and words of a source arrive",
    );
    out.note(native.origin, how);
    if let Some(range) = range {
        let reason = "a citation speaks of its whole block";
        out.drop(range.start.origin, "citation_range", reason);
        out.drop(range.end.origin, "citation_range", reason);
    }
    out.object(|out| {
        out.tag("type", "web_search_result_location");
        out.put_opt("url", url.as_ref());
        match title {
            Some(title) => out.put("title", title),
            None => out.tag("title", &constant("null")),
        }
        match quote {
            Some(quote) => out.put("cited_text", quote),
            None => out.tag("cited_text", ""),
        }
        out.tag("encrypted_index", "");
    });
}
