//! No forgotten files: every source file is part of something cargo builds, and the integration
//! tests of a crate are one binary.
//!
//! A file that no `mod` names is not compiled, so its tests never fail. Many test binaries link the
//! crate many times, which is where the minutes of a test run go.

use std::collections::{BTreeSet, HashSet};

use super::Finding;
use crate::source::Source;
use crate::workspace::{Package, TextFile, Workspace};

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for package in workspace.metadata.members() {
        let dir = workspace.relative(package.dir());
        let files: Vec<_> = workspace
            .files
            .iter()
            .filter(|file| file.source.is_some() && file.crate_dir() == Some(&dir))
            .collect();
        let roots: Vec<_> = roots(workspace, package).collect();
        findings.extend(files.iter().filter_map(|file| extra_test_binary(file)));
        findings.extend(forgotten(&files, &roots));
    }
    findings
}

fn roots(workspace: &Workspace, package: &Package) -> impl Iterator<Item = String> {
    package
        .targets
        .iter()
        .map(|target| workspace.relative(&target.src_path))
}

fn extra_test_binary(file: &TextFile) -> Option<Finding> {
    let below = file.path_in_crate()?.strip_prefix("tests/")?;
    let is_binary = match below.split_once('/') {
        None => true,
        Some((dir, rest)) => rest == "main.rs" && dir != "it",
    };
    let message = "a second test binary: make it a module of tests/it/main.rs";
    is_binary.then(|| Finding::in_file(&file.path, message))
}

fn forgotten(files: &[&TextFile], roots: &[String]) -> Vec<Finding> {
    let mut reached: HashSet<String> = HashSet::new();
    let mut queue: Vec<_> = roots.iter().map(|root| (root.clone(), true)).collect();
    while let Some((path, is_root)) = queue.pop() {
        let Some(file) = files.iter().find(|file| file.path == path) else {
            continue;
        };
        if !reached.insert(path) {
            continue;
        }
        let dir = children_dir(&file.path, is_root);
        let modules = file.source.iter().flat_map(Source::child_modules);
        for module in modules {
            queue.push((format!("{dir}/{module}.rs"), false));
            queue.push((format!("{dir}/{module}/mod.rs"), false));
        }
    }
    let unreached: BTreeSet<_> = files
        .iter()
        .map(|file| file.path.as_str())
        .filter(|path| !reached.contains(*path))
        .collect();
    unreached
        .into_iter()
        .map(|path| Finding::in_file(path, "no `mod` names this file: declare or delete it"))
        .collect()
}

/// Returns the directory in which the modules declared by a file are looked up.
fn children_dir(path: &str, is_root: bool) -> &str {
    let parent = path.rsplit_once('/').map_or("", |(dir, _)| dir);
    if is_root || path.ends_with("/mod.rs") {
        parent
    } else {
        path.strip_suffix(".rs").unwrap_or(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_without_a_mod_are_found() {
        let check = |files: &[(&str, &str)], expected: &[&str]| {
            let make =
                |(path, text): &(&str, &str)| TextFile::new((*path).to_owned(), (*text).to_owned());
            let files: Vec<_> = files.iter().map(make).collect();
            let files: Vec<_> = files.iter().collect();
            let roots = ["crates/a/src/lib.rs", "crates/a/tests/it/main.rs"].map(str::to_owned);
            let found = forgotten(&files, &roots);
            let paths: Vec<_> = found.iter().map(|finding| finding.file.as_str()).collect();
            assert_eq!(paths, expected);
        };
        let lib = ("crates/a/src/lib.rs", "mod b;");
        let deep = ("crates/a/src/b/c.rs", "");
        check(&[lib, ("crates/a/src/b.rs", "mod c;"), deep], &[]);
        check(&[lib, ("crates/a/src/b.rs", "// mod c;"), deep], &[deep.0]);
        check(
            &[lib, ("crates/a/src/b.rs", ""), ("crates/a/src/d.rs", "")],
            &["crates/a/src/d.rs"],
        );
        let main = ("crates/a/tests/it/main.rs", "mod x;\nmod peer;");
        let peer = ("crates/a/tests/it/peer/mod.rs", "mod y;");
        check(
            &[
                main,
                peer,
                ("crates/a/tests/it/x.rs", ""),
                ("crates/a/tests/it/peer/y.rs", ""),
                ("crates/a/tests/it/z.rs", "#[test] fn never_runs() {}"),
            ],
            &["crates/a/tests/it/z.rs"],
        );
    }

    #[test]
    fn one_test_binary_per_crate() {
        let check = |path: &str, fine: bool| {
            let file = TextFile::new(path.to_owned(), String::new());
            assert_eq!(extra_test_binary(&file).is_none(), fine, "{path}");
        };
        check("crates/a/tests/it/main.rs", true);
        check("crates/a/tests/it/streams.rs", true);
        check("crates/a/tests/streams.rs", false);
        check("crates/a/tests/other/main.rs", false);
        check("crates/a/src/tests.rs", true);
    }
}
