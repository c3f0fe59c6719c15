//! Duplicate keys, found when an object closes.
//!
//! The work is near linear whatever the keys are: a hostile object of a hundred thousand keys costs
//! a sort, a usual one a bit for each key.

use std::borrow::Cow;

use crate::string::key_bytes;
use crate::tape::{Duplicate, Node, NodeId, flag};

/// Objects with more keys than this are not compared pairwise.
const FEW_KEYS: usize = 16;

/// Tells whether an object whose descendants are the last nodes may have a key twice.
///
/// Fingerprints settle that: one bit of each for the usual object, all of them where bits collide.
#[inline]
pub(crate) fn suspected(nodes: &[Node], object: u32) -> bool {
    let mut bits = 0_u64;
    keys(nodes, object).any(|(_, fingerprint)| {
        let bit = 1 << (fingerprint >> 26);
        let collides = bits & bit != 0;
        bits |= bit;
        collides
    }) && fingerprints_collide(nodes, object)
}

fn fingerprints_collide(nodes: &[Node], object: u32) -> bool {
    let mut seen = [0; FEW_KEYS];
    keys(nodes, object)
        .enumerate()
        .any(|(count, (_, fingerprint))| {
            let collides = seen.contains(&fingerprint);
            match seen.get_mut(count) {
                Some(slot) => *slot = fingerprint,
                None => return true,
            }
            collides
        })
}

/// Finds the keys that repeat an earlier one, in document order.
pub(crate) fn find(source: &str, nodes: &[Node], object: u32) -> Vec<Duplicate> {
    let text = |id: u32| -> Cow<'_, [u8]> {
        let span = nodes.get(id as usize).map(|key| {
            let inner = source.get(key.start as usize + 1..key.end as usize - 1);
            key_bytes(inner.unwrap_or_default(), key.has(flag::ESCAPED))
        });
        span.unwrap_or_default()
    };
    let mut keys: Vec<_> = keys(nodes, object)
        .map(|(id, fingerprint)| (fingerprint, id))
        .collect();
    keys.sort_unstable();
    let mut later = Vec::new();
    for group in keys.chunk_by_mut(|left, right| left.0 == right.0) {
        if group.len() > 1 {
            group.sort_by_cached_key(|&(_, id)| (text(id), id));
        }
        for pair in group.windows(2) {
            if let &[(_, first), (_, second)] = pair
                && text(first) == text(second)
            {
                later.push(NodeId(second));
            }
        }
    }
    later.sort_unstable();
    later
        .into_iter()
        .map(|key| Duplicate {
            object: NodeId(object),
            key,
        })
        .collect()
}

/// Returns the keys of an object whose descendants are the last nodes, with their fingerprints.
#[inline]
fn keys(nodes: &[Node], object: u32) -> impl Iterator<Item = (u32, u32)> {
    let mut id = object + 1;
    std::iter::from_fn(move || {
        let key = nodes.get(id as usize)?;
        let value = nodes.get(id as usize + 1)?;
        let found = (id, key.link);
        id = value.next(id + 1);
        Some(found)
    })
}
