//! Dependencies point down: the order of the architecture is the order of `layers.toml`.

use super::Finding;
use crate::workspace::{DepKind, Layers, Workspace};

const LAYERS: &str = "xtask/layers.toml";

/// The normal and build dependencies among our own crates; tests may look wherever they like.
const KINDS: &[DepKind] = &[DepKind::Normal, DepKind::Build];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let metadata = &workspace.metadata;
    let crates: Vec<_> = metadata.members().map(|one| one.name.as_str()).collect();
    let by_id = metadata.edges(KINDS);
    let edges: Vec<_> = metadata
        .members()
        .flat_map(|from| {
            let below = by_id.get(from.id.as_str()).into_iter().flatten();
            below.map(|to| (from.name.as_str(), to.name.as_str()))
        })
        .filter(|(_, to)| crates.contains(to))
        .collect();
    let mut findings = unlisted_and_missing(&workspace.layers, &crates);
    findings.extend(wrong_edges(&workspace.layers, &edges));
    findings.extend(unused_sideways(&workspace.layers, &edges));
    findings
}

fn unlisted_and_missing(layers: &Layers, crates: &[&str]) -> Vec<Finding> {
    let unlisted = crates.iter().filter(|name| layers.of(name).is_none());
    let missing = layers.crates().filter(|(name, _)| !crates.contains(name));
    let unlisted = unlisted.map(|name| format!("{name} is on no layer: list it under [layers]"));
    let missing = missing.map(|(name, _)| format!("{name} does not exist: remove it"));
    unlisted
        .chain(missing)
        .map(|message| Finding::in_file(LAYERS, message))
        .collect()
}

fn wrong_edges(layers: &Layers, edges: &[(&str, &str)]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for &(from, to) in edges {
        let (Some(upper), Some(lower)) = (layers.of(from), layers.of(to)) else {
            continue;
        };
        let fix = if lower.level() > upper.level() {
            "an edge may not point up: move what it needs down, or turn the edge around"
        } else if lower.level() == upper.level()
            && !layers.sideways().any(|listed| listed == (from, to))
        {
            "an edge inside a layer needs a line with its reason in `sideways`"
        } else {
            continue;
        };
        let message = format!(
            "{from} ({}) depends on {to} ({}): {fix}",
            upper.title(),
            lower.title()
        );
        findings.push(Finding::in_file(LAYERS, message));
    }
    findings
}

fn unused_sideways(layers: &Layers, edges: &[(&str, &str)]) -> Vec<Finding> {
    layers
        .sideways()
        .filter(|listed| !edges.contains(listed))
        .map(|(from, to)| format!("{from} does not depend on {to}: remove it from `sideways`"))
        .map(|message| Finding::in_file(LAYERS, message))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMALL: &str = r#"
        sideways = [["b", "a", "why"]]
        [layers]
        leaf = ["a", "b"]
        leaf-effects = []
        contract = ["c"]
        pure = []
        effects = []
        orchestration = []
        edges = []
        dev = ["d"]
        [purity]
        banned_dependencies = []
        [names]
        shared = []
        foreign_modules = []
    "#;

    #[test]
    fn only_edges_down_or_listed_sideways_pass() {
        let layers = Layers::parse(SMALL).expect("valid");
        let check = |edge: (&str, &str), allowed: bool| {
            assert_eq!(
                wrong_edges(&layers, &[edge]).is_empty(),
                allowed,
                "{edge:?}"
            );
        };
        check(("c", "a"), true);
        check(("a", "c"), false);
        check(("b", "a"), true);
        check(("a", "b"), false);
        check(("d", "c"), true);
        check(("c", "d"), false);
    }

    #[test]
    fn the_list_and_the_workspace_agree() {
        let layers = Layers::parse(SMALL).expect("valid");
        let found = |crates: &[&str]| unlisted_and_missing(&layers, crates).len();
        assert_eq!(found(&["a", "b", "c", "d"]), 0);
        assert_eq!(found(&["a", "b", "c", "d", "new"]), 1);
        assert_eq!(found(&["a", "b", "c"]), 1);
        assert_eq!(unused_sideways(&layers, &[("b", "a")]), []);
        assert_eq!(unused_sideways(&layers, &[("c", "a")]).len(), 1);
    }

    #[test]
    fn a_crate_has_one_layer() {
        let twice = SMALL.replace("contract = [\"c\"]", "contract = [\"c\", \"a\"]");
        let error = Layers::parse(&twice).expect_err("listed twice");
        assert_eq!(error.to_string(), "a is listed on two layers");
    }
}
