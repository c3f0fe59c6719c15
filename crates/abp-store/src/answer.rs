//! Answers that are kept for callers who come back to them by id.
//!
//! Everything is found by principal and id together: for anybody else an answer is not there.

use abp_core::Timestamp;

use crate::command::{Command, Done};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql::{self, Row};
use crate::store::FORGET_AT_ONCE;
use crate::{Store, StoreError, StoreReader};

/// An answer with what it was an answer to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeptAnswer {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub principal: String,
    /// The upstream it came from.
    pub upstream: String,
    /// Whether that upstream keeps it too.
    pub native: bool,
    /// The model that gave it.
    pub model: String,
    /// When it was given.
    pub created_at: Timestamp,
    /// What it was an answer to, as a JSON array.
    pub input_items: String,
    /// The answer, as JSON.
    pub answer: String,
    /// The answer it continues.
    pub previous: Option<String>,
}

/// A change to the kept answers.
#[derive(Debug)]
pub(crate) enum AnswerChange {
    Keep(Box<KeptAnswer>),
    Forget { principal: String, id: String },
    ForgetBefore(Timestamp),
}

impl Store {
    /// Keeps an answer, in the place of one with the same id of the same principal.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn keep_answer(&self, answer: KeptAnswer) -> Result<(), StoreError> {
        let change = AnswerChange::Keep(Box::new(answer));
        self.ask(Command::Answers(change)).await.map(drop)
    }

    /// Forgets an answer; `false` where the principal has none of that id. It is then not found any
    /// more, and its space is used again, not overwritten.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn forget_answer(&self, principal: &str, id: &str) -> Result<bool, StoreError> {
        let change = AnswerChange::Forget {
            principal: principal.to_owned(),
            id: id.to_owned(),
        };
        self.ask_whether(Command::Answers(change)).await
    }

    /// Forgets the answers of all principals that are older than that, and returns how many.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn forget_answers_before(&self, at: Timestamp) -> Result<u64, StoreError> {
        self.forget(|| Command::Answers(AnswerChange::ForgetBefore(at)))
            .await
    }
}

impl StoreReader {
    /// An answer of that principal.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn answer(
        &self,
        principal: &str,
        id: &str,
    ) -> Result<Option<KeptAnswer>, StoreError> {
        let row = sql::query(
            "SELECT upstream, native, model, created_at, input_items, answer, previous
            FROM answers WHERE principal = ? AND id = ?",
        )
        .bind(principal)
        .bind(id)
        .fetch_optional(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: Row| {
            Ok(KeptAnswer {
                id: id.to_owned(),
                principal: principal.to_owned(),
                upstream: row.try_get(0)?,
                native: row.try_get(1)?,
                model: row.try_get(2)?,
                created_at: Timestamp::from_unix_millis(row.try_get(3)?),
                input_items: row.try_get(4)?,
                answer: row.try_get(5)?,
                previous: row.try_get(6)?,
            })
        };
        row.map(read)
            .transpose()
            .map_err(|error: sqlx::Error| self.failed(&error))
    }
}

impl AnswerChange {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Keep(kept) => kept.input_items.len().saturating_add(kept.answer.len()),
            Self::Forget { .. } | Self::ForgetBefore(_) => 0,
        }
    }

    pub(crate) async fn apply(&self, connection: &mut Connection) -> Result<Done, Blocked> {
        match self {
            Self::Keep(kept) => keep(connection, kept).await,
            Self::Forget { principal, id } => {
                let forgotten = sql::query("DELETE FROM answers WHERE principal = ? AND id = ?")
                    .bind(principal.as_str())
                    .bind(id.as_str())
                    .execute(connection)
                    .await?;
                Ok(Done::Changed(forgotten.rows_affected() > 0))
            }
            Self::ForgetBefore(at) => {
                let forgotten = sql::query(
                    "DELETE FROM answers WHERE (principal, id) IN (
                        SELECT principal, id FROM answers
                        WHERE created_at < ? ORDER BY created_at LIMIT ?
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

async fn keep(connection: &mut Connection, kept: &KeptAnswer) -> Result<Done, Blocked> {
    sql::query(
        "INSERT INTO answers (principal, id, upstream, native, model, created_at,
            input_items, answer, previous) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)
        ON CONFLICT (principal, id) DO UPDATE SET upstream = excluded.upstream,
            native = excluded.native, model = excluded.model, created_at = excluded.created_at,
            input_items = excluded.input_items, answer = excluded.answer,
            previous = excluded.previous",
    )
    .bind(kept.principal.as_str())
    .bind(kept.id.as_str())
    .bind(kept.upstream.as_str())
    .bind(kept.native)
    .bind(kept.model.as_str())
    .bind(kept.created_at.as_unix_millis())
    .bind(kept.input_items.as_str())
    .bind(kept.answer.as_str())
    .bind(kept.previous.as_deref())
    .execute(connection)
    .await?;
    Ok(Done::Written)
}
