//! Timestamps of one fixed precision.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A point in time in UTC, to the millisecond.
///
/// Written as `2026-11-15T21:38:00.000Z`, always with three digits, so that equal times have equal
/// text and equal hashes. Read from any RFC 3339 text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(jiff::Timestamp);

impl Timestamp {
    /// The time that many milliseconds after 1970-01-01, clamped to the years that can be written.
    #[must_use]
    pub fn from_unix_millis(millis: i64) -> Self {
        let range = jiff::Timestamp::MIN.as_millisecond()..=jiff::Timestamp::MAX.as_millisecond();
        let clamped = millis.clamp(*range.start(), *range.end());
        Self(jiff::Timestamp::from_millisecond(clamped).unwrap_or(jiff::Timestamp::UNIX_EPOCH))
    }

    /// Milliseconds since 1970-01-01.
    #[must_use]
    pub fn as_unix_millis(self) -> i64 {
        self.0.as_millisecond()
    }

    /// This time plus a duration in milliseconds.
    #[must_use]
    pub fn plus_millis(self, millis: u64) -> Self {
        Self::from_unix_millis(self.as_unix_millis().saturating_add_unsigned(millis))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}", self.0)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        let exact: jiff::Timestamp = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self::from_unix_millis(exact.as_millisecond()))
    }
}

impl JsonSchema for Timestamp {
    fn schema_name() -> Cow<'static, str> {
        "Timestamp".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "format": "date-time" })
    }
}
