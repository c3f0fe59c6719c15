//! Digests of JSON objects in which the order of members and the spelling of values do not count.

use std::borrow::Cow;

use abp_json::{View, canonical};
use sha2::{Digest, Sha256};

/// The members of an object by the order of their keys, each value in its canonical form. One that has
/// none, such as a number beyond all doubles, stays as it is spelled.
pub(crate) fn members(object: View<'_>) -> Vec<(Cow<'_, str>, Vec<u8>)> {
    let mut members: Vec<_> = object
        .entries()
        .map(|(key, value)| {
            let form = canonical::view_to_vec(value).unwrap_or_else(|_| value.raw().into());
            (key.as_str().unwrap_or(Cow::Borrowed(key.raw())), form)
        })
        .collect();
    members.sort();
    members
}

/// The digest of a value, however it is spelled.
pub(crate) fn of(value: View<'_>) -> [u8; 32] {
    let form = canonical::view_to_vec(value).unwrap_or_else(|_| value.raw().into());
    Sha256::digest(form).into()
}

/// Adds parts to a hash, each after its length, so that no two lists of parts are the same bytes.
pub(crate) fn add(hash: &mut Sha256, parts: &[&[u8]]) {
    for part in parts {
        hash.update(length(part));
        hash.update(part);
    }
}

/// The length of a part.
pub(crate) fn length(part: &[u8]) -> [u8; 8] {
    (part.len() as u64).to_be_bytes()
}
