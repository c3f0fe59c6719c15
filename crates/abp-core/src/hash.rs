//! Hashes of receipts, events and work orders, over canonical JSON (RFC 8785).
//!
//! A receipt is hashed as the document it is, with `receipt_sha256` set to null: fields that this
//! version does not know are covered too. Hashing a value serialises it and hashes that document.

use std::collections::BTreeMap;

use abp_json::{Limits, Tape, View, canonical};
use serde::Serialize;
use sha2::{Digest as _, Sha256};

use crate::document::{parse_strictly, read_tape};
use crate::validate::receipt_problems;
use crate::{AgentEvent, ContractError, Receipt, TraceDigest, ValidationError, WorkOrder};

/// The member that holds the hash and is null while the hash is taken.
const HASH_MEMBER: &str = "receipt_sha256";
/// The member that holds the hashes of the others.
const DIGESTS_MEMBER: &str = "member_sha256";

/// The hash of a receipt.
///
/// # Errors
/// Fails where the receipt holds something canonical JSON cannot carry.
pub fn receipt_hash(receipt: &Receipt) -> Result<String, ContractError> {
    document_hash(&serialize_receipt(receipt)?)
}

/// The hash of a receipt document.
///
/// # Errors
/// Fails where the document is not strict JSON that canonical JSON can carry.
pub fn document_hash(document: &[u8]) -> Result<String, ContractError> {
    hash_tape(&parse_strictly(document)?)
}

/// The hash of each member of a receipt, except the hashes themselves.
///
/// # Errors
/// Fails where the receipt holds something canonical JSON cannot carry.
pub fn member_digests(receipt: &Receipt) -> Result<BTreeMap<String, String>, ContractError> {
    let document = serialize_receipt(receipt)?;
    digest_members(&parse_strictly(&document)?)
}

/// The hash of a work order: binds a receipt to its task, policy and limits.
///
/// # Errors
/// Fails where the order holds something canonical JSON cannot carry.
pub fn work_order_hash(order: &WorkOrder) -> Result<String, ContractError> {
    let document = serialize(order, "work order")?;
    let tape = parse_strictly(&document)?;
    hash_view(tape.root())
}

/// Checks a receipt document: its form, its values and every hash in it.
///
/// # Errors
/// Every problem found. A changed document is named by member where the member hashes allow it.
pub fn verify_receipt_document(document: &[u8]) -> Result<Receipt, Vec<ValidationError>> {
    let tape = parse_strictly(document).map_err(|error| vec![ValidationError::Document(error)])?;
    let mut errors = Vec::new();
    match tape.root().get(HASH_MEMBER).and_then(View::as_str) {
        None => errors.push(ValidationError::HashMissing),
        Some(recorded) => match hash_tape(&tape) {
            Ok(computed) if computed == recorded => {}
            Ok(computed) => errors.push(ValidationError::HashMismatch {
                recorded: recorded.into_owned(),
                computed,
                changed: changed_members(&tape),
            }),
            Err(error) => errors.push(ValidationError::Document(error)),
        },
    }
    let receipt: Receipt = match read_tape(&tape) {
        Ok(receipt) => receipt,
        Err(error) => {
            errors.push(ValidationError::Document(error));
            return Err(errors);
        }
    };
    errors.extend(receipt_problems(&receipt));
    if let Some(events) = tape.root().get("trace")
        && let TraceCheck::Differs(problem) =
            compare_trace(events.items(), receipt.trace_digest.as_ref())
    {
        errors.push(ValidationError::Trace { problem });
    }
    if errors.is_empty() {
        Ok(receipt)
    } else {
        Err(errors)
    }
}

/// A running digest over the events of a run.
#[derive(Debug, Clone, Default)]
pub struct EventDigest {
    hasher: Sha256,
    count: u64,
}

impl EventDigest {
    /// Adds an event and returns it as compact JSON.
    ///
    /// # Errors
    /// Fails where the event holds something canonical JSON cannot carry; the digest is then as it
    /// was.
    pub fn push(&mut self, event: &AgentEvent) -> Result<String, ContractError> {
        let document = serialize(event, "event")?;
        let tape = parse_strictly(&document)?;
        self.push_view(tape.root())?;
        Ok(tape.source().to_owned())
    }

    /// How many events were added.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The digest of the events so far.
    #[must_use]
    pub fn finish(&self, embedded: bool) -> TraceDigest {
        TraceDigest {
            count: self.count,
            sha256: hex(self.hasher.clone()),
            embedded,
        }
    }

    fn push_view(&mut self, event: View<'_>) -> Result<(), ContractError> {
        // Hashed aside, so that an event that cannot be carried leaves the digest as it was.
        let mut hasher = self.hasher.clone();
        canonical::write(event, |piece| hasher.update(piece))?;
        hasher.update(b"\n");
        self.hasher = hasher;
        self.count += 1;
        Ok(())
    }
}

/// Whether an embedded trace is the one that was digested.
pub(crate) enum TraceCheck {
    /// It is, or there is nothing to compare.
    Agrees,
    /// It is not.
    Differs(String),
}

pub(crate) fn check_trace(receipt: &Receipt) -> TraceCheck {
    let Ok(trace) = serde_json::to_vec(&receipt.trace) else {
        return TraceCheck::Differs("the trace cannot be serialised".to_owned());
    };
    match Tape::parse(&trace, &Limits::default()) {
        Ok(tape) => compare_trace(tape.root().items(), receipt.trace_digest.as_ref()),
        Err(error) => TraceCheck::Differs(error.to_string()),
    }
}

fn compare_trace<'t>(
    events: impl Iterator<Item = View<'t>>,
    recorded: Option<&TraceDigest>,
) -> TraceCheck {
    let Some(recorded) = recorded.filter(|digest| digest.embedded) else {
        return TraceCheck::Agrees;
    };
    let mut computed = EventDigest::default();
    for event in events {
        if let Err(error) = computed.push_view(event) {
            return TraceCheck::Differs(format!("event {}: {error}", computed.count));
        }
    }
    let computed = computed.finish(true);
    if computed.count != recorded.count {
        TraceCheck::Differs(format!(
            "{} events recorded, {} found",
            recorded.count, computed.count
        ))
    } else if computed.sha256 != recorded.sha256 {
        TraceCheck::Differs(format!(
            "recorded {}, computed {}",
            recorded.sha256, computed.sha256
        ))
    } else {
        TraceCheck::Agrees
    }
}

fn hash_tape(tape: &Tape<'_>) -> Result<String, ContractError> {
    let mut hasher = Sha256::new();
    canonical::write_with_null(tape, HASH_MEMBER, |piece| hasher.update(piece))?;
    Ok(hex(hasher))
}

fn hash_view(view: View<'_>) -> Result<String, ContractError> {
    let mut hasher = Sha256::new();
    canonical::write(view, |piece| hasher.update(piece))?;
    Ok(hex(hasher))
}

fn digest_members(tape: &Tape<'_>) -> Result<BTreeMap<String, String>, ContractError> {
    let mut digests = BTreeMap::new();
    for (key, value) in tape.root().entries() {
        let Some(name) = key.as_str() else { continue };
        if name != HASH_MEMBER && name != DIGESTS_MEMBER {
            digests.insert(name.into_owned(), hash_view(value)?);
        }
    }
    Ok(digests)
}

/// The members whose hash is not the recorded one, or that are recorded and gone.
fn changed_members(tape: &Tape<'_>) -> Vec<String> {
    let Some(recorded) = tape.root().get(DIGESTS_MEMBER) else {
        return Vec::new();
    };
    let Ok(computed) = digest_members(tape) else {
        return Vec::new();
    };
    let mut changed: Vec<String> = computed
        .iter()
        .filter(|(name, digest)| {
            recorded.get(name).and_then(View::as_str).as_deref() != Some(digest)
        })
        .map(|(name, _)| name.clone())
        .collect();
    changed.extend(recorded.entries().filter_map(|(key, _)| {
        let name = key.as_str()?;
        (!computed.contains_key(name.as_ref())).then(|| name.into_owned())
    }));
    // Every member is as it was, so the hash is not.
    if changed.is_empty() {
        changed.push(HASH_MEMBER.to_owned());
    }
    changed
}

/// A receipt as compact JSON.
pub(crate) fn serialize_receipt(receipt: &Receipt) -> Result<Vec<u8>, ContractError> {
    // JSON has no form for these, and serde would write null: two receipts would share a hash.
    if receipt
        .usage
        .estimated_cost_usd
        .is_some_and(|cost| !cost.is_finite())
    {
        return Err(ContractError::NonFinite {
            field: "usage.estimated_cost_usd",
        });
    }
    serialize(receipt, "receipt")
}

fn serialize<T: Serialize>(value: &T, what: &str) -> Result<Vec<u8>, ContractError> {
    serde_json::to_vec(value).map_err(|error| ContractError::Schema {
        pointer: String::new(),
        problem: format!("cannot serialise the {what}: {error}"),
    })
}

fn hex(hasher: Sha256) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(64);
    for byte in hasher.finalize() {
        // Writing to a string cannot fail.
        let _ = write!(text, "{byte:02x}");
    }
    text
}
