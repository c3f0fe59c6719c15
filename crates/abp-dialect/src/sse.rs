//! Server-sent events, as bytes come and go; no I/O.
//!
//! [`SseDecoder`] reads what vendors send as a stream: events in the form of the WHATWG standard,
//! with every line end and every split of the bytes, and the JSON array that Gemini sends to callers
//! who did not ask for events. [`SseEncoder`] writes both.
//!
//! ```
//! use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
//!
//! let mut decoder = SseDecoder::new(SseLimits::default());
//! let mut seen = Vec::new();
//! for bytes in [b"event: ping\r\nda".as_slice(), b"ta: {}\r\n\r\n"] {
//!     let mut events = decoder.feed(bytes);
//!     while let Some(event) = events.next_event()? {
//!         if let SseEvent::Message { name, data, .. } = event {
//!             seen.push((name.map(str::to_owned), data.to_owned()));
//!         }
//!     }
//! }
//! assert_eq!(seen, [(Some("ping".to_owned()), "{}".to_owned())]);
//! # Ok::<(), abp_dialect::DialectError>(())
//! ```

mod decoder;
mod element;
mod encoder;
mod line;

pub use decoder::{SseDecoder, SseEvents};
pub use encoder::{SseEncoder, SseForm};

/// What a stream may cost: a decoder keeps no more than twice its longest event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SseLimits {
    /// The longest event in bytes, field names included.
    pub max_event: usize,
    /// The longest line in bytes.
    pub max_line: usize,
}

impl Default for SseLimits {
    /// 16 MiB each: an image travels in one line.
    fn default() -> Self {
        Self {
            max_event: 16 << 20,
            max_line: 16 << 20,
        }
    }
}

/// What a stream says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SseEvent<'e> {
    /// An event. One without data is none, as the standard says.
    Message {
        /// Its name; the standard's `message` where there is none.
        name: Option<&'e str>,
        /// Its data, several lines joined by line feeds.
        data: &'e str,
        /// Its id.
        id: Option<&'e str>,
        /// How many milliseconds to wait before connecting again.
        retry: Option<u64>,
        /// The stream ended before the event did: the data may be cut off anywhere.
        unterminated: bool,
    },
    /// A comment. Vendors send them to keep the connection open.
    Comment(&'e str),
    /// An event or a comment that is no UTF-8. The stream goes on after it.
    NotUtf8 {
        /// Where in the stream the text ends.
        offset: u64,
    },
}
