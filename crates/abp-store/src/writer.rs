//! The one task that writes: takes everything that waits, commits it once, and answers everybody.
//!
//! A write that fails is never tried again and then called durable. What was in it fails, and so does
//! everything after it, until a new connection has written something new and the disk has taken it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use abp_core::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use crate::StoreError;
use crate::batch::{Applied, Batch, Writing};
use crate::command::{Command, Message, Queued, Reply};
use crate::engine::connection::{Access, Connection};
use crate::engine::sql;
use crate::engine::sqlite::reserve::Reserve;
use crate::engine::{Blocked, Engine};
use crate::error::Failure;
use crate::exchange::{Drain, ExchangeChange};
use crate::log::LogMemory;
use crate::record::StoreState;

/// The most that one transaction takes.
const MAX_BATCH_BYTES: usize = 4 * 1024 * 1024;
/// The most commands that one transaction takes.
const MAX_BATCH: usize = 4096;
/// How long a write that may succeed later waits at first, and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);
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
    /// Dropped first: where the writer panics, the exchange log must be closed before anything slow is.
    pub(crate) exchanges: Drain,
    pub(crate) path: PathBuf,
    pub(crate) engine: Engine,
    pub(crate) connection: Option<Connection>,
    pub(crate) log: LogMemory,
    pub(crate) clock: fn() -> Timestamp,
    /// How long a database that is away is waited for.
    pub(crate) patience: Duration,
    pub(crate) status: Arc<Status>,
    /// What was sealed of exchanges since the engine tidied up.
    pub(crate) sealed_bytes: usize,
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
            self.tidy_up(bytes).await;
        }
        self.end_exchanges().await;
        if let Some(connection) = self.connection {
            drop(connection.close().await);
        }
        self.engine.close().await;
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
        match self.commit_or_retry(&batch).await {
            Ok(replies) => answer(batch, replies),
            Err(Blocked::Refused(error)) => refuse(batch, &error),
            Err(Blocked::Database(error)) => self.fail(batch, &error).await,
        }
    }

    /// Commits; where the engine says that nothing was written and the reason may pass, again, for as
    /// long as a database that is away is waited for.
    async fn commit_or_retry(&mut self, batch: &[Queued]) -> Result<Vec<Reply>, Blocked> {
        let deadline = Instant::now() + self.patience;
        let mut pause = FIRST_PAUSE;
        loop {
            let error = match self.commit(batch).await {
                Err(Blocked::Database(error)) if self.engine.may_retry(&error) => error,
                Ok(replies) => {
                    if self.state() == StoreState::NotDurable {
                        self.set_state(StoreState::Ready, None);
                    }
                    return Ok(replies);
                }
                Err(blocked) => return Err(blocked),
            };
            if Instant::now() + pause >= deadline {
                return Err(error.into());
            }
            tracing::debug!(target: "abp.store", %error, "a write is tried again");
            if self.engine.judge(&error) != Failure::Busy {
                self.connection = None;
                // Others are told at once that the database is away, and not only when waiting ends.
                if self.state() == StoreState::Ready {
                    self.set_state(StoreState::NotDurable, Some(error.to_string()));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// One transaction, with everything in it or nothing.
    async fn commit(&mut self, batch: &[Queued]) -> Result<Vec<Reply>, Blocked> {
        if self.connection.is_none() {
            self.connection = Some(self.engine.connect().await?);
        }
        let Some(connection) = &mut self.connection else {
            return Err(StoreError::Closed.into());
        };
        let mut transaction = connection.begin(access_of(batch)).await?;
        let entered = match self.engine.enter(&mut transaction, self.clock).await {
            Ok(entered) => entered,
            Err(blocked) => {
                transaction.undo().await;
                return Err(blocked);
            }
        };
        let by = Writing {
            path: &self.path,
            owners: self.engine.owners(),
            token: self.engine.token(),
            now: entered.now,
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
                transaction.undo().await;
                self.log.discard(tail.as_ref());
                return Err(blocked);
            }
        };
        if !wrote {
            transaction.rollback().await?;
            return Ok(replies);
        }
        if let Err(error) = transaction.commit().await {
            let committed = self.engine.was_committed(entered, self.patience).await;
            if committed != Some(true) {
                self.log.discard(tail.as_ref());
            }
            match committed {
                Some(true) => self.connection = None,
                Some(false) => return Err(error.into()),
                // Trying again could write it twice.
                None => {
                    let failure = Failure::Disk(error.to_string());
                    return Err(self.enter(failure).into());
                }
            }
        }
        if let Some(signed) = signed {
            self.log.keep(signed);
        }
        if sealed {
            self.sealed_bytes = self.sealed_bytes.saturating_add(self.exchanges.release());
        }
        self.status.commits.fetch_add(1, Ordering::Relaxed);
        Ok(replies)
    }

    /// A transaction failed: nothing in it is durable.
    async fn fail(&mut self, batch: Vec<Queued>, error: &sqlx::Error) {
        let failure = self.engine.judge(error);
        tracing::warn!(target: "abp.store", %failure, commands = batch.len(), "a write failed");
        match failure {
            // On Postgres a value that cannot be stored fails all that is written with it.
            Failure::Other(_) if batch.len() > 1 && self.engine.fails_together() => {
                for queued in batch {
                    Box::pin(self.process(vec![queued])).await;
                }
            }
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
                        let failure = self.engine.judge(&error);
                        refuse(urgent, &self.enter(failure));
                    }
                }
            }
            failure => refuse(batch, &self.enter(failure)),
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
                let failure = self.engine.judge(&error);
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
        let mut connection = self.engine.connect().await?;
        let mut transaction = connection.begin(Access::Alone).await?;
        self.engine.enter(&mut transaction, self.clock).await?;
        sql::query("UPDATE head SET probes = probes + 1 WHERE id = 1")
            .execute(&mut *transaction)
            .await?;
        transaction.commit().await?;
        self.connection = Some(connection);
        Ok(())
    }

    /// Lets the engine tidy up after what was written.
    async fn tidy_up(&mut self, bytes: usize) {
        let bytes = bytes.saturating_add(std::mem::take(&mut self.sealed_bytes));
        let is_ready = self.state() == StoreState::Ready;
        let connection = self.connection.as_mut().filter(|_| is_ready);
        if let Err(error) = self.engine.wrote(bytes, connection).await {
            let failure = self.engine.judge(&error);
            tracing::warn!(target: "abp.store", %failure, "the database could not be updated");
            drop(self.enter(failure));
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

/// Whether what a batch reads can only be changed by itself.
fn access_of(batch: &[Queued]) -> Access {
    match batch
        .iter()
        .all(|queued| queued.command.may_run_beside_others())
    {
        true => Access::BesideOthers,
        false => Access::Alone,
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
