//! The queue of events to whoever follows a run, bounded by bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use abp_core::AgentEvent;
use futures_core::Stream;
use tokio::sync::{Semaphore, TryAcquireError, mpsc};

/// How much may wait for the reader.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;

/// The writing end.
#[derive(Debug)]
pub(crate) struct EventSender {
    sender: mpsc::UnboundedSender<EventGroup>,
    room: Arc<Semaphore>,
}

/// The events of a run, in order. A reader that is slow slows the run down.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::UnboundedReceiver<EventGroup>,
    /// What came last, as far as it was not taken yet.
    events: std::vec::IntoIter<AgentEvent>,
    /// The room that it takes until all of it was taken.
    cost: usize,
    room: Arc<Semaphore>,
}

/// Events that are handed over together, and the room they take.
#[derive(Debug, Default)]
pub(crate) struct EventGroup {
    pub(crate) events: Vec<AgentEvent>,
    pub(crate) cost: usize,
}

pub(crate) fn event_queue() -> (EventSender, EventStream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
    let stream = EventStream {
        receiver,
        events: Vec::new().into_iter(),
        cost: 0,
        room: Arc::clone(&room),
    };
    (EventSender { sender, room }, stream)
}

impl EventSender {
    /// Waits until there is room for an event of that size; at once where nobody reads any more.
    pub(crate) async fn wait_for_room(&self, bytes: usize) -> usize {
        let cost = cost_of(bytes);
        match self.room.acquire_many(cost).await {
            Ok(permit) => {
                permit.forget();
                cost as usize
            }
            // Closed: the reader is gone.
            Err(_) => 0,
        }
    }

    /// Takes room for an event of that size where there is some now; `None` where it has to be waited
    /// for.
    pub(crate) fn room_now(&self, bytes: usize) -> Option<usize> {
        let cost = cost_of(bytes);
        match self.room.try_acquire_many(cost) {
            Ok(permit) => {
                permit.forget();
                Some(cost as usize)
            }
            Err(TryAcquireError::Closed) => Some(0),
            Err(TryAcquireError::NoPermits) => None,
        }
    }

    /// Hands events over, with the room that was taken for them.
    pub(crate) fn send(&self, group: EventGroup) {
        // Nobody reads any more: the receipt has the events all the same.
        drop(self.sender.send(group));
    }
}

/// An event larger than the queue takes all of it.
fn cost_of(bytes: usize) -> u32 {
    u32::try_from(bytes.min(MAX_WAITING_BYTES)).unwrap_or(u32::MAX)
}

impl EventStream {
    /// The next event; `None` after the last.
    pub async fn next(&mut self) -> Option<AgentEvent> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for EventStream {
    type Item = AgentEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<AgentEvent>> {
        loop {
            if let Some(event) = self.events.next() {
                return Poll::Ready(Some(event));
            }
            let cost = std::mem::take(&mut self.cost);
            self.room.add_permits(cost);
            let Some(group) = ready!(self.receiver.poll_recv(context)) else {
                return Poll::Ready(None);
            };
            self.events = group.events.into_iter();
            self.cost = group.cost;
        }
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.room.close();
    }
}
