//! Checking manifests of uploaded workspaces, before anything of them touches a disk.

use std::collections::BTreeMap;

use abp_error::ErrorCode;
use abp_gateway::Refusal;
use sha2::{Digest as _, Sha256};

use crate::api::{ManifestEntry, WorkspaceManifest};

/// The most entries of a workspace.
const MAX_ENTRIES: usize = 200_000;
/// The longest path, as file systems have it.
const MAX_PATH: usize = 4_095;
/// The longest name in a path.
const MAX_NAME: usize = 255;

/// A manifest whose paths stay inside the workspace and do not contradict each other.
#[derive(Debug)]
pub(crate) struct CheckedManifest {
    /// The entries, ordered by path.
    pub(crate) entries: Vec<ManifestEntry>,
    /// The id that follows from them.
    pub(crate) id: String,
}

impl CheckedManifest {
    /// Checks a manifest.
    pub(crate) fn check(manifest: WorkspaceManifest) -> Result<Self, Refusal> {
        let mut entries = manifest.entries;
        if entries.len() > MAX_ENTRIES {
            let message = format!("a workspace has at most {MAX_ENTRIES} entries");
            return Err(Refusal::new(ErrorCode::RequestTooLarge, message).at("/entries"));
        }
        let mut is_link: BTreeMap<&str, bool> = BTreeMap::new();
        for (index, entry) in entries.iter().enumerate() {
            let wrong = |problem: &str| wrong(index, entry, problem);
            check_path(entry.path()).map_err(wrong)?;
            match entry {
                ManifestEntry::File { sha256, .. } if !is_hash(sha256) => {
                    return Err(wrong(
                        "has a sha256 that is not 64 lower-case hexadecimal digits",
                    ));
                }
                ManifestEntry::File { .. } => {}
                ManifestEntry::Link { path, target } => {
                    check_target(path, target).map_err(wrong)?;
                }
            }
            let link = matches!(entry, ManifestEntry::Link { .. });
            if is_link.insert(entry.path(), link).is_some() {
                return Err(wrong("is named twice"));
            }
        }
        // Nothing lies beneath a file, and nothing is reached through a link.
        for (index, entry) in entries.iter().enumerate() {
            for above in parents(entry.path()) {
                if is_link.contains_key(above) {
                    let problem = "lies beneath a path that is no directory";
                    return Err(wrong(index, entry, problem));
                }
            }
        }
        drop(is_link);
        entries.sort();
        let id = identify(&entries)?;
        Ok(Self { entries, id })
    }

    /// The files' hashes and sizes.
    pub(crate) fn blobs(&self) -> BTreeMap<&str, u64> {
        let files = self.entries.iter().filter_map(|entry| match entry {
            ManifestEntry::File { sha256, size, .. } => Some((sha256.as_str(), *size)),
            ManifestEntry::Link { .. } => None,
        });
        files.collect()
    }
}

/// Whether a text is a SHA-256 in lower-case hexadecimal.
pub(crate) fn is_hash(text: &str) -> bool {
    let digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
    text.len() == 64 && text.bytes().all(digit)
}

/// Bytes in lower-case hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn identify(entries: &[ManifestEntry]) -> Result<String, Refusal> {
    let document = serde_json::to_vec(entries)
        .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
    Ok(hex(&Sha256::digest(document)))
}

fn wrong(index: usize, entry: &ManifestEntry, problem: &str) -> Refusal {
    let shown: String = entry.path().chars().take(200).collect();
    let message = format!("the path {shown:?} {problem}");
    Refusal::new(ErrorCode::ValidationFailed, message).at(format!("/entries/{index}/path"))
}

fn check_path(path: &str) -> Result<(), &'static str> {
    if path.is_empty() || path.len() > MAX_PATH {
        return Err("is empty or too long");
    }
    if path.contains('\0') {
        return Err("has a NUL byte");
    }
    for name in path.split('/') {
        match name {
            "" => return Err("is absolute or has an empty name"),
            "." | ".." => return Err("has a name that leads elsewhere"),
            _ if name.len() > MAX_NAME => return Err("has a name that is too long"),
            _ if name.eq_ignore_ascii_case(".git") => {
                return Err("is part of a git repository, which can run code");
            }
            _ => {}
        }
    }
    Ok(())
}

/// A link leads to a place inside the workspace, judged by its text alone: no entry lies beneath a link, so
/// no link changes what another one means.
fn check_target(path: &str, target: &str) -> Result<(), &'static str> {
    if target.is_empty() || target.len() > MAX_PATH || target.contains('\0') {
        return Err("is a link with an empty or overlong target");
    }
    if target.starts_with('/') {
        return Err("is a link to an absolute path");
    }
    let mut depth = path.matches('/').count();
    for name in target.split('/') {
        match name {
            "" | "." => {}
            ".." => {
                depth = depth
                    .checked_sub(1)
                    .ok_or("is a link out of the workspace")?;
            }
            _ => depth += 1,
        }
    }
    Ok(())
}

fn parents(path: &str) -> impl Iterator<Item = &str> {
    path.match_indices('/').filter_map(|(at, _)| path.get(..at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(path: &str) -> ManifestEntry {
        ManifestEntry::File {
            path: path.to_owned(),
            sha256: "0".repeat(64),
            size: 1,
            executable: false,
        }
    }

    fn link(path: &str, target: &str) -> ManifestEntry {
        ManifestEntry::Link {
            path: path.to_owned(),
            target: target.to_owned(),
        }
    }

    fn accepts(entries: Vec<ManifestEntry>) -> bool {
        CheckedManifest::check(WorkspaceManifest { entries }).is_ok()
    }

    /// Manifests of strangers: whatever could leave the workspace is refused.
    #[test]
    fn path_tricks_are_refused() {
        let good = ["a", "a/b", "a b", "..a", "a..", "ä", ".gitignore", "a\\b"];
        for path in good {
            assert!(accepts(vec![file(path)]), "{path:?}");
        }
        let long = "x".repeat(256);
        let bad = [
            "",
            "/",
            "/a",
            "a/",
            "a//b",
            ".",
            "..",
            "../a",
            "a/../b",
            "a/..",
            "a\0b",
            ".git",
            ".git/hooks/pre-commit",
            "a/.GIT/config",
            &long,
        ];
        for path in bad {
            assert!(!accepts(vec![file(path)]), "{path:?}");
        }
        for (path, target, expected) in [
            ("l", "a", true),
            ("d/l", "../a", true),
            ("d/l", "../../a", false),
            ("l", "..", false),
            ("l", "/etc/passwd", false),
            ("l", "", false),
            ("d/l", "x/../../..", false),
        ] {
            assert_eq!(
                accepts(vec![link(path, target)]),
                expected,
                "{path} -> {target}"
            );
        }
        assert!(!accepts(vec![file("a"), file("a")]));
        assert!(!accepts(vec![file("a"), file("a/b")]));
        assert!(!accepts(vec![file("a/b/c"), link("a", "d")]));
        assert!(!accepts(vec![ManifestEntry::File {
            path: "a".to_owned(),
            sha256: "G".repeat(64),
            size: 1,
            executable: false,
        }]));
    }

    #[test]
    fn the_order_of_entries_does_not_change_the_id() {
        let id = |entries| CheckedManifest::check(WorkspaceManifest { entries }).map(|m| m.id);
        let one = id(vec![file("a"), file("b")]).expect("a manifest");
        assert_eq!(one, id(vec![file("b"), file("a")]).expect("a manifest"));
        assert_ne!(one, id(vec![file("a"), file("c")]).expect("a manifest"));
    }
}
