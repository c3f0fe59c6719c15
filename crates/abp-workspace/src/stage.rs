//! The directory of one run among the stages.
//!
//! It holds the agent's tree. The original bytes are in files without a name, which only the process
//! of the run can reach and which end with it. A process that uses a stage holds a lock on its
//! directory, which goes with the handle in whatever way the process ends.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::dir::{Dir, FileId};
use crate::pack::PackWriter;
use crate::remove::{clear, gone};
use crate::trash::throw_away;

/// The agent's tree.
pub(crate) const TREE: &str = "tree";
/// The layer of an overlay that hides names of the source.
pub(crate) const MASK: &str = "mask";
/// The layers of lent directories, numbered.
pub(crate) const LENT: &str = "lent";
/// The layers of a check of the result, numbered.
pub(crate) const CHECK: &str = "check";
/// The kernel's own directory of an overlay.
pub(crate) const WORK: &str = "work";

/// A lock is tried this often: another process may only be looking whether the stage is in use, or
/// a child that is being started may hold a copy of a handle that was closed here.
const LOCK_ATTEMPTS: u32 = 20;
const LOCK_PAUSE: Duration = Duration::from_millis(2);

/// A stage that this process uses.
#[derive(Debug)]
pub(crate) struct Stage {
    parent: Dir,
    name: String,
    pub(crate) dir: Dir,
    pub(crate) path: PathBuf,
}

/// A stage, as it is found among the others.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StageInfo {
    /// The run it was made for.
    pub run_id: Uuid,
    /// Whether the run worked on a copy.
    pub staged: bool,
    /// Whether some process uses it now.
    pub in_use: bool,
}

/// A stage of an earlier run that this process has locked, so that it can be applied or discarded.
#[derive(Debug)]
pub struct ClaimedStage {
    stage: Stage,
    tree: PathBuf,
}

impl ClaimedStage {
    pub(crate) fn new(stage: Stage) -> Self {
        let tree = stage.path.join(TREE);
        Self { stage, tree }
    }

    /// The directory the agent worked in, for [`Application::begin`](crate::Application::begin).
    #[must_use]
    pub fn tree(&self) -> &Path {
        &self.tree
    }

    /// Moves the stage to the trash.
    ///
    /// # Errors
    /// Fails where it cannot be moved.
    pub fn discard(self) -> Result<(), Error> {
        self.stage.discard()
    }
}

impl Stage {
    pub(crate) fn create(stages_dir: &Path, run_id: Uuid) -> Result<Self, Error> {
        let failed = |source: io::Error| stages_error(stages_dir, source);
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(stages_dir)
            .map_err(failed)?;
        let parent = Dir::open_operator_path(stages_dir).map_err(|error| failed(error.into()))?;
        let name = run_id.to_string();
        let path = stages_dir.canonicalize().map_err(failed)?.join(&name);
        let dir = parent.create_dir(name.as_bytes(), 0o700);
        let stage = Self {
            dir: dir.map_err(|error| stages_error(&path, error.into()))?,
            parent,
            name,
            path,
        };
        if !stage.claim()? {
            return Err(stage.failed(Errno::STALE));
        }
        Ok(stage)
    }

    /// Locks the stage that an earlier process left.
    pub(crate) fn reopen(stages_dir: &Path, run_id: Uuid) -> Result<Self, Error> {
        let gone = || Error::NoStage { run_id };
        let failed = |source: io::Error| stages_error(stages_dir, source);
        let parent = match Dir::open_operator_path(stages_dir) {
            Err(Errno::NOENT) => return Err(gone()),
            opened => opened.map_err(|error| failed(error.into()))?,
        };
        let name = run_id.to_string();
        let dir = match parent.open_dir(name.as_bytes()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(gone()),
            opened => opened.map_err(|error| failed(error.into()))?,
        };
        let path = stages_dir.canonicalize().map_err(failed)?;
        let stage = Self {
            parent,
            path: path.join(&name),
            name,
            dir,
        };
        if stage.claim()? {
            Ok(stage)
        } else {
            Err(gone())
        }
    }

    /// Locks the stage; false where it was removed before that.
    fn claim(&self) -> Result<bool, Error> {
        if !lock(&self.dir).map_err(|error| self.failed(error))? {
            return Err(Error::StageInUse {
                path: self.path.clone(),
            });
        }
        self.has_its_name()
    }

    /// Whether the name of the stage still leads to it.
    fn has_its_name(&self) -> Result<bool, Error> {
        is_named(&self.parent, self.name.as_bytes(), &self.dir).map_err(|error| self.failed(error))
    }

    /// Makes sure that the agent's tree and the stage itself still have their names: otherwise
    /// another directory would pass for the verified one later.
    pub(crate) fn check_names(&self, tree: &Dir) -> Result<(), Error> {
        let has_tree = is_named(&self.dir, TREE.as_bytes(), tree);
        let replaced = if !self.has_its_name()? {
            self.path.clone()
        } else if !has_tree.map_err(|error| self.failed(error))? {
            self.path.join(TREE)
        } else {
            return Ok(());
        };
        Err(Error::StageReplaced { path: replaced })
    }

    /// The directory that holds all stages, which may lie inside a source.
    pub(crate) fn stages_id(&self) -> Result<FileId, Error> {
        let stat = self.parent.stat_self();
        Ok(FileId::of(&stat.map_err(|error| self.failed(error))?))
    }

    pub(crate) fn create_tree(&self) -> Result<Dir, Error> {
        self.create_dir(TREE)
    }

    /// Creates a directory beside the agent's tree.
    pub(crate) fn create_dir(&self, name: &str) -> Result<Dir, Error> {
        let made = self.dir.create_dir(name.as_bytes(), 0o700);
        made.map_err(|error| self.failed(error))
    }

    /// Creates a pack without a name: an agent cannot open it, and it ends with the process.
    pub(crate) fn create_pack(&self, number: u64) -> Result<PackWriter, Error> {
        let file = self.create_nameless(&format!("baseline-{number}.pack"))?;
        Ok(PackWriter::new(number, file))
    }

    /// Creates a file and takes its name away.
    pub(crate) fn create_nameless(&self, name: &str) -> Result<File, Error> {
        let created = self.dir.create_file(name.as_bytes(), 0o600);
        let nameless = created.and_then(|file| {
            self.dir.remove_file(name.as_bytes())?;
            Ok(file)
        });
        nameless.map_err(|error| self.failed(error))
    }

    /// Flushes the stage, which survives a loss of power from then on.
    pub(crate) fn flush(&self) -> Result<(), Error> {
        rustix::fs::syncfs(&self.dir).map_err(|error| self.failed(error))
    }

    /// The bytes that may be written before the disk counts as full: a twentieth of it, at most
    /// 256 MiB, stays free for other programs.
    pub(crate) fn free_space(&self) -> Result<u64, Error> {
        const MAX_RESERVE: u64 = 256 << 20;
        let disk = rustix::fs::fstatvfs(&self.dir).map_err(|error| self.failed(error))?;
        let reserve = disk.f_blocks.saturating_mul(disk.f_frsize) / 20;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(reserve.min(MAX_RESERVE)))
    }

    /// Deletes half a stage at once, as its disk may be full.
    pub(crate) fn delete(&self) -> Result<(), Error> {
        let deleted =
            clear(&self.dir, None).and_then(|_| gone(self.parent.remove_dir(self.name.as_bytes())));
        deleted.map_err(|error| Error::Remove {
            path: self.path.clone(),
            source: error.into(),
        })
    }

    /// Empties the stage, to be filled in another way.
    pub(crate) fn empty(&self) -> Result<(), Error> {
        let emptied = clear(&self.dir, None);
        emptied.map(drop).map_err(|error| self.failed(error))
    }

    /// Moves the stage to the trash in one step, so that half of it never passes for a result.
    pub(crate) fn discard(&self) -> Result<(), Error> {
        let failed = |error: Errno| Error::Remove {
            path: self.path.clone(),
            source: error.into(),
        };
        let is_own = self.has_its_name()?;
        // A later attempt of the same run may have made its own stage under the name.
        if is_own || !self.is_name_in_use().map_err(failed)? {
            throw_away(&self.parent, self.name.as_bytes()).map_err(failed)?;
        }
        if is_own {
            return Ok(());
        }
        // The agent moved it elsewhere: at least its content is removed, by the handle.
        clear(&self.dir, None).map_err(failed)?;
        Err(Error::StageReplaced {
            path: self.path.clone(),
        })
    }

    /// Whether the name leads to another directory, which another process uses.
    fn is_name_in_use(&self) -> rustix::io::Result<bool> {
        match self.parent.open_dir(self.name.as_bytes()) {
            Ok(other) => Ok(!lock(&other)?),
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => Ok(false),
            Err(error) => Err(error),
        }
    }

    pub(crate) fn failed(&self, error: Errno) -> Error {
        stages_error(&self.path, error.into())
    }
}

/// Moves the stage of a run to the trash, whether or not a process uses it.
pub(crate) fn evict(stages_dir: &Path, run_id: Uuid) -> Result<(), Error> {
    let parent = match Dir::open_operator_path(stages_dir) {
        Err(Errno::NOENT) => return Ok(()),
        opened => opened.map_err(|error| stages_error(stages_dir, error.into()))?,
    };
    let name = run_id.to_string();
    throw_away(&parent, name.as_bytes()).map_err(|error| Error::Remove {
        path: stages_dir.join(&name),
        source: error.into(),
    })
}

/// Moves to the trash every stage that no process uses and `keep` does not name.
pub(crate) fn sweep(stages_dir: &Path, keep: impl Fn(Uuid) -> bool) -> Result<usize, Error> {
    let Some((parent, stages)) = list_names(stages_dir)? else {
        return Ok(0);
    };
    let mut moved = 0;
    for (run_id, name) in stages.into_iter().filter(|(run_id, _)| !keep(*run_id)) {
        // Gone or replaced by a link in the meantime: not a stage.
        let Ok(dir) = parent.open_dir(name.as_bytes()) else {
            continue;
        };
        let failed = |error: Errno| Error::Remove {
            path: stages_dir.join(run_id.to_string()),
            source: error.into(),
        };
        if !lock(&dir).map_err(failed)?
            || !is_named(&parent, name.as_bytes(), &dir).map_err(failed)?
        {
            continue;
        }
        throw_away(&parent, name.as_bytes()).map_err(failed)?;
        moved += 1;
    }
    Ok(moved)
}

/// Every stage, sorted by run.
pub(crate) fn list(stages_dir: &Path) -> Result<Vec<StageInfo>, Error> {
    let Some((parent, stages)) = list_names(stages_dir)? else {
        return Ok(Vec::new());
    };
    let describe = |(run_id, name): (Uuid, String)| {
        let dir = parent.open_dir(name.as_bytes()).ok()?;
        Some(StageInfo {
            run_id,
            staged: dir.stat(TREE.as_bytes()).is_ok(),
            in_use: !lock(&dir).unwrap_or(false),
        })
    };
    Ok(stages.into_iter().filter_map(describe).collect())
}

/// A run, and the name of its stage.
type StageName = (Uuid, String);

/// The names of all stages, in the directory that holds them.
fn list_names(stages_dir: &Path) -> Result<Option<(Dir, Vec<StageName>)>, Error> {
    let failed = |error: Errno| stages_error(stages_dir, error.into());
    let parent = match Dir::open_operator_path(stages_dir) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let entries = parent.entries().map_err(failed)?.into_iter();
    let stages = entries
        .filter(|entry| entry.file_type.is_dir())
        .filter_map(|entry| {
            let name = String::from_utf8(entry.name).ok()?;
            Some((Uuid::parse_str(&name).ok()?, name))
        });
    Ok(Some((parent, stages.collect())))
}

/// Whether a name leads to an open directory.
fn is_named(parent: &Dir, name: &[u8], dir: &Dir) -> Result<bool, Errno> {
    let named = parent.stat_if_exists(name)?;
    let own = FileId::of(&dir.stat_self()?);
    Ok(named.is_some_and(|named| FileId::of(&named) == own))
}

/// Locks a directory for as long as the handle is open; false where another process has it.
pub(crate) fn lock(dir: &Dir) -> Result<bool, Errno> {
    for attempt in 1..=LOCK_ATTEMPTS {
        match rustix::fs::flock(dir, FlockOperation::NonBlockingLockExclusive) {
            Err(Errno::AGAIN) if attempt < LOCK_ATTEMPTS => std::thread::sleep(LOCK_PAUSE),
            Err(Errno::AGAIN) => return Ok(false),
            locked => return locked.map(|()| true),
        }
    }
    Ok(false)
}

fn stages_error(path: &Path, source: io::Error) -> Error {
    Error::StageDirectory {
        path: path.to_owned(),
        source,
    }
}
