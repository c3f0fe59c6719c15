//! The handle: asking the writer.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use abp_receipt::VerifyingKey;
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::task::JoinHandle;
use uuid::Uuid;

use crate::command::{Asker, Command, Done, Message, NewEvents, Queued, Reply};
use crate::exchange::Ring;
use crate::keys::KeyDir;
use crate::queue::{Lease, WaitingRun};
use crate::receipt::check_receipt;
use crate::record::{Acceptance, Ack, Committed, Health, NewRun, StoreState};
use crate::seal::Sealer;
use crate::writer::Status;
use crate::{StoreError, StoreReader};

/// How much may wait to be written.
pub(crate) const QUEUE_BYTES: usize = 16 * 1024 * 1024;
/// The largest text or document that is taken.
const MAX_VALUE_BYTES: usize = 256 * 1024 * 1024;
/// A receipt larger than this is hashed where it holds nobody up.
const SMALL_RECEIPT: usize = 64 * 1024;
/// How much is forgotten in one transaction.
pub(crate) const FORGET_AT_ONCE: u64 = 500;

/// A durable store in a state directory. Cloning the handle is cheap.
///
/// Several processes may have the same directory open. The handle needs a tokio runtime, and writes
/// by a task on it: what was asked for is written although whoever asked gave up, unless the runtime
/// or the process ends first. [`close`](Self::close) waits for it. Reading is [`StoreReader`]'s.
#[derive(Debug, Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
    /// The lease that writes for its run carry.
    pub(crate) fence: Option<Lease>,
}

#[derive(Debug)]
pub(crate) struct Inner {
    pub(crate) reader: StoreReader,
    pub(crate) commands: mpsc::UnboundedSender<Message>,
    pub(crate) room: Arc<Semaphore>,
    pub(crate) status: Arc<Status>,
    pub(crate) exchanges: Arc<Ring>,
    pub(crate) sealer: Sealer,
    pub(crate) keys: KeyDir,
    pub(crate) writer: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Deref for Store {
    type Target = StoreReader;

    fn deref(&self) -> &StoreReader {
        &self.inner.reader
    }
}

impl Store {
    /// Accepts a run that this process carries out, and no other: it and the log's entry for its start
    /// are durable when this returns. [`Store::submit`] leaves it to any process.
    ///
    /// # Errors
    /// Refuses an id that is there already, and an idempotency key that belongs to another request.
    pub async fn accept(&self, run: NewRun) -> Result<Acceptance, StoreError> {
        self.accept_run(run, None).await
    }

    pub(crate) async fn accept_run(
        &self,
        run: NewRun,
        waiting: Option<WaitingRun>,
    ) -> Result<Acceptance, StoreError> {
        let order = run.order_sha256.parse().map_err(|_| StoreError::NotAHash {
            what: "the hash of the work order",
        })?;
        match self
            .ask(Command::Accept(Box::new(run), order, waiting.map(Box::new)))
            .await?
        {
            Done::Accepted(acceptance) => Ok(acceptance),
            _ => Err(StoreError::Closed),
        }
    }

    /// Hands an event over to be appended, and waits while too much waits already.
    ///
    /// Events of a run are numbered from 0 without gaps, and appended in the order of the calls. The
    /// event is durable when the returned [`Ack`] says so. After an event that failed, its number is
    /// still the next one.
    ///
    /// # Errors
    /// Fails at once where the store is closed or the event is too large.
    pub async fn append_event(
        &self,
        run_id: Uuid,
        seq: u64,
        json: String,
    ) -> Result<Ack, StoreError> {
        self.append_events(run_id, seq, vec![json]).await
    }

    /// Journals events that follow each other, the first of them at `first`, with one answer for all:
    /// they are durable together, or none of them is.
    ///
    /// # Errors
    /// As [`Store::append_event`].
    pub async fn append_events(
        &self,
        run_id: Uuid,
        first: u64,
        json: Vec<String>,
    ) -> Result<Ack, StoreError> {
        let events = NewEvents {
            run_id,
            first,
            json,
        };
        self.send(Command::Events(events)).await.map(Ack)
    }

    /// Ends a run with its one receipt. Receipt, log entry and a signed checkpoint are durable
    /// together when this returns.
    ///
    /// # Errors
    /// Refuses a document that is not of this run or does not have this hash, an unknown run, a run
    /// of another process, and a second receipt.
    pub async fn finish(
        &self,
        run_id: Uuid,
        receipt_document: Vec<u8>,
        receipt_sha256: &str,
    ) -> Result<Committed, StoreError> {
        let ending = if receipt_document.len() <= SMALL_RECEIPT {
            check_receipt(run_id, receipt_document, receipt_sha256)?
        } else {
            let given = receipt_sha256.to_owned();
            tokio::task::spawn_blocking(move || check_receipt(run_id, receipt_document, &given))
                .await
                .map_err(|_| StoreError::Closed)??
        };
        match self.ask(Command::Finish(ending)).await? {
            Done::Committed(committed) => Ok(*committed),
            _ => Err(StoreError::Closed),
        }
    }

    /// Replaces the key that signs the log. The old key signs the rotation, and is then removed;
    /// what it signed stays good.
    ///
    /// # Errors
    /// Fails where the new key cannot be stored.
    pub async fn rotate_key(&self) -> Result<VerifyingKey, StoreError> {
        match self.ask(Command::Rotate).await? {
            Done::Rotated(key) => Ok(*key),
            _ => Err(StoreError::Closed),
        }
    }

    /// Writes something, to find out whether that works again; says how the store is then.
    ///
    /// # Errors
    /// Says why it does not work.
    pub async fn probe(&self) -> Result<Health, StoreError> {
        self.ask(Command::Probe).await?;
        Ok(self.health())
    }

    /// How the store is, as far as its last write tells.
    #[must_use]
    pub fn health(&self) -> Health {
        let status = &self.inner.status;
        let (state, problem) = if self.inner.commands.is_closed() {
            (StoreState::Closed, Some(self.gone().to_string()))
        } else {
            status.state.borrow().clone()
        };
        Health {
            state,
            problem,
            reserve: status.reserve.is_whole(),
            commits: status.commits.load(Ordering::Relaxed),
            waiting_bytes: QUEUE_BYTES.saturating_sub(self.inner.room.available_permits()),
            exchanges: self.inner.exchanges.health(),
        }
    }

    /// Writes what waits, and closes the store for all clones of the handle. An exchange that is still
    /// under way then leaves no record; that is counted, and told in the log of the process.
    pub async fn close(self) {
        self.inner.exchanges.close();
        self.inner.room.close();
        self.inner.reader.close().await;
        drop(self.inner.commands.send(Message::Close));
        let writer = match self.inner.writer.lock() {
            Ok(mut writer) => writer.take(),
            Err(_) => None,
        };
        if let Some(writer) = writer {
            // A panic in it was reported where it happened.
            drop(writer.await);
        }
    }

    pub(crate) async fn ask(&self, command: Command) -> Reply {
        let received = self.send(command).await?.await;
        received.unwrap_or(Err(StoreError::WriterGone))
    }

    /// Asks for something that may have been done already.
    pub(crate) async fn ask_whether(&self, command: Command) -> Result<bool, StoreError> {
        match self.ask(command).await? {
            Done::Changed(changed) => Ok(changed),
            _ => Err(StoreError::Closed),
        }
    }

    pub(crate) async fn ask_count(&self, command: Command) -> Result<u64, StoreError> {
        match self.ask(command).await? {
            Done::Count(count) => Ok(count),
            _ => Err(StoreError::Closed),
        }
    }

    /// Forgets in several transactions, so that others can write in between.
    pub(crate) async fn forget(&self, some: impl Fn() -> Command) -> Result<u64, StoreError> {
        let mut total = 0;
        loop {
            let forgotten = self.ask_count(some()).await?;
            total += forgotten;
            if forgotten < FORGET_AT_ONCE {
                return Ok(total);
            }
        }
    }

    /// Wants something done, and does not wait for it.
    pub(crate) fn want(&self, command: Command) {
        // A store that is closed does nothing more.
        drop(
            self.inner
                .commands
                .send(Message::Work(Queued::own(command))),
        );
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.inner.exchanges
    }

    /// Why nothing is taken any more: somebody closed the store, or the writer panicked.
    fn gone(&self) -> StoreError {
        if self.inner.room.is_closed() {
            StoreError::Closed
        } else {
            StoreError::WriterGone
        }
    }

    pub(crate) async fn send(
        &self,
        command: Command,
    ) -> Result<oneshot::Receiver<Reply>, StoreError> {
        let size = command.size();
        if size > MAX_VALUE_BYTES {
            let what = "what was to be stored";
            return Err(StoreError::TooLarge { what });
        }
        // What is larger than the queue takes all of it.
        let cost = u32::try_from(size.min(QUEUE_BYTES)).unwrap_or(u32::MAX);
        let room = Arc::clone(&self.inner.room)
            .acquire_many_owned(cost)
            .await
            .map_err(|_| StoreError::Closed)?;
        let (reply, receiver) = oneshot::channel();
        let queued = Queued {
            command,
            fence: self.fence,
            asker: Some(Asker { reply, room }),
        };
        self.inner
            .commands
            .send(Message::Work(queued))
            .map_err(|_| self.gone())?;
        Ok(receiver)
    }
}
