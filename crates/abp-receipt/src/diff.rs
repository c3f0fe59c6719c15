//! What is different between two receipts, member by member.

use std::collections::BTreeSet;

use abp_core::{ContractError, Receipt, read_document};
use serde::Serialize;
use serde_json::{Map, Value};

/// The members that follow from all others.
const HASH_MEMBERS: [&str; 2] = ["member_sha256", "receipt_sha256"];

/// What is different between two receipts.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ReceiptDiff {
    /// Every difference: members in the order of their names, elements in the order of the array.
    pub changes: Vec<FieldDiff>,
}

/// One difference.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldDiff {
    /// Where, as names and indices with dots between them. A name that would be ambiguous is quoted.
    pub field: String,
    /// The value in the first receipt; omitted where it has none, which is not null.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub old: Option<Value>,
    /// The value in the second receipt, likewise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub new: Option<Value>,
}

impl ReceiptDiff {
    /// Whether there is no difference.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The differences without the hashes, which differ whenever anything does.
    #[must_use]
    pub fn without_hashes(mut self) -> Self {
        self.changes.retain(|change| {
            let member = change.field.split('.').next();
            member.is_none_or(|member| !HASH_MEMBERS.contains(&member))
        });
        self
    }
}

/// Compares two receipts.
///
/// # Errors
/// Fails where a receipt holds something JSON cannot carry.
pub fn diff_receipts(old: &Receipt, new: &Receipt) -> Result<ReceiptDiff, ContractError> {
    diff_documents(&old.to_document()?, &new.to_document()?)
}

/// Compares two receipt documents, the members this version does not know included.
///
/// # Errors
/// Fails where a document is not a JSON object or names a key twice.
pub fn diff_documents(old: &[u8], new: &[u8]) -> Result<ReceiptDiff, ContractError> {
    let old: Map<String, Value> = read_document(old)?;
    let new: Map<String, Value> = read_document(new)?;
    let mut diff = Differ::default();
    diff.objects(&old, &new);
    Ok(ReceiptDiff {
        changes: diff.changes,
    })
}

#[derive(Default)]
struct Differ {
    path: Vec<String>,
    changes: Vec<FieldDiff>,
}

impl Differ {
    fn values(&mut self, old: Option<&Value>, new: Option<&Value>) {
        match (old, new) {
            (Some(Value::Object(old)), Some(Value::Object(new))) => self.objects(old, new),
            (Some(Value::Array(old)), Some(Value::Array(new))) => {
                for index in 0..old.len().max(new.len()) {
                    self.path.push(index.to_string());
                    self.values(old.get(index), new.get(index));
                    self.path.pop();
                }
            }
            (old, new) if old == new => {}
            (old, new) => self.changes.push(FieldDiff {
                field: self.path.join("."),
                old: old.cloned(),
                new: new.cloned(),
            }),
        }
    }

    fn objects(&mut self, old: &Map<String, Value>, new: &Map<String, Value>) {
        // Sorted here: how a map orders its keys depends on who else is in the binary.
        let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
        for name in names {
            self.path.push(step(name));
            self.values(old.get(name), new.get(name));
            self.path.pop();
        }
    }
}

fn step(name: &str) -> String {
    let ambiguous = name.is_empty() || name.contains(['.', '"']);
    if ambiguous {
        Value::from(name).to_string()
    } else {
        name.to_owned()
    }
}
