//! A connection that writes, and its transactions.

use std::ops::{Deref, DerefMut};

use sqlx::{Connection as _, Error, PgConnection, SqliteConnection};

/// A connection to either database.
#[derive(Debug)]
pub(crate) struct Connection {
    link: OwnedLink,
    /// Whether a transaction was begun and not ended: it is rolled back before the next one.
    in_transaction: bool,
}

#[derive(Debug)]
enum OwnedLink {
    Sqlite(Box<SqliteConnection>),
    Postgres {
        connection: Box<PgConnection>,
        begin: BeginStatements,
    },
}

/// The statements that begin a transaction on Postgres.
#[derive(Debug, Clone)]
pub(crate) struct BeginStatements {
    pub(crate) alone: String,
    pub(crate) beside_others: String,
}

/// Whether a transaction follows all others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Access {
    /// No other transaction writes meanwhile.
    Alone,
    /// Others that also allow it may write meanwhile. On SQLite none does.
    BesideOthers,
}

/// The connection, by database.
pub(crate) enum Link<'c> {
    Sqlite(&'c mut SqliteConnection),
    Postgres(&'c mut PgConnection),
}

/// A transaction. One that is dropped changes nothing.
#[derive(Debug)]
pub(crate) struct Transaction<'c> {
    connection: &'c mut Connection,
}

impl From<SqliteConnection> for Connection {
    fn from(connection: SqliteConnection) -> Self {
        Self {
            link: OwnedLink::Sqlite(Box::new(connection)),
            in_transaction: false,
        }
    }
}

impl Connection {
    /// A connection to Postgres, whose transactions begin with these statements.
    pub(crate) fn postgres(connection: PgConnection, begin: BeginStatements) -> Self {
        Self {
            link: OwnedLink::Postgres {
                connection: Box::new(connection),
                begin,
            },
            in_transaction: false,
        }
    }

    pub(crate) fn link(&mut self) -> Link<'_> {
        match &mut self.link {
            OwnedLink::Sqlite(connection) => Link::Sqlite(connection),
            OwnedLink::Postgres { connection, .. } => Link::Postgres(connection),
        }
    }

    /// Begins a transaction that writes.
    pub(crate) async fn begin(&mut self, access: Access) -> Result<Transaction<'_>, Error> {
        if self.in_transaction {
            self.command("ROLLBACK").await?;
            self.in_transaction = false;
        }
        match &mut self.link {
            OwnedLink::Sqlite(connection) => {
                let begin = sqlx::query("BEGIN IMMEDIATE");
                begin.execute(&mut **connection).await?;
                self.in_transaction = true;
            }
            OwnedLink::Postgres { connection, begin } => {
                // Where the lock is not had in time, the transaction is begun all the same.
                self.in_transaction = true;
                let begin = match access {
                    Access::Alone => begin.alone.as_str(),
                    Access::BesideOthers => begin.beside_others.as_str(),
                };
                let begin = sqlx::raw_sql(sqlx::AssertSqlSafe(begin));
                begin.execute(&mut **connection).await?;
            }
        }
        Ok(Transaction { connection: self })
    }

    async fn command(&mut self, command: &'static str) -> Result<(), Error> {
        match self.link() {
            Link::Sqlite(connection) => {
                sqlx::query(command).execute(connection).await?;
            }
            Link::Postgres(connection) => {
                sqlx::raw_sql(command).execute(connection).await?;
            }
        }
        Ok(())
    }

    pub(crate) async fn close(self) -> Result<(), Error> {
        match self.link {
            OwnedLink::Sqlite(connection) => connection.close().await,
            OwnedLink::Postgres { connection, .. } => connection.close().await,
        }
    }
}

impl Transaction<'_> {
    /// Makes it durable.
    pub(crate) async fn commit(self) -> Result<(), Error> {
        self.end("COMMIT").await
    }

    /// Undoes it.
    pub(crate) async fn rollback(self) -> Result<(), Error> {
        self.end("ROLLBACK").await
    }

    /// Undoes it after a failure, which is what counts.
    pub(crate) async fn undo(self) {
        drop(self.rollback().await);
    }

    async fn end(self, command: &'static str) -> Result<(), Error> {
        let ended = self.connection.command(command).await;
        if ended.is_err() {
            // Whether it is still open depends on the failure; one that is not cannot be undone.
            drop(self.connection.command("ROLLBACK").await);
        }
        self.connection.in_transaction = false;
        ended
    }
}

impl Deref for Transaction<'_> {
    type Target = Connection;

    fn deref(&self) -> &Connection {
        self.connection
    }
}

impl DerefMut for Transaction<'_> {
    fn deref_mut(&mut self) -> &mut Connection {
        self.connection
    }
}
