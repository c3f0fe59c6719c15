//! Images, sounds, files and films.

use std::borrow::Cow;

use abp_core::ir::{IrContentBlock, IrMedia, IrMediaData, Leaf, Origin};
use abp_dialect::{Dialect, DialectError, How, Item, Lowering};
use abp_json::Kind;

use super::message_out;
use crate::{Flavour, wire};

/// The word for a value that stands for a data URL.
const DATA_URL: How = How::Converted("data_url");

/// Reads an image; some clients give its address without the object around it.
pub(super) fn read_image(image: Item<'_>) -> Result<IrContentBlock, DialectError> {
    if image.kind() == Kind::String {
        let media = read_url(image)?;
        return Ok(IrContentBlock::Image {
            media,
            detail: None,
        });
    }
    let image = image.object()?;
    Ok(IrContentBlock::Image {
        media: read_url(image.need("url")?)?,
        detail: image.opt_text("detail")?,
    })
}

/// Reads a film.
pub(super) fn read_video(video: Item<'_>) -> Result<IrContentBlock, DialectError> {
    let url = match video.kind() {
        Kind::String => video,
        _ => video.object()?.need("url")?,
    };
    Ok(IrContentBlock::Video {
        media: read_url(url)?,
    })
}

/// Reads a sound.
pub(super) fn read_audio(audio: Item<'_>) -> Result<IrContentBlock, DialectError> {
    let audio = audio.object()?;
    let media_type = match audio.some("format") {
        Some(item) => {
            let format = item.text()?;
            item.note(How::Converted("audio_format"));
            Some(format.with(wire::audio_media_type(&format).into_owned()))
        }
        None => None,
    };
    let data = IrMediaData::Base64(audio.need("data")?.text()?);
    Ok(IrContentBlock::Audio {
        media: IrMedia { media_type, data },
    })
}

/// Reads a file: its content, or the vendor's id of it.
pub(super) fn read_file(file: Item<'_>) -> Result<IrContentBlock, DialectError> {
    let file = file.object()?;
    let media = match file.some("file_data") {
        Some(data) => read_url(data)?,
        None => IrMedia {
            media_type: None,
            data: IrMediaData::FileId(file.need("file_id")?.text()?),
        },
    };
    Ok(IrContentBlock::Document {
        media,
        title: file.opt_text("filename")?,
    })
}

/// Reads an address; a data URL is content, and so is what has no scheme at all.
fn read_url(item: Item<'_>) -> Result<IrMedia, DialectError> {
    let url = item.text()?;
    let Some((media_type, data)) = split_data_url(&url) else {
        let data = match url.contains(':') {
            true => IrMediaData::Url(url),
            false => IrMediaData::Base64(url),
        };
        return Ok(IrMedia {
            media_type: None,
            data,
        });
    };
    item.note(DATA_URL);
    let known = (!media_type.is_empty()).then(|| url.with(media_type.to_owned()));
    Ok(IrMedia {
        media_type: known,
        data: IrMediaData::Base64(url.with(data.to_owned())),
    })
}

fn split_data_url(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    Some((head.strip_suffix(";base64")?, data))
}

/// Writes a part that holds an image.
pub(super) fn write_image(
    media: &IrMedia,
    detail: Option<&Leaf<String>>,
    part: Part<'_>,
    out: &mut Lowering<'_>,
) {
    match address(media) {
        Some(url) => part.write("image_url", out, |out| {
            out.put_object("image_url", |out| {
                url.put("url", out);
                out.put_opt("detail", detail);
            });
        }),
        None => part.refuse(
            "image_source",
            "images are given by address or content",
            out,
        ),
    }
}

/// Writes a part that holds a film, where the vendor takes films.
pub(super) fn write_video(
    flavour: &Flavour,
    media: &IrMedia,
    part: Part<'_>,
    out: &mut Lowering<'_>,
) {
    match address(media).filter(|_| flavour.video) {
        Some(url) => part.write("video_url", out, |out| {
            out.put_object("video_url", |out| url.put("url", out));
        }),
        None => part.refuse("video", "there is no place for films", out),
    }
}

/// Writes a part that holds a sound, in the two formats that the vendor takes.
pub(super) fn write_audio(media: &IrMedia, part: Part<'_>, out: &mut Lowering<'_>) {
    let format = media
        .media_type
        .as_ref()
        .and_then(|leaf| Some(leaf.with(wire::audio_format(leaf)?)));
    match (&media.data, format) {
        (IrMediaData::Base64(data), Some(format)) => part.write("input_audio", out, |out| {
            out.put_object("input_audio", |out| {
                out.put("data", data);
                let how = How::Converted("audio_format");
                out.put_as("format", format.value, &[format.origin], &how);
            });
        }),
        _ => part.refuse("audio", "sounds are taken as content, in mp3 or wav", out),
    }
}

/// Writes a part that holds a document.
pub(super) fn write_document(
    media: &IrMedia,
    title: Option<&Leaf<String>>,
    part: Part<'_>,
    out: &mut Lowering<'_>,
) {
    let as_text = "documents of text become text";
    let untitled = |out: &mut Lowering<'_>| {
        if let Some(title) = title {
            out.drop(title.origin, "document_title", as_text);
        }
    };
    match &media.data {
        IrMediaData::Base64(_) => part.write("file", out, |out| {
            out.put_object("file", |out| write_file(media, title, out));
        }),
        IrMediaData::FileId(id) if same_files(out) => part.write("file", out, |out| {
            out.put_object("file", |out| {
                out.put("file_id", id);
                out.put_opt("filename", title);
            });
        }),
        IrMediaData::Text(text) => {
            let how = How::emulated("document_as_text", as_text);
            part.write("text", out, |out| {
                out.put_as("text", &text.value, &[text.origin], &how);
            });
            if let Some(media_type) = &media.media_type {
                out.drop(media_type.origin, "media_type", "text has no media type");
            }
            untitled(out);
        }
        IrMediaData::Blocks(blocks) => {
            out.note(part.origin, How::emulated("document_as_text", as_text));
            message_out::write_pieces(&message_out::pieces(blocks, out), out);
            untitled(out);
        }
        IrMediaData::Url(_) => {
            part.refuse("document_url", "documents are given by content or id", out);
        }
        _ => part.refuse("file_id", "the file is kept by another vendor", out),
    }
}

fn write_file(media: &IrMedia, title: Option<&Leaf<String>>, out: &mut Lowering<'_>) {
    if let Some(url) = address(media) {
        url.put("file_data", out);
    }
    match title {
        Some(title) => out.put("filename", title),
        None => out.made(
            "filename",
            "document.pdf",
            "file_name",
            "a file needs a name",
        ),
    }
}

/// Whether files that the source names are those of the target.
fn same_files(out: &Lowering<'_>) -> bool {
    matches!(out.source(), Some(Dialect::OpenAi | Dialect::Codex))
        && out.target() == Dialect::OpenAi
}

/// A part of content that is about to be written.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part<'a> {
    /// The block it is made of.
    pub(super) origin: Origin,
    /// What only the source's dialect knows of it.
    pub(super) vendor: &'a [abp_core::ir::IrVendorField],
}

impl Part<'_> {
    /// Writes it: its type, its content, and what a relative said besides.
    pub(super) fn write(
        self,
        kind: &str,
        out: &mut Lowering<'_>,
        fill: impl FnOnce(&mut Lowering<'_>),
    ) {
        out.object(|out| {
            out.tag("type", kind);
            fill(out);
            out.put_vendor(self.vendor, |from, name| {
                name == "prompt_cache_breakpoint" && wire::shared_member(from, name)
            });
        });
    }

    fn refuse(self, label: &'static str, reason: &'static str, out: &mut Lowering<'_>) {
        out.refuse(self.origin, label, reason);
    }
}

/// An address with the parts of the source it is made of.
struct Address<'a> {
    url: Cow<'a, str>,
    from: Vec<Origin>,
    how: How,
    /// A media type that an address does not tell.
    unsaid: Option<Origin>,
}

impl Address<'_> {
    fn put(&self, key: &str, out: &mut Lowering<'_>) {
        out.put_as(key, &*self.url, &self.from, &self.how);
        if let Some(origin) = self.unsaid {
            out.drop(
                origin,
                "media_type",
                "an address comes without a media type",
            );
        }
    }
}

/// The address of content; content itself as a data URL.
fn address(media: &IrMedia) -> Option<Address<'_>> {
    match &media.data {
        IrMediaData::Url(url) => Some(Address {
            url: Cow::Borrowed(url.as_str()),
            from: vec![url.origin],
            how: How::AsIs,
            unsaid: media.media_type.as_ref().map(|kind| kind.origin),
        }),
        IrMediaData::Base64(data) => {
            let kind = media.media_type.as_ref();
            let word = kind.map_or("application/octet-stream", |kind| kind.as_str());
            let mut from = vec![data.origin];
            from.extend(
                kind.map(|kind| kind.origin)
                    .filter(|kind| *kind != data.origin),
            );
            Some(Address {
                url: Cow::Owned(format!("data:{word};base64,{}", data.value)),
                from,
                how: DATA_URL,
                unsaid: None,
            })
        }
        _ => None,
    }
}
