//! Noticing that the store changed, whichever process changed it.
//!
//! SQLite counts, for each connection, the changes by all others: `PRAGMA data_version`. On Postgres, the
//! snapshot of the next transaction changes with each that ends. One task per store asks for it while
//! anybody waits, and wakes all who wait.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions as _, Connection as _};
use tokio::sync::watch;

/// How often the store is asked whether it changed.
const POLL: Duration = Duration::from_millis(100);

/// Tells of changes to the store.
#[derive(Debug)]
pub(crate) struct ChangeWatch {
    options: WatchOptions,
    sender: watch::Sender<u64>,
    is_polling: Mutex<bool>,
}

/// The way of asking a store whether it changed.
#[derive(Debug)]
pub(crate) enum WatchOptions {
    Sqlite(Box<SqliteConnectOptions>),
    Postgres(Box<PgConnectOptions>),
}

/// A connection for asking.
enum WatchConnection {
    Sqlite(SqliteConnection),
    Postgres(PgConnection),
}

impl WatchOptions {
    async fn connect(&self) -> Result<WatchConnection, sqlx::Error> {
        Ok(match self {
            Self::Sqlite(options) => WatchConnection::Sqlite(options.connect().await?),
            Self::Postgres(options) => WatchConnection::Postgres(options.connect().await?),
        })
    }
}

impl WatchConnection {
    /// Differs from an earlier one of the same connection where something was written since.
    async fn version(&mut self) -> Result<String, sqlx::Error> {
        match self {
            Self::Sqlite(connection) => {
                let version: i64 = sqlx::query_scalar("PRAGMA data_version")
                    .fetch_one(connection)
                    .await?;
                Ok(version.to_string())
            }
            Self::Postgres(connection) => {
                sqlx::query_scalar("SELECT CAST(pg_current_snapshot() AS TEXT)")
                    .fetch_one(connection)
                    .await
            }
        }
    }

    async fn close(self) {
        // Nothing was written.
        match self {
            Self::Sqlite(connection) => drop(connection.close().await),
            Self::Postgres(connection) => drop(connection.close().await),
        }
    }
}

/// Waits for changes to a store.
#[derive(Debug)]
pub struct StoreChanges {
    receiver: watch::Receiver<u64>,
}

impl StoreChanges {
    /// Waits until the store has changed since the last call, or since this was made. A store that
    /// cannot be asked is taken to change all the time.
    pub async fn changed(&mut self) {
        if self.receiver.changed().await.is_err() {
            tokio::time::sleep(POLL).await;
        }
    }
}

impl ChangeWatch {
    pub(crate) fn new(options: WatchOptions) -> Self {
        Self {
            options,
            sender: watch::Sender::new(0),
            is_polling: Mutex::default(),
        }
    }

    pub(crate) fn subscribe(self: &Arc<Self>) -> StoreChanges {
        let receiver = self.sender.subscribe();
        let mut is_polling = self
            .is_polling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if !std::mem::replace(&mut *is_polling, true) {
            tokio::spawn(Arc::clone(self).poll());
        }
        StoreChanges { receiver }
    }

    /// Asks until nobody waits any more.
    async fn poll(self: Arc<Self>) {
        let mut connection: Option<WatchConnection> = None;
        let mut seen = None;
        loop {
            tokio::time::sleep(POLL).await;
            if connection.is_none() {
                connection = self.options.connect().await.ok();
            }
            let version = match &mut connection {
                Some(open) => open.version().await.ok(),
                None => None,
            };
            // The numbers of two connections cannot be compared, and a failure tells nothing: whoever
            // waits looks for itself.
            if version.is_none() || version != seen {
                self.sender.send_modify(|count| *count += 1);
            }
            if version.is_none() {
                connection = None;
            }
            seen = version;
            if self.stop_unwatched() {
                if let Some(open) = connection.take() {
                    open.close().await;
                }
                return;
            }
        }
    }

    /// Whether nobody waits; the next one to wait begins anew then.
    fn stop_unwatched(&self) -> bool {
        let mut is_polling = self
            .is_polling
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        *is_polling = self.sender.receiver_count() > 0;
        !*is_polling
    }
}
