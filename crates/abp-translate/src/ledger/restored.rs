//! What the way back would not restore, although the way there kept it.
//!
//! A value can arrive unchanged and still come back under another name: two names of one setting are
//! the same to the other dialect. Only translating back shows it.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use abp_json::{Kind, Tape, View, pointer};

use super::account::same_value;
use super::{Action, Ledger, LedgerEntry};

impl Ledger {
    /// Names every leaf of the source that is missing or changed in `back`, its translation there and
    /// back, and that no entry names yet.
    pub(crate) fn with_unrestored(&self, source: &Tape<'_>, back: &Tape<'_>) -> Self {
        let named: HashSet<&str> = self
            .entries()
            .iter()
            .filter(|entry| entry.action != Action::Kept)
            .filter_map(|entry| entry.source.as_deref())
            .collect();
        let mut entries = self.entries().to_vec();
        let kept = entries.iter().enumerate().filter_map(|(place, entry)| {
            let is_kept = entry.action == Action::Kept;
            Some((entry.source.clone().filter(|_| is_kept)?, place))
        });
        let kept: HashMap<String, usize> = kept.collect();
        let root = (String::new(), source.root(), Some(back.root()));
        let mut open = vec![root];
        while let Some((place, view, other)) = open.pop() {
            if named.contains(place.as_str()) {
                continue;
            }
            if view.is_empty() {
                if !other.is_some_and(|other| same_value(view, other)) {
                    let known = kept.get(&place).and_then(|at| entries.get_mut(*at));
                    match known {
                        Some(entry) => not_restored(entry),
                        None => entries.push(unnamed(place)),
                    }
                }
                continue;
            }
            open.extend(children(&place, view, other));
        }
        Self::from_entries(entries)
    }
}

fn not_restored(entry: &mut LedgerEntry) {
    entry.action = Action::Renamed;
    entry.label = Some(Cow::Borrowed("not_restored"));
    entry.reason = Some(Cow::Borrowed(
        "it arrives, and the way back has another form for it",
    ));
}

/// An entry for what is part of something larger that arrives.
fn unnamed(source: String) -> LedgerEntry {
    let mut entry = LedgerEntry {
        action: Action::Renamed,
        source: Some(source),
        target: None,
        label: None,
        reason: None,
        unsupported: false,
        count: None,
    };
    not_restored(&mut entry);
    entry
}

/// The children of a container with their pointers and counterparts.
fn children<'t>(
    place: &str,
    view: View<'t>,
    other: Option<View<'t>>,
) -> Vec<(String, View<'t>, Option<View<'t>>)> {
    let below = |segment: &str| {
        let mut below = place.to_owned();
        pointer::push(&mut below, segment);
        below
    };
    if view.kind() == Kind::Object {
        view.entries()
            .map(|(key, value)| {
                let key = key.as_str_lossy().unwrap_or_default();
                (below(&key), value, other.and_then(|other| other.get(&key)))
            })
            .collect()
    } else {
        let mut others = other.map(View::items);
        view.items()
            .enumerate()
            .map(|(index, item)| {
                let other = others.as_mut().and_then(Iterator::next);
                (below(&index.to_string()), item, other)
            })
            .collect()
    }
}
