//! The content manifest of a tree: every name with its kind, permissions and content hash, so that
//! the tree at two moments can be compared.

use std::fmt::Write as _;
use std::path::Path;

use abp_core::PathState;
use sha2::{Digest, Sha256};

use crate::dir::path_of;

/// Everything in a tree, sorted by the bytes of the paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Manifest {
    entries: Vec<Entry>,
    detail: ManifestDetail,
}

/// Whether a manifest has the hashes of all files.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ManifestDetail {
    /// It has.
    #[default]
    Contents,
    /// It has those of changed files only; the hash of any other is zero. An overlay reads nothing else.
    ChangedContents,
}

/// One name in a tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    path: Vec<u8>,
    kind: FileKind,
    mode: u32,
    size: u64,
    sha256: [u8; 32],
    target: Vec<u8>,
}

/// The kind of file behind a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// Something whose content is not recorded.
    Special(SpecialKind),
}

/// The kind of a file whose content is not recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SpecialKind {
    /// A FIFO, socket or device; never opened.
    Device,
    /// Repository metadata (`.git`); recorded as present, never looked into.
    Repository,
    /// A state directory of the backplane where none belongs.
    State,
    /// A file or directory that cannot be read.
    Unreadable,
    /// A directory beneath the greatest depth.
    TooDeep,
    /// A file beyond the budget of bytes; its size is recorded.
    TooLarge,
    /// A file of the source that was changed there while the run changed it in its overlay: its content
    /// at the start is not known.
    ChangedInSource,
}

impl Entry {
    pub(crate) fn file(path: &[u8], mode: u32, size: u64, sha256: [u8; 32]) -> Self {
        Self {
            path: path.to_vec(),
            kind: FileKind::File,
            mode: mode & 0o7777,
            size,
            sha256,
            target: Vec::new(),
        }
    }

    pub(crate) fn directory(path: &[u8], mode: u32) -> Self {
        Self {
            path: path.to_vec(),
            kind: FileKind::Directory,
            mode: mode & 0o7777,
            size: 0,
            sha256: [0; 32],
            target: Vec::new(),
        }
    }

    pub(crate) fn symlink(path: &[u8], target: Vec<u8>) -> Self {
        Self {
            path: path.to_vec(),
            kind: FileKind::Symlink,
            mode: 0o777,
            size: target.len() as u64,
            sha256: Sha256::digest(&target).into(),
            target,
        }
    }

    pub(crate) fn special(path: &[u8], kind: SpecialKind) -> Self {
        Self {
            path: path.to_vec(),
            kind: FileKind::Special(kind),
            mode: 0,
            size: 0,
            sha256: [0; 32],
            target: Vec::new(),
        }
    }

    /// The entry in the form of a receipt.
    pub(crate) fn state(&self) -> PathState {
        let has_content = matches!(self.kind, FileKind::File | FileKind::Symlink);
        PathState {
            kind: self.kind.name().to_owned(),
            mode: format!("{:o}", self.mode),
            sha256: has_content.then(|| hex(&self.sha256)),
        }
    }

    /// An entry other than a link, as it was recorded earlier.
    pub(crate) fn recorded(
        path: &[u8],
        kind: FileKind,
        mode: u32,
        size: u64,
        sha256: [u8; 32],
    ) -> Self {
        Self {
            path: path.to_vec(),
            kind,
            mode,
            size,
            sha256,
            target: Vec::new(),
        }
    }

    /// The same file at another path.
    #[cfg(test)]
    pub(crate) fn at(mut self, path: &[u8]) -> Self {
        self.path = path.to_vec();
        self
    }

    /// The same file with other permission bits.
    pub(crate) fn with_mode(mut self, mode: u32) -> Self {
        self.mode = mode & 0o7777;
        self
    }

    /// Whether two entries have the same kind and content, whatever their permissions.
    pub(crate) fn has_content_of(&self, other: &Self) -> bool {
        self.kind == other.kind && self.size == other.size && self.sha256 == other.sha256
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind == FileKind::Directory
    }

    pub(crate) fn too_large(path: &[u8], size: u64) -> Self {
        Self {
            size,
            ..Self::special(path, SpecialKind::TooLarge)
        }
    }

    /// The path relative to the root.
    #[must_use]
    pub fn path(&self) -> &Path {
        path_of(&self.path)
    }

    pub(crate) fn path_bytes(&self) -> &[u8] {
        &self.path
    }

    /// The kind of file.
    #[must_use]
    pub const fn kind(&self) -> FileKind {
        self.kind
    }

    /// The permission bits, set-id and sticky bits included.
    #[must_use]
    pub const fn mode(&self) -> u32 {
        self.mode
    }

    /// The size of a file, or the length of a link's target.
    #[must_use]
    pub const fn size(&self) -> u64 {
        self.size
    }

    /// The SHA-256 of a file's content or of a link's target.
    #[must_use]
    pub const fn sha256(&self) -> &[u8; 32] {
        &self.sha256
    }

    /// The target of a link, empty for everything else.
    #[must_use]
    pub fn target(&self) -> &Path {
        path_of(&self.target)
    }

    pub(crate) fn target_bytes(&self) -> &[u8] {
        &self.target
    }

    /// The bytes the entry contributes to the manifest's hash. Every part of variable length is
    /// preceded by its length, so no two entries have the same form.
    fn feed(&self, hasher: &mut Sha256) {
        hasher.update((self.path.len() as u64).to_be_bytes());
        hasher.update(&self.path);
        hasher.update(self.kind.tag());
        hasher.update(self.mode.to_be_bytes());
        hasher.update(self.size.to_be_bytes());
        hasher.update(self.sha256);
        hasher.update((self.target.len() as u64).to_be_bytes());
        hasher.update(&self.target);
    }
}

impl FileKind {
    const ALL: [Self; 10] = [
        Self::File,
        Self::Directory,
        Self::Symlink,
        Self::Special(SpecialKind::Device),
        Self::Special(SpecialKind::Repository),
        Self::Special(SpecialKind::State),
        Self::Special(SpecialKind::Unreadable),
        Self::Special(SpecialKind::TooDeep),
        Self::Special(SpecialKind::TooLarge),
        Self::Special(SpecialKind::ChangedInSource),
    ];

    /// The kind's name in receipts and change sets.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::File => "file",
            Self::Directory => "directory",
            Self::Symlink => "symlink",
            Self::Special(SpecialKind::Device) => "device",
            Self::Special(SpecialKind::Repository) => "repository",
            Self::Special(SpecialKind::State) => "state",
            Self::Special(SpecialKind::Unreadable) => "unreadable",
            Self::Special(SpecialKind::TooDeep) => "too_deep",
            Self::Special(SpecialKind::TooLarge) => "too_large",
            Self::Special(SpecialKind::ChangedInSource) => "changed_in_source",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    const fn tag(self) -> [u8; 2] {
        match self {
            Self::File => *b"f ",
            Self::Directory => *b"d ",
            Self::Symlink => *b"l ",
            Self::Special(SpecialKind::Device) => *b"sd",
            Self::Special(SpecialKind::Repository) => *b"sg",
            Self::Special(SpecialKind::State) => *b"sb",
            Self::Special(SpecialKind::Unreadable) => *b"su",
            Self::Special(SpecialKind::TooDeep) => *b"st",
            Self::Special(SpecialKind::TooLarge) => *b"sl",
            Self::Special(SpecialKind::ChangedInSource) => *b"sc",
        }
    }
}

impl Manifest {
    pub(crate) fn new(mut entries: Vec<Entry>) -> Self {
        entries.sort_unstable_by(|left, right| left.path.cmp(&right.path));
        Self {
            entries,
            detail: ManifestDetail::Contents,
        }
    }

    /// A manifest with the hashes of changed files only.
    pub(crate) fn of_overlay(entries: Vec<Entry>) -> Self {
        Self {
            detail: ManifestDetail::ChangedContents,
            ..Self::new(entries)
        }
    }

    /// Whether the manifest has the hashes of all files, so that its hash stands for the whole content.
    fn has_contents(&self) -> bool {
        self.detail == ManifestDetail::Contents
    }

    /// The entries, sorted by the bytes of their paths.
    #[must_use]
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The entry of a path.
    #[must_use]
    pub fn get(&self, path: &Path) -> Option<&Entry> {
        self.entry_at(path.as_os_str().as_encoded_bytes())
    }

    pub(crate) fn entry_at(&self, path: &[u8]) -> Option<&Entry> {
        self.index_of(path)
            .and_then(|index| self.entries.get(index))
    }

    pub(crate) fn index_of(&self, path: &[u8]) -> Option<usize> {
        self.entries
            .binary_search_by(|entry| entry.path.as_slice().cmp(path))
            .ok()
    }

    /// Whether a directory has anything in it.
    pub(crate) fn has_children(&self, directory: &[u8]) -> bool {
        let mut prefix = directory.to_vec();
        prefix.push(b'/');
        let at = self.entries.partition_point(|entry| entry.path < prefix);
        self.entries
            .get(at)
            .is_some_and(|entry| entry.path.starts_with(&prefix))
    }

    /// The number of regular files and links.
    #[must_use]
    pub fn files(&self) -> u64 {
        self.contents().count() as u64
    }

    /// The bytes in all of them.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.contents().map(|entry| entry.size).sum()
    }

    /// The hash of the whole manifest, in lower-case hexadecimal.
    #[must_use]
    pub fn sha256(&self) -> String {
        let mut hasher = Sha256::new();
        hasher.update(match self.detail {
            ManifestDetail::Contents => b"abp content manifest 1\n".as_slice(),
            ManifestDetail::ChangedContents => b"abp overlay manifest 1\n",
        });
        for entry in &self.entries {
            entry.feed(&mut hasher);
        }
        hex(&hasher.finalize())
    }

    /// The hash of the whole content; `None` where the manifest does not have all of it.
    #[must_use]
    pub fn content_sha256(&self) -> Option<String> {
        self.has_contents().then(|| self.sha256())
    }

    fn contents(&self) -> impl Iterator<Item = &Entry> {
        self.entries
            .iter()
            .filter(|entry| matches!(entry.kind, FileKind::File | FileKind::Symlink))
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}
