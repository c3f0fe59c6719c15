//! The lines between ABP and a peer.
//!
//! A line may have so many bytes, and so many bytes of lines may wait to be handled: a peer that says more
//! than is taken is not read until some of it was taken. Lines that are no JSON objects are noise. Agents
//! print to the wrong stream, so theirs is counted and skipped; a client gets an error for it.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{self, Stream};
use futures_util::{Sink, sink};
use sidecar_kit::{CodecError, DEFAULT_MAX_LINE, Decoder};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Notify, Semaphore};

/// The unit in which waiting bytes are counted.
const UNIT: usize = 1024;
/// The units that may wait: twice the longest line.
const UNITS: usize = 2 * DEFAULT_MAX_LINE / UNIT;

/// The treatment of lines that are no JSON objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Noise {
    /// They are counted.
    Skipped,
    /// They go to the crate, which answers that they cannot be parsed.
    Answered,
}

/// The lines that were read and not handled yet.
#[derive(Debug)]
pub(crate) struct Backlog {
    room: Semaphore,
    /// The units of each line, in the order in which they are handled.
    waiting: Mutex<VecDeque<u32>>,
    noise: AtomicU64,
    /// Why reading ended, where the peer is to blame.
    problem: Mutex<Option<CodecError>>,
}

impl Backlog {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            room: Semaphore::new(UNITS),
            waiting: Mutex::default(),
            noise: AtomicU64::new(0),
            problem: Mutex::default(),
        })
    }

    /// Makes room: the oldest line was handled.
    pub(crate) fn handled(&self) {
        let units = locked(&self.waiting).pop_front();
        self.room.add_permits(units.unwrap_or(0) as usize);
    }

    /// The number of lines that were no messages.
    pub(crate) fn noise(&self) -> u64 {
        self.noise.load(Ordering::Relaxed)
    }

    /// Why reading ended, where the peer is to blame.
    pub(crate) fn problem(&self) -> Option<CodecError> {
        locked(&self.problem).clone()
    }

    async fn take_room(&self, bytes: usize) {
        let units = u32::try_from(bytes / UNIT + 1).unwrap_or(u32::MAX);
        if let Ok(permit) = self.room.acquire_many(units).await {
            permit.forget();
            locked(&self.waiting).push_back(units);
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Reading<R> {
    stream: R,
    decoder: Decoder,
    lines: VecDeque<String>,
    noise: Noise,
    backlog: Arc<Backlog>,
}

/// The messages of a peer, one line each.
pub(crate) fn read_lines<R>(
    stream: R,
    max_line: usize,
    noise: Noise,
    backlog: Arc<Backlog>,
) -> impl Stream<Item = io::Result<String>> + Send
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let reading = Reading {
        stream,
        decoder: Decoder::new(max_line),
        lines: VecDeque::new(),
        noise,
        backlog,
    };
    stream::unfold(reading, |mut reading| async {
        let line = reading.next_line().await?;
        Some((line, reading))
    })
}

impl<R: AsyncRead + Unpin> Reading<R> {
    async fn next_line(&mut self) -> Option<io::Result<String>> {
        loop {
            if let Some(line) = self.lines.pop_front() {
                // Nothing handles noise, so nothing would give its room back.
                if is_object(&line) {
                    self.backlog.take_room(line.len()).await;
                }
                return Some(Ok(line));
            }
            match self.stream.read_buf(self.decoder.buffer()).await {
                Ok(0) => return None,
                Ok(_) => {}
                Err(error) => return Some(Err(error)),
            }
            match self.decoder.take() {
                Ok(None) => {}
                Ok(Some(lines)) => self.keep(&lines),
                Err(problem) => {
                    let error = io::Error::new(io::ErrorKind::InvalidData, problem.to_string());
                    *locked(&self.backlog.problem) = Some(problem);
                    return Some(Err(error));
                }
            }
        }
    }

    fn keep(&mut self, lines: &sidecar_kit::Lines) {
        for (_, line) in lines.iter() {
            if is_object(line) || self.noise == Noise::Answered {
                self.lines.push_back(line.to_owned());
            } else {
                self.backlog.noise.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Whether a line could be a message.
fn is_object(line: &str) -> bool {
    line.starts_with('{')
}

/// The most messages that wait to be written before a sender should wait.
const MAX_UNWRITTEN: usize = 256;

/// The messages that were sent and not written yet. The crate queues without a bound, so senders of streams ask
/// for room first; a peer that does not read then costs no memory.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    unwritten: AtomicUsize,
    written: Notify,
}

impl Outbox {
    /// Counts a message that is handed to the crate.
    pub(crate) fn queued(&self) {
        self.unwritten.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until not too many messages wait.
    pub(crate) async fn room(&self) {
        loop {
            // Subscribed before looking, so that nothing is missed in between.
            let written = self.written.notified();
            if self.unwritten.load(Ordering::Relaxed) < MAX_UNWRITTEN {
                return;
            }
            written.await;
        }
    }

    fn wrote_one(&self) {
        // The crate writes some answers of its own, which nobody counted.
        let less = |count: usize| Some(count.saturating_sub(1));
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        // It is never refused.
        let _ = self.unwritten.fetch_update(set, fetch, less);
        self.written.notify_waiters();
    }
}

/// Writes messages to a peer, one line each.
pub(crate) fn write_lines<W>(
    stream: W,
    outbox: Arc<Outbox>,
) -> impl Sink<String, Error = io::Error> + Send
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    let start = (stream, outbox);
    sink::unfold(
        start,
        |(mut stream, outbox): (W, Arc<Outbox>), mut line: String| async move {
            line.push('\n');
            stream.write_all(line.as_bytes()).await?;
            stream.flush().await?;
            outbox.wrote_one();
            Ok((stream, outbox))
        },
    )
}

#[cfg(test)]
mod tests {
    use futures_util::SinkExt as _;

    use super::*;

    #[tokio::test]
    async fn a_peer_that_does_not_read_makes_senders_wait() {
        let (near, mut far) = tokio::io::duplex(16);
        let outbox = Arc::new(Outbox::default());
        let mut sink = Box::pin(write_lines(near, Arc::clone(&outbox)));
        for _ in 0..MAX_UNWRITTEN {
            outbox.room().await;
            outbox.queued();
        }
        let waiting = tokio::time::timeout(std::time::Duration::from_millis(50), outbox.room());
        assert!(waiting.await.is_err());
        let writing =
            tokio::spawn(async move { sink.send("a line of some length".to_owned()).await });
        let mut read = [0; 22];
        far.read_exact(&mut read).await.unwrap();
        writing.await.unwrap().unwrap();
        outbox.room().await;
    }
}
