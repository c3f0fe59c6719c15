//! Where plain text goes: a gap is written only when something follows it.

use super::style::Style;
use super::{Construct, Counts};

/// Plain text, as far as it can be said already.
#[derive(Debug, Default)]
pub(super) struct Sink {
    out: String,
    /// How many texts were written; a gap needs one that it separates from.
    written: u64,
    /// Line breaks that are owed.
    breaks: usize,
    /// Whether a space is owed.
    space: bool,
    /// What goes before the next text: the number of an item, and the like.
    marker: String,
    /// Whether nothing was written since the block began.
    fresh: bool,
    /// Whether text is to look like what it is.
    pub(super) shows_styles: bool,
    /// What the text that follows is to look like.
    styles: Vec<Style>,
    pub(super) counts: Counts,
}

impl Sink {
    pub(super) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    /// How many texts were written.
    pub(super) fn written(&self) -> u64 {
        self.written
    }

    /// What follows is a block of its own.
    pub(super) fn block(&mut self) {
        self.gap(2);
    }

    /// What follows is on a line of its own.
    pub(super) fn line(&mut self) {
        self.gap(self.breaks.max(1));
    }

    /// What follows belongs to the block before, on the next line.
    pub(super) fn next_line(&mut self) {
        self.gap(1);
    }

    fn gap(&mut self, breaks: usize) {
        self.breaks = breaks;
        self.space = false;
        self.fresh = true;
    }

    pub(super) fn space(&mut self) {
        self.space = true;
    }

    pub(super) fn hard_break(&mut self) {
        self.breaks = self.breaks.max(1);
    }

    /// Another line of the same code; empty lines around code are left out.
    pub(super) fn code_break(&mut self) {
        if !self.fresh {
            self.breaks += 1;
        }
    }

    /// The code ends, and with it empty lines at its end.
    pub(super) fn end_code(&mut self) {
        if !self.fresh {
            self.breaks = 0;
        }
    }

    /// Adds to what goes before the next text, and returns how much was there.
    pub(super) fn mark(&mut self, marker: &str) -> usize {
        let before = self.marker.len();
        self.marker.push_str(marker);
        before
    }

    /// Takes back what no text followed.
    pub(super) fn unmark(&mut self, before: usize) {
        self.marker.truncate(before);
    }

    pub(super) fn count(&mut self, construct: Construct) {
        self.counts.add(construct, 1);
    }

    /// What follows looks like this too, until [`Self::end_style`].
    pub(super) fn begin_style(&mut self, style: Style) {
        self.styles.push(style);
    }

    pub(super) fn end_style(&mut self) {
        self.styles.pop();
    }

    pub(super) fn styled(&mut self, style: Style, text: &str) {
        self.begin_style(style);
        self.text(text);
        self.end_style();
    }

    pub(super) fn text(&mut self, text: &str) {
        let is_clean = !text.bytes().any(may_be_disguise);
        if text.is_empty() || (!is_clean && text.chars().all(is_disguise)) {
            self.counts
                .add(Construct::Control, text.chars().count() as u64);
            return;
        }
        if self.written > 0 {
            match (self.breaks, self.space) {
                (0, true) => self.out.push(' '),
                (breaks, _) => self.out.extend(std::iter::repeat_n('\n', breaks)),
            }
        }
        self.written += 1;
        self.breaks = 0;
        self.space = false;
        self.fresh = false;
        let marker = std::mem::take(&mut self.marker);
        self.out.push_str(&marker);
        if self.shows_styles && !self.styles.is_empty() {
            for style in &self.styles {
                self.out.push_str(style.begin());
            }
            self.clean(text, is_clean);
            self.out.push_str(Style::RESET);
        } else {
            self.clean(text, is_clean);
        }
    }

    /// Writes a text without what disguises it.
    fn clean(&mut self, text: &str, is_clean: bool) {
        if is_clean {
            self.out.push_str(text);
            return;
        }
        self.out.extend(text.chars().filter(|c| !is_disguise(*c)));
        let removed = text.chars().filter(|c| is_disguise(*c)).count();
        self.counts.add(Construct::Control, removed as u64);
    }
}

/// Whether a byte can be part of a character that [`is_disguise`].
fn may_be_disguise(byte: u8) -> bool {
    (byte < b' ' && byte != b'\n' && byte != b'\t') || matches!(byte, 0x7F | 0xC2 | 0xE2)
}

/// Characters that are not said but change how a text is read: controls and overrides of direction.
pub(super) fn is_disguise(c: char) -> bool {
    (c.is_control() && c != '\n' && c != '\t')
        || matches!(c, '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
}
