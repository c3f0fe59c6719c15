//! The types of presentation events.

use std::fmt;

/// What a presentation event shows. Read in any case, written in upper case; a type this version
/// does not know is kept as it came.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum PresentationType {
    /// Sources of what was said.
    CitationBlock,
    /// Images and other media.
    MediaCarousel,
    /// How far something is.
    ProgressIndicator,
    /// Text with markup.
    MarkdownBlock,
    /// What the agent thought on the way.
    ThoughtTrace,
    /// Something else.
    Other(String),
}

impl PresentationType {
    const KNOWN: [Self; 5] = [
        Self::CitationBlock,
        Self::MediaCarousel,
        Self::ProgressIndicator,
        Self::MarkdownBlock,
        Self::ThoughtTrace,
    ];

    /// The type of that name.
    #[must_use]
    pub fn parse(name: &str) -> Self {
        Self::KNOWN
            .into_iter()
            .find(|kind| name.eq_ignore_ascii_case(kind.as_str()))
            .unwrap_or_else(|| Self::Other(name.to_owned()))
    }

    /// The wire name.
    #[must_use]
    pub fn as_str(&self) -> &str {
        match self {
            Self::CitationBlock => "CITATION_BLOCK",
            Self::MediaCarousel => "MEDIA_CAROUSEL",
            Self::ProgressIndicator => "PROGRESS_INDICATOR",
            Self::MarkdownBlock => "MARKDOWN_BLOCK",
            Self::ThoughtTrace => "THOUGHT_TRACE",
            Self::Other(name) => name,
        }
    }
}

impl fmt::Display for PresentationType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
