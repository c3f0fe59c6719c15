//! Connections to one vendor, kept for the next request.
//!
//! A connection has no task of its own: whoever waits for its answer reads it, so that an exchange is
//! one task from the caller's request to the last byte of the answer, and nothing has to be handed from
//! one task to another on the way. One that nobody uses is looked at again before it is used.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use http::Uri;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, sleep};

use crate::connect::{Connector, VendorStream};
use crate::message::{Framing, Head, Malformed, Part, take_head};

/// Vendors close connections that were idle for a minute or so; ours are gone before.
const LONGEST_IDLE: Duration = Duration::from_secs(50);

/// How much is read at once, at first and at most.
const READ: usize = 4 * 1024;
const MOST_READ: usize = 128 * 1024;

/// A request to a vendor, as it is sent.
#[derive(Debug)]
pub(crate) struct VendorRequest {
    head: Bytes,
    body: Bytes,
}

impl VendorRequest {
    pub(crate) fn new(head: Vec<u8>, body: Bytes) -> Self {
        Self {
            head: head.into(),
            body,
        }
    }

    fn is_sent(&self) -> bool {
        self.head.is_empty() && self.body.is_empty()
    }

    fn advance(&mut self, written: usize) {
        let of_head = written.min(self.head.len());
        self.head.advance(of_head);
        self.body.advance(written - of_head);
    }
}

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LineError {
    /// The connection was closed before anything of the request was sent.
    #[error("the connection was closed")]
    Unsent(VendorRequest),
    #[error("the connection was closed before the end of the answer")]
    Closed,
    #[error(transparent)]
    Malformed(#[from] Malformed),
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A connection to a vendor, for one exchange at a time.
pub(crate) struct Line {
    stream: TokioIo<VendorStream>,
    read: BytesMut,
    /// How much of what was read is known not to hold the end of a head.
    searched: usize,
    /// How much to read at once.
    most: usize,
    /// What is still to come of the answer.
    framing: Framing,
    keeps_open: bool,
    /// The runtime that watches it. Anybody can use it, but only there without being woken by others.
    home: runtime::Id,
}

impl Line {
    fn new(stream: VendorStream) -> Self {
        Self {
            stream: TokioIo::new(stream),
            read: BytesMut::new(),
            searched: 0,
            most: READ,
            framing: Framing::Over,
            keeps_open: true,
            home: Handle::current().id(),
        }
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Errors
    /// Holds the request where nothing of it was sent.
    pub(crate) async fn send(&mut self, request: VendorRequest) -> Result<Head, LineError> {
        let mut unsent = Unsent {
            request,
            begun: false,
            flushed: false,
        };
        let head = poll_fn(|context| self.poll_exchange(&mut unsent, context)).await;
        match head {
            Ok(mut head) => {
                // What is left of the request would be taken for the beginning of the next one.
                head.keeps_open &= unsent.flushed;
                (self.framing, self.keeps_open) = (head.framing, head.keeps_open);
                Ok(head)
            }
            Err(LineError::Closed | LineError::Io(_)) if !unsent.begun => {
                Err(LineError::Unsent(unsent.request))
            }
            Err(error) => Err(error),
        }
    }

    /// Writes what can be written, and reads: a vendor may answer before it has read everything.
    fn poll_exchange(
        &mut self,
        unsent: &mut Unsent,
        context: &mut Context<'_>,
    ) -> Poll<Result<Head, LineError>> {
        // Where nothing can be written any more, what the vendor said before it closed says why.
        let written = match unsent.poll_write(&mut self.stream, context) {
            Poll::Ready(written) => written,
            Poll::Pending => Ok(()),
        };
        loop {
            if let Some(head) = take_head(&mut self.read, &mut self.searched)? {
                return Poll::Ready(Ok(head));
            }
            match self.poll_read(context) {
                Poll::Ready(Ok(0)) => {
                    written?;
                    return Poll::Ready(Err(LineError::Closed));
                }
                Poll::Ready(Ok(_)) => {}
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
                Poll::Pending => {
                    written?;
                    return Poll::Pending;
                }
            }
        }
    }

    /// The next part of the answer's body; `None` at its end.
    pub(crate) fn poll_part(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Result<Option<Bytes>, LineError>> {
        loop {
            match self.framing.take(&mut self.read)? {
                Part::Data(part) => return Poll::Ready(Ok(Some(part))),
                Part::End => return Poll::Ready(Ok(None)),
                Part::More => {}
            }
            if ready!(self.poll_read(context))? == 0 {
                self.keeps_open = false;
                if !self.framing.closed() {
                    return Poll::Ready(Err(LineError::Closed));
                }
            }
        }
    }

    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.read.reserve(self.most);
        let room = self.read.capacity() - self.read.len();
        let reading = pin!(self.stream.read_buf(&mut self.read));
        let count = ready!(reading.poll(context))?;
        // Whoever fills the room has more.
        if count == room {
            self.most = (2 * self.most).min(MOST_READ);
        }
        Poll::Ready(Ok(count))
    }

    /// Whether the answer was read to its end, and another may follow.
    fn is_at_rest(&self) -> bool {
        self.keeps_open && self.framing == Framing::Over && self.read.is_empty()
    }

    /// Whether it can take a request, as far as can be told from this side: nothing has come since.
    fn is_free(&mut self) -> bool {
        let mut nobody = Context::from_waker(Waker::noop());
        self.is_at_rest() && self.poll_read(&mut nobody).is_pending()
    }
}

/// A request that is being sent.
struct Unsent {
    request: VendorRequest,
    /// Something of it was sent.
    begun: bool,
    /// All of it was.
    flushed: bool,
}

impl Unsent {
    fn poll_write(
        &mut self,
        stream: &mut TokioIo<VendorStream>,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let mut stream = Pin::new(stream);
        while !self.request.is_sent() {
            let slices = [&self.request.head, &self.request.body].map(|part| IoSlice::new(part));
            let written = match stream.is_write_vectored() {
                true => stream.as_mut().poll_write_vectored(context, &slices),
                false => {
                    let first = slices.iter().find(|slice| !slice.is_empty());
                    let first = first.map_or(&[][..], |slice| slice);
                    stream.as_mut().poll_write(context, first)
                }
            };
            match ready!(written)? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                written => {
                    self.begun = true;
                    self.request.advance(written);
                }
            }
        }
        if !self.flushed {
            ready!(stream.poll_flush(context))?;
            self.flushed = true;
        }
        Poll::Ready(Ok(()))
    }
}

/// The connections to one vendor that nobody uses.
pub(crate) struct Pool {
    connector: Connector,
    origin: Uri,
    /// The ones that waited longest come first.
    idle: Mutex<Vec<(Instant, Box<Line>)>>,
    sweeper: Once,
}

impl Pool {
    /// An empty pool; `origin` is where its connections go.
    pub(crate) fn new(connector: Connector, origin: Uri) -> Arc<Self> {
        Arc::new(Self {
            connector,
            origin,
            idle: Mutex::default(),
            sweeper: Once::new(),
        })
    }

    /// The connection of this runtime that was used last, if it still stands.
    pub(crate) fn take(&self) -> Option<Box<Line>> {
        let here = Handle::current().id();
        loop {
            let (since, mut line) = {
                let mut idle = self.idle();
                let last = idle.iter().rposition(|(_, line)| line.home == here)?;
                idle.remove(last)
            };
            if since.elapsed() < LONGEST_IDLE && line.is_free() {
                return Some(line);
            }
        }
    }

    /// A new connection.
    ///
    /// # Errors
    /// Fails where it does not stand in time.
    pub(crate) async fn connect(&self) -> Result<Box<Line>, Box<dyn StdError + Send + Sync>> {
        let stream = self.connector.connect(self.origin.clone()).await?;
        Ok(Box::new(Line::new(stream)))
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn give_back(self: &Arc<Self>, mut line: Box<Line>) {
        if !line.is_at_rest() {
            return;
        }
        if line.most > READ {
            // A long answer is no reason to keep much room for the next one.
            (line.most, line.read) = (READ, BytesMut::new());
        }
        let is_old = |(since, _): &(Instant, _)| since.elapsed() >= LONGEST_IDLE;
        let mut idle = self.idle();
        // The sweeper ends with its runtime, and what belonged to that is of no use to another.
        if idle.first().is_some_and(is_old) {
            idle.retain(|one| !is_old(one));
        }
        idle.push((Instant::now(), line));
        drop(idle);
        self.sweeper.call_once(|| {
            tokio::spawn(sweep(Arc::downgrade(self)));
        });
    }

    fn idle(&self) -> MutexGuard<'_, Vec<(Instant, Box<Line>)>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Closes what nobody used for long, for as long as the pool is there.
async fn sweep(pool: Weak<Pool>) {
    loop {
        sleep(LONGEST_IDLE / 5).await;
        let Some(pool) = pool.upgrade() else { return };
        pool.idle()
            .retain(|(since, _)| since.elapsed() < LONGEST_IDLE);
    }
}
