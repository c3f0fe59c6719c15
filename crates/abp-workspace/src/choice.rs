//! The changes that an application is asked to make: all of them, or the ones beneath given paths.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::Error;
use crate::change_set::{ChangeSet, ChangedPath, ancestors};
use crate::dir::path_of;
use crate::document::is_normal;
use crate::manifest::Entry;

/// The changes to make, sorted; an empty selection takes everything applicable.
///
/// A selected path takes the change at it and everything beneath it. A file cannot be put where the
/// source still has a file instead of a directory, or a directory without the right to write, so
/// such a change above it is taken along.
pub(crate) fn choose<'a>(
    set: &'a ChangeSet,
    selected: &[PathBuf],
) -> Result<Vec<&'a ChangedPath>, Error> {
    if selected.is_empty() {
        let all = set.changes.iter();
        return Ok(all.filter(|change| set.is_applicable(change)).collect());
    }
    let mut chosen = BTreeSet::new();
    for path in selected {
        let prefix = normal_form(path)?;
        let beneath: Vec<&ChangedPath> = set
            .changes
            .iter()
            .filter(|change| is_beneath(change.path_bytes(), &prefix))
            .collect();
        let applicable: Vec<&[u8]> = beneath
            .iter()
            .filter(|change| set.is_applicable(change))
            .map(|change| change.path_bytes())
            .collect();
        if applicable.is_empty() {
            return Err(Error::UnknownChange {
                path: path.clone(),
                reason: if beneath.is_empty() {
                    "the run did not change it"
                } else {
                    "it is ignored, or no file that can be applied"
                },
            });
        }
        for path in applicable {
            let is_needed =
                |above: &&[u8]| becomes_directory(set, above) || becomes_writable(set, above);
            chosen.extend(ancestors(path).filter(is_needed));
            chosen.insert(path);
        }
    }
    Ok(chosen
        .into_iter()
        .filter_map(|path| set.find(path))
        .collect())
}

/// Whether a run turned a file or a link into a directory.
pub(crate) fn becomes_directory(set: &ChangeSet, path: &[u8]) -> bool {
    set.find(path).is_some_and(|change| {
        let before = change.before.as_ref();
        let after = change.after.as_ref();
        before.is_some_and(|before| !before.is_directory())
            && after.is_some_and(Entry::is_directory)
    })
}

/// Whether a run gave the owner of a directory the right to write in it.
fn becomes_writable(set: &ChangeSet, path: &[u8]) -> bool {
    let is_writable = |entry: &Entry| entry.is_directory() && entry.mode() & 0o200 != 0;
    set.find(path).is_some_and(|change| {
        let before = change.before.as_ref();
        before.is_some_and(|before| before.is_directory() && !is_writable(before))
            && change.after.as_ref().is_some_and(is_writable)
    })
}

fn is_beneath(path: &[u8], prefix: &[u8]) -> bool {
    match path.strip_prefix(prefix) {
        Some(rest) => prefix.is_empty() || rest.is_empty() || rest.starts_with(b"/"),
        None => false,
    }
}

/// A path as the change set writes it: `./a//b/` is `a/b`, and `.` is everything.
fn normal_form(path: &Path) -> Result<Vec<u8>, Error> {
    let bytes = path.as_os_str().as_encoded_bytes();
    let components = bytes
        .split(|&byte| byte == b'/')
        .filter(|component| !matches!(*component, b"" | b"."));
    let joined = components.collect::<Vec<_>>().join(&b'/');
    if bytes.is_empty() || bytes.starts_with(b"/") || !(joined.is_empty() || is_normal(&joined)) {
        return Err(Error::UnknownChange {
            path: path_of(bytes).to_owned(),
            reason: "it is not a path relative to the workspace",
        });
    }
    Ok(joined)
}
