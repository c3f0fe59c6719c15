//! Converts pieces of markdown that [`super::flow::Flow`] cut.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use pulldown_cmark::{BrokenLink, CowStr, Event, Parser, Tag, TagEnd};

use super::line::marker;
use super::sink::{Sink, is_disguise};
use super::walk::{End, Part, Walk};
use super::{Construct, LEAD, OPTIONS, simple};
use crate::present::TextForm;

/// How many definitions, and how many labels without one, are remembered.
const MAX_LABELS: usize = 1000;
/// The longest address that is remembered.
const MAX_ADDRESS: usize = 2048;

/// Converts pieces, and remembers what later ones need.
#[derive(Debug)]
pub(super) struct Render {
    pub(super) sink: Sink,
    pub(super) form: TextForm,
    labels: Labels,
    /// The list that the last block ended with.
    list: Option<OpenList>,
}

impl Render {
    pub(super) fn new(form: TextForm) -> Self {
        Self {
            sink: Sink::default(),
            form,
            labels: Labels::default(),
            list: None,
        }
    }

    /// So much more text was read.
    pub(super) fn allow(&mut self, length: usize) {
        self.labels.allowance = self.labels.allowance.saturating_add(length);
    }

    /// A whole block, or several; or items that go on with the list before them.
    pub(super) fn block(&mut self, source: &str) {
        let kind = marker(source).map(|marker| marker.kind);
        let part = match self.list {
            Some(list) if kind == Some(list.kind) => Part::Items {
                number: list.number,
                is_told: list.is_told,
            },
            _ => Part::Whole,
        };
        self.convert(source, part);
    }

    /// Rows of a table, together with the head of the table; says whether there was anything to tell.
    pub(super) fn rows(&mut self, source: &str, first: bool) -> bool {
        let written = self.sink.written();
        self.convert(source, Part::Rows { first });
        self.sink.written() > written
    }

    /// Code, the lines of which the caller writes.
    pub(super) fn begin_code(&mut self) {
        self.list = None;
        self.sink.count(Construct::CodeBlock);
        self.sink.block();
    }

    /// Text, which the caller writes: no list goes on after it.
    pub(super) fn end_list(&mut self) {
        self.list = None;
    }

    /// The head of a table the beginning of which was taken for prose, which so much stands for.
    pub(super) fn rest_of_head(&mut self, source: &str, lead: usize) {
        self.convert_within(source, lead..source.len(), Part::RestOfHead);
    }

    /// An inline construct that is closed.
    pub(super) fn construct(&mut self, source: &str, before: Option<char>, after: Option<char>) {
        if !simple::convert(source, &mut self.sink) {
            self.inline(source, before, after);
        }
    }

    /// Inline constructs of an open paragraph, with the characters around them, which decide what
    /// can be emphasis.
    pub(super) fn inline(&mut self, construct: &str, before: Option<char>, after: Option<char>) {
        let mut source = LEAD.to_owned();
        source.push(stand_in(before.unwrap_or(' ')));
        let start = source.len();
        source.push_str(construct);
        let end = source.len();
        match after.map(stand_in) {
            None => {}
            Some(' ') => source.push_str(" a"),
            Some(c) => source.push(c),
        }
        self.convert_within(&source, start..end, Part::Whole);
    }

    /// Converts what is within the range, without beginning a block.
    fn convert_within(&mut self, source: &str, range: Range<usize>, part: Part) {
        let labels = &mut self.labels;
        let resolve = |link: BrokenLink<'_>| labels.resolve(&link);
        let parser = Parser::new_with_broken_link_callback(source, OPTIONS, Some(resolve));
        let events = parser
            .into_offset_iter()
            .filter_map(|(event, at)| clip(event, at, &range));
        Walk::new(source, &mut self.sink, self.form, part).run(events);
    }

    fn convert(&mut self, source: &str, part: Part) {
        let labels = &mut self.labels;
        let resolve = |link: BrokenLink<'_>| labels.resolve(&link);
        let parser = Parser::new_with_broken_link_callback(source, OPTIONS, Some(resolve));
        let definitions = parser.reference_definitions().iter();
        let mut definitions: Vec<_> = definitions
            .map(|(label, to)| (to.span.start, label.to_owned(), to.dest.to_string()))
            .collect();
        let walk = Walk::new(source, &mut self.sink, self.form, part);
        let end = walk.run(parser.into_offset_iter());
        self.list = match end {
            End::List {
                at,
                number,
                is_told,
            } => source.get(at..).and_then(marker).map(|marker| OpenList {
                kind: marker.kind,
                number,
                is_told,
            }),
            End::Other => None,
        };
        definitions.sort_unstable();
        for (_, label, address) in definitions {
            self.define(&label, address);
        }
    }

    /// Remembers a definition. Where a link came before it, that link had no address: it is told now.
    fn define(&mut self, label: &str, address: String) {
        self.sink.count(Construct::Definition);
        if self.labels.awaited.remove(&normal(label)) {
            self.sink.block();
            self.sink.text(&format!("{label}: {address}"));
            self.sink.block();
        }
        if self.labels.known.len() < MAX_LABELS && address.len() < MAX_ADDRESS {
            self.labels.known.entry(normal(label)).or_insert(address);
        }
    }
}

/// A list that may go on.
#[derive(Debug, Clone, Copy)]
struct OpenList {
    kind: u8,
    /// The number that its next item has, where it has numbers.
    number: Option<u64>,
    /// Whether something of it was told.
    is_told: bool,
}

/// What link labels stand for.
#[derive(Debug, Default)]
struct Labels {
    /// Addresses by label.
    known: HashMap<String, String>,
    /// Labels that were used and are not defined yet.
    awaited: HashSet<String>,
    /// How much may still be told of addresses, so that a short label cannot become a long text again
    /// and again: in all as much as was read.
    allowance: usize,
}

impl Labels {
    /// The address and title of a link whose definition is not in the same piece.
    fn resolve<'a>(&mut self, link: &BrokenLink<'_>) -> Option<(CowStr<'a>, CowStr<'a>)> {
        let label = normal(&link.reference);
        if let Some(address) = self.known.get(&label) {
            self.allowance = self.allowance.checked_sub(address.len())?;
            return Some((address.clone().into(), "".into()));
        }
        if self.awaited.len() < MAX_LABELS {
            self.awaited.insert(label);
        }
        None
    }
}

/// A label in the form in which labels are compared.
fn normal(label: &str) -> String {
    let words: Vec<_> = label.split_ascii_whitespace().collect();
    words.join(" ").to_lowercase()
}

/// The event, as far as it is within the range and within a paragraph.
fn clip<'e>(
    event: Event<'e>,
    at: Range<usize>,
    range: &Range<usize>,
) -> Option<(Event<'e>, Range<usize>)> {
    match event {
        Event::Start(Tag::Paragraph) | Event::End(TagEnd::Paragraph) => None,
        Event::SoftBreak if at.start < range.start => None,
        Event::Text(text) if at.start < range.start || at.end > range.end => {
            let skip = range.start.saturating_sub(at.start);
            let keep = text.len().saturating_sub(at.end.saturating_sub(range.end));
            let text = text.get(skip..keep)?.to_owned();
            Some((
                Event::Text(text.into()),
                at.start.max(range.start)..at.end.min(range.end),
            ))
        }
        event => Some((event, at)),
    }
}

/// A character of the same kind that has no meaning of its own.
pub(super) fn stand_in(c: char) -> char {
    match c {
        c if c.is_whitespace() => ' ',
        c if c.is_ascii_punctuation() => '.',
        c if c.is_alphanumeric() || is_disguise(c) => 'a',
        c => c,
    }
}
