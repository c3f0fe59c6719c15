//! Text from elsewhere, made safe for a terminal.

use std::borrow::Cow;

/// Replaces control characters, which could move the cursor or recolour what was said before.
/// Newlines and tabs stay.
pub(crate) fn printable(text: &str) -> Cow<'_, str> {
    let dangerous =
        |c: char| (c.is_control() && c != '\n' && c != '\t') || is_direction_override(c);
    if text.contains(dangerous) {
        Cow::Owned(
            text.chars()
                .map(|c| if dangerous(c) { '\u{FFFD}' } else { c })
                .collect(),
        )
    } else {
        Cow::Borrowed(text)
    }
}

/// On one line.
pub(crate) fn one_line(text: &str) -> String {
    printable(text).replace(['\n', '\t'], " ")
}

/// Characters that reorder what a reader sees.
fn is_direction_override(c: char) -> bool {
    matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}

/// A number of bytes for a person.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [(u64, &str); 3] = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    for (unit, name) in UNITS {
        if bytes >= unit {
            let tenths = bytes.saturating_mul(10) / unit;
            return format!("{}.{} {name}", tenths / 10, tenths % 10);
        }
    }
    format!("{bytes} bytes")
}
