//! Changes the names of an application, forwards and backwards.
//!
//! Every step looks at the path and at its slot in the holding directory before it acts, and decides
//! by their content alone. So the same code commits, finishes a commit that was killed, and may be
//! killed and repeated itself. For a file that is replaced:
//!
//! ```text
//! path  slot
//! old   new    not made yet: exchange the two names
//! new   old    made
//! new   other  the exchange displaced a save of the user, which must come back
//! other ...    a save of the user
//! ```
//!
//! Directories are never moved, only made and removed while they are empty, so nothing that
//! the user puts into one can go astray.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::Error;
use crate::change_set::ancestors;
use crate::dir::{Dir, path_of};
use crate::holding::Holding;
use crate::journal::{JournalStep, Operation};
use crate::manifest::{Entry, SpecialKind};
use crate::observe::observe;
use crate::prepared::split;

/// From this many on, one flush of the file system is cheaper than one of each directory.
const MAX_SINGLE_SYNCS: usize = 64;

/// Makes the steps of one journal.
#[derive(Debug)]
pub(crate) struct Committer<'a> {
    pub(crate) source: &'a Dir,
    /// None where it is already removed, which only finished steps can go with.
    pub(crate) holding: Option<&'a Holding>,
    pub(crate) steps: &'a [JournalStep],
}

/// The progress of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    Open,
    /// The old entry has left its name, and the new one does not have it yet.
    Half,
    Done,
    /// The path is neither the one image nor the other.
    Blocked,
}

/// Why the steps were not all made.
#[derive(Debug)]
pub(crate) enum Stop {
    /// A path has a save of the user.
    Save(PathBuf),
    /// The system refused.
    Failed(PathBuf, Errno),
}

impl Committer<'_> {
    /// The paths that are neither the image before nor the one after.
    pub(crate) fn blocked_paths(&self) -> Result<Vec<PathBuf>, Stop> {
        let mut blocked = Vec::new();
        for (number, step) in self.steps.iter().enumerate() {
            let progress = self.progress(number, step);
            if progress.map_err(|error| stopped(step, error))? == Progress::Blocked {
                blocked.push(path_of(&step.path).to_owned());
            }
        }
        Ok(blocked)
    }

    /// Makes every step that is not made yet, and makes them durable.
    ///
    /// Files are taken away from the bottom up before others are put from the top down, so that a
    /// file can take the place of a directory and the other way round. Modes of directories come
    /// last, since they may take the right to write away, or first, where they give it.
    pub(crate) fn roll_forward(&self) -> Result<(), Stop> {
        for step in self.steps.iter().filter(|step| step.widens_directory()) {
            self.change_mode(step)?;
        }
        for (number, step) in self.steps.iter().enumerate().rev() {
            self.take_away(number, step)?;
        }
        for (number, step) in self.steps.iter().enumerate() {
            self.put(number, step)?;
        }
        for step in self.steps.iter().rev() {
            match step.operation() {
                Some(Operation::ChangeDirectoryMode) if !step.widens_directory() => {
                    self.change_mode(step)?;
                }
                Some(Operation::MakeDirectory | Operation::FileToDirectory) => {
                    self.set_directory_mode(step, step.after.as_ref())
                        .map_err(|error| stopped(step, error))?;
                }
                _ => {}
            }
        }
        self.sync()
    }

    /// Writes every directory whose names changed to the disk.
    pub(crate) fn sync(&self) -> Result<(), Stop> {
        let mut directories: BTreeSet<&[u8]> = BTreeSet::new();
        for step in self.steps {
            directories.insert(split(&step.path).0);
            if step.after.as_ref().is_some_and(Entry::is_directory) {
                directories.insert(&step.path);
            }
        }
        let root = |error| Stop::Failed(PathBuf::from("."), error);
        if directories.len() > MAX_SINGLE_SYNCS {
            return rustix::fs::syncfs(self.source).map_err(root);
        }
        for path in directories {
            let path = if path.is_empty() { b"." } else { path };
            match self.source.open_dir(path).and_then(|dir| dir.sync()) {
                // Removed together with its content; its parent is synced as well.
                Ok(()) | Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::ACCESS) => {}
                Err(error) => return Err(Stop::Failed(path_of(path).to_owned(), error)),
            }
        }
        match self.holding {
            Some(holding) => holding.dir.sync().map_err(root),
            None => Ok(()),
        }
    }

    /// The entry at a step's path, as far as it can be one of its images. A path behind a file, a
    /// link or a mount point of the user is [`SpecialKind::Unreadable`].
    pub(crate) fn at_path(&self, step: &JournalStep) -> Result<Option<Entry>, Errno> {
        match self.source.open_parent(&step.path) {
            Ok((parent, name)) => {
                let expected = [step.before.as_ref(), step.after.as_ref()];
                observe(&parent, name, &step.path, expected)
            }
            Err(Errno::NOENT) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP) if self.changes_kind_above(&step.path) => Ok(None),
            Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                Ok(Some(Entry::special(&step.path, SpecialKind::Unreadable)))
            }
            Err(error) => Err(error),
        }
    }

    /// Whether a directory above a path comes or goes in the place of a file, so that the file may be
    /// on the way. A save of the user there blocks that step.
    fn changes_kind_above(&self, path: &[u8]) -> bool {
        ancestors(path).any(|above| {
            let found = self
                .steps
                .binary_search_by(|step| step.path.as_slice().cmp(above));
            let step = found.ok().and_then(|index| self.steps.get(index));
            matches!(
                step.and_then(JournalStep::operation),
                Some(Operation::FileToDirectory | Operation::DirectoryToFile)
            )
        })
    }

    pub(crate) fn in_slot(
        &self,
        number: usize,
        step: &JournalStep,
    ) -> Result<Option<Entry>, Errno> {
        match self.holding {
            Some(holding) => holding.image(number, [step.before.as_ref(), step.after.as_ref()]),
            None => Ok(None),
        }
    }

    fn progress(&self, number: usize, step: &JournalStep) -> Result<Progress, Errno> {
        use Progress::{Blocked, Done, Half, Open};
        let Some(operation) = step.operation() else {
            return Ok(Blocked);
        };
        let path = self.at_path(step)?;
        let slot = self.in_slot(number, step)?;
        let is_dir = path.as_ref().is_some_and(Entry::is_directory);
        // The new file still waits, and the slot has no save of the user.
        let waits = slot.is_some() && slot == step.after;
        let displaced = slot.is_none() || slot == step.before;
        Ok(match operation {
            Operation::Replace if path == step.after && (displaced || waits) => Done,
            Operation::Replace if path == step.before && waits => Open,
            Operation::Create if path == step.after => Done,
            Operation::Create if path.is_none() && waits => Open,
            Operation::Delete if path.is_none() && displaced => Done,
            Operation::Delete if path == step.before && displaced => Open,
            Operation::ChangeFileMode | Operation::ChangeDirectoryMode if path == step.after => {
                Done
            }
            Operation::ChangeFileMode | Operation::ChangeDirectoryMode if path == step.before => {
                Open
            }
            Operation::MakeDirectory if is_dir => Done,
            Operation::MakeDirectory if path.is_none() => Open,
            Operation::RemoveDirectory if path.is_none() => Done,
            Operation::RemoveDirectory if is_dir => Open,
            Operation::FileToDirectory if is_dir && displaced => Done,
            Operation::FileToDirectory if path == step.before && displaced => Open,
            Operation::FileToDirectory if path.is_none() && slot == step.before => Half,
            Operation::DirectoryToFile if path == step.after => Done,
            Operation::DirectoryToFile if is_dir && waits => Open,
            Operation::DirectoryToFile if path.is_none() && waits => Half,
            _ => Blocked,
        })
    }

    /// The first half of a step: the old entry leaves its name.
    fn take_away(&self, number: usize, step: &JournalStep) -> Result<(), Stop> {
        let takes = matches!(
            step.operation(),
            Some(
                Operation::Delete
                    | Operation::RemoveDirectory
                    | Operation::FileToDirectory
                    | Operation::DirectoryToFile
            )
        );
        if !takes {
            return Ok(());
        }
        let failed = |error| stopped(step, error);
        match self.progress(number, step).map_err(failed)? {
            Progress::Blocked => return Err(save(step)),
            Progress::Done | Progress::Half => return Ok(()),
            Progress::Open => {}
        }
        let (parent, name) = self.source.open_parent(&step.path).map_err(failed)?;
        if step.before.as_ref().is_some_and(Entry::is_directory) {
            return match parent.remove_dir(name) {
                Ok(()) | Err(Errno::NOENT) => Ok(()),
                // It also holds files that were never staged, and stays.
                Err(Errno::NOTEMPTY | Errno::EXIST) if step.after.is_none() => Ok(()),
                Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOTDIR) => Err(save(step)),
                Err(error) => Err(failed(error)),
            };
        }
        let holding = self.holding.ok_or_else(|| failed(Errno::NOENT))?;
        // A slot that is not free has the same content, left by an undone attempt.
        match parent.rename(name, &holding.dir, &Holding::slot(number)) {
            Err(Errno::NOENT) => return Err(save(step)),
            renamed => renamed.map_err(failed)?,
        }
        if self.in_slot(number, step).map_err(failed)? == step.before {
            Ok(())
        } else {
            Err(save(step))
        }
    }

    /// The second half of a step: the new entry gets its name.
    fn put(&self, number: usize, step: &JournalStep) -> Result<(), Stop> {
        let Some(operation) = step.operation() else {
            return Err(save(step));
        };
        if matches!(
            operation,
            Operation::Delete | Operation::RemoveDirectory | Operation::ChangeDirectoryMode
        ) {
            return Ok(());
        }
        let failed = |error| stopped(step, error);
        match self.progress(number, step).map_err(failed)? {
            Progress::Blocked => return Err(save(step)),
            Progress::Done => return Ok(()),
            Progress::Open | Progress::Half => {}
        }
        let slot = Holding::slot(number);
        match operation {
            Operation::ChangeFileMode => return self.change_mode(step),
            Operation::MakeDirectory | Operation::FileToDirectory => {
                return self.make_directory(step, step.after.as_ref());
            }
            _ => {}
        }
        let holding = self.holding.ok_or_else(|| failed(Errno::NOENT))?;
        let (parent, name) = self.source.open_parent(&step.path).map_err(failed)?;
        if operation == Operation::Replace {
            match holding.dir.exchange(&slot, &parent, name) {
                Err(Errno::NOENT) => return Err(save(step)),
                exchanged => exchanged.map_err(failed)?,
            }
            let displaced = self.in_slot(number, step).map_err(failed)?;
            return if displaced == step.before {
                Ok(())
            } else {
                Err(save(step))
            };
        }
        match holding.dir.rename_to_free(&slot, &parent, name) {
            Err(Errno::EXIST) => Err(save(step)),
            renamed => renamed.map_err(failed),
        }
    }

    /// Makes a directory with all rights of its owner, which the last pass takes away again.
    pub(crate) fn make_directory(
        &self,
        step: &JournalStep,
        image: Option<&Entry>,
    ) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        let mode = image.map_or(0o755, Entry::mode) | 0o700;
        let (parent, name) = self.source.open_parent(&step.path).map_err(failed)?;
        let dir = match parent.create_dir(name, mode) {
            Err(Errno::EXIST) => match parent.open_dir(name) {
                Err(Errno::NOTDIR | Errno::LOOP) => return Err(save(step)),
                opened => opened,
            },
            created => created,
        };
        // Not as the process's mask would have it.
        dir.and_then(|dir| dir.set_mode(mode)).map_err(failed)
    }

    /// Changes only the permission bits, of a file or a directory that is still as expected.
    fn change_mode(&self, step: &JournalStep) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        let at_path = self.at_path(step).map_err(failed)?;
        if at_path == step.after {
            return Ok(());
        }
        if at_path != step.before {
            return Err(save(step));
        }
        self.set_mode(step, step.after.as_ref()).map_err(failed)
    }

    pub(crate) fn set_mode(&self, step: &JournalStep, image: Option<&Entry>) -> Result<(), Errno> {
        if image.is_some_and(Entry::is_directory) {
            return self.set_directory_mode(step, image);
        }
        let (parent, name) = self.source.open_parent(&step.path)?;
        let (file, _) = parent.open_file(name)?;
        let mode = image.map_or(0o644, Entry::mode);
        rustix::fs::fchmod(&file, Mode::from_raw_mode(mode))?;
        rustix::fs::fsync(&file)
    }

    fn set_directory_mode(&self, step: &JournalStep, image: Option<&Entry>) -> Result<(), Errno> {
        let dir = self.source.open_dir(&step.path)?;
        dir.set_mode(image.map_or(0o755, Entry::mode))
    }
}

fn save(step: &JournalStep) -> Stop {
    Stop::Save(path_of(&step.path).to_owned())
}

pub(crate) fn stopped(step: &JournalStep, error: Errno) -> Stop {
    Stop::Failed(path_of(&step.path).to_owned(), error)
}

impl Stop {
    /// The error to report once everything is rolled back.
    pub(crate) fn into_error(self) -> Error {
        match self {
            Self::Save(path) => Error::SourceChanged { paths: vec![path] },
            Self::Failed(path, source) => Error::Access {
                action: "apply",
                path,
                source: source.into(),
            },
        }
    }
}
