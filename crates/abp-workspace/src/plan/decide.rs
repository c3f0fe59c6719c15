//! Decides about one change against the source as it is by now.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use sha2::{Digest, Sha256};

use super::{NewContent, PlannedStep, Stamp, failed, unreadable};
use crate::Error;
use crate::change_set::{ChangeSet, ChangedPath, ancestors, image_of, stage_content};
use crate::choice::becomes_directory;
use crate::conflict::ConflictReason;
use crate::dir::Dir;
use crate::ingest::read_through;
use crate::journal::{JournalStep, Owner};
use crate::manifest::{Entry, FileKind};
use crate::merge::{self, Merged, merge};
use crate::prepared::read_limited;
use crate::selection::push_component;
use crate::walk::REPOSITORY;

/// Decides about one change after the other.
pub(super) struct Planner<'a, I> {
    pub(super) stage: &'a Dir,
    pub(super) source: &'a Dir,
    pub(super) set: &'a ChangeSet,
    pub(super) images: I,
    pub(super) device: u64,
    pub(super) buffer: Vec<u8>,
}

/// A step, none where the source needs none, or the reason why there cannot be one.
pub(super) type Decision = Result<Option<PlannedStep>, ConflictReason>;

/// A file, link or directory in the source.
struct SourceEntry<'a> {
    parent: Dir,
    name: &'a [u8],
    stat: Stat,
    file_type: FileType,
}

impl SourceEntry<'_> {
    fn mode(&self) -> u32 {
        self.stat.st_mode & 0o777
    }

    /// Its image, where its content is that of `entry`.
    fn image(&self, entry: &Entry) -> Entry {
        let mode = self.stat.st_mode & 0o7777;
        match entry.kind() {
            FileKind::Symlink => entry.clone(),
            _ => entry.clone().with_mode(mode),
        }
    }

    /// The step from this to `after`.
    fn step(&self, before: Entry, after: Option<Entry>, content: NewContent) -> PlannedStep {
        let owner = before.is_directory().then_some(Owner {
            user: self.stat.st_uid,
            group: self.stat.st_gid,
        });
        PlannedStep {
            step: JournalStep {
                path: before.path_bytes().to_vec(),
                before: Some(before),
                after,
                owner,
            },
            content,
            stamp: Some(Stamp::of(&self.stat)),
        }
    }
}

impl<I: Fn(&[u8; 32]) -> Option<Vec<u8>>> Planner<'_, I> {
    pub(super) fn decide(&mut self, change: &ChangedPath) -> Result<Decision, Error> {
        let path = change.path_bytes();
        let mut components = path.split(|&byte| byte == b'/');
        if change.after.is_some()
            && components.any(|component| component.eq_ignore_ascii_case(REPOSITORY))
        {
            return Ok(Err(ConflictReason::Repository));
        }
        let (parent, name) = match self.source.open_parent(path) {
            Ok(opened) => opened,
            Err(Errno::NOENT) => return Ok(without_source(change)),
            // A file or a link is on the way, which is right only where the run puts a directory in
            // its place.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                let expected = ancestors(path).any(|above| becomes_directory(self.set, above));
                return Ok(if change.after.is_none() || expected {
                    without_source(change)
                } else {
                    Err(ConflictReason::Parent)
                });
            }
            Err(error) => return Err(unreadable(path, error)),
        };
        self.check_device(
            path,
            &parent
                .stat_self()
                .map_err(|error| unreadable(path, error))?,
        )?;
        let stat = parent.stat_if_exists(name);
        let Some(stat) = stat.map_err(|error| unreadable(path, error))? else {
            return Ok(without_source(change));
        };
        self.check_device(path, &stat)?;
        let found = SourceEntry {
            parent,
            name,
            stat,
            file_type: FileType::from_raw_mode(stat.st_mode),
        };
        self.decide_against(change, &found)
    }

    /// A name can only be changed on the file system that has the holding directory.
    fn check_device(&self, path: &[u8], stat: &Stat) -> Result<(), Error> {
        if stat.st_dev == self.device {
            return Ok(());
        }
        Err(unreadable(path, Errno::XDEV))
    }

    /// Decides where the source has something.
    fn decide_against(
        &mut self,
        change: &ChangedPath,
        found: &SourceEntry<'_>,
    ) -> Result<Decision, Error> {
        use FileKind::{Directory, File};
        Ok(match (&change.before, &change.after) {
            (None, None) => Ok(None),
            (None, Some(after)) => {
                if self.is(after, found)? {
                    Ok(None)
                } else {
                    Err(ConflictReason::Appeared)
                }
            }
            (Some(before), None) => {
                if self.is(before, found)? {
                    let image = found.image(before);
                    Ok(Some(found.step(image, None, NewContent::None)))
                } else {
                    Err(ConflictReason::Changed)
                }
            }
            (Some(before), Some(after)) => match (before.kind(), after.kind()) {
                (File, File) if found.file_type.is_file() => {
                    self.decide_file(before, after, found)?
                }
                (Directory, Directory) if found.file_type.is_dir() => {
                    decide_directory(before, after, found)
                }
                _ if self.is(after, found)? => Ok(None),
                (Directory, _) if found.file_type.is_dir() => {
                    if self.holds_nothing_else(&found.parent, found.name, before.path_bytes())? {
                        Ok(Some(replacing(before, after, found)))
                    } else {
                        Err(ConflictReason::NotStaged)
                    }
                }
                _ if self.is(before, found)? => Ok(Some(replacing(before, after, found))),
                _ => Err(ConflictReason::Changed),
            },
        })
    }

    /// Decides about a file that was one at the start, is one in the stage and is one in the source.
    fn decide_file(
        &mut self,
        before: &Entry,
        after: &Entry,
        found: &SourceEntry<'_>,
    ) -> Result<Decision, Error> {
        let mode = match merged_mode(before, after, found) {
            Ok(mode) => mode,
            Err(reason) => return Ok(Err(reason)),
        };
        let content_stays = before.has_content_of(after) || self.has_content(after, found)?;
        if content_stays {
            if mode == found.mode() {
                return Ok(Ok(None));
            }
            let path = before.path_bytes();
            let (file, stat) = open_found(found, path)?;
            let (size, sha256) = read_through(&file, &stat, None, &mut self.buffer)
                .map_err(|error| failed("compare", path, error))?;
            let image = Entry::file(path, found.stat.st_mode, size, sha256);
            let changed = image.clone().with_mode(mode);
            return Ok(Ok(Some(found.step(image, Some(changed), NewContent::None))));
        }
        let changed = after.clone().with_mode(mode);
        if self.has_content(before, found)? {
            let content = NewContent::Staged(after.clone());
            let image = found.image(before);
            return Ok(Ok(Some(found.step(image, Some(changed), content))));
        }
        self.merge_file(before, &changed, found)
    }

    /// Merges by lines a file that the source and the run both changed.
    fn merge_file(
        &self,
        before: &Entry,
        after: &Entry,
        found: &SourceEntry<'_>,
    ) -> Result<Decision, Error> {
        let size = u64::try_from(found.stat.st_size).unwrap_or(u64::MAX);
        let sizes = [size, before.size(), after.size()];
        if sizes.iter().any(|&size| size > merge::MAX_BYTES) {
            return Ok(Err(ConflictReason::Content));
        }
        let original = image_of(before, &self.images)?;
        let theirs = stage_content(self.stage, after)?;
        let (Some(original), Some(theirs)) = (original, theirs) else {
            return Ok(Err(ConflictReason::Content));
        };
        let path = before.path_bytes();
        let (file, stat) = open_found(found, path)?;
        let ours = read_limited(file, &stat, before.path(), merge::MAX_BYTES)?;
        Ok(match merge(&original, &ours, &theirs) {
            Merged::Clean(bytes) => {
                let entry = |bytes: &[u8], mode| {
                    Entry::file(path, mode, bytes.len() as u64, Sha256::digest(bytes).into())
                };
                let image = entry(&ours, found.stat.st_mode);
                let merged = entry(&bytes, after.mode());
                Ok(Some(found.step(
                    image,
                    Some(merged),
                    NewContent::Merged(bytes),
                )))
            }
            Merged::Conflicts(lines) => Err(ConflictReason::Lines { lines }),
            Merged::NotText => Err(ConflictReason::Content),
        })
    }

    /// Whether the source has exactly the file of an entry. Directories are alike whatever their
    /// permissions.
    fn is(&mut self, entry: &Entry, found: &SourceEntry<'_>) -> Result<bool, Error> {
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

    fn has_content(&mut self, entry: &Entry, found: &SourceEntry<'_>) -> Result<bool, Error> {
        let path = entry.path_bytes();
        let (file, stat) = match found.parent.open_file(found.name) {
            Ok(opened) => opened,
            Err(Errno::NOTSUP | Errno::LOOP | Errno::NOENT) => return Ok(false),
            Err(error) => return Err(unreadable(path, error)),
        };
        if u64::try_from(stat.st_size).ok() != Some(entry.size()) {
            return Ok(false);
        }
        let found = read_through(&file, &stat, None, &mut self.buffer)
            .map_err(|error| failed("compare", path, error))?;
        Ok(found == (entry.size(), *entry.sha256()))
    }

    /// Whether a directory holds only files that were staged from it, so that it can be removed.
    fn holds_nothing_else(&self, parent: &Dir, name: &[u8], path: &[u8]) -> Result<bool, Error> {
        let unreadable = |error| unreadable(path, error);
        let dir = parent.open_dir(name).map_err(unreadable)?;
        for entry in dir.entries().map_err(unreadable)? {
            let mut beneath = path.to_vec();
            push_component(&mut beneath, &entry.name);
            let known = self.set.find(&beneath);
            let is_staged = known.is_some_and(|change| change.before.is_some());
            if !is_staged
                || (entry.file_type.is_dir()
                    && !self.holds_nothing_else(&dir, &entry.name, &beneath)?)
            {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Adds a step for every directory that has to be there before something can be put into it.
    pub(super) fn add_directories(
        &self,
        steps: &mut BTreeMap<Vec<u8>, PlannedStep>,
    ) -> Result<(), Error> {
        let mut present = BTreeSet::new();
        let paths: Vec<Vec<u8>> = steps
            .values()
            .filter(|planned| planned.step.after.is_some())
            .map(|planned| planned.step.path.clone())
            .collect();
        for above in paths.iter().flat_map(|path| ancestors(path)) {
            if steps.contains_key(above) || !present.insert(above.to_vec()) {
                continue;
            }
            let stat = match self.source.open_dir(above) {
                Ok(dir) => dir.stat_self().map_err(|error| unreadable(above, error))?,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {
                    let made = Entry::directory(above, self.set.directory_mode(above));
                    steps.insert(above.to_vec(), creating(made, NewContent::None));
                    continue;
                }
                Err(error) => return Err(unreadable(above, error)),
            };
            self.check_device(above, &stat)?;
        }
        Ok(())
    }
}

/// Decides where the source has nothing at the path.
fn without_source(change: &ChangedPath) -> Decision {
    match (&change.before, &change.after) {
        (None, Some(after)) => {
            let content = match after.kind() {
                FileKind::File => NewContent::Staged(after.clone()),
                _ => NewContent::None,
            };
            Ok(Some(creating(without_set_id(after), content)))
        }
        (_, None) => Ok(None),
        (Some(_), Some(_)) => Err(ConflictReason::Missing),
    }
}

fn decide_directory(before: &Entry, after: &Entry, found: &SourceEntry<'_>) -> Decision {
    let mode = merged_mode(before, after, found)?;
    if mode == found.mode() {
        return Ok(None);
    }
    // The set-id bits of a directory are no permission: they hand its group on.
    let changed = after
        .clone()
        .with_mode(mode | (found.stat.st_mode & 0o7000));
    let image = found.image(before);
    Ok(Some(found.step(image, Some(changed), NewContent::None)))
}

/// The step to an entry of another kind or, for a link, with another target.
fn replacing(before: &Entry, after: &Entry, found: &SourceEntry<'_>) -> PlannedStep {
    let content = match after.kind() {
        FileKind::File => NewContent::Staged(after.clone()),
        _ => NewContent::None,
    };
    let image = found.image(before);
    found.step(image, Some(without_set_id(after)), content)
}

fn creating(after: Entry, content: NewContent) -> PlannedStep {
    PlannedStep {
        step: JournalStep {
            path: after.path_bytes().to_vec(),
            before: None,
            after: Some(after),
            owner: None,
        },
        content,
        stamp: None,
    }
}

fn without_set_id(after: &Entry) -> Entry {
    let mode = after.mode() & 0o777;
    after.clone().with_mode(mode)
}

/// The permission bits after both changes to them.
fn merged_mode(
    before: &Entry,
    after: &Entry,
    found: &SourceEntry<'_>,
) -> Result<u32, ConflictReason> {
    let (original, ours, theirs) = (before.mode() & 0o777, found.mode(), after.mode() & 0o777);
    if ours == original || ours == theirs {
        Ok(theirs)
    } else if theirs == original {
        Ok(ours)
    } else {
        Err(ConflictReason::Mode)
    }
}

fn open_found(found: &SourceEntry<'_>, path: &[u8]) -> Result<(File, Stat), Error> {
    let opened = found.parent.open_file(found.name);
    opened.map_err(|error| unreadable(path, error))
}
