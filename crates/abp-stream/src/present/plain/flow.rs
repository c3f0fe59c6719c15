//! Cuts a stream of markdown into pieces that can be converted on their own.
//!
//! A cut is made only where nothing that follows can change what came before it. To cut too late is
//! always right; it only holds text back for longer.

mod code;
mod paragraph;
mod table;
mod whole;

use super::line::{Class, Look, classify, line_of, look};
use super::render::Render;
use super::{Construct, MAX_HELD};
use code::Fence;
use paragraph::Paragraph;
use table::Table;
use whole::Whole;

/// How much text is looked at in one go.
const STEP: usize = 4 * 1024;

/// Text that was not let go yet, and what it is part of.
#[derive(Debug, Default)]
pub(super) struct Flow {
    held: String,
    /// Where to read on; everything before it belongs to what is open.
    at: usize,
    state: State,
    /// Whether the last character was a carriage return, to which a newline would belong.
    after_return: bool,
}

/// What is open.
#[derive(Debug, Default)]
enum State {
    /// Nothing: a line begins that begins a block.
    #[default]
    Between,
    Paragraph(Paragraph),
    Fence(Fence),
    /// Indented code. Blank lines are held, as they may be the end of it.
    Code,
    /// A block that is converted when it is whole.
    Whole(Whole),
    /// A table, which is converted row by row.
    Table(Table),
}

/// Whether a step led anywhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Made,
    /// Not without more text.
    Waiting,
}

impl Flow {
    pub(super) fn push(&mut self, text: &str, out: &mut Render) {
        out.allow(text.len());
        let mut rest = text;
        while !rest.is_empty() {
            let room = MAX_HELD.saturating_sub(self.held.len()).min(STEP);
            let (now, later) = rest.split_at(rest.floor_char_boundary(room));
            if now.is_empty() {
                self.overflow(out);
            } else {
                self.hold(now);
                self.advance(false, out);
            }
            rest = later;
        }
    }

    /// Nothing follows: whatever is open ends.
    pub(super) fn finish(&mut self, out: &mut Render) {
        self.advance(true, out);
        self.at = self.held.len();
        match std::mem::take(&mut self.state) {
            State::Paragraph(paragraph) => self.end_paragraph(&paragraph, out),
            State::Whole(_) => self.end_whole(out),
            State::Table(mut table) => self.end_table(&mut table, out),
            State::Between | State::Fence(_) | State::Code => {}
        }
        out.sink.block();
        *self = Self::default();
    }

    /// Adds to what is held, with one kind of line end.
    fn hold(&mut self, text: &str) {
        if !self.after_return && !text.contains('\r') {
            self.held.push_str(text);
            return;
        }
        for c in text.chars() {
            match c {
                '\n' if self.after_return => {}
                '\r' => self.held.push('\n'),
                c => self.held.push(c),
            }
            self.after_return = c == '\r';
        }
    }

    fn advance(&mut self, last: bool, out: &mut Render) {
        loop {
            let progress = match std::mem::take(&mut self.state) {
                State::Between => self.between(last, out),
                State::Paragraph(paragraph) => self.paragraph(paragraph, last, out),
                State::Fence(fence) => self.fence(fence, last, out),
                State::Code => self.code(last, out),
                State::Whole(whole) => self.whole(whole, last, out),
                State::Table(table) => self.table(table, last, out),
            };
            if progress == Progress::Waiting {
                return;
            }
        }
    }

    /// Lets go of what is too large to be held, as the text it is.
    fn overflow(&mut self, out: &mut Render) {
        out.sink.count(Construct::Overlong);
        match &self.state {
            State::Paragraph(paragraph) => paragraph.pay(out),
            _ => out.sink.block(),
        }
        out.sink.text(&self.held);
        let before = self.held.chars().next_back();
        self.state = State::Paragraph(Paragraph::within_line(before));
        out.end_list();
        self.release(self.held.len());
    }

    /// Lets go of the beginning of what is held.
    fn release(&mut self, length: usize) {
        self.held.drain(..length);
        self.at = self.at.saturating_sub(length);
    }

    /// What was not read yet.
    fn rest(&self) -> &str {
        self.held.get(self.at..).unwrap_or_default()
    }

    fn between(&mut self, last: bool, out: &mut Render) -> Progress {
        match look(&self.held, last) {
            Look::Blank(0) | Look::More => return Progress::Waiting,
            Look::Blank(length) => self.release(length),
            Look::Indented => {
                self.state = State::Code;
                out.begin_code();
            }
            Look::Text => self.begin_paragraph(Paragraph::new(), out),
            Look::Definition => self.begin_whole(Whole::Definition),
            Look::Special => return self.special(last, out),
        }
        Progress::Made
    }

    /// A line that may begin any block.
    fn special(&mut self, last: bool, out: &mut Render) -> Progress {
        let Some(line) = line_of(&self.held, last) else {
            return Progress::Waiting;
        };
        let length = line.len();
        match classify(line) {
            Class::Heading | Class::Rule => {
                out.block(line);
                self.release(length);
            }
            Class::Quote => self.begin_whole(Whole::quote(line)),
            Class::Html => self.begin_whole(Whole::html(line)),
            Class::Fence => {
                self.state = State::Fence(Fence::new(line));
                out.begin_code();
                self.release(length);
            }
            Class::Item => {
                self.state = State::Whole(Whole::item(line));
                self.at = length;
            }
            Class::Text | Class::Underline if line.trim_start().starts_with('|') => {
                return self.table_or_text(last, out);
            }
            Class::Text | Class::Underline => self.begin_paragraph(Paragraph::new(), out),
        }
        Progress::Made
    }
}
