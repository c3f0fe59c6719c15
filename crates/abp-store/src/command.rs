//! What the writer is asked to do.

use std::sync::Arc;

use abp_core::Timestamp;
use abp_receipt::{Hash, VerifyingKey};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use crate::StoreError;
use crate::record::{Acceptance, Committed, NewRun};

/// A change to the store.
#[derive(Debug)]
pub(crate) enum Command {
    Accept(Box<NewRun>, Hash),
    Event(NewEvent),
    Finish(Ending),
    Adopt(Uuid),
    Rotate,
    /// Writes something, to see that it can be done.
    Probe,
}

#[derive(Debug)]
pub(crate) struct NewEvent {
    pub(crate) run_id: Uuid,
    pub(crate) seq: u64,
    pub(crate) json: String,
}

/// A receipt that was checked and is to be stored.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) run_id: Uuid,
    pub(crate) document: Arc<[u8]>,
    pub(crate) sha256: Hash,
    pub(crate) outcome: String,
    pub(crate) finished_at: Timestamp,
}

/// What was done.
#[derive(Debug, Clone)]
pub(crate) enum Done {
    Written,
    Accepted(Acceptance),
    Committed(Box<Committed>),
    Adopted(bool),
    Rotated(Box<VerifyingKey>),
}

pub(crate) type Reply = Result<Done, StoreError>;

/// What the writer receives.
#[derive(Debug)]
pub(crate) enum Message {
    Work(Queued),
    /// Nothing comes after what is on its way.
    Close,
}

/// A command on its way, with the room it takes in the queue.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) command: Command,
    pub(crate) reply: oneshot::Sender<Reply>,
    pub(crate) room: OwnedSemaphorePermit,
}

impl Command {
    /// The bytes it brings, about.
    pub(crate) fn size(&self) -> usize {
        /// What a command takes besides its texts.
        const BASE: usize = 256;
        BASE.saturating_add(match self {
            Self::Accept(run, _) => run.order_json.len(),
            Self::Event(event) => event.json.len(),
            Self::Finish(ending) => ending.document.len(),
            Self::Adopt(_) | Self::Rotate | Self::Probe => 0,
        })
    }

    /// The run it is about.
    pub(crate) fn run_id(&self) -> Option<Uuid> {
        match self {
            Self::Accept(run, _) => Some(run.run_id),
            Self::Event(event) => Some(event.run_id),
            Self::Finish(ending) => Some(ending.run_id),
            Self::Adopt(run_id) => Some(*run_id),
            Self::Rotate | Self::Probe => None,
        }
    }

    /// Whether it is taken although the disk is full.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(self, Self::Finish(_) | Self::Adopt(_) | Self::Probe)
    }
}

impl Queued {
    /// Answers, and gives the room back.
    pub(crate) fn answer(self, reply: Reply) {
        // Whoever asked may be gone; what was written stays written.
        drop(self.reply.send(reply));
        drop(self.room);
    }
}
