//! Answers that come in pieces.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use abp_dialect::sse::{SseDecoder, SseEvent, SseEvents, SseLimits};
use bytes::Bytes;
use futures_core::Stream;
use serde::Deserialize;

use crate::error::{Error, TransportError};
use crate::info::{AbpInfo, Head};
use crate::reply::{Body, RawReply, api_error, unexpected};

/// How the events of a vendor's stream are read.
pub trait StreamReader {
    /// A piece of an answer.
    type Event;
    /// The vendor's body of an error.
    type ErrorBody;

    /// Reads the data of an event.
    ///
    /// # Errors
    /// Fails where the data is not what the vendor sends.
    fn read(&mut self, data: &str) -> Result<StreamStep<Self::Event, Self::ErrorBody>, Unreadable>;

    /// Whether the stream may end here although no event told of its end.
    fn may_end(&self) -> bool;
}

/// What an event means for its stream.
#[derive(Debug, Clone, PartialEq)]
pub enum StreamStep<E, B> {
    /// A piece, and more to come.
    More(E),
    /// The end, which may be a piece itself.
    End(Option<E>),
    /// The end, and not a good one.
    Failed(Option<E>, B),
}

/// Why a document is not what the vendor sends.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(String);

/// Reads a document of the vendor; what is wrong with it is told with its place.
///
/// # Errors
/// Fails where it is no JSON, or not what is expected.
pub fn read_json<'d, T: Deserialize<'d>>(text: &'d str) -> Result<T, Unreadable> {
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = serde_path_to_error::deserialize(&mut reader);
    let document = read.map_err(|error| Unreadable(error.to_string()))?;
    let end = reader.end().map_err(|error| Unreadable(error.to_string()));
    end.map(|()| document)
}

/// The answers of a stream that says of each when it ends, and need not say more.
#[derive(Debug, Default)]
pub struct OpenAnswers {
    open: BTreeSet<u64>,
    one_ended: bool,
}

impl OpenAnswers {
    /// Something came of an answer.
    pub fn see(&mut self, index: u64, ended: bool) {
        if ended {
            self.open.remove(&index);
            self.one_ended = true;
        } else {
            self.open.insert(index);
        }
    }

    /// Whether there were answers, and all have ended.
    #[must_use]
    pub fn all_ended(&self) -> bool {
        self.one_ended && self.open.is_empty()
    }
}

/// An answer that comes in pieces.
///
/// It ends in an error unless the vendor told of its end. Dropping it ends the exchange; after the last
/// piece it should be read on until there is `None`, so that the exchange counts as complete.
pub struct ApiStream<R: StreamReader> {
    /// Where bytes come from; nothing once there are no more.
    body: Option<Body>,
    decoder: SseDecoder,
    pieces: Pieces<R>,
}

/// A piece of an answer, or why there are no more.
type Piece<R> = Result<<R as StreamReader>::Event, Error<<R as StreamReader>::ErrorBody>>;

/// What was read of a stream.
struct Pieces<R: StreamReader> {
    reader: R,
    /// What was not yet handed out.
    ready: VecDeque<Piece<R>>,
    phase: Phase,
    head: Head,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Open,
    /// The vendor told of the end.
    Ended,
    Failed,
}

impl<R: StreamReader> ApiStream<R> {
    pub(crate) fn new(reply: RawReply, reader: R) -> Self {
        Self {
            body: Some(reply.body),
            decoder: SseDecoder::new(SseLimits::default()),
            pieces: Pieces {
                reader,
                ready: VecDeque::new(),
                phase: Phase::Open,
                head: reply.head,
            },
        }
    }

    /// The next piece; `None` at the end.
    pub async fn next(&mut self) -> Option<Piece<R>> {
        poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }

    /// What the gateway did; how true the answer is once there is `None`.
    #[must_use]
    pub fn abp(&self) -> &AbpInfo {
        &self.pieces.head.abp
    }

    /// What the vendor knows the request by.
    #[must_use]
    pub fn request_id(&self) -> Option<&str> {
        self.pieces.head.request_id.as_deref()
    }

    fn take(&mut self, part: Option<Result<Bytes, TransportError>>) {
        let pieces = &mut self.pieces;
        match part {
            Some(Ok(bytes)) => pieces.read_all(self.decoder.feed(&bytes)),
            Some(Err(error)) => pieces.fail(error.into()),
            None => {
                pieces.read_all(self.decoder.finish());
                if !pieces.reader.may_end() {
                    pieces.fail(broken_off("it has no end"));
                }
                self.body = None;
            }
        }
        if pieces.phase == Phase::Failed {
            self.body = None;
        }
    }
}

impl<R: StreamReader> Pieces<R> {
    fn read_all(&mut self, mut events: SseEvents<'_, '_>) {
        while self.phase != Phase::Failed {
            match events.next_event() {
                Ok(Some(SseEvent::Comment(text))) => self.head.abp.hear(text),
                // After the end there is nothing but comments that matters.
                Ok(Some(_)) if self.phase == Phase::Ended => {}
                Ok(Some(SseEvent::Message {
                    data, unterminated, ..
                })) => self.read(data, unterminated),
                Ok(Some(SseEvent::NotUtf8 { .. })) => self.fail(broken_off("it is not UTF-8")),
                Ok(None) => return,
                Err(error) => return self.fail(broken_off(&error.to_string())),
            }
        }
    }

    /// Reads an event. One that is not terminated was cut off, unless it can be read all the same:
    /// some servers leave out the last line end.
    fn read(&mut self, data: &str, unterminated: bool) {
        match self.reader.read(data) {
            Ok(StreamStep::More(event)) => self.ready.push_back(Ok(event)),
            Ok(StreamStep::End(event)) => {
                self.ready.extend(event.map(Ok));
                self.phase = Phase::Ended;
            }
            Ok(StreamStep::Failed(event, body)) => {
                self.ready.extend(event.map(Ok));
                self.fail(api_error(&self.head, None, body));
            }
            Err(_) if unterminated => self.fail(broken_off("its last event is cut off")),
            Err(problem) => self.fail(unexpected(&self.head, problem.to_string())),
        }
    }

    /// Ends the stream in an error, unless it has ended already.
    fn fail(&mut self, error: Error<R::ErrorBody>) {
        if self.phase == Phase::Open {
            self.phase = Phase::Failed;
            self.ready.push_back(Err(error));
        }
    }
}

fn broken_off<B>(problem: &str) -> Error<B> {
    TransportError::BrokenOff(problem.to_owned()).into()
}

impl<R: StreamReader> Stream for ApiStream<R> {
    type Item = Piece<R>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        loop {
            if let Some(piece) = this.pieces.ready.pop_front() {
                return Poll::Ready(Some(piece));
            }
            let Some(body) = &mut this.body else {
                return Poll::Ready(None);
            };
            let part = ready!(body.poll_part(context));
            this.take(part);
        }
    }
}

/// Nothing in it is pinned.
impl<R: StreamReader> Unpin for ApiStream<R> {}

impl<R: StreamReader> fmt::Debug for ApiStream<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ApiStream")
            .field("head", &self.pieces.head)
            .finish_non_exhaustive()
    }
}
