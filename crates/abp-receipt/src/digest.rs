//! SHA-256 values, and how they are written.

use std::fmt;
use std::str::FromStr;

use abp_json::{CanonicalError, canonical};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::encoding;

/// A SHA-256 value.
///
/// Written and read as 64 lower-case hexadecimal digits, the form receipts use.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash([u8; 32]);

/// Hashes bytes that come in pieces.
#[derive(Debug, Clone, Default)]
pub struct HashStream(Sha256);

/// A text or a slice that is no SHA-256 value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 value")]
pub struct InvalidHash;

impl Hash {
    /// The value with these bytes.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The hash of some bytes.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::of_parts(&[bytes])
    }

    /// The hash of a value's canonical JSON.
    ///
    /// # Errors
    /// Fails where the value holds something canonical JSON cannot carry.
    pub fn of_canonical<T: Serialize + ?Sized>(value: &T) -> Result<Self, CanonicalError> {
        canonical::value_to_vec(value).map(|bytes| Self::of(&bytes))
    }

    /// The hash of several pieces, one after the other.
    pub(crate) fn of_parts(parts: &[&[u8]]) -> Self {
        let mut hasher = Sha256::new();
        for part in parts {
            hasher.update(part);
        }
        Self(hasher.finalize().into())
    }

    /// The bytes.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(crate) fn to_base64(self) -> String {
        encoding::to_base64(&self.0)
    }

    pub(crate) fn from_base64(text: &str) -> Result<Self, InvalidHash> {
        encoding::array_from_base64(text)
            .map(Self)
            .ok_or(InvalidHash)
    }
}

impl HashStream {
    /// Adds a piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.0.update(piece);
    }

    /// The hash of all pieces.
    #[must_use]
    pub fn finish(self) -> Hash {
        Hash(self.0.finalize().into())
    }
}

impl TryFrom<&[u8]> for Hash {
    type Error = InvalidHash;

    fn try_from(bytes: &[u8]) -> Result<Self, InvalidHash> {
        bytes.try_into().map(Self).map_err(|_| InvalidHash)
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&encoding::to_hex(&self.0))
    }
}

impl FromStr for Hash {
    type Err = InvalidHash;

    fn from_str(text: &str) -> Result<Self, InvalidHash> {
        encoding::array_from_hex(text).map(Self).ok_or(InvalidHash)
    }
}

encoding::as_text!(Hash);
