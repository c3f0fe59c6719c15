//! The lines between the host and an agent.
//!
//! A line may have so many bytes, and so many bytes of lines may wait to be handled: an agent that says more
//! than is taken is not read until some of it was taken. Lines that are no JSON objects are noise: they are
//! counted and skipped, because agents print to the wrong stream.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use futures_util::stream::{self, Stream};
use futures_util::{Sink, sink};
use sidecar_kit::{CodecError, DEFAULT_MAX_LINE, Decoder};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::Semaphore;

/// The unit in which waiting bytes are counted.
const UNIT: usize = 1024;
/// The units that may wait: twice the longest line.
const UNITS: usize = 2 * DEFAULT_MAX_LINE / UNIT;

/// The lines that were read and not handled yet.
#[derive(Debug)]
pub(crate) struct Backlog {
    room: Semaphore,
    /// The units of each line, in the order in which they are handled.
    waiting: Mutex<VecDeque<u32>>,
    noise: AtomicU64,
    /// Why reading ended, where the agent is to blame.
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

    /// Why reading ended, where the agent is to blame.
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
    backlog: Arc<Backlog>,
}

/// The messages of an agent, one line each.
pub(crate) fn read_lines<R>(
    stream: R,
    max_line: usize,
    backlog: Arc<Backlog>,
) -> impl Stream<Item = io::Result<String>> + Send
where
    R: AsyncRead + Send + Unpin + 'static,
{
    let reading = Reading {
        stream,
        decoder: Decoder::new(max_line),
        lines: VecDeque::new(),
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
                self.backlog.take_room(line.len()).await;
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
            if line.starts_with('{') {
                self.lines.push_back(line.to_owned());
            } else {
                self.backlog.noise.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

/// Writes messages to an agent, one line each.
pub(crate) fn write_lines<W>(stream: W) -> impl Sink<String, Error = io::Error> + Send
where
    W: AsyncWrite + Send + Unpin + 'static,
{
    sink::unfold(stream, |mut stream: W, mut line: String| async move {
        line.push('\n');
        stream.write_all(line.as_bytes()).await?;
        stream.flush().await?;
        Ok(stream)
    })
}
