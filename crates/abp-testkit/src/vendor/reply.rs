//! An answer of a fake vendor, and how it goes out.

use std::io::{self, Write as _};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use http_body::{Body, Frame};
use tokio::time::Sleep;

use super::log::{ExchangeEnd, OpenExchange};

/// What was written before a cut gets so long to leave.
const FLUSH: Duration = Duration::from_millis(5);

/// An answer of a fake vendor.
#[derive(Debug, Clone)]
pub struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: Bytes,
    pub(super) silent: bool,
    chunk: Option<usize>,
    pause: Duration,
    ending: Ending,
}

/// How a connection is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// Closed in order, as if the process had ended.
    Eof,
    /// Reset.
    Reset,
}

#[derive(Debug, Clone, Copy)]
enum Ending {
    Complete,
    Cut { at: usize, how: Cut },
    Stall { at: usize },
}

impl Reply {
    /// An answer of some type.
    pub fn new(content_type: &str, body: impl Into<Bytes>) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type".to_owned(), content_type.to_owned())],
            body: body.into(),
            silent: false,
            chunk: None,
            pause: Duration::ZERO,
            ending: Ending::Complete,
        }
    }

    /// A JSON document.
    pub fn json(body: impl Into<Bytes>) -> Self {
        Self::new("application/json", body)
    }

    /// A stream of server-sent events, well formed or not.
    pub fn events(body: impl Into<Bytes>) -> Self {
        Self::new("text/event-stream", body)
    }

    /// A file below `fixtures`: `openai/response_text.json`, `claude/stream_text.sse`.
    ///
    /// # Errors
    /// Fails where the file cannot be read.
    pub fn fixture(path: &str) -> io::Result<Self> {
        let body = fixture(path)?;
        Ok(if path.ends_with(".sse") {
            Self::events(body)
        } else {
            Self::json(body)
        })
    }

    /// A page for people, as a proxy in front of a vendor sends it.
    #[must_use]
    pub fn html() -> Self {
        Self::new("text/html", "<html><body>Please sign in.</body></html>")
    }

    /// Nothing, and that in order.
    #[must_use]
    pub fn no_content() -> Self {
        let mut reply = Self::json("").status(204);
        reply.headers.clear();
        reply
    }

    /// A redirection that keeps the method.
    #[must_use]
    pub fn redirect(to: &str) -> Self {
        Self::json("{}").status(307).header("location", to)
    }

    /// Zeros, compressed: short on the wire, `inflated` bytes once it is unpacked.
    ///
    /// # Errors
    /// Fails where the zeros cannot be compressed.
    pub fn gzip_bomb(inflated: usize) -> io::Result<Self> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
        let zeros = [0; 1 << 16];
        let mut left = inflated;
        while let Some(part) = zeros.get(..left.min(zeros.len())).filter(|_| left > 0) {
            encoder.write_all(part)?;
            left -= part.len();
        }
        let body = encoder.finish()?;
        Ok(Self::json(body).header("content-encoding", "gzip"))
    }

    /// Takes the request and never answers.
    #[must_use]
    pub fn silence() -> Self {
        Self {
            silent: true,
            ..Self::json("")
        }
    }

    /// With another status.
    #[must_use]
    pub fn status(mut self, status: u16) -> Self {
        self.status = status;
        self
    }

    /// With one more header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// In chunks of so many bytes; whole and with its length otherwise.
    #[must_use]
    pub fn in_chunks(mut self, bytes: usize) -> Self {
        self.chunk = Some(bytes.max(1));
        self
    }

    /// With a pause after every chunk.
    #[must_use]
    pub fn every(mut self, pause: Duration) -> Self {
        self.pause = pause;
        self
    }

    /// Cut off after so many bytes of the body.
    #[must_use]
    pub fn cut_at(mut self, at: usize, how: Cut) -> Self {
        self.ending = Ending::Cut { at, how };
        self
    }

    /// Nothing more after so many bytes of the body, while the connection stays.
    #[must_use]
    pub fn stall_at(mut self, at: usize) -> Self {
        self.ending = Ending::Stall { at };
        self
    }

    /// The body on its way.
    pub(super) fn into_body(self, mut exchange: OpenExchange) -> ReplyBody {
        let whole = self.chunk.is_none() && matches!(self.ending, Ending::Complete);
        if whole {
            // Its length says how much there is: the connection does not ask for an end.
            exchange.tell(ExchangeEnd::Complete);
        }
        let end = match self.ending {
            Ending::Complete => self.body.len(),
            Ending::Cut { at, .. } | Ending::Stall { at } => at.min(self.body.len()),
        };
        ReplyBody {
            left: self.body.slice(..end),
            whole,
            chunk: self.chunk.unwrap_or(usize::MAX),
            pause: self.pause,
            ending: self.ending,
            timer: None,
            exchange,
        }
    }
}

/// Reads a file below `fixtures`.
///
/// # Errors
/// Fails where the file cannot be read.
pub fn fixture(path: &str) -> io::Result<Vec<u8>> {
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures");
    std::fs::read(fixtures.join(path))
}

/// The script cuts the connection here.
#[derive(Debug, Clone, Copy)]
pub(super) struct CutOff(pub(super) Cut);

impl std::fmt::Display for CutOff {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("cut off by the script")
    }
}

impl std::error::Error for CutOff {}

/// A body on its way.
#[derive(Debug)]
pub(super) struct ReplyBody {
    left: Bytes,
    /// Its length is told beforehand.
    whole: bool,
    chunk: usize,
    pause: Duration,
    ending: Ending,
    timer: Option<Pin<Box<Sleep>>>,
    exchange: OpenExchange,
}

impl Body for ReplyBody {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        if let Some(timer) = &mut self.timer {
            ready!(timer.as_mut().poll(context));
            self.timer = None;
        }
        if self.left.is_empty() {
            return match self.ending {
                Ending::Complete => {
                    self.exchange.tell(ExchangeEnd::Complete);
                    Poll::Ready(None)
                }
                Ending::Cut { how, .. } => {
                    self.exchange.tell(ExchangeEnd::Cut);
                    Poll::Ready(Some(Err(CutOff(how))))
                }
                // Nobody will wake this task but the peer that goes away.
                Ending::Stall { .. } => Poll::Pending,
            };
        }
        let next = self.chunk.min(self.left.len());
        let part = self.left.split_to(next);
        let pause = match self.ending {
            Ending::Cut { .. } if self.left.is_empty() => self.pause.max(FLUSH),
            _ => self.pause,
        };
        if !pause.is_zero() {
            self.timer = Some(Box::pin(tokio::time::sleep(pause)));
        }
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.whole && self.left.is_empty()
    }

    fn size_hint(&self) -> http_body::SizeHint {
        if self.whole {
            http_body::SizeHint::with_exact(self.left.len() as u64)
        } else {
            http_body::SizeHint::default()
        }
    }
}
