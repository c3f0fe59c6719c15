//! The part of `cargo metadata` the tasks read.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// Cargo's answer about the workspace and everything it depends on, on this platform.
#[derive(Debug, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    workspace_members: Vec<String>,
    resolve: Resolve,
}

#[derive(Debug, Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

/// One package, ours or foreign.
#[derive(Debug, Deserialize)]
pub(crate) struct Package {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) license: Option<String>,
    pub(crate) manifest_path: PathBuf,
    pub(crate) targets: Vec<Target>,
}

/// One thing cargo builds from a package.
#[derive(Debug, Deserialize)]
pub(crate) struct Target {
    pub(crate) kind: Vec<String>,
    pub(crate) src_path: PathBuf,
}

/// One package with the features and the dependencies it was resolved to.
#[derive(Debug, Deserialize)]
pub(crate) struct Node {
    pub(crate) id: String,
    pub(crate) features: Vec<String>,
    deps: Vec<Dep>,
}

#[derive(Debug, Deserialize)]
struct Dep {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Debug, Deserialize)]
struct Kind {
    kind: Option<DepKind>,
}

/// Where a dependency is listed; cargo writes `null` for the normal table.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DepKind {
    /// `[dependencies]`
    #[default]
    Normal,
    /// `[dev-dependencies]`
    Dev,
    /// `[build-dependencies]`
    Build,
}

impl Metadata {
    /// Asks cargo, for this platform only: what other platforms need is not downloaded here, and a
    /// check that needs the network is a check that fails on a train.
    pub(crate) fn load(root: &Path) -> Result<Self> {
        let host = host_triple()?;
        let output = super::cargo()
            .args(["metadata", "--format-version", "1", "--locked"])
            .args(["--filter-platform", &host])
            .current_dir(root)
            .output()
            .context("cannot start cargo metadata")?;
        if !output.status.success() {
            bail!(
                "cargo metadata failed:\n{}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        serde_json::from_slice(&output.stdout).context("cannot read the answer of cargo metadata")
    }

    /// Returns our own packages.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages
            .iter()
            .filter(|package| self.workspace_members.contains(&package.id))
    }

    pub(crate) fn nodes(&self) -> &[Node] {
        &self.resolve.nodes
    }

    pub(crate) fn package(&self, id: &str) -> Option<&Package> {
        self.packages.iter().find(|package| package.id == id)
    }

    /// Returns for every package id the packages it lists directly in a table of one of `kinds`.
    pub(crate) fn edges(&self, kinds: &[DepKind]) -> HashMap<&str, Vec<&Package>> {
        self.resolve
            .nodes
            .iter()
            .map(|node| (node.id.as_str(), self.dependencies(node, kinds)))
            .collect()
    }

    fn dependencies(&self, node: &Node, kinds: &[DepKind]) -> Vec<&Package> {
        let listed = |dep: &&Dep| {
            let mut of_dep = dep.dep_kinds.iter();
            of_dep.any(|kind| kinds.contains(&kind.kind.unwrap_or_default()))
        };
        node.deps
            .iter()
            .filter(listed)
            .filter_map(|dep| self.package(&dep.pkg))
            .collect()
    }
}

#[cfg(test)]
impl Metadata {
    /// Makes a workspace of libraries out of each one's dependencies, for tests of the rules.
    pub(crate) fn of_libraries(libraries: &[(&str, &[&str])]) -> Self {
        use serde_json::json;
        let packages: Vec<_> = libraries
            .iter()
            .map(|(name, _)| {
                json!({
                    "id": name, "name": name, "version": "0.1.0", "license": "MIT",
                    "manifest_path": format!("crates/{name}/Cargo.toml"),
                    "targets": [{ "kind": ["lib"], "src_path": "src/lib.rs" }],
                })
            })
            .collect();
        let nodes: Vec<_> = libraries
            .iter()
            .map(|(name, below)| {
                let normal = json!([{ "kind": null }]);
                let deps: Vec<_> = below
                    .iter()
                    .map(|dep| json!({ "pkg": dep, "dep_kinds": normal }))
                    .collect();
                json!({ "id": name, "features": [], "deps": deps })
            })
            .collect();
        let ids: Vec<_> = libraries.iter().map(|(name, _)| name).collect();
        let metadata = json!({
            "packages": packages, "workspace_members": ids, "resolve": { "nodes": nodes },
        });
        serde_json::from_value(metadata).expect("the form of cargo's answer")
    }
}

impl Package {
    /// Returns the directory of the manifest.
    pub(crate) fn dir(&self) -> &Path {
        self.manifest_path.parent().unwrap_or(Path::new(""))
    }

    pub(crate) fn is_library(&self) -> bool {
        self.targets
            .iter()
            .any(|target| target.kind.iter().any(|kind| kind == "lib"))
    }
}

fn host_triple() -> Result<String> {
    let rustc = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let output = Command::new(rustc)
        .arg("-vV")
        .output()
        .context("cannot start rustc")?;
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .map(str::to_owned)
        .context("rustc -vV names no host")
}
