//! Following runs: replay from the store, then live, for any number of readers.
//!
//! The journal is the truth. A run of this process publishes its events, once they are durable, into a
//! bounded tail that all its followers share, and wakes them. A follower that is behind the tail, or whose
//! run belongs to another process, reads the store. So no follower holds a run back, and none misses an
//! event: the only thing a follower remembers is the number of the next one.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use abp_core::AgentEvent;
use abp_store::{Store, StoreChanges, StoreError};
use abp_stream::{EventTail, FollowStep};
use abp_telemetry::Following;
use tokio::sync::watch;
use uuid::Uuid;

use crate::RuntimeError;

/// How much of a run is held for those who follow it live.
const TAIL_BYTES: usize = 256 * 1024;
/// How many events are taken at a time.
const PAGE: usize = 256;
/// The number of events that a follower that waits has room for.
const WAITING: usize = 4;

/// An event of a run, with its number.
#[derive(Debug, Clone)]
pub struct FollowedEvent {
    /// Its number in the run, from 0.
    pub seq: u64,
    /// The event.
    pub event: Arc<AgentEvent>,
    /// The event as it is stored.
    pub json: Arc<str>,
}

/// The tails of the runs of this process.
#[derive(Debug, Clone, Default)]
pub(crate) struct EventHub {
    runs: Arc<Mutex<BTreeMap<Uuid, Weak<RunTail>>>>,
}

/// The newest events of a run of this process.
#[derive(Debug)]
struct RunTail {
    tail: Mutex<EventTail<(Arc<AgentEvent>, Arc<str>)>>,
    /// Wakes those who wait: `true` once nothing more comes from this process.
    wake: watch::Sender<bool>,
}

/// Publishes the events of one run. The run is no longer live here once it is dropped.
#[derive(Debug)]
pub(crate) struct EventPublisher {
    run_id: Uuid,
    tail: Arc<RunTail>,
    hub: EventHub,
}

/// The events of a run, in order and without a gap, from a number on until the run has ended.
#[derive(Debug)]
pub struct EventStream {
    store: Store,
    hub: EventHub,
    run_id: Uuid,
    next: u64,
    ready: VecDeque<FollowedEvent>,
    live: Option<LiveTail>,
    changes: Option<StoreChanges>,
    /// Whether the end of the run in this process is the end of the stream, whatever the store says.
    ends_here: bool,
    /// Whether everything was given, and the store need not be asked.
    has_all: bool,
    /// Counts the reader for as long as it follows.
    _following: Option<Following>,
}

/// The tail of a run of this process, seen by one follower.
#[derive(Debug)]
struct LiveTail {
    tail: Arc<RunTail>,
    wake: watch::Receiver<bool>,
}

impl EventHub {
    /// Begins to publish a run, whose next event has this number.
    pub(crate) fn publish(&self, run_id: Uuid, next: u64) -> EventPublisher {
        let tail = Arc::new(RunTail {
            tail: Mutex::new(EventTail::starting_at(next, TAIL_BYTES)),
            wake: watch::Sender::new(false),
        });
        self.lock().insert(run_id, Arc::downgrade(&tail));
        EventPublisher {
            run_id,
            tail,
            hub: self.clone(),
        }
    }

    fn find(&self, run_id: Uuid) -> Option<LiveTail> {
        let tail = self.lock().get(&run_id)?.upgrade()?;
        Some(LiveTail {
            wake: tail.wake.subscribe(),
            tail,
        })
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<Uuid, Weak<RunTail>>> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventPublisher {
    /// Hands durable events to those who follow; the first of them has this number.
    pub(crate) fn publish(&self, first: u64, events: impl Iterator<Item = (AgentEvent, String)>) {
        let mut tail = self.tail.lock();
        for (seq, (event, json)) in (first..).zip(events) {
            let size = json.len();
            tail.push(seq, (Arc::new(event), json.into()), size);
        }
        drop(tail);
        self.tail.wake.send_replace(false);
    }
}

impl Drop for EventPublisher {
    fn drop(&mut self) {
        let mut runs = self.hub.lock();
        // Another attempt of the same run may have begun here.
        let is_ours = runs
            .get(&self.run_id)
            .is_some_and(|tail| Weak::ptr_eq(tail, &Arc::downgrade(&self.tail)));
        if is_ours {
            runs.remove(&self.run_id);
        }
        drop(runs);
        self.tail.wake.send_replace(true);
    }
}

impl RunTail {
    fn lock(&self) -> MutexGuard<'_, EventTail<(Arc<AgentEvent>, Arc<str>)>> {
        self.tail.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EventStream {
    /// Follows a run from the event with the number `from` on.
    pub(crate) fn new(store: Store, hub: EventHub, run_id: Uuid, from: u64) -> Self {
        Self {
            store,
            hub,
            run_id,
            next: from,
            ready: VecDeque::new(),
            live: None,
            changes: None,
            ends_here: false,
            has_all: false,
            _following: None,
        }
    }

    /// Counts the reader for as long as it follows.
    pub(crate) fn counted(mut self, following: Option<Following>) -> Self {
        self._following = following;
        self
    }

    /// Follows a run of this process from its first event on, to its end in this process.
    pub(crate) fn here(store: Store, hub: EventHub, run_id: Uuid) -> Self {
        let live = hub.find(run_id);
        Self {
            live,
            ends_here: true,
            ..Self::new(store, hub, run_id, 0)
        }
    }

    /// The run.
    #[must_use]
    pub fn run_id(&self) -> Uuid {
        self.run_id
    }

    /// The next event; `None` once the run has ended and every event was given. May be dropped while it
    /// waits: nothing is lost.
    ///
    /// # Errors
    /// Fails where there is no such run, and where the store cannot be read. It can be called again.
    pub async fn next(&mut self) -> Result<Option<FollowedEvent>, RuntimeError> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.next = event.seq + 1;
                return Ok(Some(event));
            }
            // A follower that has caught up needs no room for a whole page.
            self.ready.shrink_to(WAITING);
            if self.live.is_none() && !self.ends_here {
                self.live = self.hub.find(self.run_id);
            }
            if self.live.is_some() {
                self.follow_tail().await?;
                continue;
            }
            if self.has_all {
                return Ok(None);
            }
            // Subscribed before looking, so that no change is missed in between.
            if self.changes.is_none() {
                self.changes = Some(self.store.changes());
            }
            // The state is read before the events: a run that has ended has no more of them.
            let state = Box::pin(self.store.run_state(self.run_id)).await?;
            let state = state.ok_or(StoreError::UnknownRun(self.run_id))?;
            if self.read_store().await? {
                continue;
            }
            if state.is_final() || self.ends_here {
                return Ok(None);
            }
            self.wait_for_change().await;
        }
    }

    /// Takes what the tail has, or the journal where the tail has it no more; waits where neither has.
    async fn follow_tail(&mut self) -> Result<(), RuntimeError> {
        let mut journal_is_read = false;
        while let Some(live) = &mut self.live {
            // Seen before the tail is read: what comes after that wakes again.
            let has_ended = *live.wake.borrow_and_update();
            let step = live
                .tail
                .lock()
                .follow(self.next, PAGE, has_ended, journal_is_read);
            match step {
                FollowStep::Give(items) => {
                    self.ready.extend(items.into_iter().map(followed));
                    return Ok(());
                }
                FollowStep::ReadJournal => {
                    if self.read_store().await? {
                        return Ok(());
                    }
                    journal_is_read = true;
                }
                FollowStep::Wait => {
                    // The tail is held here, so its sender is not gone.
                    drop(live.wake.changed().await);
                    journal_is_read = false;
                }
                FollowStep::Leave => {
                    let is_whole = live.tail.lock().next_seq() == self.next;
                    self.has_all = self.ends_here && is_whole;
                    self.live = None;
                }
            }
        }
        Ok(())
    }

    /// The next event that is stored now; `None` after the last.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub async fn next_stored(&mut self) -> Result<Option<FollowedEvent>, RuntimeError> {
        if self.ready.is_empty() {
            self.read_store().await?;
        }
        let event = self.ready.pop_front();
        if let Some(event) = &event {
            self.next = event.seq + 1;
        }
        Ok(event)
    }

    async fn wait_for_change(&mut self) {
        self.changes
            .get_or_insert_with(|| self.store.changes())
            .changed()
            .await;
    }

    /// Reads the next events from the store; whether there were any.
    async fn read_store(&mut self) -> Result<bool, RuntimeError> {
        let limit = u32::try_from(PAGE).unwrap_or(u32::MAX);
        // Boxed, because thousands of followers that wait would hold the room for it else.
        let page = Box::pin(self.store.events(self.run_id, self.next, limit)).await?;
        for record in page {
            let event = serde_json::from_str(&record.json).map_err(|error| {
                RuntimeError::Lost(format!("event {} cannot be read: {error}", record.seq))
            })?;
            self.ready.push_back(FollowedEvent {
                seq: record.seq,
                event: Arc::new(event),
                json: record.json.into(),
            });
        }
        Ok(!self.ready.is_empty())
    }
}

fn followed((seq, (event, json)): (u64, (Arc<AgentEvent>, Arc<str>))) -> FollowedEvent {
    FollowedEvent { seq, event, json }
}
