//! Inline images, no larger than the client prefers.

use std::fmt;
use std::io::Cursor;

use abp_core::{Adaptation, ImageResolution, PresentationType};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use image::{DynamicImage, ImageDecoder as _, ImageError, ImageFormat, ImageReader, Limits};
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::blocks;

/// The most characters of base64 that are read.
const MAX_ENCODED: usize = 24 * 1024 * 1024;
/// The most memory that an image may take, and the longest side it may have.
const MAX_ALLOC: u64 = 128 * 1024 * 1024;
const MAX_SIDE: u32 = 16 * 1024;
/// The most memory that all images of a block may take, one after the other.
const MAX_BLOCK: u64 = 4 * MAX_ALLOC;

/// A block with images that fit.
#[derive(Debug)]
pub(super) struct Fitted {
    /// The block; absent where nothing is left of it.
    pub(super) data: Option<Value>,
    pub(super) changes: Vec<Adaptation>,
    /// The images that could not stay, in words.
    pub(super) left_out: Option<String>,
}

/// Fits the images of a block; `None` where they are as they should be.
pub(super) fn fit(
    kind: &PresentationType,
    data: &Value,
    resolution: ImageResolution,
) -> Option<Fitted> {
    let mut fit = Fit {
        event: kind.as_str(),
        resolution,
        allowance: MAX_BLOCK,
        changes: Vec::new(),
        left_out: Vec::new(),
    };
    let mut data = data.clone();
    let stays = fit.value(&mut data) && data.get("items") != Some(&Value::Array(Vec::new()));
    if fit.changes.is_empty() {
        return None;
    }
    Some(Fitted {
        data: Some(data).filter(|_| stays),
        changes: fit.changes,
        left_out: Some(fit.left_out.join("\n")).filter(|text| !text.is_empty()),
    })
}

struct Fit<'a> {
    event: &'a str,
    resolution: ImageResolution,
    /// How much memory its images may still take.
    allowance: u64,
    changes: Vec<Adaptation>,
    left_out: Vec<String>,
}

impl Fit<'_> {
    /// Fits every image in a value; says whether the value stays.
    fn value(&mut self, value: &mut Value) -> bool {
        match value {
            Value::Array(items) => items.retain_mut(|item| self.value(item)),
            Value::Object(members) => match Inline::of(members) {
                Some(inline) => return self.image(&inline, members),
                None => members.retain(|_, member| self.value(member)),
            },
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
        true
    }

    /// Fits an image; says whether it stays.
    fn image(&mut self, inline: &Inline, members: &mut Map<String, Value>) -> bool {
        let bytes = inline.decode();
        let sha256 = bytes.as_ref().ok().map(|bytes| hex(&Sha256::digest(bytes)));
        let side = self.side();
        let fitted =
            bytes.and_then(|bytes| shrink(&bytes, &inline.mime, side, &mut self.allowance));
        let (from, to, reason) = match &fitted {
            Ok(None) => return true,
            Ok(Some(smaller)) => {
                inline.replace(smaller, members);
                let (width, height) = smaller.original;
                let from = format!("{} of {width} × {height}", inline.mime);
                let to = format!(
                    "{} of {} × {}",
                    smaller.mime(),
                    smaller.width,
                    smaller.height
                );
                let reason = format!("the client prefers {} images", self.resolution.as_str());
                (from, to, reason)
            }
            Err(problem) => {
                let reason = problem.to_string();
                let item = Value::Object(members.clone());
                let described = blocks::medium(&item, Some(&reason));
                self.left_out.push(format!("- {described}"));
                (inline.mime.clone(), "a description".to_owned(), reason)
            }
        };
        self.changes.push(Adaptation {
            original_sha256: sha256,
            ..Adaptation::new(self.event, from, to, reason)
        });
        fitted.is_ok()
    }

    fn side(&self) -> u32 {
        match self.resolution {
            ImageResolution::Low => 512,
            ImageResolution::Auto => 1024,
            ImageResolution::High => 2048,
        }
    }
}

/// An image within a value: a `data:` address, or base64 beside the name of its type.
struct Inline {
    is_address: bool,
    mime: String,
    encoded: String,
}

const MIME_NAMES: [&str; 3] = ["mime_type", "mimeType", "media_type"];

impl Inline {
    fn of(members: &Map<String, Value>) -> Option<Self> {
        let text = |name: &str| members.get(name).and_then(Value::as_str);
        let (is_address, mime, encoded) = match text("url").or(text("uri")) {
            Some(address) => {
                let (head, encoded) = address.strip_prefix("data:")?.split_once(',')?;
                (
                    true,
                    head.strip_suffix(";base64")?.split(';').next()?,
                    encoded,
                )
            }
            None => (
                false,
                MIME_NAMES.iter().find_map(|name| text(name))?,
                text("data")?,
            ),
        };
        let mime = match mime.to_ascii_lowercase() {
            mime if mime == "image/jpg" => "image/jpeg".to_owned(),
            mime => mime,
        };
        // Drawings have no resolution, and what is no image is none of ours.
        let is_raster = mime.starts_with("image/") && !mime.contains("svg");
        is_raster.then(|| Self {
            is_address,
            mime,
            encoded: encoded.to_owned(),
        })
    }

    fn decode(&self) -> Result<Vec<u8>, ImageProblem> {
        if self.encoded.len() > MAX_ENCODED {
            return Err(ImageProblem::TooLarge);
        }
        STANDARD
            .decode(self.encoded.trim_ascii())
            .map_err(|_| ImageProblem::NotBase64)
    }

    fn replace(&self, smaller: &Smaller, members: &mut Map<String, Value>) {
        let encoded = STANDARD.encode(&smaller.bytes);
        let mime = smaller.mime();
        for name in MIME_NAMES {
            if let Some(member) = members.get_mut(name) {
                *member = Value::from(mime);
            }
        }
        let (names, content) = match self.is_address {
            true => (
                ["url", "uri"].as_slice(),
                format!("data:{mime};base64,{encoded}"),
            ),
            false => (["data"].as_slice(), encoded),
        };
        if let Some(name) = names.iter().find(|name| members.contains_key(**name)) {
            members.insert((*name).to_owned(), Value::from(content));
        }
    }
}

/// Why an image cannot stay.
#[derive(Debug)]
enum ImageProblem {
    TooLarge,
    TooMany,
    NotBase64,
    NotAnImage,
    WrongType {
        declared: String,
        found: &'static str,
    },
    Unreadable(ImageError),
}

impl fmt::Display for ImageProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLarge => f.write_str("it is too large"),
            Self::TooMany => f.write_str("it has too many large images beside it"),
            Self::NotBase64 => f.write_str("it is not base64"),
            Self::NotAnImage => f.write_str("it is no image"),
            Self::WrongType { declared, found } => {
                write!(f, "it is said to be {declared} and is {found}")
            }
            Self::Unreadable(error) => write!(f, "it cannot be read: {error}"),
        }
    }
}

/// An image that was made smaller.
struct Smaller {
    original: (u32, u32),
    width: u32,
    height: u32,
    format: ImageFormat,
    bytes: Vec<u8>,
}

impl Smaller {
    fn mime(&self) -> &'static str {
        self.format.to_mime_type()
    }
}

/// Makes an image so small that no side is longer; `None` where it is already, or where that would
/// take no fewer bytes.
fn shrink(
    bytes: &[u8],
    declared: &str,
    side: u32,
    allowance: &mut u64,
) -> Result<Option<Smaller>, ImageProblem> {
    let format = image::guess_format(bytes).map_err(|_| ImageProblem::NotAnImage)?;
    if format.to_mime_type() != declared {
        return Err(ImageProblem::WrongType {
            declared: declared.to_owned(),
            found: format.to_mime_type(),
        });
    }
    let mut limits = Limits::default();
    limits.max_image_width = Some(MAX_SIDE);
    limits.max_image_height = Some(MAX_SIDE);
    limits.max_alloc = Some(MAX_ALLOC);
    let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
    reader.limits(limits);
    let mut decoder = reader.into_decoder().map_err(ImageProblem::Unreadable)?;
    let original = decoder.dimensions();
    if original.0.max(original.1) <= side {
        return Ok(None);
    }
    if decoder.total_bytes() > MAX_ALLOC {
        return Err(ImageProblem::TooLarge);
    }
    let left = allowance.checked_sub(decoder.total_bytes());
    *allowance = left.ok_or(ImageProblem::TooMany)?;
    // What turns a photograph upright is lost with the rest of its metadata.
    let orientation = decoder.orientation().map_err(ImageProblem::Unreadable)?;
    let mut image = DynamicImage::from_decoder(decoder).map_err(ImageProblem::Unreadable)?;
    image.apply_orientation(orientation);
    let smaller =
        encode(&image.thumbnail(side, side), format, original).map_err(ImageProblem::Unreadable)?;
    Ok(Some(smaller).filter(|smaller| smaller.bytes.len() < bytes.len()))
}

/// Keeps the format; of a moving image the first picture is left.
fn encode(
    image: &DynamicImage,
    format: ImageFormat,
    original: (u32, u32),
) -> Result<Smaller, ImageError> {
    let mut bytes = Cursor::new(Vec::new());
    match format {
        ImageFormat::Jpeg => image.to_rgb8().write_to(&mut bytes, format)?,
        ImageFormat::Gif | ImageFormat::WebP => image.to_rgba8().write_to(&mut bytes, format)?,
        _ => image.write_to(&mut bytes, format)?,
    }
    Ok(Smaller {
        original,
        width: image.width(),
        height: image.height(),
        format,
        bytes: bytes.into_inner(),
    })
}

fn hex(digest: &[u8]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
