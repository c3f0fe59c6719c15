//! The queue of runs, inside a transaction.

use std::time::Duration;

use abp_core::Timestamp;
use uuid::Uuid;

use super::{Batch, Slot};
use crate::StoreError;
use crate::command::Done;
use crate::engine::Blocked;
use crate::engine::sql::{self, Row};
use crate::lifecycle::LifecycleStep;
use crate::queue::{
    CancelDecision, ClaimRequest, Lease, QueueChange, SealedClaim, TakenOver, WaitingRun, later,
};
use crate::read::{cancel_record, uuid_of};
use crate::record::{CancelRecord, NewRun};
use crate::run_state::RunState;

/// How long recovering a run may take before another process does so.
const RECOVERY: Duration = Duration::from_secs(30);

impl Batch<'_> {
    pub(super) async fn change_queue(&mut self, change: &QueueChange) -> Result<Done, Blocked> {
        match change {
            QueueChange::Claim(request) => {
                let claimed = self.claim(request).await?;
                Ok(Done::Claimed(claimed.map(Box::new)))
            }
            QueueChange::Requeue(run_id) => self.requeue(*run_id).await,
            QueueChange::TakeOver(run_id) => {
                let taken = self.take_over(*run_id).await?;
                Ok(Done::TakenOver(taken.map(Box::new)))
            }
            QueueChange::Renew(run_id, duration) => {
                let until = later(self.by.now, *duration);
                let cancel = self.renew(*run_id, until).await?;
                Ok(Done::Cancel(cancel.map(Box::new)))
            }
            QueueChange::Cancel { run_id, record } => {
                let decision = self.request_cancel(*run_id, record).await?;
                Ok(Done::CancelDecided(decision))
            }
        }
    }

    /// Refuses a run where as many wait as may.
    pub(super) async fn check_queue(
        &mut self,
        run: &NewRun,
        waiting: &WaitingRun,
    ) -> Result<(), Blocked> {
        let row = sql::query(
            "SELECT (SELECT count(*) FROM runs WHERE state = 'queued'),
                (SELECT count(*) FROM runs
                    WHERE state = 'queued' AND principal IS NOT DISTINCT FROM ?)",
        )
        .bind(run.principal.as_deref())
        .fetch_one(&mut *self.connection)
        .await?;
        let counts: (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        let limits = waiting.limits;
        let full = [
            (
                counts.1,
                limits.per_principal,
                "queued runs of this principal",
            ),
            (counts.0, limits.total, "queued runs"),
        ];
        for (count, limit, what) in full {
            if let Some(limit) = limit.filter(|limit| count >= i64::from(*limit)) {
                return Err(StoreError::QueueFull { what, limit }.into());
            }
        }
        Ok(())
    }

    pub(super) async fn store_submission(
        &mut self,
        run: i64,
        waiting: &WaitingRun,
    ) -> Result<(), Blocked> {
        sql::query("INSERT INTO submissions (run, sealed) VALUES (?, ?)")
            .bind(run)
            .bind(waiting.sealed.as_slice())
            .execute(self.writing())
            .await?;
        Ok(())
    }

    async fn claim(&mut self, request: &ClaimRequest) -> Result<Option<SealedClaim>, Blocked> {
        let row = sql::query(
            "SELECT id, run_id, epoch, attempt, cancel_at, cancel_by, cancel_via, cancel_reason,
                sealed, (SELECT coalesce(max(seq) + 1, 0) FROM events WHERE run = runs.id),
                max_attempts
            FROM runs JOIN submissions ON submissions.run = runs.id
            WHERE state = 'queued'
                AND (?1 IS NULL OR run_id = ?1)
                AND (?2 IS NULL OR cancel_at IS NOT NULL OR ?2 > (
                    SELECT count(*) FROM runs AS others
                    WHERE others.principal IS NOT DISTINCT FROM runs.principal AND others.state = 'running'))
            ORDER BY id LIMIT 1",
        )
        .bind(request.run_id.map(|run_id| run_id.to_string()))
        .bind(request.running_per_principal)
        .fetch_optional(&mut *self.connection)
        .await?;
        let Some(row) = row else { return Ok(None) };
        let id: i64 = row.try_get(0)?;
        let lease = Lease {
            run_id: uuid_of(row.try_get(1)?, self.by.path)?,
            epoch: row.try_get::<i64>(2)?.unsigned_abs() + 1,
        };
        let attempt = row.try_get_u32(3)? + 1;
        let claimed = SealedClaim {
            lease,
            attempt,
            max_attempts: row.try_get_u32(10)?,
            next_event: row.try_get::<i64>(9)?.unsigned_abs(),
            cancel: cancel_record(&row, 4)?,
            sealed: row.try_get(8)?,
        };
        sql::query(
            "UPDATE runs SET state = 'running', owner = ?, epoch = epoch + 1, attempt = attempt + 1,
                lease_until = ?, alive_at = ?
            WHERE id = ?",
        )
        .bind(self.by.token)
        .bind(later(self.by.now, request.lease))
        .bind(self.by.now.as_unix_millis())
        .bind(id)
        .execute(self.writing())
        .await?;
        let slot = Slot {
            id,
            owner: self.by.token.to_owned(),
            ended: false,
            next_event: claimed.next_event,
            epoch: lease.epoch,
            state: RunState::Running,
        };
        self.runs.insert(lease.run_id, slot);
        Ok(Some(claimed))
    }

    async fn requeue(&mut self, run_id: Uuid) -> Result<Done, Blocked> {
        let slot = self.own_run(run_id)?;
        let (run, state) = (slot.id, slot.after(run_id, LifecycleStep::GiveBack)?);
        let given_back = sql::query(
            "UPDATE runs SET state = ?, owner = '', lease_until = NULL
            WHERE id = ? AND id IN (SELECT run FROM submissions)",
        )
        .bind(state.as_str())
        .bind(run)
        .execute(self.writing())
        .await?;
        if given_back.rows_affected() == 0 {
            return Err(StoreError::NotQueueable(run_id).into());
        }
        if let Some(slot) = self.slot(run_id) {
            slot.owner.clear();
            slot.state = state;
        }
        Ok(Done::Written)
    }

    async fn take_over(&mut self, run_id: Uuid) -> Result<Option<TakenOver>, Blocked> {
        let by = self.by;
        let Some(slot) = self.slot(run_id) else {
            return Err(StoreError::UnknownRun(run_id).into());
        };
        // A run of this process goes on, however long ago its lease ended.
        if slot.owner == by.token {
            return Ok(None);
        }
        let Ok(next) = slot.after(run_id, LifecycleStep::TakeOver) else {
            return Ok(None);
        };
        let (id, state, owner) = (slot.id, slot.state, slot.owner.clone());
        let is_alive = by.owners.is_alive(&mut *self.connection, &owner).await?;
        let row = sql::query(
            "SELECT epoch, attempt, max_attempts,
                EXISTS (SELECT 1 FROM submissions WHERE run = runs.id), lease_until,
                EXISTS (SELECT 1 FROM applications WHERE run = runs.id)
            FROM runs WHERE id = ?",
        )
        .bind(id)
        .fetch_one(&mut *self.connection)
        .await?;
        if is_alive && !has_lapsed(&row, by.now)? {
            return Ok(None);
        }
        let epoch = row.try_get::<i64>(0)?.unsigned_abs() + 1;
        sql::query(
            "UPDATE runs SET state = ?, owner = ?, epoch = epoch + 1, lease_until = ?, pinned_to = NULL
            WHERE id = ?",
        )
        .bind(next.as_str())
        .bind(by.token)
        .bind(later(by.now, RECOVERY))
        .bind(id)
        .execute(self.writing())
        .await?;
        if let Some(slot) = self.slot(run_id) {
            by.token.clone_into(&mut slot.owner);
            slot.epoch = epoch;
            slot.state = next;
        }
        Ok(Some(TakenOver {
            lease: Lease { run_id, epoch },
            attempt: row.try_get_u32(1)?,
            max_attempts: row.try_get_u32(2)?,
            has_submission: row.try_get(3)?,
            state,
        }))
    }

    async fn renew(&mut self, run_id: Uuid, until: i64) -> Result<Option<CancelRecord>, Blocked> {
        let run = self.own_run(run_id)?.id;
        let row = sql::query(
            "UPDATE runs SET alive_at = ?, lease_until = CASE WHEN pinned_to IS NULL THEN ? END
            WHERE id = ? RETURNING cancel_at, cancel_by, cancel_via, cancel_reason",
        )
        .bind(self.by.now.as_unix_millis())
        .bind(until)
        .bind(run)
        .fetch_one(self.writing())
        .await?;
        Ok(cancel_record(&row, 0)?)
    }

    async fn request_cancel(
        &mut self,
        run_id: Uuid,
        record: &CancelRecord,
    ) -> Result<CancelDecision, Blocked> {
        let Some(slot) = self.slot(run_id) else {
            return Err(StoreError::UnknownRun(run_id).into());
        };
        let (id, state) = (slot.id, slot.state);
        if slot.ended {
            return Ok(CancelDecision::Ended(state));
        }
        let recorded = sql::query(
            "UPDATE runs SET cancel_at = ?, cancel_by = ?, cancel_via = ?, cancel_reason = ?
            WHERE id = ? AND cancel_at IS NULL",
        )
        .bind(record.at.as_unix_millis())
        .bind(record.by.as_str())
        .bind(record.via.as_str())
        .bind(record.reason.as_deref())
        .bind(id)
        .execute(self.writing())
        .await?;
        Ok(match recorded.rows_affected() {
            0 => CancelDecision::Repeated(state),
            _ => CancelDecision::Recorded(state),
        })
    }
}

/// Whether the lease of a run has ended although its process lives. Where that process is applying the
/// run's changes, nobody may come between: only its end ends the lease.
fn has_lapsed(row: &Row, now: Timestamp) -> Result<bool, sqlx::Error> {
    let until: Option<i64> = row.try_get(4)?;
    let is_applying: bool = row.try_get(5)?;
    Ok(!is_applying && until.is_some_and(|until| until < now.as_unix_millis()))
}
