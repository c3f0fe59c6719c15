//! A scan of Rust text that tells code, comments and literals apart, and finds the test code.
//!
//! The tidy rules search for words. A word in a string, in a comment or in a test means something
//! else than the same word in code, so every rule picks the view it is about. This is not a parser:
//! it knows just enough of the syntax to never mistake one for the other.

/// The views of one file. Each keeps the length and the line breaks of the original.
#[derive(Debug)]
pub(crate) struct Source {
    /// Comments and literals are blank.
    pub(crate) code: String,
    /// Only literals are blank.
    pub(crate) commented: String,
    /// For each line, whether it is compiled for tests only.
    test_lines: Vec<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Piece {
    Code,
    Comment,
    Literal,
}

impl Source {
    pub(crate) fn scan(path: &str, text: &str) -> Self {
        let mut code = String::with_capacity(text.len());
        let mut commented = String::with_capacity(text.len());
        let mut rest = text;
        let mut in_word = false;
        while !rest.is_empty() {
            let (piece, len) = next_piece(rest, in_word);
            let (now, later) = rest.split_at_checked(len).unwrap_or((rest, ""));
            push(&mut code, now, piece == Piece::Code);
            push(&mut commented, now, piece != Piece::Literal);
            in_word = piece == Piece::Code && now.ends_with(is_word);
            rest = later;
        }
        let test_lines = test_lines(path, &code);
        Self {
            code,
            commented,
            test_lines,
        }
    }

    /// Returns the lines of the code view outside test code, numbered from 1.
    pub(crate) fn product_lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.code
            .lines()
            .zip(&self.test_lines)
            .enumerate()
            .filter(|(_, (_, is_test))| !**is_test)
            .map(|(index, (line, _))| (index + 1, line))
    }

    /// Counts the lines outside and inside test code.
    pub(crate) fn line_counts(&self) -> (usize, usize) {
        let test = self.test_lines.iter().filter(|is_test| **is_test).count();
        (self.test_lines.len() - test, test)
    }

    /// Returns the names of the modules this file expects in files of their own, as paths from the
    /// directory of its children: `mod a { mod b; }` is `a/b`.
    pub(crate) fn child_modules(&self) -> Vec<String> {
        let mut children = Vec::new();
        let mut open: Vec<Option<&str>> = Vec::new();
        let mut last = ["", ""];
        for word in Words(&self.code) {
            match (last, word) {
                (["mod", name], ";") => {
                    let mut path: Vec<_> = open.iter().flatten().copied().collect();
                    path.push(name);
                    children.push(path.join("/"));
                }
                (["mod", name], "{") => open.push(Some(name)),
                (_, "{") => open.push(None),
                (_, "}") => {
                    open.pop();
                }
                _ => {}
            }
            last = [last[1], word];
        }
        children
    }
}

/// Says whether `line` contains `word` with no letter, digit or underscore touching either end.
pub(crate) fn has_word(line: &str, word: &str) -> bool {
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).unwrap_or_default();
        let after = line.get(at + word.len()..).unwrap_or_default();
        let continues_before = before.ends_with(is_word) && word.starts_with(is_word);
        let continues_after = after.starts_with(is_word) && word.ends_with(is_word);
        !continues_before && !continues_after
    })
}

/// Returns the number of the line that holds the byte at `offset`, counted from 1.
pub(crate) fn line_at(text: &str, offset: usize) -> usize {
    1 + text.get(..offset).unwrap_or(text).matches('\n').count()
}

pub(crate) fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn push(view: &mut String, piece: &str, keep: bool) {
    if keep {
        view.push_str(piece);
        return;
    }
    for c in piece.chars() {
        if c == '\n' {
            view.push('\n');
        } else {
            view.extend(std::iter::repeat_n(' ', c.len_utf8()));
        }
    }
}

fn next_piece(rest: &str, in_word: bool) -> (Piece, usize) {
    if rest.starts_with("//") {
        return (Piece::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Piece::Comment, block_comment_len(rest));
    }
    // Inside a word, `r`, `b` and `c` are letters of it and not the prefix of a literal.
    let may_be_prefix = rest.starts_with(['r', 'b', 'c']);
    let string = if in_word && may_be_prefix {
        None
    } else {
        string_len(rest)
    };
    match string.or_else(|| char_len(rest)) {
        Some(len) => (Piece::Literal, len),
        None => (Piece::Code, rest.chars().next().map_or(1, char::len_utf8)),
    }
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0_usize;
    let mut at = 0;
    while let Some(here) = rest.get(at..).filter(|here| !here.is_empty()) {
        if here.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += here.chars().next().map_or(1, char::len_utf8);
        }
    }
    rest.len()
}

/// Returns the length of a string literal of any kind at the start of `rest`.
fn string_len(rest: &str) -> Option<usize> {
    let unprefixed = rest.strip_prefix(['b', 'c']).unwrap_or(rest);
    if let Some(raw) = unprefixed.strip_prefix('r') {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        let body = raw.get(hashes..)?.strip_prefix('"')?;
        let close = format!("\"{}", "#".repeat(hashes));
        let end = body.find(&close).map(|at| at + close.len());
        return Some(rest.len() - body.len() + end.unwrap_or(body.len()));
    }
    let body = unprefixed.strip_prefix('"')?;
    Some(rest.len() - body.len() + quoted_len(body, '"').unwrap_or(body.len()))
}

/// Returns the length of a character literal at the start of `rest`; a lifetime is none.
fn char_len(rest: &str) -> Option<usize> {
    let body = rest.strip_prefix('\'')?;
    let first = body.chars().next()?;
    if first == '\\' {
        return Some(1 + quoted_len(body, '\'')?);
    }
    let after = body.get(first.len_utf8()..)?;
    after.starts_with('\'').then_some(2 + first.len_utf8())
}

/// Returns the length of `body` up to and including the first `quote` that is not escaped.
fn quoted_len(body: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        if escaped {
            escaped = false;
        } else if c == '\\' {
            escaped = true;
        } else if c == quote {
            return Some(at + quote.len_utf8());
        }
    }
    None
}

fn test_lines(path: &str, code: &str) -> Vec<bool> {
    let whole_file = path.contains("/tests/") || path.ends_with("/tests.rs");
    let mut lines = vec![whole_file; code.lines().count()];
    for (start, _) in code.match_indices("#[cfg(") {
        let item = code.get(start..).unwrap_or_default();
        let attribute = item.get(..item.find(']').unwrap_or(item.len()));
        let attribute = attribute.unwrap_or_default();
        if !has_word(attribute, "test") || attribute.contains("not(") {
            continue;
        }
        let body = item.get(attribute.len() + 1..).unwrap_or_default();
        let end = start + attribute.len() + 1 + item_len(body);
        let range = line_at(code, start) - 1..line_at(code, end);
        if let Some(region) = lines.get_mut(range) {
            region.fill(true);
        }
    }
    lines
}

/// Returns the length of the item at the start of `code`: up to its `;` or its closing brace.
fn item_len(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && c == '}' {
                    return at;
                }
            }
            ';' if depth == 0 => return at,
            _ => {}
        }
    }
    code.len()
}

/// Splits code into words and single punctuation characters.
struct Words<'a>(&'a str);

impl<'a> Iterator for Words<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let rest = self.0.trim_start();
        let first = rest.chars().next()?;
        let len = if is_word(first) {
            rest.find(|c| !is_word(c)).unwrap_or(rest.len())
        } else {
            first.len_utf8()
        };
        let (word, later) = rest.split_at_checked(len)?;
        self.0 = later;
        Some(word)
    }
}

#[cfg(test)]
mod tests;
