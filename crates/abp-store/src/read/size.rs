//! How much runs take in the store.

use crate::engine::sql;
use crate::{StoreError, StoreReader};

impl StoreReader {
    /// The bytes of the orders, events and receipts of all runs, or of those of one principal. Every one of
    /// them is looked at: callers keep the answer for a while.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn stored_bytes(&self, principal: Option<&str>) -> Result<u64, StoreError> {
        let bytes: i64 = sql::query_scalar(
            "SELECT CAST(coalesce(sum(
                octet_length(work_order)
                + (SELECT coalesce(sum(octet_length(json)), 0) FROM events WHERE run = runs.id)
                + (SELECT coalesce(sum(octet_length(document)), 0) FROM receipts WHERE run = runs.id)
            ), 0) AS BIGINT)
            FROM runs WHERE ?1 IS NULL OR principal = ?1",
        )
        .bind(principal)
        .fetch_one(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        Ok(bytes.unsigned_abs())
    }
}
