//! The bytes behind a recorded entry, checked against its hash.

use sha2::{Digest, Sha256};

use crate::Error;
use crate::dir::Dir;
use crate::manifest::Entry;
use crate::pack::MAX_PACKED_BYTES;
use crate::prepared::{Baseline, read_limited};

/// The content of a file at the start; none where it was too large to be stored.
pub(crate) fn original(baseline: &Baseline, entry: &Entry) -> Result<Option<Vec<u8>>, Error> {
    let index = baseline.manifest.index_of(entry.path_bytes());
    let place = index.and_then(|index| baseline.packed_at.get(index));
    let Some(place) = place.copied().flatten() else {
        return Ok(None);
    };
    let bytes = baseline.read(place, entry.size());
    match bytes.filter(|bytes| has_hash(bytes, entry)) {
        Some(bytes) => Ok(Some(bytes)),
        None => Err(Error::BaselineDamaged {
            path: entry.path().to_owned(),
        }),
    }
}

/// The content of a file now; none where it is too large to be shown.
pub(crate) fn current(root: &Dir, entry: &Entry) -> Result<Option<Vec<u8>>, Error> {
    if entry.size() > MAX_PACKED_BYTES {
        return Ok(None);
    }
    let changed = || Error::ChangedMeanwhile {
        path: entry.path().to_owned(),
    };
    let opened = root
        .open_parent(entry.path_bytes())
        .and_then(|(dir, name)| dir.open_file(name));
    let (file, stat) = opened.map_err(|_| changed())?;
    let bytes = read_limited(file, &stat, entry.path(), MAX_PACKED_BYTES)?;
    if has_hash(&bytes, entry) {
        Ok(Some(bytes))
    } else {
        Err(changed())
    }
}

fn has_hash(bytes: &[u8], entry: &Entry) -> bool {
    Sha256::digest(bytes).as_slice() == entry.sha256()
}
