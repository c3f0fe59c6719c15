//! Empties a tree by handles alone: nothing outside it can be reached, whatever links, depths and
//! permissions an agent left in it.

use std::os::fd::AsRawFd;
use std::time::Instant;

use rustix::fs::Mode;
use rustix::io::{Errno, Result};

use crate::dir::Dir;

/// Bounds the work where a process keeps adding files.
const MAX_PASSES: usize = 1_000_000;

/// Empties a directory; false where the deadline came first, and the rest is left for another time.
///
/// Directories that are not empty are moved up to it before they are emptied in turn, so that a tree
/// of any depth needs two handles.
pub(crate) fn clear(top: &Dir, deadline: Option<Instant>) -> Result<bool> {
    let is_over = || deadline.is_some_and(|deadline| Instant::now() >= deadline);
    let mut moved = 0_u64;
    for _ in 0..MAX_PASSES {
        let entries = top.entries()?;
        if entries.is_empty() {
            return Ok(true);
        }
        for entry in entries {
            if is_over() {
                return Ok(false);
            }
            if !entry.file_type.is_dir() {
                gone(top.remove_file(&entry.name))?;
            } else if gone(top.remove_dir(&entry.name)).is_err() {
                let child = match open_for_removal(top, &entry.name) {
                    Err(Errno::NOENT) => continue,
                    opened => opened?,
                };
                if !empty_into(&child, top, &mut moved, &is_over)? {
                    return Ok(false);
                }
                match gone(top.remove_dir(&entry.name)) {
                    Err(Errno::NOTEMPTY) => {}
                    removed => removed?,
                }
            }
        }
    }
    Err(Errno::NOTEMPTY)
}

/// Removes the files of a directory and moves its directories up; false where the time is over.
fn empty_into(dir: &Dir, top: &Dir, moved: &mut u64, is_over: &impl Fn() -> bool) -> Result<bool> {
    for entry in dir.entries()? {
        if is_over() {
            return Ok(false);
        }
        if !entry.file_type.is_dir() {
            gone(dir.remove_file(&entry.name))?;
        } else if gone(dir.remove_dir(&entry.name)).is_err() {
            // Its own write permission is needed to move it.
            drop(open_for_removal(dir, &entry.name)?);
            move_up(dir, &entry.name, top, moved)?;
        }
    }
    Ok(true)
}

fn move_up(dir: &Dir, name: &[u8], top: &Dir, moved: &mut u64) -> Result<()> {
    loop {
        *moved += 1;
        let free = format!(".removing-{moved}");
        match dir.rename_to_free(name, top, free.as_bytes()) {
            // Left by an earlier attempt.
            Err(Errno::EXIST) => {}
            renamed => return gone(renamed),
        }
    }
}

/// Opens a directory, giving its owner every right first.
pub(crate) fn open_for_removal(dir: &Dir, name: &[u8]) -> Result<Dir> {
    let opened = match dir.open_dir(name) {
        Err(Errno::ACCESS) => {
            // The name in /proc leads to exactly the directory behind the handle.
            let handle = dir.name_dir(name)?;
            let path = format!("/proc/self/fd/{}", handle.as_raw_fd());
            rustix::fs::chmod(path, Mode::RWXU)?;
            dir.open_dir(name)?
        }
        opened => opened?,
    };
    opened.set_mode(0o700)?;
    Ok(opened)
}

/// Takes a name that is already gone for removed.
pub(crate) fn gone(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
