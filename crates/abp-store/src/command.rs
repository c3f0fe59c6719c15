//! What the writer is asked to do.

use std::sync::Arc;

use abp_core::Timestamp;
use abp_receipt::{Hash, VerifyingKey};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use uuid::Uuid;

use crate::StoreError;
use crate::answer::AnswerChange;
use crate::api_key::KeyChange;
use crate::approval::{ApprovalChange, ApprovalRecord};
use crate::budget::{BudgetChange, Reserved};
use crate::change_set::{ChangeSetChange, DecisionRecord};
use crate::erase::EraseChange;
use crate::exchange::ExchangeChange;
use crate::outbox::{OutboxChange, OutboxMessage};
use crate::queue::{CancelDecision, Lease, QueueChange, SealedClaim, TakenOver, WaitingRun};
use crate::reasoning::ReasoningChange;
use crate::record::{Acceptance, CancelRecord, Committed, NewRun};

/// A change to the store.
#[derive(Debug)]
pub(crate) enum Command {
    Accept(Box<NewRun>, Hash, Option<Box<WaitingRun>>),
    Events(NewEvents),
    Finish(Ending),
    Queue(QueueChange),
    Approvals(ApprovalChange),
    Outbox(OutboxChange),
    Rotate,
    /// Writes something, to see that it can be done.
    Probe,
    /// Cleans up after processes that are gone.
    Sweep,
    Keys(KeyChange),
    Budget(BudgetChange),
    Answers(AnswerChange),
    Reasoning(ReasoningChange),
    Exchanges(ExchangeChange),
    ChangeSets(ChangeSetChange),
    Erase(EraseChange),
}

/// Events of a run that follow each other.
#[derive(Debug)]
pub(crate) struct NewEvents {
    pub(crate) run_id: Uuid,
    /// The place of the first one.
    pub(crate) first: u64,
    pub(crate) json: Vec<String>,
}

/// A receipt that was checked and is to be stored.
#[derive(Debug)]
pub(crate) struct Ending {
    pub(crate) run_id: Uuid,
    pub(crate) document: Arc<[u8]>,
    pub(crate) sha256: Hash,
    pub(crate) outcome: String,
    pub(crate) finished_at: Timestamp,
    /// The change set that the receipt vouches for.
    pub(crate) change_set: Option<Hash>,
}

/// What was done.
#[derive(Debug, Clone)]
pub(crate) enum Done {
    Written,
    Accepted(Acceptance),
    Committed(Box<Committed>),
    /// Whether there was anything to do.
    Changed(bool),
    /// How much there was to do.
    Count(u64),
    Rotated(Box<VerifyingKey>),
    Reserved(Reserved),
    Decided(Option<Box<DecisionRecord>>),
    Claimed(Option<Box<SealedClaim>>),
    TakenOver(Option<Box<TakenOver>>),
    /// The request to cancel a run that goes on.
    Cancel(Option<Box<CancelRecord>>),
    CancelDecided(CancelDecision),
    Approval(Box<ApprovalRecord>),
    Outbox(Vec<OutboxMessage>),
}

pub(crate) type Reply = Result<Done, StoreError>;

/// What the writer receives.
#[derive(Debug)]
pub(crate) enum Message {
    Work(Queued),
    /// Nothing comes after what is on its way.
    Close,
}

/// A command on its way.
#[derive(Debug)]
pub(crate) struct Queued {
    pub(crate) command: Command,
    /// The lease that a write for its run needs.
    pub(crate) fence: Option<Lease>,
    /// Nobody, where the store itself wants it done.
    pub(crate) asker: Option<Asker>,
}

/// Who waits for a command, with the room it takes in the queue.
#[derive(Debug)]
pub(crate) struct Asker {
    pub(crate) reply: oneshot::Sender<Reply>,
    pub(crate) room: OwnedSemaphorePermit,
}

impl Command {
    /// The bytes it brings, about.
    pub(crate) fn size(&self) -> usize {
        /// What a command takes besides its texts.
        const BASE: usize = 256;
        BASE.saturating_add(match self {
            Self::Accept(run, _, waiting) => {
                let sealed = waiting.as_ref().map_or(0, |waiting| waiting.sealed.len());
                run.order_json.len().saturating_add(sealed)
            }
            Self::Approvals(change) => change.size(),
            Self::Events(events) => events.json.iter().map(String::len).sum(),
            Self::Finish(ending) => ending.document.len(),
            Self::Keys(change) => change.size(),
            Self::Answers(change) => change.size(),
            Self::Reasoning(change) => change.size(),
            Self::ChangeSets(change) => change.size(),
            Self::Queue(_)
            | Self::Outbox(_)
            | Self::Rotate
            | Self::Probe
            | Self::Sweep
            | Self::Budget(_)
            | Self::Erase(_)
            | Self::Exchanges(_) => 0,
        })
    }

    /// The run it is about.
    pub(crate) fn run_id(&self) -> Option<Uuid> {
        match self {
            Self::Accept(run, ..) => Some(run.run_id),
            Self::Events(events) => Some(events.run_id),
            Self::Finish(ending) => Some(ending.run_id),
            Self::Queue(change) => change.run_id(),
            Self::Approvals(change) => change.run_id(),
            Self::ChangeSets(change) => change.run_id(),
            Self::Erase(change) => Some(change.run_id()),
            Self::Rotate
            | Self::Probe
            | Self::Sweep
            | Self::Outbox(_)
            | Self::Keys(_)
            | Self::Budget(_)
            | Self::Answers(_)
            | Self::Reasoning(_)
            | Self::Exchanges(_) => None,
        }
    }

    /// Whether it may be carried out while other processes carry out such commands: it writes rows of a
    /// run that this process holds, or rows whose change says by itself whether it may happen.
    pub(crate) fn may_run_beside_others(&self) -> bool {
        match self {
            Self::Events(_) | Self::Budget(_) | Self::Queue(QueueChange::Renew(..)) => true,
            Self::Answers(change) => matches!(change, AnswerChange::Keep(_)),
            Self::Reasoning(change) => matches!(change, ReasoningChange::Keep(_)),
            Self::Accept(..)
            | Self::Finish(_)
            | Self::Queue(_)
            | Self::Approvals(_)
            | Self::Outbox(_)
            | Self::Rotate
            | Self::Probe
            | Self::Sweep
            | Self::Keys(_)
            | Self::Exchanges(_)
            | Self::Erase(_)
            | Self::ChangeSets(_) => false,
        }
    }

    /// Whether it is taken although the disk is full.
    pub(crate) fn is_urgent(&self) -> bool {
        matches!(
            self,
            Self::Finish(_)
                | Self::Queue(QueueChange::TakeOver(_))
                | Self::Probe
                // An application that was begun must be able to end, as a run must.
                | Self::ChangeSets(ChangeSetChange::End { .. } | ChangeSetChange::Adopt(_))
        )
    }
}

impl Queued {
    /// Something the store itself wants done.
    pub(crate) fn own(command: Command) -> Self {
        Self {
            command,
            fence: None,
            asker: None,
        }
    }

    /// Answers, and gives the room back.
    pub(crate) fn answer(self, reply: Reply) {
        match (self.asker, reply) {
            (Some(asker), reply) => {
                // Whoever asked may be gone; what was written stays written.
                drop(asker.reply.send(reply));
                drop(asker.room);
            }
            (None, Ok(_)) => {}
            (None, Err(error)) => {
                let command = &self.command;
                tracing::debug!(target: "abp.store", ?command, %error, "not written");
            }
        }
    }

    pub(crate) fn is_seal(&self) -> bool {
        matches!(self.command, Command::Exchanges(ExchangeChange::Seal))
    }
}
