//! What has to be done in the source for each change of a run: three-way, between what the run
//! started with, what it made of it, and what the source is by now. Nothing is written here.

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::Error;
use crate::apply::{failed, read};
use crate::changes::Difference;
use crate::conflict::{Conflict, ConflictReason};
use crate::content;
use crate::dir::{Dir, path_of};
use crate::ingest::BUFFER_BYTES;
use crate::manifest::{Entry, FileKind, Manifest};
use crate::merge::{self, Merged, merge};
use crate::prepared::{Baseline, read_limited};
use crate::selection::push_component;
use crate::walk::REPOSITORY;

/// What is to be done at a path.
#[derive(Debug)]
pub(crate) enum Step {
    /// Nothing: the source is already so.
    Nothing,
    /// What the run made takes its place, a file with these permission bits.
    Take { mode: u32 },
    /// Only the permission bits change.
    SetMode { mode: u32 },
    /// A file gets content that neither side has alone.
    Write { bytes: Vec<u8>, mode: u32 },
}

/// A change, what it means for the source, and what was there when that was decided.
#[derive(Debug)]
pub(crate) struct Planned<'a> {
    pub(crate) difference: Difference<'a>,
    pub(crate) step: Step,
    seen: Option<Stamp>,
}

/// Tells whether something was changed since it was looked at. A directory is taken for unchanged
/// whatever names come and go in it.
#[derive(Debug, Default, PartialEq, Eq)]
struct Stamp {
    inode: u64,
    mode: u32,
    size: i64,
    modified: (i64, u64),
    changed: (i64, u64),
}

impl Stamp {
    fn of(stat: &Stat) -> Self {
        let named = Self {
            inode: stat.st_ino,
            mode: stat.st_mode,
            ..Self::default()
        };
        if FileType::from_raw_mode(stat.st_mode).is_dir() {
            return named;
        }
        Self {
            size: stat.st_size,
            modified: (stat.st_mtime, stat.st_mtime_nsec),
            changed: (stat.st_ctime, stat.st_ctime_nsec),
            ..named
        }
    }
}

/// Decides about every touched path.
///
/// # Errors
/// [`Error::Conflict`] with everything that stands in the way.
pub(crate) fn plan<'a>(
    stage: &Dir,
    source: &Dir,
    baseline: &Baseline,
    touched: &[Difference<'a>],
) -> Result<Vec<Planned<'a>>, Error> {
    let mut planner = Planner {
        stage,
        source,
        baseline,
        touched,
        buffer: vec![0; BUFFER_BYTES],
    };
    let (mut planned, mut conflicts) = (Vec::with_capacity(touched.len()), Vec::new());
    for difference in touched {
        match planner.decide(difference)? {
            Ok((step, seen)) => planned.push(Planned {
                difference: *difference,
                step,
                seen,
            }),
            Err(reason) => conflicts.push(Conflict {
                path: path_of(difference.path()).to_owned(),
                reason,
            }),
        }
    }
    if conflicts.is_empty() {
        Ok(planned)
    } else {
        Err(Error::Conflict { conflicts })
    }
}

/// Makes sure that the source still is what the plan was made for.
pub(crate) fn check_unchanged(source: &Dir, planned: &[Planned<'_>]) -> Result<(), Error> {
    for step in planned {
        let path = step.difference.path();
        let now = match source.open_parent(path) {
            Ok((parent, name)) => parent
                .stat_if_exists(name)
                .map_err(|error| unreadable(path, error))?,
            Err(_) => None,
        };
        if now.as_ref().map(Stamp::of) != step.seen {
            return Err(Error::ChangedMeanwhile {
                path: path_of(path).to_owned(),
            });
        }
    }
    Ok(())
}

struct Planner<'a, 'b> {
    stage: &'a Dir,
    source: &'a Dir,
    baseline: &'a Baseline,
    touched: &'a [Difference<'b>],
    buffer: Vec<u8>,
}

/// A step, or why there is none.
type Decision = Result<Step, ConflictReason>;

/// Something in the source.
struct Found<'a> {
    parent: Dir,
    name: &'a [u8],
    stat: Stat,
    file_type: FileType,
}

impl Found<'_> {
    fn mode(&self) -> u32 {
        self.stat.st_mode & 0o777
    }
}

impl Planner<'_, '_> {
    fn decide(
        &mut self,
        difference: &Difference<'_>,
    ) -> Result<Result<(Step, Option<Stamp>), ConflictReason>, Error> {
        let path = difference.path();
        let mut components = path.split(|&byte| byte == b'/');
        if difference.after.is_some()
            && components.any(|component| component.eq_ignore_ascii_case(REPOSITORY))
        {
            return Ok(Err(ConflictReason::Repository));
        }
        let nothing_there = match (difference.before, difference.after) {
            (None, Some(after)) => Ok(Step::Take {
                mode: after.mode() & 0o777,
            }),
            (_, None) => Ok(Step::Nothing),
            (Some(_), Some(_)) => Err(ConflictReason::Missing),
        };
        let (parent, name) = match self.source.open_parent(path) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(nothing_there.map(|step| (step, None))),
            // A file or a link is on the way, which is right only where the run puts a directory in
            // its place.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let blocked = difference.after.is_some() && !self.becomes_directory(path);
                let decision = if blocked {
                    Err(ConflictReason::Parent)
                } else {
                    nothing_there
                };
                return Ok(decision.map(|step| (step, None)));
            }
            Err(error) => return Err(unreadable(path, error)),
        };
        let stat = parent.stat_if_exists(name);
        let Some(stat) = stat.map_err(|error| unreadable(path, error))? else {
            return Ok(nothing_there.map(|step| (step, None)));
        };
        let found = Found {
            parent,
            name,
            stat,
            file_type: FileType::from_raw_mode(stat.st_mode),
        };
        let decision = self.against(difference, &found)?;
        Ok(decision.map(|step| (step, Some(Stamp::of(&stat)))))
    }

    /// Decides where the source has something.
    fn against(
        &mut self,
        difference: &Difference<'_>,
        found: &Found<'_>,
    ) -> Result<Decision, Error> {
        use FileKind::{Directory, File};
        let take = |after: &Entry| Step::Take {
            mode: after.mode() & 0o777,
        };
        Ok(match (difference.before, difference.after) {
            (None, None) => Ok(Step::Nothing),
            (None, Some(after)) => {
                if self.is(after, found)? {
                    Ok(Step::Nothing)
                } else {
                    Err(ConflictReason::Appeared)
                }
            }
            (Some(before), None) => {
                if self.is(before, found)? {
                    Ok(Step::Take { mode: 0 })
                } else {
                    Err(ConflictReason::Changed)
                }
            }
            (Some(before), Some(after)) => match (before.kind(), after.kind()) {
                (File, File) if found.file_type.is_file() => self.file(before, after, found)?,
                (Directory, Directory) if found.file_type.is_dir() => {
                    merged_mode(before, after, found).map(|mode| {
                        if mode == found.mode() {
                            Step::Nothing
                        } else {
                            Step::SetMode { mode }
                        }
                    })
                }
                _ if self.is(after, found)? => Ok(Step::Nothing),
                (Directory, _) if found.file_type.is_dir() => {
                    let path = before.path_bytes();
                    let manifest = &self.baseline.manifest;
                    if holds_nothing_else(&found.parent, found.name, path, manifest)? {
                        Ok(take(after))
                    } else {
                        Err(ConflictReason::NotStaged)
                    }
                }
                _ if self.is(before, found)? => Ok(take(after)),
                _ => Err(ConflictReason::Changed),
            },
        })
    }

    /// A file that was one at the start, is one in the stage and is one in the source.
    fn file(
        &mut self,
        before: &Entry,
        after: &Entry,
        found: &Found<'_>,
    ) -> Result<Decision, Error> {
        let mode = match merged_mode(before, after, found) {
            Ok(mode) => mode,
            Err(reason) => return Ok(Err(reason)),
        };
        let content_stays = before.sha256() == after.sha256() || self.has_content(after, found)?;
        if content_stays {
            return Ok(Ok(if mode == found.mode() {
                Step::Nothing
            } else {
                Step::SetMode { mode }
            }));
        }
        if self.has_content(before, found)? {
            return Ok(Ok(Step::Take { mode }));
        }
        let size = u64::try_from(found.stat.st_size).unwrap_or(u64::MAX);
        if [size, before.size(), after.size()]
            .iter()
            .any(|&size| size > merge::MAX_BYTES)
        {
            return Ok(Err(ConflictReason::Content));
        }
        let original = content::original(self.baseline, before)?;
        let theirs = content::current(self.stage, after)?;
        let (Some(original), Some(theirs)) = (original, theirs) else {
            return Ok(Err(ConflictReason::Content));
        };
        let opened = found.parent.open_file(found.name);
        let (file, stat) = opened.map_err(|error| unreadable(before.path_bytes(), error))?;
        let ours = read_limited(file, &stat, before.path(), merge::MAX_BYTES)?;
        Ok(match merge(&original, &ours, &theirs) {
            Merged::Clean(bytes) => Ok(Step::Write { bytes, mode }),
            Merged::Conflicts(lines) => Err(ConflictReason::Lines { lines }),
            Merged::NotText => Err(ConflictReason::Content),
        })
    }

    /// Whether the source has exactly what an entry says. Directories are alike whatever their
    /// permissions.
    fn is(&mut self, entry: &Entry, found: &Found<'_>) -> Result<bool, Error> {
        Ok(match entry.kind() {
            FileKind::Directory => found.file_type.is_dir(),
            FileKind::Symlink => {
                let target = found
                    .file_type
                    .is_symlink()
                    .then(|| found.parent.read_link(found.name));
                match target.transpose() {
                    Ok(target) => target.as_deref() == Some(entry.target_bytes()),
                    Err(error) => return Err(unreadable(entry.path_bytes(), error)),
                }
            }
            FileKind::File => {
                found.file_type.is_file()
                    && found.mode() == entry.mode() & 0o777
                    && self.has_content(entry, found)?
            }
            FileKind::Special(_) => false,
        })
    }

    fn has_content(&mut self, entry: &Entry, found: &Found<'_>) -> Result<bool, Error> {
        let path = entry.path_bytes();
        let (file, stat) = match found.parent.open_file(found.name) {
            Ok(opened) => opened,
            Err(Errno::NOTSUP | Errno::LOOP | Errno::NOENT) => return Ok(false),
            Err(error) => return Err(unreadable(path, error)),
        };
        if u64::try_from(stat.st_size).ok() != Some(entry.size()) {
            return Ok(false);
        }
        let found = read(&file, &stat, None, path, &mut self.buffer)?;
        Ok(found == (entry.size(), *entry.sha256()))
    }

    /// Whether a directory above `path` takes the place of something else.
    fn becomes_directory(&self, path: &[u8]) -> bool {
        let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
        slashes.filter_map(|(at, _)| path.get(..at)).any(|above| {
            let touched = self.touched;
            let found = touched.binary_search_by(|difference| difference.path().cmp(above));
            found
                .ok()
                .and_then(|index| touched.get(index))
                .is_some_and(|difference| {
                    let kind = |entry: Option<&Entry>| entry.map(Entry::kind);
                    difference.before.is_some()
                        && kind(difference.before) != Some(FileKind::Directory)
                        && kind(difference.after) == Some(FileKind::Directory)
                })
        })
    }
}

/// The permission bits after both changes to them.
fn merged_mode(before: &Entry, after: &Entry, found: &Found<'_>) -> Result<u32, ConflictReason> {
    let (original, ours, theirs) = (before.mode() & 0o777, found.mode(), after.mode() & 0o777);
    if ours == original || ours == theirs {
        Ok(theirs)
    } else if theirs == original {
        Ok(ours)
    } else {
        Err(ConflictReason::Mode)
    }
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

fn unreadable(path: &[u8], error: Errno) -> Error {
    failed("compare", path, error.into())
}
