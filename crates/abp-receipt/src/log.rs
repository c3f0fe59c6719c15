//! The log of runs: what an entry is, and what its leaf is made of.
//!
//! Every entry is a leaf of one Merkle tree. The leaf is the canonical JSON of the whole entry,
//! which names the log and the entry's place in it, so an entry is good in one log and at one place
//! only. The start of a run is an entry as well as its end: a run without an end can be seen. Exchanges
//! of a gateway are sealed many at a time, as one entry with the root of a tree of their own.

mod head;
mod problem;
mod verify;

pub use head::{LogHead, LogLeaf};
pub use problem::{Edited, LogPlace, LogProblem, Promise};
pub use verify::{LogCheck, LogReport, StoredEntry, StoredReceipt, verify_log};

use abp_core::Timestamp;
use abp_error::ErrorCode;
use abp_json::canonical;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::dsse::pre_authentication_encoding;
use crate::merkle::{MAX_TREE_SIZE, leaf_hash};
use crate::sign::check_name;
use crate::{Hash, KeyError, Signature, SigningKey, VerifyingKey, encoding};

/// The largest leaf that is read.
const MAX_LEAF_BYTES: usize = 16 * 1024;
const ROTATION_TYPE: &str = "application/vnd.abp.key-rotation+json";

/// Why an entry cannot be written or read, or a log not be continued.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// The log's name cannot be written.
    #[error(transparent)]
    Name(KeyError),
    /// The log is full, or the entry's place is beyond every log.
    #[error("a log holds at most {MAX_TREE_SIZE} entries")]
    TooLarge,
    /// The bytes are not those of an entry.
    #[error("not a log entry: {problem}")]
    Malformed {
        /// What is wrong with them.
        problem: String,
    },
    /// The right edge of the tree is not that of the checkpoint.
    #[error("the stored tree of {size} entries is not the one the checkpoint signs")]
    Inconsistent {
        /// The size of the stored tree.
        size: u64,
    },
    /// The keys of a rotation do not belong to the log or to each other.
    #[error(transparent)]
    Rotation(KeyError),
}

impl LogError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Name(_) | Self::TooLarge => ErrorCode::ValidationFailed,
            Self::Malformed { .. } | Self::Inconsistent { .. } | Self::Rotation(_) => {
                ErrorCode::ReceiptChainBroken
            }
        }
    }
}

/// One entry of a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogEntry {
    /// When it was written. Order is by `seq`: clocks go back.
    pub at: Timestamp,
    /// What happened.
    pub kind: EntryKind,
    /// The log.
    pub origin: String,
    /// The place in the log, from 0.
    pub seq: u64,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
#[non_exhaustive]
pub enum EntryKind {
    /// A run was accepted. Written before anything else happens.
    RunStarted {
        /// The run.
        run_id: Uuid,
        /// The order it carries out.
        work_order_sha256: Hash,
        /// What else is kept of the run from its start on. Entries of older releases bind the order
        /// only.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        record: Option<RunBinding>,
    },
    /// A run ended in a receipt.
    RunEnded {
        /// The run.
        run_id: Uuid,
        /// Its receipt.
        receipt_sha256: Hash,
    },
    /// A run's changes were applied, discarded or rolled back.
    Decision {
        /// The run.
        run_id: Uuid,
        /// The hash of the [decision's document](crate::ChangeDecision::to_document).
        decision_sha256: Hash,
    },
    /// The stored events of a run that ended were removed. Its receipt stays, with their digest.
    EventsErased {
        /// The run.
        run_id: Uuid,
        /// How many events there were.
        events: u64,
    },
    /// Records of exchanges were sealed together. They are too many for an entry each.
    ExchangesSealed {
        /// How many.
        count: u64,
        /// The root of the Merkle tree over them.
        root: Hash,
    },
    /// From here on another key signs the checkpoints.
    KeyRotated {
        /// The key that signed until here.
        old_key: Box<VerifyingKey>,
        /// The key that signs from here on.
        new_key: Box<VerifyingKey>,
        /// The old key's signature over the rest of the entry.
        signature: Signature,
    },
}

/// Binds the record that a store keeps of a run to the entry of the run's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunBinding {
    /// The SHA-256 of the stored order, which is redacted and so has another hash than the order.
    pub order_sha256: Hash,
    /// The SHA-256 of the canonical JSON of everything else that never changes.
    pub row_sha256: Hash,
}

/// What the old key signs.
#[derive(Serialize)]
struct RotationStatement<'e> {
    at: Timestamp,
    new_key: &'e VerifyingKey,
    old_key: &'e VerifyingKey,
    origin: &'e str,
    seq: u64,
}

impl LogEntry {
    /// The entry that replaces a key by another, signed by the key it replaces.
    ///
    /// # Errors
    /// Refuses keys of another log, and a key in place of itself.
    pub fn rotation(
        origin: &str,
        seq: u64,
        at: Timestamp,
        old_key: &SigningKey,
        new_key: &VerifyingKey,
    ) -> Result<Self, LogError> {
        let statement = RotationStatement {
            at,
            new_key,
            old_key: old_key.verifying_key(),
            origin,
            seq,
        };
        let signature = old_key.sign(&statement.to_bytes().map_err(LogError::Rotation)?);
        Ok(Self {
            at,
            kind: EntryKind::KeyRotated {
                old_key: Box::new(old_key.verifying_key().clone()),
                new_key: Box::new(new_key.clone()),
                signature,
            },
            origin: origin.to_owned(),
            seq,
        })
    }

    /// The content of the entry's leaf: its canonical JSON.
    ///
    /// # Errors
    /// Fails where the log's name or the place cannot be written.
    pub fn leaf_bytes(&self) -> Result<Vec<u8>, LogError> {
        check_name(&self.origin).map_err(LogError::Name)?;
        if self.seq > MAX_TREE_SIZE {
            return Err(LogError::TooLarge);
        }
        canonical::value_to_vec(self).map_err(|error| LogError::Malformed {
            problem: error.to_string(),
        })
    }

    /// The hash of the entry's leaf.
    ///
    /// # Errors
    /// As [`leaf_bytes`](Self::leaf_bytes).
    pub fn leaf_hash(&self) -> Result<Hash, LogError> {
        Ok(leaf_hash(&self.leaf_bytes()?))
    }

    /// Reads an entry from the content of its leaf.
    ///
    /// # Errors
    /// Fails where the bytes are not exactly those that [`leaf_bytes`](Self::leaf_bytes) writes.
    pub fn from_leaf_bytes(bytes: &[u8]) -> Result<Self, LogError> {
        let entry: Self = encoding::read_json(bytes, MAX_LEAF_BYTES)
            .map_err(|problem| LogError::Malformed { problem })?;
        if entry.leaf_bytes()? != bytes {
            let problem = "not in canonical form".to_owned();
            return Err(LogError::Malformed { problem });
        }
        Ok(entry)
    }

    /// The run the entry is about.
    #[must_use]
    pub fn run_id(&self) -> Option<Uuid> {
        match &self.kind {
            EntryKind::RunStarted { run_id, .. }
            | EntryKind::RunEnded { run_id, .. }
            | EntryKind::Decision { run_id, .. }
            | EntryKind::EventsErased { run_id, .. } => Some(*run_id),
            EntryKind::ExchangesSealed { .. } | EntryKind::KeyRotated { .. } => None,
        }
    }

    /// Checks the signature of a rotation with the key it names; whether that key is trusted is the
    /// [ring](crate::KeyRing)'s question. Every other entry passes.
    pub(crate) fn verify_rotation(&self) -> Result<(), KeyError> {
        let EntryKind::KeyRotated {
            old_key,
            new_key,
            signature,
        } = &self.kind
        else {
            return Ok(());
        };
        let statement = RotationStatement {
            at: self.at,
            new_key,
            old_key,
            origin: &self.origin,
            seq: self.seq,
        };
        old_key.verify(&statement.to_bytes()?, signature)
    }
}

impl RotationStatement<'_> {
    /// The bytes to sign. They cannot be mistaken for a checkpoint or a receipt.
    fn to_bytes(&self) -> Result<Vec<u8>, KeyError> {
        let fails = |problem| KeyError::Rotation {
            name: self.old_key.name().to_owned(),
            id: self.old_key.id(),
            problem,
        };
        if self.old_key.name() != self.origin || self.new_key.name() != self.origin {
            return Err(fails("the keys have another name than the log"));
        }
        if self.old_key == self.new_key {
            return Err(fails("the new key is the old one"));
        }
        let statement =
            canonical::value_to_vec(self).map_err(|_| fails("its place cannot be written"))?;
        Ok(pre_authentication_encoding(ROTATION_TYPE, &statement))
    }
}
