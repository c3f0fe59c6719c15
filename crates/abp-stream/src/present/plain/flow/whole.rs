//! Blocks that are converted when they are whole: items, quotes, definitions and HTML.

use super::{Flow, Progress, State};
use crate::present::plain::line::{
    Class, Look, begins_block, classify_after_text, indent, interrupts, line_of, look, marker,
};
use crate::present::plain::render::Render;

#[derive(Debug, Clone, Copy)]
pub(super) enum Whole {
    Item(Item),
    Quote(Lazy),
    /// Up to a blank line, or to another block.
    Definition,
    /// Up to a line that holds the text; without one, up to a blank line.
    Html(Option<&'static str>),
}

/// An item of a list. What belongs to it is indented.
#[derive(Debug, Clone, Copy)]
pub(super) struct Item {
    indent: usize,
    /// Whether there is nothing in it yet.
    is_empty: bool,
    lazy: Lazy,
}

/// Lines that lack the mark of a container may go on with the paragraph at the end of it. Whether
/// there is such a paragraph is not known here: without one, such a line is outside of the container.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Lazy {
    /// Whether there was such a line.
    is_lazy: bool,
    after_blank: bool,
    /// How often the parser was asked.
    asked: usize,
}

/// How often the parser is asked where a container ends, before it is let go as the text it is.
const MAX_ASKED: usize = 64;

impl Lazy {
    /// Whether a line that lacks the mark may belong to the container, of which `held` is known.
    fn takes(&mut self, line: &str, after_blank: bool, held: &str) -> bool {
        let is_special = look(line, true) == Look::Special;
        if !self.is_lazy {
            self.is_lazy = !after_blank && !interrupts(line);
            return self.is_lazy;
        }
        if !is_special && !after_blank {
            return true;
        }
        self.asked += 1;
        self.asked > MAX_ASKED || !begins_block(held, line)
    }
}

/// HTML that blank lines do not end: how it begins, and what ends it.
const HTML_ENDS: [(&str, &str); 8] = [
    ("<pre", "</pre>"),
    ("<style", "</style>"),
    ("<script", "</script>"),
    ("<textarea", "</textarea>"),
    ("<!--", "-->"),
    ("<![CDATA[", "]]>"),
    ("<!", ">"),
    ("<?", "?>"),
];

impl Whole {
    pub(super) fn item(line: &str) -> Self {
        let marker = marker(line);
        Self::Item(Item {
            indent: marker.map_or(2, |marker| marker.indent),
            is_empty: !marker.is_some_and(|marker| marker.has_content),
            lazy: Lazy::default(),
        })
    }

    pub(super) fn quote(line: &str) -> Self {
        Self::Quote(Lazy {
            // A label such as `[!NOTE]` may go on below a blank line.
            is_lazy: line.contains("[!"),
            ..Lazy::default()
        })
    }

    pub(super) fn html(line: &str) -> Self {
        let text = line.trim_start().as_bytes();
        let end = HTML_ENDS.iter().find(|(open, _)| {
            let (begins, after) = text.split_at_checked(open.len()).unwrap_or_default();
            let is_name = open.ends_with(|c: char| c.is_ascii_lowercase());
            let ends_name = |next: &u8| next.is_ascii_whitespace() || *next == b'>';
            begins.eq_ignore_ascii_case(open.as_bytes())
                && (!is_name || after.first().is_none_or(ends_name))
        });
        Self::Html(end.map(|(_, end)| *end))
    }

    /// Whether a line that is not its first belongs to the block, of which `held` is known.
    fn takes(&mut self, line: &str, held: &str) -> bool {
        let is_blank = matches!(look(line, true), Look::Blank(_));
        match self {
            Self::Item(item) => {
                let is_indented = indent(line) >= item.indent;
                if std::mem::take(&mut item.is_empty) {
                    return is_indented && !is_blank;
                }
                let after_blank = std::mem::replace(&mut item.lazy.after_blank, is_blank);
                is_blank || is_indented || item.lazy.takes(line, after_blank, held)
            }
            Self::Quote(lazy) => {
                let after_blank = std::mem::replace(&mut lazy.after_blank, is_blank);
                let is_quote = indent(line) < 4 && line.trim_start().starts_with('>');
                match is_blank {
                    true => lazy.is_lazy,
                    false => (is_quote && !after_blank) || lazy.takes(line, after_blank, held),
                }
            }
            Self::Definition => !is_blank && !ends_text(line),
            Self::Html(end) => end.is_some() || !is_blank,
        }
    }

    /// Whether the block ends with a line that belongs to it.
    fn ends_with(&self, line: &str) -> bool {
        match self {
            Self::Html(Some(end)) => line.contains(end),
            Self::Item(_) | Self::Quote(_) | Self::Definition | Self::Html(None) => false,
        }
    }

    /// Whether the beginning of a line tells already that it does not belong to the block.
    fn is_ended_by(&self, beginning: &str) -> bool {
        match self {
            Self::Item(item) => {
                let next = marker(beginning).filter(|next| next.has_content);
                next.is_some() && !item.lazy.is_lazy && indent(beginning) < item.indent.min(4)
            }
            Self::Quote(_) | Self::Definition | Self::Html(_) => false,
        }
    }
}

/// Whether a line ends the paragraph before it and is no part of it.
fn ends_text(line: &str) -> bool {
    look(line, true) == Look::Special
        && !matches!(classify_after_text(line), Class::Text | Class::Underline)
}

impl Flow {
    /// Begins a block with the line that is held.
    pub(super) fn begin_whole(&mut self, whole: Whole) {
        self.state = State::Whole(whole);
    }

    pub(super) fn whole(&mut self, mut whole: Whole, last: bool, out: &mut Render) -> Progress {
        let rest = self.rest();
        let Some(line) = line_of(rest, last) else {
            if whole.is_ended_by(rest) {
                self.end_whole(out);
                return Progress::Made;
            }
            self.state = State::Whole(whole);
            return Progress::Waiting;
        };
        let is_first = self.at == 0;
        let held = self.held.get(..self.at).unwrap_or_default();
        let belongs = is_first || whole.takes(line, held);
        let ends = !belongs || whole.ends_with(line);
        if belongs {
            self.at += line.len();
        }
        if ends {
            self.end_whole(out);
        } else {
            self.state = State::Whole(whole);
        }
        Progress::Made
    }

    pub(super) fn end_whole(&mut self, out: &mut Render) {
        let source = self.held.get(..self.at).unwrap_or_default();
        out.block(source);
        self.release(self.at);
    }
}
