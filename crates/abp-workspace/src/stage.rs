//! The directory of one run among the stages: the agent's tree, and beside it what the host keeps.
//!
//! Whoever uses a stage holds a lock on its directory, which goes with the handle in whatever way
//! the process ends.

use std::fs::{DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use uuid::Uuid;

use crate::Error;
use crate::dir::{Dir, FileId, path_of};
use crate::pack::{Pack, PackWriter};
use crate::record::{Damage, Head, MAX_HEAD_BYTES, MAX_RECORD_BYTES, Record};
use crate::remove::remove_tree;

/// The agent's tree.
pub(crate) const TREE: &str = "tree";
const RECORD: &[u8] = b"record";
/// Marks a stage that nobody uses any more and that is kept all the same.
const KEPT: &[u8] = b"kept";

/// A lock is tried this often: somebody may only be looking whether the stage is in use, or a child
/// that is being started may hold a copy of a handle that was closed here.
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
    /// The directory the run was given; none where the stage's record is missing or damaged, as it
    /// is while a stage is being made.
    pub source: Option<PathBuf>,
    /// Whether the run worked on a copy.
    pub staged: bool,
    /// Whether it stays until somebody decides about it.
    pub kept: bool,
    /// Whether some process uses it now.
    pub in_use: bool,
}

impl Stage {
    pub(crate) fn create(stages_dir: &Path, run_id: Uuid) -> Result<Self, Error> {
        let failed = |source: io::Error| Error::StageDirectory {
            path: stages_dir.to_owned(),
            source,
        };
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
            dir: dir.map_err(|error| Error::StageDirectory {
                path: path.clone(),
                source: error.into(),
            })?,
            parent,
            name,
            path,
        };
        if !stage.claim()? {
            return Err(stage.failed(Errno::STALE));
        }
        Ok(stage)
    }

    /// Takes up a stage that an earlier process left.
    pub(crate) fn reopen(stages_dir: &Path, run_id: Uuid) -> Result<Self, Error> {
        let gone = || Error::NoStage { run_id };
        let failed = |error: Errno| Error::StageDirectory {
            path: stages_dir.to_owned(),
            source: error.into(),
        };
        let parent = match Dir::open_operator_path(stages_dir) {
            Err(Errno::NOENT) => return Err(gone()),
            opened => opened.map_err(failed)?,
        };
        let name = run_id.to_string();
        let dir = match parent.open_dir(name.as_bytes()) {
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => return Err(gone()),
            opened => opened.map_err(failed)?,
        };
        let path = stages_dir.canonicalize();
        let path = path.map_err(|source| Error::StageDirectory {
            path: stages_dir.to_owned(),
            source,
        })?;
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
        let found = self.parent.stat_if_exists(self.name.as_bytes());
        let found = found.map_err(|error| self.failed(error))?;
        let own = self.dir.stat_self().map_err(|error| self.failed(error))?;
        Ok(found.is_some_and(|found| FileId::of(&found) == FileId::of(&own)))
    }

    /// The directory that holds all stages, which may lie inside a source.
    pub(crate) fn stages_id(&self) -> Result<FileId, Error> {
        let stat = self.parent.stat_self();
        Ok(FileId::of(&stat.map_err(|error| self.failed(error))?))
    }

    pub(crate) fn create_tree(&self) -> Result<Dir, Error> {
        let tree = self.dir.create_dir(TREE.as_bytes(), 0o700);
        tree.map_err(|error| self.failed(error))
    }

    pub(crate) fn open_tree(&self) -> Result<Dir, Error> {
        let tree = self.dir.open_dir(TREE.as_bytes());
        tree.map_err(|error| self.failed(error))
    }

    pub(crate) fn create_pack(&self, number: u64) -> Result<PackWriter, Error> {
        let file = self.dir.create_file(pack_name(number).as_bytes(), 0o600);
        Ok(PackWriter::new(
            number,
            file.map_err(|error| self.failed(error))?,
        ))
    }

    pub(crate) fn open_packs(&self, count: u64) -> Result<Vec<Pack>, Error> {
        let open = |number| {
            let opened = self.dir.open_file(pack_name(number).as_bytes());
            let (file, _) = opened.map_err(|error| self.failed(error))?;
            Ok(Pack::new(file))
        };
        (0..count).map(open).collect()
    }

    pub(crate) fn write_record(&self, record: &Record) -> Result<(), Error> {
        let file = self.dir.create_file(RECORD, 0o600);
        let written = file
            .map_err(io::Error::from)
            .and_then(|mut file| file.write_all(&record.encode()));
        written.map_err(|source| Error::StageDirectory {
            path: self.path.clone(),
            source,
        })
    }

    pub(crate) fn read_record(&self) -> Result<Record, Error> {
        let bytes = match record_bytes(&self.dir, MAX_RECORD_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(self.damaged(Damage("there is none")));
            }
            Err(source) => {
                return Err(Error::StageDirectory {
                    path: self.path.clone(),
                    source,
                });
            }
        };
        Record::decode(&bytes).map_err(|damage| self.damaged(damage))
    }

    pub(crate) fn damaged(&self, damage: Damage) -> Error {
        Error::StageDamaged {
            path: self.path.clone(),
            reason: damage.0,
        }
    }

    /// Keeps the stage from being swept. It survives a loss of power from then on.
    pub(crate) fn keep(&self) -> Result<(), Error> {
        match self.dir.create_file(KEPT, 0o600) {
            Ok(_) | Err(Errno::EXIST) => {}
            Err(error) => return Err(self.failed(error)),
        }
        rustix::fs::syncfs(&self.dir).map_err(|error| self.failed(error))
    }

    /// What may be written before the disk is called full: a twentieth, at most 256 MiB, stays free
    /// for everybody else.
    pub(crate) fn free_space(&self) -> Result<u64, Error> {
        const MAX_RESERVE: u64 = 256 << 20;
        let disk = rustix::fs::fstatvfs(&self.dir).map_err(|error| self.failed(error))?;
        let reserve = disk.f_blocks.saturating_mul(disk.f_frsize) / 20;
        let free = disk.f_bavail.saturating_mul(disk.f_frsize);
        Ok(free.saturating_sub(reserve.min(MAX_RESERVE)))
    }

    /// Deletes the stage. From the first step on nobody can take it up again, so half of it never
    /// passes for a result; what a crash leaves is swept.
    pub(crate) fn remove(&self) -> Result<(), Error> {
        let unmarked =
            [KEPT, RECORD]
                .into_iter()
                .try_for_each(|name| match self.dir.remove_file(name) {
                    Err(Errno::NOENT) => Ok(()),
                    removed => removed,
                });
        unmarked
            .and_then(|()| remove_tree(&self.parent, self.name.as_bytes(), &self.dir))
            .map_err(|error| Error::Remove {
                path: self.path.clone(),
                source: error.into(),
            })
    }

    pub(crate) fn failed(&self, error: Errno) -> Error {
        Error::StageDirectory {
            path: self.path.clone(),
            source: error.into(),
        }
    }
}

/// Removes the stages that nobody uses and nobody kept.
pub(crate) fn sweep(stages_dir: &Path) -> Result<usize, Error> {
    let Some((parent, names)) = all(stages_dir)? else {
        return Ok(0);
    };
    let mut removed = 0;
    for name in names {
        // Gone or replaced by a link in the meantime: not a stage.
        let Ok(dir) = parent.open_dir(name.as_bytes()) else {
            continue;
        };
        let in_use = !lock(&dir).unwrap_or(false);
        if in_use || dir.stat(KEPT).is_ok() {
            continue;
        }
        remove_tree(&parent, name.as_bytes(), &dir).map_err(|error| Error::Remove {
            path: stages_dir.join(name),
            source: error.into(),
        })?;
        removed += 1;
    }
    Ok(removed)
}

/// Every stage there is, sorted by run.
pub(crate) fn list(stages_dir: &Path) -> Result<Vec<StageInfo>, Error> {
    let Some((parent, names)) = all(stages_dir)? else {
        return Ok(Vec::new());
    };
    let describe = |name: String| {
        let dir = parent.open_dir(name.as_bytes()).ok()?;
        let head = record_bytes(&dir, MAX_HEAD_BYTES)
            .ok()
            .and_then(|bytes| Head::decode(&bytes).ok());
        Some(StageInfo {
            run_id: Uuid::parse_str(&name).ok()?,
            staged: head
                .as_ref()
                .map_or_else(|| dir.stat(TREE.as_bytes()).is_ok(), |head| head.staged),
            source: head.map(|head| path_of(&head.source).to_owned()),
            kept: dir.stat(KEPT).is_ok(),
            in_use: !lock(&dir).unwrap_or(false),
        })
    };
    Ok(names.into_iter().filter_map(describe).collect())
}

/// The names of all stages, in the directory that holds them.
fn all(stages_dir: &Path) -> Result<Option<(Dir, Vec<String>)>, Error> {
    let failed = |error: Errno| Error::StageDirectory {
        path: stages_dir.to_owned(),
        source: error.into(),
    };
    let parent = match Dir::open_operator_path(stages_dir) {
        Err(Errno::NOENT) => return Ok(None),
        opened => opened.map_err(failed)?,
    };
    let entries = parent.entries().map_err(failed)?.into_iter();
    let stages = entries.filter(|entry| entry.file_type.is_dir());
    let names = stages.filter_map(|entry| String::from_utf8(entry.name).ok());
    let names = names.filter(|name| Uuid::parse_str(name).is_ok()).collect();
    Ok(Some((parent, names)))
}

/// Locks a directory for as long as the handle is open; false where somebody else has it.
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

fn record_bytes(dir: &Dir, max: u64) -> io::Result<Vec<u8>> {
    let (file, _): (File, _) = dir.open_file(RECORD)?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn pack_name(number: u64) -> String {
    format!("baseline-{number}.pack")
}
