//! Markdown as plain, speakable text, while it comes.
//!
//! [`Flow`] cuts the stream into pieces that can be converted on their own: a run of prose, a closed
//! inline construct, a whole block. [`Render`] converts each piece by a walk over its parse. What is
//! cut where depends on the text alone, never on how it was split into deltas, so every split gives
//! the same result. At most one open construct is held back, and at most [`MAX_HELD`] bytes of it.

mod construct;
mod flow;
mod html;
mod inline;
mod line;
mod render;
mod simple;
mod sink;
mod style;
#[cfg(test)]
mod tests;
mod walk;

pub(super) use construct::{Construct, Counts};
use flow::Flow;
use pulldown_cmark::Options;
use render::Render;
use sink::Sink;

use super::TextForm;

/// The most that is held back of one construct; what is larger passes as the text it is.
const MAX_HELD: usize = 16 * 1024;

/// The markdown that agents write: CommonMark with the extensions everybody renders.
const OPTIONS: Options = Options::ENABLE_TABLES
    .union(Options::ENABLE_STRIKETHROUGH)
    .union(Options::ENABLE_TASKLISTS)
    .union(Options::ENABLE_GFM);

/// Goes before inline constructs: they are read within a paragraph, and not on its first line, which
/// could be the head of a table.
const LEAD: &str = "a\na";

/// Converts one text that comes in pieces.
#[derive(Debug)]
pub(super) struct PlainText {
    flow: Flow,
    render: Render,
}

impl PlainText {
    pub(super) fn new(form: TextForm) -> Self {
        Self {
            flow: Flow::default(),
            render: Render::new(form),
        }
    }

    /// Text for a terminal, on which it looks like what it is.
    pub(super) fn with_styles(form: TextForm) -> Self {
        let mut text = Self::new(form);
        text.render.sink.shows_styles = true;
        text
    }

    /// Takes the next piece.
    pub(super) fn push(&mut self, text: &str) {
        self.flow.push(text, &mut self.render);
    }

    /// Ends the passage: nothing is open any more, and what follows begins a new block.
    pub(super) fn end_passage(&mut self) {
        self.flow.finish(&mut self.render);
    }

    /// Writes text of our own as a block; what is changed in it is not counted.
    pub(super) fn insert(&mut self, markdown: &str) {
        let counts = self.render.sink.counts;
        self.push(markdown);
        self.end_passage();
        self.render.sink.counts = counts;
    }

    /// What follows is another text.
    pub(super) fn restart(&mut self) {
        let counts = self.take_counts();
        *self = Self::new(self.render.form);
        self.render.sink.counts = counts;
    }

    /// What can be said so far.
    pub(super) fn take(&mut self) -> String {
        self.render.sink.take()
    }

    /// What was changed since the last call.
    pub(super) fn take_counts(&mut self) -> Counts {
        std::mem::take(&mut self.render.sink.counts)
    }
}

/// Removes characters that disguise a text, and counts them.
pub(super) fn remove_disguise(text: &mut String) -> Counts {
    let mut sink = Sink::default();
    sink.text(text);
    *text = sink.take();
    sink.counts
}
