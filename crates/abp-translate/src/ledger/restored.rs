//! What the way back would not restore, although the way there kept it.
//!
//! A value can arrive unchanged and still come back under another name: two names of one setting are
//! the same to the other dialect. Only translating back shows it.

use std::borrow::Cow;
use std::collections::HashSet;

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
        let root = (String::new(), source.root(), Some(back.root()));
        let mut open = vec![root];
        while let Some((place, view, other)) = open.pop() {
            if named.contains(place.as_str()) {
                continue;
            }
            if view.is_empty() {
                if !other.is_some_and(|other| same_value(view, other)) {
                    name(&mut entries, place);
                }
                continue;
            }
            open.extend(children(&place, view, other));
        }
        Self::from_entries(entries)
    }
}

fn name(entries: &mut Vec<LedgerEntry>, place: String) {
    let label = Some(Cow::Borrowed("not_restored"));
    let reason = Some(Cow::Borrowed(
        "it arrives, and the way back has another form for it",
    ));
    let exact = |entry: &&mut LedgerEntry| entry.source.as_deref() == Some(place.as_str());
    match entries.iter_mut().find(exact) {
        Some(entry) => {
            entry.action = Action::Renamed;
            entry.label = label;
            entry.reason = reason;
        }
        None => entries.push(LedgerEntry {
            action: Action::Renamed,
            source: Some(place),
            target: None,
            label,
            reason,
            unsupported: false,
            count: None,
        }),
    }
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
