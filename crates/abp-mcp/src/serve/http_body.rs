//! The body of an HTTP response: one message, or a stream of them.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use abp_dialect::sse::{SseEncoder, SseForm};
use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::mpsc;
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::connection::lock;
use super::{McpConnection, Outgoing};

/// So often a silent stream says that it is still there.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of an HTTP response.
#[derive(Debug)]
pub struct McpBody(Form);

#[derive(Debug)]
enum Form {
    Whole(Option<Bytes>),
    Events(Box<Events>),
}

#[derive(Debug)]
struct Events {
    first: Option<Outgoing>,
    outbox: mpsc::Receiver<Outgoing>,
    keep_alive: Interval,
    end: End,
}

/// What the end of a stream means.
#[derive(Debug)]
pub(super) enum End {
    /// Nothing: what is served is served to its end.
    Nothing,
    /// Since 2026-07-28: the request is cancelled. Dropping this does it.
    Cancels { _guard: CloseOnDrop },
}

/// The connections of requests that are being answered.
#[derive(Debug, Default)]
pub(super) struct Live {
    connections: Mutex<BTreeMap<u64, McpConnection>>,
    last: AtomicU64,
}

/// Closes a connection when nobody needs it any more.
#[derive(Debug)]
pub(super) struct CloseOnDrop {
    live: Arc<Live>,
    number: u64,
}

impl Live {
    pub(super) fn hold(self: &Arc<Self>, connection: &McpConnection) -> CloseOnDrop {
        let number = self.last.fetch_add(1, Ordering::Relaxed);
        lock(&self.connections).insert(number, connection.clone());
        CloseOnDrop {
            live: Arc::clone(self),
            number,
        }
    }

    /// Ends all of them.
    pub(super) fn close(&self) {
        for connection in std::mem::take(&mut *lock(&self.connections)).into_values() {
            connection.close();
        }
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        let connection = lock(&self.live.connections).remove(&self.number);
        if let Some(connection) = connection {
            connection.close();
        }
    }
}

impl McpBody {
    pub(super) fn empty() -> Self {
        Self(Form::Whole(None))
    }

    pub(super) fn whole(text: String) -> Self {
        Self(Form::Whole(Some(text.into())))
    }

    pub(super) fn events(
        first: Option<Outgoing>,
        outbox: mpsc::Receiver<Outgoing>,
        end: End,
    ) -> Self {
        let mut keep_alive = interval(KEEP_ALIVE);
        keep_alive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        keep_alive.reset();
        Self(Form::Events(Box::new(Events {
            first,
            outbox,
            keep_alive,
            end,
        })))
    }
}

impl Events {
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Bytes>> {
        let mut bytes = Vec::new();
        let mut encoder = SseEncoder::new(SseForm::Events);
        if let Some(first) = self.first.take() {
            encoder.event(Some("message"), &first.text, &mut bytes);
            return Poll::Ready(Some(bytes.into()));
        }
        match self.outbox.poll_recv(context) {
            Poll::Ready(Some(outgoing)) => {
                self.keep_alive.reset();
                encoder.event(Some("message"), &outgoing.text, &mut bytes);
                Poll::Ready(Some(bytes.into()))
            }
            Poll::Ready(None) => {
                self.end = End::Nothing;
                Poll::Ready(None)
            }
            Poll::Pending if self.keep_alive.poll_tick(context).is_ready() => {
                encoder.comment("", &mut bytes);
                // Asked again, the next tick wakes somebody up.
                let _ = self.keep_alive.poll_tick(context);
                Poll::Ready(Some(bytes.into()))
            }
            Poll::Pending => Poll::Pending,
        }
    }
}

impl Body for McpBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let part = match &mut self.0 {
            Form::Whole(whole) => Poll::Ready(whole.take()),
            Form::Events(events) => events.poll_next(context),
        };
        part.map(|part| part.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        matches!(self.0, Form::Whole(None))
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Form::Whole(whole) => {
                SizeHint::with_exact(whole.as_ref().map_or(0, |bytes| bytes.len() as u64))
            }
            Form::Events(_) => SizeHint::default(),
        }
    }
}
