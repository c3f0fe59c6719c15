//! One way to ask either database.
//!
//! Both engines keep the same tables, so a statement is written once. It is written for SQLite; where
//! the store is on Postgres, its placeholders and the few functions that have other names there are
//! replaced just before it is sent:
//!
//! ```text
//! SELECT seq FROM log WHERE seq >= ? AND instr(entry, ?) > 0
//! SELECT seq FROM log WHERE seq >= $1 AND strpos(entry, $2) > 0
//! ```
//!
//! Values and columns are of four kinds, which both have: whole numbers, texts, bytes and booleans.

use std::marker::PhantomData;
use std::pin::Pin;
use std::task::Poll;

use futures_core::Stream;
use sqlx::postgres::{PgArguments, PgPool, PgRow};
use sqlx::sqlite::{SqliteArguments, SqlitePool, SqliteRow};
use sqlx::{
    Arguments as _, AssertSqlSafe, Decode, Error, Postgres, Row as _, SqlSafeStr, SqlStr, Sqlite,
    Type,
};

use super::connection::{Connection, Link};

/// A value that a statement is given.
#[derive(Debug, Clone)]
pub(crate) enum Value {
    Number(Option<i64>),
    Text(Option<String>),
    Bytes(Option<Vec<u8>>),
    Bool(Option<bool>),
}

/// A statement with its values.
#[derive(Debug)]
pub(crate) struct Query {
    sql: SqlStr,
    values: Vec<Value>,
}

/// A statement whose rows have one column.
#[derive(Debug)]
pub(crate) struct Scalar<T> {
    query: Query,
    column: PhantomData<fn() -> T>,
}

/// A statement whose rows have a few columns.
#[derive(Debug)]
pub(crate) struct Tuples<T> {
    query: Query,
    columns: PhantomData<fn() -> T>,
}

/// A row of either database.
#[derive(Debug)]
pub(crate) enum Row {
    Sqlite(SqliteRow),
    Postgres(PgRow),
}

/// Connections that only read.
#[derive(Debug, Clone)]
pub(crate) enum Pool {
    Sqlite(SqlitePool),
    Postgres(PgPool),
}

/// The connection, pool or snapshot that carries a statement out.
pub(crate) enum Target<'c> {
    Connection(&'c mut Connection),
    Pool(&'c Pool),
    Snapshot(&'c mut Snapshot),
}

/// A transaction that only reads: whatever is written meanwhile is not in it.
pub(crate) enum Snapshot {
    Sqlite(sqlx::Transaction<'static, Sqlite>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

/// The result of a statement that writes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Executed {
    rows: u64,
}

/// Rows, one after the other.
pub(crate) enum Rows<'c> {
    Sqlite(RowStream<'c, SqliteRow>),
    Postgres(RowStream<'c, PgRow>),
    /// None came.
    Failed(Option<Error>),
}

type RowStream<'c, R> = Pin<Box<dyn Stream<Item = Result<R, Error>> + Send + 'c>>;

/// A type that columns of both databases are read as.
pub(crate) trait Column<'r>:
    Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>
{
}

impl<'r, T> Column<'r> for T where
    T: Decode<'r, Sqlite> + Type<Sqlite> + Decode<'r, Postgres> + Type<Postgres>
{
}

/// A statement. Its placeholders are `?`, or `?1` and so on where a value is used more than once.
pub(crate) fn query(sql: impl SqlSafeStr) -> Query {
    Query {
        sql: sql.into_sql_str(),
        values: Vec::new(),
    }
}

/// A statement whose rows have one column.
pub(crate) fn query_scalar<T>(sql: impl SqlSafeStr) -> Scalar<T> {
    Scalar {
        query: query(sql),
        column: PhantomData,
    }
}

/// A statement whose rows have a few columns.
pub(crate) fn query_as<T>(sql: impl SqlSafeStr) -> Tuples<T> {
    Tuples {
        query: query(sql),
        columns: PhantomData,
    }
}

impl Query {
    /// Gives the next placeholder its value.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.values.push(value.into());
        self
    }

    pub(crate) async fn execute<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Executed, Error> {
        let rows = match target.into().link() {
            TargetLink::Sqlite(connection) => {
                let done = self.for_sqlite()?.execute(connection).await?;
                done.rows_affected()
            }
            TargetLink::Postgres(connection) => {
                let done = self.for_postgres()?.execute(connection).await?;
                done.rows_affected()
            }
            TargetLink::SqlitePool(pool) => self.for_sqlite()?.execute(pool).await?.rows_affected(),
            TargetLink::PostgresPool(pool) => {
                self.for_postgres()?.execute(pool).await?.rows_affected()
            }
        };
        Ok(Executed { rows })
    }

    pub(crate) async fn fetch_optional<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Option<Row>, Error> {
        Ok(match target.into().link() {
            TargetLink::Sqlite(connection) => {
                let row = self.for_sqlite()?.fetch_optional(connection).await?;
                row.map(Row::Sqlite)
            }
            TargetLink::Postgres(connection) => {
                let row = self.for_postgres()?.fetch_optional(connection).await?;
                row.map(Row::Postgres)
            }
            TargetLink::SqlitePool(pool) => {
                let row = self.for_sqlite()?.fetch_optional(pool).await?;
                row.map(Row::Sqlite)
            }
            TargetLink::PostgresPool(pool) => {
                let row = self.for_postgres()?.fetch_optional(pool).await?;
                row.map(Row::Postgres)
            }
        })
    }

    pub(crate) async fn fetch_one<'c>(self, target: impl Into<Target<'c>>) -> Result<Row, Error> {
        let row = self.fetch_optional(target).await?;
        row.ok_or(Error::RowNotFound)
    }

    pub(crate) async fn fetch_all<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Vec<Row>, Error> {
        let mut rows = self.fetch(target);
        let mut all = Vec::new();
        while let Some(row) = rows.next().await {
            all.push(row?);
        }
        Ok(all)
    }

    /// The rows, as they come.
    pub(crate) fn fetch<'c>(self, target: impl Into<Target<'c>>) -> Rows<'c> {
        let started = || {
            Ok(match target.into().link() {
                TargetLink::Sqlite(connection) => {
                    Rows::Sqlite(self.for_sqlite()?.fetch(connection))
                }
                TargetLink::Postgres(connection) => {
                    Rows::Postgres(self.for_postgres()?.fetch(connection))
                }
                TargetLink::SqlitePool(pool) => Rows::Sqlite(self.for_sqlite()?.fetch(pool)),
                TargetLink::PostgresPool(pool) => Rows::Postgres(self.for_postgres()?.fetch(pool)),
            })
        };
        started().unwrap_or_else(|error| Rows::Failed(Some(error)))
    }

    fn for_sqlite(self) -> Result<sqlx::query::Query<'static, Sqlite, SqliteArguments>, Error> {
        let mut arguments = SqliteArguments::default();
        arguments.reserve(self.values.len(), 0);
        for value in self.values {
            let added = match value {
                Value::Number(number) => arguments.add(number),
                Value::Text(text) => arguments.add(text),
                Value::Bytes(bytes) => arguments.add(bytes),
                Value::Bool(flag) => arguments.add(flag),
            };
            added.map_err(Error::Encode)?;
        }
        Ok(sqlx::query_with(self.sql, arguments))
    }

    fn for_postgres(self) -> Result<sqlx::query::Query<'static, Postgres, PgArguments>, Error> {
        let mut arguments = PgArguments::default();
        arguments.reserve(self.values.len(), 0);
        for value in self.values {
            let added = match value {
                Value::Number(number) => arguments.add(number),
                Value::Text(text) => arguments.add(text),
                Value::Bytes(bytes) => arguments.add(bytes),
                Value::Bool(flag) => arguments.add(flag),
            };
            added.map_err(Error::Encode)?;
        }
        let sql = AssertSqlSafe(postgres_text(self.sql.as_str()));
        Ok(sqlx::query_with(sql, arguments))
    }
}

impl<T> Scalar<T>
where
    T: for<'r> Column<'r>,
{
    /// Gives the next placeholder its value.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_one<'c>(self, target: impl Into<Target<'c>>) -> Result<T, Error> {
        self.query.fetch_one(target).await?.try_get(0)
    }

    pub(crate) async fn fetch_optional<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Option<T>, Error> {
        let row = self.query.fetch_optional(target).await?;
        row.map(|row| row.try_get(0)).transpose()
    }

    pub(crate) async fn fetch_all<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query.fetch_all(target).await?;
        rows.iter().map(|row| row.try_get(0)).collect()
    }
}

impl<T: FromColumns> Tuples<T> {
    /// Gives the next placeholder its value.
    pub(crate) fn bind(mut self, value: impl Into<Value>) -> Self {
        self.query = self.query.bind(value);
        self
    }

    pub(crate) async fn fetch_one<'c>(self, target: impl Into<Target<'c>>) -> Result<T, Error> {
        T::from_columns(&self.query.fetch_one(target).await?)
    }

    pub(crate) async fn fetch_optional<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Option<T>, Error> {
        let row = self.query.fetch_optional(target).await?;
        row.as_ref().map(T::from_columns).transpose()
    }

    pub(crate) async fn fetch_all<'c>(
        self,
        target: impl Into<Target<'c>>,
    ) -> Result<Vec<T>, Error> {
        let rows = self.query.fetch_all(target).await?;
        rows.iter().map(T::from_columns).collect()
    }
}

/// The columns of a row, from the first on.
pub(crate) trait FromColumns: Sized {
    fn from_columns(row: &Row) -> Result<Self, Error>;
}

impl<A, B> FromColumns for (A, B)
where
    A: for<'r> Column<'r>,
    B: for<'r> Column<'r>,
{
    fn from_columns(row: &Row) -> Result<Self, Error> {
        Ok((row.try_get(0)?, row.try_get(1)?))
    }
}

impl<A, B, C> FromColumns for (A, B, C)
where
    A: for<'r> Column<'r>,
    B: for<'r> Column<'r>,
    C: for<'r> Column<'r>,
{
    fn from_columns(row: &Row) -> Result<Self, Error> {
        Ok((row.try_get(0)?, row.try_get(1)?, row.try_get(2)?))
    }
}

impl<A, B, C, D> FromColumns for (A, B, C, D)
where
    A: for<'r> Column<'r>,
    B: for<'r> Column<'r>,
    C: for<'r> Column<'r>,
    D: for<'r> Column<'r>,
{
    fn from_columns(row: &Row) -> Result<Self, Error> {
        Ok((
            row.try_get(0)?,
            row.try_get(1)?,
            row.try_get(2)?,
            row.try_get(3)?,
        ))
    }
}

impl Row {
    /// A column, counted from 0.
    pub(crate) fn try_get<'r, T: Column<'r>>(&'r self, column: usize) -> Result<T, Error> {
        match self {
            Self::Sqlite(row) => row.try_get(column),
            Self::Postgres(row) => row.try_get(column),
        }
    }

    /// A column with a small count.
    pub(crate) fn try_get_u32(&self, column: usize) -> Result<u32, Error> {
        let count = self.try_get_optional_u32(column)?;
        count.ok_or_else(|| Error::Decode("a count is missing".into()))
    }

    /// A column with a small count, or nothing.
    pub(crate) fn try_get_optional_u32(&self, column: usize) -> Result<Option<u32>, Error> {
        let count: Option<i64> = self.try_get(column)?;
        let small = count.map(u32::try_from).transpose();
        small.map_err(|error| Error::Decode(error.into()))
    }
}

impl Rows<'_> {
    /// The next row.
    pub(crate) async fn next(&mut self) -> Option<Result<Row, Error>> {
        std::future::poll_fn(|context| match self {
            Self::Sqlite(rows) => {
                let next = rows.as_mut().poll_next(context);
                next.map(|row| row.map(|row| row.map(Row::Sqlite)))
            }
            Self::Postgres(rows) => {
                let next = rows.as_mut().poll_next(context);
                next.map(|row| row.map(|row| row.map(Row::Postgres)))
            }
            Self::Failed(error) => Poll::Ready(error.take().map(Err)),
        })
        .await
    }
}

impl Executed {
    /// The number of rows that were inserted, changed or deleted.
    pub(crate) fn rows_affected(self) -> u64 {
        self.rows
    }
}

impl Pool {
    /// Begins to read what is there now.
    pub(crate) async fn snapshot(&self) -> Result<Snapshot, Error> {
        Ok(match self {
            Self::Sqlite(pool) => Snapshot::Sqlite(pool.begin().await?),
            Self::Postgres(pool) => {
                let begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
                Snapshot::Postgres(pool.begin_with(begin).await?)
            }
        })
    }

    /// Closes the connections, and waits until they are closed.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(pool) => pool.close().await,
            Self::Postgres(pool) => pool.close().await,
        }
    }
}

/// The connection or pool of one database that carries a statement out.
enum TargetLink<'c> {
    Sqlite(&'c mut sqlx::SqliteConnection),
    Postgres(&'c mut sqlx::PgConnection),
    SqlitePool(&'c SqlitePool),
    PostgresPool(&'c PgPool),
}

impl<'c> Target<'c> {
    fn link(self) -> TargetLink<'c> {
        match self {
            Self::Connection(connection) => match connection.link() {
                Link::Sqlite(connection) => TargetLink::Sqlite(connection),
                Link::Postgres(connection) => TargetLink::Postgres(connection),
            },
            Self::Pool(Pool::Sqlite(pool)) => TargetLink::SqlitePool(pool),
            Self::Pool(Pool::Postgres(pool)) => TargetLink::PostgresPool(pool),
            Self::Snapshot(Snapshot::Sqlite(transaction)) => TargetLink::Sqlite(transaction),
            Self::Snapshot(Snapshot::Postgres(transaction)) => TargetLink::Postgres(transaction),
        }
    }
}

impl<'c> From<&'c mut Connection> for Target<'c> {
    fn from(connection: &'c mut Connection) -> Self {
        Self::Connection(connection)
    }
}

impl<'c> From<&'c Pool> for Target<'c> {
    fn from(pool: &'c Pool) -> Self {
        Self::Pool(pool)
    }
}

impl<'c> From<&'c mut Snapshot> for Target<'c> {
    fn from(snapshot: &'c mut Snapshot) -> Self {
        Self::Snapshot(snapshot)
    }
}

impl From<i64> for Value {
    fn from(number: i64) -> Self {
        Self::Number(Some(number))
    }
}

impl From<Option<i64>> for Value {
    fn from(number: Option<i64>) -> Self {
        Self::Number(number)
    }
}

impl From<u32> for Value {
    fn from(number: u32) -> Self {
        Self::Number(Some(number.into()))
    }
}

impl From<Option<u32>> for Value {
    fn from(number: Option<u32>) -> Self {
        Self::Number(number.map(i64::from))
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(Some(text.to_owned()))
    }
}

impl From<Option<&str>> for Value {
    fn from(text: Option<&str>) -> Self {
        Self::Text(text.map(str::to_owned))
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(Some(text))
    }
}

impl From<Option<String>> for Value {
    fn from(text: Option<String>) -> Self {
        Self::Text(text)
    }
}

impl From<&[u8]> for Value {
    fn from(bytes: &[u8]) -> Self {
        Self::Bytes(Some(bytes.to_vec()))
    }
}

impl From<Vec<u8>> for Value {
    fn from(bytes: Vec<u8>) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl From<bool> for Value {
    fn from(flag: bool) -> Self {
        Self::Bool(Some(flag))
    }
}

impl From<Option<bool>> for Value {
    fn from(flag: Option<bool>) -> Self {
        Self::Bool(flag)
    }
}

/// Names of SQLite with their names in Postgres.
const POSTGRES_NAMES: [(&str, &str); 2] = [
    ("instr(", "strpos("),
    ("CAST(entry AS BLOB)", "convert_to(entry, 'UTF8')"),
];

/// A statement as Postgres takes it. No statement has a question mark that is not a placeholder.
fn postgres_text(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 16);
    let mut place = 0;
    let mut parts = sql.split('?');
    text.push_str(parts.next().unwrap_or_default());
    for part in parts {
        text.push('$');
        if !part.starts_with(|first: char| first.is_ascii_digit()) {
            place += 1;
            text.push_str(&place.to_string());
        }
        text.push_str(part);
    }
    for (sqlite, postgres) in POSTGRES_NAMES {
        if text.contains(sqlite) {
            text = text.replace(sqlite, postgres);
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::postgres_text;

    #[test]
    fn placeholders_are_numbered_for_postgres() {
        for (sqlite, postgres) in [
            ("SELECT 1", "SELECT 1"),
            ("a = ? AND b = ?", "a = $1 AND b = $2"),
            ("?", "$1"),
            (
                "?1 IS NULL OR a < ?1 LIMIT ?12",
                "$1 IS NULL OR a < $1 LIMIT $12",
            ),
            ("(?, ?, ?)", "($1, $2, $3)"),
            ("instr(entry, ?) > 0", "strpos(entry, $1) > 0"),
        ] {
            assert_eq!(postgres_text(sqlite), postgres);
        }
    }
}
