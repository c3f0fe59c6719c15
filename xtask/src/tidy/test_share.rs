//! How much of each crate is tests. More than the code is a smell, not an error, so it is a note.

use std::collections::BTreeMap;

use crate::workspace::Workspace;

/// Returns a note for every crate with more than 1.2 lines of tests per line of source.
pub(super) fn notes(workspace: &Workspace) -> Vec<String> {
    let mut counts: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    for (file, source) in workspace.rust_files() {
        if let Some(crate_dir) = file.crate_dir() {
            let (product, tests) = source.line_counts();
            let sum = counts.entry(crate_dir).or_default();
            *sum = (sum.0 + product, sum.1 + tests);
        }
    }
    counts
        .into_iter()
        .filter(|(_, (product, tests))| tests * 10 > product * 12)
        .map(|(name, (product, tests))| {
            format!("{name} has {tests} lines of tests for {product} of source")
        })
        .collect()
}
