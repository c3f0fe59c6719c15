//! A decision about the changes of a run, as the log binds it.

use abp_core::{Timestamp, read_document};
use abp_json::canonical;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::{Hash, LogError};

/// How the changes of a run were decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DecisionKind {
    /// Every change is in the source now.
    Applied,
    /// The named changes are in the source; the others are still undecided.
    PartiallyApplied,
    /// The changes were thrown away.
    Discarded,
    /// An application was undone; the named saves of the user stayed.
    RolledBack,
    /// The changes were kept for as long as they are kept, and then removed.
    Expired,
}

impl DecisionKind {
    /// The name in documents.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::PartiallyApplied => "partially_applied",
            Self::Discarded => "discarded",
            Self::RolledBack => "rolled_back",
            Self::Expired => "expired",
        }
    }
}

/// One decision about the changes of a run: who decided what, when, and by which way.
///
/// Its document is canonical JSON, and an [entry](crate::EntryKind::Decision) of the log has the
/// SHA-256 of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ChangeDecision {
    /// When it was made.
    pub at: Timestamp,
    /// The person, key or lane that decided.
    pub by: String,
    /// The change set it is about.
    pub change_set_sha256: Hash,
    /// How it was decided.
    pub kind: DecisionKind,
    /// The paths that were written, relative to the project; all of them where the list is empty.
    pub paths: Vec<String>,
    /// The run.
    pub run: Uuid,
    /// Paths that the user saved meanwhile, and that a roll-back left alone.
    pub saves: Vec<String>,
    /// The way it came: `cli`, `http`, `lane` and so on.
    pub via: String,
}

impl ChangeDecision {
    /// The document whose hash is logged.
    ///
    /// # Errors
    /// Fails where a text cannot be written as JSON.
    pub fn to_document(&self) -> Result<Vec<u8>, LogError> {
        canonical::value_to_vec(self).map_err(|error| LogError::Malformed {
            problem: error.to_string(),
        })
    }

    /// Reads a document. It is to be believed where its hash is the logged one.
    ///
    /// # Errors
    /// Fails where the bytes are not exactly those that [`to_document`](Self::to_document) writes.
    pub fn from_document(bytes: &[u8]) -> Result<Self, LogError> {
        let malformed = |problem: String| LogError::Malformed { problem };
        let decision: Self = read_document(bytes).map_err(|error| malformed(error.to_string()))?;
        if decision.to_document()? != bytes {
            return Err(malformed("a decision in another form".to_owned()));
        }
        Ok(decision)
    }
}
