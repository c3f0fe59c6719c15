//! The versions of the protocol, the two eras they fall into, and choosing one.
//!
//! What a version has is written down in three tables: its methods ([`Method`](crate::Method)), its
//! capability flags ([`CapabilityFlag`](crate::CapabilityFlag)), and the few properties below.

use std::fmt;

use serde::{Serialize, Serializer};

/// A version of the protocol that this crate speaks, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ProtocolVersion {
    /// `2024-11-05`, the first.
    V2024_11_05,
    /// `2025-03-26`: batches, the `completions` capability.
    V2025_03_26,
    /// `2025-06-18`: elicitation, the version header; no batches any more.
    V2025_06_18,
    /// `2025-11-25`: elicitation by URL, tools in sampling, tasks.
    V2025_11_25,
    /// `2026-07-28`: no handshake, nothing remembered between requests.
    V2026_07_28,
}

/// How a version agrees on what is spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Era {
    /// Once per connection, by `initialize`.
    Legacy,
    /// In every request, by its `_meta`.
    Modern,
}

/// A version that is not spoken here.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("protocol version {requested:?} is not supported")]
pub struct UnsupportedVersion {
    /// What was asked for.
    pub requested: String,
}

/// The versions between two, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VersionSpan {
    since: ProtocolVersion,
    until: ProtocolVersion,
}

impl ProtocolVersion {
    /// Every version, oldest first.
    pub const ALL: [Self; 5] = [
        Self::V2024_11_05,
        Self::V2025_03_26,
        Self::V2025_06_18,
        Self::V2025_11_25,
        Self::V2026_07_28,
    ];
    /// The newest version.
    pub const LATEST: Self = Self::V2026_07_28;
    /// The newest version with a handshake.
    pub const LATEST_LEGACY: Self = Self::V2025_11_25;
    /// What an HTTP request without a version header speaks.
    pub const WITHOUT_HEADER: Self = Self::V2025_03_26;

    /// The version as it is written in messages.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::V2024_11_05 => "2024-11-05",
            Self::V2025_03_26 => "2025-03-26",
            Self::V2025_06_18 => "2025-06-18",
            Self::V2025_11_25 => "2025-11-25",
            Self::V2026_07_28 => "2026-07-28",
        }
    }

    /// The version that is written like this.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|one| one.as_str() == text)
    }

    /// The era it belongs to.
    #[must_use]
    pub const fn era(self) -> Era {
        match self {
            Self::V2024_11_05 | Self::V2025_03_26 | Self::V2025_06_18 | Self::V2025_11_25 => {
                Era::Legacy
            }
            Self::V2026_07_28 => Era::Modern,
        }
    }

    /// Whether several messages may come as one array.
    #[must_use]
    pub const fn has_batches(self) -> bool {
        matches!(self, Self::V2025_03_26)
    }

    /// Whether HTTP requests name their version in a header.
    #[must_use]
    pub fn has_version_header(self) -> bool {
        self >= Self::V2025_06_18
    }

    /// Whether an error that answers nothing readable leaves `id` out; before, it is `null`.
    #[must_use]
    pub fn omits_unknown_id(self) -> bool {
        self >= Self::V2025_11_25
    }
}

impl fmt::Display for ProtocolVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Serialize for ProtocolVersion {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl VersionSpan {
    /// All versions.
    pub const ALL: Self = Self::since(ProtocolVersion::V2024_11_05);
    /// The versions with a handshake.
    pub const LEGACY: Self = Self {
        since: ProtocolVersion::V2024_11_05,
        until: ProtocolVersion::LATEST_LEGACY,
    };
    /// The versions without one.
    pub const MODERN: Self = Self::since(ProtocolVersion::V2026_07_28);

    /// A version and all after it.
    #[must_use]
    pub const fn since(since: ProtocolVersion) -> Self {
        Self {
            since,
            until: ProtocolVersion::LATEST,
        }
    }

    /// A version and those after it that have a handshake.
    #[must_use]
    pub const fn legacy_since(since: ProtocolVersion) -> Self {
        Self {
            since,
            until: ProtocolVersion::LATEST_LEGACY,
        }
    }

    /// One version.
    #[must_use]
    pub const fn only(version: ProtocolVersion) -> Self {
        Self {
            since: version,
            until: version,
        }
    }

    /// Whether a version is among them.
    #[must_use]
    pub fn contains(self, version: ProtocolVersion) -> bool {
        self.since <= version && version <= self.until
    }
}

/// Says whether a version is spoken here.
///
/// A server does not answer `initialize` with this error: it answers with a version it speaks, see
/// [`answer_initialize`].
///
/// # Errors
/// Names the version that is not.
pub fn validate_protocol_version(text: &str) -> Result<ProtocolVersion, UnsupportedVersion> {
    ProtocolVersion::parse(text).ok_or_else(|| UnsupportedVersion {
        requested: text.to_owned(),
    })
}

/// The version a server answers `initialize` with: the requested one if it is spoken, else the
/// newest with a handshake. `None` where no such version is spoken.
#[must_use]
pub fn answer_initialize(requested: &str, spoken: &[ProtocolVersion]) -> Option<ProtocolVersion> {
    choose(Era::Legacy, spoken, [requested]).or_else(|| newest(Era::Legacy, spoken))
}

/// The newest version of one era that both sides speak.
#[must_use]
pub fn choose<'a>(
    era: Era,
    spoken: &[ProtocolVersion],
    offered: impl IntoIterator<Item = &'a str>,
) -> Option<ProtocolVersion> {
    offered
        .into_iter()
        .filter_map(ProtocolVersion::parse)
        .filter(|version| version.era() == era && spoken.contains(version))
        .max()
}

/// The newest version of an era among those spoken.
#[must_use]
pub fn newest(era: Era, spoken: &[ProtocolVersion]) -> Option<ProtocolVersion> {
    let of_era = spoken.iter().filter(|version| version.era() == era);
    of_era.max().copied()
}
