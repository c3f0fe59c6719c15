//! Makes the changes of a run in its source.
//!
//! In three steps, so that a failure finds the source as it was whenever possible: every path is
//! compared with the baseline, the new contents are copied into a directory of their own inside the
//! source, and only then are names changed, which is quick and needs no space.

use std::io;
use std::path::PathBuf;

use rustix::fs::{Mode, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::changes::{Changes, Difference, differences};
use crate::conflict::check_source;
use crate::dir::{Dir, path_of};
use crate::ingest::{BUFFER_BYTES, Outputs, Stopped, ingest};
use crate::limits::{Budget, StageLimits};
use crate::manifest::{Entry, FileKind, Manifest};
use crate::prepared::split;
use crate::remove::remove_tree;
use crate::resolve::{Landing, land};

/// Makes `changes`, found in `stage` against `baseline`, in `source`.
pub(crate) fn apply(
    stage: &Dir,
    source: &Dir,
    baseline: &Manifest,
    changes: &Changes,
) -> Result<(), Error> {
    let after = changes.manifest();
    let different = differences(baseline, after);
    let touched: Vec<Difference<'_>> = different
        .iter()
        .filter(|difference| is_applied(difference, changes))
        .copied()
        .collect();
    let directories: Vec<&Entry> = different
        .iter()
        .filter_map(|difference| difference.after)
        .filter(|entry| entry.kind() == FileKind::Directory)
        .collect();
    check_links(stage, source, &touched)?;
    check_source(source, baseline, &touched)?;
    let holding = Holding::create(source)?;
    let applied = holding
        .fetch(stage, &touched)
        .and_then(|()| holding.commit(source, &touched, &directories));
    holding.remove();
    applied
}

fn is_applied(difference: &Difference<'_>, changes: &Changes) -> bool {
    let Some(after) = difference.after else {
        return true;
    };
    let path = after.path_bytes();
    match after.kind() {
        FileKind::Special(_) => false,
        _ if difference.before.is_some() => true,
        // A new directory that is not empty comes with its content, or not at all.
        FileKind::Directory if changes.manifest().has_children(path) => false,
        _ => !changes.is_ignored(path),
    }
}

fn check_links(stage: &Dir, source: &Dir, touched: &[Difference<'_>]) -> Result<(), Error> {
    let mut paths = Vec::new();
    for entry in touched.iter().filter_map(|difference| difference.after) {
        if entry.kind() != FileKind::Symlink {
            continue;
        }
        let (directory, _) = split(entry.path_bytes());
        let landing = |root| land(root, None, directory, entry.target_bytes());
        // In the source, a link that was never staged may be on the way.
        let leaves_source = matches!(landing(source), Ok(Landing::Outside));
        if leaves_source || !matches!(landing(stage), Ok(Landing::Inside(_))) {
            paths.push(entry.path().to_owned());
        }
    }
    if paths.is_empty() {
        Ok(())
    } else {
        Err(Error::UnsafeLinks { paths })
    }
}

/// Reads a file through, into a copy where one is given: its size and its hash.
pub(crate) fn read(
    file: &std::fs::File,
    stat: &Stat,
    copy: Option<&std::fs::File>,
    path: &[u8],
    buffer: &mut [u8],
) -> Result<(u64, [u8; 32]), Error> {
    let unlimited = StageLimits {
        max_files: u64::MAX,
        max_bytes: u64::MAX,
        max_depth: u32::MAX,
    };
    let mut budget = Budget::new(unlimited, u64::MAX);
    let outputs = Outputs { copy, pack: None };
    match ingest(file, stat, outputs, &mut budget, buffer) {
        Ok(ingested) => Ok((ingested.size, ingested.sha256)),
        Err(Stopped::Io(source)) => Err(failed("apply", path, source)),
        Err(Stopped::Exceeded(exceeded)) => {
            Err(failed("apply", path, io::Error::other(exceeded.limit)))
        }
    }
}

/// A directory in the source that holds the new contents until they get their names.
struct Holding<'a> {
    source: &'a Dir,
    name: String,
    dir: Dir,
}

impl<'a> Holding<'a> {
    fn create(source: &'a Dir) -> Result<Self, Error> {
        let name = format!(".{}.abp", Uuid::new_v4().simple());
        let dir = source
            .create_dir(name.as_bytes(), 0o700)
            .map_err(|error| failed("apply", name.as_bytes(), error.into()))?;
        Ok(Self { source, name, dir })
    }

    fn remove(&self) {
        if let Err(error) = remove_tree(self.source, self.name.as_bytes(), &self.dir) {
            tracing::warn!(target: "abp.workspace", %error, name = self.name, "leftover of applying could not be removed");
        }
    }

    /// Copies every new content, each under the number of its change.
    fn fetch(&self, stage: &Dir, touched: &[Difference<'_>]) -> Result<(), Error> {
        let mut buffer = vec![0; BUFFER_BYTES];
        for (number, difference) in touched.iter().enumerate() {
            let Some(entry) = difference.after else {
                continue;
            };
            let path = entry.path_bytes();
            let held = number.to_string();
            match entry.kind() {
                FileKind::Symlink => {
                    let made = self.dir.create_link(entry.target_bytes(), held.as_bytes());
                    made.map_err(|error| failed("apply", path, error.into()))?;
                }
                FileKind::File if !only_mode(difference) => {
                    let changed = |_| Error::ChangedMeanwhile {
                        path: entry.path().to_owned(),
                    };
                    let opened = stage
                        .open_parent(path)
                        .and_then(|(dir, name)| dir.open_file(name));
                    let (file, stat) = opened.map_err(changed)?;
                    let made = self.dir.create_file(held.as_bytes(), 0o600);
                    let copy = made.map_err(|error| failed("apply", path, error.into()))?;
                    if read(&file, &stat, Some(&copy), path, &mut buffer)?
                        != (entry.size(), *entry.sha256())
                    {
                        return Err(changed(Errno::STALE));
                    }
                    let mode = Mode::from_raw_mode(entry.mode() & 0o777);
                    rustix::fs::fchmod(&copy, mode)
                        .map_err(|error| failed("apply", path, error.into()))?;
                }
                FileKind::File | FileKind::Directory | FileKind::Special(_) => {}
            }
        }
        Ok(())
    }

    /// Changes the names. Removals come first and from the bottom up, so that a file can take the
    /// place of a directory and the other way round.
    fn commit(
        &self,
        source: &Dir,
        touched: &[Difference<'_>],
        directories: &[&Entry],
    ) -> Result<(), Error> {
        let mut done = 0;
        let total = touched.len();
        let stopped = |done, path: &[u8], error: Errno| Error::ApplyIncomplete {
            done,
            total,
            path: PathBuf::from(path_of(path)),
            source: error.into(),
        };
        for difference in touched.iter().rev() {
            if let Some(before) = difference.before
                && difference
                    .after
                    .is_none_or(|after| after.kind() != before.kind())
            {
                remove(source, before).map_err(|error| stopped(done, difference.path(), error))?;
                done += usize::from(difference.after.is_none());
            }
        }
        for (number, difference) in touched.iter().enumerate() {
            if let Some(after) = difference.after {
                let held = number.to_string();
                self.put(source, difference, after, held.as_bytes())
                    .map_err(|error| stopped(done, difference.path(), error))?;
                done += 1;
            }
        }
        // Last and from the bottom up: a directory may be made read-only by it.
        for directory in directories.iter().rev() {
            let path = directory.path_bytes();
            match source.open_dir(path) {
                // Nothing in it was applied.
                Err(Errno::NOENT) => {}
                opened => {
                    let set = opened.and_then(|dir| dir.set_mode(directory.mode() & 0o777));
                    set.map_err(|error| stopped(done, path, error))?;
                }
            }
        }
        Ok(())
    }

    fn put(
        &self,
        source: &Dir,
        difference: &Difference<'_>,
        after: &Entry,
        held: &[u8],
    ) -> Result<(), Errno> {
        let (directory, name) = split(after.path_bytes());
        let parent = source.open_or_create_dirs(directory)?;
        match after.kind() {
            FileKind::Directory => match parent.create_dir(name, 0o777) {
                Err(Errno::EXIST) => Ok(()),
                created => created.map(drop),
            },
            FileKind::File if only_mode(difference) => {
                let (file, _) = parent.open_file(name)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(after.mode() & 0o777))
            }
            FileKind::File | FileKind::Symlink => self.dir.rename(held, &parent, name),
            FileKind::Special(_) => Ok(()),
        }
    }
}

fn remove(source: &Dir, before: &Entry) -> Result<(), Errno> {
    let (parent, name) = source.open_parent(before.path_bytes())?;
    if before.kind() != FileKind::Directory {
        return parent.remove_file(name);
    }
    match parent.remove_dir(name) {
        // It also holds what was never staged.
        Err(Errno::NOTEMPTY | Errno::EXIST) => Ok(()),
        removed => removed,
    }
}

fn only_mode(difference: &Difference<'_>) -> bool {
    matches!((difference.before, difference.after), (Some(before), Some(after))
        if before.kind() == after.kind() && before.sha256() == after.sha256())
}

pub(crate) fn failed(action: &'static str, path: &[u8], source: io::Error) -> Error {
    Error::Access {
        action,
        path: path_of(path).to_owned(),
        source,
    }
}
