//! The list of names that were not staged, in the order of the walk, whichever thread met them.

use abp_core::LeftOut;

use crate::dir::path_of;
use crate::quote::display_path;

/// The number of names that a receipt lists.
const MAX_LISTED: usize = 1_000;

/// Names that were left out: the first ones, and the number of all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOutList {
    pub(crate) first: Vec<LeftOut>,
    pub(crate) count: u64,
}

impl LeftOutList {
    pub(crate) fn add(&mut self, path: &[u8], reason: impl Into<String>) {
        self.count += 1;
        if self.first.len() < MAX_LISTED {
            self.first.push(LeftOut {
                path: display_path(path_of(path)),
                reason: reason.into(),
            });
        }
    }
}

/// Names that one thread left out, each with its place in the walk.
#[derive(Debug, Default)]
pub(crate) struct Omissions {
    list: LeftOutList,
    /// The places of the first ones, ascending.
    places: Vec<u64>,
}

impl Omissions {
    /// Places come in ascending order, so the first of each thread hold the first of all.
    pub(crate) fn add(&mut self, place: u64, path: &[u8], reason: impl Into<String>) {
        self.list.add(path, reason);
        if self.places.len() < self.list.first.len() {
            self.places.push(place);
        }
    }

    /// Merges the lists of several threads.
    pub(crate) fn merged(threads: Vec<Self>) -> LeftOutList {
        let count = threads.iter().map(|thread| thread.list.count).sum();
        let mut placed: Vec<(u64, LeftOut)> = threads
            .into_iter()
            .flat_map(|thread| thread.places.into_iter().zip(thread.list.first))
            .collect();
        placed.sort_unstable_by_key(|(place, _)| *place);
        placed.truncate(MAX_LISTED);
        LeftOutList {
            first: placed.into_iter().map(|(_, left)| left).collect(),
            count,
        }
    }
}
