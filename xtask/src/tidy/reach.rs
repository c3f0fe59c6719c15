//! No orphans: every library is used by something a user starts or links.
//!
//! The crates on the layer of the edges are the roots. While there is none, there is nothing to be
//! reached from, and the rule waits for the first.

use std::collections::HashSet;

use super::Finding;
use crate::workspace::{DepKind, Layer, Metadata, Package, Workspace};

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    unreached(&workspace.metadata, |name| workspace.layers.of(name))
        .into_iter()
        .map(|member| {
            let message = format!(
                "no binary and no shim uses {}: wire it in, or remove it",
                member.name
            );
            Finding::in_file(&workspace.relative(&member.manifest_path), message)
        })
        .collect()
}

fn unreached(metadata: &Metadata, layer: impl Fn(&str) -> Option<Layer>) -> Vec<&Package> {
    let edges = metadata.edges(&[DepKind::Normal, DepKind::Build]);
    let mut reached = HashSet::new();
    let mut queue: Vec<_> = metadata
        .members()
        .filter(|member| layer(&member.name) == Some(Layer::Edges))
        .collect();
    if queue.is_empty() {
        return Vec::new();
    }
    while let Some(package) = queue.pop() {
        if reached.insert(package.id.as_str()) {
            queue.extend(edges.get(package.id.as_str()).into_iter().flatten());
        }
    }
    metadata
        .members()
        .filter(|member| member.is_library() && layer(&member.name) != Some(Layer::Dev))
        .filter(|member| !reached.contains(member.id.as_str()))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_a_test_crate_uses_is_an_orphan() {
        let metadata = Metadata::of_libraries(&[
            ("cli", &["runtime"]),
            ("runtime", &["core"]),
            ("core", &[]),
            ("orphan", &["core"]),
            ("testkit", &["orphan"]),
        ]);
        let check = |edge: &str, expected: &[&str]| {
            let found = unreached(&metadata, |name| match name {
                "testkit" => Some(Layer::Dev),
                name if name == edge => Some(Layer::Edges),
                _ => Some(Layer::Pure),
            });
            let names: Vec<_> = found.iter().map(|package| package.name.as_str()).collect();
            assert_eq!(names, expected);
        };
        check("cli", &["orphan"]);
        check("orphan", &["cli", "runtime"]);
        check("none yet", &[]);
    }
}
