//! Plans an application three-way: between the entry a run started with, the entry it made, and the
//! source as it is by now. Nothing is written here, and only changed paths are looked at.

mod decide;

use std::collections::BTreeMap;
use std::io;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;

use crate::Error;
use crate::change_set::{ChangeSet, ChangedPath};
use crate::conflict::Conflict;
use crate::dir::{Dir, path_of};
use crate::ingest::BUFFER_BYTES;
use crate::journal::JournalStep;
use crate::manifest::{Entry, FileKind};
use crate::prepared::split;
use crate::resolve::{Landing, Tree, land};
use decide::Planner;

/// A step of an application, where its content comes from, and the source's file that it was
/// planned for.
#[derive(Debug)]
pub(crate) struct PlannedStep {
    pub(crate) step: JournalStep,
    pub(crate) content: NewContent,
    stamp: Option<Stamp>,
}

/// The origin of a new file's bytes.
#[derive(Debug)]
pub(crate) enum NewContent {
    /// It has none that has to be copied: it is a link, a directory, a removal or a change of mode.
    None,
    /// The file of the stage that the change set describes so.
    Staged(Entry),
    /// Both changes to a text, merged.
    Merged(Vec<u8>),
}

/// The cheap part of a file's identity, by which a change after planning is seen. A directory is
/// taken for unchanged whatever names come and go in it.
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

/// Plans the chosen changes, sorted by path. A change that the source already has needs no step.
///
/// # Errors
/// [`Error::Conflict`] with everything that stands in the way, [`Error::UnsafeLinks`] for links that
/// lead out, [`Error::OtherDevice`] for paths that cannot be renamed to.
pub(crate) fn plan<I: Fn(&[u8; 32]) -> Option<Vec<u8>>>(
    stage: &Dir,
    mask: Option<&Dir>,
    source: &Dir,
    set: &ChangeSet,
    chosen: &[&ChangedPath],
    images: I,
) -> Result<Vec<PlannedStep>, Error> {
    check_links(stage, mask, source, chosen)?;
    let device = source
        .stat_self()
        .map_err(|error| unreadable(b".", error))?;
    let mut planner = Planner {
        stage,
        source,
        set,
        images,
        device: device.st_dev,
        buffer: vec![0; BUFFER_BYTES],
    };
    let (mut steps, mut conflicts) = (BTreeMap::new(), Vec::new());
    for change in chosen {
        match planner.decide(change)? {
            Ok(Some(planned)) => drop(steps.insert(planned.step.path.clone(), planned)),
            Ok(None) => {}
            Err(reason) => conflicts.push(Conflict {
                path: change.path().to_owned(),
                reason,
            }),
        }
    }
    if !conflicts.is_empty() {
        return Err(Error::Conflict { conflicts });
    }
    planner.add_directories(&mut steps)?;
    Ok(steps.into_values().collect())
}

/// Makes sure that the source still is the one that was planned for.
pub(crate) fn check_unchanged(source: &Dir, planned: &[PlannedStep]) -> Result<(), Error> {
    let mut changed = Vec::new();
    for planned in planned {
        let path = planned.step.path.as_slice();
        let now = match source.open_parent(path) {
            Ok((parent, name)) => parent
                .stat_if_exists(name)
                .map_err(|error| unreadable(path, error))?,
            Err(_) => None,
        };
        if now.as_ref().map(Stamp::of) != planned.stamp {
            changed.push(path_of(path).to_owned());
        }
    }
    if changed.is_empty() {
        Ok(())
    } else {
        Err(Error::SourceChanged { paths: changed })
    }
}

/// Refuses links of the run that lead out of the workspace, in the stage or in the source.
fn check_links(
    stage: &Dir,
    mask: Option<&Dir>,
    source: &Dir,
    chosen: &[&ChangedPath],
) -> Result<(), Error> {
    let in_source = Tree::Plain(source);
    let in_stage = match mask {
        None => Tree::Plain(stage),
        Some(mask) => Tree::Layers([stage, mask, source]),
    };
    let mut paths = Vec::new();
    for entry in chosen.iter().filter_map(|change| change.after.as_ref()) {
        if entry.kind() != FileKind::Symlink {
            continue;
        }
        let (directory, _) = split(entry.path_bytes());
        let landing = |root: &Tree<'_>| land(root, None, directory, entry.target_bytes());
        // In the source, a link that was never staged may be on the way.
        let leaves_source = matches!(landing(&in_source), Ok(Landing::Outside));
        if leaves_source || !matches!(landing(&in_stage), Ok(Landing::Inside(_))) {
            paths.push(entry.path().to_owned());
        }
    }
    if paths.is_empty() {
        Ok(())
    } else {
        Err(Error::UnsafeLinks { paths })
    }
}

fn unreadable(path: &[u8], error: Errno) -> Error {
    match error {
        Errno::XDEV => Error::OtherDevice {
            path: path_of(path).to_owned(),
        },
        error => failed("compare", path, error.into()),
    }
}

pub(crate) fn failed(action: &'static str, path: &[u8], source: io::Error) -> Error {
    Error::Access {
        action,
        path: path_of(path).to_owned(),
        source,
    }
}
