//! Taking a receipt out of the store, with everything that proves it elsewhere.

use abp_receipt::{ExportedReceipt, ReceiptProof, inclusion_proof};
use uuid::Uuid;

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
            Some(record) => self.entry_of(&record.entry)?,
            None => return Err(self.broken(format!("entry {} is missing", receipt.log_seq))),
        };
        let proof = ReceiptProof {
            entry,
            checkpoint,
            path,
        };
        let key = self.inner.keys.load(&self.public_key().await?)?;
        let mut exported = ExportedReceipt::sign(receipt.document, proof, &key);
        exported.rotations = self.rotations().await?;
        Ok(Some(exported))
    }
}
