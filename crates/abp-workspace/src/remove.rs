//! Removes a tree by handles alone: nothing outside it can be reached, whatever links, depths and
//! permissions the agent left in it.

use std::os::fd::AsRawFd;

use rustix::fs::Mode;
use rustix::io::{Errno, Result};

use crate::dir::Dir;

/// Bounds the work where something keeps adding files.
const MAX_PASSES: usize = 1_000_000;

/// Empties `dir` and removes its name from `parent`.
pub(crate) fn remove_tree(parent: &Dir, name: &[u8], dir: &Dir) -> Result<()> {
    clear(dir)?;
    match parent.remove_dir(name) {
        // Somebody put a link or a file in its place: only that is removed.
        Err(Errno::NOTDIR) => parent.remove_file(name),
        Err(Errno::NOENT) => Ok(()),
        removed => removed,
    }
}

/// Empties a directory. Directories that are not empty are moved up to it before they are emptied
/// in turn, so that a tree of any depth needs two handles.
fn clear(top: &Dir) -> Result<()> {
    let mut moved = 0_u64;
    for _ in 0..MAX_PASSES {
        let entries = top.entries()?;
        if entries.is_empty() {
            return Ok(());
        }
        for entry in entries {
            if !entry.file_type.is_dir() {
                gone(top.remove_file(&entry.name))?;
            } else if gone(top.remove_dir(&entry.name)).is_err() {
                let child = open_for_removal(top, &entry.name)?;
                empty_into(&child, top, &mut moved)?;
                match gone(top.remove_dir(&entry.name)) {
                    Err(Errno::NOTEMPTY) => {}
                    removed => removed?,
                }
            }
        }
    }
    Err(Errno::NOTEMPTY)
}

fn empty_into(dir: &Dir, top: &Dir, moved: &mut u64) -> Result<()> {
    for entry in dir.entries()? {
        if !entry.file_type.is_dir() {
            gone(dir.remove_file(&entry.name))?;
        } else if gone(dir.remove_dir(&entry.name)).is_err() {
            // Its own write permission is needed to move it.
            drop(open_for_removal(dir, &entry.name)?);
            *moved += 1;
            dir.rename(&entry.name, top, format!(".removing-{moved}").as_bytes())?;
        }
    }
    Ok(())
}

fn open_for_removal(dir: &Dir, name: &[u8]) -> Result<Dir> {
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

fn gone(result: Result<()>) -> Result<()> {
    match result {
        Err(Errno::NOENT) => Ok(()),
        other => other,
    }
}
