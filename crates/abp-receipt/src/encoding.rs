//! Hexadecimal and base64 text with exactly one spelling for every value, and strict JSON.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use abp_json::{Limits, Tape};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize as _, Deserializer};
use zeroize::Zeroizing;

/// Writes and reads a type in serde's formats, and prints it for debugging, as its text.
macro_rules! as_text {
    ($($type:ty),+) => {$(
        impl ::std::fmt::Debug for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                ::std::fmt::Display::fmt(self, f)
            }
        }

        impl ::serde::Serialize for $type {
            fn serialize<S: ::serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> ::serde::Deserialize<'de> for $type {
            fn deserialize<D: ::serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                $crate::encoding::deserialize_text(from)
            }
        }
    )+};
}
pub(crate) use as_text;

const DIGITS: &[u8; 16] = b"0123456789abcdef";

pub(crate) fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| DIGITS.get(usize::from(value)).copied().map(char::from);
    bytes
        .iter()
        .flat_map(|byte| [byte >> 4, byte & 15])
        .filter_map(digit)
        .collect()
}

/// Reads lower-case hexadecimal digits, exactly two for each byte.
pub(crate) fn array_from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let (pairs, rest) = text.as_bytes().as_chunks::<2>();
    if pairs.len() != N || !rest.is_empty() {
        return None;
    }
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
        *byte = value(*high)? << 4 | value(*low)?;
    }
    Some(bytes)
}

pub(crate) fn to_base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Reads padded base64; a text that another text would also decode to is refused.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

pub(crate) fn array_from_base64<const N: usize>(text: &str) -> Option<[u8; N]> {
    // Secret keys are read this way too.
    let bytes = Zeroizing::new(from_base64(text)?);
    bytes.as_slice().try_into().ok()
}

/// Reads a value that is written as a string.
pub(crate) fn deserialize_text<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: FromStr<Err: fmt::Display>,
{
    let text = Cow::<'de, str>::deserialize(deserializer)?;
    text.parse().map_err(D::Error::custom)
}

/// Reads bounded JSON in which no key is named twice.
pub(crate) fn read_json<T: DeserializeOwned>(bytes: &[u8], max_bytes: usize) -> Result<T, String> {
    let limits = Limits {
        max_bytes,
        ..Limits::default()
    };
    let tape = Tape::parse(bytes, &limits).map_err(|error| error.to_string())?;
    if !tape.duplicates().is_empty() {
        return Err("a key is named twice".to_owned());
    }
    serde_json::from_str(tape.source()).map_err(|error| error.to_string())
}
