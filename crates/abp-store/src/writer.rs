//! The one task that writes: takes everything that waits, commits it once, and answers everybody.
//!
//! A write that fails is never tried again and then called durable. What was in it fails, and so does
//! everything after it, until a new connection has written something new and the disk has taken it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abp_core::Timestamp;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _, Row as _};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::StoreError;
use crate::batch::{Applied, Batch, Writing};
use crate::command::{Command, Message, Queued, Reply};
use crate::error::Failure;
use crate::exchange::{Drain, ExchangeChange};
use crate::log::LogMemory;
use crate::owner::OwnerLock;
use crate::record::StoreState;
use crate::reserve::Reserve;
use crate::schema::{Blocked, require_current};

/// The most that one transaction takes.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// The most commands that one transaction takes.
const MAX_BATCH: usize = 4096;
/// How much is written before the write-ahead file is emptied into the database.
const CHECKPOINT_BYTES: usize = 16 * 1024 * 1024;
/// What a transaction writes besides its content: pages are written whole.
const COMMIT_OVERHEAD: usize = 16 * 1024;
/// How often a failed store is tried again on behalf of ordinary writes.
const RETRY_INTERVAL: Duration = Duration::from_millis(250);

/// What the writer lets everybody know.
#[derive(Debug)]
pub(crate) struct Status {
    pub(crate) state: watch::Sender<(StoreState, Option<String>)>,
    pub(crate) commits: AtomicU64,
    pub(crate) reserve: Reserve,
}

/// The writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) path: PathBuf,
    pub(crate) owners: PathBuf,
    pub(crate) options: SqliteConnectOptions,
    pub(crate) connection: Option<SqliteConnection>,
    /// Keeps the shared index of the write-ahead file: without it, opening the database again would
    /// believe frames that were written and never reached the disk.
    pub(crate) keeper: SqliteConnection,
    pub(crate) log: LogMemory,
    pub(crate) exchanges: Drain,
    pub(crate) owner: OwnerLock,
    pub(crate) clock: fn() -> Timestamp,
    pub(crate) status: Arc<Status>,
    pub(crate) written: usize,
    pub(crate) next_try: Instant,
}

impl Writer {
    /// Writes until nobody can ask for it any more.
    pub(crate) async fn run(mut self, mut messages: mpsc::UnboundedReceiver<Message>) {
        loop {
            let first = tokio::select! {
                message = messages.recv() => message,
                () = self.exchanges.due() => Some(Message::Work(own(ExchangeChange::Seal))),
            };
            let Some(first) = first else { break };
            let mut bytes: usize = 0;
            let mut batch = Vec::new();
            let mut next = Some(first);
            while let Some(message) = next.take() {
                match message {
                    Message::Close => messages.close(),
                    Message::Work(queued) => {
                        bytes = bytes.saturating_add(queued.command.size());
                        batch.push(queued);
                    }
                }
                if batch.len() < MAX_BATCH && bytes < MAX_BATCH_BYTES {
                    next = messages.try_recv().ok();
                }
            }
            self.process(batch).await;
            self.written = self.written.saturating_add(bytes * 2 + COMMIT_OVERHEAD);
            if self.written >= CHECKPOINT_BYTES {
                self.checkpoint().await;
            }
        }
        self.end_exchanges().await;
        // What is not emptied into the database now is so when it is next opened.
        if let Some(connection) = self.connection {
            drop(connection.close().await);
        }
        drop(self.keeper.close().await);
        drop(self.owner);
    }

    /// Seals what waits, and says that nothing is on its way. Where that fails, what waits is lost
    /// together with the writer, and whoever opens the store next can tell.
    async fn end_exchanges(&mut self) {
        while self.exchanges.is_waiting() {
            let sealed = self.exchanges.sealed();
            self.process(vec![own(ExchangeChange::Seal)]).await;
            if self.exchanges.sealed() == sealed {
                return;
            }
        }
        if self.exchanges.was_opened() {
            self.process(vec![own(ExchangeChange::Close)]).await;
        }
    }

    async fn process(&mut self, batch: Vec<Queued>) {
        let batch = match self.state() {
            // Closed is what others are told once this task is gone.
            StoreState::Ready | StoreState::Closed => batch,
            StoreState::DiskFull => self.admit_on_full_disk(batch),
            StoreState::NotDurable => self.admit_after_failure(batch).await,
        };
        if batch.is_empty() {
            return;
        }
        match self.commit(&batch).await {
            Ok(replies) => answer(batch, replies),
            Err(Blocked::Refused(error)) => refuse(batch, &error),
            Err(Blocked::Database(error)) => self.fail(batch, &error).await,
        }
    }

    /// One transaction, with everything in it or nothing.
    async fn commit(&mut self, batch: &[Queued]) -> Result<Vec<Reply>, Blocked> {
        if self.connection.is_none() {
            self.connection = Some(self.options.connect().await?);
        }
        let Some(connection) = &mut self.connection else {
            return Err(StoreError::Closed.into());
        };
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        require_current(&mut transaction, &self.path).await?;
        let by = Writing {
            path: &self.path,
            owners: &self.owners,
            token: self.owner.token(),
            now: (self.clock)(),
        };
        if batch.iter().any(Queued::is_seal) {
            self.exchanges.gather();
        }
        let commands = batch.iter().map(|queued| (&queued.command, queued.fence));
        let applied = Batch::new(
            &mut transaction,
            &mut self.log,
            self.exchanges.pending(),
            by,
        )
        .apply(commands)
        .await;
        let Applied {
            replies,
            signed,
            tail,
            sealed,
            wrote,
        } = match applied {
            Ok(applied) => applied,
            Err((blocked, tail)) => {
                self.log.discard(tail.as_ref());
                return Err(blocked);
            }
        };
        if !wrote {
            transaction.rollback().await?;
            return Ok(replies);
        }
        if let Err(error) = transaction.commit().await {
            self.log.discard(tail.as_ref());
            return Err(error.into());
        }
        if let Some(signed) = signed {
            self.log.keep(signed);
        }
        if sealed {
            self.written = self.written.saturating_add(self.exchanges.release() * 2);
        }
        self.status.commits.fetch_add(1, Ordering::Relaxed);
        Ok(replies)
    }

    /// A transaction failed: nothing in it is durable.
    async fn fail(&mut self, batch: Vec<Queued>, error: &sqlx::Error) {
        let failure = self.judge(error);
        tracing::warn!(target: "abp.store", %failure, commands = batch.len(), "a write failed");
        match failure {
            Failure::Busy => refuse(batch, &failure.into_error(&self.path)),
            Failure::Full => {
                let was_ready = self.state() == StoreState::Ready;
                self.enter_full();
                let error = failure.into_error(&self.path);
                // The space that was set aside is for these.
                let (urgent, rest): (Vec<_>, Vec<_>) = batch
                    .into_iter()
                    .partition(|queued| was_ready && queued.command.is_urgent());
                refuse(rest, &error);
                if urgent.is_empty() {
                    return;
                }
                match self.commit(&urgent).await {
                    Ok(replies) => answer(urgent, replies),
                    Err(Blocked::Refused(error)) => refuse(urgent, &error),
                    Err(Blocked::Database(error)) => {
                        let failure = self.judge(&error);
                        refuse(urgent, &self.enter(failure));
                    }
                }
            }
            failure => refuse(batch, &self.enter(failure)),
        }
    }

    /// What a failed statement means. For some writes the database does not say that the disk is
    /// full, only that they failed.
    fn judge(&self, error: &sqlx::Error) -> Failure {
        match Failure::of(error) {
            Failure::Disk(_) if self.status.reserve.disk_is_full() => Failure::Full,
            failure => failure,
        }
    }

    /// Goes to the state that a failure means, and says so as an error.
    fn enter(&mut self, failure: Failure) -> StoreError {
        match failure {
            Failure::Busy => {}
            Failure::Full => self.enter_full(),
            Failure::Other(_) => self.connection = None,
            Failure::Disk(_) | Failure::Damaged(_) => {
                self.connection = None;
                self.next_try = Instant::now() + RETRY_INTERVAL;
                self.set_state(StoreState::NotDurable, Some(failure.to_string()));
            }
        }
        failure.into_error(&self.path)
    }

    fn enter_full(&mut self) {
        self.connection = None;
        self.next_try = Instant::now() + RETRY_INTERVAL;
        self.set_state(StoreState::DiskFull, Some("no space is left".to_owned()));
        if let Err(error) = self.status.reserve.release() {
            tracing::warn!(target: "abp.store", %error, "the reserve could not be released");
        }
    }

    /// On a full disk only what is urgent goes on; everything, once the reserve is whole again.
    fn admit_on_full_disk(&mut self, batch: Vec<Queued>) -> Vec<Queued> {
        if self.may_try(&batch) {
            if self.status.reserve.fill().is_ok() {
                self.set_state(StoreState::Ready, None);
                return batch;
            }
            self.next_try = Instant::now() + RETRY_INTERVAL;
        }
        let (urgent, rest): (Vec<_>, Vec<_>) = batch
            .into_iter()
            .partition(|queued| queued.command.is_urgent());
        refuse(rest, &Failure::Full.into_error(&self.path));
        urgent
    }

    /// After a failure everything waits for a probe: a new connection, and something new written.
    async fn admit_after_failure(&mut self, batch: Vec<Queued>) -> Vec<Queued> {
        let problem = self.problem();
        let refusal = Failure::Disk(problem).into_error(&self.path);
        if !self.may_try(&batch) {
            refuse(batch, &refusal);
            return Vec::new();
        }
        match self.probe().await {
            Ok(()) => {
                self.set_state(StoreState::Ready, None);
                // The reserve may have gone with the trouble.
                if self.status.reserve.fill().is_err() {
                    self.enter_full();
                    return self.admit_on_full_disk(batch);
                }
                batch
            }
            Err(Blocked::Refused(error)) => {
                refuse(batch, &error);
                Vec::new()
            }
            Err(Blocked::Database(error)) => {
                let failure = self.judge(&error);
                if failure == Failure::Full {
                    self.enter_full();
                    return self.admit_on_full_disk(batch);
                }
                refuse(batch, &self.enter(failure));
                Vec::new()
            }
        }
    }

    async fn probe(&mut self) -> Result<(), Blocked> {
        self.connection = None;
        let mut connection = self.options.connect().await?;
        let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
        require_current(&mut transaction, &self.path).await?;
        sqlx::query("UPDATE head SET probes = probes + 1 WHERE id = 1")
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Empties the write-ahead file into the database, as far as readers allow.
    async fn checkpoint(&mut self) {
        self.written = 0;
        if self.state() != StoreState::Ready {
            return;
        }
        let Some(connection) = &mut self.connection else {
            return;
        };
        let emptied = sqlx::query("PRAGMA wal_checkpoint(PASSIVE)")
            .fetch_one(connection)
            .await
            .and_then(|row| row.try_get::<i64, _>(0));
        match emptied {
            Ok(_) => {}
            Err(error) => {
                let failure = self.judge(&error);
                tracing::warn!(target: "abp.store", %failure, "the database could not be updated");
                drop(self.enter(failure));
            }
        }
    }

    fn may_try(&self, batch: &[Queued]) -> bool {
        Instant::now() >= self.next_try || batch.iter().any(|queued| queued.command.is_urgent())
    }

    fn state(&self) -> StoreState {
        self.status.state.borrow().0
    }

    fn problem(&self) -> String {
        let state = self.status.state.borrow();
        state.1.clone().unwrap_or_default()
    }

    fn set_state(&self, state: StoreState, problem: Option<String>) {
        tracing::info!(target: "abp.store", ?state, problem, "the store changed");
        self.status.state.send_replace((state, problem));
    }
}

fn answer(batch: Vec<Queued>, replies: Vec<Reply>) {
    let mut replies = replies.into_iter();
    for queued in batch {
        queued.answer(replies.next().unwrap_or(Err(StoreError::Closed)));
    }
}

fn refuse(batch: Vec<Queued>, error: &StoreError) {
    for queued in batch {
        queued.answer(Err(error.clone()));
    }
}

fn own(change: ExchangeChange) -> Queued {
    Queued::own(Command::Exchanges(change))
}
