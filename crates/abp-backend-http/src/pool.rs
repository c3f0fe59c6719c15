//! Connections to one vendor, kept for the next request.
//!
//! A connection has no task of its own: whoever waits for its answer drives it, so that an exchange is
//! one task from the caller's request to the last byte of the answer, and nothing has to be handed from
//! one task to another on the way. One that nobody uses is looked at again before it is used.

use std::error::Error as StdError;
use std::future::{Future as _, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Once, PoisonError, Weak};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::client::conn::TrySendError;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use tokio::runtime::{self, Handle};
use tokio::time::{Instant, sleep};

use crate::connect::{Connector, VendorStream};

/// Vendors close connections that were idle for a minute or so; ours are gone before.
const LONGEST_IDLE: Duration = Duration::from_secs(50);

/// A request to a vendor.
pub(crate) type VendorRequest = Request<Full<Bytes>>;

/// A connection to a vendor, for one exchange at a time.
pub(crate) struct Line {
    sender: SendRequest<Full<Bytes>>,
    /// `None` once it is over.
    connection: Option<Connection<VendorStream, Full<Bytes>>>,
    signal: Arc<Signal>,
    /// The runtime that watches it. Anybody can use it, but only there without being woken by others.
    home: runtime::Id,
}

impl Line {
    /// Sends a request and waits for the head of its answer. An error holds the request where nothing of
    /// it was sent.
    pub(crate) async fn send(
        &mut self,
        request: VendorRequest,
    ) -> Result<Response<Incoming>, TrySendError<VendorRequest>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|context| self.poll_through(context, |context| answer.as_mut().poll(context))).await
    }

    /// Polls what only this connection brings about, and the connection for it. What goes wrong with
    /// the connection is told by what is polled.
    pub(crate) fn poll_through<T>(
        &mut self,
        context: &mut Context<'_>,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        if !self.signal.task.will_wake(context.waker()) {
            self.signal = Signal::for_task(context.waker());
        }
        let waker = Waker::from(Arc::clone(&self.signal));
        // Nobody else brings it about, so nobody has to be woken for it.
        let mut unwoken = Context::from_waker(Waker::noop());
        for _ in 0..ROUNDS {
            self.signal.begin();
            if let Poll::Ready(value) = poll(&mut unwoken) {
                return Poll::Ready(value);
            }
            self.drive(&mut Context::from_waker(&waker));
            if let Poll::Ready(value) = poll(&mut unwoken) {
                return Poll::Ready(value);
            }
            if self.signal.wait() {
                return Poll::Pending;
            }
        }
        // Whatever wants to go on has to let others go on first.
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Reads and writes what can be.
    fn drive(&mut self, context: &mut Context<'_>) {
        if let Some(connection) = &mut self.connection
            && Pin::new(connection).poll(context).is_ready()
        {
            self.connection = None;
        }
    }

    /// Whether it can take a request, as far as can be told from this side.
    fn is_free(&mut self) -> bool {
        self.drive(&mut Context::from_waker(Waker::noop()));
        self.connection.is_some() && self.sender.is_ready()
    }
}

/// How often a connection is gone through before others get their turn.
const ROUNDS: usize = 3;

/// Wakes the task that waits for a connection.
///
/// Both ends of the connection's own channels are in that task. When it polls one end, the other end
/// is told to wake it, which it need not be: it is awake, and looks at the other end next.
struct Signal {
    task: Waker,
    state: AtomicU8,
}

/// The task is at work on the connection, and nothing happened since.
const BUSY: u8 = 0;
/// Something happened while it was at work.
const MISSED: u8 = 1;
/// The task waits.
const WAITING: u8 = 2;

impl Signal {
    fn for_task(task: &Waker) -> Arc<Self> {
        Arc::new(Self {
            task: task.clone(),
            state: AtomicU8::new(BUSY),
        })
    }

    fn begin(&self) {
        self.state.store(BUSY, Ordering::SeqCst);
    }

    /// The task is about to wait; not where something happened since it began.
    fn wait(&self) -> bool {
        let order = Ordering::SeqCst;
        let waits = self.state.compare_exchange(BUSY, WAITING, order, order);
        waits.is_ok()
    }
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.state.swap(MISSED, Ordering::SeqCst) == WAITING {
            self.task.wake_by_ref();
        }
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
        let (sender, connection) = handshake(stream).await?;
        Ok(Box::new(Line {
            sender,
            connection: Some(connection),
            signal: Signal::for_task(Waker::noop()),
            home: Handle::current().id(),
        }))
    }

    /// Keeps a connection whose answer was read to its end.
    pub(crate) fn give_back(self: &Arc<Self>, mut line: Box<Line>) {
        if !line.is_free() {
            return;
        }
        self.idle().push((Instant::now(), line));
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
