//! The events of a run on their way to the store, and from there to whoever follows.
//!
//! An event reaches its followers only when it is durable: what somebody saw is still known after a
//! crash. Many events share one commit, so waiting for one costs little. Followers hold nothing back;
//! a store that cannot keep up does, because only so much may wait for it.

use abp_core::AgentEvent;
use abp_error::{AbpError, ErrorCode};
use abp_store::{Ack, Store};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::follow::EventPublisher;
use crate::mortality::may_die;

/// Writes the events of one run.
#[derive(Debug)]
pub(crate) struct Journal {
    store: Store,
    run_id: Uuid,
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
    events: Vec<AgentEvent>,
}

/// Events that were handed to the store and are not known to be durable yet. How many there are is
/// bounded by what the store lets wait. Without an acknowledgement they never will be durable.
struct Pending {
    gathered: Gathered,
    ack: Option<Ack>,
}

impl Journal {
    pub(crate) fn new(store: Store, run_id: Uuid, publisher: EventPublisher) -> Self {
        let (pending, receiver) = mpsc::unbounded_channel();
        let (fault, _) = watch::channel(None);
        let forwarder = tokio::spawn(forward(receiver, publisher, fault.clone()));
        Self {
            store,
            run_id,
            pending,
            forwarder,
            fault,
            gathered: Gathered::default(),
        }
    }

    /// Takes the next event, to be written with [`Self::flush`].
    pub(crate) fn append(&mut self, seq: u64, event: AgentEvent, json: String) {
        let gathered = &mut self.gathered;
        if gathered.json.is_empty() {
            gathered.first = seq;
        }
        gathered.json.push(json);
        gathered.events.push(event);
    }

    /// Writes what was appended. Nobody reads it before.
    pub(crate) async fn flush(&mut self) {
        let gathered = std::mem::take(&mut self.gathered);
        if gathered.json.is_empty() {
            return;
        }
        let mut ack = None;
        // After a fault the run is being stopped; whoever follows live still hears how it ends.
        if self.fault.borrow().is_none() {
            let json = gathered.json.clone();
            may_die("event_appending");
            let handed = self
                .store
                .append_events(self.run_id, gathered.first, json)
                .await;
            match handed {
                Ok(handed) => {
                    may_die("event_queued");
                    ack = Some(handed);
                }
                Err(error) => report(&self.fault, &error),
            }
        }
        drop(self.pending.send(Pending { gathered, ack }));
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
    publisher: EventPublisher,
    fault: watch::Sender<Option<String>>,
) {
    while let Some(Pending { gathered, ack }) = pending.recv().await {
        if let Some(ack) = ack
            && let Err(error) = ack.await
        {
            report(&fault, &error);
        }
        may_die("event_durable");
        let Gathered {
            first,
            json,
            events,
        } = gathered;
        publisher.publish(first, events.into_iter().zip(json));
        may_die("event_published");
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
