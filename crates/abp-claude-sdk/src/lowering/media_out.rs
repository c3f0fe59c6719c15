//! Writing images and documents.

use abp_core::ir::{IrBlock, IrMedia, IrMediaData, Leaf};
use abp_dialect::{How, Lowering};

use super::content_out::{Place, admit, write_content};
use crate::wire;

/// Why a block cannot be written: a word for it, the reason, and whether the request is another one
/// without it.
pub(super) struct Refusal {
    pub(super) label: &'static str,
    pub(super) reason: &'static str,
    pub(super) grave: bool,
}

impl Refusal {
    pub(super) fn loss(label: &'static str, reason: &'static str) -> Self {
        Self {
            label,
            reason,
            grave: false,
        }
    }

    pub(super) fn grave(label: &'static str, reason: &'static str) -> Self {
        Self {
            label,
            reason,
            grave: true,
        }
    }
}

/// Where the content of an image or a document is, in the vendor's terms.
pub(super) enum Source<'m> {
    Base64 {
        media_type: MediaType<'m>,
        data: &'m Leaf<String>,
    },
    Text {
        media_type: Option<&'m Leaf<String>>,
        data: &'m Leaf<String>,
    },
    Url {
        media_type: Option<&'m Leaf<String>>,
        url: &'m Leaf<String>,
    },
    File(&'m Leaf<String>),
    Blocks(&'m [IrBlock]),
}

pub(super) enum MediaType<'m> {
    Given(&'m Leaf<String>),
    /// The first bytes tell.
    Guessed(&'static str),
}

pub(super) fn image_source(media: &IrMedia, own: bool) -> Result<Source<'_>, Refusal> {
    let wrong_type = Refusal::grave(
        "image_type",
        "the vendor takes JPEG, PNG, GIF and WebP images only",
    );
    match &media.data {
        IrMediaData::Base64(data) => {
            let media_type = match &media.media_type {
                Some(given) if wire::IMAGE_TYPES.contains(&given.as_str()) => {
                    MediaType::Given(given)
                }
                Some(_) => return Err(wrong_type),
                None => MediaType::Guessed(guess_image_type(data).ok_or(wrong_type)?),
            };
            Ok(Source::Base64 { media_type, data })
        }
        IrMediaData::Text(_) | IrMediaData::Blocks(_) => Err(wrong_type),
        _ => elsewhere(media, own),
    }
}

pub(super) fn document_source(media: &IrMedia, own: bool) -> Result<Source<'_>, Refusal> {
    match &media.data {
        IrMediaData::Base64(data) => match &media.media_type {
            Some(given) if own || given.as_str() == wire::PDF => Ok(Source::Base64 {
                media_type: MediaType::Given(given),
                data,
            }),
            // Base64 of "%PDF-".
            None if data.starts_with("JVBERi") => Ok(Source::Base64 {
                media_type: MediaType::Guessed(wire::PDF),
                data,
            }),
            _ => Err(Refusal::grave(
                "document_type",
                "the vendor takes PDF and plain text documents only",
            )),
        },
        IrMediaData::Text(data) => Ok(Source::Text {
            media_type: media.media_type.as_ref(),
            data,
        }),
        IrMediaData::Blocks(blocks) => Ok(Source::Blocks(blocks)),
        _ => elsewhere(media, own),
    }
}

fn elsewhere(media: &IrMedia, own: bool) -> Result<Source<'_>, Refusal> {
    match &media.data {
        IrMediaData::Url(url) if url.starts_with("http") => Ok(Source::Url {
            media_type: media.media_type.as_ref(),
            url,
        }),
        IrMediaData::FileId(id) if own => Ok(Source::File(id)),
        IrMediaData::FileId(_) => Err(Refusal::grave("file_id", "another vendor keeps the file")),
        _ => Err(Refusal::grave(
            "media_url",
            "the vendor fetches from the web only",
        )),
    }
}

/// The type of an image by the first letters of its base64.
fn guess_image_type(data: &str) -> Option<&'static str> {
    let known = [
        ("/9j/", "image/jpeg"),
        ("iVBORw0KGgo", "image/png"),
        ("R0lGOD", "image/gif"),
        ("UklGR", "image/webp"),
    ];
    let found = known.iter().find(|(start, _)| data.starts_with(start));
    found.map(|(_, media_type)| *media_type)
}

pub(super) fn write_source(source: &Source<'_>, out: &mut Lowering<'_>) {
    out.put_object("source", |out| match source {
        Source::Base64 { media_type, data } => {
            out.tag("type", "base64");
            match media_type {
                // Both parts of a data URL come from the same string.
                MediaType::Given(given) if given.origin == data.origin => {
                    let how = How::Converted("data_url");
                    out.put_as("media_type", &given.value, &[given.origin], &how);
                    out.put_as("data", &data.value, &[data.origin], &how);
                }
                MediaType::Given(given) => {
                    out.put("media_type", given);
                    out.put("data", data);
                }
                MediaType::Guessed(guess) => {
                    out.made("media_type", *guess, "media_type", "the first bytes tell");
                    out.put("data", data);
                }
            }
        }
        Source::Text { media_type, data } => {
            out.tag("type", "text");
            let from = media_type.map(|given| given.origin).unwrap_or_default();
            match media_type {
                Some(given) if given.as_str() == wire::PLAIN_TEXT => out.put("media_type", given),
                Some(_) => {
                    let how = How::degraded("media_type", "all text is plain to the vendor");
                    out.put_as("media_type", wire::PLAIN_TEXT, &[from], &how);
                }
                None => out.tag("media_type", wire::PLAIN_TEXT),
            }
            out.put("data", data);
        }
        Source::Url { media_type, url } => {
            out.tag("type", "url");
            out.put("url", url);
            if let Some(given) = media_type {
                out.drop(
                    given.origin,
                    "media_type",
                    "the vendor asks the server for the type",
                );
            }
        }
        Source::File(id) => {
            out.tag("type", "file");
            out.put("file_id", id);
        }
        Source::Blocks(blocks) => {
            out.tag("type", "content");
            let mut kept = Vec::new();
            for block in *blocks {
                if admit(block, Place::Inside, out) {
                    kept.push(block);
                }
            }
            write_content("content", &kept, false, Place::Inside, out);
        }
    });
}
