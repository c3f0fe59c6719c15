//! The schema on Postgres, and how an older one becomes a newer one.
//!
//! Only `abp migrate` changes it: forward, step by step, in one transaction, under a lock. Processes that
//! find another version refuse it.

use std::path::{Path, PathBuf};

use abp_receipt::Hash;
use sqlx::postgres::PgConnection;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _};

use super::PostgresOptions;
use super::steps::STEPS;
use crate::StoreError;
use crate::error::Failure;

/// Counts a transaction of a process. Returns the version of the tables, the database's time, and the
/// count.
pub(super) const ENTER: &str = "UPDATE nodes SET transactions = transactions + 1
    FROM schema_version
    WHERE token = $1 AND schema_version.id = 1
    RETURNING schema_version.version,
        CAST(extract(epoch FROM clock_timestamp()) * 1000 AS BIGINT), nodes.transactions";

/// The version of the tables of a store, beside that of this release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigrationState {
    /// The database, without a password.
    pub database: PathBuf,
    /// The version that was found; 0 where there are no tables.
    pub found: i64,
    /// The version of this release.
    pub supported: i64,
}

impl MigrationState {
    /// Whether the tables are those of this release.
    #[must_use]
    pub fn is_current(&self) -> bool {
        self.found == self.supported
    }

    pub(crate) fn require_current(&self) -> Result<(), StoreError> {
        require_current(self.found, &self.database)
    }
}

/// The version of this release.
pub(crate) fn version() -> i64 {
    i64::try_from(STEPS.len()).unwrap_or(i64::MAX)
}

/// The number of a lock. Locks belong to the database, so the schema is part of it.
pub(super) fn lock_key(purpose: &str, schema: &str) -> i64 {
    let hash = Hash::of(format!("abp-store/{purpose}/{schema}").as_bytes());
    let first = hash.as_bytes().first_chunk().copied();
    i64::from_be_bytes(first.unwrap_or_default())
}

pub(super) fn require_current(found: i64, name: &Path) -> Result<(), StoreError> {
    let path = name.to_owned();
    let supported = version();
    match found.cmp(&supported) {
        std::cmp::Ordering::Equal => Ok(()),
        std::cmp::Ordering::Greater => Err(StoreError::NewerVersion {
            path,
            found,
            supported,
        }),
        std::cmp::Ordering::Less => Err(StoreError::NotMigrated {
            path,
            found,
            supported,
        }),
    }
}

/// Looks at the version, and changes nothing.
pub(crate) async fn inspect(options: &PostgresOptions) -> Result<MigrationState, StoreError> {
    let (connecting, database) = options.connecting()?;
    let failed = |error: sqlx::Error| Failure::of(&error).into_error(&database);
    let mut connection = connecting.connect().await.map_err(failed)?;
    let found = found_version(&mut connection, &options.schema)
        .await
        .map_err(failed)?;
    drop(connection.close().await);
    Ok(MigrationState {
        database,
        found,
        supported: version(),
    })
}

/// Brings the tables to the version of this release. Of several that try at once, one does it.
pub(crate) async fn migrate(options: &PostgresOptions) -> Result<MigrationState, StoreError> {
    migrate_by(options, STEPS).await
}

async fn migrate_by(
    options: &PostgresOptions,
    steps: &[&'static str],
) -> Result<MigrationState, StoreError> {
    let (connecting, database) = options.connecting()?;
    let failed = |error: sqlx::Error| Failure::of(&error).into_error(&database);
    let mut connection = connecting.connect().await.map_err(failed)?;
    let supported = i64::try_from(steps.len()).unwrap_or(i64::MAX);
    let migrated = apply(&mut connection, &options.schema, steps).await;
    let found = migrated.map_err(failed)?;
    drop(connection.close().await);
    if found > supported {
        return Err(StoreError::NewerVersion {
            path: database,
            found,
            supported,
        });
    }
    Ok(MigrationState {
        database,
        found,
        supported,
    })
}

/// Applies the steps that are missing, all of them or none; the version that was found before.
async fn apply(
    connection: &mut PgConnection,
    schema: &str,
    steps: &[&'static str],
) -> Result<i64, sqlx::Error> {
    let mut transaction = connection.begin().await?;
    // Writers are kept out as well: none may meet tables that are half made.
    for purpose in ["migrate", "write"] {
        sqlx::query("SELECT pg_advisory_xact_lock($1)")
            .bind(lock_key(purpose, schema))
            .execute(&mut *transaction)
            .await?;
    }
    let found = found_version(&mut transaction, schema).await?;
    let done = usize::try_from(found).unwrap_or(usize::MAX);
    if done >= steps.len() {
        transaction.rollback().await?;
        return Ok(found);
    }
    let prepare = format!(
        "CREATE SCHEMA IF NOT EXISTS {schema};
        CREATE TABLE IF NOT EXISTS schema_version (
            id BIGINT PRIMARY KEY CHECK (id = 1),
            version BIGINT NOT NULL
        );
        INSERT INTO schema_version (id, version) VALUES (1, 0) ON CONFLICT DO NOTHING;"
    );
    sqlx::raw_sql(AssertSqlSafe(prepare))
        .execute(&mut *transaction)
        .await?;
    for step in steps.iter().skip(done) {
        sqlx::raw_sql(*step).execute(&mut *transaction).await?;
    }
    sqlx::query("UPDATE schema_version SET version = $1 WHERE id = 1")
        .bind(i64::try_from(steps.len()).unwrap_or(i64::MAX))
        .execute(&mut *transaction)
        .await?;
    transaction.commit().await?;
    Ok(found)
}

/// The version of the tables; 0 where there are none.
async fn found_version(connection: &mut PgConnection, schema: &str) -> Result<i64, sqlx::Error> {
    let has_tables: bool = sqlx::query_scalar(
        "SELECT EXISTS (SELECT 1 FROM pg_tables
            WHERE schemaname = $1 AND tablename = 'schema_version')",
    )
    .bind(schema)
    .fetch_one(&mut *connection)
    .await?;
    if !has_tables {
        return Ok(0);
    }
    let found: Option<i64> = sqlx::query_scalar("SELECT version FROM schema_version WHERE id = 1")
        .fetch_optional(connection)
        .await?;
    Ok(found.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn locks_of_different_purposes_and_schemas_differ() {
        let keys = [("write", "abp"), ("migrate", "abp"), ("write", "other")]
            .map(|(purpose, schema)| lock_key(purpose, schema));
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2]);
    }
}
