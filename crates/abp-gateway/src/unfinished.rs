//! Events that pass as they are, but never in part: an error can only be told between events, and
//! half an event breaks the clients before they hear of it.

use bytes::{Bytes, BytesMut};
use memchr::memmem;

/// The longest that an event may be and still be waited for.
const LONGEST: usize = 1 << 20;

/// The bytes of an event whose end has not come.
#[derive(Debug, Default)]
pub(crate) struct Unfinished {
    held: BytesMut,
    /// An event was too long, and some of it was passed on.
    begun: bool,
}

impl Unfinished {
    /// Takes bytes; what can be passed on with them.
    pub(crate) fn pass(&mut self, mut bytes: Bytes) -> Bytes {
        let passed = if self.held.is_empty() {
            let rest = bytes.split_off(end_of_events(&bytes));
            self.held.extend_from_slice(&rest);
            bytes
        } else {
            // The end of an event may have been cut in two itself.
            let seen = self.held.len().saturating_sub(b"\n\r".len());
            self.held.extend_from_slice(&bytes);
            let new = self.held.get(seen..).unwrap_or_default();
            let end = match end_of_events(new) {
                0 => 0,
                end => seen + end,
            };
            self.held.split_to(end).freeze()
        };
        if !passed.is_empty() {
            self.begun = false;
        }
        if self.held.len() > LONGEST {
            self.begun = true;
            return self.held.split().freeze();
        }
        passed
    }

    /// What is left when nothing more comes.
    pub(crate) fn rest(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    /// Whether everything that was passed on is whole, so that another event can follow.
    pub(crate) fn is_between_events(&self) -> bool {
        !self.begun
    }
}

/// Where the last event in these bytes ends.
fn end_of_events(bytes: &[u8]) -> usize {
    let after = |end: &[u8]| memmem::rfind(bytes, end).map_or(0, |at| at + end.len());
    after(b"\n\n").max(after(b"\n\r\n")).max(after(b"\r\r"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_events_pass_however_they_are_split() {
        for line_end in ["\n", "\r\n", "\r"] {
            let lines = [
                "event: a",
                "data: 1",
                "",
                ": alive",
                "",
                "data: 2",
                "",
                "data: half",
            ];
            let stream = lines.join(line_end);
            let whole = stream.len() - "data: half".len();
            for size in 1..=stream.len() {
                let mut unfinished = Unfinished::default();
                let mut passed = Vec::new();
                for part in stream.as_bytes().chunks(size) {
                    passed.extend_from_slice(&unfinished.pass(Bytes::copy_from_slice(part)));
                }
                assert_eq!(
                    passed.escape_ascii().to_string(),
                    stream.as_bytes()[..whole].escape_ascii().to_string(),
                    "in parts of {size}"
                );
                assert!(unfinished.is_between_events());
                assert_eq!(unfinished.rest(), "data: half");
            }
        }
    }

    #[test]
    fn an_event_that_is_too_long_is_not_waited_for() {
        let mut unfinished = Unfinished::default();
        let long = Bytes::from(vec![b'x'; LONGEST]);
        assert!(unfinished.pass(long).is_empty());
        assert_eq!(
            unfinished.pass(Bytes::from_static(b"yz")).len(),
            LONGEST + 2
        );
        assert!(!unfinished.is_between_events());
        assert_eq!(unfinished.pass(Bytes::from_static(b"\n\n")), "\n\n");
        assert!(unfinished.is_between_events());
    }
}
