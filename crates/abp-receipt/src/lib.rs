//! Receipts beyond their hash: building, comparing, logging, signing and proving them offline.
//!
//! Bytes in, bytes out: keys, times and ids are handed in, and files are somebody else's. The hash
//! of a receipt is defined by the contract; what is added here makes it count.
//!
//! - **Building and comparing**: [`ReceiptBuilder`], [`diff_receipts`], [`ReceiptChain`].
//! - **The log**: every run has an entry for its start and one for its end, and exchanges have one for
//!   many of them ([`LogEntry`]), each a leaf of one Merkle tree ([`merkle`]). A writer holds a [`LogHead`], which stays small.
//! - **Signatures** are detached: over the log's size and root ([`SignedCheckpoint`]), never inside a
//!   receipt. Keys have names and are rotated by an entry of the log ([`KeyRing`]).
//! - **Checking**: [`verify_log`] takes a whole log and says which [`Promise`] does not hold and where.
//!   Somebody with one older checkpoint can tell that the log was cut or rewritten.
//!   [`TraceVerifier`] compares stored events with the digest in their receipt.
//! - **Deciding**: a [`ChangeDecision`] about a run's changes is an entry of the log too.
//! - **Leaving**: an [`ExportedReceipt`] carries a receipt with everything that proves it, and a
//!   [`ReceiptVerdict`] says whether a file is proven, consistent with itself only, or wrong.
//!
//! ```
//! use std::collections::BTreeSet;
//!
//! use abp_core::Timestamp;
//! use abp_receipt::{
//!     EntryKind, Hash, KeyRing, LogCheck, LogHead, LogProblem, SigningKey, StoredReceipt, verify_log,
//! };
//! use uuid::Uuid;
//!
//! let at = Timestamp::from_unix_millis(0);
//! let key = SigningKey::from_seed("example.org/log", &[7; 32])?;
//! let mut log = LogHead::new("example.org/log")?;
//! let run_id = Uuid::from_u128(1);
//! let work_order_sha256 = Hash::of(b"the order");
//! let receipt_sha256 = Hash::of(b"the receipt");
//! let start = log.append(EntryKind::RunStarted { run_id, work_order_sha256, record: None }, at)?;
//! let end = log.append(EntryKind::RunEnded { run_id, receipt_sha256 }, at)?;
//! let kept = log.checkpoint().sign(&key)?;
//!
//! let check = LogCheck {
//!     origin: "example.org/log",
//!     checkpoints: &[kept],
//!     keys: &KeyRing::of(key.verifying_key().clone()),
//!     running: &BTreeSet::new(),
//! };
//! let receipts = |_| StoredReceipt::Present(receipt_sha256);
//! assert!(verify_log([start.entry.clone(), end.entry], receipts, &check).is_ok());
//! let cut = verify_log([start.entry], receipts, &check);
//! assert!(matches!(cut.problems[0], LogProblem::Truncation { size: 1, checkpoint_size: 2 }));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod builder;
mod chain;
mod checkpoint;
mod decision;
mod diff;
mod digest;
mod dsse;
mod encoding;
mod export;
mod hash;
mod log;
pub mod merkle;
mod ring;
mod sign;
mod trace;
mod verdict;

pub use builder::ReceiptBuilder;
pub use chain::{ChainError, ChainLink, ReceiptChain};
pub use checkpoint::{Checkpoint, CheckpointError, SignedCheckpoint};
pub use decision::{ChangeDecision, DecisionKind};
pub use diff::{FieldDiff, ReceiptDiff, diff_documents, diff_receipts};
pub use digest::{Hash, HashStream, InvalidHash};
pub use dsse::{DsseEnvelope, EnvelopeError, RECEIPT_PAYLOAD_TYPE};
pub use export::{ExportError, ExportedReceipt, ReceiptProof};
pub use hash::{canonicalize, compute_hash, verify_hash};
pub use log::{
    Edited, EntryKind, LogCheck, LogEntry, LogError, LogHead, LogLeaf, LogPlace, LogProblem,
    LogReport, Promise, RunBinding, StoredEntry, StoredReceipt, verify_log,
};
pub use merkle::{
    Frontier, InvalidFrontier, ProofError, consistency_proof, inclusion_proof, verify_consistency,
    verify_inclusion,
};
pub use ring::{KeyRing, KeyStanding};
pub use sign::{KeyError, KeyId, Signature, SigningKey, VerifyingKey};
pub use trace::{TraceCoverage, TraceProblem, TraceVerifier};
pub use verdict::{
    LoggedReceipt, ProofMissing, ReceiptFile, ReceiptProblem, ReceiptProvenBy, ReceiptVerdict,
};
