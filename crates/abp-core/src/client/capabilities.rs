//! The rendering capabilities of a client, whole and in part.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PresentationType;
use crate::{ContractError, read_document};

/// The rendering capabilities of a client. A work order without them is for a standard rich client.
///
/// Fields this version does not know are ignored. A value is not changed once it was read: what a
/// client said is what is recorded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ClientCapabilities {
    /// Presentation events the client can render, e.g. `CITATION_BLOCK`.
    pub supported_events: Vec<String>,
    /// Whether the client prefers markdown over plain text.
    pub prefers_markdown: bool,
    /// Preferred image resolution: `low`, `high` or `auto`.
    pub image_resolution: Option<String>,
}

impl Default for ClientCapabilities {
    fn default() -> Self {
        Self {
            supported_events: Vec::new(),
            prefers_markdown: true,
            image_resolution: None,
        }
    }
}

impl ClientCapabilities {
    /// Reads capabilities strictly.
    ///
    /// # Errors
    /// Names the JSON pointer of a value of the wrong type.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ContractError> {
        read_document(bytes)
    }

    /// Whether the client renders events of this type.
    #[must_use]
    pub fn supports(&self, kind: &PresentationType) -> bool {
        self.supported_events
            .iter()
            .any(|name| name.eq_ignore_ascii_case(kind.as_str()))
    }

    /// The preferred resolution; `None` where there is none, or one this version does not know.
    #[must_use]
    pub fn resolution(&self) -> Option<ImageResolution> {
        let name = self.image_resolution.as_deref()?;
        [
            ImageResolution::Low,
            ImageResolution::High,
            ImageResolution::Auto,
        ]
        .into_iter()
        .find(|resolution| name.eq_ignore_ascii_case(resolution.as_str()))
    }
}

/// How large images should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ImageResolution {
    /// As small as it can still be recognised.
    Low,
    /// As large as a screen shows.
    High,
    /// Whatever is reasonable.
    Auto,
}

impl ImageResolution {
    /// The wire name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Low => "low",
            Self::High => "high",
            Self::Auto => "auto",
        }
    }
}

/// What one source says about a client; fields it leaves out are for another source to say.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PartialCapabilities {
    /// As in [`ClientCapabilities`].
    pub supported_events: Option<Vec<String>>,
    /// As in [`ClientCapabilities`].
    pub prefers_markdown: Option<bool>,
    /// As in [`ClientCapabilities`].
    pub image_resolution: Option<String>,
}

impl PartialCapabilities {
    /// The header that carries a client's capabilities as one JSON object.
    pub const HEADER: &'static str = "X-ABP-Client-Capabilities";

    /// Reads capabilities in part: the value of [`Self::HEADER`], or a member of a body.
    ///
    /// # Errors
    /// Names the JSON pointer of a value of the wrong type.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ContractError> {
        read_document(bytes)
    }

    /// What the value of an `Accept` header says; `None` where it says nothing about text.
    ///
    /// A client that would rather have `text/plain` or `text/markdown` than any other form gets
    /// text and nothing else, so it renders no presentation events either.
    #[must_use]
    pub fn from_accept(value: &str) -> Option<Self> {
        let mut best: Option<(f32, Option<bool>)> = None;
        for range in value.split(',') {
            let (name, quality) = media_range(range);
            let markdown = match name.as_str() {
                // How the answer is carried, not what is in it.
                "text/event-stream" => continue,
                "text/plain" => Some(false),
                "text/markdown" => Some(true),
                _ => None,
            };
            if quality > best.map_or(0.0, |(best, _)| best) {
                best = Some((quality, markdown));
            }
        }
        let (_, markdown) = best?;
        Some(Self {
            supported_events: Some(Vec::new()),
            prefers_markdown: Some(markdown?),
            image_resolution: None,
        })
    }
}

impl From<ClientCapabilities> for PartialCapabilities {
    fn from(whole: ClientCapabilities) -> Self {
        Self {
            supported_events: Some(whole.supported_events),
            prefers_markdown: Some(whole.prefers_markdown),
            image_resolution: whole.image_resolution,
        }
    }
}

/// The name of a media range and its quality, which is 1 where none is given.
fn media_range(range: &str) -> (String, f32) {
    let mut parts = range.split(';').map(str::trim);
    let name = parts.next().unwrap_or_default().to_ascii_lowercase();
    let quality = parts
        .filter_map(|parameter| parameter.split_once('='))
        .find(|(key, _)| key.trim().eq_ignore_ascii_case("q"))
        .map_or(1.0, |(_, value)| value.trim().parse().unwrap_or(0.0));
    (name, quality)
}
