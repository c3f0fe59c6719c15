//! What the repository looks like: its packages, its layers and its files, read once.
//!
//! `tidy` and `schema` take a [`Workspace`] and stay pure functions of it; this is where they meet
//! `cargo metadata`, git and the file system.

mod layers;
mod metadata;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

pub(crate) use layers::{Exception, Layer, Layers, Names};
pub(crate) use metadata::{DepKind, Metadata, Package};

use crate::source::Source;

/// The repository, loaded.
#[derive(Debug)]
pub(crate) struct Workspace {
    pub(crate) root: PathBuf,
    pub(crate) metadata: Metadata,
    pub(crate) layers: Layers,
    /// Every UTF-8 file that is tracked or would be by `git add --all`.
    pub(crate) files: Vec<TextFile>,
}

/// A file of the repository and, for Rust, what a scan of it found.
#[derive(Debug)]
pub(crate) struct TextFile {
    /// Relative to the root, with forward slashes.
    pub(crate) path: String,
    pub(crate) text: String,
    /// Present for `.rs` files.
    pub(crate) source: Option<Source>,
}

impl Workspace {
    pub(crate) fn load() -> Result<Self> {
        let root = root()?;
        let metadata = Metadata::load(&root)?;
        let layers = Layers::load(&root.join("xtask/layers.toml"))?;
        let files = list_files(&root)?
            .into_iter()
            .filter_map(|path| {
                // Not UTF-8, a dangling link, or deleted since it was listed: nothing to check.
                let text = fs::read_to_string(root.join(&path)).ok()?;
                Some(TextFile::new(path, text))
            })
            .collect();
        Ok(Self {
            root,
            metadata,
            layers,
            files,
        })
    }

    /// Returns the Rust files with their scanned source.
    pub(crate) fn rust_files(&self) -> impl Iterator<Item = (&TextFile, &Source)> {
        self.files
            .iter()
            .filter_map(|file| Some((file, file.source.as_ref()?)))
    }

    pub(crate) fn file(&self, path: &str) -> Option<&TextFile> {
        self.files.iter().find(|file| file.path == path)
    }

    /// Turns an absolute path from cargo's answer into the form the findings use.
    pub(crate) fn relative(&self, path: &Path) -> String {
        let inside = path.strip_prefix(&self.root).unwrap_or(path);
        inside.to_string_lossy().replace('\\', "/")
    }
}

impl TextFile {
    pub(crate) fn new(path: String, text: String) -> Self {
        let source = path.ends_with(".rs").then(|| Source::scan(&path, &text));
        Self { path, text, source }
    }

    /// Returns the directory of the crate the file belongs to: `crates/<name>` or `xtask`.
    pub(crate) fn crate_dir(&self) -> Option<&str> {
        if self.path.starts_with("xtask/") {
            return Some("xtask");
        }
        let rest = self.path.strip_prefix("crates/")?;
        let name_end = rest.find('/')?;
        self.path.get(.."crates/".len() + name_end)
    }

    /// Returns the path inside the crate, such as `src/lib.rs`.
    pub(crate) fn path_in_crate(&self) -> Option<&str> {
        let rest = self.path.strip_prefix(self.crate_dir()?)?;
        rest.strip_prefix('/')
    }
}

/// Returns the workspace root: the parent of this package.
pub(crate) fn root() -> Result<PathBuf> {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .map(Path::to_path_buf)
        .context("the xtask package has no parent directory")
}

/// Starts a cargo of the same toolchain that runs this task.
pub(crate) fn cargo() -> Command {
    Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// Lists the files that are or would be tracked, sorted.
fn list_files(root: &Path) -> Result<Vec<String>> {
    let git = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others"])
        .arg("--exclude-standard")
        .current_dir(root)
        .output();
    let mut files = match git {
        Ok(output) if output.status.success() => String::from_utf8_lossy(&output.stdout)
            .split_terminator('\0')
            .map(str::to_owned)
            .collect(),
        // An exported tree has no git directory, and still has to be tidy.
        _ => {
            let mut files = Vec::new();
            walk(root, "", &mut files)?;
            files
        }
    };
    files.sort();
    files.dedup();
    Ok(files)
}

/// Collects what git would list, as far as that can be told without git.
fn walk(root: &Path, below: &str, files: &mut Vec<String>) -> Result<()> {
    let dir = root.join(below);
    for entry in fs::read_dir(&dir).with_context(|| format!("cannot list {}", dir.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = if below.is_empty() {
            name.clone()
        } else {
            format!("{below}/{name}")
        };
        if !entry.file_type()?.is_dir() {
            files.push(path);
            continue;
        }
        let hidden = name.starts_with('.') && !matches!(name.as_str(), ".cargo" | ".ci");
        if !hidden && name != "target" && name != "node_modules" {
            walk(root, &path, files)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_knows_its_crate() {
        let check = |path: &str, dir: Option<&str>, inside: Option<&str>| {
            let file = TextFile::new(path.to_owned(), String::new());
            assert_eq!((file.crate_dir(), file.path_in_crate()), (dir, inside));
        };
        check("crates/a/src/lib.rs", Some("crates/a"), Some("src/lib.rs"));
        check("xtask/src/main.rs", Some("xtask"), Some("src/main.rs"));
        check("crates/README.md", None, None);
        check("docs/architecture.md", None, None);
    }

    /// The walk is what runs where there is no git; a difference would make tidy depend on it.
    #[test]
    fn the_walk_finds_every_tracked_rust_file() {
        let root = root().expect("root");
        let mut walked = Vec::new();
        walk(&root, "", &mut walked).expect("walk");
        let listed = list_files(&root).expect("list");
        let missed: Vec<_> = listed
            .iter()
            .filter(|path| path.ends_with(".rs") && root.join(path).is_file())
            .filter(|path| !walked.contains(path))
            .collect();
        assert_eq!(missed, Vec::<&String>::new());
    }
}
