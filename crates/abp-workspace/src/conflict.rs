//! Whether the source still is what a run started with, wherever the run changed something.

use rustix::fs::FileType;
use rustix::io::Errno;

use crate::Error;
use crate::apply::{failed, read};
use crate::changes::Difference;
use crate::dir::{Dir, path_of};
use crate::ingest::BUFFER_BYTES;
use crate::manifest::{Entry, FileKind, Manifest};
use crate::selection::push_component;

/// Compares every touched path of the source with the baseline.
pub(crate) fn check_source(
    source: &Dir,
    baseline: &Manifest,
    touched: &[Difference<'_>],
) -> Result<(), Error> {
    let mut buffer = vec![0; BUFFER_BYTES];
    let mut paths = Vec::new();
    for difference in touched {
        let path = difference.path();
        let expected = match source.open_parent(path) {
            Ok((parent, name)) => is_as_before(&parent, name, difference, baseline, &mut buffer)?,
            // No directory to hold it, so nothing is there.
            Err(Errno::NOENT) => difference.before.is_none(),
            // A file or a link is on the way, which is right only where the run puts a directory in
            // its place.
            Err(Errno::NOTDIR | Errno::LOOP) => {
                difference.before.is_none() && becomes_directory(touched, path)
            }
            Err(error) => return Err(unreadable(path, error)),
        };
        if !expected {
            paths.push(path_of(path).to_owned());
        }
    }
    if paths.is_empty() {
        Ok(())
    } else {
        Err(Error::Conflict { paths })
    }
}

/// Whether a directory above `path` takes the place of something else.
fn becomes_directory(touched: &[Difference<'_>], path: &[u8]) -> bool {
    let slashes = path.iter().enumerate().filter(|&(_, &byte)| byte == b'/');
    slashes.filter_map(|(at, _)| path.get(..at)).any(|above| {
        let found = touched.binary_search_by(|difference| difference.path().cmp(above));
        found
            .ok()
            .and_then(|index| touched.get(index))
            .is_some_and(|difference| {
                let kind = |entry: Option<&Entry>| entry.map(Entry::kind);
                difference.before.is_some()
                    && kind(difference.before) != Some(FileKind::Directory)
                    && kind(difference.after) == Some(FileKind::Directory)
            })
    })
}

/// Whether the source has at a name what the run started with.
fn is_as_before(
    parent: &Dir,
    name: &[u8],
    difference: &Difference<'_>,
    baseline: &Manifest,
    buffer: &mut [u8],
) -> Result<bool, Error> {
    let path = difference.path();
    let stat = parent
        .stat_if_exists(name)
        .map_err(|error| unreadable(path, error))?;
    let (Some(before), Some(stat)) = (difference.before, &stat) else {
        let new_dir = difference
            .after
            .is_some_and(|entry| entry.kind() == FileKind::Directory);
        let both_dirs = new_dir
            && stat
                .as_ref()
                .is_some_and(|stat| FileType::from_raw_mode(stat.st_mode).is_dir());
        return Ok(both_dirs || (difference.before.is_none() && stat.is_none()));
    };
    let found = FileType::from_raw_mode(stat.st_mode);
    Ok(match before.kind() {
        FileKind::Directory
            if difference
                .after
                .is_some_and(|after| after.kind() != FileKind::Directory) =>
        {
            found.is_dir() && holds_nothing_else(parent, name, path, baseline)?
        }
        FileKind::Directory => found.is_dir(),
        FileKind::Symlink => {
            found.is_symlink()
                && parent
                    .read_link(name)
                    .map_err(|error| unreadable(path, error))?
                    == before.target_bytes()
        }
        FileKind::File => {
            found.is_file()
                && stat.st_mode & 0o777 == before.mode() & 0o777
                && has_content(parent, name, before, buffer)?
        }
        FileKind::Special(_) => false,
    })
}

/// Whether a directory holds only what was staged from it, so that it can be removed.
fn holds_nothing_else(
    parent: &Dir,
    name: &[u8],
    path: &[u8],
    baseline: &Manifest,
) -> Result<bool, Error> {
    let unreadable = |error| unreadable(path, error);
    let dir = parent.open_dir(name).map_err(unreadable)?;
    for entry in dir.entries().map_err(unreadable)? {
        let mut beneath = path.to_vec();
        push_component(&mut beneath, &entry.name);
        let staged = baseline.index_of(&beneath).is_some();
        if !staged
            || (entry.file_type.is_dir()
                && !holds_nothing_else(&dir, &entry.name, &beneath, baseline)?)
        {
            return Ok(false);
        }
    }
    Ok(true)
}

fn has_content(
    parent: &Dir,
    name: &[u8],
    before: &Entry,
    buffer: &mut [u8],
) -> Result<bool, Error> {
    let path = before.path_bytes();
    let (file, stat) = match parent.open_file(name) {
        Ok(opened) => opened,
        Err(Errno::NOTSUP | Errno::LOOP | Errno::NOENT) => return Ok(false),
        Err(error) => return Err(unreadable(path, error)),
    };
    if u64::try_from(stat.st_size).ok() != Some(before.size()) {
        return Ok(false);
    }
    let ingested = read(&file, &stat, None, path, buffer)?;
    Ok(ingested == (before.size(), *before.sha256()))
}

fn unreadable(path: &[u8], error: Errno) -> Error {
    failed("compare", path, error.into())
}
