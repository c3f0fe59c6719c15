//! Runs of `*`, `_` and `~`.

use pulldown_cmark::{Event, Parser, Tag};

use crate::present::plain::OPTIONS;

/// A run of delimiters that can open emphasis.
#[derive(Debug, Clone, Copy)]
pub(super) struct Delimiter {
    pub(super) byte: u8,
    /// How many of the run are left.
    pub(super) count: usize,
    pub(super) run: usize,
    /// Whether it can close as well.
    pub(super) both: bool,
}

impl Delimiter {
    /// Whether a closing run of that length matches, which the lengths of both decide where one of
    /// them could also be of the other kind.
    pub(super) fn matches(&self, run: usize, both: bool) -> bool {
        if self.byte == b'~' && self.run != run {
            return false;
        }
        (!both && !self.both) || !(run + self.run).is_multiple_of(3) || run.is_multiple_of(3)
    }
}

/// Whether a run of delimiters can open and can close, by the characters around it.
pub(super) fn flanks(
    byte: u8,
    run: usize,
    before: Option<char>,
    after: Option<char>,
) -> (bool, bool) {
    let before = before.unwrap_or(' ');
    let within_words = byte == b'*' || (byte == b'~' && run > 1);
    let opens = after.is_some_and(|after| {
        !after.is_whitespace()
            && (before.is_whitespace()
                || is_punctuation(before)
                || (within_words && (byte == b'~' || !is_punctuation(after))))
    });
    let closes = !before.is_whitespace()
        && after.is_none_or(|after| {
            after.is_whitespace()
                || is_punctuation(after)
                || (within_words && !is_punctuation(before))
                || (byte == b'~' && before == '~')
        });
    (opens, closes)
}

/// Whether the parser takes a character for punctuation; beyond ASCII it must be asked.
fn is_punctuation(c: char) -> bool {
    if c.is_ascii() || c.is_alphanumeric() {
        return c.is_ascii_punctuation();
    }
    let source = format!("a*{c}a*");
    let mut events = Parser::new_ext(&source, OPTIONS);
    !events.any(|event| event == Event::Start(Tag::Emphasis))
}
