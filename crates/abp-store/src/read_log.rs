//! Reading the log: its entries, its leaves, its checkpoints and its keys.

use std::path::Path;

use abp_receipt::{EntryKind, Hash, LogEntry, SignedCheckpoint, VerifyingKey};

use crate::engine::sql;
use crate::log::number;
use crate::read::{MAX_PAGE_ROWS, damaged};
use crate::record::LogRecord;
use crate::{StoreError, StoreReader};

impl StoreReader {
    /// A page of the log, from that place on.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn log_entries(
        &self,
        from_seq: u64,
        limit: u32,
    ) -> Result<Vec<LogRecord>, StoreError> {
        let query =
            sql::query("SELECT seq, entry, leaf FROM log WHERE seq >= ? ORDER BY seq LIMIT ?")
                .bind(number(from_seq)?)
                .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let record = LogRecord {
                seq: row.try_get::<i64>(0)?.unsigned_abs(),
                entry: row.try_get(1)?,
                leaf: hash_of(row.try_get(2)?, self.path())?,
            };
            let size = record.entry.len();
            Ok((record, size))
        })
        .await
    }

    /// The leaf hashes of the first `size` entries: what a proof is made of.
    ///
    /// # Errors
    /// Fails where the database cannot be read, or does not have as many.
    pub async fn leaf_hashes(&self, size: u64) -> Result<Vec<Hash>, StoreError> {
        let rows: Vec<Vec<u8>> =
            sql::query_scalar("SELECT leaf FROM log WHERE seq < ? ORDER BY seq")
                .bind(number(size)?)
                .fetch_all(&self.pool)
                .await
                .map_err(|error| self.failed(&error))?;
        if rows.len() as u64 != size {
            return Err(self.broken(format!("it has {} of {size} entries", rows.len())));
        }
        rows.iter().map(|leaf| hash_of(leaf, self.path())).collect()
    }

    /// Checkpoints, newest first; only those of logs smaller than `before`.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn checkpoints(
        &self,
        before: Option<u64>,
        limit: u32,
    ) -> Result<Vec<SignedCheckpoint>, StoreError> {
        let query = sql::query(
            "SELECT note FROM checkpoints WHERE ?1 IS NULL OR size < ?1
            ORDER BY size DESC LIMIT ?2",
        )
        .bind(before.map(number).transpose()?)
        .bind(limit.min(MAX_PAGE_ROWS));
        self.page(query, |row| {
            let note: &str = row.try_get(0)?;
            let checkpoint = note
                .parse()
                .map_err(|error| self.broken(format!("a checkpoint cannot be read: {error}")))?;
            Ok((checkpoint, note.len()))
        })
        .await
    }

    /// The newest checkpoint: it covers the whole log.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn latest_checkpoint(&self) -> Result<SignedCheckpoint, StoreError> {
        let mut newest = self.checkpoints(None, 1).await?;
        newest
            .pop()
            .ok_or_else(|| self.broken("it has no checkpoint".to_owned()))
    }

    /// The public key that signs the log now.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn public_key(&self) -> Result<VerifyingKey, StoreError> {
        let text: String = sql::query_scalar("SELECT key FROM head WHERE id = 1")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        self.parse_key(&text)
    }

    /// The public key the log began with: trusting it and following the rotations in the log leads to
    /// the one that signs now.
    ///
    /// # Errors
    /// Fails where the database cannot be read.
    pub async fn first_key(&self) -> Result<VerifyingKey, StoreError> {
        let text: String = sql::query_scalar("SELECT first_key FROM head WHERE id = 1")
            .fetch_one(&self.pool)
            .await
            .map_err(|error| self.failed(&error))?;
        self.parse_key(&text)
    }

    /// How the log's key came about, oldest first.
    pub(crate) async fn rotations(&self) -> Result<Vec<LogEntry>, StoreError> {
        // Few of very many: only what looks like one is read.
        let likely: Vec<String> = sql::query_scalar(
            r#"SELECT entry FROM log WHERE instr(entry, '"key_rotated"') > 0 ORDER BY seq"#,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let mut rotations = Vec::new();
        for text in likely {
            let entry = self.entry_of(&text)?;
            if matches!(entry.kind, EntryKind::KeyRotated { .. }) {
                rotations.push(entry);
            }
        }
        Ok(rotations)
    }

    pub(crate) fn entry_of(&self, text: &str) -> Result<LogEntry, StoreError> {
        LogEntry::from_leaf_bytes(text.as_bytes()).map_err(|error| self.broken(error.to_string()))
    }

    fn parse_key(&self, text: &str) -> Result<VerifyingKey, StoreError> {
        text.parse()
            .map_err(|error| self.broken(format!("its key cannot be read: {error}")))
    }

    pub(crate) fn broken(&self, problem: String) -> StoreError {
        StoreError::LogBroken {
            path: self.path().to_owned(),
            problem,
        }
    }
}

fn hash_of(bytes: &[u8], path: &Path) -> Result<Hash, StoreError> {
    bytes
        .try_into()
        .map_err(|error| damaged(path, "a leaf hash", error))
}
