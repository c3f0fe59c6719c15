//! Every crate takes its metadata, its lints and its dependencies from the workspace.
//!
//! One place to change a version, one set of lints, and no features of our own: a heavy dependency
//! gets a crate, so that what is built never depends on who asks.

use std::collections::BTreeSet;

use toml::{Table, Value};

use super::Finding;
use crate::workspace::Workspace;

const INHERITED: &[&str] = &["version", "edition", "rust-version", "license", "publish"];

const DEPENDENCY_TABLES: &[&str] = &["dependencies", "dev-dependencies", "build-dependencies"];

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut used = BTreeSet::new();
    for package in workspace.metadata.members() {
        let path = workspace.relative(&package.manifest_path);
        let Some(file) = workspace.file(&path) else {
            findings.push(Finding::in_file(&path, "is ignored by git: track it"));
            continue;
        };
        let dir = package.dir().file_name().unwrap_or_default();
        if dir != package.name.as_str() {
            let message = format!("the package is named {}: rename one of them", package.name);
            findings.push(Finding::in_file(&path, message));
        }
        findings.extend(problems(&path, &file.text));
        used.extend(dependency_names(&file.text));
    }
    if let Some(root) = workspace.file("Cargo.toml") {
        findings.extend(unused(&root.text, &used));
    }
    findings
}

fn problems(path: &str, text: &str) -> Vec<Finding> {
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![Finding::in_file(path, format!("is not TOML: {error}"))],
    };
    let mut findings = Vec::new();
    let package = manifest.get("package");
    for field in INHERITED {
        if !package.is_some_and(|package| is_inherited(package.get(field))) {
            let message = format!("[package] needs `{field}.workspace = true`");
            findings.push(Finding::in_file(path, message));
        }
    }
    if !is_inherited(manifest.get("lints")) {
        findings.push(Finding::in_file(
            path,
            "needs `[lints]` with `workspace = true`",
        ));
    }
    if manifest.contains_key("features") {
        let line = line_of(text, "[features]");
        let message = "no features in this workspace: a heavy dependency gets its own crate";
        findings.push(Finding::at(path, line, message));
    }
    for (name, value) in dependencies(&manifest) {
        if !is_inherited(Some(value)) {
            let message =
                format!("{name}: list it in [workspace.dependencies], use `workspace = true` here");
            findings.push(Finding::at(path, line_of(text, name), message));
        }
    }
    findings
}

fn unused(root: &str, used: &BTreeSet<String>) -> Vec<Finding> {
    let manifest: Table = root.parse().unwrap_or_default();
    let listed = manifest
        .get("workspace")
        .and_then(|workspace| workspace.get("dependencies"))
        .and_then(Value::as_table);
    listed
        .into_iter()
        .flat_map(Table::keys)
        .filter(|name| !used.contains(*name))
        .map(|name| {
            let message = format!("no crate uses the workspace dependency {name}: remove it");
            Finding::at("Cargo.toml", line_of(root, name), message)
        })
        .collect()
}

fn dependency_names(text: &str) -> Vec<String> {
    let manifest: Table = text.parse().unwrap_or_default();
    let names = dependencies(&manifest).into_iter();
    names.map(|(name, _)| name.to_owned()).collect()
}

/// Returns the entries of every dependency table, those for one platform included.
fn dependencies(manifest: &Table) -> Vec<(&str, &Value)> {
    let platforms = manifest.get("target").and_then(Value::as_table);
    let platforms = platforms.into_iter().flat_map(Table::values);
    let holders = platforms.filter_map(Value::as_table).chain([manifest]);
    holders
        .flat_map(|holder| {
            DEPENDENCY_TABLES
                .iter()
                .filter_map(|name| holder.get(*name))
        })
        .filter_map(Value::as_table)
        .flatten()
        .map(|(name, value)| (name.as_str(), value))
        .collect()
}

fn is_inherited(value: Option<&Value>) -> bool {
    let inherits = value.and_then(|value| value.get("workspace"));
    inherits.and_then(Value::as_bool) == Some(true)
}

/// Returns the first line that starts with `key`, or the first line of the file.
fn line_of(text: &str, key: &str) -> usize {
    let found = text.lines().position(|line| {
        let rest = line.trim_start().strip_prefix(key);
        rest.is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric() || c == '-'))
    });
    1 + found.unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = r#"
[package]
name = "a"
version.workspace = true
edition.workspace = true
rust-version.workspace = true
license.workspace = true
publish.workspace = true

[dependencies]
serde.workspace = true
json = { workspace = true, default-features = false }

[lints]
workspace = true
"#;

    #[test]
    fn what_a_manifest_must_say() {
        let check = |from: &str, to: &str, expected: &[&str]| {
            let text = GOOD.replace(from, to);
            let found = problems("Cargo.toml", &text);
            let found: Vec<_> = found.iter().map(Finding::to_string).collect();
            assert_eq!(found.len(), expected.len(), "{found:?}");
            for (finding, part) in found.iter().zip(expected) {
                assert!(finding.contains(part), "{finding} should contain {part}");
            }
        };
        check("", "", &[]);
        check("publish.workspace = true", "publish = false", &["`publish"]);
        check("[lints]\nworkspace = true", "", &["[lints]"]);
        check(
            "[lints]",
            "[features]\nx = []\n[lints]",
            &["Cargo.toml:14: no features"],
        );
        check(
            "serde.workspace = true",
            "serde = \"1\"",
            &["Cargo.toml:11: serde:"],
        );
        let on_unix = "[target.'cfg(unix)'.dev-dependencies]\nrustix = \"1\"\n[lints]";
        check("[lints]", on_unix, &["rustix"]);
    }

    #[test]
    fn a_workspace_dependency_needs_a_user() {
        let root = "[workspace.dependencies]\nserde = \"1\"\nserde_json = \"1\"\n";
        let used = BTreeSet::from(["serde".to_owned()]);
        let found: Vec<_> = unused(root, &used).iter().map(Finding::to_string).collect();
        let expected = "Cargo.toml:3: no crate uses the workspace dependency serde_json: remove it";
        assert_eq!(found, [expected]);
    }
}
