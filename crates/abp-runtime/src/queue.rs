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

#[cfg(test)]
mod tests {
    use abp_core::{AgentEventKind, Timestamp};

    use super::*;

    fn event() -> AgentEvent {
        let kind = AgentEventKind::AssistantDelta {
            text: "x".to_owned(),
        };
        AgentEvent::new(Timestamp::from_unix_millis(0), kind)
    }

    /// Room that was taken comes back once the events were read, all of them and no sooner; a reader that
    /// is gone takes none.
    #[tokio::test]
    async fn room_comes_back_when_events_were_read() {
        let (sender, mut stream) = event_queue();
        let cost = sender.room_now(MAX_WAITING_BYTES + 1);
        assert_eq!(
            cost,
            Some(MAX_WAITING_BYTES),
            "a large event takes all of it"
        );
        assert_eq!(sender.room_now(1), None);
        let waiting = tokio::time::timeout(
            std::time::Duration::from_millis(20),
            sender.wait_for_room(1),
        );
        assert!(waiting.await.is_err(), "there is no room yet");
        sender.send(EventGroup {
            events: vec![event(), event()],
            cost: MAX_WAITING_BYTES,
        });
        for _ in 0..2 {
            assert_eq!(sender.room_now(1), None, "not all events were read");
            assert!(stream.next().await.is_some());
        }
        let next = tokio::time::timeout(std::time::Duration::from_millis(20), stream.next());
        assert!(next.await.is_err(), "there is nothing more yet");
        assert_eq!(sender.wait_for_room(7).await, 7);
        assert_eq!(
            sender.room_now(MAX_WAITING_BYTES - 7),
            Some(MAX_WAITING_BYTES - 7)
        );
        drop(stream);
        assert_eq!(sender.room_now(1), Some(0));
        assert_eq!(sender.wait_for_room(1).await, 0);
    }
}
