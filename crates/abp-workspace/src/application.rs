//! Applies a change set to its source in steps that a caller journals.
//!
//! ```text
//! Application::begin       plans; nothing is written           journal: preparing
//!   stage_contents         copies new contents into a holding  journal: committing
//!                          directory inside the source
//!     commit               changes names                       journal: finished
//!       clean_up           removes the holding directory       no journal
//! ```
//!
//! The caller makes the journal of each value durable before it takes the next step. After a crash
//! [`recover`](crate::recover) finishes or undoes the application from the last durable journal. A
//! step that fails undoes everything itself, so that its error leaves the source as it was.
//!
//! The cost follows the changes: neither the source nor the stage is walked.

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use rustix::io::Errno;

use crate::Error;
use crate::attributes::copy_attributes;
use crate::change_set::{ChangeSet, ChangedPath, open_mask, open_tree};
use crate::choice::choose;
use crate::commit::{Committer, Stop};
use crate::dir::{Dir, path_of};
use crate::holding::Holding;
use crate::ingest::{BUFFER_BYTES, read_through};
use crate::journal::{ApplyJournal, ApplyPhase};
use crate::manifest::{Entry, FileKind};
use crate::plan::{NewContent, PlannedStep, check_unchanged, failed, plan};
use crate::rollback::Rollback;
use crate::stage::lock;

/// From this many on, one flush of the file system is cheaper than one of each file.
const MAX_SINGLE_SYNCS: usize = 64;

/// A planned application.
#[derive(Debug)]
pub struct Application {
    source: Dir,
    stage: Dir,
    planned: Vec<PlannedStep>,
    journal: ApplyJournal,
    paths: Vec<PathBuf>,
}

/// An application whose new contents are in the source's file system.
#[derive(Debug)]
pub struct StagedApplication {
    source: Dir,
    planned: Vec<PlannedStep>,
    holding: Option<Holding>,
    journal: ApplyJournal,
    paths: Vec<PathBuf>,
}

/// An application whose names are all changed.
#[derive(Debug)]
pub struct CommittedApplication {
    source: Dir,
    holding: Option<Holding>,
    journal: ApplyJournal,
    paths: Vec<PathBuf>,
}

impl Application {
    /// Plans the application of a change set, or of the changes at and beneath the selected paths,
    /// three-way: changes that only the run made are taken, changes that the source already has
    /// need nothing, and a text that both changed is merged by lines.
    ///
    /// `images` gives the stored [`BeforeImage`](crate::BeforeImage) of a hash. The source is locked
    /// until the application is over.
    ///
    /// # Errors
    /// [`Error::SourceReplaced`] where the source is not the directory the run was started on,
    /// [`Error::Busy`] where another application or a run in place works in it,
    /// [`Error::UnknownChange`] for a selected path without a change, [`Error::Conflict`] with
    /// every conflict, [`Error::UnsafeLinks`], [`Error::OtherDevice`], [`Error::StageChanged`],
    /// [`Error::NotStaged`] for changes that were made in place. Nothing is written in any case.
    pub fn begin(
        stage_tree: &Path,
        change_set: &ChangeSet,
        selected: &[PathBuf],
        images: impl Fn(&[u8; 32]) -> Option<Vec<u8>>,
    ) -> Result<Self, Error> {
        if !change_set.is_staged {
            return Err(Error::NotStaged);
        }
        let chosen = choose(change_set, selected)?;
        let source = change_set.source.open()?;
        claim(&source, change_set.source.path())?;
        let stage = open_tree(stage_tree)?;
        let mask = open_mask(stage_tree)?;
        let planned = plan(&stage, mask.as_ref(), &source, change_set, &chosen, images)?;
        Ok(Self {
            source,
            stage,
            planned,
            journal: ApplyJournal::new(change_set.source.clone()),
            paths: chosen
                .into_iter()
                .map(ChangedPath::path)
                .map(Path::to_owned)
                .collect(),
        })
    }

    /// The journal to make durable before [`Self::stage_contents`].
    #[must_use]
    pub const fn journal(&self) -> &ApplyJournal {
        &self.journal
    }

    /// The paths that the application decides about, sorted; the others stay undecided. A path that
    /// the source already has as the run left it is among them.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Whether the source already has everything.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.planned.is_empty()
    }

    /// Copies the new contents into the holding directory, compares them with the change set on the
    /// way, gives them the owner, mode and extended attributes of the files they replace, and
    /// flushes them to the disk.
    ///
    /// # Errors
    /// [`Error::StageChanged`] where a file of the stage was written after the end of the run. Where
    /// it fails, the holding directory is removed.
    pub fn stage_contents(self) -> Result<StagedApplication, Error> {
        let Self {
            source,
            stage,
            planned,
            mut journal,
            paths,
        } = self;
        let mut holding = None;
        if !planned.is_empty() {
            let created = Holding::create(&source, &journal.holding)?;
            if let Err(error) = fill(&source, &stage, &created, &planned) {
                if let Err(left) = created.remove(&source) {
                    tracing::warn!(target: "abp.workspace", error = %left, "holding directory is left; recovery removes it");
                }
                return Err(error);
            }
            holding = Some(created);
        }
        journal.phase = ApplyPhase::Committing;
        journal.steps = planned.iter().map(|planned| planned.step.clone()).collect();
        Ok(StagedApplication {
            source,
            planned,
            holding,
            journal,
            paths,
        })
    }
}

impl StagedApplication {
    /// The journal to make durable before [`Self::commit`].
    #[must_use]
    pub const fn journal(&self) -> &ApplyJournal {
        &self.journal
    }

    /// Changes the names, and flushes every directory it touched.
    ///
    /// # Errors
    /// [`Error::SourceChanged`] where a path was saved since it was planned, [`Error::Access`] where
    /// the system refuses; everything is rolled back then. [`Error::RecoveryNeeded`] where that fails
    /// too; the journal stays valid for [`recover`](crate::recover).
    pub fn commit(self) -> Result<CommittedApplication, Error> {
        let Self {
            source,
            planned,
            holding,
            mut journal,
            paths,
        } = self;
        let committer = Committer {
            source: &source,
            holding: holding.as_ref(),
            steps: &journal.steps,
        };
        if let Err(error) = check_unchanged(&source, &planned) {
            if let Some(holding) = &holding {
                holding.remove(&source)?;
            }
            return Err(error);
        }
        if let Err(stop) = committer.roll_forward() {
            return Err(undo(&committer, stop.into_error()));
        }
        journal.phase = ApplyPhase::Finished;
        Ok(CommittedApplication {
            source,
            holding,
            journal,
            paths,
        })
    }

    /// Gives the application up, for a caller that cannot make the journal durable.
    ///
    /// # Errors
    /// Fails where the holding directory cannot be removed.
    pub fn abandon(self) -> Result<(), Error> {
        match &self.holding {
            Some(holding) => holding.remove(&self.source),
            None => Ok(()),
        }
    }
}

impl CommittedApplication {
    /// The journal to make durable, together with the end of the application, before
    /// [`Self::clean_up`]; it may be forgotten after that.
    #[must_use]
    pub const fn journal(&self) -> &ApplyJournal {
        &self.journal
    }

    /// The paths that were applied, sorted.
    #[must_use]
    pub fn paths(&self) -> &[PathBuf] {
        &self.paths
    }

    /// Removes the holding directory with the displaced files.
    ///
    /// # Errors
    /// Fails where it cannot be removed; recovery then tries again.
    pub fn clean_up(self) -> Result<(), Error> {
        match &self.holding {
            Some(holding) => holding.remove(&self.source),
            None => Ok(()),
        }
    }
}

/// Rolls everything back, and gives the error that led to it.
fn undo(committer: &Committer<'_>, error: Error) -> Error {
    let saves = match Rollback::run(committer) {
        Ok(saves) => saves,
        Err(stop) => return recovery_needed(stop),
    };
    if let Some(holding) = committer.holding
        && let Err(left) = holding.remove(committer.source)
    {
        return left;
    }
    match error {
        Error::SourceChanged { mut paths } => {
            paths.extend(saves);
            paths.sort_unstable();
            paths.dedup();
            Error::SourceChanged { paths }
        }
        error => error,
    }
}

pub(crate) fn recovery_needed(stop: Stop) -> Error {
    let (path, source) = match stop {
        Stop::Save(path) => (path, Errno::EXIST),
        Stop::Failed(path, source) => (path, source),
    };
    Error::RecoveryNeeded {
        path,
        source: source.into(),
    }
}

/// Locks the source against other applications and against runs in place.
pub(crate) fn claim(source: &Dir, path: &Path) -> Result<(), Error> {
    match lock(source) {
        Ok(true) => Ok(()),
        Ok(false) => Err(Error::Busy {
            root: path.to_owned(),
        }),
        Err(error) => Err(Error::Root {
            root: path.to_owned(),
            source: error.into(),
        }),
    }
}

/// Fills the slots of the holding directory.
fn fill(
    source: &Dir,
    stage: &Dir,
    holding: &Holding,
    planned: &[PlannedStep],
) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut files = 0_usize;
    let copies = |planned: &PlannedStep| !matches!(planned.content, NewContent::None);
    let flushes_all = planned.iter().filter(|step| copies(step)).count() > MAX_SINGLE_SYNCS;
    for (number, planned) in planned.iter().enumerate() {
        let Some(after) = &planned.step.after else {
            continue;
        };
        let path = planned.step.path.as_slice();
        let refused = |error: Errno| failed("apply", path, error.into());
        let slot = Holding::slot(number);
        if after.kind() == FileKind::Symlink {
            let made = holding.dir.create_link(after.target_bytes(), &slot);
            made.map_err(refused)?;
            continue;
        }
        if !copies(planned) {
            continue;
        }
        let mut copy = holding.dir.create_file(&slot, 0o600).map_err(refused)?;
        match &planned.content {
            NewContent::None => {}
            NewContent::Merged(bytes) => copy
                .write_all(bytes)
                .map_err(|error| failed("apply", path, error))?,
            NewContent::Staged(entry) => copy_staged(stage, entry, &copy, &mut buffer)?,
        }
        if let Some(before) = &planned.step.before
            && before.kind() == FileKind::File
        {
            keep_attributes(source, path, &copy)?;
        }
        rustix::fs::fchmod(&copy, Mode::from_raw_mode(after.mode())).map_err(refused)?;
        files += 1;
        if !flushes_all {
            rustix::fs::fsync(&copy).map_err(refused)?;
        }
    }
    let flushed = if flushes_all && files > 0 {
        rustix::fs::syncfs(source)
    } else {
        holding.dir.sync().and_then(|()| source.sync())
    };
    flushed.map_err(|error| failed("apply", b".", error.into()))
}

/// Copies a file of the stage, which must still be the one that was verified.
fn copy_staged(stage: &Dir, entry: &Entry, copy: &File, buffer: &mut [u8]) -> Result<(), Error> {
    let path = entry.path_bytes();
    let changed = || Error::StageChanged {
        path: entry.path().to_owned(),
    };
    let opened = stage
        .open_parent(path)
        .and_then(|(dir, name)| dir.open_file(name));
    let (file, stat) = match opened {
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NOTSUP) => return Err(changed()),
        opened => opened.map_err(|error| failed("apply", path, error.into()))?,
    };
    // Before the copy: a file that grew by a terabyte must not fill the disk.
    if u64::try_from(stat.st_size).ok() != Some(entry.size()) {
        return Err(changed());
    }
    let read = read_through(&file, &stat, Some(copy), buffer)
        .map_err(|error: io::Error| failed("apply", path, error))?;
    if read == (entry.size(), *entry.sha256()) {
        Ok(())
    } else {
        Err(changed())
    }
}

/// Gives a new file the owner and the extended attributes of the one it replaces.
fn keep_attributes(source: &Dir, path: &[u8], copy: &File) -> Result<(), Error> {
    let opened = source
        .open_parent(path)
        .and_then(|(dir, name)| dir.open_file(name));
    let (replaced, stat) = match opened {
        // It changed since it was planned, which the commit finds out.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NOTSUP) => return Ok(()),
        opened => opened.map_err(|error| failed("apply", path, error.into()))?,
    };
    copy_attributes(&replaced, &stat, copy).map_err(|error| Error::Access {
        action: "apply",
        path: path_of(path).to_owned(),
        source: error.into(),
    })
}
