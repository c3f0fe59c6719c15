//! RFC 8785 (JCS): the one spelling of a document that is hashed.
//!
//! The writer reads a tape and hands the canonical bytes on in pieces, so a document can go
//! straight into a hasher:
//!
//! ```
//! use abp_json::{Limits, Tape, canonical};
//!
//! let tape = Tape::parse(br#"{"b": 1.50, "a": "\u0041"}"#, &Limits::default())?;
//! let mut bytes = Vec::new();
//! canonical::write(tape.root(), |piece| bytes.extend_from_slice(piece))?;
//! assert_eq!(bytes, br#"{"a":"A","b":1.5}"#);
//! # Ok::<(), abp_json::CanonicalError>(())
//! ```
//!
//! Where RFC 8785 would let two different documents share a form, this refuses:
//!
//! - an integer outside ±(2^53−1), because its neighbours round to the same double;
//! - a number with a fraction or an exponent beyond that range, unless its digits are those of its
//!   double (`1E30` is `1e+30`, but `9007199254740993.0` is nothing);
//! - a number too large for a double, a duplicate key, a lone surrogate.
//!
//! Below 2^53 a fraction is rounded to the nearest double, as the RFC says, and `-0` is `0`.
//! The form of a double between 2^53 and 1e21 is spelled as an integer (`1e20` becomes
//! `100000000000000000000`), so such a form is hashed but not read again.

mod writer;

use serde::Serialize;

use crate::error::CanonicalError;
use crate::finite;
use crate::tape::{Limits, Tape};
use crate::view::{Kind, View};
use writer::Writer;

/// Writes the canonical form of a value, handing its bytes to `sink` in order.
///
/// # Errors
///
/// Refuses what has no canonical form (see the [module](self)); the pieces already handed on are
/// then worth nothing.
pub fn write(view: View<'_>, sink: impl FnMut(&[u8])) -> Result<(), CanonicalError> {
    Writer::new(view, sink).document(view)
}

/// Writes the canonical form of a document, with one member of its root object set to null.
///
/// The member is written whether the document has it or not. This is how a document that names its
/// own hash is hashed and verified.
///
/// # Errors
///
/// As [`write()`]; also when the root is not an object.
pub fn write_with_null(
    tape: &Tape<'_>,
    root_member: &str,
    sink: impl FnMut(&[u8]),
) -> Result<(), CanonicalError> {
    let root = tape.root();
    if root.kind() != Kind::Object {
        return Err(CanonicalError::RootNotObject);
    }
    Writer::new(root, sink)
        .with_null(root_member)
        .document(root)
}

/// Returns the canonical form of a JSON text within the default [`Limits`].
///
/// # Errors
///
/// As [`Tape::parse`] and [`write()`].
pub fn to_vec(source: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    view_to_vec(Tape::parse(source, &Limits::default())?.root())
}

/// Returns the canonical form of a value on a tape.
///
/// # Errors
///
/// As [`write()`].
pub fn view_to_vec(view: View<'_>) -> Result<Vec<u8>, CanonicalError> {
    let mut bytes = Vec::with_capacity(view.span().len());
    write(view, |piece| bytes.extend_from_slice(piece))?;
    Ok(bytes)
}

/// Returns the canonical form of anything that serialises, whatever order its maps have.
///
/// # Errors
///
/// As [`write()`]; also when the value does not serialise, or holds a NaN or an infinity, which
/// `serde_json` alone would turn into null.
pub fn value_to_vec<T: Serialize + ?Sized>(value: &T) -> Result<Vec<u8>, CanonicalError> {
    if let Some((pointer, float)) = finite::find_non_finite(value) {
        let text = float.to_string();
        return Err(CanonicalError::NotFinite { pointer, text });
    }
    let text = serde_json::to_string(value).map_err(CanonicalError::Serialize)?;
    let limits = Limits {
        max_bytes: usize::MAX,
        max_nodes: usize::MAX,
        ..Limits::default()
    };
    view_to_vec(Tape::parse_str(&text, &limits)?.root())
}
