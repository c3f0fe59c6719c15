//! Reads the bytes of one HTTP/1.1 answer after the other, whatever pieces they come in.

use anyhow::{Context, Result, bail, ensure};

/// Where in an answer the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Line(Line),
    /// In a body, or in a chunk of one, with so much left.
    Data(usize),
}

/// What the next line is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    Status,
    Header,
    ChunkSize,
    ChunkEnd,
    Trailer,
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Framing {
    Length(usize),
    Chunked,
}

/// A reader of answers.
#[derive(Debug)]
pub(super) struct Decoder {
    place: Place,
    framing: Framing,
    status: u16,
    /// The line so far.
    line: Vec<u8>,
}

impl Decoder {
    pub(super) fn new() -> Self {
        Self {
            place: Place::Line(Line::Status),
            framing: Framing::Length(0),
            status: 0,
            line: Vec::new(),
        }
    }

    /// Reads on, and hands over what belongs to the body; the status where the answer is complete.
    ///
    /// # Errors
    /// Fails where the bytes are no answer, and where bytes follow a complete one.
    pub(super) fn feed(
        &mut self,
        mut bytes: &[u8],
        mut body: impl FnMut(&[u8]),
    ) -> Result<Option<u16>> {
        while !bytes.is_empty() {
            let complete = match self.place {
                Place::Data(left) => {
                    let (data, rest) = bytes.split_at(left.min(bytes.len()));
                    body(data);
                    bytes = rest;
                    self.data_came(left - data.len())
                }
                Place::Line(kind) => {
                    let end = memchr::memchr(b'\n', bytes);
                    let (part, rest) = bytes.split_at(end.map_or(bytes.len(), |at| at + 1));
                    self.line.extend_from_slice(part);
                    bytes = rest;
                    end.is_some() && self.line_came(kind)?
                }
            };
            if complete {
                ensure!(bytes.is_empty(), "bytes follow the answer");
                self.place = Place::Line(Line::Status);
                return Ok(Some(self.status));
            }
        }
        Ok(None)
    }

    fn data_came(&mut self, left: usize) -> bool {
        self.place = match (left, self.framing) {
            (0, Framing::Length(_)) => return true,
            (0, Framing::Chunked) => Place::Line(Line::ChunkEnd),
            (left, _) => Place::Data(left),
        };
        false
    }

    /// Takes a complete line; tells whether the answer is complete with it.
    fn line_came(&mut self, kind: Line) -> Result<bool> {
        let line = std::mem::take(&mut self.line);
        let text = std::str::from_utf8(&line)?.trim_ascii_end();
        let mut complete = false;
        self.place = match kind {
            Line::Status => {
                let status = text
                    .strip_prefix("HTTP/1.1 ")
                    .and_then(|rest| rest.get(..3));
                self.status = status
                    .with_context(|| format!("no answer: {text}"))?
                    .parse()?;
                self.framing = Framing::Length(0);
                Place::Line(Line::Header)
            }
            Line::Header if text.is_empty() => match self.framing {
                Framing::Length(length) => {
                    complete = length == 0;
                    Place::Data(length)
                }
                Framing::Chunked => Place::Line(Line::ChunkSize),
            },
            Line::Header => {
                self.header(text)?;
                Place::Line(Line::Header)
            }
            Line::ChunkSize => match usize::from_str_radix(text, 16)? {
                0 => Place::Line(Line::Trailer),
                size => Place::Data(size),
            },
            Line::ChunkEnd if text.is_empty() => Place::Line(Line::ChunkSize),
            Line::ChunkEnd => bail!("a chunk is longer than it says"),
            Line::Trailer => {
                complete = text.is_empty();
                Place::Line(Line::Trailer)
            }
        };
        // Its space serves the next line.
        self.line = line;
        self.line.clear();
        Ok(complete)
    }

    fn header(&mut self, text: &str) -> Result<()> {
        let (name, value) = text.split_once(':').context("a header without a colon")?;
        let value = value.trim();
        if name.eq_ignore_ascii_case("content-length") {
            self.framing = Framing::Length(value.parse()?);
        } else if name.eq_ignore_ascii_case("transfer-encoding") {
            ensure!(value.eq_ignore_ascii_case("chunked"), "{text}");
            self.framing = Framing::Chunked;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_however_they_are_split() {
        let cases: [(&str, u16, &str); 4] = [
            (
                "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
                200,
                "hello",
            ),
            ("HTTP/1.1 503 Busy\r\ncontent-length: 0\r\n\r\n", 503, ""),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3\r\na\nb\r\nA\r\n0123456789\r\n0\r\n\r\n",
                200,
                "a\nb0123456789",
            ),
            (
                "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\nx-end: 1\r\n\r\n",
                200,
                "x",
            ),
        ];
        for (text, status, expected) in cases {
            for size in 1..=text.len() {
                let mut decoder = Decoder::new();
                // Twice: a connection is used again.
                for _ in 0..2 {
                    let mut body = Vec::new();
                    let mut pieces = text.as_bytes().chunks(size).peekable();
                    while let Some(piece) = pieces.next() {
                        let done = decoder
                            .feed(piece, |data| body.extend_from_slice(data))
                            .expect(text);
                        let end = pieces.peek().is_none().then_some(status);
                        assert_eq!(done, end, "{text} in pieces of {size}");
                    }
                    assert_eq!(body, expected.as_bytes(), "{text} in pieces of {size}");
                }
            }
        }
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for text in [
            "SSH-2.0\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nxy\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\n\r\nxy",
        ] {
            assert!(
                Decoder::new().feed(text.as_bytes(), |_| {}).is_err(),
                "{text}"
            );
        }
    }
}
