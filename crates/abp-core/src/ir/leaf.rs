//! Values that remember where they were read.

use std::borrow::Cow;
use std::ops::Deref;

use abp_json::NodeId;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

/// Where a value comes from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Origin {
    /// Made by ABP, not read anywhere.
    #[default]
    Host,
    /// Made by ABP to fit the target; the word says why.
    Made(&'static str),
    /// Read from this node of the source's tape.
    Node(NodeId),
}

impl Origin {
    /// Given by the target itself in an earlier turn, and kept for it since.
    pub const RECOVERED: Self = Self::Made("recovered_reasoning");
}

/// A value with its origin. Two leaves are equal when their values are.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Leaf<T> {
    /// The value.
    pub value: T,
    /// Where it was read.
    #[serde(skip)]
    pub origin: Origin,
}

impl<T> Leaf<T> {
    /// A value read from a node.
    pub fn new(value: T, origin: Origin) -> Self {
        Self { value, origin }
    }

    /// Another value that stands for the same part of the source.
    pub fn with<U>(&self, value: U) -> Leaf<U> {
        Leaf::new(value, self.origin)
    }
}

impl<T: PartialEq> PartialEq for Leaf<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for Leaf<T> {}

impl<T> Deref for Leaf<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> From<T> for Leaf<T> {
    fn from(value: T) -> Self {
        Self::new(value, Origin::Host)
    }
}

impl From<&str> for Leaf<String> {
    fn from(value: &str) -> Self {
        value.to_owned().into()
    }
}

impl<T: JsonSchema> JsonSchema for Leaf<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        generator.subschema_for::<T>()
    }
}

/// JSON as it was spelled: number text and order of members included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawJson(String);

impl RawJson {
    /// JSON that is known to be valid: the text of a parsed node, or what a writer wrote.
    pub fn trusted(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }

    /// The text, given away.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    /// The double nearest to a number.
    #[must_use]
    pub fn as_f64(&self) -> Option<f64> {
        self.0
            .parse()
            .ok()
            .filter(|double: &f64| double.is_finite())
    }

    /// A number that is spelled as an integer and fits.
    #[must_use]
    pub fn as_u64(&self) -> Option<u64> {
        self.0.parse().ok()
    }
}

impl From<u64> for RawJson {
    fn from(number: u64) -> Self {
        Self(number.to_string())
    }
}

impl From<&Value> for RawJson {
    fn from(value: &Value) -> Self {
        Self(value.to_string())
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serde_json::from_str::<Value>(&self.0)
            .map_err(serde::ser::Error::custom)?
            .serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for RawJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Value::deserialize(deserializer).map(|value| Self::from(&value))
    }
}

impl JsonSchema for RawJson {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        Value::schema_name()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        Value::json_schema(generator)
    }
}

/// Something a dialect knows and keeps under its own name, because no common form exists.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct IrVendorField {
    /// The member's name in the source.
    pub name: String,
    /// Its value.
    pub value: Leaf<RawJson>,
}
