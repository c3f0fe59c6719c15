//! Inline constructs that are plain enough to be converted without the parser.
//!
//! They are most of what agents write, and asking the parser costs more than all the rest. What is
//! not exactly of one of these forms goes to the parser.

use super::inline::is_special;
use super::sink::Sink;
use super::style::Style;
use super::{Construct, walk};

/// Converts a closed construct; says whether it could.
pub(super) fn convert(source: &str, sink: &mut Sink) -> bool {
    let done = match source.as_bytes().first() {
        Some(b'`') => code(source, sink),
        Some(b'*' | b'_' | b'~') => emphasis(source, sink),
        Some(b'[') => link(source, sink),
        _ => None,
    };
    done.is_some()
}

/// Code within one line, in single backticks.
fn code(source: &str, sink: &mut Sink) -> Option<()> {
    let code = source.strip_prefix('`')?.strip_suffix('`')?;
    if code.is_empty() || code.contains(['`', '\n']) || code.starts_with(' ') {
        return None;
    }
    sink.count(Construct::CodeSpan);
    sink.styled(Style::Code, code);
    Some(())
}

/// Emphasis of words, in one pair of delimiters.
fn emphasis(source: &str, sink: &mut Sink) -> Option<()> {
    let delimiter = source.chars().next()?;
    let words = source.trim_matches(delimiter);
    let run = source.len() - source.trim_start_matches(delimiter).len();
    if words.is_empty() || !is_plain(words) || source.len() != words.len() + 2 * run {
        return None;
    }
    let (construct, style) = match (delimiter, run) {
        ('~', 1 | 2) => (Construct::Strikethrough, Style::Struck),
        ('*' | '_', 1) => (Construct::Emphasis, Style::Emphasis),
        ('*' | '_', 2) => (Construct::Emphasis, Style::Strong),
        _ => return None,
    };
    sink.count(construct);
    sink.styled(style, words);
    Some(())
}

/// A link of words to an address without a title.
fn link(source: &str, sink: &mut Sink) -> Option<()> {
    let (words, address) = source.strip_prefix('[')?.split_once("](")?;
    let address = address.strip_suffix(')')?;
    let is_simple = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~:/?#@!$*+,;=%".contains(&byte);
    if words.is_empty() || !is_plain(words) || !address.bytes().all(is_simple) {
        return None;
    }
    sink.count(Construct::Link);
    sink.styled(Style::Link, words);
    if let Some(address) = walk::address_beside(words, address) {
        sink.styled(Style::Aside, &format!(" ({address})"));
    }
    Some(())
}

/// Whether a text is nothing but itself.
fn is_plain(text: &str) -> bool {
    !text.bytes().any(is_special) && !text.trim_ascii().is_empty()
}
