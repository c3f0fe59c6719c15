//! Looks a receipt up in a log, after checking that the log is the one that was signed.

use std::path::Path;

use abp_receipt::{
    EntryKind, Frontier, Hash, KeyRing, LogEntry, LoggedReceipt, ReceiptFile, ReceiptVerdict,
    merkle,
};
use uuid::Uuid;

use crate::engine::sql;
use crate::log::number;
use crate::{StoreError, StoreLocation, StoreReader};

/// A log whose stored leaves lead to a signed checkpoint: what it says of a run can be believed.
///
/// Every entry that is looked up is hashed and compared with its leaf, so the whole log is read once
/// however many receipts are judged.
#[derive(Debug)]
pub struct TrustedLog {
    reader: StoreReader,
    size: u64,
}

/// The log that receipts are judged by.
#[derive(Debug)]
enum LocalLog {
    None,
    Unusable(String),
    Trusted(TrustedLog),
}

/// Judges files that claim to be receipts, by the log of a state directory and by trusted keys.
#[derive(Debug)]
pub struct ReceiptJudge {
    keys: Option<KeyRing>,
    log: LocalLog,
}

impl ReceiptJudge {
    /// Opens the log of a state directory, where there is one, and creates nothing. With keys, the
    /// log is believed if one of them signed it; without, if its own key did. A log that cannot be
    /// believed is no error: it vouches for nothing, and every verdict says why.
    pub async fn open(state_dir: Option<&Path>, keys: Option<KeyRing>) -> Self {
        let location = state_dir.map(|state_dir| StoreLocation::Directory(state_dir.to_owned()));
        Self::open_at(location.as_ref(), keys).await
    }

    /// As [`open`](Self::open), for a log that may be elsewhere than in a state directory.
    pub async fn open_at(location: Option<&StoreLocation>, keys: Option<KeyRing>) -> Self {
        let log = match location {
            None => LocalLog::None,
            Some(location) => match location.open_reader().await {
                Ok(None) => LocalLog::None,
                Err(error) => LocalLog::Unusable(error.to_string()),
                Ok(Some(reader)) => match reader.trusted_log(keys.as_ref()).await {
                    Ok(log) => LocalLog::Trusted(log),
                    Err(error) => {
                        reader.close().await;
                        LocalLog::Unusable(error.to_string())
                    }
                },
            },
        };
        Self { keys, log }
    }

    /// Says which of the three things a file is.
    pub async fn judge(&self, bytes: &[u8]) -> ReceiptVerdict {
        let file = match ReceiptFile::read(bytes) {
            Ok(file) => file,
            Err(verdict) => return verdict,
        };
        let logged = match &self.log {
            LocalLog::None => LoggedReceipt::NoLog,
            LocalLog::Unusable(problem) => LoggedReceipt::Unusable {
                problem: problem.clone(),
            },
            LocalLog::Trusted(log) => match log.find(file.run_id()).await {
                Ok(logged) => logged,
                Err(error) => LoggedReceipt::Unusable {
                    problem: error.to_string(),
                },
            },
        };
        file.judge(self.keys.as_ref(), logged)
    }

    /// Closes the log.
    pub async fn close(self) {
        if let LocalLog::Trusted(log) = self.log {
            log.reader.close().await;
        }
    }
}

impl StoreReader {
    /// Checks that the leaves of the log lead to its newest checkpoint, and that a trusted key signed
    /// that: one of `keys`, or without them the key that the log began with and its successors.
    ///
    /// # Errors
    /// Says why the log cannot be believed.
    pub async fn trusted_log(&self, keys: Option<&KeyRing>) -> Result<TrustedLog, StoreError> {
        let mut ring = match keys {
            Some(keys) => keys.clone(),
            None => KeyRing::of(self.first_key().await?),
        };
        for rotation in self.rotations().await? {
            // A rotation of a key that is not trusted leads nowhere; the checkpoint tells.
            if let Err(error) = ring.follow(&rotation) {
                tracing::debug!(target: "abp.store", %error, "a rotation was not followed");
            }
        }
        let signed = self.latest_checkpoint().await?;
        let checkpoint = signed.checkpoint();
        if checkpoint.origin() != self.origin() {
            return Err(self.broken("its checkpoint is of another log".to_owned()));
        }
        signed
            .verify(&ring)
            .map_err(|error| self.broken(error.to_string()))?;
        let size = checkpoint.size();
        let root = self.root_of(size).await?;
        if root != Some(*checkpoint.root()) {
            return Err(self.broken("it is not the one that its checkpoint signs".to_owned()));
        }
        Ok(TrustedLog {
            reader: self.clone(),
            size,
        })
    }

    /// The root over the leaves of the first `size` entries; `None` where there are fewer.
    async fn root_of(&self, size: u64) -> Result<Option<Hash>, StoreError> {
        let mut rows = sql::query("SELECT seq, leaf FROM log WHERE seq < ? ORDER BY seq")
            .bind(number(size)?)
            .fetch(&self.pool);
        let mut frontier = Frontier::default();
        while let Some(row) = rows.next().await {
            let row = row.map_err(|error| self.failed(&error))?;
            let read = || Ok((row.try_get::<i64>(0)?, row.try_get::<&[u8]>(1)?));
            let (seq, leaf) = read().map_err(|error: sqlx::Error| self.failed(&error))?;
            let is_next = u64::try_from(seq) == Ok(frontier.size());
            let leaf = Hash::try_from(leaf).ok().filter(|_| is_next);
            let Some(leaf) = leaf else { return Ok(None) };
            frontier.push(leaf);
        }
        Ok((frontier.size() == size).then(|| frontier.root()))
    }
}

impl TrustedLog {
    /// What the log has of a run.
    ///
    /// # Errors
    /// Fails where the log cannot be read, or an entry of the run is not the one that was signed.
    pub async fn find(&self, run_id: Uuid) -> Result<LoggedReceipt, StoreError> {
        let reader = &self.reader;
        // The log alone is asked: the tables beside it are not what was signed.
        let query = sql::query(
            "SELECT seq, entry, leaf FROM log WHERE seq < ?1 AND instr(entry, ?2) > 0 ORDER BY seq
            LIMIT 1000",
        )
        .bind(number(self.size)?)
        .bind(run_id.to_string());
        let entries: Vec<LogEntry> = reader
            .page(query, |row| {
                let text: &str = row.try_get(1)?;
                let leaf = Hash::try_from(row.try_get::<&[u8]>(2)?);
                if leaf != Ok(merkle::leaf_hash(text.as_bytes())) {
                    let seq: i64 = row.try_get(0)?;
                    let problem = format!("entry {seq} was changed");
                    return Err(reader.broken(problem).into());
                }
                Ok((reader.entry_of(text)?, text.len()))
            })
            .await?;
        let origin = reader.origin().to_owned();
        let mut logged = LoggedReceipt::UnknownRun {
            origin: origin.clone(),
        };
        for entry in entries
            .iter()
            .filter(|entry| entry.run_id() == Some(run_id))
        {
            match &entry.kind {
                EntryKind::RunEnded { receipt_sha256, .. } => {
                    return Ok(LoggedReceipt::Logged {
                        origin,
                        seq: entry.seq,
                        receipt_sha256: *receipt_sha256,
                    });
                }
                EntryKind::RunStarted { .. } => {
                    logged = LoggedReceipt::Unfinished {
                        origin: origin.clone(),
                    };
                }
                _ => {}
            }
        }
        Ok(logged)
    }
}
