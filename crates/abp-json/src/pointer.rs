//! JSON pointers (RFC 6901): escaping, splitting and building.
//!
//! The root is the empty pointer. [`Tape::resolve`](crate::Tape::resolve) looks a pointer up and
//! [`View::pointer`](crate::View::pointer) names a node by one.

use std::borrow::Cow;

/// Escapes a key for use as a pointer segment (`~` becomes `~0`, `/` becomes `~1`).
pub fn escape(segment: &str) -> Cow<'_, str> {
    // Segments are short: looking at every byte is quicker than searching.
    if segment.bytes().any(|byte| matches!(byte, b'~' | b'/')) {
        Cow::Owned(segment.replace('~', "~0").replace('/', "~1"))
    } else {
        Cow::Borrowed(segment)
    }
}

/// Undoes [`escape`]; `None` when a `~` is followed by neither `0` nor `1`.
pub fn unescape(segment: &str) -> Option<Cow<'_, str>> {
    let mut parts = segment.split('~');
    let first = parts.next()?;
    if first.len() == segment.len() {
        return Some(Cow::Borrowed(segment));
    }
    let mut text = String::with_capacity(segment.len());
    text.push_str(first);
    for part in parts {
        if let Some(rest) = part.strip_prefix('0') {
            text.push('~');
            text.push_str(rest);
        } else {
            text.push('/');
            text.push_str(part.strip_prefix('1')?);
        }
    }
    Some(Cow::Owned(text))
}

/// Splits a pointer into unescaped segments; `None` when it is not a pointer.
pub fn parse(pointer: &str) -> Option<Vec<Cow<'_, str>>> {
    if pointer.is_empty() {
        return Some(Vec::new());
    }
    pointer
        .strip_prefix('/')?
        .split('/')
        .map(unescape)
        .collect()
}

/// Builds a pointer from unescaped segments.
pub fn build<S: AsRef<str>>(segments: impl IntoIterator<Item = S>) -> String {
    let mut pointer = String::new();
    for segment in segments {
        push(&mut pointer, segment.as_ref());
    }
    pointer
}

/// Appends one unescaped segment to a pointer.
pub fn push(pointer: &mut String, segment: &str) {
    pointer.push('/');
    pointer.push_str(&escape(segment));
}

/// Reads a segment as an array index: decimal digits without a leading zero.
pub(crate) fn index(segment: &str) -> Option<usize> {
    let canonical = segment == "0" || segment.starts_with(|first: char| matches!(first, '1'..='9'));
    if canonical {
        segment.parse().ok()
    } else {
        None
    }
}
