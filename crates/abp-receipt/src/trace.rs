//! Compares stored events with the digest that a receipt has of them.
//!
//! The events of a run are rows of a store, and only the receipt is in the log. The receipt's
//! `trace_digest` covers every event, so recomputing it from the stored text finds each change:
//!
//! ```text
//! stored:  {"type":"a"}  {"type":"b"}            receipt: count 2, sha256 = H(canonical + "\n", …)
//! ```
//!
//! Where the receipt embeds the events, the first one that differs is named.

use std::fmt;

use abp_core::{CancelReason, TraceDigest};
use abp_error::ErrorCode;
use abp_json::{Kind, Limits, Tape, View, canonical};
use serde::Deserialize;
use sha2::{Digest as _, Sha256};

use crate::{Hash, InvalidHash};

/// Recomputes the digest of a run's events, one event at a time.
#[derive(Debug, Clone)]
pub struct TraceVerifier {
    recorded: Option<TraceDigest>,
    /// The hash of each event that the receipt embeds.
    embedded: Option<Vec<Hash>>,
    /// Whether the receipt itself says that events did not reach the store.
    admits_missing: bool,
    hasher: Sha256,
    count: u64,
    first_problem: Option<TraceProblem>,
}

/// What the events of a run turned out to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TraceCoverage {
    /// They are the ones that the receipt has.
    Covered,
    /// The receipt has no digest, or says that events did not reach the store; those that are there
    /// follow each other.
    NotCovered,
    /// They are not the ones that the receipt has.
    Wrong(TraceProblem),
}

/// How stored events differ from those of a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TraceProblem {
    /// An event is gone.
    Missing {
        /// Its number.
        seq: u64,
    },
    /// The receipt has fewer events.
    Extra {
        /// The number of the first that it does not have.
        seq: u64,
    },
    /// An event is another one.
    Changed {
        /// Its number, where the receipt embeds the events.
        seq: Option<u64>,
    },
    /// An event is not JSON.
    Unreadable {
        /// Its number.
        seq: u64,
        /// What is wrong with it.
        problem: String,
    },
}

impl fmt::Display for TraceProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing { seq } => write!(f, "event {seq} is missing"),
            Self::Extra { seq } => write!(f, "event {seq} is not in the receipt"),
            Self::Changed { seq: Some(seq) } => write!(f, "event {seq} was changed"),
            Self::Changed { seq: None } => f.write_str("at least one event was changed"),
            Self::Unreadable { seq, problem } => write!(f, "event {seq} is not JSON: {problem}"),
        }
    }
}

/// What is read of a receipt.
#[derive(Deserialize)]
struct ReceiptTrace {
    #[serde(default)]
    trace_digest: Option<TraceDigest>,
    #[serde(default)]
    cancel_reason: Option<CancelReason>,
    #[serde(default)]
    error: Option<ReceiptError>,
}

#[derive(Deserialize)]
struct ReceiptError {
    code: ErrorCode,
}

impl TraceVerifier {
    /// Begins with the receipt of the run.
    ///
    /// # Errors
    /// Fails where the document is not a receipt.
    pub fn for_receipt(document: &[u8]) -> Result<Self, String> {
        let tape = Tape::parse(document, &Limits::default()).map_err(|error| error.to_string())?;
        if tape.root().kind() != Kind::Object {
            return Err("not an object".to_owned());
        }
        let receipt: ReceiptTrace =
            serde_json::from_str(tape.source()).map_err(|error| error.to_string())?;
        let is_embedded = |digest: &TraceDigest| digest.embedded;
        let embedded = match tape.root().get("trace") {
            Some(trace) if receipt.trace_digest.as_ref().is_some_and(is_embedded) => {
                let hashes: Result<Vec<Hash>, String> = trace.items().map(event_hash).collect();
                Some(hashes?)
            }
            _ => None,
        };
        let failed_to_store = |error: &ReceiptError| error.code == ErrorCode::ReceiptStoreFailed;
        Ok(Self {
            recorded: receipt.trace_digest,
            embedded,
            admits_missing: receipt.cancel_reason == Some(CancelReason::Storage)
                || receipt.error.as_ref().is_some_and(failed_to_store),
            hasher: Sha256::new(),
            count: 0,
            first_problem: None,
        })
    }

    /// Takes the next stored event.
    pub fn push(&mut self, seq: u64, json: &str) {
        if self.first_problem.is_some() {
            return;
        }
        if seq != self.count {
            self.first_problem = Some(TraceProblem::Missing { seq: self.count });
            return;
        }
        if self
            .recorded
            .as_ref()
            .is_some_and(|digest| seq >= digest.count)
        {
            self.first_problem = Some(TraceProblem::Extra { seq });
            return;
        }
        self.count += 1;
        let bytes = match canonical_event(json) {
            Ok(bytes) => bytes,
            Err(problem) => {
                self.first_problem = Some(TraceProblem::Unreadable { seq, problem });
                return;
            }
        };
        if let Some(embedded) = &self.embedded {
            let place = usize::try_from(seq).ok();
            let expected = place.and_then(|place| embedded.get(place));
            if expected != Some(&Hash::of(&bytes)) {
                self.first_problem = Some(TraceProblem::Changed { seq: Some(seq) });
            }
        }
        self.hasher.update(&bytes);
        self.hasher.update(b"\n");
    }

    /// Says what the events were, once all were taken.
    #[must_use]
    pub fn finish(self) -> TraceCoverage {
        if let Some(problem) = self.first_problem {
            return TraceCoverage::Wrong(problem);
        }
        let Some(recorded) = self.recorded else {
            return TraceCoverage::NotCovered;
        };
        if self.count < recorded.count {
            return if self.admits_missing {
                TraceCoverage::NotCovered
            } else {
                TraceCoverage::Wrong(TraceProblem::Missing { seq: self.count })
            };
        }
        let expected: Result<Hash, InvalidHash> = recorded.sha256.parse();
        if expected == Ok(Hash::from_bytes(self.hasher.finalize().into())) {
            TraceCoverage::Covered
        } else {
            TraceCoverage::Wrong(TraceProblem::Changed { seq: None })
        }
    }
}

/// The canonical form of a stored event. A key that is named twice would leave it open which of the
/// two counts.
fn canonical_event(json: &str) -> Result<Vec<u8>, String> {
    let tape =
        Tape::parse(json.as_bytes(), &Limits::default()).map_err(|error| error.to_string())?;
    if !tape.duplicates().is_empty() {
        return Err("a key is named twice".to_owned());
    }
    canonical::view_to_vec(tape.root()).map_err(|error| error.to_string())
}

fn event_hash(event: View<'_>) -> Result<Hash, String> {
    canonical::view_to_vec(event)
        .map(|bytes| Hash::of(&bytes))
        .map_err(|error| error.to_string())
}
