//! What a fake vendor was asked, and how each exchange ended.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::HeaderMap;

/// Long enough for a busy machine; a test that does not get what it waits for takes as long.
const PATIENCE: Duration = Duration::from_secs(40);

/// A request that a fake vendor got.
#[derive(Debug, Clone)]
pub struct VendorRequest {
    /// The method.
    pub method: String,
    /// The path as it was sent, percent signs included.
    pub path: String,
    /// The query.
    pub query: Option<String>,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// The connection it came on, counted from 0.
    pub connection: usize,
    /// How the exchange ended.
    pub end: ExchangeEnd,
}

impl VendorRequest {
    /// A header's text.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// How an exchange with a fake vendor ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExchangeEnd {
    /// It did not end yet.
    Open,
    /// The whole answer was handed to the connection.
    Complete,
    /// The vendor cut the answer, as its script says.
    Cut,
    /// The peer went away before the answer was complete.
    Aborted {
        /// When that was seen.
        at: Instant,
    },
}

#[derive(Debug, Default)]
pub(super) struct Log {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    connections: usize,
    requests: Vec<VendorRequest>,
}

impl Log {
    /// A new connection's number.
    pub(super) fn connect(&self) -> usize {
        let mut state = self.lock();
        state.connections += 1;
        state.connections - 1
    }

    /// A request is complete. Returns how many came before it, and what tells of its end.
    pub(super) fn begin(self: &Arc<Self>, request: VendorRequest) -> (usize, OpenExchange) {
        let mut state = self.lock();
        let index = state.requests.len();
        state.requests.push(request);
        self.changed.notify_all();
        let open = OpenExchange {
            log: Arc::clone(self),
            index,
            told: false,
        };
        (index, open)
    }

    pub(super) fn requests(&self) -> Vec<VendorRequest> {
        self.lock().requests.clone()
    }

    pub(super) fn connections(&self) -> usize {
        self.lock().connections
    }

    pub(super) fn wait_until(&self, mut wanted: impl FnMut(&[VendorRequest]) -> bool) -> bool {
        let not_yet = |state: &mut State| !wanted(&state.requests);
        let waited = self
            .changed
            .wait_timeout_while(self.lock(), PATIENCE, not_yet);
        let (state, result) = waited.unwrap_or_else(PoisonError::into_inner);
        drop(state);
        !result.timed_out()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An exchange under way. Dropped before its end is told, it was aborted by the peer.
#[derive(Debug)]
pub(super) struct OpenExchange {
    log: Arc<Log>,
    index: usize,
    told: bool,
}

impl OpenExchange {
    pub(super) fn tell(&mut self, end: ExchangeEnd) {
        self.told = true;
        if let Some(request) = self.log.lock().requests.get_mut(self.index) {
            request.end = end;
        }
        self.log.changed.notify_all();
    }
}

impl Drop for OpenExchange {
    fn drop(&mut self) {
        if !self.told {
            self.tell(ExchangeEnd::Aborted { at: Instant::now() });
        }
    }
}
