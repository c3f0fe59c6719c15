//! Receipts and the signed log over them.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

/// Which receipts to list, newest first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ReceiptsQuery {
    /// How many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(default)]
    pub cursor: Option<u64>,
}

/// A page of receipts.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptPage {
    /// The receipts, newest first.
    pub receipts: Vec<ReceiptItem>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<u64>,
}

/// A receipt without its document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ReceiptItem {
    /// The run.
    pub run_id: Uuid,
    /// The place of its entry in the log.
    pub log_seq: u64,
    /// Its hash.
    pub sha256: String,
    /// The size of its document.
    pub bytes: u64,
}

/// The verdict on a receipt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct VerifyReport {
    /// `proven`, `self_consistent` or `wrong`.
    pub verdict: String,
    /// The run it claims to be of.
    pub run_id: Option<Uuid>,
    /// Its hash.
    pub receipt_sha256: Option<String>,
    /// The log or the proof that proves it.
    pub proven_by: Option<Value>,
    /// Why nothing proves it.
    pub unproven_because: Option<String>,
    /// What is wrong with it.
    pub problems: Vec<String>,
}

/// The newest checkpoint of the log.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct CheckpointView {
    /// The signed checkpoint, as a text that verifiers take.
    pub checkpoint: String,
    /// How many entries it covers.
    pub size: u64,
    /// The root of the tree over them, in hexadecimal.
    pub root: String,
    /// The public key that signs the log now.
    pub key: String,
}

/// Which entry to prove.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ProofQuery {
    /// The run whose receipt is proven.
    pub run_id: Uuid,
}

/// The proof that the log contains a receipt.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct InclusionProof {
    /// The run.
    pub run_id: Uuid,
    /// The place of the receipt's entry.
    pub log_seq: u64,
    /// The content of the leaf: canonical JSON.
    pub entry: String,
    /// How many entries the checkpoint covers.
    pub size: u64,
    /// The hashes from the leaf to the root, in hexadecimal.
    pub path: Vec<String>,
    /// The signed checkpoint.
    pub checkpoint: String,
}

/// Between which sizes of the log consistency is proven.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ConsistencyQuery {
    /// The size of an older checkpoint.
    #[schemars(range(min = 1))]
    pub from: u64,
    /// The size of a newer one; without it that of the newest.
    #[serde(default)]
    #[schemars(range(min = 1))]
    pub to: Option<u64>,
}

/// The proof that a newer log continues an older one.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ConsistencyProof {
    /// The older size.
    pub from: u64,
    /// The newer size.
    pub to: u64,
    /// The hashes of the proof, in hexadecimal.
    pub path: Vec<String>,
    /// The newest signed checkpoint.
    pub checkpoint: String,
}
