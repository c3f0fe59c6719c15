//! Commands carried out in one transaction.
//!
//! A command that is refused leaves the transaction as it was, so that the others in it go on. Only
//! a statement that fails ends it for all.

mod change_set;
mod erase;
mod queue;

use std::collections::{BTreeSet, HashMap};
use std::path::Path;
use std::sync::{Arc, LazyLock};

use abp_core::Timestamp;
use abp_receipt::{EntryKind, Hash};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::StoreError;
use crate::approval::{ApprovalChange, OwnRun};
use crate::bound_row::BoundRow;
use crate::command::{Command, Done, Ending, NewEvents, Reply};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::owners::Owners;
use crate::engine::sql;
use crate::exchange::{ExchangeChange, Pending};
use crate::lifecycle::{Ending as LifecycleEnding, LifecycleStep, RunStanding, StepRefused};
use crate::log::{LogMemory, LogTail, Signed, number};
use crate::outbox::announce_end;
use crate::queue::{Lease, WaitingRun};
use crate::record::{Acceptance, Committed, IdempotencyKey, NewRun};
use crate::run_state::RunState;
use crate::sweep::sweep;

/// How many events one statement inserts: as many as fit, largest first.
static INSERTS: LazyLock<[(usize, Arc<str>); 3]> = LazyLock::new(|| {
    [256, 16, 1].map(|rows| {
        let values = vec!["(?, ?, ?)"; rows].join(", ");
        let statement = format!("INSERT INTO events (run, seq, json) VALUES {values}");
        (rows, statement.into())
    })
});

/// The most runs that one statement looks up.
const MAX_LOOKUP: usize = 64;

/// How runs are looked up, several at once; places that are left over stay empty.
static LOOKUPS: LazyLock<[(usize, Arc<str>); 3]> = LazyLock::new(|| {
    [1, 8, MAX_LOOKUP].map(|runs| {
        let places = vec!["?"; runs].join(", ");
        let statement = format!(
            "SELECT run_id, id, owner, ended_at IS NOT NULL, epoch, state,
                (SELECT coalesce(max(seq) + 1, 0) FROM events WHERE run = runs.id)
            FROM runs WHERE run_id IN ({places})"
        );
        (runs, statement.into())
    })
});

/// Who writes, and where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writing<'a> {
    pub(crate) path: &'a Path,
    pub(crate) owners: &'a Owners,
    pub(crate) token: &'a str,
    pub(crate) now: Timestamp,
}

/// The commands of one transaction.
pub(crate) struct Batch<'a> {
    connection: &'a mut Connection,
    log: &'a mut LogMemory,
    by: Writing<'a>,
    runs: HashMap<Uuid, Slot>,
    tail: Option<LogTail>,
    /// What is to be sealed.
    pending: &'a Pending,
    sealed: bool,
    /// The lease that the command at hand carries.
    fence: Option<Lease>,
    /// The replies so far, by place in the batch.
    steps: Vec<Option<Step>>,
    wrote: bool,
}

/// What came of a batch.
pub(crate) struct Applied {
    pub(crate) replies: Vec<Reply>,
    pub(crate) signed: Option<Signed>,
    pub(crate) tail: Option<LogTail>,
    /// Whether what was to be sealed is.
    pub(crate) sealed: bool,
    /// Whether there is anything to commit.
    pub(crate) wrote: bool,
}

/// What a batch knows of a run.
#[derive(Debug, Clone)]
struct Slot {
    id: i64,
    owner: String,
    ended: bool,
    next_event: u64,
    epoch: u64,
    state: RunState,
}

enum Step {
    Reply(Reply),
    /// The receipt's place in the log; the checkpoint is signed last.
    Ended(u64),
}

impl Slot {
    /// The state after a step of the holder of the lease, which own_run has checked.
    fn after(&self, run_id: Uuid, step: LifecycleStep) -> Result<RunState, StoreError> {
        let standing = RunStanding {
            state: self.state,
            epoch: self.epoch,
        };
        match standing.step(step, self.epoch) {
            Ok(next) => Ok(next.state),
            Err(StepRefused::Ended) => Err(StoreError::RunOver(run_id)),
            Err(StepRefused::Fenced | StepRefused::NotNow) => Err(StoreError::NotOwner(run_id)),
        }
    }

    /// Whether a lease is one of this run that was lost since.
    fn is_fenced(&self, run_id: Uuid, fence: Option<Lease>) -> bool {
        fence.is_some_and(|fence| fence.run_id == run_id && fence.epoch != self.epoch)
    }
}

impl<'a> Batch<'a> {
    pub(crate) fn new(
        connection: &'a mut Connection,
        log: &'a mut LogMemory,
        pending: &'a Pending,
        by: Writing<'a>,
    ) -> Self {
        Self {
            connection,
            log,
            by,
            runs: HashMap::new(),
            tail: None,
            pending,
            sealed: false,
            fence: None,
            steps: Vec::new(),
            wrote: false,
        }
    }

    /// Carries the commands out, in their order.
    pub(crate) async fn apply<'c>(
        mut self,
        commands: impl Iterator<Item = (&'c Command, Option<Lease>)> + Clone,
    ) -> Result<Applied, (Blocked, Option<LogTail>)> {
        match self.carry_out(commands).await {
            Ok((replies, signed)) => Ok(Applied {
                replies,
                signed,
                tail: self.tail,
                sealed: self.sealed,
                wrote: self.wrote,
            }),
            Err(blocked) => Err((blocked, self.tail)),
        }
    }

    async fn carry_out<'c>(
        &mut self,
        commands: impl Iterator<Item = (&'c Command, Option<Lease>)> + Clone,
    ) -> Result<(Vec<Reply>, Option<Signed>), Blocked> {
        let run_ids = commands.clone().filter_map(|(command, _)| command.run_id());
        self.look_up(run_ids.collect()).await?;
        let mut events = Vec::new();
        for (command, fence) in commands {
            if let Command::Events(new) = command {
                events.push((self.steps.len(), new, fence));
                self.steps.push(None);
                continue;
            }
            self.append_events(&mut events).await?;
            self.fence = fence;
            let step = match self.one(command).await {
                Ok(step) => step,
                Err(Blocked::Refused(error)) => Step::Reply(Err(error)),
                Err(failed) => return Err(failed),
            };
            self.steps.push(Some(step));
        }
        self.append_events(&mut events).await?;
        let signed = match &self.tail {
            Some(tail) => tail.store(self.connection, self.by.path).await?,
            None => None,
        };
        let checkpoint = signed.as_ref().map(|signed| &signed.checkpoint);
        let replies = self.steps.drain(..).map(|step| match (step, checkpoint) {
            (Some(Step::Reply(reply)), _) => reply,
            (Some(Step::Ended(seq)), Some(checkpoint)) => {
                let checkpoint = checkpoint.clone();
                Ok(Done::Committed(Box::new(Committed { seq, checkpoint })))
            }
            _ => Err(StoreError::Closed),
        });
        Ok((replies.collect(), signed))
    }

    async fn one(&mut self, command: &Command) -> Result<Step, Blocked> {
        let by = self.by;
        let done = match command {
            Command::Accept(run, order, waiting) => {
                let accepted = self.accept(run, *order, waiting.as_deref()).await?;
                Done::Accepted(accepted)
            }
            Command::Finish(ending) => return self.finish(ending).await,
            Command::Queue(change) => self.change_queue(change).await?,
            Command::Approvals(change) => self.change_approvals(change).await?,
            Command::Outbox(change) => change.apply(self.writing(), by).await?,
            Command::Rotate => {
                self.take_up_log().await?;
                let keys = self.log.keys().clone();
                if keys.is_operators() {
                    let path = by.path.to_owned();
                    return Err(StoreError::OperatorKey { path }.into());
                }
                let Some(tail) = &mut self.tail else {
                    return Err(StoreError::Closed.into());
                };
                let public = tail.rotate(self.connection, by.path, &keys, by.now).await?;
                self.wrote = true;
                Done::Rotated(Box::new(public))
            }
            Command::Probe => {
                sql::query("UPDATE head SET probes = probes + 1 WHERE id = 1")
                    .execute(self.writing())
                    .await?;
                Done::Written
            }
            Command::Sweep => Done::Count(sweep(self.writing(), by).await?),
            Command::Keys(change) => change.apply(self.writing(), by).await?,
            Command::Budget(change) => change.apply(self.writing(), by).await?,
            Command::Answers(change) => change.apply(self.writing()).await?,
            Command::Reasoning(change) => change.apply(self.writing(), by).await?,
            Command::Exchanges(change) => self.change_exchanges(change).await?,
            Command::ChangeSets(change) => self.change_set(change).await?,
            Command::Erase(change) => self.erase(*change).await?,
            // Taken together by the caller.
            Command::Events(_) => Done::Written,
        };
        Ok(Step::Reply(Ok(done)))
    }

    async fn accept(
        &mut self,
        run: &NewRun,
        order: Hash,
        waiting: Option<&WaitingRun>,
    ) -> Result<Acceptance, Blocked> {
        if self.slot(run.run_id).is_some() {
            return Err(StoreError::DuplicateRun(run.run_id).into());
        }
        if let Some(key) = &run.idempotency_key
            && let Some(existing) = self.find_request(key).await?
        {
            return Ok(Acceptance::Existing(existing));
        }
        if let Some(waiting) = waiting {
            self.check_queue(run, waiting).await?;
        }
        let named = run.idempotency_key.as_ref();
        let request = named.map(|named| named.request.to_string());
        let bound = BoundRow {
            accepted_at: run.at,
            backend: &run.backend,
            backend_asked: run.backend_asked.as_deref(),
            idempotency_key: named.map(|named| named.key.as_str()),
            principal: run.principal.as_deref(),
            project: run.project.as_ref().map(Into::into),
            request_sha256: request.as_deref(),
            run_id: run.run_id,
            work_order_sha256: &run.order_sha256,
        };
        let record = bound.bind(&run.order_json);
        let kind = EntryKind::RunStarted {
            run_id: run.run_id,
            work_order_sha256: order,
            record: Some(record.map_err(|error| self.log.broken(&error))?),
        };
        let seq = self.log_entry(kind, run.at).await?;
        let project = run.project.as_ref();
        let (state, owner, begun) = match waiting {
            Some(_) => (RunState::Queued, "", 0_u32),
            None => (RunState::Running, self.by.token, 1),
        };
        let id: i64 = sql::query_scalar(
            "INSERT INTO runs (run_id, idempotency_key, request_sha256, accepted_at, work_order,
                work_order_sha256, backend, owner, log_seq, backend_asked, principal,
                project_path, project_inode, project_born, state, epoch, attempt, pinned_to,
                max_attempts, notify)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
            RETURNING id",
        )
        .bind(run.run_id.to_string())
        .bind(named.map(|named| named.key.as_str()))
        .bind(request)
        .bind(run.at.as_unix_millis())
        .bind(run.order_json.as_str())
        .bind(run.order_sha256.as_str())
        .bind(run.backend.as_str())
        .bind(owner)
        .bind(number(seq)?)
        .bind(run.backend_asked.as_deref())
        .bind(run.principal.as_deref())
        .bind(project.map(|project| project.path.as_str()))
        .bind(project.map(|project| project.inode.cast_signed()))
        .bind(project.and_then(|project| project.born))
        .bind(state.as_str())
        .bind(begun)
        .bind(begun)
        .bind(waiting.is_none().then_some(self.by.token))
        .bind(waiting.map_or(1, |waiting| waiting.max_attempts))
        .bind(serde_json::json!(waiting.map_or(&[][..], |waiting| &waiting.notify)).to_string())
        .fetch_one(&mut *self.connection)
        .await?;
        if let Some(waiting) = waiting {
            self.store_submission(id, waiting).await?;
        }
        let slot = Slot {
            id,
            owner: owner.to_owned(),
            ended: false,
            next_event: 0,
            epoch: begun.into(),
            state,
        };
        self.runs.insert(run.run_id, slot);
        Ok(Acceptance::New)
    }

    /// The run that was made for a request, where there is one.
    async fn find_request(&mut self, named: &IdempotencyKey) -> Result<Option<Uuid>, Blocked> {
        let found: Option<(String, Option<String>)> =
            sql::query_as("SELECT run_id, request_sha256 FROM runs WHERE idempotency_key = ?")
                .bind(named.key.as_str())
                .fetch_optional(&mut *self.connection)
                .await?;
        let Some((run_id, request)) = found else {
            return Ok(None);
        };
        let run_id: Uuid = run_id
            .parse()
            .map_err(|error: uuid::Error| self.log.broken(&error))?;
        if request.is_some_and(|request| request == named.request.to_string()) {
            return Ok(Some(run_id));
        }
        let key = named.key.clone();
        Err(StoreError::KeyReused { key, run_id }.into())
    }

    async fn append_events(
        &mut self,
        events: &mut Vec<(usize, &NewEvents, Option<Lease>)>,
    ) -> Result<(), Blocked> {
        let mut rows = Vec::with_capacity(events.len());
        for (place, new, fence) in events.drain(..) {
            self.fence = fence;
            let first = self.next_events(new);
            if let Ok((run, first)) = first {
                let json = new.json.iter().map(String::as_str);
                rows.extend((first..).zip(json).map(|(seq, json)| (run, seq, json)));
            }
            if let Some(step) = self.steps.get_mut(place) {
                *step = Some(Step::Reply(first.map(|_| Done::Written)));
            }
        }
        let mut rest = rows.as_slice();
        for (size, statement) in INSERTS.iter() {
            while let Some((chunk, left)) = rest.split_at_checked(*size) {
                let mut query = sql::query(AssertSqlSafe(Arc::clone(statement)));
                for (run, seq, json) in chunk {
                    query = query.bind(*run).bind(*seq).bind(*json);
                }
                query.execute(&mut *self.connection).await?;
                self.wrote = true;
                rest = left;
            }
        }
        Ok(())
    }

    /// The run and the place of events that are the next ones of a run of ours.
    fn next_events(&mut self, events: &NewEvents) -> Result<(i64, i64), StoreError> {
        let (run_id, seq) = (events.run_id, events.first);
        let slot = self.own_run(run_id)?;
        let expected = slot.next_event;
        if seq != expected {
            return Err(StoreError::OutOfOrder {
                run_id,
                seq,
                expected,
            });
        }
        slot.next_event += events.json.len() as u64;
        Ok((slot.id, number(seq)?))
    }

    async fn finish(&mut self, ending: &Ending) -> Result<Step, Blocked> {
        let slot = self.own_run(ending.run_id)?;
        let outcome = LifecycleEnding::from_name(&ending.outcome)
            .ok_or(StoreError::UnknownRun(ending.run_id))?;
        let state = slot.after(ending.run_id, LifecycleStep::Finish(outcome))?;
        let run = slot.id;
        let kind = EntryKind::RunEnded {
            run_id: ending.run_id,
            receipt_sha256: ending.sha256,
        };
        let seq = self.log_entry(kind, self.by.now).await?;
        sql::query("INSERT INTO receipts (run, log_seq, sha256, document) VALUES (?, ?, ?, ?)")
            .bind(run)
            .bind(number(seq)?)
            .bind(ending.sha256.to_string())
            .bind(&*ending.document)
            .execute(&mut *self.connection)
            .await?;
        sql::query(
            "UPDATE runs SET ended_at = ?, outcome = ?, state = ?, lease_until = NULL
            WHERE id = ?",
        )
        .bind(ending.finished_at.as_unix_millis())
        .bind(ending.outcome.as_str())
        .bind(ending.outcome.as_str())
        .bind(run)
        .execute(&mut *self.connection)
        .await?;
        self.drop_unvouched(ending.run_id, run, ending.change_set)
            .await?;
        self.end_control(run, ending).await?;
        if let Some(slot) = self.slot(ending.run_id) {
            slot.ended = true;
            slot.state = state;
        }
        Ok(Step::Ended(seq))
    }

    /// Ends what the control plane has of a run: what it was submitted with is forgotten, its open
    /// questions are withdrawn, and its webhooks are told.
    async fn end_control(&mut self, run: i64, ending: &Ending) -> Result<(), Blocked> {
        let by = self.by;
        sql::query("DELETE FROM submissions WHERE run = ?")
            .bind(run)
            .execute(self.writing())
            .await?;
        sql::query(
            "UPDATE approvals SET verdict = 'withdrawn', answered_at = ?, answered_by = 'default',
                answered_via = 'default'
            WHERE run = ? AND verdict IS NULL",
        )
        .bind(by.now.as_unix_millis())
        .bind(run)
        .execute(self.writing())
        .await?;
        announce_end(self.writing(), by, run, &ending.sha256.to_string()).await
    }

    async fn change_approvals(&mut self, change: &ApprovalChange) -> Result<Done, Blocked> {
        let run = match change.run_id() {
            Some(run_id) => {
                let slot = self.own_run(run_id)?;
                Some(OwnRun {
                    id: slot.id,
                    epoch: number(slot.epoch)?,
                })
            }
            None => None,
        };
        let by = self.by;
        let record = change.apply(self.writing(), by, run).await?;
        if let Some(run) = run {
            // An answer that an earlier attempt was given is used without waiting.
            let step = match record.answer {
                Some(_) => LifecycleStep::Settle,
                None => LifecycleStep::Ask,
            };
            let slot = self.own_run(record.run_id)?;
            let state = slot.after(record.run_id, step)?;
            slot.state = state;
            self.set_run_state(run.id, state).await?;
        }
        Ok(Done::Approval(Box::new(record)))
    }

    async fn set_run_state(&mut self, run: i64, state: RunState) -> Result<(), Blocked> {
        sql::query("UPDATE runs SET state = ? WHERE id = ?")
            .bind(state.as_str())
            .bind(run)
            .execute(self.writing())
            .await?;
        Ok(())
    }

    async fn change_exchanges(&mut self, change: &ExchangeChange) -> Result<Done, Blocked> {
        match change {
            ExchangeChange::Open => self.open_exchanges().await?,
            ExchangeChange::Seal => self.seal().await?,
            ExchangeChange::Close => {
                sql::query("DELETE FROM exchange_writers WHERE owner = ?")
                    .bind(self.by.token)
                    .execute(self.writing())
                    .await?;
            }
        }
        Ok(Done::Written)
    }

    /// Notes that this process has records on their way, where that is not noted.
    async fn open_exchanges(&mut self) -> Result<(), Blocked> {
        sql::query("INSERT INTO exchange_writers (owner) VALUES (?) ON CONFLICT DO NOTHING")
            .bind(self.by.token)
            .execute(self.writing())
            .await?;
        Ok(())
    }

    /// Writes what is pending, once.
    async fn seal(&mut self) -> Result<(), Blocked> {
        let pending = self.pending;
        if self.sealed || pending.is_empty() {
            return Ok(());
        }
        if let Some(segment) = &pending.segment {
            let (count, root) = (segment.count, segment.root());
            let kind = EntryKind::ExchangesSealed { count, root };
            let seq = self.log_entry(kind, self.by.now).await?;
            segment.insert(self.connection, seq, root).await?;
        }
        for ledger in &pending.ledgers {
            ledger.insert(self.writing()).await?;
        }
        self.open_exchanges().await?;
        self.sealed = true;
        Ok(())
    }

    /// The connection, to change something.
    fn writing(&mut self) -> &mut Connection {
        self.wrote = true;
        self.connection
    }

    async fn log_entry(&mut self, kind: EntryKind, at: Timestamp) -> Result<u64, Blocked> {
        self.take_up_log().await?;
        let Some(tail) = &mut self.tail else {
            return Err(StoreError::Closed.into());
        };
        self.wrote = true;
        tail.append(self.connection, self.by.path, kind, at).await
    }

    async fn take_up_log(&mut self) -> Result<(), Blocked> {
        if self.tail.is_none() {
            self.tail = Some(self.log.load(self.connection).await?);
        }
        Ok(())
    }

    /// A run that is under way and belongs to this process, by the lease that the command carries.
    fn own_run(&mut self, run_id: Uuid) -> Result<&mut Slot, StoreError> {
        let (token, fence) = (self.by.token, self.fence);
        match self.slot(run_id) {
            None => Err(StoreError::UnknownRun(run_id)),
            Some(slot) if slot.ended => Err(StoreError::RunOver(run_id)),
            Some(slot) if slot.owner != token || slot.is_fenced(run_id, fence) => {
                Err(StoreError::NotOwner(run_id))
            }
            Some(slot) => Ok(slot),
        }
    }

    fn slot(&mut self, run_id: Uuid) -> Option<&mut Slot> {
        self.runs.get_mut(&run_id)
    }

    /// Reads what there is to know about the runs of the batch.
    async fn look_up(&mut self, runs: BTreeSet<Uuid>) -> Result<(), Blocked> {
        let mut runs = runs.into_iter().peekable();
        while runs.peek().is_some() {
            let chunk: Vec<Uuid> = runs.by_ref().take(MAX_LOOKUP).collect();
            let Some((places, statement)) =
                LOOKUPS.iter().find(|(places, _)| *places >= chunk.len())
            else {
                break;
            };
            let mut query = sql::query(AssertSqlSafe(Arc::clone(statement)));
            for place in 0..*places {
                query = query.bind(chunk.get(place).map(Uuid::to_string));
            }
            for row in query.fetch_all(&mut *self.connection).await? {
                let run_id: Uuid = row
                    .try_get::<&str>(0)?
                    .parse()
                    .map_err(|error: uuid::Error| sqlx::Error::Decode(error.into()))?;
                let slot = Slot {
                    id: row.try_get(1)?,
                    owner: row.try_get(2)?,
                    ended: row.try_get(3)?,
                    epoch: row.try_get::<i64>(4)?.unsigned_abs(),
                    state: RunState::from_name(row.try_get(5)?)
                        .ok_or_else(|| sqlx::Error::Decode("a run has no state".into()))?,
                    next_event: row.try_get::<i64>(6)?.unsigned_abs(),
                };
                self.runs.insert(run_id, slot);
            }
        }
        Ok(())
    }
}
