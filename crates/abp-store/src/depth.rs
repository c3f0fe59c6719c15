//! The depth of the queue and its oldest wait.

use abp_core::Timestamp;

use crate::engine::sql;
use crate::{StoreError, StoreReader};

impl StoreReader {
    /// The number of runs that wait to be claimed, and the time at which the oldest of them was accepted.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn queue_depth(&self) -> Result<(u64, Option<Timestamp>), StoreError> {
        let (depth, oldest): (i64, Option<i64>) =
            sql::query_as("SELECT count(*), min(accepted_at) FROM runs WHERE state = 'queued'")
                .fetch_one(&self.pool)
                .await
                .map_err(|error| self.failed(&error))?;
        Ok((
            depth.unsigned_abs(),
            oldest.map(Timestamp::from_unix_millis),
        ))
    }
}
