//! The parser: source text to nodes, in one pass and without recursion.
//!
//! The open containers are the parent links of the nodes themselves, so depth costs nothing.

use crate::duplicate;
use crate::error::JsonError;
use crate::string::{decode_key, fingerprint, plain_end};
use crate::tape::{Duplicate, Limits, NO_PARENT, Node, flag};
use crate::view::Kind;

/// The second characters of the two-character escapes that RFC 8785 uses, one bit each.
const SHORT_ESCAPES: u128 =
    1 << b'"' | 1 << b'\\' | 1 << b'b' | 1 << b'f' | 1 << b'n' | 1 << b'r' | 1 << b't';

/// Refuses a text longer than the limit.
pub(crate) fn check_size(size: usize, limits: &Limits) -> Result<(), JsonError> {
    let limit = limits.byte_ceiling();
    if size > limit {
        Err(JsonError::TooLarge { size, limit })
    } else {
        Ok(())
    }
}

/// Parses a document.
pub(crate) fn parse(
    source: &str,
    limits: &Limits,
) -> Result<(Vec<Node>, Vec<Duplicate>), JsonError> {
    check_size(source.len(), limits)?;
    let mut parser = Parser {
        source,
        bytes: source.as_bytes(),
        nodes: Vec::with_capacity((source.len() / 12 + 8).min(limits.node_ceiling())),
        duplicates: Vec::new(),
        parent: NO_PARENT,
        in_object: false,
        depth: 0,
        max_nodes: limits.node_ceiling(),
        max_depth: limits.max_depth,
    };
    parser.document()?;
    Ok((parser.nodes, parser.duplicates))
}

struct Parser<'s> {
    source: &'s str,
    bytes: &'s [u8],
    nodes: Vec<Node>,
    duplicates: Vec<Duplicate>,
    /// The innermost open container.
    parent: u32,
    in_object: bool,
    depth: usize,
    max_nodes: usize,
    max_depth: usize,
}

impl Parser<'_> {
    fn document(&mut self) -> Result<(), JsonError> {
        let mut at = self.skip_space(0);
        loop {
            // A value begins here. Containers with content go round the loop again.
            at = match self.byte(at) {
                b'"' => self.string_value(at)?,
                b'{' => {
                    self.open(Kind::Object, at)?;
                    let first = self.skip_space(at + 1);
                    if self.byte(first) != b'}' {
                        at = self.key(first)?;
                        continue;
                    }
                    self.close(first)
                }
                b'[' => {
                    self.open(Kind::Array, at)?;
                    let first = self.skip_space(at + 1);
                    if self.byte(first) != b']' {
                        at = first;
                        continue;
                    }
                    self.close(first)
                }
                b'-' | b'0'..=b'9' => self.number(at)?,
                b't' => self.literal(at, b"true", Kind::Bool)?,
                b'f' => self.literal(at, b"false", Kind::Bool)?,
                b'n' => self.literal(at, b"null", Kind::Null)?,
                _ => return Err(self.unexpected(at, "expected a value")),
            };
            // A value has ended here. Close what ends with it and find the next one.
            loop {
                at = self.skip_space(at);
                if self.parent == NO_PARENT {
                    return if at == self.bytes.len() {
                        Ok(())
                    } else {
                        Err(self.unexpected(at, "expected the end of the document"))
                    };
                }
                match (self.byte(at), self.in_object) {
                    (b',', true) => {
                        let next = self.skip_space(at + 1);
                        at = self.key(next)?;
                        break;
                    }
                    (b',', false) => {
                        at = self.skip_space(at + 1);
                        break;
                    }
                    (b'}', true) | (b']', false) => at = self.close(at),
                    (_, true) => return Err(self.unexpected(at, "expected `,` or `}`")),
                    (_, false) => return Err(self.unexpected(at, "expected `,` or `]`")),
                }
            }
        }
    }

    /// Returns a byte, or NUL at the end, which is legal nowhere in JSON.
    #[inline]
    fn byte(&self, at: usize) -> u8 {
        self.bytes.get(at).copied().unwrap_or(0)
    }

    #[inline]
    fn skip_space(&self, mut at: usize) -> usize {
        while matches!(self.byte(at), b' ' | b'\n' | b'\r' | b'\t') {
            at += 1;
        }
        at
    }

    #[cold]
    fn unexpected(&self, offset: usize, what: &'static str) -> JsonError {
        if offset >= self.bytes.len() {
            JsonError::UnexpectedEnd {
                offset: self.bytes.len(),
            }
        } else {
            JsonError::Syntax { offset, what }
        }
    }

    #[inline]
    fn push(&mut self, node: Node) -> Result<(), JsonError> {
        if self.nodes.len() >= self.max_nodes {
            let offset = node.start as usize;
            return Err(JsonError::TooManyNodes {
                offset,
                limit: self.max_nodes,
            });
        }
        self.nodes.push(node);
        Ok(())
    }

    fn open(&mut self, kind: Kind, at: usize) -> Result<(), JsonError> {
        if self.depth >= self.max_depth {
            return Err(JsonError::TooDeep {
                offset: at,
                limit: self.max_depth,
            });
        }
        let id = self.nodes.len() as u32;
        self.push(Node::new(kind, 0, self.parent, at))?;
        self.depth += 1;
        self.parent = id;
        self.in_object = kind == Kind::Object;
        Ok(())
    }

    /// Closes the innermost container, whose last byte is at `at`.
    fn close(&mut self, at: usize) -> usize {
        if self.in_object && duplicate::suspected(&self.nodes, self.parent) {
            self.find_duplicates();
        }
        let next = self.nodes.len() as u32;
        if let Some(node) = self.nodes.get_mut(self.parent as usize) {
            node.end = at as u32 + 1;
            node.link = next;
            self.parent = node.parent();
        }
        let outer = self.nodes.get(self.parent as usize);
        self.in_object = outer.is_some_and(|node| node.kind() == Kind::Object);
        self.depth -= 1;
        at + 1
    }

    /// Reads a key and the colon after it; returns where the value begins.
    #[inline]
    fn key(&mut self, at: usize) -> Result<usize, JsonError> {
        if self.byte(at) != b'"' {
            return Err(self.unexpected(at, "expected a key"));
        }
        let mut node = self.string(at, flag::KEY)?;
        let end = node.end as usize;
        node.link = if node.has(flag::ESCAPED) {
            let inner = self.source.get(at + 1..end - 1).unwrap_or_default();
            fingerprint(&decode_key(inner))
        } else {
            fingerprint(self.bytes.get(at + 1..end - 1).unwrap_or_default())
        };
        self.push(node)?;
        let colon = self.skip_space(end);
        if self.byte(colon) != b':' {
            return Err(self.unexpected(colon, "expected `:`"));
        }
        Ok(self.skip_space(colon + 1))
    }

    #[inline]
    fn string_value(&mut self, at: usize) -> Result<usize, JsonError> {
        let node = self.string(at, 0)?;
        self.push(node)?;
        Ok(node.end as usize)
    }

    #[inline]
    fn string(&self, at: usize, flags: u8) -> Result<Node, JsonError> {
        let mut node = Node::new(Kind::String, flags, self.parent, at);
        let mut end = plain_end(self.bytes, at + 1);
        if self.byte(end) != b'"' {
            let (real_end, found) = self.escaped_string(end)?;
            end = real_end;
            node.set(found);
        }
        node.end = end as u32 + 1;
        Ok(node)
    }

    /// Reads on from the first byte of a string that is not plain; returns its closing quote.
    #[inline(never)]
    fn escaped_string(&self, mut at: usize) -> Result<(usize, u8), JsonError> {
        let mut flags = 0;
        loop {
            match self.byte(at) {
                b'"' => return Ok((at, flags)),
                b'\\' => {
                    let (next, found) = self.escape(at)?;
                    flags |= flag::ESCAPED | found;
                    at = plain_end(self.bytes, next);
                }
                _ => return Err(self.unexpected(at, "control character in a string")),
            }
        }
    }

    /// Reads one escape, or the two that make a surrogate pair; returns what follows it.
    fn escape(&self, at: usize) -> Result<(usize, u8), JsonError> {
        let letter = self.byte(at + 1);
        // Bits instead of a match: texts mix these freely, and a jump would be guessed wrong.
        if letter < 128 && SHORT_ESCAPES >> letter & 1 != 0 {
            return Ok((at + 2, 0));
        }
        match letter {
            b'/' => Ok((at + 2, flag::RESPELL)),
            b'u' => {
                let unit = self.hex4(at + 2)?;
                let next = at + 6;
                match unit {
                    0xd800..0xdc00 if self.bytes.get(next..next + 2) == Some(b"\\u") => {
                        // What follows a high half is its low half, or stands for itself.
                        match self.hex4(next + 2)? {
                            0xdc00..0xe000 => Ok((next + 6, flag::RESPELL)),
                            _ => Ok((next, flag::RESPELL | flag::LONE)),
                        }
                    }
                    0xd800..0xe000 => Ok((next, flag::RESPELL | flag::LONE)),
                    _ => Ok((next, self.respelled_control(at, unit))),
                }
            }
            _ => Err(self.unexpected(at + 1, "invalid escape")),
        }
    }

    /// Tells whether RFC 8785 spells the character of the `\u` escape at `at` differently.
    fn respelled_control(&self, at: usize, unit: u16) -> u8 {
        let short = matches!(unit, 8 | 9 | 10 | 12 | 13);
        let lowercase = !self.byte(at + 5).is_ascii_uppercase();
        if unit < 0x20 && !short && lowercase {
            0
        } else {
            flag::RESPELL
        }
    }

    fn hex4(&self, at: usize) -> Result<u16, JsonError> {
        let mut unit = 0;
        for offset in at..at + 4 {
            let digit = char::from(self.byte(offset)).to_digit(16);
            let digit = digit.ok_or_else(|| self.unexpected(offset, "invalid escape"))?;
            unit = unit << 4 | digit as u16;
        }
        Ok(unit)
    }

    #[inline]
    fn number(&mut self, start: usize) -> Result<usize, JsonError> {
        let mut node = Node::new(Kind::Number, 0, self.parent, start);
        let mut at = start + usize::from(self.byte(start) == b'-');
        at = if self.byte(at) == b'0' {
            if self.byte(at + 1).is_ascii_digit() {
                return Err(self.unexpected(at, "number with a leading zero"));
            }
            at + 1
        } else {
            self.digits(at)?
        };
        if self.byte(at) == b'.' {
            node.set(flag::FLOAT);
            at = self.digits(at + 1)?;
        }
        if matches!(self.byte(at), b'e' | b'E') {
            node.set(flag::FLOAT);
            at += 1 + usize::from(matches!(self.byte(at + 1), b'+' | b'-'));
            at = self.digits(at)?;
        }
        node.end = at as u32;
        self.push(node)?;
        Ok(at)
    }

    /// Skips one or more digits.
    #[inline]
    fn digits(&self, mut at: usize) -> Result<usize, JsonError> {
        if !self.byte(at).is_ascii_digit() {
            return Err(self.unexpected(at, "expected a digit"));
        }
        while self.byte(at).is_ascii_digit() {
            at += 1;
        }
        Ok(at)
    }

    #[inline]
    fn literal(&mut self, at: usize, word: &[u8], kind: Kind) -> Result<usize, JsonError> {
        let end = at + word.len();
        if self.bytes.get(at..end) != Some(word) {
            let wrong = (at..end)
                .zip(word)
                .find(|&(offset, &want)| self.byte(offset) != want);
            let offset = wrong.map_or(at, |(offset, _)| offset);
            return Err(self.unexpected(offset, "expected a value"));
        }
        let mut node = Node::new(kind, 0, self.parent, at);
        node.end = end as u32;
        self.push(node)?;
        Ok(end)
    }

    /// Records the duplicate keys of the object that is about to close.
    #[cold]
    fn find_duplicates(&mut self) {
        let found = duplicate::find(self.source, &self.nodes, self.parent);
        if !found.is_empty()
            && let Some(object) = self.nodes.get_mut(self.parent as usize)
        {
            object.set(flag::DUPLICATE);
            self.duplicates.extend(found);
        }
    }
}
