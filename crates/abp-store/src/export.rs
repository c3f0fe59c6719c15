//! Taking a receipt out of the store, with everything that proves it elsewhere.

use abp_receipt::{EntryKind, ExportedReceipt, LogEntry, ReceiptProof, inclusion_proof};
use uuid::Uuid;

use crate::keys::KeyDir;
use crate::layout::Layout;
use crate::{Store, StoreError};

impl Store {
    /// A receipt, signed, with its place in the log and how the log's key came about; `None` where
    /// the run has no receipt.
    ///
    /// # Errors
    /// Fails where the database cannot be read, the log is broken, or its key may not be used.
    pub async fn export(&self, run_id: Uuid) -> Result<Option<ExportedReceipt>, StoreError> {
        let Some(receipt) = self.receipt(run_id).await? else {
            return Ok(None);
        };
        let checkpoint = self.latest_checkpoint().await?;
        let size = checkpoint.checkpoint().size();
        let leaves = self.leaf_hashes(size).await?;
        let path = inclusion_proof(&leaves, receipt.log_seq)
            .map_err(|error| self.broken(error.to_string()))?;
        let entry = match self.log_entries(receipt.log_seq, 1).await?.pop() {
            Some(record) => self.entry(&record.entry)?,
            None => return Err(self.broken(format!("entry {} is missing", receipt.log_seq))),
        };
        let proof = ReceiptProof {
            entry,
            checkpoint,
            path,
        };
        let directory = self.path().parent().unwrap_or(self.path()).to_owned();
        let keys = KeyDir::new(Layout::existing(&directory).keys());
        let key = keys.load(&self.public_key().await?)?;
        let mut exported = ExportedReceipt::sign(receipt.document, proof, &key);
        exported.rotations = self.rotations().await?;
        Ok(Some(exported))
    }

    /// How the log's key came about, oldest first.
    async fn rotations(&self) -> Result<Vec<LogEntry>, StoreError> {
        // Few of very many: only what looks like one is read.
        let likely: Vec<String> = sqlx::query_scalar(
            r#"SELECT entry FROM log WHERE instr(entry, '"key_rotated"') ORDER BY seq"#,
        )
        .fetch_all(&self.pool)
        .await
        .map_err(|error| self.failed(&error))?;
        let mut rotations = Vec::new();
        for text in likely {
            let entry = self.entry(&text)?;
            if matches!(entry.kind, EntryKind::KeyRotated { .. }) {
                rotations.push(entry);
            }
        }
        Ok(rotations)
    }

    fn entry(&self, text: &str) -> Result<LogEntry, StoreError> {
        LogEntry::from_leaf_bytes(text.as_bytes()).map_err(|error| self.broken(error.to_string()))
    }
}
