//! The queue of events to whoever follows a run, bounded by bytes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use abp_core::AgentEvent;
use futures_core::Stream;
use tokio::sync::{Semaphore, mpsc};

/// How much may wait for the reader.
const MAX_WAITING_BYTES: usize = 4 * 1024 * 1024;

/// The writing end.
#[derive(Debug)]
pub(crate) struct EventSender {
    sender: mpsc::UnboundedSender<(AgentEvent, u32)>,
    room: Arc<Semaphore>,
}

/// The events of a run, in order. A reader that is slow slows the run down.
#[derive(Debug)]
pub struct EventStream {
    receiver: mpsc::UnboundedReceiver<(AgentEvent, u32)>,
    room: Arc<Semaphore>,
}

pub(crate) fn event_queue() -> (EventSender, EventStream) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let room = Arc::new(Semaphore::new(MAX_WAITING_BYTES));
    let stream = EventStream {
        receiver,
        room: Arc::clone(&room),
    };
    (EventSender { sender, room }, stream)
}

impl EventSender {
    /// Waits until there is room for an event of that size; at once where nobody reads any more.
    pub(crate) async fn wait_for_room(&self, bytes: usize) -> u32 {
        // An event larger than the queue takes all of it.
        let cost = u32::try_from(bytes.min(MAX_WAITING_BYTES)).unwrap_or(u32::MAX);
        match self.room.acquire_many(cost).await {
            Ok(permit) => {
                permit.forget();
                cost
            }
            // Closed: the reader is gone.
            Err(_) => 0,
        }
    }

    /// Hands an event over; `cost` is what [`Self::wait_for_room`] took for it.
    pub(crate) fn send(&self, event: AgentEvent, cost: u32) {
        // Nobody reads any more: the receipt has the event all the same.
        drop(self.sender.send((event, cost)));
    }
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
        self.receiver.poll_recv(context).map(|received| {
            let (event, cost) = received?;
            self.room.add_permits(cost as usize);
            Some(event)
        })
    }
}

impl Drop for EventStream {
    fn drop(&mut self) {
        self.room.close();
    }
}
