//! Removing the events of a run, inside a transaction.

use abp_receipt::EntryKind;
use uuid::Uuid;

use super::Batch;
use crate::StoreError;
use crate::command::Done;
use crate::engine::Blocked;
use crate::engine::sql;
use crate::erase::{ERASE_AT_ONCE, EraseChange};
use crate::log::number;

impl Batch<'_> {
    pub(super) async fn erase(&mut self, change: EraseChange) -> Result<Done, Blocked> {
        match change {
            EraseChange::Begin(run_id) => self.begin_erasure(run_id).await,
            EraseChange::Go(run_id) => self.erase_events(run_id).await,
            EraseChange::Order(run_id) => self.erase_order(run_id).await,
        }
    }

    async fn begin_erasure(&mut self, run_id: Uuid) -> Result<Done, Blocked> {
        let (run, events) = match self.slot(run_id) {
            None => return Err(StoreError::UnknownRun(run_id).into()),
            Some(slot) if !slot.ended => return Err(StoreError::NotErasable(run_id).into()),
            Some(slot) => (slot.id, slot.next_event),
        };
        let (is_erased, is_undecided): (bool, bool) = sql::query_as(
            "SELECT EXISTS (SELECT 1 FROM erasures WHERE run = ?1),
                EXISTS (SELECT 1 FROM change_sets WHERE run = ?1
                    AND state IN ('proposed', 'applying', 'conflict'))",
        )
        .bind(run)
        .fetch_one(&mut *self.connection)
        .await?;
        if is_erased {
            return Ok(Done::Changed(false));
        }
        if is_undecided {
            return Err(StoreError::NotErasable(run_id).into());
        }
        let kind = EntryKind::EventsErased { run_id, events };
        let seq = self.log_entry(kind, self.by.now).await?;
        sql::query("INSERT INTO erasures (run, log_seq, is_done) VALUES (?, ?, ?)")
            .bind(run)
            .bind(number(seq)?)
            .bind(events == 0)
            .execute(self.writing())
            .await?;
        Ok(Done::Changed(true))
    }

    /// Deletes the last events there are: a reader that comes in between finds a beginning without gaps.
    async fn erase_events(&mut self, run_id: Uuid) -> Result<Done, Blocked> {
        let Some(run) = self.slot(run_id).map(|slot| slot.id) else {
            return Err(StoreError::UnknownRun(run_id).into());
        };
        let deleted = sql::query(
            "DELETE FROM events WHERE run = ?1 AND run IN (SELECT run FROM erasures)
                AND seq > (SELECT max(seq) FROM events WHERE run = ?1) - ?2",
        )
        .bind(run)
        .bind(number(ERASE_AT_ONCE)?)
        .execute(self.writing())
        .await?
        .rows_affected();
        sql::query(
            "UPDATE erasures SET is_done = ?2
            WHERE run = ?1 AND NOT EXISTS (SELECT 1 FROM events WHERE run = ?1)",
        )
        .bind(run)
        .bind(true)
        .execute(self.writing())
        .await?;
        Ok(Done::Count(deleted))
    }

    async fn erase_order(&mut self, run_id: Uuid) -> Result<Done, Blocked> {
        let Some(run) = self.slot(run_id).map(|slot| slot.id) else {
            return Err(StoreError::UnknownRun(run_id).into());
        };
        let is_erased: bool =
            sql::query_scalar("SELECT EXISTS (SELECT 1 FROM erasures WHERE run = ? AND is_done)")
                .bind(run)
                .fetch_one(&mut *self.connection)
                .await?;
        if !is_erased {
            return Err(StoreError::NotErasable(run_id).into());
        }
        sql::query("DELETE FROM approvals WHERE run = ?")
            .bind(run)
            .execute(self.writing())
            .await?;
        let emptied =
            sql::query("UPDATE runs SET work_order = '' WHERE id = ? AND work_order <> ''")
                .bind(run)
                .execute(self.writing())
                .await?;
        Ok(Done::Changed(emptied.rows_affected() > 0))
    }
}
