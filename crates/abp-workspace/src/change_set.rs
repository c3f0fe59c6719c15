//! The change set of a run: the small document that stays when the run is over.
//!
//! It names the source, and every changed path with its entry before and after. Together with the
//! images of the files that may have to be merged, it is all that a later process needs besides the
//! agent's tree, and the agent can reach neither. The tree is then compared with it, not believed.
//!
//! Planning an application needs nothing else about the source: whatever lies beneath a directory
//! that the run replaced was deleted by it, so a name in that directory that the change set does not
//! know was never staged.

mod form;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use abp_core::PathChange;
use abp_policy::host_execution_reason;
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use crate::Error;
use crate::changes::{Changes, Difference, differences};
use crate::content;
use crate::diff::{DiffWriter, Side};
use crate::dir::{Dir, path_of};
use crate::document::MAX_DOCUMENT_BYTES;
use crate::manifest::{Entry, FileKind, hex};
use crate::merge;
use crate::prepared::Baseline;
use crate::quote::{display_path, status_name};
use crate::source::SourceIdentity;
use crate::stage::MASK;

/// The most changed paths of a change set.
const MAX_CHANGES: usize = 500_000;
/// The most bytes of all images of one change set; later files have none, and where both sides
/// change such a file, it is a conflict instead of a merge.
const MAX_IMAGE_BYTES: u64 = 128 * 1024 * 1024;
/// The mode of a directory that neither the run nor its start knows.
const NEW_DIRECTORY_MODE: u32 = 0o755;

/// Everything a run changed, and in which source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangeSet {
    pub(crate) is_staged: bool,
    pub(crate) source: SourceIdentity,
    /// Absent where the contents of unchanged files were not read, as under an overlay.
    baseline_sha256: Option<String>,
    final_sha256: Option<String>,
    /// The modes of unchanged directories above changed paths, for a source that lost them.
    directories: BTreeMap<Vec<u8>, u32>,
    /// Sorted by path, each path once.
    pub(crate) changes: Vec<ChangedPath>,
    /// The hashes of the images that are stored with it, so that a removed one is missed.
    images: BTreeSet<[u8; 32]>,
}

/// A path that a run changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChangedPath {
    pub(crate) before: Option<Entry>,
    pub(crate) after: Option<Entry>,
    pub(crate) is_ignored: bool,
}

/// The content of a file before a run, for merging it by lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BeforeImage {
    /// The SHA-256 of the bytes.
    pub sha256: [u8; 32],
    /// The content.
    pub bytes: Vec<u8>,
}

impl ChangedPath {
    /// The path relative to the root.
    #[must_use]
    pub fn path(&self) -> &Path {
        path_of(self.path_bytes())
    }

    /// The entry at the start of the run.
    #[must_use]
    pub const fn before(&self) -> Option<&Entry> {
        self.before.as_ref()
    }

    /// The entry at its end.
    #[must_use]
    pub const fn after(&self) -> Option<&Entry> {
        self.after.as_ref()
    }

    /// Whether it is new and hidden by the `.gitignore` rules the run started with; it is then never
    /// applied.
    #[must_use]
    pub const fn is_ignored(&self) -> bool {
        self.is_ignored
    }

    pub(crate) fn path_bytes(&self) -> &[u8] {
        let entry = self.after.as_ref().or(self.before.as_ref());
        entry.map_or(b"", Entry::path_bytes)
    }

    fn receipt_form(&self) -> PathChange {
        PathChange {
            path: display_path(self.path()),
            before: self.before.as_ref().map(Entry::state),
            after: self.after.as_ref().map(Entry::state),
        }
    }
}

impl ChangeSet {
    pub(crate) fn new(
        is_staged: bool,
        source: SourceIdentity,
        changes: &Changes,
    ) -> Result<Self, Error> {
        let baseline = &changes.before;
        let differences = differences(&baseline.manifest, changes.manifest());
        check_size(differences.iter().map(|difference| {
            let target =
                |entry: Option<&Entry>| entry.map_or(0, |entry| entry.target_bytes().len());
            difference.path().len() + target(difference.before) + target(difference.after)
        }))?;
        let changed: BTreeSet<&[u8]> = differences.iter().map(Difference::path).collect();
        let mut directories = BTreeMap::new();
        for path in &changed {
            for above in ancestors(path) {
                let known = baseline.manifest.entry_at(above);
                if let Some(known) = known.filter(|entry| entry.is_directory())
                    && !changed.contains(above)
                {
                    directories.insert(above.to_vec(), known.mode());
                }
            }
        }
        let changes_made = differences.iter().map(|difference| ChangedPath {
            before: difference.before.cloned(),
            after: difference.after.cloned(),
            is_ignored: difference.before.is_none() && changes.is_ignored(difference.path()),
        });
        Ok(Self {
            is_staged,
            source,
            baseline_sha256: baseline.manifest.content_sha256(),
            final_sha256: changes.manifest().content_sha256(),
            directories,
            changes: changes_made.collect(),
            images: BTreeSet::new(),
        })
    }

    /// Reads the images of the files that may have to be merged or shown in a diff, the changed files
    /// before the deleted ones, and names them.
    pub(crate) fn take_images(&mut self, baseline: &Baseline) -> Result<Vec<BeforeImage>, Error> {
        let images = self.read_images(baseline)?;
        self.images = images.iter().map(|image| image.sha256).collect();
        Ok(images)
    }

    fn read_images(&self, baseline: &Baseline) -> Result<Vec<BeforeImage>, Error> {
        let (mut images, mut known) = (Vec::new(), BTreeSet::new());
        let mut room = MAX_IMAGE_BYTES;
        let files = self.changes.iter().filter_map(|change| {
            let before = change.before.as_ref()?;
            let is_file = before.kind() == FileKind::File && before.size() <= merge::MAX_BYTES;
            let after = change.after.as_ref().filter(|_| is_file);
            let stays = after.is_some_and(|after| after.has_content_of(before));
            (is_file && !stays).then_some((before, after.is_some()))
        });
        let (modified, deleted): (Vec<_>, Vec<_>) =
            files.partition(|(_, is_modified)| *is_modified);
        for (entry, _) in modified.into_iter().chain(deleted) {
            if entry.size() > room || !known.insert(*entry.sha256()) {
                continue;
            }
            if let Some(bytes) = content::original(baseline, entry)? {
                room -= entry.size();
                images.push(BeforeImage {
                    sha256: *entry.sha256(),
                    bytes,
                });
            }
        }
        Ok(images)
    }

    /// The source the run was started on.
    #[must_use]
    pub fn source(&self) -> &SourceIdentity {
        &self.source
    }

    /// Whether the agent worked on a copy, so that the changes are still to be applied.
    #[must_use]
    pub const fn is_staged(&self) -> bool {
        self.is_staged
    }

    /// The hash of the content manifest at the start of the run; `None` under an overlay, where the
    /// contents of unchanged files are not read.
    #[must_use]
    pub fn baseline_sha256(&self) -> Option<&str> {
        self.baseline_sha256.as_deref()
    }

    /// The hash of the content manifest at its end; `None` as for the start.
    #[must_use]
    pub fn final_sha256(&self) -> Option<&str> {
        self.final_sha256.as_deref()
    }

    /// Every changed path, sorted; ignored ones and directories that came with their content
    /// included.
    #[must_use]
    pub fn changes(&self) -> &[ChangedPath] {
        &self.changes
    }

    /// The same changes, for a directory with a copy of the source: where the run worked on an upload of
    /// that directory.
    ///
    /// # Errors
    /// Fails where the directory cannot be opened.
    pub fn for_source(mut self, root: &Path) -> Result<Self, Error> {
        let failed = |source: std::io::Error| Error::Root {
            root: root.to_owned(),
            source,
        };
        let canonical = root.canonicalize().map_err(failed)?;
        let dir = Dir::open_operator_path(&canonical).map_err(|error| failed(error.into()))?;
        let identity = SourceIdentity::of(&dir, &canonical);
        self.source = identity.map_err(|error| failed(error.into()))?;
        Ok(self)
    }

    /// The content of a file after the run, by its SHA-256, from the agent's tree; `None` where no changed
    /// file has that content.
    ///
    /// # Errors
    /// Fails where the tree was written after the end of the run.
    pub fn content_after(&self, tree: &Path, sha256: &[u8; 32]) -> Result<Option<Vec<u8>>, Error> {
        let after = self.changes.iter().filter_map(ChangedPath::after);
        let mut files = after.filter(|entry| entry.kind() == FileKind::File);
        match files.find(|entry| entry.sha256() == sha256) {
            Some(entry) => stage_content(&open_tree(tree)?, entry),
            None => Ok(None),
        }
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }

    /// The paths that an application of everything decides about, sorted.
    #[must_use]
    pub fn applicable_paths(&self) -> Vec<PathBuf> {
        let applicable = self
            .changes
            .iter()
            .filter(|change| self.is_applicable(change));
        applicable.map(|change| change.path().to_owned()).collect()
    }

    /// The changes without the decided ones: what is left to show. New directories whose whole content
    /// is decided are left out as well. It is no change set of a run, and its hash is nobody's.
    #[must_use]
    pub fn without(&self, is_decided: impl Fn(&Path) -> bool) -> Self {
        let is_open =
            |change: &&ChangedPath| self.is_applicable(change) && !is_decided(change.path());
        let open: BTreeSet<&Path> = self
            .changes
            .iter()
            .filter(is_open)
            .map(ChangedPath::path)
            .collect();
        let is_left = |change: &&ChangedPath| {
            let path = change.path();
            let is_directory = change.after.as_ref().is_some_and(Entry::is_directory);
            if self.is_applicable(change) {
                open.contains(path)
            } else if is_directory && !change.is_ignored {
                open.range(path..)
                    .next()
                    .is_some_and(|next| next.starts_with(path))
            } else {
                true
            }
        };
        Self {
            changes: self.changes.iter().filter(is_left).cloned().collect(),
            ..self.clone()
        }
    }

    /// The lines of a `git status --porcelain=v1` of the run that are about these changes.
    #[must_use]
    pub fn status_lines(&self, status: &str) -> String {
        let name = |change: &ChangedPath| {
            let mut name = change.path_bytes().to_vec();
            let entry = change.after.as_ref().or(change.before.as_ref());
            if entry.is_some_and(Entry::is_directory) {
                name.push(b'/');
            }
            status_name(&name)
        };
        let names: BTreeSet<String> = self.changes.iter().map(name).collect();
        let is_named = |line: &&str| line.get(3..).is_some_and(|name| names.contains(name));
        let lines = status.lines().filter(is_named);
        lines.map(|line| format!("{line}\n")).collect()
    }

    /// The paths whose content would run code or steer tools on the developer's machine, each with
    /// the reason.
    #[must_use]
    pub fn host_executed(&self) -> Vec<(PathBuf, &'static str)> {
        let written = self
            .changes
            .iter()
            .filter(|change| change.after.is_some() && self.is_applicable(change));
        let with_reason = written.filter_map(|change| {
            let reason = host_execution_reason(change.path())?;
            Some((change.path().to_owned(), reason))
        });
        with_reason.collect()
    }

    /// The changed paths in the form of a receipt, at most the first `max`.
    #[must_use]
    pub fn path_changes(&self, max: usize) -> Vec<PathChange> {
        let first = self.changes.iter().take(max);
        first.map(ChangedPath::receipt_form).collect()
    }

    /// The changes as a patch, from the agent's tree and the stored images. Contents that are not
    /// stored or too large are only named.
    ///
    /// # Errors
    /// [`Error::StageChanged`] where a file was written after the end of the run,
    /// [`Error::BaselineDamaged`] where an image is not the one that was stored.
    pub fn git_diff(
        &self,
        stage_tree: &Path,
        images: impl Fn(&[u8; 32]) -> Option<Vec<u8>>,
    ) -> Result<String, Error> {
        let stage = open_tree(stage_tree)?;
        let mut writer = DiffWriter::new();
        for change in self.changes.iter().filter(|change| !change.is_ignored) {
            let new = match &change.after {
                Some(entry) if entry.kind() == FileKind::File => stage_content(&stage, entry)?,
                _ => None,
            };
            let old = match (&change.before, &change.after) {
                // Only the mode changed, and no image is stored for that.
                (Some(before), Some(after)) if before.has_content_of(after) => new.clone(),
                (Some(before), _) if before.kind() == FileKind::File => image_of(before, &images)?,
                _ => None,
            };
            let old = change
                .before
                .as_ref()
                .and_then(|entry| Side::of(entry, old));
            let new = change.after.as_ref().and_then(|entry| Side::of(entry, new));
            writer.write(change.path_bytes(), old.as_ref(), new.as_ref());
        }
        Ok(writer.finish())
    }

    /// The change of a path.
    pub(crate) fn find(&self, path: &[u8]) -> Option<&ChangedPath> {
        let found = self
            .changes
            .binary_search_by(|change| change.path_bytes().cmp(path));
        found.ok().and_then(|index| self.changes.get(index))
    }

    /// Whether a change is made in the source. Files that are no content are not; a new directory
    /// with content comes with that content, or not at all.
    pub(crate) fn is_applicable(&self, change: &ChangedPath) -> bool {
        let is_special = |entry: &Entry| matches!(entry.kind(), FileKind::Special(_));
        if change.before.as_ref().is_some_and(is_special) {
            return false;
        }
        match (&change.before, &change.after) {
            (_, None) => true,
            (_, Some(after)) if is_special(after) => false,
            (Some(_), Some(_)) => true,
            (None, Some(_)) if change.is_ignored => false,
            (None, Some(after)) => !after.is_directory() || !self.has_children(after),
        }
    }

    fn has_children(&self, directory: &Entry) -> bool {
        let mut prefix = directory.path_bytes().to_vec();
        prefix.push(b'/');
        let at = self
            .changes
            .partition_point(|change| change.path_bytes() < prefix.as_slice());
        let next = self.changes.get(at);
        next.is_some_and(|change| change.path_bytes().starts_with(&prefix))
    }

    /// The mode of a directory that has to be made for something in it.
    pub(crate) fn directory_mode(&self, path: &[u8]) -> u32 {
        let made = self.find(path).and_then(|change| change.after.as_ref());
        let made = made.filter(|after| after.is_directory()).map(Entry::mode);
        let mode = made.or_else(|| self.directories.get(path).copied());
        mode.unwrap_or(NEW_DIRECTORY_MODE) & 0o777
    }
}

/// Bounds the document by the names in it: each byte of a name takes at most six in JSON and four
/// thirds in base64, and everything else of a change fits into 700.
fn check_size(names: impl ExactSizeIterator<Item = usize>) -> Result<(), Error> {
    let count = names.len();
    let bytes: usize = names.map(|length| length.saturating_mul(8) + 700).sum();
    if count > MAX_CHANGES || bytes > MAX_DOCUMENT_BYTES {
        return Err(Error::TooManyChanges {
            count: count as u64,
            max: MAX_CHANGES as u64,
        });
    }
    Ok(())
}

/// The directories above a path, from the top.
pub(crate) fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    slashes.filter_map(|(at, _)| path.get(..at))
}

/// The stored image of a file, checked; none where none is stored.
pub(crate) fn image_of(
    entry: &Entry,
    images: &impl Fn(&[u8; 32]) -> Option<Vec<u8>>,
) -> Result<Option<Vec<u8>>, Error> {
    match images(entry.sha256()) {
        Some(bytes) if Sha256::digest(&bytes).as_slice() == entry.sha256() => Ok(Some(bytes)),
        Some(_) => Err(Error::BaselineDamaged {
            path: entry.path().to_owned(),
        }),
        None => Ok(None),
    }
}

/// The content of a file of the stage, which must be the verified one; none where it is too large.
pub(crate) fn stage_content(stage: &Dir, entry: &Entry) -> Result<Option<Vec<u8>>, Error> {
    content::current(stage, entry).map_err(|error| match error {
        Error::ChangedMeanwhile { path } | Error::FileTooLarge { path, .. } => {
            Error::StageChanged { path }
        }
        error => error,
    })
}

/// Opens the agent's tree, which must be a directory and not a link to one.
pub(crate) fn open_tree(tree: &Path) -> Result<Dir, Error> {
    Dir::open_own_path(tree).map_err(|error| Error::StageDirectory {
        path: tree.to_owned(),
        source: error.into(),
    })
}

/// Opens the mask beside the agent's tree; none where the stage is a copy.
pub(crate) fn open_mask(tree: &Path) -> Result<Option<Dir>, Error> {
    let path = tree.with_file_name(MASK);
    match Dir::open_own_path(&path) {
        Ok(mask) => Ok(Some(mask)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(Error::StageDirectory {
            path,
            source: error.into(),
        }),
    }
}

impl BeforeImage {
    /// The SHA-256 in lower-case hexadecimal.
    #[must_use]
    pub fn sha256_hex(&self) -> String {
        hex(&self.sha256)
    }
}
