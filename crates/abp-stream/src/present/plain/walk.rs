//! From a parse to plain text.

mod table;

use std::ops::Range;

use pulldown_cmark::{BlockQuoteKind, Event, Tag, TagEnd};

use super::sink::Sink;
use super::style::Style;
use super::{Construct, html};
use crate::present::TextForm;
use table::Table;

/// What a rule looks like on a terminal.
const RULE: &str = "────────────────";

/// How a source belongs to what was converted before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Part {
    /// It is whole.
    Whole,
    /// More of a list: the number its next item has, and whether something of it was told before.
    Items { number: Option<u64>, is_told: bool },
    /// The head of a table with the first of its rows, or with others.
    Rows { first: bool },
    /// The head of a table that goes on with the line that is open.
    RestOfHead,
}

/// What a source ended with.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum End {
    List {
        /// Where it begins.
        at: usize,
        /// The number that its next item has, where it has numbers.
        number: Option<u64>,
        /// Whether something of it was told.
        is_told: bool,
    },
    #[default]
    Other,
}

/// Writes the events of one parse.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    source: &'a str,
    sink: &'a mut Sink,
    form: TextForm,
    part: Part,
    /// For each open list the number of its next item, where it has numbers.
    lists: Vec<Option<u64>>,
    /// How much was marked before each open item and quote.
    marks: Vec<usize>,
    /// How much was written before the last list that is in nothing else.
    before_list: u64,
    links: Vec<OpenLink>,
    /// The content of an open block of code or HTML.
    verbatim: Option<String>,
    table: Table,
    end: End,
}

#[derive(Debug)]
struct OpenLink {
    address: String,
    text: String,
}

impl<'a> Walk<'a> {
    pub(super) fn new(source: &'a str, sink: &'a mut Sink, form: TextForm, part: Part) -> Self {
        Self {
            source,
            sink,
            form,
            part,
            lists: Vec::new(),
            marks: Vec::new(),
            before_list: 0,
            links: Vec::new(),
            verbatim: None,
            table: Table::default(),
            end: End::Other,
        }
    }

    /// Writes all events; says what was the last of them.
    pub(super) fn run<'e>(
        mut self,
        events: impl Iterator<Item = (Event<'e>, Range<usize>)>,
    ) -> End {
        for (event, range) in events {
            self.event(event, &range);
        }
        self.end
    }

    fn event(&mut self, event: Event<'_>, range: &Range<usize>) {
        match event {
            Event::Start(tag) => self.start(tag, range),
            Event::End(tag) => self.end(tag, range),
            Event::Text(text) => {
                self.count_escape(&text, range);
                self.write(&text);
            }
            Event::Html(text) => self.write(&text),
            Event::Code(code) => {
                self.sink.count(Construct::CodeSpan);
                self.write_as(Style::Code, &code);
            }
            Event::InlineHtml(tag) => {
                self.sink.count(Construct::Html);
                if html::breaks_line(&tag) {
                    self.hard_break();
                }
            }
            Event::SoftBreak => self.sink.space(),
            Event::HardBreak => {
                let source = self.source.get(range.start..).unwrap_or_default();
                if source.starts_with('\\') {
                    self.sink.count(Construct::Escape);
                }
                self.hard_break();
            }
            Event::Rule => {
                self.sink.count(Construct::Rule);
                self.gap();
                if self.sink.shows_styles {
                    self.sink.styled(Style::Aside, RULE);
                    self.gap();
                }
            }
            Event::TaskListMarker(done) => {
                self.sink.mark(if done { "done: " } else { "to do: " });
            }
            // Only with extensions that are not enabled.
            Event::InlineMath(text) | Event::DisplayMath(text) | Event::FootnoteReference(text) => {
                self.write(&text);
            }
        }
    }

    fn start(&mut self, tag: Tag<'_>, range: &Range<usize>) {
        match tag {
            Tag::Heading { .. } => {
                self.open(Construct::Heading);
                self.sink.begin_style(Style::Heading);
            }
            Tag::BlockQuote(kind) => {
                self.open(Construct::Quote);
                self.enter(kind.map_or("", quote_label));
            }
            Tag::CodeBlock(_) => {
                self.open(Construct::CodeBlock);
                self.verbatim = Some(String::new());
            }
            Tag::HtmlBlock => {
                self.open(Construct::Html);
                self.verbatim = Some(String::new());
            }
            Tag::List(first) => self.start_list(first),
            Tag::Item => self.start_item(),
            Tag::Table(_) => {
                self.gap();
                self.table = Table::default();
            }
            Tag::TableHead => {
                let head = self.source.get(range.clone()).unwrap_or_default();
                self.table = Table::new(head, self.sink.shows_styles);
            }
            Tag::TableRow => {}
            Tag::TableCell => self.table.start_cell(),
            Tag::Emphasis => self.begin(Construct::Emphasis, Style::Emphasis),
            Tag::Strong => self.begin(Construct::Emphasis, Style::Strong),
            Tag::Strikethrough => self.begin(Construct::Strikethrough, Style::Struck),
            Tag::Link { dest_url, .. } => self.start_link(Construct::Link, &dest_url),
            Tag::Image { dest_url, .. } => self.start_link(Construct::Image, &dest_url),
            Tag::Paragraph
            | Tag::FootnoteDefinition(_)
            | Tag::DefinitionList
            | Tag::DefinitionListTitle
            | Tag::DefinitionListDefinition
            | Tag::MetadataBlock(_) => self.gap(),
            Tag::Superscript | Tag::Subscript => {}
        }
    }

    fn end(&mut self, tag: TagEnd, range: &Range<usize>) {
        match tag {
            TagEnd::BlockQuote(_) => {
                self.leave();
                self.gap();
            }
            TagEnd::CodeBlock => self.end_code(),
            TagEnd::HtmlBlock => self.end_html(),
            TagEnd::List(_) => {
                let number = self.lists.pop().flatten();
                self.gap();
                self.end = End::List {
                    at: range.start,
                    number,
                    is_told: self.sink.written() > self.before_list,
                };
            }
            TagEnd::Item => {
                self.leave();
                self.sink.line();
            }
            TagEnd::TableHead => {
                let line = self.table.end_head();
                let is_told = self.part == (Part::Rows { first: false });
                self.sink.begin_style(Style::Strong);
                self.table_line(line.filter(|_| !is_told));
                self.sink.end_style();
            }
            TagEnd::TableRow => {
                let line = self.table.end_row();
                self.table_line(Some(line));
            }
            TagEnd::TableCell => self.table.end_cell(),
            TagEnd::Table => {
                let line = self.table.end();
                self.table_line(line);
                self.gap();
            }
            TagEnd::Link | TagEnd::Image => self.end_link(),
            TagEnd::Heading(_) => {
                self.sink.end_style();
                self.gap();
            }
            TagEnd::Paragraph
            | TagEnd::FootnoteDefinition
            | TagEnd::DefinitionList
            | TagEnd::DefinitionListTitle
            | TagEnd::DefinitionListDefinition
            | TagEnd::MetadataBlock(_) => self.gap(),
            TagEnd::Emphasis | TagEnd::Strong | TagEnd::Strikethrough => self.sink.end_style(),
            TagEnd::Superscript | TagEnd::Subscript => {}
        }
    }

    /// Enters an item or a quote, with what goes before its text.
    fn enter(&mut self, marker: &str) {
        self.marks.push(self.sink.mark(marker));
    }

    /// Leaves an item or a quote.
    fn leave(&mut self) {
        let before = self.marks.pop().unwrap_or_default();
        self.sink.unmark(before);
    }

    fn begin(&mut self, construct: Construct, style: Style) {
        self.sink.count(construct);
        self.sink.begin_style(style);
    }

    fn open(&mut self, construct: Construct) {
        self.sink.count(construct);
        self.gap();
    }

    /// Separates blocks: by an empty line, or within items and quotes by a line break.
    fn gap(&mut self) {
        self.end = End::Other;
        if !self.marks.is_empty() || !self.lists.is_empty() {
            self.sink.line();
            return;
        }
        match self.part {
            Part::Whole | Part::Items { .. } | Part::Rows { first: true } => self.sink.block(),
            Part::Rows { first: false } => self.sink.next_line(),
            Part::RestOfHead => {}
        }
    }

    /// Counts text that is not what stands in the source.
    fn count_escape(&mut self, text: &str, range: &Range<usize>) {
        let before = range
            .start
            .checked_sub(1)
            .map(|at| self.source.as_bytes().get(at));
        let is_escaped =
            before == Some(Some(&b'\\')) && text.starts_with(|c: char| c.is_ascii_punctuation());
        if self.verbatim.is_none() && (is_escaped || self.source.get(range.clone()) != Some(text)) {
            self.sink.count(Construct::Escape);
        }
    }

    fn write(&mut self, text: &str) {
        if let Some(content) = &mut self.verbatim {
            content.push_str(text);
            return;
        }
        for link in &mut self.links {
            link.text.push_str(text);
        }
        match self.table.cell() {
            Some(cell) => cell.push_str(text),
            None => self.sink.text(text),
        }
    }

    fn write_as(&mut self, style: Style, text: &str) {
        self.sink.begin_style(style);
        self.write(text);
        self.sink.end_style();
    }

    fn hard_break(&mut self) {
        match self.table.cell() {
            Some(cell) => cell.push(' '),
            None => self.sink.hard_break(),
        }
    }

    fn start_list(&mut self, first: Option<u64>) {
        let mut first = first;
        if self.lists.is_empty() && self.marks.is_empty() {
            self.before_list = self.sink.written();
        }
        match self.part {
            Part::Items { number, is_told } if self.lists.is_empty() && self.marks.is_empty() => {
                self.part = Part::Whole;
                first = number;
                if is_told {
                    self.before_list = 0;
                    self.sink.next_line();
                } else {
                    self.gap();
                }
            }
            _ => self.gap(),
        }
        self.lists.push(first);
    }

    fn start_item(&mut self) {
        self.sink.count(Construct::ListItem);
        self.sink.line();
        let indent = match self.form {
            TextForm::Screen => "  ".repeat(self.lists.len().saturating_sub(1).min(8)),
            TextForm::Speech => String::new(),
        };
        let marker = match (self.lists.last_mut(), self.form) {
            (Some(Some(number)), _) => {
                let marker = format!("{indent}{number}. ");
                *number = number.saturating_add(1);
                marker
            }
            (_, TextForm::Screen) => format!("{indent}• "),
            (_, TextForm::Speech) => indent,
        };
        self.enter(&marker);
    }

    fn end_code(&mut self) {
        let code = self.verbatim.take().unwrap_or_default();
        for line in code.split('\n') {
            self.sink.styled(Style::Code, line);
            self.sink.code_break();
        }
        self.sink.end_code();
        self.gap();
    }

    fn end_html(&mut self) {
        let content = self.verbatim.take().unwrap_or_default();
        for line in html::lines(&content) {
            self.sink.text(&line);
            self.sink.code_break();
        }
        self.sink.end_code();
        self.gap();
    }

    fn start_link(&mut self, construct: Construct, address: &str) {
        self.begin(construct, Style::Link);
        // What an inline image is, is told by its description; its bytes tell nobody anything.
        let is_inline = construct == Construct::Image && address.starts_with("data:");
        self.links.push(OpenLink {
            address: if is_inline { "" } else { address }.to_owned(),
            text: String::new(),
        });
    }

    fn end_link(&mut self) {
        self.sink.end_style();
        let Some(OpenLink { address, text }) = self.links.pop() else {
            return;
        };
        match address_beside(&text, &address) {
            Some(address) if text.trim().is_empty() => self.write(address),
            Some(address) => self.write_as(Style::Aside, &format!(" ({address})")),
            None => {}
        }
    }

    fn table_line(&mut self, line: Option<String>) {
        let Some(line) = line else { return };
        self.sink.count(Construct::TableRow);
        if self.part != Part::RestOfHead {
            self.sink.line();
        }
        self.sink.text(&line);
    }
}

/// The address to tell beside the text of a link; none where the text tells it.
pub(super) fn address_beside<'a>(text: &str, address: &'a str) -> Option<&'a str> {
    let text = text.trim();
    let is_told = address == text || address.strip_prefix("mailto:") == Some(text);
    Some(address).filter(|address| !address.is_empty() && !is_told)
}

fn quote_label(kind: BlockQuoteKind) -> &'static str {
    match kind {
        BlockQuoteKind::Note => "Note: ",
        BlockQuoteKind::Tip => "Tip: ",
        BlockQuoteKind::Important => "Important: ",
        BlockQuoteKind::Warning => "Warning: ",
        BlockQuoteKind::Caution => "Caution: ",
    }
}
