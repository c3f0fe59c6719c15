//! The elements of a JSON array that arrives in pieces.

use memchr::memchr2;

/// What is around the elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Enclosure {
    /// Nothing: the stream is one document, or one after the other.
    None,
    /// An array that is open.
    Open,
    /// An array that was closed.
    Closed,
}

/// Finds the end of an element: counts brackets outside strings.
#[derive(Debug, Default)]
pub(super) struct ElementScan {
    depth: usize,
    place: Place,
}

#[derive(Debug, Default, Clone, Copy)]
enum Place {
    #[default]
    Value,
    String,
    Escape,
}

impl ElementScan {
    /// Scans on. Returns how many of the bytes belong to the element when it ends in them; the scan
    /// is then ready for the next one.
    pub(super) fn end(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while let Some(&byte) = bytes.get(at) {
            at += 1;
            match (self.place, byte) {
                (Place::Value, b'"') => self.place = Place::String,
                (Place::Value, b'{' | b'[') => self.depth += 1,
                (Place::Value, b'}' | b']') => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth == 0 {
                        return Some(at);
                    }
                }
                (Place::Value, _) => {}
                (Place::String, b'"') => self.place = Place::Value,
                (Place::String, b'\\') => self.place = Place::Escape,
                (Place::String, _) => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    at += memchr2(b'"', b'\\', rest).unwrap_or(rest.len());
                }
                (Place::Escape, _) => self.place = Place::String,
            }
        }
        None
    }
}
