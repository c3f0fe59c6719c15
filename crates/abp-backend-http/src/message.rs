//! HTTP/1.1 as it is spoken to a vendor: one request with its whole body, one answer.
//!
//! Whatever could be read in two ways is refused: an answer whose length is told twice or in two ways,
//! a line that does not end as it must.

use std::mem::MaybeUninit;

use bytes::{Buf as _, Bytes, BytesMut};
use http::header::{CONNECTION, CONTENT_LENGTH, TRANSFER_ENCODING};
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri};
use memchr::memchr;

/// The longest head of an answer.
const MAX_HEAD: usize = 64 * 1024;
const MAX_HEADERS: usize = 128;

/// The longest line in front of a chunk, whose extensions are of no use to anybody here.
const MAX_CHUNK_LINE: usize = 4 * 1024;

/// The longest trailers, which are of no use either.
const MAX_TRAILERS: usize = 16 * 1024;

/// What a vendor sent is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Malformed(&'static str);

/// Writes the head of a request with a body of that length; `headers` writes its headers. `origin` is put
/// in front of the path where a proxy is asked, and is empty otherwise.
pub(crate) fn write_head(
    method: &Method,
    origin: &str,
    uri: &Uri,
    length: usize,
    headers: impl FnOnce(&mut Vec<u8>),
) -> Vec<u8> {
    let mut head = Vec::with_capacity(512);
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    for part in [method.as_str(), " ", origin, path, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    headers(&mut head);
    if length > 0 || *method == Method::POST {
        write_header(&mut head, &CONTENT_LENGTH, &HeaderValue::from(length));
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Writes one header. Neither names nor values can hold the end of a line.
pub(crate) fn write_header(head: &mut Vec<u8>, name: &HeaderName, value: &HeaderValue) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value.as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// The head of an answer.
#[derive(Debug)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) framing: Framing,
    /// Whether the connection can be used again after the answer.
    pub(crate) keeps_open: bool,
}

/// Takes the head of an answer from what was read; `None` where it is not complete. `searched` is how
/// much was searched for its end already.
pub(crate) fn take_head(
    read: &mut BytesMut,
    searched: &mut usize,
) -> Result<Option<Head>, Malformed> {
    loop {
        let Some(end) = head_end(read, *searched) else {
            *searched = read.len();
            return if read.len() > MAX_HEAD {
                Err(Malformed("the head of the answer is too long"))
            } else {
                Ok(None)
            };
        };
        *searched = 0;
        if end > MAX_HEAD {
            return Err(Malformed("the head of the answer is too long"));
        }
        let head = parse_head(&read.split_to(end).freeze())?;
        match head.status.as_u16() {
            // Nobody asked for another protocol.
            101 => return Err(Malformed("the answer switches protocols")),
            // What comes before the answer is none.
            100..=199 => {}
            _ => return Ok(Some(head)),
        }
    }
}

/// Where a head ends: behind the first empty line.
fn head_end(read: &[u8], searched: usize) -> Option<usize> {
    // An end that was cut in two begins before what is new.
    let mut at = searched.saturating_sub(3);
    loop {
        at += memchr(b'\n', read.get(at..)?)? + 1;
        match read.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}

fn parse_head(bytes: &Bytes) -> Result<Head, Malformed> {
    if has_bare_line_feed(bytes) {
        return Err(Malformed(
            "a line of the answer's head ends in the wrong way",
        ));
    }
    let mut fields = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut []);
    let complete = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut parsed, bytes, &mut fields)
        .map_err(|_| Malformed("the head of the answer is malformed"))?
        .is_complete();
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
    let (Some(status), true) = (status, complete) else {
        return Err(Malformed("the head of the answer is malformed"));
    };
    let mut headers = HeaderMap::with_capacity(parsed.headers.len());
    for field in parsed.headers.iter() {
        let name = HeaderName::from_bytes(field.name.as_bytes());
        let value = HeaderValue::from_maybe_shared(bytes.slice_ref(field.value));
        let (Ok(name), Ok(value)) = (name, value) else {
            return Err(Malformed("the answer has a malformed header"));
        };
        headers.append(name, value);
    }
    let is_current = parsed.version == Some(1);
    Ok(Head {
        framing: framing(status, &headers, is_current)?,
        keeps_open: is_current && !says_close(&headers),
        status,
        headers,
    })
}

fn has_bare_line_feed(bytes: &[u8]) -> bool {
    memchr::memchr_iter(b'\n', bytes).any(|at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        before != Some(&b'\r')
    })
}

fn says_close(headers: &HeaderMap) -> bool {
    let values = headers.get_all(CONNECTION).iter();
    let mut words = values.flat_map(|value| value.as_bytes().split(|byte| *byte == b','));
    words.any(|word| word.trim_ascii().eq_ignore_ascii_case(b"close"))
}

fn framing(
    status: StatusCode,
    headers: &HeaderMap,
    is_current: bool,
) -> Result<Framing, Malformed> {
    let mut lengths = headers.get_all(CONTENT_LENGTH).iter();
    let mut codings = headers.get_all(TRANSFER_ENCODING).iter();
    let (length, coding) = (lengths.next(), codings.next());
    if lengths.next().is_some()
        || codings.next().is_some()
        || (length.is_some() && coding.is_some())
    {
        return Err(Malformed("the answer's length is told twice"));
    }
    if status == StatusCode::NO_CONTENT || status == StatusCode::NOT_MODIFIED {
        return Ok(Framing::Over);
    }
    match (length, coding) {
        (_, Some(coding)) => {
            if is_current && coding.as_bytes().eq_ignore_ascii_case(b"chunked") {
                Ok(Framing::Chunked(Chunk::Line))
            } else {
                Err(Malformed("the answer is coded in a way nobody asked for"))
            }
        }
        (Some(length), None) => match decimal(length.as_bytes()) {
            Some(0) => Ok(Framing::Over),
            Some(length) => Ok(Framing::Length(length)),
            None => Err(Malformed("the answer's length is no number")),
        },
        (None, None) => Ok(Framing::UntilClosed),
    }
}

/// Digits and nothing else: other readers of numbers allow a sign.
fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(digits).ok()?;
    let all = digits.bytes().all(|byte| byte.is_ascii_digit());
    all.then(|| digits.parse().ok())?
}

/// How the end of a body is known, and how far away it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// So many bytes.
    Length(u64),
    Chunked(Chunk),
    UntilClosed,
    /// It was reached.
    Over,
}

/// Where in a chunked body it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In front of a chunk.
    Line,
    /// In a chunk, of which so many bytes are to come.
    Data(u64),
    /// Behind a chunk.
    End,
    /// Behind the last chunk, with so many bytes read of trailers.
    Trailers(usize),
}

/// What can be made of what was read.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Part {
    Data(Bytes),
    /// Nothing yet.
    More,
    End,
}

impl Framing {
    /// Takes the next part of a body from what was read.
    pub(crate) fn take(&mut self, read: &mut BytesMut) -> Result<Part, Malformed> {
        loop {
            match self {
                Self::Over => return Ok(Part::End),
                Self::UntilClosed if read.is_empty() => return Ok(Part::More),
                Self::UntilClosed => return Ok(Part::Data(read.split().freeze())),
                Self::Length(left) => {
                    let part = take_up_to(read, left);
                    if *left == 0 {
                        *self = Self::Over;
                    }
                    return Ok(part);
                }
                Self::Chunked(Chunk::Data(left)) => {
                    let part = take_up_to(read, left);
                    if *left == 0 {
                        *self = Self::Chunked(Chunk::End);
                    }
                    return Ok(part);
                }
                Self::Chunked(chunk) => match chunk.next(read)? {
                    Next::More => return Ok(Part::More),
                    Next::Chunk(next) => *chunk = next,
                    Next::Over => *self = Self::Over,
                },
            }
        }
    }

    /// Nothing more comes; tells whether that is an end.
    pub(crate) fn closed(&mut self) -> bool {
        if *self == Self::UntilClosed {
            *self = Self::Over;
        }
        *self == Self::Over
    }
}

enum Next {
    More,
    Chunk(Chunk),
    Over,
}

impl Chunk {
    fn next(self, read: &mut BytesMut) -> Result<Next, Malformed> {
        let longest = match self {
            Self::Line => MAX_CHUNK_LINE,
            Self::Data(_) | Self::End => 0,
            Self::Trailers(before) => MAX_TRAILERS - before,
        };
        let Some(line) = take_line(read, longest)? else {
            return Ok(Next::More);
        };
        Ok(match self {
            Self::Line => match chunk_size(&line)? {
                0 => Next::Chunk(Self::Trailers(0)),
                size => Next::Chunk(Self::Data(size)),
            },
            Self::Data(_) | Self::End => Next::Chunk(Self::Line),
            Self::Trailers(_) if line.is_empty() => Next::Over,
            Self::Trailers(before) => Next::Chunk(Self::Trailers(before + line.len())),
        })
    }
}

fn take_up_to(read: &mut BytesMut, left: &mut u64) -> Part {
    let take = usize::try_from(*left).map_or(read.len(), |left| left.min(read.len()));
    if take == 0 {
        return Part::More;
    }
    *left -= take as u64;
    Part::Data(read.split_to(take).freeze())
}

/// Takes a line without its end.
fn take_line(read: &mut BytesMut, longest: usize) -> Result<Option<BytesMut>, Malformed> {
    let searched = read.get(..longest + 2).unwrap_or(read);
    let Some(end) = memchr(b'\n', searched) else {
        return if searched.len() > longest + 1 {
            Err(Malformed("a line between the answer's chunks is too long"))
        } else {
            Ok(None)
        };
    };
    let mut line = read.split_to(end);
    read.advance(1);
    if line.last() != Some(&b'\r') {
        return Err(Malformed(
            "a line between the answer's chunks ends in the wrong way",
        ));
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

fn chunk_size(line: &[u8]) -> Result<u64, Malformed> {
    let extension = memchr(b';', line).unwrap_or(line.len());
    let digits = line.get(..extension).unwrap_or(line).trim_ascii_end();
    let is_hex = !digits.is_empty() && digits.iter().all(u8::is_ascii_hexdigit);
    let digits = std::str::from_utf8(digits).ok().filter(|_| is_hex);
    digits
        .and_then(|digits| u64::from_str_radix(digits, 16).ok())
        .ok_or(Malformed("the size of a chunk is no number"))
}

#[cfg(test)]
mod tests;
