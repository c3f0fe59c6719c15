//! JSON trees, compared leaf by leaf.

use abp_json::{Kind, View, pointer};

/// The leaves of a document with their pointers: scalars, and containers that are empty.
pub(super) fn leaves(root: View<'_>) -> Vec<(String, View<'_>)> {
    let mut found = Vec::new();
    let mut open = vec![(String::new(), root)];
    while let Some((place, view)) = open.pop() {
        match view.kind() {
            Kind::Object if !view.is_empty() => open.extend(view.entries().map(|(key, value)| {
                let mut below = place.clone();
                pointer::push(&mut below, &key.as_str_lossy().unwrap_or_default());
                (below, value)
            })),
            Kind::Array if !view.is_empty() => {
                open.extend(
                    view.items()
                        .enumerate()
                        .map(|(index, value)| (format!("{place}/{index}"), value)),
                );
            }
            _ => found.push((place, view)),
        }
    }
    found
}

/// Whether two leaves are the same: numbers by their spelling, strings by their text.
pub(super) fn same_leaf(left: View<'_>, right: View<'_>) -> bool {
    left.kind() == right.kind()
        && match left.kind() {
            Kind::String => left.as_str_lossy() == right.as_str_lossy(),
            Kind::Array | Kind::Object => left.is_empty() && right.is_empty(),
            _ => left.raw() == right.raw(),
        }
}

/// A pointer and everything above it, nearest first.
pub(super) fn upwards(place: &str) -> impl Iterator<Item = &str> {
    std::iter::successors(Some(place), |place| {
        place.rfind('/').and_then(|at| place.get(..at))
    })
}
