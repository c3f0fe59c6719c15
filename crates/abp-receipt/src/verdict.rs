//! Says what a file that claims to be a receipt is: proven, consistent with itself only, or wrong.
//!
//! A receipt's own hash proves nothing: an attacker who edits a receipt recomputes it. Proof comes
//! from a log that has the run, or from an exported proof and a key that the verifier trusts.

use abp_core::{Receipt, ValidationError, document_hash, verify_receipt_document};
use abp_error::{ErrorCode, ExitStatus};
use serde::Serialize;
use uuid::Uuid;

use crate::{ExportError, ExportedReceipt, Hash, KeyId, KeyRing};

/// What a file that claims to be a receipt turned out to be.
#[derive(Debug, Clone, PartialEq)]
pub enum ReceiptVerdict {
    /// It is the receipt of its run.
    Proven {
        /// The receipt.
        receipt: Box<Receipt>,
        /// The proof.
        by: ReceiptProvenBy,
    },
    /// Its own hashes hold, and nothing vouches for it.
    SelfConsistent {
        /// The receipt.
        receipt: Box<Receipt>,
        /// Why there is no proof.
        because: ProofMissing,
    },
    /// It is not a receipt, was changed, or is not the receipt of its run.
    Wrong {
        /// The run it claims, where that can be read.
        run_id: Option<Uuid>,
        /// What is wrong, at least one thing.
        problems: Vec<ReceiptProblem>,
    },
}

/// What proved a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum ReceiptProvenBy {
    /// The verifier's own log has it.
    Log {
        /// The log.
        origin: String,
        /// The entry of the run's end.
        seq: u64,
    },
    /// The exported proof in the file holds, and a trusted key signed it.
    Proof {
        /// The log.
        origin: String,
        /// The entry of the run's end.
        seq: u64,
        /// The key that signed the checkpoint.
        key: KeyId,
    },
}

/// Why nothing vouches for a receipt.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProofMissing {
    /// There is no log to look into.
    #[error("there is no log to compare it with")]
    NoLog,
    /// The log does not have the run.
    #[error("the log does not have its run")]
    UnknownRun,
    /// The log cannot be believed.
    #[error("the log cannot vouch for it: {problem}")]
    UnusableLog {
        /// Why not.
        problem: String,
    },
}

/// One thing that is wrong with a receipt.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReceiptProblem {
    /// The error's code.
    pub code: ErrorCode,
    /// What is wrong.
    pub problem: String,
}

/// What a trusted log has of a run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoggedReceipt {
    /// There is no log.
    NoLog,
    /// There is one, and it cannot be believed.
    Unusable {
        /// Why not.
        problem: String,
    },
    /// The log does not have the run.
    UnknownRun {
        /// The log.
        origin: String,
    },
    /// The run started and has no receipt.
    Unfinished {
        /// The log.
        origin: String,
    },
    /// The run ended in a receipt.
    Logged {
        /// The log.
        origin: String,
        /// The entry of the run's end.
        seq: u64,
        /// The receipt's hash.
        receipt_sha256: Hash,
    },
}

/// A file whose own hashes hold: a receipt, alone or exported with its proof.
#[derive(Debug, Clone)]
pub struct ReceiptFile {
    receipt: Receipt,
    sha256: Hash,
    exported: Option<Box<ExportedReceipt>>,
}

impl ReceiptVerdict {
    /// The verdict in one word: `proven`, `self_consistent` or `wrong`.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Proven { .. } => "proven",
            Self::SelfConsistent { .. } => "self_consistent",
            Self::Wrong { .. } => "wrong",
        }
    }

    /// The exit status of a command that finds this.
    #[must_use]
    pub const fn exit_status(&self) -> ExitStatus {
        match self {
            Self::Proven { .. } => ExitStatus::Success,
            Self::SelfConsistent { .. } => ExitStatus::NotProven,
            Self::Wrong { .. } => ExitStatus::VerificationFailed,
        }
    }

    /// The run that the file claims.
    #[must_use]
    pub fn run_id(&self) -> Option<Uuid> {
        match self {
            Self::Proven { receipt, .. } | Self::SelfConsistent { receipt, .. } => {
                Some(receipt.meta.run_id)
            }
            Self::Wrong { run_id, .. } => *run_id,
        }
    }
}

impl ReceiptFile {
    /// Reads a receipt or an exported one, and checks everything that takes neither log nor key.
    ///
    /// # Errors
    /// The verdict [`Wrong`](ReceiptVerdict::Wrong) with every problem found.
    pub fn read(bytes: &[u8]) -> Result<Self, ReceiptVerdict> {
        let (document, exported) = match ExportedReceipt::from_json(bytes) {
            Ok(exported) => {
                let document = exported.envelope.payload().to_vec();
                (document, Some(Box::new(exported)))
            }
            Err(_) => (bytes.to_vec(), None),
        };
        let receipt =
            verify_receipt_document(&document).map_err(|errors| ReceiptVerdict::Wrong {
                run_id: None,
                problems: errors.iter().map(ReceiptProblem::of_document).collect(),
            })?;
        let run_id = receipt.meta.run_id;
        let wrong = |problem| ReceiptVerdict::Wrong {
            run_id: Some(run_id),
            problems: vec![problem],
        };
        if let Some(exported) = &exported {
            exported
                .verify_contents()
                .map_err(|error| wrong(ReceiptProblem::of_export(&error)))?;
        }
        let sha256 = document_hash(&document)
            .ok()
            .and_then(|hash| hash.parse().ok())
            .ok_or_else(|| {
                wrong(ReceiptProblem {
                    code: ErrorCode::ContractInvalidReceipt,
                    problem: "it cannot be hashed".to_owned(),
                })
            })?;
        Ok(Self {
            receipt,
            sha256,
            exported,
        })
    }

    /// The run that the file claims.
    #[must_use]
    pub fn run_id(&self) -> Uuid {
        self.receipt.meta.run_id
    }

    /// Decides, given the keys that the verifier trusts and what its log has of the run.
    ///
    /// A log that has another receipt of the run, or none yet, outweighs the file, unless the file
    /// carries a proof that holds: then the log is only older than the proof.
    #[must_use]
    pub fn judge(self, keys: Option<&KeyRing>, logged: LoggedReceipt) -> ReceiptVerdict {
        let run_id = self.run_id();
        let wrong = |problem| ReceiptVerdict::Wrong {
            run_id: Some(run_id),
            problems: vec![problem],
        };
        if let LoggedReceipt::Logged {
            origin,
            seq,
            receipt_sha256,
        } = &logged
            && *receipt_sha256 != self.sha256
        {
            return wrong(ReceiptProblem {
                code: ErrorCode::ReceiptHashMismatch,
                problem: format!(
                    "entry {seq} of the log {origin:?} has receipt {receipt_sha256} of run {run_id}, this is receipt {}",
                    self.sha256
                ),
            });
        }
        let proof = match self.check_proof(keys) {
            Ok(proof) => proof,
            Err(error) => return wrong(ReceiptProblem::of_export(&error)),
        };
        let because = match (proof, logged) {
            (Some(by), _) => return self.proven(by),
            (None, LoggedReceipt::Logged { origin, seq, .. }) => {
                return self.proven(ReceiptProvenBy::Log { origin, seq });
            }
            (None, LoggedReceipt::Unfinished { origin }) => {
                return wrong(ReceiptProblem {
                    code: ErrorCode::ReceiptChainBroken,
                    problem: format!("the log {origin:?} has run {run_id}, and it has no receipt"),
                });
            }
            (None, LoggedReceipt::NoLog) => ProofMissing::NoLog,
            (None, LoggedReceipt::UnknownRun { .. }) => ProofMissing::UnknownRun,
            (None, LoggedReceipt::Unusable { problem }) => ProofMissing::UnusableLog { problem },
        };
        ReceiptVerdict::SelfConsistent {
            receipt: Box::new(self.receipt),
            because,
        }
    }

    /// Checks the proof that the file carries, where there is one and a key to check it with.
    fn check_proof(&self, keys: Option<&KeyRing>) -> Result<Option<ReceiptProvenBy>, ExportError> {
        let (Some(exported), Some(keys)) = (&self.exported, keys) else {
            return Ok(None);
        };
        let key = exported.verify_signatures(keys)?;
        Ok(Some(ReceiptProvenBy::Proof {
            origin: exported.proof.entry.origin.clone(),
            seq: exported.proof.entry.seq,
            key,
        }))
    }

    fn proven(self, by: ReceiptProvenBy) -> ReceiptVerdict {
        ReceiptVerdict::Proven {
            receipt: Box::new(self.receipt),
            by,
        }
    }
}

impl ReceiptProblem {
    fn of_document(error: &ValidationError) -> Self {
        Self {
            code: error.code(),
            problem: error.to_string(),
        }
    }

    fn of_export(error: &ExportError) -> Self {
        Self {
            code: error.code(),
            problem: error.to_string(),
        }
    }
}
