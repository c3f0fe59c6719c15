//! Names that are protected and not there: the stage gets an empty file or directory for each, so that the
//! sandbox has something to mount over and the agent cannot create it. They are no part of the changes.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use rustix::fs::FileType;
use rustix::io::{Errno, Result};
use sha2::{Digest, Sha256};

use crate::dir::Dir;
use crate::layers::make_opaque;
use crate::manifest::{Entry, Manifest};
use crate::prepared::{bytes_of, split};

const DIRECTORY_MODE: u32 = 0o755;
const FILE_MODE: u32 = 0o644;

/// A path that must not be created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Placeholder {
    /// The path relative to the root, without links or `..`.
    pub path: PathBuf,
    /// The kind of name that keeps its place.
    pub kind: PlaceholderKind,
}

/// The kind of a placeholder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaceholderKind {
    /// An empty directory.
    Directory,
    /// A file that is empty, or an empty object where its name says JSON.
    File,
}

impl Placeholder {
    /// The placeholder for a protected path, by the pattern that names it: `.claude/**` and `.claude` are
    /// directories, `.mcp.json` is a file.
    #[must_use]
    pub fn of_pattern(pattern: &str, path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let kind = match path.extension() {
            Some(_) if !pattern.ends_with('/') && !pattern.ends_with("/**") => {
                PlaceholderKind::File
            }
            _ => PlaceholderKind::Directory,
        };
        Self { path, kind }
    }

    fn content(&self) -> &'static [u8] {
        match self.path.extension() {
            Some(extension) if extension == "json" => b"{}\n",
            _ => b"",
        }
    }

    fn entry(&self) -> Entry {
        let path = bytes_of(&self.path);
        match self.kind {
            PlaceholderKind::Directory => Entry::directory(path, DIRECTORY_MODE),
            PlaceholderKind::File => {
                let content = self.content();
                let hash = Sha256::digest(content).into();
                Entry::file(path, FILE_MODE, content.len() as u64, hash)
            }
        }
    }

    /// Makes it in a layer, in which the directory above it may still be missing.
    fn make(&self, layer: &Dir) -> Result<()> {
        let (directory, name) = split(bytes_of(&self.path));
        let parent = layer.open_or_create_dirs(directory)?;
        match self.kind {
            PlaceholderKind::Directory => {
                let made = parent.create_dir(name, DIRECTORY_MODE)?;
                made.set_mode(DIRECTORY_MODE)?;
                // In an overlay it stands in for one of the source that is left out.
                match make_opaque(&made) {
                    Err(Errno::NOTSUP | Errno::PERM) => Ok(()),
                    marked => marked,
                }
            }
            PlaceholderKind::File => {
                let file = parent.create_file(name, FILE_MODE)?;
                rustix::fs::fchmod(&file, rustix::fs::Mode::from_raw_mode(FILE_MODE))?;
                let written = std::io::Write::write_all(&mut &file, self.content());
                written.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))
            }
        }
    }
}

/// The placeholders of a stage, by their paths: those whose name is not staged, in a directory that is.
pub(crate) fn choose(
    wanted: &[Placeholder],
    manifest: &Manifest,
) -> BTreeMap<Vec<u8>, Placeholder> {
    let is_absent = |placeholder: &&Placeholder| {
        let path = bytes_of(&placeholder.path);
        let (directory, _) = split(path);
        let above = manifest
            .entry_at(directory)
            .is_some_and(Entry::is_directory);
        is_plain(&placeholder.path)
            && manifest.entry_at(path).is_none()
            && (directory.is_empty() || above)
    };
    let absent = wanted.iter().filter(is_absent);
    absent
        .map(|one| (bytes_of(&one.path).to_vec(), one.clone()))
        .collect()
}

/// Neither the root nor the repository, which belongs to the agent.
fn is_plain(path: &Path) -> bool {
    let mut components = path.components();
    let first = components.next();
    first.is_some_and(|first| first.as_os_str() != ".git")
}

/// Makes placeholders in a copy.
pub(crate) fn make_in_copy(tree: &Dir, chosen: &BTreeMap<Vec<u8>, Placeholder>) -> Result<()> {
    chosen.values().try_for_each(|one| one.make(tree))
}

/// Makes placeholders in the mask of an overlay, and takes their paths from those that are only hidden.
pub(crate) fn make_in_mask(
    mask: &Dir,
    masked: &BTreeSet<Vec<u8>>,
    chosen: &BTreeMap<Vec<u8>, Placeholder>,
) -> Result<()> {
    for (path, placeholder) in chosen {
        if masked.contains(path) {
            let (parent, name) = mask.open_parent(path)?;
            let known = FileType::from_raw_mode(parent.stat(name)?.st_mode);
            if known == FileType::CharacterDevice {
                parent.remove_file(name)?;
            }
        }
        placeholder.make(mask)?;
    }
    Ok(())
}

/// Takes placeholders that are as they were made out of the entries of a copy.
pub(crate) fn without(entries: Vec<Entry>, chosen: &BTreeMap<Vec<u8>, Placeholder>) -> Manifest {
    let manifest = Manifest::new(entries);
    if chosen.is_empty() {
        return manifest;
    }
    let is_untouched = |entry: &Entry| {
        let placeholder = chosen.get(entry.path_bytes());
        placeholder.is_some_and(|one| one.entry() == *entry)
            && !manifest.has_children(entry.path_bytes())
    };
    let kept = manifest
        .entries()
        .iter()
        .filter(|entry| !is_untouched(entry));
    Manifest::new(kept.cloned().collect())
}
