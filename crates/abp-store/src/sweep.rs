//! What processes that are gone left behind in the accounts and in the exchange log.

use crate::batch::Writing;
use crate::engine::Blocked;
use crate::engine::connection::Connection;
use crate::engine::sql;

/// Cleans up after every process that is gone; returns how many reservations became spent.
pub(crate) async fn sweep(connection: &mut Connection, by: Writing<'_>) -> Result<u64, Blocked> {
    let owners: Vec<String> = sql::query_scalar(
        "SELECT owner FROM reservations UNION SELECT owner FROM exchange_writers",
    )
    .fetch_all(&mut *connection)
    .await?;
    let mut abandoned = 0;
    for owner in owners {
        if owner != by.token && !by.owners.is_alive(&mut *connection, &owner).await? {
            abandoned += abandon(connection, &owner).await?;
            count_crash(connection, &owner).await?;
        }
    }
    Ok(abandoned)
}

async fn abandon(connection: &mut Connection, owner: &str) -> Result<u64, Blocked> {
    sql::query(
        "UPDATE budgets SET
            reserved = reserved - cost, reserved_tokens = reserved_tokens - tokens,
            spent = CASE WHEN spent > 4611686018427387904 - cost THEN 4611686018427387904 ELSE spent + cost END,
            spent_tokens = CASE WHEN spent_tokens > 4611686018427387904 - tokens THEN 4611686018427387904 ELSE spent_tokens + tokens END,
            abandoned = abandoned + exchanges
        FROM (
            SELECT key AS payer, CAST(sum(cost) AS BIGINT) AS cost,
                CAST(sum(tokens) AS BIGINT) AS tokens, count(*) AS exchanges
            FROM reservations WHERE owner = ? GROUP BY key
        ) AS abandoned_by
        WHERE key = payer",
    )
    .bind(owner)
    .execute(&mut *connection)
    .await?;
    let removed = sql::query("DELETE FROM reservations WHERE owner = ?")
        .bind(owner)
        .execute(connection)
        .await?;
    Ok(removed.rows_affected())
}

/// A process that ended without closing its exchange log may have lost the last of its records.
async fn count_crash(connection: &mut Connection, owner: &str) -> Result<(), Blocked> {
    let left = sql::query("DELETE FROM exchange_writers WHERE owner = ?")
        .bind(owner)
        .execute(&mut *connection)
        .await?;
    if left.rows_affected() > 0 {
        tracing::warn!(target: "abp.store", owner, "a process ended with exchanges on their way");
        sql::query("UPDATE head SET exchange_crashes = exchange_crashes + 1 WHERE id = 1")
            .execute(connection)
            .await?;
    }
    Ok(())
}
