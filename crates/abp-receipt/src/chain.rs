//! Receipts in the order of a log, in memory.

use std::collections::BTreeMap;

use abp_core::{ContractError, Receipt, Timestamp, document_hash, read_document};
use abp_error::ErrorCode;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::Hash;

/// Why a receipt cannot be added to a chain, or a chain not be believed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChainError {
    /// The document is not a receipt.
    #[error("receipt {seq} cannot be read")]
    Unreadable {
        /// Its place in the chain.
        seq: u64,
        /// Why.
        source: ContractError,
    },
    /// The receipt carries no hash.
    #[error("receipt {seq} of run {run_id} has no hash")]
    HashMissing {
        /// Its place in the chain.
        seq: u64,
        /// The run.
        run_id: Uuid,
    },
    /// The receipt was changed after it was hashed.
    #[error("receipt {seq} of run {run_id} was changed: recorded {recorded}, computed {computed}")]
    HashMismatch {
        /// Its place in the chain.
        seq: u64,
        /// The run.
        run_id: Uuid,
        /// The hash in the receipt.
        recorded: String,
        /// The hash of the receipt as it is.
        computed: String,
    },
    /// The chain has a receipt of that run already.
    #[error("receipt {seq}: run {run_id} has receipt {first} already")]
    DuplicateRun {
        /// Its place in the chain.
        seq: u64,
        /// The run.
        run_id: Uuid,
        /// The place of the receipt it has.
        first: u64,
    },
    /// The link is not numbered by its place.
    #[error("link {index} is numbered {seq}")]
    SequenceGap {
        /// Its place.
        index: u64,
        /// Its number.
        seq: u64,
    },
    /// The link does not name the receipt before it.
    #[error("link {seq} does not follow the receipt before it")]
    BrokenLink {
        /// Its number.
        seq: u64,
    },
    /// What the link says is not what its receipt says.
    #[error("link {seq} says something else than its receipt")]
    WrongLink {
        /// Its number.
        seq: u64,
    },
}

impl ChainError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Unreadable { source, .. } => source.code(),
            Self::HashMissing { .. } => ErrorCode::ContractInvalidReceipt,
            Self::HashMismatch { .. } => ErrorCode::ReceiptHashMismatch,
            Self::DuplicateRun { .. }
            | Self::SequenceGap { .. }
            | Self::BrokenLink { .. }
            | Self::WrongLink { .. } => ErrorCode::ReceiptChainBroken,
        }
    }
}

/// Receipts in the order in which they were added.
///
/// The order is that of the chain, not of the clocks: a receipt of a run that says it started before
/// the one ahead of it is taken, and the inversion is noted. A chain by itself protects against
/// change and not against its owner, who can make another one: that is what the signed log is for,
/// of which a chain is a view.
#[derive(Debug, Clone, Default)]
pub struct ReceiptChain {
    links: Vec<ChainLink>,
    /// The first link of each run.
    places: BTreeMap<Uuid, u64>,
}

/// One receipt and its place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ChainLink {
    /// The place, from 0.
    pub seq: u64,
    /// The run.
    pub run_id: Uuid,
    /// When the run began, by its own clock.
    pub started_at: Timestamp,
    /// Whether the run began before the one ahead of it did.
    pub clock_inverted: bool,
    /// The hash of the receipt.
    pub receipt_sha256: Hash,
    /// The hash of the receipt ahead.
    pub parent_sha256: Option<Hash>,
    /// The receipt as JSON text, every member it came with included.
    pub document: String,
}

impl ReceiptChain {
    /// Takes a chain as it was stored. Nothing is believed before [`verify`](Self::verify).
    #[must_use]
    pub fn from_links(links: Vec<ChainLink>) -> Self {
        let mut places = BTreeMap::new();
        for (link, index) in links.iter().zip(0..) {
            places.entry(link.run_id).or_insert(index);
        }
        Self { links, places }
    }

    /// Adds a receipt.
    ///
    /// # Errors
    /// Refuses a receipt whose hash is missing or wrong, and a second receipt of a run.
    pub fn push(&mut self, receipt: &Receipt) -> Result<&ChainLink, ChainError> {
        let seq = self.links.len() as u64;
        let document = receipt
            .to_document()
            .map_err(|source| ChainError::Unreadable { seq, source })?;
        self.push_document(&document)
    }

    /// Adds a receipt document; members this version does not know stay and are covered.
    ///
    /// # Errors
    /// As [`push`](Self::push); also where the document is not a receipt.
    pub fn push_document(&mut self, document: &[u8]) -> Result<&ChainLink, ChainError> {
        let link = make_link(document, self.links.last(), self.links.len() as u64)?;
        let (seq, run_id) = (link.seq, link.run_id);
        if let Some(first) = self.places.get(&run_id).copied() {
            return Err(ChainError::DuplicateRun { seq, run_id, first });
        }
        self.places.insert(run_id, seq);
        Ok(self.links.push_mut(link))
    }

    /// Checks every receipt and every link.
    ///
    /// # Errors
    /// Every problem found, in the order of the chain.
    pub fn verify(&self) -> Result<(), Vec<ChainError>> {
        let mut problems = Vec::new();
        let mut ahead: Option<&ChainLink> = None;
        for (link, index) in self.links.iter().zip(0..) {
            let seq = link.seq;
            if seq != index {
                problems.push(ChainError::SequenceGap { index, seq });
            }
            match make_link(link.document.as_bytes(), ahead, seq) {
                Err(error) => problems.push(error),
                Ok(made) if made.parent_sha256 != link.parent_sha256 => {
                    problems.push(ChainError::BrokenLink { seq });
                }
                Ok(made) if made != *link => problems.push(ChainError::WrongLink { seq }),
                Ok(_) => {}
            }
            let run_id = link.run_id;
            if let Some(first) = self.places.get(&run_id).copied()
                && first != index
            {
                problems.push(ChainError::DuplicateRun { seq, run_id, first });
            }
            ahead = Some(link);
        }
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems)
        }
    }

    /// The links, first to last.
    #[must_use]
    pub fn links(&self) -> &[ChainLink] {
        &self.links
    }

    /// The link of a run.
    #[must_use]
    pub fn get(&self, run_id: Uuid) -> Option<&ChainLink> {
        let place = usize::try_from(*self.places.get(&run_id)?).ok()?;
        self.links.get(place)
    }
}

impl ChainLink {
    /// The receipt.
    ///
    /// # Errors
    /// Fails where the document is not a receipt; a link that a chain made holds one.
    pub fn receipt(&self) -> Result<Receipt, ContractError> {
        read_document(self.document.as_bytes())
    }
}

fn make_link(
    document: &[u8],
    ahead: Option<&ChainLink>,
    seq: u64,
) -> Result<ChainLink, ChainError> {
    let unreadable = |source| ChainError::Unreadable { seq, source };
    let receipt: Receipt = read_document(document).map_err(unreadable)?;
    let computed = document_hash(document).map_err(unreadable)?;
    let run_id = receipt.meta.run_id;
    let recorded = receipt
        .receipt_sha256
        .ok_or(ChainError::HashMissing { seq, run_id })?;
    let receipt_sha256 = match computed.parse() {
        Ok(hash) if computed == recorded => hash,
        _ => {
            return Err(ChainError::HashMismatch {
                seq,
                run_id,
                recorded,
                computed,
            });
        }
    };
    let started_at = receipt.meta.started_at;
    Ok(ChainLink {
        seq,
        run_id,
        started_at,
        clock_inverted: ahead.is_some_and(|ahead| started_at < ahead.started_at),
        receipt_sha256,
        parent_sha256: ahead.map(|ahead| ahead.receipt_sha256),
        document: String::from_utf8_lossy(document).into_owned(),
    })
}
