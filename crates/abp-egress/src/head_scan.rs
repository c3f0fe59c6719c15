//! The bytes of request heads, before they are parsed.
//!
//! The parser resolves some ambiguities silently: lines that end in a bare line feed, and a length that
//! is given twice. Such requests are how one request is made to look like two further on. They are
//! found here, while the bytes come, and refused with their connection. So are requests that are sent
//! before the one ahead of them was answered, because their heads cannot be told from a body.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep};

/// Why a head is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HeadProblem {
    BareLineFeed,
    LengthTwice,
    FoldedLine,
}

impl HeadProblem {
    pub(crate) const fn why(self) -> &'static str {
        match self {
            Self::BareLineFeed => "a line of the head ends in a bare line feed",
            Self::LengthTwice => "the length of the body is given more than once",
            Self::FoldedLine => "a header line is folded",
        }
    }
}

const AWAITING_HEAD: u8 = 0;
const IN_REQUEST: u8 = 1;
const BARE_LINE_FEED: u8 = 2;
const LENGTH_TWICE: u8 = 3;
const FOLDED_LINE: u8 = 4;
/// A request is served and its head was claimed.
const CLAIMED: u8 = 5;

/// The state of a connection, shared between its bytes and its requests.
#[derive(Debug, Default)]
pub(crate) struct HeadWatch(AtomicU8);

impl HeadWatch {
    /// Claims the head that was just parsed. False where it was never scanned: it came together with
    /// the body of the request before it.
    pub(crate) fn claim_head(&self) -> bool {
        let swapped =
            self.0
                .compare_exchange(IN_REQUEST, CLAIMED, Ordering::AcqRel, Ordering::Acquire);
        swapped.is_ok()
    }

    /// The request and its response are over; the next bytes are a head.
    pub(crate) fn await_head(&self) {
        self.0.store(AWAITING_HEAD, Ordering::Release);
    }

    /// The problem that the connection ended with.
    pub(crate) fn problem(&self) -> Option<HeadProblem> {
        match self.0.load(Ordering::Acquire) {
            BARE_LINE_FEED => Some(HeadProblem::BareLineFeed),
            LENGTH_TWICE => Some(HeadProblem::LengthTwice),
            FOLDED_LINE => Some(HeadProblem::FoldedLine),
            _ => None,
        }
    }

    fn awaits_head(&self) -> bool {
        self.0.load(Ordering::Acquire) == AWAITING_HEAD
    }

    fn set_scanned(&self) {
        self.0.store(IN_REQUEST, Ordering::Release);
    }

    fn set_problem(&self, problem: HeadProblem) {
        let state = match problem {
            HeadProblem::BareLineFeed => BARE_LINE_FEED,
            HeadProblem::LengthTwice => LENGTH_TWICE,
            HeadProblem::FoldedLine => FOLDED_LINE,
        };
        self.0.store(state, Ordering::Release);
    }
}

/// A connection from the sandbox whose request heads are scanned, and which fails when its peer takes
/// nothing of what is written for too long.
#[derive(Debug)]
pub(crate) struct ScannedStream {
    inner: TcpStream,
    watch: Arc<HeadWatch>,
    scan: HeadScan,
    idle_time: Duration,
    stalled: Option<Pin<Box<Sleep>>>,
}

impl ScannedStream {
    pub(crate) fn new(inner: TcpStream, watch: Arc<HeadWatch>, idle_time: Duration) -> Self {
        Self {
            inner,
            watch,
            scan: HeadScan::default(),
            idle_time,
            stalled: None,
        }
    }

    pub(crate) fn into_inner(self) -> TcpStream {
        self.inner
    }

    /// Scans bytes that were read; false where they must not be parsed.
    fn accept(&mut self, bytes: &[u8]) -> bool {
        if bytes.is_empty() || !self.watch.awaits_head() {
            return self.watch.problem().is_none();
        }
        match self.scan.scan(bytes) {
            Scanned::Partial => true,
            Scanned::Complete => {
                self.scan = HeadScan::default();
                self.watch.set_scanned();
                true
            }
            Scanned::Refused(problem) => {
                self.watch.set_problem(problem);
                false
            }
        }
    }

    fn check_progress<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.stalled = None;
            return written;
        }
        let limit = self.idle_time;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(limit)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl AsyncRead for ScannedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        std::task::ready!(Pin::new(&mut this.inner).poll_read(context, buffer))?;
        let read = buffer.filled().get(before..).unwrap_or_default();
        if !this.accept(read) {
            // No head may contain NUL: the parser answers 400 and closes.
            buffer.set_filled(before);
            buffer.put_slice(b"\0");
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for ScannedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.check_progress(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write_vectored(context, slices);
        self.check_progress(written, context)
    }
}

/// The headers that say how long a body is.
const FRAMING: [&[u8]; 2] = [b"content-length", b"transfer-encoding"];

/// The bytes of a line that have to be seen to know such a header and what follows its name.
const LINE_START: usize = "transfer-encoding".len() + 1;

#[derive(Debug, PartialEq, Eq)]
enum Scanned {
    Partial,
    Complete,
    Refused(HeadProblem),
}

/// Scans a head that may come in pieces, line by line.
#[derive(Debug, Default)]
struct HeadScan {
    /// The start of the line in lower case.
    start: [u8; LINE_START],
    /// Bytes of the line that were read.
    length: usize,
    last: Option<u8>,
    has_request_line: bool,
    has_length: bool,
}

impl HeadScan {
    fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            self.extend_line(line);
            if self.last != Some(b'\r') {
                return Scanned::Refused(HeadProblem::BareLineFeed);
            }
            if let Some(problem) = self.line_problem() {
                return Scanned::Refused(problem);
            }
            // Empty lines before a request are allowed.
            let is_empty = self.length == 1;
            if is_empty && self.has_request_line {
                return Scanned::Complete;
            }
            self.has_request_line |= !is_empty;
            (self.length, self.last) = (0, None);
            rest = after.get(1..).unwrap_or_default();
        }
        self.extend_line(rest);
        Scanned::Partial
    }

    fn extend_line(&mut self, more: &[u8]) {
        let room = self.start.get_mut(self.length..).unwrap_or_default();
        for (slot, byte) in room.iter_mut().zip(more) {
            *slot = byte.to_ascii_lowercase();
        }
        self.length += more.len();
        self.last = more.last().copied().or(self.last);
    }

    fn line_problem(&mut self) -> Option<HeadProblem> {
        let start = self.start.get(..self.length).unwrap_or(&self.start);
        if self.has_request_line && matches!(start.first(), Some(b' ' | b'\t')) {
            return Some(HeadProblem::FoldedLine);
        }
        // The name may be followed by anything that is no part of a name; whether that is valid is
        // for the parser to say.
        let gives_length = FRAMING.iter().any(|name| {
            start
                .strip_prefix(*name)
                .and_then(<[u8]>::first)
                .is_some_and(|next| !next.is_ascii_alphanumeric() && *next != b'-')
        });
        if gives_length && self.has_length {
            return Some(HeadProblem::LengthTwice);
        }
        self.has_length |= gives_length;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn heads_are_scanned_however_they_are_split() {
        use HeadProblem::{BareLineFeed, FoldedLine, LengthTwice};
        let cases: [(&[u8], Scanned); 12] = [
            (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", Scanned::Complete),
            (b"\r\nGET / HTTP/1.1\r\n\r\nGET", Scanned::Complete),
            (b"GET / HTTP/1.1\r\nhost: a\r\n", Scanned::Partial),
            (
                b"GET / HTTP/1.1\nhost: a\r\n\r\n",
                Scanned::Refused(BareLineFeed),
            ),
            (
                b"GET / HTTP/1.1\r\na: b\n\n",
                Scanned::Refused(BareLineFeed),
            ),
            (
                b"P / H\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n",
                Scanned::Refused(LengthTwice),
            ),
            (
                b"P / H\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
                Scanned::Refused(LengthTwice),
            ),
            (
                b"P / H\r\nTransfer-Encoding : chunked\r\ncontent-length\t: 1\r\n\r\n",
                Scanned::Refused(LengthTwice),
            ),
            (
                b"P / H\r\ncontent-length: 1\r\nx: content-length: 1\r\n\r\n",
                Scanned::Complete,
            ),
            (
                b"P / H\r\ncontent-length-x: 1\r\ncontent-length: 1\r\n\r\n",
                Scanned::Complete,
            ),
            (b"P / H\r\na: b\r\n c\r\n\r\n", Scanned::Refused(FoldedLine)),
            (
                b"P / H\r\na: b\r\n\tc\r\n\r\n",
                Scanned::Refused(FoldedLine),
            ),
        ];
        for (bytes, expected) in cases {
            for size in 1..=bytes.len() {
                let mut scan = HeadScan::default();
                let found = bytes
                    .chunks(size)
                    .map(|part| scan.scan(part))
                    .find(|found| *found != Scanned::Partial)
                    .unwrap_or(Scanned::Partial);
                let shown = bytes.escape_ascii();
                assert_eq!(found, expected, "{shown} in parts of {size}");
            }
        }
    }
}
