//! The pure layers touch nothing: no dependency that does, and no name in their source that would.
//!
//! Both halves are needed. The dependency check sees through foreign crates, the source check sees
//! what the standard library offers without any dependency.

use std::collections::{HashMap, HashSet, VecDeque};

use super::Finding;
use crate::source::has_word;
use crate::workspace::{DepKind, Layer, Package, Workspace};

/// Modules of `std` that reach the world, also when imported as `std::{fs, io}`.
const STD_MODULES: &[&str] = &["fs", "net", "process", "env"];

/// Clocks and event loops.
const WORDS: &[&str] = &[
    "SystemTime::now",
    "Instant::now",
    "tokio",
    "async fn",
    "async move",
];

/// On the pure layer ids and times arrive as values.
const PURE_LAYER_WORDS: &[&str] = &["Uuid::new_v4", "Uuid::now_v7", "Timestamp::now"];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let edges = workspace.metadata.edges(&[DepKind::Normal]);
    for package in workspace.metadata.members() {
        let Some(layer) = workspace.layers.of(&package.name) else {
            continue;
        };
        if !layer.is_pure() {
            continue;
        }
        let banned = &workspace.layers.purity.banned_dependencies;
        let manifest = workspace.relative(&package.manifest_path);
        for path in paths_to(package, banned, &edges) {
            let message = format!("{path}: a pure crate may not bring in such a dependency");
            findings.push(Finding::in_file(&manifest, message));
        }
        findings.extend(impure_source(workspace, package, layer));
    }
    findings
}

/// Returns the shortest path to each banned package, as `a > b > c`.
fn paths_to(
    from: &Package,
    banned: &[String],
    edges: &HashMap<&str, Vec<&Package>>,
) -> Vec<String> {
    let mut paths = Vec::new();
    let mut seen = HashSet::from([from.id.as_str()]);
    let mut queue = VecDeque::from([(from, from.name.clone())]);
    while let Some((package, path)) = queue.pop_front() {
        if banned.contains(&package.name) {
            paths.push(path);
            continue;
        }
        for &below in edges.get(package.id.as_str()).into_iter().flatten() {
            if seen.insert(below.id.as_str()) {
                queue.push_back((below, format!("{path} > {}", below.name)));
            }
        }
    }
    paths
}

fn impure_source(workspace: &Workspace, package: &Package, layer: Layer) -> Vec<Finding> {
    let src = format!("{}/src/", workspace.relative(package.dir()));
    let mut findings = Vec::new();
    for (file, source) in workspace.rust_files() {
        if !file.path.starts_with(&src) {
            continue;
        }
        for (line, code) in source.product_lines() {
            for name in impure_names(code, layer) {
                let hint = if name == "std::net" {
                    " (addresses are also in `core::net`)"
                } else {
                    ""
                };
                let message = format!(
                    "`{name}` in a pure crate: take the value as an argument, or move this up{hint}"
                );
                findings.push(Finding::at(&file.path, line, message));
            }
        }
    }
    findings
}

fn impure_names(code: &str, layer: Layer) -> Vec<String> {
    let mut names: Vec<_> = STD_MODULES
        .iter()
        .filter(|module| names_std_module(code, module))
        .map(|module| format!("std::{module}"))
        .collect();
    let more = if layer == Layer::Pure {
        PURE_LAYER_WORDS
    } else {
        &[]
    };
    let words = WORDS.iter().chain(more);
    names.extend(
        words
            .filter(|word| has_word(code, word))
            .map(|&word| word.to_owned()),
    );
    names
}

fn names_std_module(code: &str, module: &str) -> bool {
    if has_word(code, &format!("std::{module}")) {
        return true;
    }
    let Some((_, group)) = code.split_once("std::{") else {
        return false;
    };
    group
        .split([',', '{', '}'])
        .any(|item| item.trim().split("::").next() == Some(module))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace::Metadata;

    #[test]
    fn a_banned_package_is_found_through_others() {
        let metadata = Metadata::of_libraries(&[
            ("core", &["schema", "serde"]),
            ("schema", &["client"]),
            ("client", &["tokio"]),
            ("tokio", &["mio"]),
            ("mio", &[]),
            ("serde", &[]),
        ]);
        let banned = ["tokio", "mio"].map(str::to_owned);
        let edges = metadata.edges(&[DepKind::Normal]);
        let check = |from: &str, expected: &[&str]| {
            let from = metadata.package(from).expect("a package");
            assert_eq!(paths_to(from, &banned, &edges), expected);
        };
        check("core", &["core > schema > client > tokio"]);
        check("serde", &[]);
    }

    #[test]
    fn names_that_reach_the_world_are_found() {
        let check = |code: &str, layer: Layer, expected: &[&str]| {
            assert_eq!(impure_names(code, layer), expected, "{code}");
        };
        check("use std::fs;", Layer::Leaf, &["std::fs"]);
        check("use std::{fmt, env};", Layer::Leaf, &["std::env"]);
        check("use std::{net::IpAddr, fmt};", Layer::Leaf, &["std::net"]);
        check("use std::{fmt, sync::Arc};", Layer::Leaf, &[]);
        check("let fs = std::fmt::Alignment::Left;", Layer::Leaf, &[]);
        check(
            "let t = Instant::now();",
            Layer::Contract,
            &["Instant::now"],
        );
        check("pub async fn f() {}", Layer::Contract, &["async fn"]);
        check("Uuid::new_v4()", Layer::Contract, &[]);
        check("Uuid::new_v4()", Layer::Pure, &["Uuid::new_v4"]);
        check("jiff::Timestamp::now()", Layer::Pure, &["Timestamp::now"]);
    }
}
