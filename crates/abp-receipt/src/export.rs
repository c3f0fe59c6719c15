//! A receipt that proves itself: the document, signed, with its place in a signed log.
//!
//! Verifying needs the log's public key and nothing else: no log, no daemon, no network.

use abp_core::{Receipt, ValidationError, document_hash, verify_receipt_document};
use abp_error::ErrorCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::dsse::RECEIPT_PAYLOAD_TYPE;
use crate::{
    CheckpointError, DsseEnvelope, EntryKind, EnvelopeError, Hash, KeyError, KeyId, KeyRing,
    LogEntry, LogError, ProofError, SignedCheckpoint, SigningKey, encoding, verify_inclusion,
};

/// The longest bundle that is read: the largest receipt in base64, and its proof.
const MAX_BUNDLE_BYTES: usize = 48 << 20;
/// The most rotations that are followed.
const MAX_ROTATIONS: usize = 1_000;

/// Why an exported receipt cannot be made or believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The text is not an exported receipt.
    #[error("not an exported receipt: {problem}")]
    Malformed {
        /// What is wrong with it.
        problem: String,
    },
    /// The receipt is not signed by the log's key, or was changed since.
    #[error(transparent)]
    Envelope(EnvelopeError),
    /// The checkpoint is not signed by the log's key.
    #[error(transparent)]
    Checkpoint(CheckpointError),
    /// A rotation of the log's key cannot be followed.
    #[error(transparent)]
    Rotation(KeyError),
    /// The document is not a valid receipt.
    #[error("the receipt is not valid: {}", list(.0))]
    Receipt(Vec<ValidationError>),
    /// The entry is not the end of a run.
    #[error("the entry is not the end of a run")]
    NotAnEnd,
    /// The entry is of another run.
    #[error("the entry is of run {logged}, the receipt of run {found}")]
    WrongRun {
        /// The run of the entry.
        logged: Uuid,
        /// The run of the receipt.
        found: Uuid,
    },
    /// The entry is of another receipt.
    #[error("the entry is of receipt {logged}, this is receipt {found}")]
    WrongReceipt {
        /// The receipt of the entry.
        logged: Hash,
        /// The hash of this receipt.
        found: String,
    },
    /// The entry is of another log than the checkpoint.
    #[error("the entry is of the log {entry:?}, the checkpoint of {checkpoint:?}")]
    WrongOrigin {
        /// The log of the entry.
        entry: String,
        /// The log of the checkpoint.
        checkpoint: String,
    },
    /// The entry cannot be written.
    #[error(transparent)]
    Entry(LogError),
    /// The log does not hold the entry.
    #[error("the log does not hold the entry: {0}")]
    Proof(ProofError),
}

impl ExportError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Malformed { .. } => ErrorCode::ContractInvalidReceipt,
            Self::Envelope(error) => error.code(),
            Self::Checkpoint(error) => error.code(),
            Self::Rotation(error) => error.code(),
            Self::Receipt(errors) => errors.first().map_or(
                ErrorCode::ContractInvalidReceipt,
                abp_core::ValidationError::code,
            ),
            Self::WrongReceipt { .. } => ErrorCode::ReceiptHashMismatch,
            Self::Entry(error) => error.code(),
            Self::Proof(error) => error.code(),
            Self::NotAnEnd | Self::WrongRun { .. } | Self::WrongOrigin { .. } => {
                ErrorCode::ReceiptChainBroken
            }
        }
    }
}

/// A receipt with everything that proves it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExportedReceipt {
    /// The receipt document, signed.
    pub envelope: DsseEnvelope,
    /// Its place in the log.
    pub proof: ReceiptProof,
    /// How the key that signed came about, oldest first, for those who trust an older one.
    #[serde(default)]
    pub rotations: Vec<LogEntry>,
}

/// The place of a receipt in a log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiptProof {
    /// The entry of the run's end.
    pub entry: LogEntry,
    /// The log, at a size that covers the entry.
    pub checkpoint: SignedCheckpoint,
    /// The way from the entry to the checkpoint's root.
    pub path: Vec<Hash>,
}

impl ExportedReceipt {
    /// Signs a receipt document and puts its proof beside it.
    ///
    /// The document goes into the envelope byte for byte. The key is the one that signed the
    /// checkpoint.
    #[must_use]
    pub fn sign(document: Vec<u8>, proof: ReceiptProof, key: &SigningKey) -> Self {
        Self {
            envelope: DsseEnvelope::sign(RECEIPT_PAYLOAD_TYPE, document, key),
            proof,
            rotations: Vec::new(),
        }
    }

    /// Reads an exported receipt. Nothing is believed before [`verify`](Self::verify).
    ///
    /// # Errors
    /// Fails where the text is not strict JSON of the right shape, or too long.
    pub fn from_json(bytes: &[u8]) -> Result<Self, ExportError> {
        encoding::read_json(bytes, MAX_BUNDLE_BYTES)
            .map_err(|problem| ExportError::Malformed { problem })
    }

    /// Writes the exported receipt as JSON.
    ///
    /// # Errors
    /// None that an exported receipt made here has.
    pub fn to_json(&self) -> Result<Vec<u8>, ExportError> {
        serde_json::to_vec(self).map_err(|error| ExportError::Malformed {
            problem: error.to_string(),
        })
    }

    /// Checks everything, and returns the receipt.
    ///
    /// That is: the checkpoint is signed by a trusted key of the log, the log held the entry when it
    /// was signed, the entry is the end of this run and names this receipt, the receipt's document
    /// holds in itself, and a trusted key of the same log signed it.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn verify(&self, keys: &KeyRing) -> Result<Receipt, ExportError> {
        self.verify_signatures(keys)?;
        self.verify_contents()
    }

    /// Checks that trusted keys of the log signed the checkpoint and the receipt; returns the key of
    /// the checkpoint. Says nothing about what was signed.
    pub(crate) fn verify_signatures(&self, keys: &KeyRing) -> Result<KeyId, ExportError> {
        let keys = self.follow_rotations(keys)?;
        let checkpoint = self.proof.checkpoint.checkpoint();
        let key = self
            .proof
            .checkpoint
            .verify(&keys)
            .map_err(ExportError::Checkpoint)?;
        self.envelope
            .verify(
                RECEIPT_PAYLOAD_TYPE,
                &keys,
                checkpoint.origin(),
                checkpoint.size(),
            )
            .map_err(ExportError::Envelope)?;
        Ok(key)
    }

    /// Checks everything but the signatures: the receipt in itself, and that entry, path and
    /// checkpoint belong together. Anybody can make a bundle that passes.
    pub(crate) fn verify_contents(&self) -> Result<Receipt, ExportError> {
        let ReceiptProof {
            entry,
            checkpoint: signed,
            path,
        } = &self.proof;
        let checkpoint = signed.checkpoint();
        self.envelope
            .require_type(RECEIPT_PAYLOAD_TYPE)
            .map_err(ExportError::Envelope)?;
        let document = self.envelope.payload();
        let receipt = verify_receipt_document(document).map_err(ExportError::Receipt)?;
        let EntryKind::RunEnded {
            run_id,
            receipt_sha256,
        } = &entry.kind
        else {
            return Err(ExportError::NotAnEnd);
        };
        if *run_id != receipt.meta.run_id {
            return Err(ExportError::WrongRun {
                logged: *run_id,
                found: receipt.meta.run_id,
            });
        }
        let found = document_hash(document)
            .map_err(|error| ExportError::Receipt(vec![ValidationError::Document(error)]))?;
        if found.parse() != Ok(*receipt_sha256) {
            let logged = *receipt_sha256;
            return Err(ExportError::WrongReceipt { logged, found });
        }
        if entry.origin != checkpoint.origin() {
            return Err(ExportError::WrongOrigin {
                entry: entry.origin.clone(),
                checkpoint: checkpoint.origin().to_owned(),
            });
        }
        let leaf = entry.leaf_hash().map_err(ExportError::Entry)?;
        verify_inclusion(&leaf, entry.seq, checkpoint.size(), path, checkpoint.root())
            .map_err(ExportError::Proof)?;
        Ok(receipt)
    }

    fn follow_rotations(&self, keys: &KeyRing) -> Result<KeyRing, ExportError> {
        let count = self.rotations.len();
        if count > MAX_ROTATIONS {
            let problem = format!("{count} rotations, more than {MAX_ROTATIONS}");
            return Err(ExportError::Malformed { problem });
        }
        let mut keys = keys.clone();
        for rotation in &self.rotations {
            keys.follow_from_here(rotation)
                .map_err(ExportError::Rotation)?;
        }
        Ok(keys)
    }
}

fn list(errors: &[ValidationError]) -> String {
    let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
    errors.join("; ")
}
