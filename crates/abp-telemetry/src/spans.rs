//! Finished spans on their way to a collector.
//!
//! Whoever finishes a piece of work puts its span here and goes on: there is room for so many bytes, and a
//! span for which there is none is counted and gone. One sender takes them out.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use crate::TraceContext;
use crate::histogram::Counter;

/// What a span takes besides its texts, about.
const SPAN_BYTES: usize = 256;

/// A finished piece of work.
#[derive(Debug, Clone, PartialEq)]
pub struct FinishedSpan {
    /// What was done.
    pub name: String,
    /// Its place in its trace.
    pub context: TraceContext,
    /// The span of the caller, where there is one.
    pub parent: Option<[u8; 8]>,
    /// On which side of a call it is.
    pub kind: SpanKind,
    /// When it began.
    pub started_at: SystemTime,
    /// When it ended.
    pub ended_at: SystemTime,
    /// What is known of it.
    pub attributes: Vec<(&'static str, SpanValue)>,
    /// Whether it failed, and why.
    pub error: Option<String>,
}

/// The side of a call that a span is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpanKind {
    /// Work of our own.
    Internal,
    /// A call to somebody else.
    Client,
}

/// The value of an attribute.
#[derive(Debug, Clone, PartialEq)]
pub enum SpanValue {
    /// A text.
    Text(String),
    /// A whole number.
    Number(u64),
    /// Any other number.
    Float(f64),
}

impl From<&str> for SpanValue {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<u64> for SpanValue {
    fn from(number: u64) -> Self {
        Self::Number(number)
    }
}

impl FinishedSpan {
    fn bytes(&self) -> usize {
        let texts = self.attributes.iter().map(|(name, value)| {
            let text = match value {
                SpanValue::Text(text) => text.len(),
                SpanValue::Number(_) | SpanValue::Float(_) => 8,
            };
            name.len() + text + 32
        });
        let error = self.error.as_ref().map_or(0, String::len);
        SPAN_BYTES + self.name.len() + error + texts.sum::<usize>()
    }
}

/// Spans that wait for their sender.
#[derive(Debug)]
pub struct SpanQueue {
    waiting: Mutex<Waiting>,
    max_bytes: usize,
    dropped: Counter,
}

#[derive(Debug, Default)]
struct Waiting {
    spans: VecDeque<FinishedSpan>,
    bytes: usize,
}

impl SpanQueue {
    /// A queue with room for so many bytes.
    #[must_use]
    pub fn new(max_bytes: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            max_bytes,
            dropped: Counter::default(),
        }
    }

    /// Puts a span into the queue, or drops it where there is no room. Never waits for the sender.
    pub fn push(&self, span: FinishedSpan) {
        let bytes = span.bytes();
        let mut waiting = self.lock();
        if waiting.bytes + bytes > self.max_bytes {
            drop(waiting);
            self.dropped.add(1);
            return;
        }
        waiting.bytes += bytes;
        waiting.spans.push_back(span);
    }

    /// Takes the oldest spans, so many at most.
    #[must_use]
    pub fn take(&self, most: usize) -> Vec<FinishedSpan> {
        let mut waiting = self.lock();
        let count = waiting.spans.len().min(most);
        let taken: Vec<FinishedSpan> = waiting.spans.drain(..count).collect();
        let bytes: usize = taken.iter().map(FinishedSpan::bytes).sum();
        waiting.bytes = waiting.bytes.saturating_sub(bytes);
        taken
    }

    /// Counts spans that were taken and could not be sent.
    pub fn lose(&self, spans: u64) {
        self.dropped.add(spans);
    }

    /// How many spans there was no room for, or that could not be sent.
    #[must_use]
    pub fn dropped(&self) -> u64 {
        self.dropped.get()
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(name: &str) -> FinishedSpan {
        FinishedSpan {
            name: name.to_owned(),
            context: TraceContext::of_id([1; 16], None),
            parent: None,
            kind: SpanKind::Internal,
            started_at: SystemTime::UNIX_EPOCH,
            ended_at: SystemTime::UNIX_EPOCH,
            attributes: vec![("abp.outcome", "complete".into())],
            error: None,
        }
    }

    /// A queue takes what there is room for, counts the rest, and takes more once it was emptied.
    #[test]
    fn a_full_queue_drops_and_counts() {
        let room = span("s").bytes() * 3;
        let queue = SpanQueue::new(room);
        for _ in 0..5 {
            queue.push(span("s"));
        }
        assert_eq!(queue.dropped(), 2);
        assert_eq!(queue.take(2).len(), 2);
        queue.push(span("t"));
        assert_eq!(queue.dropped(), 2);
        let names: Vec<String> = queue.take(9).into_iter().map(|span| span.name).collect();
        assert_eq!(names, ["s", "t"]);
        assert!(queue.take(9).is_empty());
        assert_eq!(queue.lock().bytes, 0);
    }
}
