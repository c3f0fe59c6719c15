//! The inside of JSON strings: finding their end, decoding escapes, comparing keys.

use std::borrow::Cow;
use std::cmp::Ordering;

/// A decoded stretch of a string's source text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Piece<'a> {
    /// Text without escapes.
    Plain(&'a str),
    /// The character an escape stands for.
    Char(char),
    /// Half of a surrogate pair, without the other half.
    Lone(u16),
}

/// Decodes the text between the quotes of a string that the parser has accepted.
#[derive(Clone, Debug)]
pub(crate) struct Pieces<'a> {
    rest: &'a str,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(inner: &'a str) -> Self {
        Self { rest: inner }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = Piece<'a>;

    fn next(&mut self) -> Option<Piece<'a>> {
        let Some(escape) = self.rest.strip_prefix('\\') else {
            let end = self.rest.find('\\').unwrap_or(self.rest.len());
            let (plain, rest) = self.rest.split_at_checked(end)?;
            self.rest = rest;
            return (!plain.is_empty()).then_some(Piece::Plain(plain));
        };
        let mut after = escape.chars();
        let simple = match after.next()? {
            'b' => '\u{8}',
            'f' => '\u{c}',
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            'u' => {
                let (unit, rest) = hex_unit(after.as_str())?;
                self.rest = rest;
                if let Some(character) = char::from_u32(u32::from(unit)) {
                    return Some(Piece::Char(character));
                }
                let low = rest.strip_prefix("\\u").and_then(hex_unit);
                if let Some((low, rest)) = low
                    && let Some(Ok(character)) = char::decode_utf16([unit, low]).next()
                {
                    self.rest = rest;
                    return Some(Piece::Char(character));
                }
                return Some(Piece::Lone(unit));
            }
            itself => itself,
        };
        self.rest = after.as_str();
        Some(Piece::Char(simple))
    }
}

/// Decodes the text between the quotes; `None` when it holds a lone surrogate.
pub(crate) fn decode(inner: &str) -> Option<String> {
    let mut text = String::with_capacity(inner.len());
    for piece in Pieces::new(inner) {
        match piece {
            Piece::Plain(plain) => text.push_str(plain),
            Piece::Char(character) => text.push(character),
            Piece::Lone(_) => return None,
        }
    }
    Some(text)
}

/// Decodes the text between the quotes, each lone surrogate replaced.
pub(crate) fn decode_lossy(inner: &str) -> String {
    let mut text = String::with_capacity(inner.len());
    for piece in Pieces::new(inner) {
        match piece {
            Piece::Plain(plain) => text.push_str(plain),
            Piece::Char(character) => text.push(character),
            Piece::Lone(_) => text.push(char::REPLACEMENT_CHARACTER),
        }
    }
    text
}

/// Decodes a key into bytes that are equal exactly when the keys are: UTF-8, and lone surrogates
/// encoded the same way.
pub(crate) fn decode_key(inner: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(inner.len());
    for piece in Pieces::new(inner) {
        match piece {
            Piece::Plain(plain) => bytes.extend_from_slice(plain.as_bytes()),
            Piece::Char(character) => {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Piece::Lone(unit) => {
                let low6 = |shift: u32| 0x80 | ((unit >> shift) & 0x3f) as u8;
                bytes.extend_from_slice(&[0xe0 | (unit >> 12) as u8, low6(6), low6(0)]);
            }
        }
    }
    bytes
}

/// Returns a key's comparable bytes, borrowing them when nothing is escaped.
pub(crate) fn key_bytes(inner: &str, escaped: bool) -> Cow<'_, [u8]> {
    if escaped {
        Cow::Owned(decode_key(inner))
    } else {
        Cow::Borrowed(inner.as_bytes())
    }
}

/// Compares two keys as RFC 8785 sorts them: by UTF-16 code units.
///
/// UTF-8 sorts by code point, which is the same except that UTF-16 puts everything beyond the
/// basic plane (first byte `F0` to `F4`) before `U+E000` to `U+FFFF` (first byte `EE` or `EF`).
/// Those first bytes occur nowhere else, so ranking single bytes is enough.
pub(crate) fn compare_utf16(left: &[u8], right: &[u8]) -> Ordering {
    match left.iter().zip(right).find(|(left, right)| left != right) {
        Some((&left, &right)) => utf16_rank(left).cmp(&utf16_rank(right)),
        None => left.len().cmp(&right.len()),
    }
}

/// Ranks a byte of UTF-8 so that comparing ranks compares UTF-16 code units.
pub(crate) fn utf16_rank(byte: u8) -> u8 {
    match byte {
        0xee | 0xef => byte + 5,
        0xf0..=0xf4 => byte - 2,
        other => other,
    }
}

/// Returns a number that is equal for equal keys and rarely equal for different ones.
///
/// It is never zero and looks at no more than sixteen bytes. Somebody who picks keys that agree
/// there makes the parser fall back to comparing them, nothing worse.
#[inline]
pub(crate) fn fingerprint(key: &[u8]) -> u32 {
    let (head, tail) = if let (Some(head), Some(tail)) = (key.first_chunk(), key.last_chunk()) {
        (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
    } else if let (Some(head), Some(tail)) = (key.first_chunk(), key.last_chunk()) {
        (
            u64::from(u32::from_le_bytes(*head)),
            u64::from(u32::from_le_bytes(*tail)),
        )
    } else {
        let at = |index: usize| u64::from(key.get(index).copied().unwrap_or(0));
        (at(0) | at(1) << 8 | at(2) << 16, 0)
    };
    let length = key.len() as u64;
    let mixed = (head ^ length.rotate_right(8))
        .wrapping_mul(0x9e37_79b9_7f4a_7c15)
        .rotate_left(29)
        .wrapping_add(tail)
        .wrapping_mul(0xd6e8_feb8_6659_fd93);
    (mixed >> 32) as u32 | 1
}

/// Returns the position of the first quote, backslash or control character at or after `from`,
/// or the length of `bytes`.
#[inline]
pub(crate) fn plain_end(bytes: &[u8], from: usize) -> usize {
    let mut at = from;
    let mut rest = bytes.get(from..).unwrap_or_default();
    while let Some((chunk, next)) = rest.split_first_chunk::<8>() {
        let found = special_mask(u64::from_le_bytes(*chunk));
        if found != 0 {
            return at + (found.trailing_zeros() / 8) as usize;
        }
        at += 8;
        rest = next;
    }
    let is_special = |byte: &u8| *byte < 0x20 || matches!(byte, b'"' | b'\\');
    at + rest.iter().position(is_special).unwrap_or(rest.len())
}

/// Marks the top bit of every byte that ends a plain run. Bits above the lowest may be wrong.
#[inline]
fn special_mask(word: u64) -> u64 {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    let zero_bytes = |word: u64| word.wrapping_sub(ONES) & !word;
    let quotes = zero_bytes(word ^ (ONES * b'"' as u64));
    let backslashes = zero_bytes(word ^ (ONES * b'\\' as u64));
    let controls = word.wrapping_sub(ONES * 0x20) & !word;
    (quotes | backslashes | controls) & (ONES * 0x80)
}

/// Reads the four digits of a `\u` escape.
fn hex_unit(text: &str) -> Option<(u16, &str)> {
    let (digits, rest) = text.split_at_checked(4)?;
    Some((u16::from_str_radix(digits, 16).ok()?, rest))
}
