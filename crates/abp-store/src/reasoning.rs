//! Reasoning that a vendor wants back with the results of the tools it called.
//!
//! A caller's own format may have no place for it, so it is kept here until the caller returns with
//! the results. Everything is found by principal first: nobody is given another's.

use abp_core::Timestamp;

use crate::batch::Writing;
use crate::command::{Command, Done};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql::{self, Row};
use crate::store::FORGET_AT_ONCE;
use crate::{Store, StoreError, StoreReader};

/// The reasoning before one call of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReasoningEntry {
    /// Whose conversation it is from.
    pub principal: String,
    /// The vendor that wants it back.
    pub vendor: String,
    /// The model that reasoned.
    pub model: String,
    /// The call.
    pub call_id: String,
    /// The reasoning, as JSON, in whatever form the vendor gave it.
    pub json: String,
}

/// A change to the kept reasoning.
#[derive(Debug)]
pub(crate) enum ReasoningChange {
    Keep(Vec<ReasoningEntry>),
    ForgetBefore(Timestamp),
}

impl Store {
    /// Keeps reasoning, in the place of what the same model said before the same call.
    ///
    /// # Errors
    /// Fails where it cannot be written; then none of it is kept.
    pub async fn keep_reasoning(&self, entries: Vec<ReasoningEntry>) -> Result<(), StoreError> {
        let change = ReasoningChange::Keep(entries);
        self.ask(Command::Reasoning(change)).await.map(drop)
    }

    /// Forgets the reasoning of all principals that was kept before that, and returns how much.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn forget_reasoning_before(&self, at: Timestamp) -> Result<u64, StoreError> {
        self.forget(|| Command::Reasoning(ReasoningChange::ForgetBefore(at)))
            .await
    }
}

impl StoreReader {
    /// The reasoning before those calls, as far as that principal has any of that vendor, in the order
    /// of the calls' ids.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn reasoning(
        &self,
        principal: &str,
        vendor: &str,
        call_ids: &[&str],
    ) -> Result<Vec<ReasoningEntry>, StoreError> {
        let rows = sql::query(
            "SELECT model, call_id, json FROM reasoning
            WHERE principal = ? AND vendor = ? AND call_id IN (SELECT value FROM json_each(?))
            ORDER BY call_id, model",
        )
        .bind(principal)
        .bind(vendor)
        .bind(serde_json::json!(call_ids).to_string())
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: &Row| {
            Ok(ReasoningEntry {
                principal: principal.to_owned(),
                vendor: vendor.to_owned(),
                model: row.try_get(0)?,
                call_id: row.try_get(1)?,
                json: row.try_get(2)?,
            })
        };
        rows.iter()
            .map(read)
            .collect::<Result<_, sqlx::Error>>()
            .map_err(|error| self.failed(&error))
    }
}

impl ReasoningChange {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Keep(entries) => {
                let sizes = entries.iter().map(|entry| entry.json.len());
                sizes.fold(0, usize::saturating_add)
            }
            Self::ForgetBefore(_) => 0,
        }
    }

    pub(crate) async fn apply(
        &self,
        connection: &mut Connection,
        by: Writing<'_>,
    ) -> Result<Done, Blocked> {
        match self {
            Self::Keep(entries) => {
                for entry in entries {
                    keep(connection, entry, by.now).await?;
                }
                Ok(Done::Written)
            }
            Self::ForgetBefore(at) => {
                let forgotten = sql::query(
                    "DELETE FROM reasoning WHERE (principal, vendor, call_id, model) IN (
                        SELECT principal, vendor, call_id, model FROM reasoning
                        WHERE kept_at < ? ORDER BY kept_at LIMIT ?
                    )",
                )
                .bind(at.as_unix_millis())
                .bind(FORGET_AT_ONCE.cast_signed())
                .execute(connection)
                .await?;
                Ok(Done::Count(forgotten.rows_affected()))
            }
        }
    }
}

async fn keep(
    connection: &mut Connection,
    entry: &ReasoningEntry,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    sql::query(
        "INSERT INTO reasoning (principal, vendor, call_id, model, kept_at, json)
        VALUES (?, ?, ?, ?, ?, ?)
        ON CONFLICT (principal, vendor, call_id, model) DO UPDATE SET
            kept_at = excluded.kept_at, json = excluded.json",
    )
    .bind(entry.principal.as_str())
    .bind(entry.vendor.as_str())
    .bind(entry.call_id.as_str())
    .bind(entry.model.as_str())
    .bind(now.as_unix_millis())
    .bind(entry.json.as_str())
    .execute(connection)
    .await?;
    Ok(())
}
