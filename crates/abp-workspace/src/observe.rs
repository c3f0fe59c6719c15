//! Looks at one name to decide which of two known images it is.

use rustix::fs::FileType;
use rustix::io::{Errno, Result};

use crate::dir::Dir;
use crate::ingest::{BUFFER_BYTES, read_through};
use crate::manifest::{Entry, FileKind, SpecialKind};

/// The entry at a name; none where there is nothing. A file is only read where its size is that of
/// an expected one; every other file has an impossible hash, and a FIFO, socket or device is
/// [`SpecialKind::Device`], so that neither equals anything expected.
pub(crate) fn observe(
    dir: &Dir,
    name: &[u8],
    path: &[u8],
    expected: [Option<&Entry>; 2],
) -> Result<Option<Entry>> {
    let Some(stat) = dir.stat_if_exists(name)? else {
        return Ok(None);
    };
    let file_type = FileType::from_raw_mode(stat.st_mode);
    if file_type.is_dir() {
        return Ok(Some(Entry::directory(path, stat.st_mode)));
    }
    if file_type.is_symlink() {
        return Ok(Some(Entry::symlink(path, dir.read_link(name)?)));
    }
    let special = || Entry::special(path, SpecialKind::Device);
    if !file_type.is_file() {
        return Ok(Some(special()));
    }
    let size = u64::try_from(stat.st_size).unwrap_or_default();
    let may_be = |entry: &Entry| entry.kind() == FileKind::File && entry.size() == size;
    if !expected.into_iter().flatten().any(may_be) {
        return Ok(Some(Entry::special(path, SpecialKind::TooLarge)));
    }
    let (file, stat) = match dir.open_file(name) {
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTSUP | Errno::LOOP | Errno::XDEV) => return Ok(Some(special())),
        opened => opened?,
    };
    let read = read_through(&file, &stat, None, &mut vec![0; BUFFER_BYTES]);
    let (size, sha256) = read.map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(Some(Entry::file(path, stat.st_mode, size, sha256)))
}
