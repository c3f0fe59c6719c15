//! The mask of an overlay stage: the layer between the changes and the source that hides the names which
//! do not belong to the workspace.
//!
//! A directory of the mask that also is in the source lends the merged directory its permission bits and its
//! group, so both are those of the source.

use std::collections::BTreeSet;

use rustix::fs::{Gid, Mode};
use rustix::io::{Errno, Result};

use crate::change_set::ancestors;
use crate::dir::Dir;
use crate::layers::make_whiteout;
use crate::prepared::split;

/// The most names that are masked one by one; with more of them a copy is quicker.
pub(crate) const MAX_MASKED: usize = 4_096;

/// Hides names of the source. `shown` are directories that need plain permission bits, whether or not
/// anything is hidden beneath them.
pub(crate) fn write_mask(
    mask: &Dir,
    source: &Dir,
    hidden: &BTreeSet<Vec<u8>>,
    shown: &[Vec<u8>],
) -> Result<()> {
    let mut directories: BTreeSet<&[u8]> = shown.iter().map(Vec::as_slice).collect();
    for path in hidden.iter().chain(shown) {
        directories.extend(ancestors(path));
    }
    // In the order of their names, a directory comes before those beneath it.
    for directory in &directories {
        let (parent, name) = mask.open_parent(directory)?;
        match rustix::fs::mkdirat(&parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
    }
    for path in hidden {
        let (parent, name) = mask.open_parent(path)?;
        make_whiteout(&parent, name)?;
    }
    for directory in directories.iter().rev() {
        let stat = source.open_dir(directory)?.stat_self()?;
        let own = mask.open_dir(directory)?;
        if own.stat_self()?.st_gid != stat.st_gid {
            rustix::fs::fchown(&own, None, Some(Gid::from_raw(stat.st_gid)))?;
        }
        own.set_mode(stat.st_mode & 0o777)?;
    }
    Ok(())
}

/// The names of a list that no other of it lies above.
pub(crate) fn topmost(paths: &BTreeSet<Vec<u8>>) -> BTreeSet<Vec<u8>> {
    let is_beneath = |path: &[u8]| ancestors(path).any(|above| paths.contains(above));
    paths
        .iter()
        .filter(|path| !is_beneath(path))
        .cloned()
        .collect()
}

/// Whether a path can be masked: the directory above it is there.
pub(crate) fn has_parent(source: &Dir, path: &[u8]) -> bool {
    let (directory, _) = split(path);
    directory.is_empty() || source.open_dir(directory).is_ok()
}
