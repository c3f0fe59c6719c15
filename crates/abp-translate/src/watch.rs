//! Watching an answer that passes as it is: what it used, and whether it came to its end.
//!
//! Nothing is translated and most events are not even parsed: only those that can tell of usage, of
//! the end or of an error are looked into, and of the beginning where an answer can be asked for again.

use abp_core::ir::IrUsage;
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Dialect, Reader, StreamDecoder, WireFamily};
use abp_json::{Limits, Tape};
use memchr::memmem;

use crate::codec;
use crate::stream::StreamSummary;

/// What a whole answer says it used; `None` where it says nothing that can be read.
#[must_use]
pub fn usage_of(dialect: Dialect, answer: &[u8], limits: &Limits) -> Option<IrUsage> {
    let codec = codec(dialect)?;
    let tape = Tape::parse(answer, limits).ok()?;
    let reader = Reader::lenient(&tape);
    codec.read_usage(reader.root()).ok()?
}

/// Watches the bytes of a stream.
pub struct StreamWatch {
    family: WireFamily,
    bytes: SseDecoder,
    decoder: Box<dyn StreamDecoder>,
    summary: StreamSummary,
    /// The last event that tells of usage and of nothing else. Some vendors count in every event, and
    /// only the last count matters.
    counted: String,
    /// An answer was finished, though the stream has not told of its own end.
    finished: bool,
    /// The bytes cannot be read as a stream any more.
    unreadable: bool,
}

impl std::fmt::Debug for StreamWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("StreamWatch")
            .field("summary", &self.summary)
            .finish_non_exhaustive()
    }
}

/// What an event may tell.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Telling {
    Nothing,
    Usage,
    End,
}

impl StreamWatch {
    /// Starts to watch a stream; `None` where the dialect is not known.
    #[must_use]
    pub fn new(dialect: Dialect) -> Option<Self> {
        Some(Self {
            family: dialect.family(),
            bytes: SseDecoder::new(SseLimits::default()),
            decoder: codec(dialect)?.stream_decoder(),
            summary: StreamSummary::default(),
            counted: String::new(),
            finished: false,
            unreadable: false,
        })
    }

    /// Looks at bytes that pass.
    pub fn push(&mut self, bytes: &[u8]) {
        let mut sink = Sink {
            family: self.family,
            decoder: &mut *self.decoder,
            summary: &mut self.summary,
            counted: &mut self.counted,
            finished: &mut self.finished,
        };
        let mut events = self.bytes.feed(bytes);
        loop {
            match events.next_event() {
                Ok(Some(SseEvent::Message { name, data, .. })) => sink.look(name, data),
                Ok(Some(_)) => {}
                Ok(None) => return,
                Err(_) => {
                    self.unreadable = true;
                    return;
                }
            }
        }
    }

    /// The bytes have ended: what is known of the stream. It is complete where it told of its end, or
    /// of the end of an answer with nothing open after it.
    pub fn finish(&mut self) -> StreamSummary {
        let mut sink = Sink {
            family: self.family,
            decoder: &mut *self.decoder,
            summary: &mut self.summary,
            counted: &mut self.counted,
            finished: &mut self.finished,
        };
        let mut events = self.bytes.finish();
        while let Ok(Some(event)) = events.next_event() {
            if let SseEvent::Message { name, data, .. } = event {
                sink.look(name, data);
            }
        }
        sink.count();
        let mut summary = self.summary.clone();
        summary.complete |= (self.finished || self.unreadable) && summary.error.is_none();
        summary
    }

    /// What is known so far, without the last counts.
    #[must_use]
    pub fn summary(&self) -> &StreamSummary {
        &self.summary
    }
}

struct Sink<'w> {
    family: WireFamily,
    decoder: &'w mut dyn StreamDecoder,
    summary: &'w mut StreamSummary,
    counted: &'w mut String,
    finished: &'w mut bool,
}

impl Sink<'_> {
    fn look(&mut self, name: Option<&str>, data: &str) {
        self.summary.events += 1;
        match telling(self.family, data) {
            Telling::Nothing => {}
            Telling::Usage => {
                self.counted.clear();
                self.counted.push_str(data);
            }
            Telling::End => {
                self.count();
                self.read(name, data);
            }
        }
    }

    /// Reads the counts that were put off.
    fn count(&mut self) {
        if !self.counted.is_empty() {
            let data = std::mem::take(self.counted);
            self.read(None, &data);
        }
    }

    fn read(&mut self, name: Option<&str>, data: &str) {
        let mut deltas = Vec::new();
        if data.trim() == "[DONE]" {
            self.decoder.terminator(&mut deltas);
        } else if let Ok(tape) = Tape::parse_str(data, &Limits::default()) {
            let reader = Reader::lenient(&tape);
            // What cannot be read tells nothing; it passes all the same.
            if self
                .decoder
                .event(name, reader.root(), &mut deltas)
                .is_err()
            {
                return;
            }
        }
        for delta in &deltas {
            *self.finished |= matches!(delta, abp_core::ir::IrDelta::Finish { .. });
            self.summary.see(delta);
        }
    }
}

/// Whether an event is worth reading. Quotes inside of texts are escaped, so a quoted name that is
/// found here is a member or a word of the vendor.
fn telling(family: WireFamily, data: &str) -> Telling {
    let has = |needle: &str| memmem::find(data.as_bytes(), needle.as_bytes()).is_some();
    let (ends, counts): (&[&str], &[&str]) = match family {
        WireFamily::Chat => (
            &[
                "[DONE]",
                "\"finish_reason\":\"",
                "\"finish_reason\": \"",
                "\"error\"",
            ],
            &["\"usage\":{", "\"usage\": {"],
        ),
        WireFamily::Messages => (
            &[
                "\"message_start\"",
                "\"message_delta\"",
                "\"message_stop\"",
                "\"error\"",
            ],
            &[],
        ),
        WireFamily::Responses => (
            &[
                "\"response.created\"",
                "\"response.completed\"",
                "\"response.incomplete\"",
                "\"response.failed\"",
                "\"error\"",
            ],
            &[],
        ),
        WireFamily::GenerateContent => (
            &["\"finishReason\"", "\"blockReason\"", "\"error\""],
            &["\"usageMetadata\""],
        ),
        _ => (&[""], &[]),
    };
    if ends.iter().any(|needle| has(needle)) {
        Telling::End
    } else if counts.iter().any(|needle| has(needle)) {
        Telling::Usage
    } else {
        Telling::Nothing
    }
}
