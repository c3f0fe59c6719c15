//! Bytes to lines, within a limit that is checked while they arrive.
//!
//! Both kinds of line end and blank lines are fine. Bytes that no JSON text may hold end the stream
//! with their position: after them nothing can be trusted to be in step.

use memchr::{memchr, memrchr};

/// The longest line that is accepted when nothing else is said.
pub const DEFAULT_MAX_LINE: usize = 16 * 1024 * 1024;
/// How much is asked for at a time. Growing by this much keeps memory at the limit, not twice it.
const READ_SIZE: usize = 64 * 1024;

/// Cuts a stream of bytes into lines.
#[derive(Debug)]
pub struct Decoder {
    buffer: Vec<u8>,
    /// Bytes of the buffer that hold no line end.
    scanned: usize,
    /// Lines handed out so far.
    line: u64,
    max_line: usize,
    failed: Option<CodecError>,
}

/// Whole lines, all of them text.
#[derive(Debug)]
pub struct Lines {
    text: String,
    before: u64,
}

/// Why a stream cannot be read on.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// A line does not end within the limit.
    #[error("line {line} is longer than {limit} bytes")]
    TooLong {
        /// The line, from 1.
        line: u64,
        /// The limit.
        limit: usize,
    },
    /// A byte is not UTF-8.
    #[error("line {line} is not UTF-8: byte 0x{byte:02x} at offset {offset}")]
    InvalidUtf8 {
        /// The line, from 1.
        line: u64,
        /// Its place in the line.
        offset: usize,
        /// The byte.
        byte: u8,
    },
    /// A byte is NUL.
    #[error("line {line} has a NUL byte at offset {offset}")]
    Nul {
        /// The line, from 1.
        line: u64,
        /// Its place in the line.
        offset: usize,
    },
    /// A line begins with a byte order mark.
    #[error("line {line} begins with a byte order mark")]
    ByteOrderMark {
        /// The line, from 1.
        line: u64,
    },
    /// The stream ended inside a line.
    #[error("the stream ended after {bytes} bytes of line {line}")]
    Incomplete {
        /// The line, from 1.
        line: u64,
        /// How much of it came.
        bytes: usize,
    },
}

impl Decoder {
    /// A decoder that accepts lines of at most `max_line` bytes.
    #[must_use]
    pub fn new(max_line: usize) -> Self {
        Self {
            buffer: Vec::new(),
            scanned: 0,
            line: 0,
            max_line,
            failed: None,
        }
    }

    /// Where the next bytes go: they are appended.
    pub fn buffer(&mut self) -> &mut Vec<u8> {
        if self.buffer.capacity() - self.buffer.len() < READ_SIZE / 2 {
            self.buffer.reserve_exact(READ_SIZE);
        }
        &mut self.buffer
    }

    /// The lines that are whole by now; `None` where there are none.
    ///
    /// # Errors
    /// Fails at the first line that cannot be text, after the lines before it were handed out.
    pub fn take(&mut self) -> Result<Option<Lines>, CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let unseen = self.buffer.get(self.scanned..).unwrap_or_default();
        let Some(end) = memrchr(b'\n', unseen).map(|at| self.scanned + at + 1) else {
            self.scanned = self.buffer.len();
            return self.check_rest(self.line).map(|()| None);
        };
        let rest = self.buffer.split_off(end);
        let whole = std::mem::replace(&mut self.buffer, rest);
        self.scanned = self.buffer.len();
        let (text, problem) = self.text_of(whole);
        let before = self.line;
        self.line += count_lines(text.as_bytes());
        self.failed = problem.or_else(|| self.check_rest(self.line).err());
        if text.is_empty() {
            return self.failed.clone().map_or(Ok(None), Err);
        }
        Ok(Some(Lines { text, before }))
    }

    /// Says whether the stream may end here.
    ///
    /// # Errors
    /// Fails inside a line.
    pub fn finish(&self) -> Result<(), CodecError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        if self.buffer.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        Err(CodecError::Incomplete {
            line: self.line + 1,
            bytes: self.buffer.len(),
        })
    }

    fn check_rest(&self, lines_before: u64) -> Result<(), CodecError> {
        if self.buffer.len() <= self.max_line {
            return Ok(());
        }
        Err(CodecError::TooLong {
            line: lines_before + 1,
            limit: self.max_line,
        })
    }

    /// Whole lines up to the first that cannot be text, and what is wrong with that one.
    fn text_of(&self, mut whole: Vec<u8>) -> (String, Option<CodecError>) {
        let mut problem = None;
        if let Some((start, line)) = self.first_too_long(&whole) {
            let limit = self.max_line;
            problem = Some((start, CodecError::TooLong { line, limit }));
        }
        let readable = problem.as_ref().map_or(whole.len(), |(start, _)| *start);
        whole.truncate(readable);
        problem = self.first_unreadable(&whole).or(problem);
        let Some((start, error)) = problem else {
            return (String::from_utf8(whole).unwrap_or_default(), None);
        };
        whole.truncate(start);
        (String::from_utf8(whole).unwrap_or_default(), Some(error))
    }

    /// Where the first line beyond the limit begins, and its number.
    fn first_too_long(&self, whole: &[u8]) -> Option<(usize, u64)> {
        if whole.len() <= self.max_line {
            return None;
        }
        let mut start = 0;
        for (number, end) in (self.line + 1..).zip(memchr::memchr_iter(b'\n', whole)) {
            if end - start > self.max_line {
                return Some((start, number));
            }
            start = end + 1;
        }
        None
    }

    /// Where the first line begins that is not UTF-8, has a NUL or begins with a byte order mark.
    fn first_unreadable(&self, whole: &[u8]) -> Option<(usize, CodecError)> {
        let utf8 = std::str::from_utf8(whole)
            .err()
            .map(|error| error.valid_up_to());
        let bad = match (memchr(0, whole), utf8) {
            (Some(nul), Some(utf8)) => Some(nul.min(utf8)),
            (nul, utf8) => nul.or(utf8),
        };
        let readable = whole.get(..bad.unwrap_or(whole.len())).unwrap_or_default();
        if let Some(start) = first_byte_order_mark(readable) {
            let line = self.number_at(whole, start);
            return Some((start, CodecError::ByteOrderMark { line }));
        }
        let bad = bad?;
        let start = memrchr(b'\n', readable).map_or(0, |newline| newline + 1);
        let (line, offset) = (self.number_at(whole, start), bad - start);
        let error = match whole.get(bad).copied().unwrap_or_default() {
            0 => CodecError::Nul { line, offset },
            byte => CodecError::InvalidUtf8 { line, offset, byte },
        };
        Some((start, error))
    }

    /// The number of the line that begins at `start`.
    fn number_at(&self, whole: &[u8], start: usize) -> u64 {
        self.line + count_lines(whole.get(..start).unwrap_or_default()) + 1
    }
}

/// Where the first line begins that has a byte order mark in front.
fn first_byte_order_mark(text: &[u8]) -> Option<usize> {
    const MARK: &[u8] = "\u{feff}".as_bytes();
    memchr::memmem::find_iter(text, MARK).find(|&at| at == 0 || text.get(at - 1) == Some(&b'\n'))
}

impl Lines {
    /// The lines that are not blank, each with its number from 1.
    pub fn iter(&self) -> impl Iterator<Item = (u64, &str)> {
        (self.before + 1..)
            .zip(self.text.lines())
            .map(|(number, line)| (number, line.trim()))
            .filter(|(_, line)| !line.is_empty())
    }

    /// All of the text.
    #[must_use]
    pub fn into_text(self) -> String {
        self.text
    }

    /// Where a part of a line, as [`Self::iter`] gave it, is in the text.
    #[must_use]
    pub fn range_of(&self, part: &str) -> std::ops::Range<usize> {
        let start = (part.as_ptr() as usize).saturating_sub(self.text.as_ptr() as usize);
        start..start + part.len()
    }
}

fn count_lines(text: &[u8]) -> u64 {
    u64::try_from(memchr::memchr_iter(b'\n', text).count()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Everything a stream yields: its lines, then how it ended.
    fn decode(pieces: &[&[u8]], max_line: usize) -> (Vec<String>, Result<(), CodecError>) {
        let mut decoder = Decoder::new(max_line);
        let mut lines = Vec::new();
        for piece in pieces {
            decoder.buffer().extend_from_slice(piece);
            loop {
                match decoder.take() {
                    Ok(None) => break,
                    Ok(Some(whole)) => lines.extend(whole.iter().map(|(_, line)| line.to_owned())),
                    Err(error) => return (lines, Err(error)),
                }
            }
        }
        (lines, decoder.finish())
    }

    #[test]
    fn c3_c5_line_forms() {
        use CodecError::{ByteOrderMark, Incomplete, InvalidUtf8, Nul, TooLong};
        type Case<'a> = (&'a [u8], &'a [&'a str], Result<(), CodecError>);
        let cases: &[Case<'_>] = &[
            (b"a\r\n\r\n \nb\n", &["a", "b"], Ok(())),
            (b"a\nb", &["a"], Err(Incomplete { line: 2, bytes: 1 })),
            (b"a\n  ", &["a"], Ok(())),
            (
                b"a\nb\xffc\nd\n",
                &["a"],
                Err(InvalidUtf8 {
                    line: 2,
                    offset: 1,
                    byte: 0xff,
                }),
            ),
            // An overlong slash, and an emoji that ends too early.
            (
                b"\xc0\xaf\n",
                &[],
                Err(InvalidUtf8 {
                    line: 1,
                    offset: 0,
                    byte: 0xc0,
                }),
            ),
            (
                b"ok\n\xf0\x9f\x98\n",
                &["ok"],
                Err(InvalidUtf8 {
                    line: 2,
                    offset: 0,
                    byte: 0xf0,
                }),
            ),
            (b"a\nxy\0\n\xff\n", &["a"], Err(Nul { line: 2, offset: 2 })),
            (
                b"a\n\xef\xbb\xbfb\n",
                &["a"],
                Err(ByteOrderMark { line: 2 }),
            ),
            (b"a\n12345678\nb\n", &["a", "12345678", "b"], Ok(())),
            (
                b"a\n123456789\nb\n",
                &["a"],
                Err(TooLong { line: 2, limit: 8 }),
            ),
            (b"123456789", &[], Err(TooLong { line: 1, limit: 8 })),
        ];
        for (input, lines, end) in cases {
            let (got, ended) = decode(&[input], 8);
            assert_eq!(got, *lines, "{input:?}");
            assert_eq!(&ended, end, "{input:?}");
        }
    }

    proptest! {
        /// However a stream is cut into pieces, the same lines and the same end come out.
        #[test]
        fn cutting_a_stream_changes_nothing(
            stream in prop::collection::vec(prop_oneof![
                4 => Just(b"{\"t\":\"x\"}\n".to_vec()),
                2 => "[a-z\u{e9}\u{1f600}]{0,12}\r?\n".prop_map(String::into_bytes),
                1 => prop::collection::vec(any::<u8>(), 0..4),
            ], 0..12).prop_map(|parts| parts.concat()),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(stream.len() + 1)).collect();
            cuts.extend([0, stream.len()]);
            cuts.sort_unstable();
            let pieces: Vec<_> = cuts.windows(2).map(|cut| &stream[cut[0]..cut[1]]).collect();
            prop_assert_eq!(decode(&pieces, 24), decode(&[&stream], 24));
        }
    }
}
