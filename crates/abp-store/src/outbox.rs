//! The outbox: messages to webhooks, written in the transaction that they tell of.
//!
//! A message is claimed for a while, delivered, and then acknowledged. What is not acknowledged in time is
//! claimed again: delivery is at least once.

use std::time::Duration;

use abp_core::Timestamp;
use serde::Serialize;
use uuid::Uuid;

use crate::batch::Writing;
use crate::command::{Command, Done};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql;
use crate::queue::later;
use crate::read::{damaged, uuid_of};
use crate::{Store, StoreError};

/// A message that waits to be delivered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OutboxMessage {
    /// Its id; a receiver that sees one twice has seen the message twice.
    pub id: i64,
    /// The run it tells of.
    pub run_id: Uuid,
    /// The webhook it goes to, by its configured name.
    pub destination: String,
    /// What it tells: `run.ended`, `approval.requested`.
    pub topic: String,
    /// The message, as JSON.
    pub body: String,
    /// When it was written.
    pub created_at: Timestamp,
    /// How often it was claimed, this time included.
    pub attempt: u32,
}

/// A change to the outbox.
#[derive(Debug)]
pub(crate) enum OutboxChange {
    Claim {
        limit: u32,
        lease: Duration,
    },
    /// It was delivered, or never will be.
    Remove(i64),
    /// It is tried again at this time.
    Retry(i64, Timestamp),
}

impl Store {
    /// Claims messages that are due, oldest first, for so long.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn claim_outbox(
        &self,
        limit: u32,
        lease: Duration,
    ) -> Result<Vec<OutboxMessage>, StoreError> {
        let change = OutboxChange::Claim { limit, lease };
        match self.ask(Command::Outbox(change)).await? {
            Done::Outbox(messages) => Ok(messages),
            _ => Err(StoreError::Closed),
        }
    }

    /// Removes a message: it was delivered, or is given up. `false` where it was removed before.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn remove_outbox(&self, id: i64) -> Result<bool, StoreError> {
        self.ask_whether(Command::Outbox(OutboxChange::Remove(id)))
            .await
    }

    /// Lets a message be claimed again at that time.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn retry_outbox(&self, id: i64, at: Timestamp) -> Result<bool, StoreError> {
        self.ask_whether(Command::Outbox(OutboxChange::Retry(id, at)))
            .await
    }
}

impl OutboxChange {
    pub(crate) async fn apply(
        &self,
        connection: &mut Connection,
        by: Writing<'_>,
    ) -> Result<Done, Blocked> {
        let changed = match self {
            Self::Claim { limit, lease } => {
                return claim(connection, by, *limit, *lease)
                    .await
                    .map(Done::Outbox);
            }
            Self::Remove(id) => {
                sql::query("DELETE FROM outbox WHERE id = ?")
                    .bind(*id)
                    .execute(connection)
                    .await?
            }
            Self::Retry(id, at) => {
                sql::query("UPDATE outbox SET due_at = ?, claimed_until = NULL WHERE id = ?")
                    .bind(at.as_unix_millis())
                    .bind(*id)
                    .execute(connection)
                    .await?
            }
        };
        Ok(Done::Changed(changed.rows_affected() > 0))
    }
}

/// Tells the webhooks of a run of its end.
pub(crate) async fn announce_end(
    connection: &mut Connection,
    by: Writing<'_>,
    run: i64,
    receipt_sha256: &str,
) -> Result<(), Blocked> {
    #[derive(Serialize)]
    struct RunEnded<'a> {
        topic: &'a str,
        run_id: &'a str,
        state: &'a str,
        ended_at: Option<i64>,
        receipt_sha256: &'a str,
    }
    let row = sql::query("SELECT run_id, state, ended_at, notify FROM runs WHERE id = ?")
        .bind(run)
        .fetch_one(&mut *connection)
        .await?;
    let topic = "run.ended";
    let message = RunEnded {
        topic,
        run_id: row.try_get(0)?,
        state: row.try_get(1)?,
        ended_at: row.try_get(2)?,
        receipt_sha256,
    };
    let to = Destinations {
        run,
        names: row.try_get(3)?,
        topic,
    };
    post(connection, by, &to, &message).await
}

/// The webhooks that are told something of a run.
pub(crate) struct Destinations<'a> {
    pub(crate) run: i64,
    /// Their names, as a JSON array.
    pub(crate) names: &'a str,
    pub(crate) topic: &'a str,
}

/// Puts a message to each webhook into the outbox.
pub(crate) async fn post(
    connection: &mut Connection,
    by: Writing<'_>,
    to: &Destinations<'_>,
    message: &impl Serialize,
) -> Result<(), Blocked> {
    let unwritable = |error| damaged(by.path, "the webhooks of a run", error);
    let names: Vec<String> = serde_json::from_str(to.names).map_err(unwritable)?;
    if names.is_empty() {
        return Ok(());
    }
    let body = serde_json::to_string(message).map_err(unwritable)?;
    for name in names {
        sql::query(
            "INSERT INTO outbox (run, destination, topic, body, created_at, due_at)
            VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
        )
        .bind(to.run)
        .bind(name)
        .bind(to.topic)
        .bind(body.as_str())
        .bind(by.now.as_unix_millis())
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}

async fn claim(
    connection: &mut Connection,
    by: Writing<'_>,
    limit: u32,
    lease: Duration,
) -> Result<Vec<OutboxMessage>, Blocked> {
    let now = by.now.as_unix_millis();
    let rows = sql::query(
        "SELECT outbox.id, runs.run_id, destination, topic, body, created_at, attempts + 1
        FROM outbox JOIN runs ON runs.id = outbox.run
        WHERE due_at <= ?1 AND (claimed_until IS NULL OR claimed_until <= ?1)
        ORDER BY due_at, outbox.id LIMIT ?2",
    )
    .bind(now)
    .bind(limit)
    .fetch_all(&mut *connection)
    .await?;
    let mut messages = Vec::with_capacity(rows.len());
    for row in rows {
        let message = OutboxMessage {
            id: row.try_get(0)?,
            run_id: uuid_of(row.try_get(1)?, by.path)?,
            destination: row.try_get(2)?,
            topic: row.try_get(3)?,
            body: row.try_get(4)?,
            created_at: Timestamp::from_unix_millis(row.try_get(5)?),
            attempt: row.try_get_u32(6)?,
        };
        sql::query(
            "UPDATE outbox SET attempts = attempts + 1, claimed_by = ?, claimed_until = ?
            WHERE id = ?",
        )
        .bind(by.token)
        .bind(later(by.now, lease))
        .bind(message.id)
        .execute(&mut *connection)
        .await?;
        messages.push(message);
    }
    Ok(messages)
}
