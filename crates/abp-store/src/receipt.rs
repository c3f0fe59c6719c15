//! Looking at a receipt before it is stored.

use abp_core::{Outcome, Timestamp, document_hash};
use abp_receipt::Hash;
use serde::Deserialize;
use uuid::Uuid;

use crate::StoreError;
use crate::command::Ending;

/// What is read of a receipt; everything else is between its maker and its readers.
#[derive(Deserialize)]
struct ReceiptParts {
    meta: ReceiptMeta,
    outcome: Outcome,
    #[serde(default)]
    workspace: Option<ReceiptWorkspace>,
}

#[derive(Deserialize)]
struct ReceiptWorkspace {
    #[serde(default)]
    change_set_sha256: Option<Hash>,
}

#[derive(Deserialize)]
struct ReceiptMeta {
    run_id: Uuid,
    finished_at: Timestamp,
}

/// A receipt cannot be replaced, so it is looked at before it is stored.
pub(crate) fn check_receipt(
    run_id: Uuid,
    document: Vec<u8>,
    given: &str,
) -> Result<Ending, StoreError> {
    let mismatch = |problem: String| StoreError::ReceiptMismatch {
        run_id,
        given: given.to_owned(),
        problem,
    };
    let computed = document_hash(&document).map_err(|error| mismatch(error.to_string()))?;
    if computed != given {
        return Err(mismatch(format!("its hash is {computed}")));
    }
    let parts: ReceiptParts =
        serde_json::from_slice(&document).map_err(|error| mismatch(error.to_string()))?;
    if parts.meta.run_id != run_id {
        return Err(mismatch(format!("it is of run {}", parts.meta.run_id)));
    }
    let sha256: Hash = computed
        .parse()
        .map_err(|_| mismatch("its hash is none".to_owned()))?;
    let outcome = serde_json::to_value(parts.outcome).unwrap_or_default();
    Ok(Ending {
        run_id,
        document: document.into(),
        sha256,
        outcome: outcome.as_str().unwrap_or_default().to_owned(),
        finished_at: parts.meta.finished_at,
        change_set: parts
            .workspace
            .and_then(|workspace| workspace.change_set_sha256),
    })
}
