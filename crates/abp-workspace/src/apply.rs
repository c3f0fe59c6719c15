//! Makes the changes of a run in its source.
//!
//! In three steps, so that a failure finds the source as it was whenever possible: every path is
//! compared with the baseline, the new contents are copied into a directory of their own inside the
//! source, and only then are names changed, which is quick and needs no space.

use std::io;
use std::path::PathBuf;

use rustix::fs::{FileType, Mode, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::changes::{Changes, Difference, differences};
use crate::dir::{Dir, path_of};
use crate::ingest::{BUFFER_BYTES, Outputs, Stopped, ingest};
use crate::limits::{Budget, StageLimits};
use crate::manifest::{Entry, EntryKind, Manifest};
use crate::prepared::split;
use crate::remove::remove_tree;
use crate::resolve::{Landing, land};
use crate::selection::push_component;

/// Makes `changes`, found in `stage` against `baseline`, in `source`.
pub(crate) fn apply(
    stage: &Dir,
    source: &Dir,
    baseline: &Manifest,
    changes: &Changes,
) -> Result<(), Error> {
    let after = changes.manifest();
    let touched: Vec<Difference<'_>> = differences(baseline, after)
        .into_iter()
        .filter(|difference| {
            difference
                .after
                .is_none_or(|entry| !matches!(entry.kind(), EntryKind::Special(_)))
        })
        .collect();
    check_links(stage, &touched)?;
    check_source(source, baseline, &touched)?;
    let holding = Holding::create(source)?;
    let applied = holding
        .fetch(stage, &touched)
        .and_then(|()| holding.commit(source, &touched));
    holding.remove();
    applied
}

fn check_links(stage: &Dir, touched: &[Difference<'_>]) -> Result<(), Error> {
    let mut paths = Vec::new();
    for entry in touched.iter().filter_map(|difference| difference.after) {
        if entry.kind() != EntryKind::Symlink {
            continue;
        }
        let (directory, _) = split(entry.path_bytes());
        match land(stage, None, directory, entry.target_bytes()) {
            Ok(Landing::Inside(_)) => {}
            Ok(Landing::Outside | Landing::Nowhere(_)) | Err(_) => {
                paths.push(entry.path().to_owned());
            }
        }
    }
    if paths.is_empty() {
        Ok(())
    } else {
        Err(Error::UnsafeLinks { paths })
    }
}

fn check_source(
    source: &Dir,
    baseline: &Manifest,
    touched: &[Difference<'_>],
) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut paths = Vec::new();
    for difference in touched {
        let path = difference.path();
        let expected = match source.open_parent(path) {
            Ok((parent, name)) => is_as_before(&parent, name, difference, baseline, &mut buffer)?,
            // No directory to hold it, so nothing is there.
            Err(Errno::NOENT) => difference.before.is_none(),
            // A file or a link is on the way, which is right only where the run puts a directory in
            // its place.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                difference.before.is_none() && becomes_directory(touched, path)
            }
            Err(error) => return Err(unreadable(path, error)),
        };
        if !expected {
            paths.push(path_of(path).to_owned());
        }
    }
    if paths.is_empty() {
        Ok(())
    } else {
        Err(Error::Conflict { paths })
    }
}

/// Whether a directory above `path` takes the place of something else.
fn becomes_directory(touched: &[Difference<'_>], path: &[u8]) -> bool {
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    slashes.filter_map(|(at, _)| path.get(..at)).any(|above| {
        let found = touched.binary_search_by(|difference| difference.path().cmp(above));
        found
            .ok()
            .and_then(|index| touched.get(index))
            .is_some_and(|difference| {
                let kind = |entry: Option<&Entry>| entry.map(Entry::kind);
                difference.before.is_some()
                    && kind(difference.before) != Some(EntryKind::Directory)
                    && kind(difference.after) == Some(EntryKind::Directory)
            })
    })
}

/// Whether the source has at a name what the run started with.
fn is_as_before(
    parent: &Dir,
    name: &[u8],
    difference: &Difference<'_>,
    baseline: &Manifest,
    buffer: &mut [u8],
) -> Result<bool, Error> {
    let path = difference.path();
    let stat = parent
        .stat_if_exists(name)
        .map_err(|error| unreadable(path, error))?;
    let (Some(before), Some(stat)) = (difference.before, &stat) else {
        let new_dir = difference
            .after
            .is_some_and(|entry| entry.kind() == EntryKind::Directory);
        let both_dirs = new_dir
            && stat
                .as_ref()
                .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        return Ok(both_dirs || (difference.before.is_none() && stat.is_none()));
    };
    let found = FileType::from_raw_mode(stat.st_mode);
    Ok(match before.kind() {
        EntryKind::Directory
            if difference
                .after
                .is_some_and(|after| after.kind() != EntryKind::Directory) =>
        {
            found.is_dir() && holds_nothing_else(parent, name, path, baseline)?
        }
        EntryKind::Directory => found.is_dir(),
        EntryKind::Symlink => {
            found.is_symlink()
                && parent
                    .read_link(name)
                    .map_err(|error| unreadable(path, error))?
                    == before.target_bytes()
        }
        EntryKind::File => {
            found.is_file()
                && stat.st_mode & 0o777 == before.mode() & 0o777
                && has_content(parent, name, before, buffer)?
        }
        EntryKind::Special(_) => false,
    })
}

/// Whether a directory holds only what was staged from it, so that it can be removed.
fn holds_nothing_else(
    parent: &Dir,
    name: &[u8],
    path: &[u8],
    baseline: &Manifest,
) -> Result<bool, Error> {
    let unreadable = |error| unreadable(path, error);
    let dir = parent.open_dir(name).map_err(unreadable)?;
    for entry in dir.entries().map_err(unreadable)? {
        let mut beneath = path.to_vec();
        push_component(&mut beneath, &entry.name);
        let staged = baseline.index_of(&beneath).is_some();
        if !staged
            || (entry.file_type.is_dir()
                && !holds_nothing_else(&dir, &entry.name, &beneath, baseline)?)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_content(
    parent: &Dir,
    name: &[u8],
    before: &Entry,
    buffer: &mut [u8],
) -> Result<bool, Error> {
    let path = before.path_bytes();
    let (file, stat) = match parent.open_file(name) {
        Ok(opened) => opened,
        Err(Errno::NOTSUP | Errno::LOOP | Errno::NOENT) => return Ok(false),
        Err(error) => return Err(unreadable(path, error)),
    };
    if u64::try_from(stat.st_size).ok() != Some(before.size()) {
        return Ok(false);
    }
    let ingested = read(&file, &stat, None, path, buffer)?;
    Ok(ingested == (before.size(), *before.sha256()))
}

/// Reads a file through, into a copy where one is given: its size and its hash.
fn read(
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
                EntryKind::Symlink => {
                    let made = self.dir.create_link(entry.target_bytes(), held.as_bytes());
                    made.map_err(|error| failed("apply", path, error.into()))?;
                }
                EntryKind::File if !only_mode(difference) => {
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
                EntryKind::File | EntryKind::Directory | EntryKind::Special(_) => {}
            }
        }
        Ok(())
    }

    /// Changes the names. Removals come first and from the bottom up, so that a file can take the
    /// place of a directory and the other way round.
    fn commit(&self, source: &Dir, touched: &[Difference<'_>]) -> Result<(), Error> {
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
        for difference in touched.iter().rev() {
            if let Some(after) = difference
                .after
                .filter(|after| after.kind() == EntryKind::Directory)
            {
                let opened = source.open_dir(after.path_bytes());
                let set = opened.and_then(|dir| dir.set_mode(after.mode() & 0o777));
                set.map_err(|error| stopped(done, difference.path(), error))?;
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
            EntryKind::Directory => match parent.create_dir(name, 0o777) {
                Err(Errno::EXIST) => Ok(()),
                created => created.map(drop),
            },
            EntryKind::File if only_mode(difference) => {
                let (file, _) = parent.open_file(name)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(after.mode() & 0o777))
            }
            EntryKind::File | EntryKind::Symlink => self.dir.rename(held, &parent, name),
            EntryKind::Special(_) => Ok(()),
        }
    }
}

fn remove(source: &Dir, before: &Entry) -> Result<(), Errno> {
    let (parent, name) = source.open_parent(before.path_bytes())?;
    if before.kind() != EntryKind::Directory {
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

fn failed(action: &'static str, path: &[u8], source: io::Error) -> Error {
    Error::Access {
        action,
        path: path_of(path).to_owned(),
        source,
    }
}

fn unreadable(path: &[u8], error: Errno) -> Error {
    failed("compare", path, error.into())
}
