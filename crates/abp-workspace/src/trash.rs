//! Discarded stages, which are renamed at once and deleted later.
//!
//! Deleting a large tree takes seconds, and a command that decides about a result should not wait
//! for it. The trash is a directory beside the stages, on the same file system, so that throwing a
//! stage away is one rename.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::io::{Errno, Result};
use uuid::Uuid;

use crate::Error;
use crate::dir::Dir;
use crate::remove::{clear, gone, open_for_removal};
use crate::stage::lock;

const TRASH: &[u8] = b".trash";

/// The outcome of a sweep of the trash.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrashSweep {
    /// Discarded stages that are deleted now.
    pub removed: u64,
    /// Discarded stages that are still there: the time was over, or another process deletes them.
    pub remaining: u64,
}

/// Moves a name to the trash, whatever it stands for. Links are not followed.
pub(crate) fn throw_away(stages: &Dir, name: &[u8]) -> Result<()> {
    let trash = match stages.create_dir(TRASH, 0o700) {
        Err(Errno::EXIST) => stages.open_dir(TRASH)?,
        created => created?,
    };
    let mut discarded = name.to_vec();
    discarded.extend_from_slice(format!(".{}", Uuid::new_v4().simple()).as_bytes());
    match stages.rename_to_free(name, &trash, &discarded) {
        // Another process was faster.
        Err(Errno::NOENT) => Ok(()),
        renamed => renamed,
    }
}

/// Deletes discarded stages until the time is over.
pub(crate) fn sweep(stages_dir: &Path, time: Duration) -> std::result::Result<TrashSweep, Error> {
    let failed = |error: Errno| Error::Remove {
        path: stages_dir.join(".trash"),
        source: error.into(),
    };
    let deadline = Instant::now().checked_add(time);
    let stages = match Dir::open_operator_path(stages_dir) {
        Err(Errno::NOENT) => return Ok(TrashSweep::default()),
        opened => opened.map_err(failed)?,
    };
    let trash = match stages.open_dir(TRASH) {
        Err(Errno::NOENT) => return Ok(TrashSweep::default()),
        opened => opened.map_err(failed)?,
    };
    let mut swept = TrashSweep::default();
    for entry in trash.entries().map_err(failed)? {
        let is_over = deadline.is_some_and(|deadline| Instant::now() >= deadline);
        let is_gone = if is_over {
            false
        } else if entry.file_type.is_dir() {
            delete(&trash, &entry.name, deadline).map_err(failed)?
        } else {
            gone(trash.remove_file(&entry.name)).map_err(failed)?;
            true
        };
        if is_gone {
            swept.removed += 1;
        } else {
            swept.remaining += 1;
        }
    }
    Ok(swept)
}

/// Deletes one discarded stage; false where the time is over or another process is at it.
fn delete(trash: &Dir, name: &[u8], deadline: Option<Instant>) -> Result<bool> {
    let dir = match open_for_removal(trash, name) {
        Err(Errno::NOENT) => return Ok(true),
        opened => opened?,
    };
    if !lock(&dir)? {
        return Ok(false);
    }
    match clear(&dir, deadline) {
        // Another process was done with it before it was locked here.
        Err(Errno::NOENT) => {}
        cleared => {
            if !cleared? {
                return Ok(false);
            }
        }
    }
    gone(trash.remove_dir(name))?;
    Ok(true)
}
