//! Reading what the vendor writes in more than one way.

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads what is a text, or a list.
pub(crate) fn text_or_list<'de, D, T, U>(
    deserializer: D,
    text: fn(String) -> U,
    list: fn(Vec<T>) -> U,
) -> Result<U, D::Error>
where
    D: Deserializer<'de>,
    T: for<'a> Deserialize<'a>,
{
    match Value::deserialize(deserializer)? {
        Value::String(one) => Ok(text(one)),
        other => Vec::deserialize(other).map(list).map_err(D::Error::custom),
    }
}

/// Reads `null` like a member that is not there.
pub(crate) fn null_as_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de> + Default,
{
    Option::deserialize(deserializer).map(Option::unwrap_or_default)
}
