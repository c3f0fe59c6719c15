//! The changes of a run, from two manifests, in the forms git gives them.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::{ChangeSummary, PathChange};

use crate::Error;
use crate::content;
use crate::diff::{DiffWriter, Side};
use crate::dir::Dir;
use crate::manifest::{Entry, FileKind, Manifest};
use crate::prepared::Baseline;
use crate::quote::{display_path, status_name};

/// The changes of a run.
#[derive(Debug, Clone)]
pub struct Changes {
    /// The content at the start, as far as it is needed to compare.
    pub(crate) before: Arc<Baseline>,
    files: Vec<FileChange>,
    status: String,
    diff: String,
    manifest: Manifest,
    manifest_sha256: String,
    /// The topmost ignored paths; directories end in a slash.
    ignored: BTreeSet<Vec<u8>>,
    notes: Vec<String>,
}

/// Two comparisons are the same where they found the same, however the content at the start is kept.
impl PartialEq for Changes {
    fn eq(&self, other: &Self) -> bool {
        (&self.files, &self.status, &self.diff) == (&other.files, &other.status, &other.diff)
            && (&self.manifest, &self.notes) == (&other.manifest, &other.notes)
    }
}

/// One changed path.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FileChange {
    /// The path relative to the root.
    pub path: PathBuf,
    /// The kind of change.
    pub kind: ChangeKind,
    /// The entry at the start.
    pub before: Option<Entry>,
    /// The entry now.
    pub after: Option<Entry>,
    /// The form of the content in the diff.
    pub content: ContentChange,
    /// Whether it is new and hidden by the `.gitignore` rules the run started with. It is then not
    /// in the diff, and not applied.
    pub ignored: bool,
}

/// The kind of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ChangeKind {
    /// It is new. For a directory: it is new and empty.
    Added,
    /// Its content or its link target changed, perhaps its mode too.
    Modified,
    /// It is gone. For a directory: it was empty before.
    Deleted,
    /// It became something else, such as a link where a file was.
    TypeChanged,
    /// Only its permission bits changed.
    ModeChanged,
    /// It now is something a diff cannot carry: see [`SpecialKind`](crate::SpecialKind).
    Special,
}

/// The form of a changed content in the diff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ContentChange {
    /// The content did not change, or there is none.
    None,
    /// By lines.
    Text {
        /// Lines added.
        insertions: u64,
        /// Lines removed.
        deletions: u64,
    },
    /// As a binary patch.
    Binary,
    /// Not at all: it is too large, and only the hashes in the entries tell it. The diff then does
    /// not apply at this path.
    Omitted,
}

impl Changes {
    /// The changes in the form of `git status --porcelain=v1`: changed files first, then new ones,
    /// each sorted. New files are listed one by one. Changes that git cannot express are listed as
    /// well: an empty directory ends in a slash, and FIFOs, sockets, devices and nested repositories
    /// are listed as new. New and ignored files come last, marked `!!`, a whole directory in one
    /// line.
    #[must_use]
    pub fn git_status(&self) -> String {
        self.status.clone()
    }

    /// The changes as a patch that `git apply` takes, new, deleted and binary files, modes and
    /// links included. It has neither changes that git cannot express (see [`Self::git_status`]),
    /// nor permission bits other than the executable one, nor ignored files
    /// ([`FileChange::ignored`]), nor contents that are too large ([`ContentChange::Omitted`]).
    #[must_use]
    pub fn git_diff(&self) -> String {
        self.diff.clone()
    }

    /// Whether a path is new and ignored.
    pub(crate) fn is_ignored(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        let mut above = slashes.filter_map(|(at, _)| path.get(..=at));
        self.ignored.contains(path) || above.any(|above| self.ignored.contains(above))
    }

    /// The changed paths, sorted; the ignored ones included.
    #[must_use]
    pub fn files(&self) -> &[FileChange] {
        &self.files
    }

    /// Whether nothing changed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.files.is_empty()
    }

    /// The content of the workspace now.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// What else was found, such as files of a live source that were changed there meanwhile.
    #[must_use]
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The hash of [`Self::manifest`].
    #[must_use]
    pub fn manifest_sha256(&self) -> &str {
        &self.manifest_sha256
    }

    /// The changed paths in the form of a receipt, at most the first `max`; the ignored ones included.
    #[must_use]
    pub fn path_changes(&self, max: usize) -> Vec<PathChange> {
        let form = |file: &FileChange| PathChange {
            path: display_path(&file.path),
            before: file.before.as_ref().map(Entry::state),
            after: file.after.as_ref().map(Entry::state),
        };
        self.files.iter().take(max).map(form).collect()
    }

    /// The size of the diff.
    #[must_use]
    pub fn summary(&self) -> ChangeSummary {
        let mut summary = ChangeSummary::default();
        for file in self.files.iter().filter(|file| !file.ignored) {
            summary.files_changed += 1;
            if let ContentChange::Text {
                insertions,
                deletions,
            } = file.content
            {
                summary.insertions += insertions;
                summary.deletions += deletions;
            }
        }
        summary
    }
}

/// A path in either of two manifests, where they differ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Difference<'a> {
    pub(crate) before: Option<&'a Entry>,
    pub(crate) after: Option<&'a Entry>,
}

impl<'a> Difference<'a> {
    pub(crate) fn path(&self) -> &'a [u8] {
        self.after.or(self.before).map_or(b"", Entry::path_bytes)
    }
}

/// Every path at which two manifests differ, sorted.
pub(crate) fn differences<'a>(before: &'a Manifest, after: &'a Manifest) -> Vec<Difference<'a>> {
    let mut found = Vec::new();
    let mut old = before.entries().iter().peekable();
    let mut new = after.entries().iter().peekable();
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return found,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(old), Some(new)) => old.path_bytes().cmp(new.path_bytes()),
        };
        let difference = Difference {
            before: if order.is_le() { old.next() } else { None },
            after: if order.is_ge() { new.next() } else { None },
        };
        if difference.before != difference.after {
            found.push(difference);
        }
    }
}

/// Turns two manifests into changes, fetching the contents that differ.
pub(crate) struct Collector<'a> {
    root: &'a Dir,
    baseline: Arc<Baseline>,
    diff: DiffWriter,
}

impl<'a> Collector<'a> {
    pub(crate) fn new(root: &'a Dir, baseline: Arc<Baseline>) -> Self {
        Self {
            root,
            baseline,
            diff: DiffWriter::new(),
        }
    }

    pub(crate) fn collect(mut self, after: Manifest, notes: Vec<String>) -> Result<Changes, Error> {
        let mut files = Vec::new();
        let mut ignored = BTreeSet::new();
        let baseline = Arc::clone(&self.baseline);
        for difference in differences(&baseline.manifest, &after) {
            let Some(kind) = self.kind(&difference, &after) else {
                continue;
            };
            let hidden_at = self.hidden_at(&difference);
            let content = match hidden_at {
                Some(_) => ContentChange::None,
                None => self.content(&difference)?,
            };
            let shown = difference.after.or(difference.before).map(Entry::path);
            files.push(FileChange {
                path: shown.map(Path::to_owned).unwrap_or_default(),
                kind,
                before: difference.before.cloned(),
                after: difference.after.cloned(),
                content,
                ignored: hidden_at.is_some(),
            });
            ignored.extend(hidden_at);
        }
        Ok(Changes {
            before: baseline,
            status: status(&files, &ignored),
            ignored,
            notes,
            diff: self.diff.finish(),
            manifest_sha256: after.sha256(),
            manifest: after,
            files,
        })
    }

    /// The kind of a change; none for a directory that came or went with its content.
    fn kind(&self, difference: &Difference<'_>, after: &Manifest) -> Option<ChangeKind> {
        let is_dir = |entry: &Entry| entry.kind() == FileKind::Directory;
        match (difference.before, difference.after) {
            (_, Some(new)) if matches!(new.kind(), FileKind::Special(_)) => {
                Some(ChangeKind::Special)
            }
            (None, Some(new)) if is_dir(new) && after.has_children(new.path_bytes()) => None,
            (None, _) => Some(ChangeKind::Added),
            (Some(old), None)
                if is_dir(old) && self.baseline.manifest.has_children(old.path_bytes()) =>
            {
                None
            }
            (Some(_), None) => Some(ChangeKind::Deleted),
            (Some(old), Some(new)) if old.kind() != new.kind() => Some(ChangeKind::TypeChanged),
            (Some(old), Some(new)) if old.sha256() != new.sha256() => Some(ChangeKind::Modified),
            (Some(_), Some(_)) => Some(ChangeKind::ModeChanged),
        }
    }

    fn hidden_at(&self, difference: &Difference<'_>) -> Option<Vec<u8>> {
        let (None, Some(new)) = (difference.before, difference.after) else {
            return None;
        };
        let rules = &self.baseline.selection;
        rules.hidden_at(new.path_bytes(), new.kind() == FileKind::Directory)
    }

    /// Writes the difference of the contents into the diff.
    fn content(&mut self, difference: &Difference<'_>) -> Result<ContentChange, Error> {
        let old = match difference.before {
            Some(entry) => self.old_side(entry)?,
            None => None,
        };
        let new = match difference.after {
            Some(entry) => self.new_side(entry)?,
            None => None,
        };
        Ok(self
            .diff
            .write(difference.path(), old.as_ref(), new.as_ref()))
    }

    fn old_side(&self, entry: &Entry) -> Result<Option<Side>, Error> {
        let bytes = match entry.kind() {
            FileKind::File => content::original(&self.baseline, entry)?,
            _ => None,
        };
        Ok(Side::of(entry, bytes))
    }

    fn new_side(&self, entry: &Entry) -> Result<Option<Side>, Error> {
        let bytes = match entry.kind() {
            FileKind::File => content::current(self.root, entry)?,
            _ => None,
        };
        Ok(Side::of(entry, bytes))
    }
}

fn status(files: &[FileChange], ignored: &BTreeSet<Vec<u8>>) -> String {
    let (mut known, mut new) = (String::new(), String::new());
    for file in files.iter().filter(|file| !file.ignored) {
        let entry = file.after.as_ref().or(file.before.as_ref());
        let mut name = entry
            .map(|entry| entry.path_bytes().to_vec())
            .unwrap_or_default();
        if entry.is_some_and(|entry| entry.kind() == FileKind::Directory) {
            name.push(b'/');
        }
        let name = status_name(&name);
        let mark = match file.kind {
            _ if file.before.is_none() => {
                new.push_str(&format!("?? {name}\n"));
                continue;
            }
            ChangeKind::Deleted => 'D',
            ChangeKind::TypeChanged | ChangeKind::Special => 'T',
            ChangeKind::Added | ChangeKind::Modified | ChangeKind::ModeChanged => 'M',
        };
        known.push_str(&format!(" {mark} {name}\n"));
    }
    let ignored = ignored
        .iter()
        .map(|path| format!("!! {}\n", status_name(path)));
    known + &new + &ignored.collect::<String>()
}
