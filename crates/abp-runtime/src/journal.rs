//! The events of a run on their way to the store, and from there to whoever follows.
//!
//! An event reaches the reader only when it is durable: what somebody saw is still known after a
//! crash. Many events share one commit, so waiting for one costs little.

use std::sync::Arc;

use abp_core::AgentEvent;
use abp_error::{AbpError, ErrorCode};
use abp_store::{Ack, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::queue::{EventGroup, EventSender};

/// Writes the events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    store: Store,
    run_id: Uuid,
    events: Arc<EventSender>,
    pending: mpsc::UnboundedSender<Pending>,
    forwarder: JoinHandle<()>,
    fault: watch::Sender<Option<String>>,
    gathered: Gathered,
}

/// Events that were appended and not handed to the store yet.
#[derive(Debug, Default)]
struct Gathered {
    /// The place of the first one.
    first: u64,
    json: Vec<String>,
    group: EventGroup,
}

/// Events that were handed to the store and are not known to be durable yet. How many there are is
/// bounded by the room that the reader's queue gives.
struct Pending {
    group: EventGroup,
    ack: Ack,
}

impl Journal {
    pub(crate) fn new(store: Store, run_id: Uuid, events: EventSender) -> Self {
        let events = Arc::new(events);
        let (pending, receiver) = mpsc::unbounded_channel();
        let (fault, _) = watch::channel(None);
        let forwarder = tokio::spawn(forward(receiver, Arc::clone(&events), fault.clone()));
        Self {
            store,
            run_id,
            events,
            pending,
            forwarder,
            fault,
            gathered: Gathered::default(),
        }
    }

    /// Waits until there is room for an event of that size.
    pub(crate) async fn wait_for_room(&self, bytes: usize) -> usize {
        self.events.wait_for_room(bytes).await
    }

    /// Takes room for an event of that size where there is some now.
    pub(crate) fn room_now(&self, bytes: usize) -> Option<usize> {
        self.events.room_now(bytes)
    }

    /// Takes the next event, to be written with [`Self::flush`]; `cost` is the room taken for it.
    pub(crate) fn append(&mut self, seq: u64, event: AgentEvent, json: String, cost: usize) {
        let gathered = &mut self.gathered;
        if gathered.json.is_empty() {
            gathered.first = seq;
        }
        gathered.json.push(json);
        gathered.group.events.push(event);
        gathered.group.cost += cost;
    }

    /// Writes what was appended. Nobody reads it before.
    pub(crate) async fn flush(&mut self) {
        let Gathered { first, json, group } = std::mem::take(&mut self.gathered);
        if json.is_empty() {
            return;
        }
        if self.fault.borrow().is_some() {
            // The run is being stopped because of it; the reader still hears how it ends.
            self.events.send(group);
            return;
        }
        match self.store.append_events(self.run_id, first, json).await {
            Ok(ack) => drop(self.pending.send(Pending { group, ack })),
            Err(error) => {
                report(&self.fault, &error);
                self.events.send(group);
            }
        }
    }

    /// Waits until the store failed.
    pub(crate) async fn failed(&self) -> AbpError {
        let mut fault = self.fault.subscribe();
        let problem = match fault.wait_for(Option::is_some).await {
            Ok(problem) => problem.clone(),
            // Cannot be: we hold the sender.
            Err(_) => None,
        };
        AbpError::new(
            ErrorCode::ReceiptStoreFailed,
            format!(
                "the run cannot be recorded: {}",
                problem.unwrap_or_default()
            ),
        )
    }

    /// Waits until every event is durable and handed to the reader; says why where one is not.
    pub(crate) async fn close(mut self) -> Option<String> {
        self.flush().await;
        drop(self.pending);
        // It ends when the last pending event is settled; it does not panic.
        drop(self.forwarder.await);
        self.fault.borrow().clone()
    }
}

async fn forward(
    mut pending: mpsc::UnboundedReceiver<Pending>,
    events: Arc<EventSender>,
    fault: watch::Sender<Option<String>>,
) {
    while let Some(Pending { group, ack }) = pending.recv().await {
        if let Err(error) = ack.await {
            report(&fault, &error);
        }
        events.send(group);
    }
}

/// The first problem is the one that is told.
fn report(fault: &watch::Sender<Option<String>>, error: &abp_store::StoreError) {
    fault.send_if_modified(|problem| {
        let first = problem.is_none();
        if first {
            *problem = Some(error.to_string());
        }
        first
    });
}
