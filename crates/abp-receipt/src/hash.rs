//! The hash of a receipt value. Its definition is the contract's; this is only the way to it.
//!
//! A receipt that came as a document is checked as one, with [`abp_core::verify_receipt_document`]:
//! a value no longer holds the members this version does not know.

use abp_core::{ContractError, Receipt, receipt_hash};
use abp_json::{CanonicalError, Limits, Tape, canonical};

/// The bytes that are hashed: canonical JSON in which `receipt_sha256` is null.
///
/// # Errors
/// Fails where the receipt holds something canonical JSON cannot carry.
pub fn canonicalize(receipt: &Receipt) -> Result<Vec<u8>, ContractError> {
    let document = receipt.to_document()?;
    let tape = Tape::parse(&document, &Limits::default()).map_err(CanonicalError::from)?;
    let mut bytes = Vec::with_capacity(document.len());
    canonical::write_with_null(&tape, "receipt_sha256", |piece| {
        bytes.extend_from_slice(piece);
    })?;
    Ok(bytes)
}

/// The hash the receipt should carry.
///
/// # Errors
/// As [`canonicalize`].
pub fn compute_hash(receipt: &Receipt) -> Result<String, ContractError> {
    receipt_hash(receipt)
}

/// Whether the receipt carries a hash, and the right one.
///
/// # Errors
/// As [`canonicalize`].
pub fn verify_hash(receipt: &Receipt) -> Result<bool, ContractError> {
    let computed = compute_hash(receipt)?;
    Ok(receipt.receipt_sha256.as_deref() == Some(&computed))
}
