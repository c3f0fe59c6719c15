//! The bytes of a connection, before anything is made of them.
//!
//! Two things cannot be seen any more once a request is parsed: how long its head took to come, apart
//! from how long the connection was idle before it, and whether its lines ended as they must. Lines that
//! end otherwise, and requests that are sent before the one ahead of them was answered, are how one
//! request is made to look like two to somebody further on; no client of ours does either.

use std::future::Future as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

const IDLE: u8 = 0;
const HEAD: u8 = 1;
const REQUEST: u8 = 2;
/// No phase: whatever comes next, the timer is set anew.
const UNTIMED: u8 = 3;
/// The bytes are no longer HTTP. They are not looked at, and silence is no fault; a peer that takes nothing
/// of what is written is still cut off.
const UPGRADED: u8 = 4;

/// What a connection is doing, shared between its bytes and its requests.
#[derive(Debug, Default)]
pub(crate) struct Phase(AtomicU8);

impl Phase {
    /// Whether the request that is now served is one whose head was looked at.
    pub(crate) fn was_read(&self) -> bool {
        self.get() == REQUEST
    }

    /// The request was served; another may come.
    pub(crate) fn end_request(&self) {
        if self.get() != UPGRADED {
            self.set(IDLE);
        }
    }

    /// The connection speaks another protocol from now on.
    pub(crate) fn upgrade(&self) {
        self.set(UPGRADED);
    }

    fn get(&self) -> u8 {
        self.0.load(Ordering::Acquire)
    }

    fn set(&self, phase: u8) {
        self.0.store(phase, Ordering::Release);
    }
}

/// How long a connection may take for what.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WireDeadlines {
    pub(crate) head: Duration,
    pub(crate) idle: Duration,
}

/// A connection's bytes, watched.
#[derive(Debug)]
pub(crate) struct Wire<I> {
    inner: I,
    phase: Arc<Phase>,
    deadlines: WireDeadlines,
    timer: Pin<Box<Sleep>>,
    /// What the timer is set for.
    timed: u8,
    /// Runs while the peer takes nothing of what is written.
    stalled: Option<Pin<Box<Sleep>>>,
    head: HeadScan,
}

impl<I> Wire<I> {
    pub(crate) fn new(inner: I, phase: Arc<Phase>, deadlines: WireDeadlines) -> Self {
        Self {
            inner,
            phase,
            // Whoever connects is expected to ask for something.
            timer: Box::pin(sleep(deadlines.head)),
            deadlines,
            timed: IDLE,
            stalled: None,
            head: HeadScan::default(),
        }
    }

    /// Fails where the peer takes too long for what it is doing.
    fn check_time(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let phase = self.phase.get();
        if phase != self.timed {
            self.timed = phase;
            let allowed = match phase {
                HEAD => self.deadlines.head,
                _ => self.deadlines.idle,
            };
            self.timer.as_mut().reset(Instant::now() + allowed);
        }
        // The timer runs during a request too: that its answer has ended is not seen from here.
        while self.timer.as_mut().poll(context).is_ready() {
            if phase != REQUEST && phase != UPGRADED {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            let again = Instant::now() + self.deadlines.idle;
            self.timer.as_mut().reset(again);
        }
        Poll::Pending
    }

    /// Fails where the peer takes nothing for too long: whoever does not read keeps everything waiting
    /// that its answer is made of.
    fn check_progress<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        if written.is_ready() {
            if self.stalled.take().is_some() {
                // A peer that takes a long answer slowly is not idle.
                self.timed = UNTIMED;
            }
            return written;
        }
        let idle = self.deadlines.idle;
        let stalled = self.stalled.get_or_insert_with(|| Box::pin(sleep(idle)));
        match stalled.as_mut().poll(context) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Looks at what was read; tells whether it may go on.
    fn look(&mut self, bytes: &[u8]) -> bool {
        if matches!(self.phase.get(), REQUEST | UPGRADED) || bytes.is_empty() {
            return true;
        }
        self.phase.set(HEAD);
        match self.head.scan(bytes) {
            Scanned::Going => true,
            Scanned::Complete => {
                self.head = HeadScan::default();
                self.phase.set(REQUEST);
                true
            }
            Scanned::Ambiguous => false,
        }
    }
}

impl<I: AsyncRead + Unpin> AsyncRead for Wire<I> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buffer.filled().len();
        match Pin::new(&mut this.inner).poll_read(context, buffer) {
            Poll::Ready(Ok(())) => {
                let read = buffer.filled().get(before..).unwrap_or_default();
                if !this.look(read) {
                    // What no head may contain: the parser refuses it, says so, and closes.
                    buffer.set_filled(before);
                    buffer.put_slice(b"\0");
                }
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => this.check_time(context),
        }
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Wire<I> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.inner).poll_write(context, bytes);
        self.check_progress(written, context)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.inner).poll_flush(context);
        self.check_progress(flushed, context)
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
const FRAMING: [&[u8]; 2] = [b"content-length:", b"transfer-encoding:"];

/// As much of a line as has to be seen to know such a header.
const LINE_START: usize = "transfer-encoding:".len();

/// Reads a head without making anything of it.
#[derive(Debug, Default)]
struct HeadScan {
    /// The start of the line, in small letters.
    start: [u8; LINE_START],
    /// How many bytes of the line were read.
    length: usize,
    /// The last of them.
    last: Option<u8>,
    begun: bool,
    /// The length of the body was given.
    framed: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Scanned {
    Going,
    Complete,
    /// A line feed alone, or a body whose length is given more than once.
    Ambiguous,
}

impl HeadScan {
    fn scan(&mut self, bytes: &[u8]) -> Scanned {
        let mut rest = bytes;
        while let Some(end) = memchr::memchr(b'\n', rest) {
            let (line, after) = rest.split_at(end);
            self.take(line);
            if self.last != Some(b'\r') || self.frames_twice() {
                return Scanned::Ambiguous;
            }
            // Empty lines before a request are allowed.
            let is_empty = self.length == 1;
            if is_empty && self.begun {
                return Scanned::Complete;
            }
            self.begun |= !is_empty;
            (self.length, self.last) = (0, None);
            rest = after.get(1..).unwrap_or_default();
        }
        self.take(rest);
        Scanned::Going
    }

    /// Goes on with a line.
    fn take(&mut self, more: &[u8]) {
        let room = self.start.get_mut(self.length..).unwrap_or_default();
        for (place, byte) in room.iter_mut().zip(more) {
            *place = byte.to_ascii_lowercase();
        }
        self.length += more.len();
        self.last = more.last().copied().or(self.last);
    }

    /// At the end of a line: whether it says how long the body is, and an earlier one did.
    fn frames_twice(&mut self) -> bool {
        let start = self.start.get(..self.length).unwrap_or(&self.start);
        let frames = FRAMING.iter().any(|name| start.starts_with(name));
        let twice = frames && self.framed;
        self.framed |= frames;
        twice
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn b6_heads_are_read_however_they_are_split() {
        let cases: [(&[u8], Scanned); 10] = [
            (b"GET / HTTP/1.1\r\nhost: a\r\n\r\n", Scanned::Complete),
            (b"\r\nGET / HTTP/1.1\r\n\r\nGET", Scanned::Complete),
            (b"GET / HTTP/1.1\r\nhost: a\r\n", Scanned::Going),
            (b"GET / HTTP/1.1\nhost: a\r\n\r\n", Scanned::Ambiguous),
            (b"GET / HTTP/1.1\r\nhost: a\n\n", Scanned::Ambiguous),
            (b"\nGET / HTTP/1.1\r\n\r\n", Scanned::Ambiguous),
            (
                b"P / H\r\nContent-Length: 1\r\nTransfer-Encoding: x\r\n\r\n",
                Scanned::Ambiguous,
            ),
            (
                b"P / H\r\ncontent-length: 1\r\ncontent-length: 1\r\n\r\n",
                Scanned::Ambiguous,
            ),
            (
                b"P / H\r\ncontent-length: 1\r\nx: content-length: 1\r\n\r\n",
                Scanned::Complete,
            ),
            (
                b"P / H\r\nx-content-length: 1\r\ncontent-length: 1\r\n\r\n",
                Scanned::Complete,
            ),
        ];
        for (bytes, expected) in cases {
            for size in 1..=bytes.len() {
                let mut scan = HeadScan::default();
                let found = bytes
                    .chunks(size)
                    .map(|part| scan.scan(part))
                    .find(|found| *found != Scanned::Going)
                    .unwrap_or(Scanned::Going);
                assert_eq!(
                    found,
                    expected,
                    "{} in parts of {size}",
                    bytes.escape_ascii()
                );
            }
        }
    }
}
