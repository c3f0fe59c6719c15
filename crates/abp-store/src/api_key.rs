//! The keys that callers of the gateway show.
//!
//! Only the hash of a key's secret is kept. A key is never removed, so that what was done with it can
//! still be told; it is revoked.

use abp_core::{MicroUsd, Timestamp};

use crate::batch::Writing;
use crate::command::{Command, Done};
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql::{self, Row};
use crate::log::number;
use crate::read::{Unreadable, damaged};
use crate::{KeyScope, Store, StoreError, StoreReader};

/// A key to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApiKey {
    /// Its public name, which may be shown anywhere.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// The SHA-256 of its secret.
    pub sha256: [u8; 32],
    /// The models it may use, as globs; none means all.
    pub models: Vec<String>,
    /// How many requests it may make in a minute.
    pub requests_per_minute: Option<u32>,
    /// How many tokens it may use in a minute.
    pub tokens_per_minute: Option<u64>,
    /// How much it may spend.
    pub budget: Option<MicroUsd>,
    /// How many tokens it may use.
    pub token_budget: Option<u64>,
    /// How many tokens one answer may have.
    pub max_output_tokens: Option<u64>,
    /// The most requests it may have at once.
    pub max_concurrent: Option<u32>,
    /// The most MCP sessions it may have at once.
    pub max_sessions: Option<u32>,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// When it is no longer good.
    pub expires_at: Option<Timestamp>,
}

/// A key, as the store knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiKeyRecord {
    /// Its public name.
    pub id: String,
    /// What its owner calls it.
    pub name: String,
    /// The SHA-256 of its secret.
    pub sha256: [u8; 32],
    /// The models it may use, as globs; none means all.
    pub models: Vec<String>,
    /// How many requests it may make in a minute.
    pub requests_per_minute: Option<u32>,
    /// How many tokens it may use in a minute.
    pub tokens_per_minute: Option<u64>,
    /// How much it may spend.
    pub budget: Option<MicroUsd>,
    /// How many tokens it may use.
    pub token_budget: Option<u64>,
    /// How many tokens one answer may have.
    pub max_output_tokens: Option<u64>,
    /// The most requests it may have at once.
    pub max_concurrent: Option<u32>,
    /// The most MCP sessions it may have at once.
    pub max_sessions: Option<u32>,
    /// What it may do.
    pub scopes: Vec<KeyScope>,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it is no longer good.
    pub expires_at: Option<Timestamp>,
    /// When it was revoked.
    pub revoked_at: Option<Timestamp>,
}

/// A change to the keys.
#[derive(Debug)]
pub(crate) enum KeyChange {
    Add(Box<NewApiKey>),
    Revoke(String),
}

impl Store {
    /// Adds a key, with an empty account of what it spends.
    ///
    /// # Errors
    /// Refuses an id or a secret that is there already.
    pub async fn add_key(&self, key: NewApiKey) -> Result<(), StoreError> {
        let change = KeyChange::Add(Box::new(key));
        self.ask(Command::Keys(change)).await.map(drop)
    }

    /// Revokes a key for ever; `false` where there is no such key or it was revoked before.
    ///
    /// # Errors
    /// Fails where it cannot be written.
    pub async fn revoke_key(&self, id: &str) -> Result<bool, StoreError> {
        let change = KeyChange::Revoke(id.to_owned());
        self.ask_whether(Command::Keys(change)).await
    }
}

impl StoreReader {
    /// All keys, oldest first, also those that are no longer good.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn api_keys(&self) -> Result<Vec<ApiKeyRecord>, StoreError> {
        let rows = sql::query(
            "SELECT id, name, sha256, models, requests_per_minute, tokens_per_minute, budget,
                token_budget, max_output_tokens, created_at, expires_at, revoked_at, max_concurrent,
                max_sessions, scopes
            FROM api_keys ORDER BY rowid",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: &Row| {
            api_key(row, self).map_err(|error| match error {
                Unreadable::Row(error) => self.failed(&error),
                Unreadable::Value(error) => error,
            })
        };
        rows.iter().map(read).collect()
    }

    /// Counts the changes of keys by any process: while it stays the same, so do the keys.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn keys_version(&self) -> Result<u64, StoreError> {
        let version: i64 = sql::query_scalar("SELECT keys_version FROM head WHERE id = 1")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        Ok(version.unsigned_abs())
    }
}

impl KeyChange {
    pub(crate) fn size(&self) -> usize {
        match self {
            Self::Add(key) => {
                let models = key.models.iter().map(String::len);
                key.name.len().saturating_add(models.sum())
            }
            Self::Revoke(_) => 0,
        }
    }

    pub(crate) async fn apply(
        &self,
        connection: &mut Connection,
        by: Writing<'_>,
    ) -> Result<Done, Blocked> {
        let done = match self {
            Self::Add(key) => {
                add(connection, key, by.now).await?;
                Done::Written
            }
            Self::Revoke(id) => {
                let revoked = sql::query(
                    "UPDATE api_keys SET revoked_at = ? WHERE id = ? AND revoked_at IS NULL",
                )
                .bind(by.now.as_unix_millis())
                .bind(id.as_str())
                .execute(&mut *connection)
                .await?;
                if revoked.rows_affected() == 0 {
                    return Ok(Done::Changed(false));
                }
                Done::Changed(true)
            }
        };
        sql::query("UPDATE head SET keys_version = keys_version + 1 WHERE id = 1")
            .execute(connection)
            .await?;
        Ok(done)
    }
}

async fn add(connection: &mut Connection, key: &NewApiKey, now: Timestamp) -> Result<(), Blocked> {
    let taken: bool =
        sql::query_scalar("SELECT EXISTS (SELECT 1 FROM api_keys WHERE id = ? OR sha256 = ?)")
            .bind(key.id.as_str())
            .bind(key.sha256.as_slice())
            .fetch_one(&mut *connection)
            .await?;
    if taken {
        return Err(StoreError::DuplicateApiKey(key.id.clone()).into());
    }
    sql::query(
        "INSERT INTO api_keys (id, name, sha256, models, requests_per_minute, tokens_per_minute,
            budget, token_budget, max_output_tokens, created_at, expires_at, max_concurrent,
            max_sessions, scopes)
        VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
    .bind(key.id.as_str())
    .bind(key.name.as_str())
    .bind(key.sha256.as_slice())
    .bind(serde_json::json!(key.models).to_string())
    .bind(key.requests_per_minute)
    .bind(key.tokens_per_minute.map(number).transpose()?)
    .bind(key.budget.map(MicroUsd::micros).map(number).transpose()?)
    .bind(key.token_budget.map(number).transpose()?)
    .bind(key.max_output_tokens.map(number).transpose()?)
    .bind(now.as_unix_millis())
    .bind(key.expires_at.map(Timestamp::as_unix_millis))
    .bind(key.max_concurrent)
    .bind(key.max_sessions)
    .bind(serde_json::json!(key.scopes).to_string())
    .execute(&mut *connection)
    .await?;
    sql::query("INSERT INTO budgets (key) VALUES (?)")
        .bind(key.id.as_str())
        .execute(connection)
        .await?;
    Ok(())
}

fn api_key(row: &Row, reader: &StoreReader) -> Result<ApiKeyRecord, Unreadable> {
    let count = |column: usize| {
        let value: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(value.map(i64::unsigned_abs))
    };
    let time = |column: usize| {
        let value: Option<i64> = row.try_get(column)?;
        Ok::<_, sqlx::Error>(value.map(Timestamp::from_unix_millis))
    };
    let sha256: &[u8] = row.try_get(2)?;
    let models: &str = row.try_get(3)?;
    Ok(ApiKeyRecord {
        id: row.try_get(0)?,
        name: row.try_get(1)?,
        sha256: sha256
            .try_into()
            .map_err(|error| damaged(reader.path(), "the hash of an API key", error))?,
        models: serde_json::from_str(models)
            .map_err(|error| damaged(reader.path(), "the models of an API key", error))?,
        requests_per_minute: row.try_get_optional_u32(4)?,
        tokens_per_minute: count(5)?,
        budget: count(6)?.map(MicroUsd::from_micros),
        token_budget: count(7)?,
        max_output_tokens: count(8)?,
        max_concurrent: row.try_get_optional_u32(12)?,
        max_sessions: row.try_get_optional_u32(13)?,
        scopes: serde_json::from_str(row.try_get(14)?)
            .map_err(|error| damaged(reader.path(), "the scopes of an API key", error))?,
        created_at: Timestamp::from_unix_millis(row.try_get(9)?),
        expires_at: time(10)?,
        revoked_at: time(11)?,
    })
}
