//! The right edge of a growing tree: enough to append and to know the root, and no more.

use serde::{Deserialize, Serialize};

use super::{MAX_TREE_SIZE, empty_root, node_hash};
use crate::Hash;

/// The roots of the full subtrees that a tree is made of, largest first.
///
/// At most 53 hashes, whatever the size: appending and taking the root cost a logarithmic number of
/// hashes and no leaf is kept. The tree is the one that [`root`](super::root) is defined on.
///
/// ```
/// use abp_receipt::{Frontier, merkle};
///
/// let leaves = [b"a", b"b", b"c"].map(|content| merkle::leaf_hash(content));
/// let mut frontier = Frontier::default();
/// for leaf in leaves {
///     frontier.push(leaf);
/// }
/// assert_eq!(frontier.size(), 3);
/// assert_eq!(frontier.root(), merkle::root(&leaves));
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "Parts")]
pub struct Frontier {
    size: u64,
    peaks: Vec<Hash>,
}

/// A size and a list of subtree roots that do not belong together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a tree of {size} leaves is not made of {peaks} full subtrees")]
pub struct InvalidFrontier {
    size: u64,
    peaks: usize,
}

#[derive(Deserialize)]
struct Parts {
    size: u64,
    peaks: Vec<Hash>,
}

impl Frontier {
    /// The frontier of a tree of that size, from the roots of its full subtrees, largest first.
    ///
    /// # Errors
    /// Fails where a tree of that size has another number of full subtrees.
    pub fn from_parts(size: u64, peaks: Vec<Hash>) -> Result<Self, InvalidFrontier> {
        if size > MAX_TREE_SIZE || u64::from(size.count_ones()) != peaks.len() as u64 {
            let peaks = peaks.len();
            return Err(InvalidFrontier { size, peaks });
        }
        Ok(Self { size, peaks })
    }

    /// Appends a leaf.
    pub fn push(&mut self, leaf: Hash) {
        // The trailing ones of the size are the full subtrees that the new leaf completes.
        let mut node = leaf;
        for _ in 0..self.size.trailing_ones() {
            if let Some(left) = self.peaks.pop() {
                node = node_hash(&left, &node);
            }
        }
        self.peaks.push(node);
        self.size += 1;
    }

    /// The number of leaves.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The root.
    #[must_use]
    pub fn root(&self) -> Hash {
        let from_the_right = self.peaks.iter().rev().copied();
        from_the_right
            .reduce(|right, left| node_hash(&left, &right))
            .unwrap_or_else(empty_root)
    }

    /// The roots of the full subtrees, largest first.
    #[must_use]
    pub fn peaks(&self) -> &[Hash] {
        &self.peaks
    }
}

impl TryFrom<Parts> for Frontier {
    type Error = InvalidFrontier;

    fn try_from(parts: Parts) -> Result<Self, InvalidFrontier> {
        Self::from_parts(parts.size, parts.peaks)
    }
}
