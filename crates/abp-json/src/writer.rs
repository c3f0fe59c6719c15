//! Writing JSON text, one value after the other.
//!
//! The writer keeps the commas; that containers are closed and keys are followed by values is the
//! caller's part. [`position`](Writer::position) tells where the next value will start, so that a
//! caller can say later what became of a value it read.

use std::fmt::Write as _;

use crate::string::plain_end;

/// Writes one JSON document as compact text.
#[derive(Clone, Debug, Default)]
pub struct Writer {
    text: String,
    /// Whether something was written that needs a comma before what follows it.
    comma: bool,
}

impl Writer {
    /// A writer that has room for a document of `bytes`.
    pub fn with_capacity(bytes: usize) -> Self {
        Self {
            text: String::with_capacity(bytes),
            comma: false,
        }
    }

    /// Returns where the next key or value starts, once its comma is written.
    pub fn position(&mut self) -> usize {
        self.separate();
        self.text.len()
    }

    /// Writes a member's key.
    pub fn key(&mut self, key: &str) {
        self.separate();
        push_string(&mut self.text, key);
        self.text.push(':');
    }

    /// Opens an object.
    pub fn begin_object(&mut self) {
        self.separate();
        self.text.push('{');
    }

    /// Closes an object.
    pub fn end_object(&mut self) {
        self.text.push('}');
        self.comma = true;
    }

    /// Opens an array.
    pub fn begin_array(&mut self) {
        self.separate();
        self.text.push('[');
    }

    /// Closes an array.
    pub fn end_array(&mut self) {
        self.text.push(']');
        self.comma = true;
    }

    /// Writes a string.
    pub fn string(&mut self, value: &str) {
        self.separate();
        push_string(&mut self.text, value);
        self.comma = true;
    }

    /// Writes a value that is JSON already.
    pub fn raw(&mut self, json: &str) {
        self.separate();
        self.text.push_str(json);
        self.comma = true;
    }

    /// Writes an integer.
    pub fn integer(&mut self, integer: u64) {
        self.separate();
        // Writing to a string cannot fail.
        let _ = write!(self.text, "{integer}");
        self.comma = true;
    }

    /// Returns what was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Returns what was written, and ends writing.
    pub fn into_text(self) -> String {
        self.text
    }

    fn separate(&mut self) {
        if self.comma {
            self.text.push(',');
            self.comma = false;
        }
    }
}

/// Appends a string as JSON, quotes included.
pub fn push_string(text: &mut String, value: &str) {
    text.reserve(value.len() + 2);
    text.push('"');
    let mut rest = value;
    loop {
        let end = plain_end(rest.as_bytes(), 0);
        let (plain, escaped) = rest.split_at_checked(end).unwrap_or((rest, ""));
        text.push_str(plain);
        let mut characters = escaped.chars();
        let Some(character) = characters.next() else {
            break;
        };
        push_escaped(text, character);
        rest = characters.as_str();
    }
    text.push('"');
}

/// The characters to escape are all ASCII, so a byte and a character are the same here.
fn push_escaped(text: &mut String, character: char) {
    const HEX: &[char; 16] = &[
        '0', '1', '2', '3', '4', '5', '6', '7', '8', '9', 'a', 'b', 'c', 'd', 'e', 'f',
    ];
    text.push('\\');
    match character {
        '"' | '\\' => text.push(character),
        '\u{8}' => text.push('b'),
        '\u{c}' => text.push('f'),
        '\n' => text.push('n'),
        '\r' => text.push('r'),
        '\t' => text.push('t'),
        control => {
            text.push_str("u00");
            let code = control as usize;
            text.extend([code >> 4, code].map(|digit| HEX.get(digit & 15).copied().unwrap_or('0')));
        }
    }
}
