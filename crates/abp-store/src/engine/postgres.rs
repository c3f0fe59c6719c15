//! Postgres: one schema of one database, shared by any number of processes on any number of nodes.
//!
//! Every process has one task that writes, as on SQLite, and commits together whatever waits. Its
//! transactions take one lock of the database (an advisory lock of the schema) and so follow each other:
//! what one of them reads is true until it commits, and the log has one order. Those that only append
//! events to runs of their own process, renew its leases, or reserve and settle budgets share the lock and
//! go on at the same time: whose a run is and by which epoch cannot change meanwhile, because that takes
//! the lock alone, and a budget's row is changed by a statement that compares it with its limit. The lock
//! is asked for by the statement that begins the transaction, and ends with it, however that is.
//!
//! Times are the database's, so that clocks of nodes that differ cannot end a lease early or late.

pub(crate) mod failure;
mod nodes;
pub(crate) mod schema;
mod steps;

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use abp_core::Timestamp;
use sqlx::ConnectOptions as _;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgSslMode};
use tokio::time::Instant;

use self::nodes::Heartbeat;
use super::connection::{Access, BeginStatements, Connection, Link};
use super::owners::Owners;
use super::sql::{self, Pool};
use super::{Blocked, Entered};
use crate::StoreError;
use crate::error::Failure;

pub use self::nodes::NodeRecord;
pub use self::schema::MigrationState;

/// The interval at which the database is asked what became of a transaction.
const OUTCOME_POLL: Duration = Duration::from_millis(50);

/// A store on Postgres.
#[derive(Debug, Clone)]
pub struct PostgresOptions {
    /// The address: `postgres://user:password@host:5432/database?sslmode=verify-full`.
    pub url: String,
    /// The schema of that database that the store is in.
    pub schema: String,
    /// The directory with the keys of the log and of submissions. They are the operator's: every node
    /// needs the same files.
    pub keys: PathBuf,
    /// The name of this node: of the machine that its files are on. The host name where it is empty.
    pub node: String,
    /// The most connections for reading.
    pub max_connections: u32,
    /// The time that a statement may take.
    pub statement_timeout: Duration,
    /// The time that a process counts as alive after it last said so.
    pub node_timeout: Duration,
    /// Replaces the database's clock. Only for tests.
    pub clock: Option<fn() -> Timestamp>,
}

impl PostgresOptions {
    /// The usual settings for a store at this address, with the keys in this directory.
    #[must_use]
    pub fn new(url: &str, keys: &Path) -> Self {
        Self {
            url: url.to_owned(),
            schema: "abp".to_owned(),
            keys: keys.to_owned(),
            node: String::new(),
            max_connections: 8,
            statement_timeout: Duration::from_secs(30),
            node_timeout: Duration::from_secs(15),
            clock: None,
        }
    }

    fn node_name(&self) -> String {
        match self.node.as_str() {
            "" => rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            node => node.to_owned(),
        }
    }

    /// The options of connections, and the name that errors have for the database: without a password.
    pub(crate) fn connecting(&self) -> Result<(PgConnectOptions, PathBuf), StoreError> {
        let refused = |problem: String| StoreError::DatabaseUrl { problem };
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
        if self.schema.is_empty() || !self.schema.chars().all(is_plain) {
            let problem = format!(
                "the schema {:?} is not made of lower-case letters, digits and underscores",
                self.schema
            );
            return Err(refused(problem));
        }
        let options: PgConnectOptions = self
            .url
            .parse()
            .map_err(|error: sqlx::Error| refused(error.to_string()))?;
        let host = options.get_host().to_owned();
        let is_local = options.get_socket().is_some() || is_local(&host);
        let options = match options.get_ssl_mode() {
            // What only prefers encryption can be talked out of it on the way.
            PgSslMode::Allow | PgSslMode::Prefer if !is_local => {
                options.ssl_mode(PgSslMode::VerifyFull)
            }
            PgSslMode::Disable if !is_local => {
                tracing::warn!(target: "abp.store", host, "the database is reached without encryption");
                options
            }
            _ => options,
        };
        let name = format!(
            "postgres://{host}:{}/{}",
            options.get_port(),
            options.get_database().unwrap_or(options.get_username())
        );
        let milliseconds = |time: Duration| format!("{}ms", time.as_millis());
        let options = options
            .application_name("abp")
            .options([
                ("search_path", self.schema.clone()),
                // What is reported as done is on the disk, whatever the server's default is.
                ("synchronous_commit", "on".to_owned()),
                ("statement_timeout", milliseconds(self.statement_timeout)),
                // A process that was stopped inside a transaction must not stop all others.
                (
                    "idle_in_transaction_session_timeout",
                    milliseconds(self.node_timeout),
                ),
            ])
            .disable_statement_logging();
        Ok((options, PathBuf::from(name)))
    }

    /// Connections that only read.
    pub(crate) fn pool(&self, connecting: PgConnectOptions) -> Pool {
        let reading = connecting.options([
            ("default_transaction_read_only", "on"),
            // Verifying reads whole tables.
            ("statement_timeout", "10min"),
        ]);
        let pool = PgPoolOptions::new()
            .max_connections(self.max_connections.max(2))
            .acquire_timeout(self.statement_timeout)
            .idle_timeout(Duration::from_secs(60))
            .connect_lazy_with(reading);
        Pool::Postgres(pool)
    }
}

/// Whether bytes for that host stay on this machine.
fn is_local(host: &str) -> bool {
    host.starts_with('/') || matches!(host, "localhost" | "127.0.0.1" | "::1" | "[::1]")
}

/// The database, as the task that writes it sees it.
#[derive(Debug)]
pub(crate) struct PostgresEngine {
    name: PathBuf,
    options: PgConnectOptions,
    /// Begin a transaction and take the lock of all that write.
    begin: BeginStatements,
    owners: Owners,
    heartbeat: Heartbeat,
    clock: Option<fn() -> Timestamp>,
}

impl PostgresEngine {
    /// Says that this process lives, until it is closed.
    pub(crate) async fn start(options: &PostgresOptions) -> Result<Self, StoreError> {
        let (connecting, name) = options.connecting()?;
        let heartbeat = Heartbeat::start(options, connecting.clone())
            .await
            .map_err(|error| Failure::of(&error).into_error(&name))?;
        let key = schema::lock_key("write", &options.schema);
        Ok(Self {
            name,
            options: connecting,
            begin: BeginStatements {
                alone: format!("BEGIN; SELECT pg_advisory_xact_lock({key})"),
                beside_others: format!("BEGIN; SELECT pg_advisory_xact_lock_shared({key})"),
            },
            owners: Owners::Table,
            heartbeat,
            clock: options.clock,
        })
    }

    pub(super) fn token(&self) -> &str {
        self.heartbeat.token()
    }

    pub(super) fn owners(&self) -> &Owners {
        &self.owners
    }

    pub(crate) async fn connect(&self) -> Result<Connection, sqlx::Error> {
        let connection = self.options.connect().await?;
        Ok(Connection::postgres(connection, self.begin.clone()))
    }

    /// The time and number of the transaction, where the tables are those of this release.
    pub(super) async fn enter(&self, transaction: &mut Connection) -> Result<Entered, Blocked> {
        let entered: Option<(i64, i64, i64)> = match transaction.link() {
            Link::Postgres(connection) => {
                let enter = sqlx::query_as(schema::ENTER).bind(self.token());
                enter.fetch_optional(connection).await?
            }
            Link::Sqlite(_) => return Err(StoreError::Closed.into()),
        };
        // A process that was stopped for an hour says first that it lives again.
        let forgotten = || io::Error::new(io::ErrorKind::NotConnected, "the process was forgotten");
        let (found, now, number) = entered.ok_or_else(|| sqlx::Error::Io(forgotten()))?;
        schema::require_current(found, &self.name)?;
        Ok(Entered {
            now: match self.clock {
                Some(clock) => clock(),
                None => Timestamp::from_unix_millis(now),
            },
            transaction: Some(number),
        })
    }

    /// Asks a new connection whether a transaction is there whose commit was not answered.
    ///
    /// The number of the transaction is part of what it wrote. (The server's own number would not do: after
    /// a crash of the server it can be that of another transaction.) The lock is taken first, so that a
    /// transaction that the server still carries out has ended.
    pub(super) async fn was_committed(&self, number: i64, patience: Duration) -> Option<bool> {
        let deadline = Instant::now() + patience;
        loop {
            match self.last_transaction().await {
                Ok(Some(last)) => return Some(last >= number),
                Ok(None) => return None,
                Err(error) if Instant::now() < deadline => {
                    tracing::debug!(target: "abp.store", %error, "the outcome of a write is not known yet");
                    tokio::time::sleep(OUTCOME_POLL).await;
                }
                Err(_) => return None,
            }
        }
    }

    /// The number of the last transaction of this process that is there.
    async fn last_transaction(&self) -> Result<Option<i64>, sqlx::Error> {
        let mut connection = self.connect().await?;
        let mut transaction = connection.begin(Access::Alone).await?;
        let last = sql::query_scalar("SELECT transactions FROM nodes WHERE token = ?")
            .bind(self.token())
            .fetch_optional(&mut *transaction)
            .await;
        transaction.undo().await;
        drop(connection.close().await);
        last
    }

    pub(super) async fn close(self) {
        self.heartbeat.stop().await;
    }
}

/// The node of a process, which its token names after a random part.
pub(crate) fn node_of(token: &str) -> Option<&str> {
    token.split_once('@').map(|(_, node)| node)
}

/// Whether the process with that token said lately that it lives.
pub(crate) async fn is_alive(target: sql::Target<'_>, token: &str) -> Result<bool, sqlx::Error> {
    sql::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM nodes WHERE token = ?
            AND alive_until > CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT))",
    )
    .bind(token)
    .fetch_one(target)
    .await
}
