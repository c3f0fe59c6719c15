//! One pass over a tree by handles: what it holds is recorded, and on the way copied and packed
//! where asked. Staging, scanning in place and verification are the same walk with other outputs.

use std::fs::File;
use std::path::PathBuf;

use abp_core::LeftOut;
use rustix::fs::{FileType, Mode, Stat, Timespec, Timestamps};
use rustix::io::Errno;

use crate::Error;
use crate::dir::{Dir, FileId, Named, path_of};
use crate::ingest::{BUFFER_BYTES, Ingested, Outputs, Stopped, ingest};
use crate::limits::{Budget, Exceeded};
use crate::manifest::{Entry, SpecialKind};
use crate::notes::Notes;
use crate::pack::{PackWriter, Place};
use crate::quote::display_path;
use crate::resolve::{Landing, land};
use crate::selection::{Fate, Selection, push_component};

pub(crate) const REPOSITORY: &[u8] = b".git";
pub(crate) const STATE: &[u8] = b".agent-backplane";

/// Smaller files are copied as fast as they are cloned.
const MIN_CLONED_BYTES: i64 = 64 * 1024;

/// As many as a receipt lists.
const MAX_LISTED: usize = 1_000;

/// What was left out: the first of it by name, all of it by number.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct LeftOutList {
    pub(crate) first: Vec<LeftOut>,
    pub(crate) count: u64,
}

impl LeftOutList {
    pub(crate) fn add(&mut self, path: &[u8], reason: impl Into<String>) {
        self.count += 1;
        if self.first.len() < MAX_LISTED {
            self.first.push(LeftOut {
                path: display_path(path_of(path)),
                reason: reason.into(),
            });
        }
    }
}

/// Whose the directory `.agent-backplane` at the root is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateDir {
    /// The backplane's: not part of the workspace.
    Ours,
    /// Not the backplane's: a stage has none, so the agent made it.
    Foreign,
}

/// A walk and what it found.
pub(crate) struct Walker<'a> {
    root: &'a Dir,
    budget: Budget,
    state_dir: StateDir,
    /// Whether the repository at the root is the one the stage started with.
    skip_repository: bool,
    pub(crate) selection: Option<Selection>,
    pack: Option<&'a mut PackWriter>,
    /// A directory that is passed over: the one the stages are in.
    skip: Option<FileId>,
    buffer: Vec<u8>,
    /// Entries, each with the place of its bytes in the pack.
    pub(crate) found: Vec<(Entry, Option<Place>)>,
    pub(crate) left_out: LeftOutList,
    notes: Notes,
    /// Whether the file system may share the content of two files.
    clones: bool,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(root: &'a Dir, budget: Budget, state_dir: StateDir) -> Self {
        Self {
            root,
            budget,
            state_dir,
            skip_repository: false,
            selection: None,
            pack: None,
            skip: None,
            buffer: vec![0; BUFFER_BYTES],
            found: Vec::new(),
            left_out: LeftOutList::default(),
            notes: Notes::default(),
            clones: true,
        }
    }

    /// Takes only what belongs to the workspace.
    pub(crate) fn select(mut self, selection: Selection) -> Self {
        self.selection = Some(selection);
        self
    }

    /// Keeps the bytes of every file.
    pub(crate) fn pack(mut self, pack: &'a mut PackWriter) -> Self {
        self.pack = Some(pack);
        self
    }

    /// Passes over the repository at the root.
    pub(crate) fn skip_repository(mut self, skip: bool) -> Self {
        self.skip_repository = skip;
        self
    }

    /// Passes over one directory.
    pub(crate) fn skip(mut self, directory: FileId) -> Self {
        self.skip = Some(directory);
        self
    }

    /// Walks the whole tree, into a copy where one is given.
    pub(crate) fn run(&mut self, copy: Option<&Dir>) -> Result<(), Error> {
        let root = self.root;
        self.directory(root, copy, &mut Vec::new(), 0)?;
        for (path, reason) in std::mem::take(&mut self.notes).into_list() {
            self.left_out.add(&path, reason);
        }
        Ok(())
    }

    fn directory(
        &mut self,
        dir: &Dir,
        copy: Option<&Dir>,
        path: &mut Vec<u8>,
        depth: u32,
    ) -> Result<(), Error> {
        if let Some(selection) = &mut self.selection {
            selection.enter(dir, path)?;
        }
        let entries = dir.entries().map_err(|error| failed("list", path, error))?;
        let length = path.len();
        for entry in &entries {
            push_component(path, &entry.name);
            self.visit(dir, copy, entry, path, depth)?;
            path.truncate(length);
        }
        Ok(())
    }

    fn visit(
        &mut self,
        dir: &Dir,
        copy: Option<&Dir>,
        entry: &Named,
        path: &mut Vec<u8>,
        depth: u32,
    ) -> Result<(), Error> {
        if entry.name == REPOSITORY {
            if copy.is_some() {
                self.left_out
                    .add(path, "repository metadata is never staged");
            } else if depth > 0 || !self.skip_repository {
                self.special(path, SpecialKind::Repository);
            }
            return Ok(());
        }
        if depth == 0 && entry.name == STATE {
            if self.state_dir == StateDir::Foreign {
                self.special(path, SpecialKind::State);
            }
            return Ok(());
        }
        let is_dir = entry.file_type.is_dir();
        let fate = match &self.selection {
            Some(selection) if is_dir => selection.of_directory(path),
            Some(selection) => selection.of_file(path),
            None => Fate::Take,
        };
        if let Fate::Leave { reason } = fate {
            self.left_out.add(path, reason);
            return Ok(());
        }
        self.budget
            .take_file()
            .map_err(|exceeded| too_large(exceeded, path))?;
        match entry.file_type {
            FileType::Directory => self.subdirectory(dir, copy, entry, path, depth + 1),
            FileType::RegularFile => self.file(dir, copy, entry, path),
            FileType::Symlink => self.link(dir, copy, entry, path),
            _ => {
                if copy.is_some() {
                    self.left_out.add(path, "is a FIFO, socket or device");
                } else {
                    self.special(path, SpecialKind::Device);
                }
                Ok(())
            }
        }
    }

    fn subdirectory(
        &mut self,
        dir: &Dir,
        copy: Option<&Dir>,
        entry: &Named,
        path: &mut Vec<u8>,
        depth: u32,
    ) -> Result<(), Error> {
        let max_depth = self.budget.max_depth();
        if depth > max_depth {
            if self.is_baseline() {
                let exceeded = Exceeded {
                    limit: "the depth",
                    max: max_depth.into(),
                };
                return Err(too_large(exceeded, path));
            }
            self.special(path, SpecialKind::TooDeep);
            return Ok(());
        }
        let child = match dir.open_dir(&entry.name) {
            Ok(child) => child,
            Err(error) => return self.unreadable(copy, path, error),
        };
        let stat = child
            .stat_self()
            .map_err(|error| failed("read", path, error))?;
        if self.skip == Some(FileId::of(&stat)) {
            self.left_out.add(path, "holds the stages");
            return Ok(());
        }
        let child_copy = match copy {
            Some(copy) => {
                // Widened to what the source has when its content is complete.
                let made = copy.create_dir(&entry.name, 0o700);
                Some(made.map_err(|error| failed("copy", path, error))?)
            }
            None => None,
        };
        let mode = if copy.is_some() {
            stat.st_mode & 0o777
        } else {
            stat.st_mode
        };
        let before = self.found.len();
        self.found.push((Entry::directory(path, mode), None));
        self.directory(&child, child_copy.as_ref(), path, depth)?;
        let only_on_the_way = self.found.len() == before + 1
            && self.selection.as_ref().is_some_and(Selection::has_includes);
        if only_on_the_way {
            self.found.truncate(before);
        }
        if let (Some(copy), Some(child_copy)) = (copy, child_copy) {
            let finished = if only_on_the_way {
                copy.remove_dir(&entry.name)
            } else {
                child_copy.set_mode(mode)
            };
            finished.map_err(|error| failed("copy", path, error))?;
        }
        Ok(())
    }

    fn file(
        &mut self,
        dir: &Dir,
        copy: Option<&Dir>,
        entry: &Named,
        path: &[u8],
    ) -> Result<(), Error> {
        let (file, stat) = match dir.open_file_seen_as_regular(&entry.name) {
            Ok(opened) => opened,
            Err(error) => return self.unreadable(copy, path, error),
        };
        let target = match copy {
            Some(copy) => {
                let made = copy.create_file(&entry.name, 0o600);
                Some(made.map_err(|error| failed("copy", path, error))?)
            }
            None => None,
        };
        let cloned = target
            .as_ref()
            .filter(|target| self.clones_into(&file, &stat, target));
        let outputs = Outputs {
            copy: target.as_ref().filter(|_| cloned.is_none()),
            pack: self.pack.as_deref_mut(),
        };
        // A clone is read instead of the file, which may be changing.
        let content = cloned.unwrap_or(&file);
        let read = ingest(content, &stat, outputs, &mut self.budget, &mut self.buffer);
        let Ingested {
            size,
            sha256,
            packed_at,
        } = match read {
            Ok(ingested) => ingested,
            Err(Stopped::Exceeded(_)) if !self.is_baseline() => {
                let size = u64::try_from(stat.st_size).unwrap_or_default();
                self.found.push((Entry::too_large(path, size), None));
                return Ok(());
            }
            Err(Stopped::Exceeded(exceeded)) => return Err(too_large(exceeded, path)),
            Err(Stopped::Io(source)) => {
                return Err(Error::Scan {
                    action: if copy.is_some() { "copy" } else { "read" },
                    path: path_of(path).to_owned(),
                    source,
                });
            }
        };
        let mut mode = stat.st_mode;
        if let Some(target) = &target {
            self.notes.look_at(&file, &stat, path);
            if mode & 0o7000 != 0 {
                self.left_out.add(
                    path,
                    "its set-id and sticky bits; the file itself is staged",
                );
            }
            mode &= 0o777;
            rustix::fs::fchmod(target, Mode::from_raw_mode(mode))
                .and_then(|()| rustix::fs::futimens(target, &times(&stat)))
                .map_err(|error| failed("copy", path, error))?;
        }
        self.found
            .push((Entry::file(path, mode, size, sha256), packed_at));
        Ok(())
    }

    /// Lets the copy share the file's content, where the file system can and it is worth it. One
    /// refusal is enough.
    fn clones_into(&mut self, file: &File, stat: &Stat, target: &File) -> bool {
        let large = stat.st_size >= MIN_CLONED_BYTES;
        if self.clones && large {
            self.clones = rustix::fs::ioctl_ficlone(target, file).is_ok();
        }
        self.clones && large
    }

    fn link(
        &mut self,
        dir: &Dir,
        copy: Option<&Dir>,
        entry: &Named,
        path: &[u8],
    ) -> Result<(), Error> {
        let target = match dir.read_link(&entry.name) {
            Ok(target) => target,
            Err(error) => return self.unreadable(copy, path, error),
        };
        if let Some(copy) = copy {
            let parent = path
                .get(..path.len() - entry.name.len())
                .unwrap_or_default();
            let landing = land(self.root, None, parent, &target)
                .map_err(|error| failed("follow", path, error))?;
            let reason = match landing {
                Landing::Inside(_) => None,
                Landing::Outside => Some("is a link that leads out of the workspace"),
                Landing::Nowhere(_) => Some("is a link that leads nowhere"),
            };
            if let Some(reason) = reason {
                self.left_out.add(path, reason);
                return Ok(());
            }
            copy.create_link(&target, &entry.name)
                .map_err(|error| failed("copy", path, error))?;
        }
        self.found.push((Entry::symlink(path, target), None));
        Ok(())
    }

    /// What cannot be opened is recorded, not an error: one file without permission must not stand
    /// in the way of a run, nor hide a change.
    fn unreadable(&mut self, copy: Option<&Dir>, path: &[u8], error: Errno) -> Result<(), Error> {
        let reason = match error {
            Errno::NOENT => return Ok(()),
            Errno::ACCESS | Errno::PERM => "cannot be read",
            Errno::LOOP | Errno::NOTDIR | Errno::NOTSUP | Errno::INVAL | Errno::XDEV => {
                "changed while it was read"
            }
            error => return Err(failed("open", path, error)),
        };
        if copy.is_some() {
            self.left_out.add(path, reason);
        } else {
            self.special(path, SpecialKind::Unreadable);
        }
        Ok(())
    }

    /// The baseline must be whole. Afterwards, one thing too large or too deep must not keep the
    /// other changes from being seen: it is recorded as such.
    fn is_baseline(&self) -> bool {
        self.pack.is_some()
    }

    fn special(&mut self, path: &[u8], kind: SpecialKind) {
        self.found.push((Entry::special(path, kind), None));
    }
}

fn times(stat: &Stat) -> Timestamps {
    Timestamps {
        last_access: timespec(stat.st_atime, stat.st_atime_nsec),
        last_modification: timespec(stat.st_mtime, stat.st_mtime_nsec),
    }
}

fn timespec(seconds: i64, nanoseconds: u64) -> Timespec {
    Timespec {
        tv_sec: seconds,
        tv_nsec: i64::try_from(nanoseconds).unwrap_or_default(),
    }
}

fn failed(action: &'static str, path: &[u8], error: Errno) -> Error {
    Error::Scan {
        action,
        path: path_of(path).to_owned(),
        source: error.into(),
    }
}

fn too_large(exceeded: Exceeded, path: &[u8]) -> Error {
    Error::TooLarge {
        limit: exceeded.limit,
        max: exceeded.max,
        path: PathBuf::from(path_of(path)),
    }
}
