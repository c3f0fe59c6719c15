//! Images, documents, sound and film.

use abp_core::ir::{IrBlock, IrContentBlock, IrMedia, IrMediaData, Leaf};
use abp_dialect::{Dialect, DialectError, How, Lowering};

use super::content_out::{Side, write_beside, write_block};
use crate::wire::Fields;

/// Reads content that stands in the request itself.
pub(super) fn read_inline(blob: Fields<'_>) -> Result<IrContentBlock, DialectError> {
    let media_type = blob.text("mimeType")?;
    let data = blob.item().need("data")?;
    let mut text = data.text()?;
    if let Some(standard) = standard_base64(&text) {
        data.note(How::Converted("base64_alphabet"));
        text.value = standard;
    }
    named(blob, media_type, IrMediaData::Base64(text))
}

/// Reads content that stands elsewhere.
pub(super) fn read_file(file: Fields<'_>) -> Result<IrContentBlock, DialectError> {
    let media_type = file.text("mimeType")?;
    let Some(uri) = file.text("fileUri")? else {
        return Err(DialectError::Missing {
            pointer: format!("{}/fileUri", file.item().view().pointer()),
        });
    };
    let film = media_type.is_none() && (uri.contains("youtube.com/") || uri.contains("youtu.be/"));
    let data = if is_own_file(&uri) {
        IrMediaData::FileId(uri)
    } else {
        IrMediaData::Url(uri)
    };
    if film {
        let media = IrMedia { media_type, data };
        return Ok(IrContentBlock::Video { media });
    }
    named(file, media_type, data)
}

/// Content of the kind that its media type names.
fn named(
    fields: Fields<'_>,
    media_type: Option<Leaf<String>>,
    data: IrMediaData,
) -> Result<IrContentBlock, DialectError> {
    let kind = media_type.as_ref().map_or("", |leaf| leaf.value.as_str());
    let kind = kind.split('/').next().unwrap_or_default().to_owned();
    let media = IrMedia { media_type, data };
    Ok(match kind.as_str() {
        "image" => IrContentBlock::Image {
            media,
            detail: None,
        },
        "audio" => IrContentBlock::Audio { media },
        "video" => IrContentBlock::Video { media },
        _ => IrContentBlock::Document {
            media,
            title: fields.text("displayName")?,
        },
    })
}

/// Whether an address is one that only the vendor can open.
fn is_own_file(uri: &str) -> bool {
    uri.starts_with("gs://")
        || uri.starts_with("files/")
        || uri.contains("generativelanguage.googleapis.com/")
}

/// The usual alphabet and padding, where a text has the one for addresses or no padding. The vendor
/// takes both; others do not.
fn standard_base64(text: &str) -> Option<String> {
    if !text.contains(['-', '_']) && text.len().is_multiple_of(4) {
        return None;
    }
    let mut standard = text.replace('-', "+").replace('_', "/");
    while !standard.len().is_multiple_of(4) {
        standard.push('=');
    }
    Some(standard)
}

/// Whether anything of the content can be written.
pub(super) fn is_written(media: &IrMedia, side: Side) -> bool {
    !matches!(media.data, IrMediaData::FileId(_)) || side.own
}

/// Writes content as one part, or as none where it is a file of another vendor's.
pub(super) fn write_media(
    block: &IrBlock,
    media: &IrMedia,
    fallback: &'static str,
    side: Side,
    out: &mut Lowering<'_>,
) {
    let IrMedia { media_type, data } = media;
    match data {
        IrMediaData::Base64(data) => out.object(|out| {
            out.put_object("inlineData", |out| {
                write_inline(media_type.as_ref(), data, fallback, out);
            });
            write_beside(block, side, out);
        }),
        IrMediaData::Url(uri) => {
            let how = if side.own {
                How::AsIs
            } else {
                How::degraded(
                    "media_url",
                    "Gemini opens some addresses only; others have to be sent inline",
                )
            };
            out.object(|out| {
                write_reference(media_type.as_ref(), uri, fallback, &how, out);
                write_beside(block, side, out);
            });
        }
        IrMediaData::FileId(uri) if side.own => out.object(|out| {
            write_reference(media_type.as_ref(), uri, fallback, &How::AsIs, out);
            write_beside(block, side, out);
        }),
        IrMediaData::FileId(id) => {
            let reason = "the file is kept by another vendor, which Gemini cannot ask";
            out.refuse(id.origin, "file_id", reason);
            if let Some(media_type) = media_type {
                out.refuse(media_type.origin, "file_id", reason);
            }
        }
        IrMediaData::Text(text) => {
            let how = How::degraded(
                "document_as_text",
                "a document of plain text stands in the message itself",
            );
            out.object(|out| out.put_as("text", &text.value, &[text.origin], &how));
            if let Some(media_type) = media_type {
                out.note(media_type.origin, how);
            }
        }
        IrMediaData::Blocks(blocks) => write_blocks(blocks, side, out),
        _ => {}
    }
}

fn write_blocks(blocks: &[IrBlock], side: Side, out: &mut Lowering<'_>) {
    for block in blocks {
        let how = How::degraded(
            "document_as_parts",
            "the blocks of a document stand in the message itself",
        );
        out.note(block.origin, how);
        write_block(block, side, out);
    }
}

fn write_inline(
    media_type: Option<&Leaf<String>>,
    data: &Leaf<String>,
    fallback: &'static str,
    out: &mut Lowering<'_>,
) {
    // Both halves of a data URL have the origin of the whole.
    let how = match media_type {
        Some(media_type) if media_type.origin == data.origin => How::Converted("data_url"),
        _ => How::AsIs,
    };
    match media_type {
        Some(media_type) => out.put_as("mimeType", &media_type.value, &[media_type.origin], &how),
        None => write_default_type(fallback, out),
    }
    out.put_as("data", &data.value, &[data.origin], &how);
}

fn write_reference(
    media_type: Option<&Leaf<String>>,
    uri: &Leaf<String>,
    fallback: &'static str,
    how: &How,
    out: &mut Lowering<'_>,
) {
    out.put_object("fileData", |out| {
        match media_type {
            Some(media_type) => out.put("mimeType", media_type),
            // The vendor finds out for itself about what its own callers name.
            None if out.source() == Some(Dialect::Gemini) => {}
            None => write_default_type(type_of_address(uri).unwrap_or(fallback), out),
        }
        out.put_as("fileUri", &uri.value, &[uri.origin], how);
    });
}

fn write_default_type(media_type: &'static str, out: &mut Lowering<'_>) {
    out.made(
        "mimeType",
        media_type,
        "media_type_default",
        "Gemini wants a media type and the source names none",
    );
}

/// The media type that the end of an address suggests.
fn type_of_address(uri: &str) -> Option<&'static str> {
    let path = uri.split(['?', '#']).next()?;
    let (_, extension) = path.rsplit_once('.')?;
    Some(match extension.to_ascii_lowercase().as_str() {
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "webp" => "image/webp",
        "gif" => "image/gif",
        "heic" => "image/heic",
        "pdf" => "application/pdf",
        "txt" => "text/plain",
        "mp3" => "audio/mp3",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        _ => return None,
    })
}
