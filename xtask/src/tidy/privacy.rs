//! Files speak of the project, not of the machine they were written on or of where packages come
//! from.
//!
//! The patterns are put together at compile time, so that this file passes its own rule.

use super::Finding;
use crate::workspace::Workspace;

/// Absolute directories of a machine.
const DIRECTORIES: &[&str] = &[
    concat!("/", "work/"),
    concat!("/", "root/"),
    concat!("/", "home/"),
];

/// Package registries; compared in lower case.
const REGISTRIES: &[&str] = &[
    concat!("crates", ".io"),
    concat!("index", ".crates"),
    concat!("py", "pi"),
    concat!("registry", ".npmjs"),
];

/// Cargo writes the registry of every package into the lock file.
const LOCK: &str = "Cargo.lock";

pub(super) fn check(workspace: &Workspace) -> Vec<Finding> {
    let mut findings = Vec::new();
    for file in workspace.files.iter().filter(|file| file.path != LOCK) {
        for (index, line) in file.text.lines().enumerate() {
            for name in private_names(line) {
                let message = format!("names `{name}`: say it without");
                findings.push(Finding::at(&file.path, index + 1, message));
            }
        }
    }
    findings
}

fn private_names(line: &str) -> Vec<&'static str> {
    let lower = line.to_lowercase();
    let registries = REGISTRIES.iter().filter(|name| lower.contains(**name));
    let directories = DIRECTORIES.iter().filter(|dir| names_directory(line, dir));
    registries.chain(directories).copied().collect()
}

/// Says whether `dir` starts a path, rather than being the middle of another one.
fn names_directory(line: &str, dir: &str) -> bool {
    line.match_indices(dir).any(|(at, _)| {
        let before = line.get(..at).and_then(|before| before.chars().next_back());
        before.is_none_or(|c| !c.is_alphanumeric() && !"._-*}])>".contains(c))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_and_registries_are_recognised() {
        let check = |line: &str, expected: usize| {
            assert_eq!(private_names(line).len(), expected, "{line}");
        };
        check(concat!("cd /", "work/main"), 1);
        check(concat!("\"/", "home/me/x\""), 1);
        check(concat!("file:///", "root/x"), 1);
        check(concat!("the crates", ".io index"), 1);
        check(concat!("from Py", "PI"), 1);
        check("src/work/order.rs", 0);
        check("../work/main and {stage}/home/x", 0);
        check("https://example.org/home/", 0);
        check("the work/ directory", 0);
    }
}
