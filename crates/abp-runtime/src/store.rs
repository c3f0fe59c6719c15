//! Receipts as files: copies for people of what the store holds.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use uuid::Uuid;

use crate::RuntimeError;

/// The receipts directory below the state directory.
pub(crate) fn receipt_path(state_dir: &Path, run_id: Uuid) -> PathBuf {
    state_dir.join("receipts").join(format!("{run_id}.json"))
}

/// Writes the copy of a receipt so that the file is either absent or whole, whatever happens.
pub(crate) fn save_document(
    state_dir: &Path,
    run_id: Uuid,
    document: &[u8],
) -> Result<PathBuf, RuntimeError> {
    let path = receipt_path(state_dir, run_id);
    write_whole(&path, document).map_err(|source| RuntimeError::StoreFailed {
        path: path.display().to_string(),
        source,
    })?;
    Ok(path)
}

fn write_whole(path: &Path, document: &[u8]) -> io::Result<()> {
    let directory = path
        .parent()
        .ok_or_else(|| io::Error::other("the path has no directory"))?;
    fs::create_dir_all(directory)?;
    // Another process may be writing the same copy: it looks after receipts without one.
    let partial = path.with_extension(format!("json.{}.partial", Uuid::new_v4().simple()));
    let written = (|| {
        let mut file = File::create(&partial)?;
        file.write_all(document)?;
        file.sync_all()?;
        fs::rename(&partial, path)?;
        File::open(directory)?.sync_all()
    })();
    if written.is_err() {
        // The error that counts is the first one; a partial file is never read.
        drop(fs::remove_file(&partial));
    }
    written
}
