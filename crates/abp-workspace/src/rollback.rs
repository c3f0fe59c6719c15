//! Undoes the steps of an application, as far as they were made.
//!
//! Only paths that still have exactly the application's content are taken back. A path with any other
//! content is a save of the user, and stays. An original whose name the user has taken by then is
//! put beside it under a name that says so, because its bytes must not be lost.

use std::collections::BTreeSet;
use std::path::PathBuf;

use rustix::fs::{Gid, Uid};
use rustix::io::Errno;

use crate::commit::{Committer, Stop, stopped};
use crate::dir::{Dir, path_of};
use crate::holding::Holding;
use crate::journal::{JournalStep, Operation};
use crate::manifest::{Entry, FileKind};
use crate::prepared::split;

/// The number of names that are tried for an original whose own name is taken.
const MAX_SPARE_NAMES: u32 = 1_000;

/// One attempt to undo everything.
#[derive(Debug)]
pub(crate) struct Rollback<'a> {
    committer: &'a Committer<'a>,
    saves: BTreeSet<PathBuf>,
}

impl<'a> Rollback<'a> {
    /// Undoes every step that was made, in the opposite order, and names the paths that have a save
    /// of the user.
    pub(crate) fn run(committer: &'a Committer<'a>) -> Result<Vec<PathBuf>, Stop> {
        let mut rollback = Self {
            committer,
            saves: BTreeSet::new(),
        };
        let steps = committer.steps;
        for step in steps {
            rollback.open_directory(step)?;
        }
        for (number, step) in steps.iter().enumerate().rev() {
            rollback.take_back(number, step)?;
        }
        for (number, step) in steps.iter().enumerate() {
            rollback.bring_back(number, step)?;
        }
        for step in steps.iter().rev() {
            rollback.close_directory(step)?;
        }
        committer.sync()?;
        Ok(rollback.saves.into_iter().collect())
    }

    /// Gives back the right to write in a directory that the steps took away.
    fn open_directory(&mut self, step: &JournalStep) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        match step.operation() {
            Some(Operation::ChangeDirectoryMode) if !step.widens_directory() => {
                self.undo_mode(step)
            }
            Some(Operation::MakeDirectory | Operation::FileToDirectory) => {
                let at_path = self.committer.at_path(step).map_err(failed)?;
                match at_path.filter(Entry::is_directory) {
                    Some(made) if made.mode() & 0o700 != 0o700 => {
                        let opened = made.clone().with_mode(made.mode() | 0o700);
                        let set = self.committer.set_mode(step, Some(&opened));
                        set.map_err(failed)
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }

    /// Takes away again the right to write in a directory that the steps gave, and gives the
    /// directories that were made again their modes.
    fn close_directory(&mut self, step: &JournalStep) -> Result<(), Stop> {
        match step.operation() {
            Some(Operation::ChangeDirectoryMode) if step.widens_directory() => self.undo_mode(step),
            Some(Operation::RemoveDirectory | Operation::DirectoryToFile) => {
                let failed = |error| stopped(step, error);
                let at_path = self.committer.at_path(step).map_err(failed)?;
                let made = step.before.as_ref().map_or(0, Entry::mode) | 0o700;
                if at_path.is_some_and(|dir| dir.is_directory() && dir.mode() == made) {
                    let set = self.committer.set_mode(step, step.before.as_ref());
                    set.map_err(failed)?;
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn undo_mode(&mut self, step: &JournalStep) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        let at_path = self.committer.at_path(step).map_err(failed)?;
        if at_path == step.after {
            let set = self.committer.set_mode(step, step.before.as_ref());
            return set.map_err(failed);
        }
        if at_path != step.before {
            self.name_save(step);
        }
        Ok(())
    }

    /// Undoes the second half of a step: the new entry leaves the name.
    fn take_back(&mut self, number: usize, step: &JournalStep) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        match step.operation() {
            Some(Operation::Replace) => self.undo_replacement(number, step).map_err(failed),
            Some(Operation::Create | Operation::DirectoryToFile) => {
                self.undo_creation(number, step).map_err(failed)
            }
            Some(Operation::ChangeFileMode) => self.undo_mode(step),
            Some(Operation::MakeDirectory | Operation::FileToDirectory) => {
                self.undo_directory(step).map_err(failed)
            }
            _ => Ok(()),
        }
    }

    /// Undoes the first half of a step: the old entry gets its name back.
    fn bring_back(&mut self, number: usize, step: &JournalStep) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        match step.operation() {
            Some(Operation::Delete | Operation::FileToDirectory) => {
                self.restore_from_slot(number, step).map_err(failed)
            }
            Some(Operation::RemoveDirectory | Operation::DirectoryToFile) => {
                self.restore_directory(step)
            }
            _ => Ok(()),
        }
    }

    fn undo_replacement(&mut self, number: usize, step: &JournalStep) -> Result<(), Errno> {
        let at_path = self.committer.at_path(step)?;
        let slot = self.committer.in_slot(number, step)?;
        // A slot with the new content was not exchanged.
        let displaced = slot.filter(|slot| !has_content(Some(slot), step.after.as_ref()));
        if at_path.is_none() {
            if displaced.is_none() {
                self.name_save(step);
            }
            return self.restore(number, step, displaced.as_ref());
        }
        if !has_content(at_path.as_ref(), step.after.as_ref()) || displaced.is_none() {
            if at_path != step.before {
                self.name_save(step);
            }
            return Ok(());
        }
        let (Some(holding), (parent, name)) = (
            self.committer.holding,
            self.committer.source.open_parent(&step.path)?,
        ) else {
            return Ok(());
        };
        let slot = Holding::slot(number);
        holding.dir.exchange(&slot, &parent, name)?;
        if !has_content(
            self.committer.in_slot(number, step)?.as_ref(),
            step.after.as_ref(),
        ) {
            // The user saved in between: the save belongs to the name.
            holding.dir.exchange(&slot, &parent, name)?;
            self.name_save(step);
        } else if displaced != step.before {
            self.name_save(step);
        }
        Ok(())
    }

    fn undo_creation(&mut self, number: usize, step: &JournalStep) -> Result<(), Errno> {
        let at_path = self.committer.at_path(step)?;
        if !has_content(at_path.as_ref(), step.after.as_ref()) {
            if at_path.is_some_and(|entry| !entry.is_directory() || step.before.is_none()) {
                self.name_save(step);
            }
            return Ok(());
        }
        let Some(holding) = self.committer.holding else {
            self.name_save(step);
            return Ok(());
        };
        let (parent, name) = self.committer.source.open_parent(&step.path)?;
        let slot = Holding::slot(number);
        match parent.rename_to_free(name, &holding.dir, &slot) {
            // The application's own file still waits, so this one is the user's.
            Err(Errno::EXIST) => self.name_save(step),
            Err(Errno::NOENT) => {}
            renamed => {
                renamed?;
                let moved = self.committer.in_slot(number, step)?;
                if !has_content(moved.as_ref(), step.after.as_ref()) {
                    self.restore(number, step, moved.as_ref())?;
                }
            }
        }
        Ok(())
    }

    /// Removes a directory that was made, unless the user has put something into it.
    fn undo_directory(&mut self, step: &JournalStep) -> Result<(), Errno> {
        let at_path = self.committer.at_path(step)?;
        match at_path {
            Some(entry) if entry.is_directory() => {
                let (parent, name) = self.committer.source.open_parent(&step.path)?;
                match parent.remove_dir(name) {
                    Err(Errno::NOTEMPTY | Errno::EXIST | Errno::NOENT | Errno::NOTDIR) => Ok(()),
                    removed => removed,
                }
            }
            Some(entry) if Some(&entry) != step.before.as_ref() => {
                self.name_save(step);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn restore_from_slot(&mut self, number: usize, step: &JournalStep) -> Result<(), Errno> {
        let at_path = self.committer.at_path(step)?;
        let slot = self.committer.in_slot(number, step)?;
        if at_path == step.before {
            return Ok(());
        }
        let is_file = |entry: &Entry| matches!(entry.kind(), FileKind::File | FileKind::Symlink);
        match &at_path {
            // A file of the user has replaced the original, as any save does.
            Some(entry) if is_file(entry) || entry.kind() == unknown_content() => {
                self.name_save(step);
                Ok(())
            }
            _ => self.restore(number, step, slot.as_ref()),
        }
    }

    fn restore_directory(&mut self, step: &JournalStep) -> Result<(), Stop> {
        let failed = |error| stopped(step, error);
        let at_path = self.committer.at_path(step).map_err(failed)?;
        match at_path {
            Some(entry) if entry.is_directory() => return Ok(()),
            Some(_) => {
                self.name_save(step);
                return Ok(());
            }
            None => {}
        }
        let (above, _) = split(&step.path);
        match self.committer.source.open_or_create_dirs(above) {
            Ok(_) => {}
            // A file of the user is on the way.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                self.name_save(step);
                return Ok(());
            }
            Err(error) => return Err(failed(error)),
        }
        match self.committer.make_directory(step, step.before.as_ref()) {
            Err(Stop::Save(path)) => {
                self.saves.insert(path);
                Ok(())
            }
            made => {
                made?;
                self.give_owner(step).map_err(failed)
            }
        }
    }

    fn give_owner(&self, step: &JournalStep) -> Result<(), Errno> {
        let Some(owner) = step.owner else {
            return Ok(());
        };
        let dir = self.committer.source.open_dir(&step.path)?;
        let found = dir.stat_self()?;
        if (found.st_uid, found.st_gid) == (owner.user, owner.group) {
            return Ok(());
        }
        let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
        match rustix::fs::fchown(&dir, Some(user), Some(group)) {
            // Without the right to give files away, the directory is the process's own.
            Err(Errno::PERM) => Ok(()),
            given => given,
        }
    }

    /// Gives a displaced file its name back, making the directories above it where they are gone.
    fn restore(
        &mut self,
        number: usize,
        step: &JournalStep,
        displaced: Option<&Entry>,
    ) -> Result<(), Errno> {
        let (Some(displaced), Some(holding)) = (displaced, self.committer.holding) else {
            return Ok(());
        };
        if Some(displaced) != step.before.as_ref() {
            self.name_save(step);
        }
        let (above, name) = split(&step.path);
        let slot = Holding::slot(number);
        let placed = self
            .committer
            .source
            .open_or_create_dirs(above)
            .and_then(|parent| holding.dir.rename_to_free(&slot, &parent, name));
        match placed {
            Err(Errno::EXIST | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
                self.name_save(step);
                self.put_beside(holding, &slot, name)
            }
            placed => placed,
        }
    }

    /// Puts an original whose name is taken into the root of the source, under a name of its own.
    fn put_beside(&mut self, holding: &Holding, slot: &[u8], name: &[u8]) -> Result<(), Errno> {
        let root: &Dir = self.committer.source;
        for attempt in 0..MAX_SPARE_NAMES {
            let mut spare = name.to_vec();
            spare.truncate(200);
            spare.extend_from_slice(b".abp-original");
            if attempt > 0 {
                spare.extend_from_slice(format!("-{attempt}").as_bytes());
            }
            match holding.dir.rename_to_free(slot, root, &spare) {
                Err(Errno::EXIST) => {}
                placed => {
                    placed?;
                    self.saves.insert(path_of(&spare).to_owned());
                    return Ok(());
                }
            }
        }
        Err(Errno::EXIST)
    }

    fn name_save(&mut self, step: &JournalStep) {
        self.saves.insert(path_of(&step.path).to_owned());
    }
}

fn has_content(found: Option<&Entry>, image: Option<&Entry>) -> bool {
    match (found, image) {
        (Some(found), Some(image)) => found.has_content_of(image),
        _ => false,
    }
}

/// The kind that [`observe`](crate::observe::observe) gives a file with none of the expected sizes.
fn unknown_content() -> FileKind {
    FileKind::Special(crate::manifest::SpecialKind::TooLarge)
}
