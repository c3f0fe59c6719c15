//! Tags and addresses in angle brackets.

use pulldown_cmark::{Event, Parser, Tag};

use super::{Step, depends_on_rest_of_line, through};
use crate::present::plain::{LEAD, OPTIONS};

/// What follows an angle bracket.
#[derive(Debug)]
pub(super) struct Angle {
    /// Where the angle bracket is.
    pub(super) from: usize,
    kind: AngleKind,
    quote: Option<u8>,
    after_equals: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AngleKind {
    /// A tag, or an address.
    Tag,
    /// A comment or a declaration.
    Declaration,
    Instruction,
    /// Only an address can begin so.
    Address,
}

impl Angle {
    /// What begins with an angle bracket and that byte; `None` where nothing does.
    pub(super) fn new(from: usize, next: u8) -> Option<Self> {
        let kind = match next {
            b'a'..=b'z' | b'A'..=b'Z' | b'/' => AngleKind::Tag,
            b'!' => AngleKind::Declaration,
            b'?' => AngleKind::Instruction,
            _ if is_address(next) => AngleKind::Address,
            _ => return None,
        };
        Some(Self {
            from,
            kind,
            quote: None,
            after_equals: false,
        })
    }

    pub(super) fn step(&mut self, text: &str, at: usize) -> Step {
        let rest = text.as_bytes().get(at..).unwrap_or_default();
        for (index, &byte) in rest.iter().enumerate() {
            match (byte, self.quote) {
                (b'\n', _) if self.kind == AngleKind::Address => return Step::Wrong,
                (b'\n', _) => return through(Some(index), rest),
                (_, Some(quote)) => {
                    if byte == quote {
                        self.quote = None;
                    }
                }
                (b'>', None) => {
                    let whole = text.get(self.from..=at + index).unwrap_or_default();
                    if self.may_end(whole) {
                        return match is_angle(whole) {
                            _ if depends_on_rest_of_line(whole) => Step::Unknown,
                            true => Step::Done(index + 1),
                            false => Step::Wrong,
                        };
                    }
                }
                _ if self.is_wrong(byte) => return Step::Wrong,
                (b'"' | b'\'', None) if self.kind == AngleKind::Tag && self.after_equals => {
                    self.quote = Some(byte);
                    self.after_equals = false;
                }
                (b'=', None) => self.after_equals = true,
                (byte, None) => self.after_equals &= byte.is_ascii_whitespace(),
            }
        }
        Step::Through(rest.len())
    }

    fn is_wrong(&self, byte: u8) -> bool {
        match self.kind {
            AngleKind::Tag => byte == b'<',
            AngleKind::Address => byte == b'<' || byte.is_ascii_whitespace(),
            AngleKind::Declaration | AngleKind::Instruction => false,
        }
    }

    /// Whether the angle bracket at the end of `whole` can be the end.
    fn may_end(&self, whole: &str) -> bool {
        match self.kind {
            AngleKind::Tag | AngleKind::Address => true,
            AngleKind::Instruction => whole.len() > 3 && whole.ends_with("?>"),
            AngleKind::Declaration if whole.starts_with("<!--") => {
                matches!(whole, "<!-->" | "<!--->") || (whole.len() > 6 && whole.ends_with("-->"))
            }
            AngleKind::Declaration if whole.starts_with("<![CDATA[") => whole.ends_with("]]>"),
            AngleKind::Declaration => true,
        }
    }
}

/// Whether the parser takes it for a tag or an address.
fn is_angle(text: &str) -> bool {
    let source = format!("{LEAD}{text}");
    let mut events = Parser::new_ext(&source, OPTIONS).into_offset_iter();
    events.any(|(event, range)| {
        matches!(event, Event::InlineHtml(_) | Event::Start(Tag::Link { .. }))
            && range == (LEAD.len()..source.len())
    })
}

/// Bytes that an address can begin with.
fn is_address(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b".!#$%&'*+/=?^_`{|}~-".contains(&byte)
}
