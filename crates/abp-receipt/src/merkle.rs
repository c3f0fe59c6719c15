//! The Merkle tree of RFC 6962: hashing, proofs and an incremental root.
//!
//! A tree is a list of leaf hashes. A leaf and an inner node are hashed with different prefixes, so
//! that neither can be passed off as the other. Functions that take a whole tree need all of its
//! leaf hashes; a log that only appends keeps a [`Frontier`].

mod frontier;
mod proof;

pub use frontier::{Frontier, InvalidFrontier};
pub use proof::{
    ProofError, consistency_proof, inclusion_proof, verify_consistency, verify_inclusion,
};

use crate::Hash;

/// The largest tree: its sizes and indices are exact wherever JSON is read.
pub const MAX_TREE_SIZE: u64 = (1 << 53) - 1;

/// The hash of a leaf with this content.
#[must_use]
pub fn leaf_hash(content: &[u8]) -> Hash {
    Hash::of_parts(&[&[0], content])
}

/// The hash of the node above two others.
#[must_use]
pub fn node_hash(left: &Hash, right: &Hash) -> Hash {
    Hash::of_parts(&[&[1], left.as_bytes(), right.as_bytes()])
}

/// The root of the tree that has no leaves.
#[must_use]
pub fn empty_root() -> Hash {
    Hash::of(&[])
}

/// The root of the tree with these leaf hashes.
#[must_use]
pub fn root(leaves: &[Hash]) -> Hash {
    match leaves {
        [] => empty_root(),
        [leaf] => *leaf,
        _ => {
            let (left, right) = halves(leaves);
            node_hash(&root(left), &root(right))
        }
    }
}

/// Divides two leaves or more as the tree does: the left side is the largest full tree that leaves
/// something for the right.
fn halves(leaves: &[Hash]) -> (&[Hash], &[Hash]) {
    let last = leaves.len().saturating_sub(1);
    leaves.split_at(last.checked_ilog2().map_or(0, |height| 1 << height))
}
