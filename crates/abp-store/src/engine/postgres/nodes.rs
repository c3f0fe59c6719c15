//! The processes that have the store open: each says again and again that it lives.

use std::time::Duration;

use abp_core::Timestamp;
use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use uuid::Uuid;

use super::PostgresOptions;
use crate::engine::sql::{self, Row};
use crate::{StoreError, StoreReader};

/// Processes that have been gone for longer than this are forgotten.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60 * 60);

/// A process that has the store open, or had it open in the last hour.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeRecord {
    /// Its token, which runs name as their owner.
    pub token: String,
    /// Its name.
    pub name: String,
    /// The release it is of.
    pub version: String,
    /// When it opened the store.
    pub started_at: Timestamp,
    /// Until when it counts as alive.
    pub alive_until: Timestamp,
    /// Whether that is still to come, by the database's clock.
    pub is_alive: bool,
}

/// Says that this process lives, until it is stopped.
#[derive(Debug)]
pub(super) struct Heartbeat {
    token: String,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

#[derive(Debug, Clone)]
struct Beat {
    connecting: PgConnectOptions,
    token: String,
    name: String,
    timeout: Duration,
}

impl Heartbeat {
    pub(super) async fn start(
        options: &PostgresOptions,
        connecting: PgConnectOptions,
    ) -> Result<Self, sqlx::Error> {
        let node = options.node_name();
        let beat = Beat {
            connecting,
            token: format!("{}@{node}", Uuid::now_v7()),
            name: node,
            timeout: options.node_timeout,
        };
        let mut connection = beat.connecting.connect().await?;
        beat.say(&mut connection).await?;
        let (stop, stopped) = oneshot::channel();
        let token = beat.token.clone();
        let task = tokio::spawn(beat.run(connection, stopped));
        Ok(Self {
            token,
            stop: Some(stop),
            task: Some(task),
        })
    }

    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// Says that this process is gone.
    pub(super) async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(task) = self.task.take() {
            // A panic in it was reported where it happened.
            drop(task.await);
        }
    }
}

impl Beat {
    async fn run(self, connection: PgConnection, mut stopped: oneshot::Receiver<()>) {
        let mut connection = Some(connection);
        loop {
            tokio::select! {
                _ = &mut stopped => break,
                () = tokio::time::sleep(self.timeout / 4) => {}
            }
            if connection.is_none() {
                connection = self.connecting.connect().await.ok();
            }
            if let Some(open) = &mut connection
                && let Err(error) = self.say(open).await
            {
                tracing::warn!(target: "abp.store", %error, "the database was not told that this process lives");
                connection = None;
            }
        }
        if let Some(mut open) = connection {
            let left = sqlx::query("DELETE FROM nodes WHERE token = $1")
                .bind(self.token)
                .execute(&mut open)
                .await;
            if let Err(error) = left {
                tracing::debug!(target: "abp.store", %error, "the process is forgotten later");
            }
            drop(open.close().await);
        }
    }

    async fn say(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        sqlx::query(
            "WITH moment AS (
                SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT) AS now
            ), forgotten AS (
                DELETE FROM nodes USING moment WHERE alive_until < now - $5
            )
            INSERT INTO nodes (token, name, version, started_at, alive_until)
            SELECT $1, $2, $3, now, now + $4 FROM moment
            ON CONFLICT (token) DO UPDATE SET alive_until = excluded.alive_until",
        )
        .bind(self.token.as_str())
        .bind(self.name.as_str())
        .bind(env!("CARGO_PKG_VERSION"))
        .bind(milliseconds(self.timeout))
        .bind(milliseconds(FORGOTTEN_AFTER))
        .execute(connection)
        .await?;
        Ok(())
    }
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

impl StoreReader {
    /// The processes that have a store on Postgres open, oldest first; none for a store on SQLite.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn nodes(&self) -> Result<Vec<NodeRecord>, StoreError> {
        if matches!(self.pool, sql::Pool::Sqlite(_)) {
            return Ok(Vec::new());
        }
        let rows = sql::query(
            "SELECT token, name, version, started_at, alive_until,
                alive_until > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT)
            FROM nodes ORDER BY started_at, token",
        )
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let read = |row: &Row| {
            Ok(NodeRecord {
                token: row.try_get(0)?,
                name: row.try_get(1)?,
                version: row.try_get(2)?,
                started_at: Timestamp::from_unix_millis(row.try_get(3)?),
                alive_until: Timestamp::from_unix_millis(row.try_get(4)?),
                is_alive: row.try_get(5)?,
            })
        };
        rows.iter()
            .map(read)
            .collect::<Result<_, sqlx::Error>>()
            .map_err(|error| self.failed(&error))
    }
}
