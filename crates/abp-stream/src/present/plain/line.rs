//! What a line is: as far as its beginning tells, and in the end by asking the parser.

use std::borrow::Cow;

use pulldown_cmark::{CodeBlockKind, Event, Parser, Tag};

use super::OPTIONS;

/// The longest label of a definition that is waited for.
const MAX_LABEL: usize = 1000;

/// What the beginning of a line tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Look {
    /// Not enough.
    More,
    /// The line is blank and this long, with its end.
    Blank(usize),
    /// It is indented like code.
    Indented,
    /// It is the text of a paragraph, whatever follows.
    Text,
    /// It begins like the definition of a link.
    Definition,
    /// It may begin another block: the whole line is needed.
    Special,
}

/// What a whole line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    Text,
    Heading,
    /// The line makes a heading of the paragraph before it.
    Underline,
    Rule,
    Quote,
    Item,
    Fence,
    Html,
}

/// Looks at the beginning of a line; `whole` says that nothing follows what is there.
pub(super) fn look(line: &str, whole: bool) -> Look {
    let bytes = line.as_bytes();
    let white = bytes.iter().take_while(|byte| is_white(**byte)).count();
    let Some(&first) = bytes.get(white) else {
        return if whole {
            Look::Blank(bytes.len())
        } else {
            Look::More
        };
    };
    if first == b'\n' {
        return Look::Blank(white + 1);
    }
    if indent(line) >= 4 {
        return Look::Indented;
    }
    let rest = bytes.get(white..).unwrap_or_default();
    match first {
        b'>' | b'<' | b'|' => Look::Special,
        b'[' => definition(rest, whole),
        b'0'..=b'9' => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            match (rest.get(digits), rest.get(digits + 1)) {
                (None, _) if !whole && digits < 10 => Look::More,
                (Some(b'.' | b')'), None) if !whole => Look::More,
                (Some(b'.' | b')'), None) => Look::Special,
                (Some(b'.' | b')'), Some(next)) if next.is_ascii_whitespace() => Look::Special,
                _ => Look::Text,
            }
        }
        b'#' | b'=' | b'-' | b'+' | b'*' | b'_' | b'`' | b'~' => {
            let run = rest.iter().take_while(|byte| **byte == first).count();
            match rest.get(run) {
                _ if run >= 3 && matches!(first, b'`' | b'~') => Look::Special,
                None if whole => Look::Special,
                None => Look::More,
                Some(next) if next.is_ascii_whitespace() => Look::Special,
                Some(_) => Look::Text,
            }
        }
        _ => Look::Text,
    }
}

/// Whether a line that begins with a bracket begins a definition.
fn definition(line: &[u8], whole: bool) -> Look {
    let mut escaped = false;
    for (index, byte) in line.iter().enumerate().skip(1).take(MAX_LABEL) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b']' => {
                return match line.get(index + 1) {
                    Some(b':') => Look::Definition,
                    None if !whole => Look::More,
                    _ => Look::Text,
                };
            }
            b'[' | b'\n' => return Look::Text,
            _ => {}
        }
    }
    if whole || line.len() > MAX_LABEL {
        Look::Text
    } else {
        Look::More
    }
}

/// Classifies a line that begins a block.
pub(super) fn classify(line: &str) -> Class {
    // Most lines that come here are of this kind.
    if indent(line) < 4 && marker(line).is_some_and(|marker| marker.begins_with_word) {
        return Class::Item;
    }
    match Parser::new_ext(line, OPTIONS).next() {
        Some(event) => class_of(&event),
        None => Class::Text,
    }
}

/// Classifies a line that follows the line of a paragraph.
pub(super) fn classify_after_text(line: &str) -> Class {
    let source = format!("a\n{line}");
    for (event, range) in Parser::new_ext(&source, OPTIONS).into_offset_iter() {
        match event {
            Event::Start(Tag::Heading { .. }) if range.start == 0 => return Class::Underline,
            Event::SoftBreak => return Class::Text,
            _ if range.start < 2 => {}
            event => return class_of(&event),
        }
    }
    Class::Text
}

fn class_of(event: &Event<'_>) -> Class {
    match event {
        Event::Rule => Class::Rule,
        Event::Start(Tag::Heading { .. }) => Class::Heading,
        Event::Start(Tag::BlockQuote(_)) => Class::Quote,
        Event::Start(Tag::List(_)) => Class::Item,
        Event::Start(Tag::CodeBlock(CodeBlockKind::Fenced(_))) => Class::Fence,
        Event::Start(Tag::HtmlBlock) => Class::Html,
        _ => Class::Text,
    }
}

/// Whether a line ends what a container, a table or a paragraph of somewhere else had begun. An
/// HTML tag alone on its line does not.
pub(super) fn interrupts(line: &str) -> bool {
    if look(line, true) != Look::Special || line.trim_start().starts_with('|') {
        return false;
    }
    match classify(line) {
        Class::Heading | Class::Rule | Class::Quote | Class::Item | Class::Fence => true,
        Class::Html => classify_after_text(line) == Class::Html,
        Class::Text | Class::Underline => false,
    }
}

/// Whether a block, or an item, begins with the first line of `next`, which follows these lines.
pub(super) fn begins_block(lines: &str, next: &str) -> bool {
    let source = format!("{lines}{next}");
    let line = lines.len()..lines.len() + line_of(next, true).map_or(0, str::len);
    let mut depth = 0;
    for (event, range) in Parser::new_ext(&source, OPTIONS).into_offset_iter() {
        let begins = match &event {
            Event::Start(Tag::Item) => depth == 1,
            Event::Start(_) | Event::Rule => depth == 0,
            _ => false,
        };
        if begins && line.contains(&range.start) {
            return true;
        }
        match event {
            Event::Start(_) => depth += 1,
            Event::End(_) => depth -= 1,
            _ => {}
        }
    }
    false
}

/// Whether these lines begin with a table.
pub(super) fn is_table(lines: &str) -> bool {
    let first = Parser::new_ext(lines, OPTIONS).next();
    matches!(first, Some(Event::Start(Tag::Table(_))))
}

/// The lines that tell whether a table begins: the first, and the second if it may be the line below
/// the head. `None` where that cannot be told yet; `last` says that nothing follows.
pub(super) fn head_of_table(text: &str, last: bool) -> Option<&str> {
    let first = line_of(text, last)?;
    let rest = text.get(first.len()..).unwrap_or_default();
    match rest.trim_start_matches([' ', '\t']).bytes().next() {
        Some(b'|' | b'-' | b':') => {
            let second = line_of(rest, last)?;
            text.get(..first.len() + second.len())
        }
        None if !last => None,
        _ => Some(first),
    }
}

/// The first line with its end; one without an end only where nothing follows.
pub(super) fn line_of(text: &str, last: bool) -> Option<&str> {
    match text.find('\n') {
        Some(end) => text.get(..=end),
        None => Some(text).filter(|text| last && !text.is_empty()),
    }
}

/// The marker of a list item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marker {
    /// What tells lists apart: the bullet, or what follows the number.
    pub(super) kind: u8,
    /// The indentation of what belongs to the item.
    pub(super) indent: usize,
    /// Whether something follows on the same line, other than a mark that it is done.
    pub(super) has_content: bool,
    /// Whether what follows begins with a letter.
    begins_with_word: bool,
}

/// The marker at the beginning of a line.
pub(super) fn marker(line: &str) -> Option<Marker> {
    let text = line.trim_start_matches([' ', '\t']);
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let kind = match (*text.as_bytes().get(digits)?, digits) {
        (bullet @ (b'-' | b'+' | b'*'), 0) => bullet,
        (after @ (b'.' | b')'), 1..=9) => after,
        _ => return None,
    };
    let content = text.get(digits + 1..).unwrap_or_default();
    if !content.is_empty() && !content.starts_with([' ', '\t', '\n']) {
        return None;
    }
    let end = indent(line) + digits + 1;
    let white = columns(content, end);
    let text = content.trim_ascii();
    // White space beyond that is code in the item.
    let indent = match white {
        1..=4 if !text.is_empty() => end + white,
        _ => end + 1,
    };
    Some(Marker {
        kind,
        indent,
        has_content: !matches!(text, "" | "[ ]" | "[x]" | "[X]"),
        begins_with_word: text.starts_with(char::is_alphabetic),
    })
}

/// The columns of white space a line begins with.
pub(super) fn indent(line: &str) -> usize {
    columns(line, 0)
}

/// The columns of white space at the beginning of a text that begins in that column.
fn columns(text: &str, from: usize) -> usize {
    let mut column = from;
    for byte in text.bytes() {
        match byte {
            b' ' => column += 1,
            b'\t' => column += 4 - column % 4,
            _ => break,
        }
    }
    column - from
}

/// A line without its first columns of white space, as many as there are.
pub(super) fn dedent(line: &str, width: usize) -> Cow<'_, str> {
    let mut column = 0;
    for (index, byte) in line.bytes().enumerate() {
        match byte {
            b' ' if column < width => column += 1,
            b'\t' if column < width => column += 4 - column % 4,
            _ => {
                let rest = line.get(index..).unwrap_or_default();
                return match column.saturating_sub(width) {
                    0 => Cow::Borrowed(rest),
                    // A tab that only begins within them leaves the rest of itself.
                    rest_of_tab => Cow::Owned(format!("{:rest_of_tab$}{rest}", "")),
                };
            }
        }
    }
    Cow::Owned(" ".repeat(column.saturating_sub(width)))
}

/// White space within a line.
pub(super) fn is_white(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | 0x0B | 0x0C)
}

/// A line without white space at its end.
pub(super) fn without_white_end(line: &str) -> &str {
    line.trim_end_matches([' ', '\t', '\u{B}', '\u{C}'])
}
