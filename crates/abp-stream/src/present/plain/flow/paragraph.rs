//! Paragraphs: prose passes as it comes, an inline construct when it is closed.

use memchr::memchr2;

use super::{Flow, Progress, State, Table};
use crate::present::plain::Construct;
use crate::present::plain::inline::{Inline, Next, depends_on_rest_of_line};
use crate::present::plain::line::{
    Class, Look, begins_block, classify_after_text, head_of_table, is_table, line_of, look,
    without_white_end,
};
use crate::present::plain::render::{Render, stand_in};

#[derive(Debug)]
pub(super) struct Paragraph {
    inline: Inline,
    /// Whether a line begins of which it is not known yet whether it belongs to the paragraph.
    at_line: bool,
    owed: Owed,
    /// The character before what is held; none at the beginning of a line.
    before: Option<char>,
    bars: Bars,
}

/// What stands between two lines, once there is a second one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owed {
    Nothing,
    Space,
    Break,
    /// A break that is a backslash where no line follows.
    BackslashBreak,
}

/// Bars in the first line, which may be the head of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Bars {
    /// None was seen up to there.
    None(usize),
    /// Nothing from there on passes before it is known.
    At(usize),
    /// It is no table.
    Ignored,
}

/// Whether a line belongs to the paragraph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Belongs {
    Yes,
    No,
    /// It is so long and makes a heading of the paragraph.
    Underline(usize),
}

impl Paragraph {
    pub(super) fn new() -> Self {
        Self {
            inline: Inline::default(),
            at_line: false,
            owed: Owed::Nothing,
            before: None,
            bars: Bars::None(0),
        }
    }

    pub(super) fn without_table() -> Self {
        Self {
            bars: Bars::Ignored,
            ..Self::new()
        }
    }

    /// The rest of a line, after that character.
    pub(super) fn within_line(before: Option<char>) -> Self {
        Self {
            before,
            ..Self::without_table()
        }
    }

    /// Another line follows.
    pub(super) fn pay(&self, out: &mut Render) {
        match self.owed {
            Owed::Nothing => {}
            Owed::Space => out.sink.space(),
            Owed::Break => out.sink.hard_break(),
            Owed::BackslashBreak => {
                out.sink.count(Construct::Escape);
                out.sink.hard_break();
            }
        }
    }

    /// How much of what is held can be looked at.
    fn visible(&mut self, held: &str) -> usize {
        while let Bars::None(from) = self.bars {
            let rest = held.as_bytes().get(from..).unwrap_or_default();
            let Some(found) = memchr2(b'|', b'\n', rest).map(|index| from + index) else {
                self.bars = Bars::None(held.len());
                break;
            };
            let before = held.get(..found).and_then(|text| text.chars().next_back());
            if held.as_bytes().get(found) == Some(&b'\n') {
                self.bars = Bars::None(found);
                break;
            }
            self.bars = if before.or(self.before) == Some('\\') {
                Bars::None(found + 1)
            } else {
                Bars::At(found)
            };
        }
        match self.bars {
            Bars::At(bar) => bar,
            Bars::None(_) | Bars::Ignored => held.len(),
        }
    }

    /// The beginning of what is held was let go: places move.
    fn shift(&mut self, by: usize) {
        self.inline.shift(by);
        self.bars = match self.bars {
            Bars::None(from) => Bars::None(from.saturating_sub(by)),
            Bars::At(bar) => Bars::At(bar.saturating_sub(by)),
            Bars::Ignored => Bars::Ignored,
        };
    }
}

impl Flow {
    pub(super) fn begin_paragraph(&mut self, paragraph: Paragraph, out: &mut Render) {
        out.sink.block();
        out.end_list();
        let text = self.held.trim_start_matches([' ', '\t']);
        self.release(self.held.len() - text.len());
        self.state = State::Paragraph(paragraph);
    }

    pub(super) fn paragraph(
        &mut self,
        mut paragraph: Paragraph,
        last: bool,
        out: &mut Render,
    ) -> Progress {
        if paragraph.at_line {
            match self.belongs(last) {
                None => {
                    self.state = State::Paragraph(paragraph);
                    return Progress::Waiting;
                }
                Some(Belongs::Yes) => self.next_line(&mut paragraph, out),
                Some(Belongs::Underline(length)) => {
                    self.end_paragraph(&paragraph, out);
                    out.sink.count(Construct::Heading);
                    self.release(length);
                    return Progress::Made;
                }
                Some(Belongs::No) => {
                    self.end_paragraph(&paragraph, out);
                    return Progress::Made;
                }
            }
        }
        self.scan(paragraph, last, out)
    }

    pub(super) fn end_paragraph(&mut self, paragraph: &Paragraph, out: &mut Render) {
        let source = self
            .held
            .get(..self.at)
            .unwrap_or_default()
            .trim_ascii_end();
        if paragraph.inline.is_open() {
            out.inline(source, paragraph.before, None);
        } else if paragraph.owed == Owed::BackslashBreak {
            out.sink.text("\\");
        }
        out.sink.block();
        self.release(self.at);
    }

    /// Whether the line that begins belongs to the paragraph; `None` where that cannot be told yet.
    fn belongs(&self, last: bool) -> Option<Belongs> {
        match look(self.rest(), last) {
            Look::More => None,
            Look::Blank(_) => Some(Belongs::No),
            Look::Indented | Look::Text | Look::Definition => Some(Belongs::Yes),
            Look::Special => {
                let line = line_of(self.rest(), last)?;
                if line.trim_start().starts_with('|') {
                    let lines = head_of_table(self.rest(), last)?;
                    let is_other = begins_block("a\n", lines);
                    return Some(if is_other { Belongs::No } else { Belongs::Yes });
                }
                Some(match classify_after_text(line) {
                    Class::Text => Belongs::Yes,
                    Class::Underline => Belongs::Underline(line.len()),
                    Class::Heading
                    | Class::Rule
                    | Class::Quote
                    | Class::Item
                    | Class::Fence
                    | Class::Html => Belongs::No,
                })
            }
        }
    }

    /// The paragraph goes on with the line that begins.
    fn next_line(&mut self, paragraph: &mut Paragraph, out: &mut Render) {
        paragraph.at_line = false;
        let text = self.rest().trim_start_matches([' ', '\t']);
        let indent = self.rest().len() - text.len();
        if paragraph.inline.is_open() {
            self.at += indent;
            return;
        }
        paragraph.pay(out);
        paragraph.owed = Owed::Nothing;
        self.release(self.at + indent);
    }

    /// Reads on within the line.
    fn scan(&mut self, mut paragraph: Paragraph, last: bool, out: &mut Render) -> Progress {
        loop {
            let visible = paragraph.visible(&self.held);
            let text = self.held.get(..visible).unwrap_or_default();
            let is_last = last && visible == self.held.len();
            let (at, before) = (self.at, paragraph.before);
            let was_open = paragraph.inline.is_open();
            let char_before = || text.get(..at)?.chars().next_back().or(before);
            match paragraph.inline.next(text, at, is_last, char_before) {
                Next::More if visible < self.held.len() => {
                    let Some(lines) = head_of_table(&self.held, last) else {
                        self.pass_prose(&mut paragraph, out);
                        self.state = State::Paragraph(paragraph);
                        return Progress::Waiting;
                    };
                    let lead = format!("a{}", stand_in(before.unwrap_or(' ')));
                    let head = format!("{lead}{lines}");
                    if is_table(&head) {
                        out.rest_of_head(&head, lead.len());
                        self.release(head.len() - lead.len());
                        self.state = State::Table(Table::new(head, true));
                        return Progress::Made;
                    }
                    paragraph.bars = Bars::Ignored;
                }
                Next::More => {
                    self.pass_prose(&mut paragraph, out);
                    self.state = State::Paragraph(paragraph);
                    return Progress::Waiting;
                }
                Next::To(to) => {
                    self.at = to;
                    match (was_open, paragraph.inline.is_open()) {
                        (false, true) => self.pass(&mut paragraph, at, out),
                        (true, false) => self.pass_construct(&mut paragraph, out),
                        (false, false) | (true, true) => {}
                    }
                }
                Next::Whole(to) => {
                    self.at = to;
                    if !was_open {
                        self.pass(&mut paragraph, at, out);
                        self.pass_construct(&mut paragraph, out);
                    }
                }
                Next::Escape => {
                    self.at = at + 2;
                    if !was_open {
                        self.pass(&mut paragraph, at, out);
                        out.sink.count(Construct::Escape);
                        self.drop_beginning(&mut paragraph, 1);
                        self.pass(&mut paragraph, 1, out);
                    }
                }
                Next::Newline => {
                    self.end_line(&mut paragraph, was_open, out);
                    self.state = State::Paragraph(paragraph);
                    return Progress::Made;
                }
            }
        }
    }

    /// The line ends.
    fn end_line(&mut self, paragraph: &mut Paragraph, is_open: bool, out: &mut Render) {
        paragraph.at_line = true;
        paragraph.bars = Bars::Ignored;
        if is_open {
            self.at += 1;
            return;
        }
        let line = self.held.get(..self.at).unwrap_or_default();
        let text = without_white_end(line);
        let white = line.len() - text.len();
        paragraph.owed = match white {
            0 if text.ends_with('\\') => Owed::BackslashBreak,
            0 | 1 => Owed::Space,
            _ => Owed::Break,
        };
        let backslash = usize::from(paragraph.owed == Owed::BackslashBreak);
        self.pass(paragraph, self.at - white - backslash, out);
        self.drop_beginning(paragraph, self.at + 1);
        paragraph.before = None;
    }

    /// Lets prose pass, except for white space that may be at the end of the line.
    fn pass_prose(&mut self, paragraph: &mut Paragraph, out: &mut Render) {
        if paragraph.inline.is_open() {
            return;
        }
        let prose = self.held.get(..self.at).unwrap_or_default();
        let prose = without_white_end(prose);
        self.pass(paragraph, prose.len(), out);
    }

    /// Lets the beginning pass as it is.
    fn pass(&mut self, paragraph: &mut Paragraph, length: usize, out: &mut Render) {
        let text = self.held.get(..length).unwrap_or_default();
        out.sink.text(text);
        paragraph.before = text.chars().next_back().or(paragraph.before);
        self.drop_beginning(paragraph, length);
    }

    /// Lets a construct pass that is closed.
    fn pass_construct(&mut self, paragraph: &mut Paragraph, out: &mut Render) {
        let source = self.held.get(..self.at).unwrap_or_default();
        if depends_on_rest_of_line(source) {
            paragraph.inline.give_up();
            return;
        }
        // Only there the next character matters, and only there it is known to have come.
        let after = match source.ends_with(['*', '_', '~', ']']) {
            true => self.rest().chars().next(),
            false => None,
        };
        out.construct(source, paragraph.before, after);
        paragraph.before = source.chars().next_back();
        self.drop_beginning(paragraph, self.at);
    }

    fn drop_beginning(&mut self, paragraph: &mut Paragraph, length: usize) {
        self.release(length);
        paragraph.shift(length);
    }
}
