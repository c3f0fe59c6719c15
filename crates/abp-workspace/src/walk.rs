//! One pass over a tree by handles, which records its content, and copies and packs it on the way
//! where asked. Staging, scanning in place and verification are the same walk with other outputs.
//!
//! At the start one thread walks the directories and others read the files. The result does not
//! depend on which of them was faster; only the place of a file's bytes in the packs does.
//!
//! A name that cannot be used is left out and named. Only a full disk, an exceeded budget or an
//! exhausted process ends the walk.

use std::collections::BTreeSet;
use std::panic::resume_unwind;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;

use abp_glob::GlobList;
use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Error;
use crate::crew::{
    Batch, FileReader, Findings, Purpose, ReaderResult, Shared, failed, is_exhausted,
    is_refused_name, refused_name, too_large,
};
use crate::dir::{Dir, FileId, Named, path_of};
use crate::layers::{self, FileStamp, Opacity};
use crate::limits::{Budget, Exceeded};
use crate::manifest::{Entry, SpecialKind};
use crate::pack::PackWriter;
use crate::prepared::split;
use crate::resolve::{Landing, Tree, land};
use crate::selection::{Fate, Selection, push_component};
use crate::walked::Walked;

pub(crate) const REPOSITORY: &[u8] = b".git";
pub(crate) const STATE: &[u8] = b".agent-backplane";

/// The most files that one thread takes at a time.
const BATCH_FILES: usize = 64;
/// Batches that may wait, for each thread. Each holds two handles.
const QUEUED_BATCHES: usize = 2;

/// The owner of a directory `.agent-backplane` at the root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum StateDir {
    /// The backplane; it is no part of the workspace.
    Own,
    /// The agent: a stage starts without one.
    Foreign,
}

/// A walk to be made.
#[derive(Debug)]
pub(crate) struct Walker<'a> {
    root: &'a Dir,
    state_dir: StateDir,
    /// Whether the repository at the root is the one the stage started with.
    skip_repository: bool,
    selection: Option<Selection>,
    /// A directory that is passed over: the one the stages are in.
    skip: Option<FileId>,
    /// Paths that are not copied, whatever is selected.
    hidden: Option<GlobList>,
    /// Names of ignored directories that are lent.
    lend: BTreeSet<String>,
    /// Paths that are passed over with everything beneath them.
    outside: BTreeSet<Vec<u8>>,
    /// Whether the tree is the top layer of an overlay, with the kernel's marks in it.
    is_upper: bool,
}

impl<'a> Walker<'a> {
    pub(crate) fn new(root: &'a Dir, state_dir: StateDir) -> Self {
        Self {
            root,
            state_dir,
            skip_repository: false,
            selection: None,
            skip: None,
            hidden: None,
            lend: BTreeSet::new(),
            outside: BTreeSet::new(),
            is_upper: false,
        }
    }

    /// Lends ignored directories of these names.
    pub(crate) fn lend(mut self, names: BTreeSet<String>) -> Self {
        self.lend = names;
        self
    }

    /// Passes over paths that are no part of the change set.
    pub(crate) fn pass_over(mut self, paths: BTreeSet<Vec<u8>>) -> Self {
        self.outside = paths;
        self
    }

    /// Reads the marks of an overlay's top layer.
    pub(crate) fn of_upper_layer(mut self) -> Self {
        self.is_upper = true;
        self
    }

    /// Leaves out every path that matches.
    pub(crate) fn hide(mut self, hidden: GlobList) -> Self {
        self.hidden = Some(hidden);
        self
    }

    /// Takes only what belongs to the workspace.
    pub(crate) fn select(mut self, selection: Selection) -> Self {
        self.selection = Some(selection);
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

    /// Records the content of a workspace at the start, into a copy where one is given. As many
    /// threads read files as there are packs to keep their bytes in.
    pub(crate) fn record(
        self,
        budget: Budget,
        copy: Option<&Dir>,
        packs: Vec<PackWriter>,
    ) -> Result<Walked, Error> {
        let purpose = match copy {
            Some(_) => Purpose::Copy,
            None => Purpose::Baseline,
        };
        let shared = Shared::new(purpose, budget);
        let (sender, receiver) = sync_channel(QUEUED_BATCHES * packs.len());
        let receiver = Arc::new(Mutex::new(receiver));
        let (described, read) = thread::scope(|scope| {
            let start = |pack| {
                let reader = FileReader::new(&shared, Some(pack));
                let batches = Arc::clone(&receiver);
                scope.spawn(move || reader.work(&batches))
            };
            let readers: Vec<_> = packs.into_iter().map(start).collect();
            // Only the readers hold it now, so that sending fails instead of waiting when all of them
            // are gone.
            drop(receiver);
            // With the end of the descent the queue is closed, and the readers end.
            let (described, mut read) =
                Descent::new(self, &shared, FileReaders::Queue(sender)).run(copy);
            let join = |reader: thread::ScopedJoinHandle<'_, _>| {
                reader.join().unwrap_or_else(|panic| resume_unwind(panic))
            };
            read.extend(readers.into_iter().map(join));
            (described, read)
        });
        shared.into_result()?;
        Walked::new(described, read, copy)
    }

    /// Records the names of a source, with the stamps that tell later whether a file was changed. No
    /// content is read.
    pub(crate) fn survey(self, purpose: Purpose, budget: Budget) -> Result<Walked, Error> {
        let shared = Shared::new(purpose, budget);
        let reader = Box::new(FileReader::new(&shared, None));
        let (described, read) = Descent::new(self, &shared, FileReaders::Own(reader)).run(None);
        shared.into_result()?;
        Walked::new(described, read, None)
    }

    /// Records the content of a workspace now. One thread does it all: which files exceed a budget
    /// depends on their order.
    pub(crate) fn verify(self, budget: Budget) -> Result<Walked, Error> {
        let shared = Shared::new(Purpose::Verification, budget);
        let reader = Box::new(FileReader::new(&shared, None));
        let (described, read) = Descent::new(self, &shared, FileReaders::Own(reader)).run(None);
        shared.into_result()?;
        Walked::new(described, read, None)
    }
}

/// The thread that walks the directories.
struct Descent<'a> {
    walker: Walker<'a>,
    shared: &'a Shared,
    readers: FileReaders<'a>,
    /// The number of names that were met.
    place: u64,
    found: Findings,
    /// For each hidden pattern, the names it left out.
    hidden: Vec<u64>,
    /// The file system of the root, for an overlay.
    device: u64,
}

/// The rules of a walk, with what it met of them.
#[derive(Debug)]
pub(crate) struct WalkRules {
    pub(crate) selection: Option<Selection>,
    pub(crate) hidden: Vec<u64>,
}

/// The threads that read the files.
enum FileReaders<'a> {
    /// The thread that walks.
    Own(Box<FileReader<'a>>),
    /// Other threads, at the other end of a queue.
    Queue(SyncSender<Batch>),
}

/// A directory that is being walked.
struct Here {
    dir: Arc<Dir>,
    copy: Option<Arc<Dir>>,
    depth: u32,
    /// Files that were met and not handed on yet.
    files: Vec<(u64, Vec<u8>)>,
    /// Whether files of this directory of a top layer may be marks.
    has_marked_files: bool,
}

impl<'a> Descent<'a> {
    fn new(walker: Walker<'a>, shared: &'a Shared, readers: FileReaders<'a>) -> Self {
        let patterns = walker
            .hidden
            .as_ref()
            .map_or(0, |list| list.patterns().len());
        Self {
            walker,
            shared,
            readers,
            place: 0,
            found: Findings::default(),
            hidden: vec![0; patterns],
            device: 0,
        }
    }

    /// Walks the whole tree, and returns the rules and the findings of this thread.
    fn run(mut self, copy: Option<&Dir>) -> (WalkRules, Vec<ReaderResult>) {
        if let Err(error) = self.whole(copy) {
            self.shared.fail(error);
        }
        let own = match self.readers {
            FileReaders::Own(reader) => Some(reader.finish()),
            FileReaders::Queue(_) => None,
        };
        let read = own.into_iter().chain([(self.found, None)]).collect();
        let rules = WalkRules {
            selection: self.walker.selection,
            hidden: self.hidden,
        };
        (rules, read)
    }

    fn whole(&mut self, copy: Option<&Dir>) -> Result<(), Error> {
        let again = |dir: &Dir| {
            let opened = dir.open_dir(b".");
            opened.map_err(|error| failed("open", b".", error))
        };
        let here = Here::new(again(self.walker.root)?, copy.map(again).transpose()?, 0);
        if self.shared.purpose == Purpose::Survey {
            let stat = here.dir.stat_self();
            let stat = stat.map_err(|error| failed("read", b".", error))?;
            self.device = stat.st_dev;
            layers::check_directory(&here.dir, &stat, b".", stat.st_dev)?;
        }
        self.directory(here, &mut Vec::new())
    }

    fn directory(&mut self, mut here: Here, path: &mut Vec<u8>) -> Result<(), Error> {
        if let Some(selection) = &mut self.walker.selection {
            selection.enter(&here.dir, path)?;
        }
        let entries = match here.dir.entries() {
            Err(error) if here.depth > 0 && !is_exhausted(error) => {
                return self.unlisted(path, error);
            }
            listed => listed.map_err(|error| failed("list", path, error))?,
        };
        let length = path.len();
        for entry in entries {
            if self.shared.has_failed() {
                return Ok(());
            }
            push_component(path, &entry.name);
            self.place += 1;
            let visited = self.visit(&mut here, entry, path);
            path.truncate(length);
            visited?;
        }
        self.hand_on(&mut here, path);
        Ok(())
    }

    fn visit(&mut self, here: &mut Here, entry: Named, path: &mut Vec<u8>) -> Result<(), Error> {
        if self.walker.outside.contains(path) {
            return Ok(());
        }
        if self.walker.is_upper && here.is_whiteout(&entry) {
            self.found.layers.whiteouts.push(path.clone());
            return Ok(());
        }
        let is_staging = self.shared.purpose.is_staging();
        if entry.name == REPOSITORY {
            if is_staging {
                self.leave(path, "repository metadata is never staged");
            } else if here.depth > 0 || !self.walker.skip_repository {
                self.found.special(path, SpecialKind::Repository);
            }
            return Ok(());
        }
        if entry.name == STATE {
            let is_own = here.depth == 0 && self.walker.state_dir == StateDir::Own;
            if is_staging {
                self.leave(path, "state of the backplane is never staged");
            } else if !is_own {
                self.found.special(path, SpecialKind::State);
            }
            return Ok(());
        }
        if let Some(hidden) = &self.walker.hidden
            && let Some(found) = hidden.first_match(path_of(path))
        {
            if let Some(count) = self.hidden.get_mut(found.index) {
                *count += 1;
            }
            let reason = format!("hidden by the deny_read pattern {:?}", found.pattern);
            self.leave(path, reason);
            self.found.layers.hidden.push(path.clone());
            return Ok(());
        }
        let fate = match &self.walker.selection {
            Some(selection) if entry.file_type.is_dir() => selection.of_directory(path),
            Some(selection) => selection.of_file(path),
            None => Fate::Take,
        };
        match fate {
            Fate::Take => {}
            Fate::Ignore { reason } if entry.file_type.is_dir() && self.lends(&entry.name) => {
                return self.lend_directory(here, &entry.name, path, &reason);
            }
            Fate::Leave { reason } | Fate::Ignore { reason } => {
                self.leave(path, reason);
                return Ok(());
            }
        }
        let taken = self.shared.budget.take_name();
        taken.map_err(|exceeded| too_large(exceeded, path))?;
        match entry.file_type {
            FileType::Directory => self.subdirectory(here, &entry.name, path),
            FileType::RegularFile if is_surveyed(self.shared.purpose) => {
                self.survey_file(here, &entry.name, path)
            }
            FileType::RegularFile => {
                here.files.push((self.place, entry.name));
                if here.files.len() == BATCH_FILES {
                    self.hand_on(here, split(path).0);
                }
                Ok(())
            }
            FileType::Symlink => self.link(here, &entry.name, path),
            _ => {
                if is_staging {
                    self.leave(path, "is a FIFO, socket or device");
                } else {
                    self.found.special(path, SpecialKind::Device);
                }
                Ok(())
            }
        }
    }

    fn subdirectory(
        &mut self,
        here: &mut Here,
        name: &[u8],
        path: &mut Vec<u8>,
    ) -> Result<(), Error> {
        // Before what is deeper: each thread meets places in ascending order.
        self.hand_on(here, split(path).0);
        let (depth, max_depth) = (here.depth + 1, self.shared.budget.max_depth());
        if depth > max_depth {
            return self.too_deep(path, max_depth);
        }
        let child = match here.dir.open_dir(name) {
            Ok(child) => child,
            Err(error) => {
                let purpose = self.shared.purpose;
                return self.found.unreadable(purpose, self.place, path, error);
            }
        };
        let stat = child
            .stat_self()
            .map_err(|error| failed("read", path, error))?;
        if self.walker.skip == Some(FileId::of(&stat)) {
            self.leave(path, "holds the stages");
            return Ok(());
        }
        if self.shared.purpose == Purpose::Survey {
            layers::check_directory(&child, &stat, path, self.device)?;
            if stat.st_mode & 0o7000 != 0 {
                self.found.layers.dressed.push(path.clone());
            }
        }
        let has_marked_files = self.walker.is_upper && self.read_opacity(&child, path);
        let (child_copy, mode) = match &here.copy {
            Some(copy) => {
                // Widened to the source's mode when its content is complete.
                let made = match copy.create_dir(name, 0o700) {
                    Err(error) if is_refused_name(error) => {
                        self.leave(path, refused_name(error));
                        return Ok(());
                    }
                    made => made.map_err(|error| failed("copy", path, error))?,
                };
                (Some(made), stat.st_mode & 0o777)
            }
            None if self.shared.purpose.is_staging() => (None, stat.st_mode & 0o777),
            None => (None, stat.st_mode),
        };
        let entry = Entry::directory(path, mode);
        self.found.entries.push((entry, None));
        let mut next = Here::new(child, child_copy, depth);
        next.has_marked_files = has_marked_files;
        self.directory(next, path)
    }

    fn lends(&self, name: &[u8]) -> bool {
        std::str::from_utf8(name).is_ok_and(|name| self.walker.lend.contains(name))
    }

    /// Lends an ignored directory, without the names in it that the policy hides. A copy gets an empty
    /// directory for the mount.
    fn lend_directory(
        &mut self,
        here: &Here,
        name: &[u8],
        path: &mut Vec<u8>,
        reason: &str,
    ) -> Result<(), Error> {
        let listed = here.dir.open_dir(name).and_then(|dir| {
            let hidden = self.walker.hidden.as_ref();
            let mut names = LentNames {
                hidden,
                left: MAX_LENT_NAMES,
                found: Vec::new(),
            };
            names.look_through(&dir, path, 0)?;
            Ok(names)
        });
        let names = match listed {
            Ok(names) if names.left > 0 => names,
            Ok(_) => {
                self.leave(path, format!("{reason}; it has too many names to be lent"));
                return Ok(());
            }
            Err(error) if is_exhausted(error) => return Err(failed("list", path, error)),
            Err(error) => {
                self.leave(
                    path,
                    format!("{reason}; it cannot be listed, so it is not lent: {error}"),
                );
                return Ok(());
            }
        };
        for (hidden, index, pattern) in names.found {
            if let Some(count) = self.hidden.get_mut(index) {
                *count += 1;
            }
            let reason = format!("hidden by the deny_read pattern {pattern:?}");
            self.found.left_out.add(self.place, &hidden, reason);
            self.found.layers.masked.push(hidden.clone());
            self.found.layers.hidden.push(hidden);
        }
        if let Some(copy) = &here.copy {
            let made = copy.create_dir(name, 0o700);
            made.map_err(|error| failed("copy", path, error))?;
        }
        let reason = format!("{reason}; the run may use it, and changes in it are dropped");
        self.found.left_out.add(self.place, path, reason);
        self.found.layers.lent.push(path.clone());
        Ok(())
    }

    /// Records a file of a source by its stamp.
    fn survey_file(&mut self, here: &Here, name: &[u8], path: &[u8]) -> Result<(), Error> {
        let stat = match here.dir.stat_if_exists(name) {
            Ok(Some(stat)) => stat,
            Ok(None) => return Ok(()),
            Err(error) => {
                let purpose = self.shared.purpose;
                return self.found.unreadable(purpose, self.place, path, error);
            }
        };
        if !layers::is_readable(&stat) {
            self.leave(path, "cannot be read");
            return Ok(());
        }
        if self.shared.purpose == Purpose::Survey {
            layers::check_file(&stat, path)?;
        }
        self.found.notes.look_at_name(&stat, self.place, path);
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let taken = self.shared.budget.take_bytes(size);
        taken.map_err(|exceeded| too_large(exceeded, path))?;
        let entry = Entry::file(path, stat.st_mode & 0o777, size, [0; 32]);
        self.found.entries.push((entry, None));
        let stamp = FileStamp::of(&stat);
        self.found.layers.stamps.insert(path.to_vec(), stamp);
        self.shared.budget.file_done();
        Ok(())
    }

    /// Notes a directory of the top layer that hides the one below it; true where the marks of removed
    /// names are attributes of files.
    fn read_opacity(&mut self, dir: &Dir, path: &[u8]) -> bool {
        match layers::opacity(dir) {
            Opacity::Opaque => {
                self.found.layers.opaque.push(path.to_vec());
                false
            }
            Opacity::MarkedFiles => true,
            Opacity::Merged => false,
        }
    }

    fn too_deep(&mut self, path: &[u8], max_depth: u32) -> Result<(), Error> {
        match self.shared.purpose {
            Purpose::Copy | Purpose::Baseline | Purpose::Survey | Purpose::SurveyAgain => {
                let exceeded = Exceeded {
                    limit: "the depth",
                    max: max_depth.into(),
                };
                Err(too_large(exceeded, path))
            }
            Purpose::Verification => {
                self.found.special(path, SpecialKind::TooDeep);
                Ok(())
            }
        }
    }

    fn link(&mut self, here: &Here, name: &[u8], path: &[u8]) -> Result<(), Error> {
        let target = match here.dir.read_link(name) {
            Ok(target) => target,
            Err(error) => {
                let purpose = self.shared.purpose;
                return self.found.unreadable(purpose, self.place, path, error);
            }
        };
        if self.shared.purpose.is_staging() {
            let parent = path.get(..path.len() - name.len()).unwrap_or_default();
            let reason = match land(&Tree::Plain(self.walker.root), None, parent, &target) {
                Ok(Landing::Inside(_)) => None,
                Ok(Landing::Outside) => {
                    Some("is a link that leads out of the workspace".to_owned())
                }
                Ok(Landing::Nowhere(_)) => Some("is a link that leads nowhere".to_owned()),
                Err(error) if is_exhausted(error) => return Err(failed("follow", path, error)),
                Err(error) => Some(format!("is a link that cannot be followed: {error}")),
            };
            if let Some(reason) = reason {
                self.leave(path, reason);
                return Ok(());
            }
        }
        if let Some(copy) = &here.copy {
            match copy.create_link(&target, name) {
                Err(error) if is_refused_name(error) => {
                    self.leave(path, refused_name(error));
                    return Ok(());
                }
                made => made.map_err(|error| failed("copy", path, error))?,
            }
        }
        let entry = Entry::symlink(path, target);
        self.found.entries.push((entry, None));
        Ok(())
    }

    /// A directory whose names cannot be read counts as empty in a stage, and as unreadable elsewhere.
    fn unlisted(&mut self, path: &[u8], error: Errno) -> Result<(), Error> {
        match self.shared.purpose {
            Purpose::Copy | Purpose::SurveyAgain => {
                self.leave(path, format!("its content cannot be listed: {error}"));
            }
            Purpose::Survey => return Err(layers::unsuited(path, "cannot be listed")),
            Purpose::Baseline | Purpose::Verification => {
                self.found.replace_by_special(path, SpecialKind::Unreadable);
            }
        }
        Ok(())
    }

    fn leave(&mut self, path: &[u8], reason: impl Into<String>) {
        if is_surveyed(self.shared.purpose) {
            self.found.layers.masked.push(path.to_vec());
        }
        self.found.left_out.add(self.place, path, reason);
    }

    /// Hands the files met so far to the readers, and waits where all of them have enough.
    fn hand_on(&mut self, here: &mut Here, path: &[u8]) {
        if here.files.is_empty() {
            return;
        }
        let batch = Batch {
            dir: Arc::clone(&here.dir),
            copy: here.copy.clone(),
            path: path.to_vec(),
            files: std::mem::take(&mut here.files),
        };
        match &mut self.readers {
            FileReaders::Own(reader) => reader.read(&batch),
            // They end early only by a panic, which is raised again where they are joined.
            FileReaders::Queue(batches) => drop(batches.send(batch)),
        }
    }
}

/// The most names of a lent directory that are looked through.
const MAX_LENT_NAMES: usize = 300_000;
/// The deepest level of a lent directory that is looked through; a deeper one is not lent.
const MAX_LENT_DEPTH: u32 = 256;

/// The names in a lent directory that the policy hides.
struct LentNames<'a> {
    hidden: Option<&'a GlobList>,
    /// The number of names that may still be met.
    left: usize,
    /// Each with its rule.
    found: Vec<(Vec<u8>, usize, String)>,
}

impl LentNames<'_> {
    fn look_through(
        &mut self,
        dir: &Dir,
        path: &mut Vec<u8>,
        depth: u32,
    ) -> rustix::io::Result<()> {
        if depth > MAX_LENT_DEPTH {
            self.left = 0;
        }
        let length = path.len();
        for entry in dir.entries()? {
            self.left = self.left.saturating_sub(1);
            if self.left == 0 {
                return Ok(());
            }
            push_component(path, &entry.name);
            let found = self
                .hidden
                .and_then(|hidden| hidden.first_match(path_of(path)));
            let looked = match found {
                Some(found) => {
                    let pattern = found.pattern.to_owned();
                    self.found.push((path.clone(), found.index, pattern));
                    Ok(())
                }
                None if entry.file_type.is_dir() => {
                    let child = dir.open_dir(&entry.name);
                    child.and_then(|child| self.look_through(&child, path, depth + 1))
                }
                None => Ok(()),
            };
            path.truncate(length);
            looked?;
        }
        Ok(())
    }
}

const fn is_surveyed(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Survey | Purpose::SurveyAgain)
}

impl Here {
    /// Whether a name of a top layer stands for one that was removed.
    fn is_whiteout(&self, entry: &Named) -> bool {
        match entry.file_type {
            FileType::CharacterDevice => layers::is_whiteout(&self.dir, &entry.name),
            FileType::RegularFile => {
                self.has_marked_files && layers::is_marked_whiteout(&self.dir, &entry.name)
            }
            _ => false,
        }
    }

    fn new(dir: Dir, copy: Option<Dir>, depth: u32) -> Self {
        Self {
            dir: Arc::new(dir),
            copy: copy.map(Arc::new),
            depth,
            files: Vec::new(),
            has_marked_files: false,
        }
    }
}
