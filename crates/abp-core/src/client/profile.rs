//! One client, as several sources describe it.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClientCapabilities, PartialCapabilities};

/// Who said something about a client. Ordered: an earlier source wins over a later one.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum CapabilitySource {
    /// The `capabilities` of the request itself.
    Body,
    /// The header `X-ABP-Client-Capabilities`.
    Header,
    /// The header `Accept`.
    Accept,
    /// What the protocol in use negotiated.
    Protocol,
    /// Nobody: it is the default.
    #[default]
    Default,
}

/// What a client can render, and who said so.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ClientProfile {
    /// What it can render; `null` is a standard client, which takes everything.
    pub capabilities: Option<ClientCapabilities>,
    /// Who said it.
    pub origins: CapabilityOrigins,
}

/// Who said each field of a client's capabilities.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CapabilityOrigins {
    /// Who said which events are supported.
    pub supported_events: CapabilitySource,
    /// Who said whether markdown is preferred.
    pub prefers_markdown: CapabilitySource,
    /// Who said how large images should be.
    pub image_resolution: CapabilitySource,
}

impl CapabilityOrigins {
    /// One source that said everything.
    #[must_use]
    pub fn all(source: CapabilitySource) -> Self {
        Self {
            supported_events: source,
            prefers_markdown: source,
            image_resolution: source,
        }
    }
}

impl ClientProfile {
    /// A client about which nobody said anything: it takes everything.
    #[must_use]
    pub fn standard() -> Self {
        Self::default()
    }

    /// Puts together what several sources say, field by field: for each, the first source in the
    /// order of [`CapabilitySource`] that says something counts. What nobody says is the default of
    /// [`ClientCapabilities`]; without any source the client is a standard one.
    #[must_use]
    pub fn merge(sources: &[(CapabilitySource, PartialCapabilities)]) -> Self {
        if sources.is_empty() {
            return Self::standard();
        }
        let mut sources: Vec<_> = sources.iter().collect();
        sources.sort_by_key(|(source, _)| *source);
        let default = ClientCapabilities::default();
        let events = first(&sources, |said| said.supported_events.clone());
        let markdown = first(&sources, |said| said.prefers_markdown);
        let resolution = first(&sources, |said| said.image_resolution.clone());
        let origins = CapabilityOrigins {
            supported_events: events.1,
            prefers_markdown: markdown.1,
            image_resolution: resolution.1,
        };
        let capabilities = ClientCapabilities {
            supported_events: events.0.unwrap_or(default.supported_events),
            prefers_markdown: markdown.0.unwrap_or(default.prefers_markdown),
            image_resolution: resolution.0,
        };
        Self {
            capabilities: Some(capabilities),
            origins,
        }
    }
}

/// The first value that is said, and by whom.
fn first<T>(
    sources: &[&(CapabilitySource, PartialCapabilities)],
    field: impl Fn(&PartialCapabilities) -> Option<T>,
) -> (Option<T>, CapabilitySource) {
    sources
        .iter()
        .find_map(|(source, said)| Some((Some(field(said)?), *source)))
        .unwrap_or((None, CapabilitySource::Default))
}
