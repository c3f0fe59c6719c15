//! What does not belong to the workspace, in the order of the walk whichever thread met it.

use abp_core::LeftOut;

use crate::dir::path_of;
use crate::quote::display_path;

/// As many as a receipt lists.
const MAX_LISTED: usize = 1_000;

/// What was left out: the first of it by name, all of it by number.
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

/// What one thread left out, each with its place in the walk.
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

    /// What several threads left out.
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
