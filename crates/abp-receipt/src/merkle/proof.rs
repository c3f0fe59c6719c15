//! Inclusion and consistency proofs (RFC 9162, sections 2.1.3 and 2.1.4).

use abp_error::ErrorCode;

use super::{halves, node_hash, root};
use crate::Hash;

/// Why a proof cannot be made or does not hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ProofError {
    /// There is no such leaf.
    #[error("a tree of {size} leaves has no leaf {index}")]
    NoSuchLeaf {
        /// The leaf.
        index: u64,
        /// The size of the tree.
        size: u64,
    },
    /// There is nothing to prove between these sizes.
    #[error("a tree of {new} leaves has no consistency proof from {old}")]
    NoSuchSizes {
        /// The older size.
        old: u64,
        /// The newer size.
        new: u64,
    },
    /// The proof has too few or too many hashes.
    #[error("the proof has the wrong length, {length}")]
    WrongLength {
        /// How many hashes it has.
        length: usize,
    },
    /// The proof leads to another root.
    #[error("the proof leads to root {computed}, not to {expected}")]
    WrongRoot {
        /// The root that was to be proven.
        expected: Hash,
        /// The root the proof leads to.
        computed: Hash,
    },
}

impl ProofError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::NoSuchLeaf { .. } | Self::NoSuchSizes { .. } => ErrorCode::ValidationFailed,
            Self::WrongLength { .. } | Self::WrongRoot { .. } => ErrorCode::ReceiptChainBroken,
        }
    }
}

/// Proves that the tree with these leaf hashes holds the leaf at `index`.
///
/// # Errors
/// Fails where there is no such leaf.
pub fn inclusion_proof(leaves: &[Hash], index: u64) -> Result<Vec<Hash>, ProofError> {
    let size = leaves.len() as u64;
    if index >= size {
        return Err(ProofError::NoSuchLeaf { index, size });
    }
    let mut path = Vec::new();
    let (mut within, mut index) = (leaves, index);
    while within.len() > 1 {
        let (left, right) = halves(within);
        let split = left.len() as u64;
        if index < split {
            path.push(root(right));
            within = left;
        } else {
            path.push(root(left));
            within = right;
            index -= split;
        }
    }
    path.reverse();
    Ok(path)
}

/// Proves that the tree with these leaf hashes begins with the first `old_size` of them.
///
/// # Errors
/// Fails where the old tree is empty or larger than the tree.
pub fn consistency_proof(leaves: &[Hash], old_size: u64) -> Result<Vec<Hash>, ProofError> {
    let size = leaves.len() as u64;
    if old_size == 0 || old_size > size {
        return Err(ProofError::NoSuchSizes {
            old: old_size,
            new: size,
        });
    }
    let mut path = Vec::new();
    let (mut within, mut old) = (leaves, old_size);
    // Whether `within` starts at the first leaf: its root is then the old root, which the verifier has.
    let mut known = true;
    while old < within.len() as u64 {
        let (left, right) = halves(within);
        let split = left.len() as u64;
        if old <= split {
            path.push(root(right));
            within = left;
        } else {
            path.push(root(left));
            within = right;
            old -= split;
            known = false;
        }
    }
    if !known {
        path.push(root(within));
    }
    path.reverse();
    Ok(path)
}

/// Checks that a tree of `size` leaves with that root holds `leaf` at `index`.
///
/// # Errors
/// Says what is wrong with the proof.
pub fn verify_inclusion(
    leaf: &Hash,
    index: u64,
    size: u64,
    proof: &[Hash],
    expected: &Hash,
) -> Result<(), ProofError> {
    if index >= size {
        return Err(ProofError::NoSuchLeaf { index, size });
    }
    let mut place = Place::new(index, size - 1);
    let mut computed = *leaf;
    for sibling in proof {
        computed = match place.climb().ok_or_else(|| wrong_length(proof))? {
            Side::Left => node_hash(sibling, &computed),
            Side::Right => node_hash(&computed, sibling),
        };
    }
    if !place.at_top() {
        return Err(wrong_length(proof));
    }
    compare(expected, computed)
}

/// Checks that the tree of `new_size` leaves with root `new_root` begins with the tree of `old_size`
/// leaves with root `old_root`.
///
/// # Errors
/// Says what is wrong with the proof. An empty old tree proves nothing and is refused.
pub fn verify_consistency(
    old_size: u64,
    new_size: u64,
    proof: &[Hash],
    old_root: &Hash,
    new_root: &Hash,
) -> Result<(), ProofError> {
    if old_size == 0 || old_size > new_size {
        return Err(ProofError::NoSuchSizes {
            old: old_size,
            new: new_size,
        });
    }
    if old_size == new_size {
        if !proof.is_empty() {
            return Err(wrong_length(proof));
        }
        return compare(old_root, *new_root);
    }
    // A full old tree is a node of the new one: its root, which is known, is not in the proof.
    let (start, rest) = match proof {
        _ if old_size.is_power_of_two() => (old_root, proof),
        [first, rest @ ..] => (first, rest),
        [] => return Err(wrong_length(proof)),
    };
    let mut place = Place::new(old_size - 1, new_size - 1);
    place.skip_full_subtrees();
    let (mut old, mut new) = (*start, *start);
    for sibling in rest {
        match place.climb().ok_or_else(|| wrong_length(proof))? {
            Side::Left => {
                old = node_hash(sibling, &old);
                new = node_hash(sibling, &new);
            }
            Side::Right => new = node_hash(&new, sibling),
        }
    }
    if !place.at_top() {
        return Err(wrong_length(proof));
    }
    compare(old_root, old)?;
    compare(new_root, new)
}

/// On which side of a node its sibling is.
enum Side {
    Left,
    Right,
}

/// A node on the way up: its index in its level, and the index of the last node there.
struct Place {
    index: u64,
    last: u64,
}

impl Place {
    fn new(index: u64, last: u64) -> Self {
        Self { index, last }
    }

    /// Goes to the next node that has a sibling, passes it, and says where the sibling was; `None`
    /// at the top.
    fn climb(&mut self) -> Option<Side> {
        if self.at_top() {
            return None;
        }
        let side = if self.index & 1 == 1 || self.index == self.last {
            // The last node of a level may have no sibling there: it moves up unchanged.
            while self.index & 1 == 0 && self.index != 0 {
                self.up();
            }
            Side::Left
        } else {
            Side::Right
        };
        self.up();
        Some(side)
    }

    /// Goes up while the node is a right child.
    fn skip_full_subtrees(&mut self) {
        while self.index & 1 == 1 {
            self.up();
        }
    }

    fn up(&mut self) {
        self.index >>= 1;
        self.last >>= 1;
    }

    fn at_top(&self) -> bool {
        self.last == 0
    }
}

fn wrong_length(proof: &[Hash]) -> ProofError {
    let length = proof.len();
    ProofError::WrongLength { length }
}

fn compare(expected: &Hash, computed: Hash) -> Result<(), ProofError> {
    if *expected == computed {
        Ok(())
    } else {
        let expected = *expected;
        Err(ProofError::WrongRoot { expected, computed })
    }
}
