//! Makes the changes of a run in its source.
//!
//! In three steps, so that a failure finds the source as it was whenever possible: every path is
//! planned three-way, the new contents are copied into a directory of their own inside the source,
//! and only then are names changed, which is quick and needs no space.

use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rustix::fs::{Mode, Stat};
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::changes::{Changes, Difference, differences};
use crate::dir::{Dir, path_of};
use crate::ingest::{BUFFER_BYTES, Outputs, Stopped, ingest};
use crate::limits::{Budget, StageLimits};
use crate::manifest::{Entry, FileKind};
use crate::plan::{Planned, Step, check_unchanged, plan};
use crate::prepared::{Baseline, split};
use crate::remove::remove_tree;
use crate::resolve::{Landing, land};

/// Makes `changes`, found in `stage` against `baseline`, in `source`.
pub(crate) fn apply(
    stage: &Dir,
    source: &Dir,
    baseline: &Baseline,
    changes: &Changes,
) -> Result<(), Error> {
    let after = changes.manifest();
    let different = differences(&baseline.manifest, after);
    let touched: Vec<Difference<'_>> = different
        .iter()
        .filter(|difference| is_applied(difference, changes))
        .copied()
        .collect();
    check_links(stage, source, &touched)?;
    let mut planned = plan(stage, source, baseline, &touched)?;
    planned.retain(|planned| !matches!(planned.step, Step::Nothing));
    let directories = directories(source, &different, &planned);
    let holding = Holding::create(source)?;
    let applied = holding
        .fetch(stage, &planned)
        .and_then(|()| check_unchanged(source, &planned))
        .and_then(|()| holding.commit(source, &planned, &directories));
    holding.remove();
    applied
}

/// The directories whose permissions follow the run: those it changed, and those it made that the
/// source does not have yet.
fn directories<'a>(
    source: &Dir,
    different: &[Difference<'a>],
    planned: &[Planned<'_>],
) -> Vec<(&'a [u8], u32)> {
    let mut found = Vec::new();
    for difference in different {
        let Some(entry) = difference.after else {
            continue;
        };
        if entry.kind() != FileKind::Directory {
            continue;
        }
        let path = entry.path_bytes();
        let index = planned.binary_search_by(|planned| planned.difference.path().cmp(path));
        let step = index.ok().and_then(|index| planned.get(index));
        match step.map(|planned| &planned.step) {
            Some(Step::SetMode { mode } | Step::Take { mode }) => found.push((path, *mode)),
            _ if difference.before.is_none() && source.open_dir(path).is_err() => {
                found.push((path, entry.mode() & 0o777));
            }
            _ => {}
        }
    }
    found
}

fn is_applied(difference: &Difference<'_>, changes: &Changes) -> bool {
    if let Some(before) = difference.before
        && matches!(before.kind(), FileKind::Special(_))
    {
        return false;
    }
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
    let budget = Budget::new(unlimited, u64::MAX, Arc::default());
    let outputs = Outputs { copy, pack: None };
    match ingest(file, stat, outputs, &budget, buffer) {
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
    fn fetch(&self, stage: &Dir, planned: &[Planned<'_>]) -> Result<(), Error> {
        let mut buffer = vec![0; BUFFER_BYTES];
        for (number, planned) in planned.iter().enumerate() {
            let Some(entry) = planned.difference.after else {
                continue;
            };
            let path = entry.path_bytes();
            let held = number.to_string();
            let failed = |error: Errno| failed("apply", path, error.into());
            let (bytes, mode) = match (&planned.step, entry.kind()) {
                (Step::Take { .. }, FileKind::Symlink) => {
                    let made = self.dir.create_link(entry.target_bytes(), held.as_bytes());
                    made.map_err(failed)?;
                    continue;
                }
                (Step::Take { mode }, FileKind::File) => (None, *mode),
                (Step::Write { bytes, mode }, _) => (Some(bytes), *mode),
                _ => continue,
            };
            let mut copy = self
                .dir
                .create_file(held.as_bytes(), 0o600)
                .map_err(failed)?;
            match bytes {
                Some(bytes) => copy
                    .write_all(bytes)
                    .map_err(|error| crate::apply::failed("apply", path, error))?,
                None => fetch_file(stage, entry, &copy, &mut buffer)?,
            }
            rustix::fs::fchmod(&copy, Mode::from_raw_mode(mode)).map_err(failed)?;
        }
        Ok(())
    }

    /// Changes the names. Removals come first and from the bottom up, so that a file can take the
    /// place of a directory and the other way round.
    fn commit(
        &self,
        source: &Dir,
        planned: &[Planned<'_>],
        directories: &[(&[u8], u32)],
    ) -> Result<(), Error> {
        let mut done = 0;
        let total = planned.len();
        let stopped = |done, path: &[u8], error: Errno| Error::ApplyIncomplete {
            done,
            total,
            path: PathBuf::from(path_of(path)),
            source: error.into(),
        };
        for Planned { difference, .. } in planned.iter().rev() {
            if let Some(before) = difference.before
                && difference
                    .after
                    .is_none_or(|after| after.kind() != before.kind())
            {
                remove(source, before).map_err(|error| stopped(done, difference.path(), error))?;
                done += usize::from(difference.after.is_none());
            }
        }
        for (number, planned) in planned.iter().enumerate() {
            if let Some(after) = planned.difference.after {
                let held = number.to_string();
                self.put(source, &planned.step, after, held.as_bytes())
                    .map_err(|error| stopped(done, after.path_bytes(), error))?;
                done += 1;
            }
        }
        // Last and from the bottom up: a directory may be made read-only by it.
        for (path, mode) in directories.iter().rev() {
            match source.open_dir(path) {
                // Nothing in it was applied.
                Err(Errno::NOENT) => {}
                opened => {
                    let set = opened.and_then(|dir| dir.set_mode(*mode));
                    set.map_err(|error| stopped(done, path, error))?;
                }
            }
        }
        Ok(())
    }

    fn put(&self, source: &Dir, step: &Step, after: &Entry, held: &[u8]) -> Result<(), Errno> {
        let (directory, name) = split(after.path_bytes());
        let parent = source.open_or_create_dirs(directory)?;
        match (after.kind(), step) {
            (FileKind::Directory, _) => match parent.create_dir(name, 0o777) {
                Err(Errno::EXIST) => Ok(()),
                created => created.map(drop),
            },
            (FileKind::File, Step::SetMode { mode }) => {
                let (file, _) = parent.open_file(name)?;
                rustix::fs::fchmod(&file, Mode::from_raw_mode(*mode))
            }
            (FileKind::File | FileKind::Symlink, _) => self.dir.rename(held, &parent, name),
            (FileKind::Special(_), _) => Ok(()),
        }
    }
}

/// Copies a file of the stage, which must still be what was recorded.
fn fetch_file(
    stage: &Dir,
    entry: &Entry,
    copy: &std::fs::File,
    buffer: &mut [u8],
) -> Result<(), Error> {
    let path = entry.path_bytes();
    let opened = stage
        .open_parent(path)
        .and_then(|(dir, name)| dir.open_file(name));
    let same = match opened {
        Ok((file, stat)) => {
            read(&file, &stat, Some(copy), path, buffer)? == (entry.size(), *entry.sha256())
        }
        Err(_) => false,
    };
    if same {
        Ok(())
    } else {
        Err(Error::ChangedMeanwhile {
            path: entry.path().to_owned(),
        })
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

pub(crate) fn failed(action: &'static str, path: &[u8], source: io::Error) -> Error {
    Error::Access {
        action,
        path: path_of(path).to_owned(),
        source,
    }
}
