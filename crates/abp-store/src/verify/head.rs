//! Compares the row that holds the log's end and keys with the log.
//!
//! The row is a shortcut for writers. All of it follows from the log: the first key is the one that
//! the first rotation replaced, the key is the one that the last rotation brought, and the frontier is
//! made of the leaves.

use abp_receipt::{EntryKind, Frontier, KeyRing, LogReport, VerifyingKey};

use super::{Findings, StoreProblem};
use crate::engine::sql::{self, Snapshot};
use crate::{StoreError, StoreReader};

/// The row, as it was when the size of the log was read.
pub(super) struct HeadRow {
    first_key: String,
    key: String,
    frontier: String,
    newest_checkpoint: Option<String>,
}

impl StoreReader {
    pub(super) async fn head_row(&self, snapshot: &mut Snapshot) -> Result<HeadRow, StoreError> {
        let row: Option<(String, String, String, Option<String>)> = sql::query_as(
            "SELECT first_key, key, frontier,
                (SELECT note FROM checkpoints ORDER BY size DESC LIMIT 1)
            FROM head WHERE id = 1",
        )
        .fetch_optional(snapshot)
        .await
        .map_err(|error| self.failed(&error))?;
        let (first_key, key, frontier, newest_checkpoint) =
            row.ok_or_else(|| self.broken(crate::open::NO_HEAD.to_owned()))?;
        Ok(HeadRow {
            first_key,
            key,
            frontier,
            newest_checkpoint,
        })
    }

    pub(super) async fn check_head(
        &self,
        head: &HeadRow,
        log: &LogReport,
        findings: &mut Findings,
    ) -> Result<(), StoreError> {
        for (column, problem) in [
            ("first_key", self.first_key_problem(head, log.size).await),
            ("key", self.key_problem(head, log.size).await),
            ("frontier", Ok(frontier_problem(head, log))),
        ] {
            if let Some(detail) = problem? {
                findings.add(StoreProblem::Head { column, detail });
            }
        }
        Ok(())
    }

    async fn first_key_problem(
        &self,
        head: &HeadRow,
        size: u64,
    ) -> Result<Option<String>, StoreError> {
        let began = self.rotated_keys(size).await?;
        let expected = match began.first() {
            Some((old_key, _)) => old_key.to_string(),
            None => head.key.clone(),
        };
        Ok((head.first_key != expected)
            .then(|| "it is not the key that the log began with".to_owned()))
    }

    async fn key_problem(&self, head: &HeadRow, size: u64) -> Result<Option<String>, StoreError> {
        let Ok(key) = head.key.parse::<VerifyingKey>() else {
            return Ok(Some("it is no key".to_owned()));
        };
        if let Some((_, new_key)) = self.rotated_keys(size).await?.last()
            && head.key != new_key.to_string()
        {
            let detail = "it is not the key that the last rotation brought";
            return Ok(Some(detail.to_owned()));
        }
        let newest = head.newest_checkpoint.as_deref();
        let newest = newest.and_then(|note| note.parse::<abp_receipt::SignedCheckpoint>().ok());
        // A checkpoint that is missing or cannot be read is a problem of its own.
        let is_signer = newest.is_none_or(|signed| signed.verify(&KeyRing::of(key)).is_ok());
        Ok((!is_signer).then(|| "the newest checkpoint is not signed with it".to_owned()))
    }

    /// The old and the new key of each rotation, in the order of the log.
    async fn rotated_keys(
        &self,
        size: u64,
    ) -> Result<Vec<(VerifyingKey, VerifyingKey)>, StoreError> {
        let rotations = self.rotations().await?.into_iter();
        let known = rotations.filter(|entry| entry.seq < size);
        let keys = known.filter_map(|entry| match entry.kind {
            EntryKind::KeyRotated {
                old_key, new_key, ..
            } => Some((*old_key, *new_key)),
            _ => None,
        });
        Ok(keys.collect())
    }
}

fn frontier_problem(head: &HeadRow, log: &LogReport) -> Option<String> {
    let frontier: Frontier = match serde_json::from_str(&head.frontier) {
        Ok(frontier) => frontier,
        Err(error) => return Some(error.to_string()),
    };
    let is_the_logs = (frontier.size(), frontier.root()) == (log.size, log.root);
    let is_canonical = serde_json::to_string(&frontier).is_ok_and(|text| text == head.frontier);
    (!is_the_logs || !is_canonical).then(|| "it is not that of the log's leaves".to_owned())
}
