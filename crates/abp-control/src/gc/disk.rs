//! Directories of runs and uploads: finding them, their sizes and ages, and removing them.

use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use abp_core::Timestamp;
use uuid::Uuid;

/// A directory that is named after a run.
#[derive(Debug, Clone)]
pub(super) struct RunDirectory {
    pub(super) run_id: Uuid,
    pub(super) path: PathBuf,
    pub(super) modified: Timestamp,
}

/// A file or directory that may go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) bytes: u64,
}

/// The directories of runs below another; none where that is not there.
pub(super) fn run_directories(root: &Path) -> io::Result<Vec<RunDirectory>> {
    let mut found = Vec::new();
    for path in entries(root)? {
        let name = path.file_name().and_then(|name| name.to_str());
        let run_id = name.and_then(|name| Uuid::parse_str(name).ok());
        let metadata = fs::symlink_metadata(&path);
        if let (Some(run_id), Ok(metadata)) = (run_id, metadata)
            && metadata.is_dir()
        {
            found.push(RunDirectory {
                run_id,
                path,
                modified: timestamp(metadata.modified()?),
            });
        }
    }
    Ok(found)
}

/// Blobs, manifests, source directories and broken uploads that were last named before a time.
pub(super) fn find_uploads(root: &Path, oldest: Timestamp) -> io::Result<Vec<Found>> {
    let mut found = Vec::new();
    for principal in entries(root)? {
        let mut dirs = vec!["manifests", "incoming", "trees"]
            .into_iter()
            .map(|name| principal.join(name))
            .collect::<Vec<_>>();
        dirs.extend(entries(&principal.join("blobs"))?);
        for dir in dirs {
            for path in entries(&dir)? {
                let Ok(metadata) = fs::symlink_metadata(&path) else {
                    continue;
                };
                if timestamp(metadata.modified()?) < oldest {
                    let bytes = tree_bytes(&path)?;
                    found.push(Found { path, bytes });
                }
            }
        }
    }
    Ok(found)
}

/// The bytes of the files of a tree. Links are not followed, and what goes meanwhile has none.
pub(super) fn tree_bytes(path: &Path) -> io::Result<u64> {
    let mut total: u64 = 0;
    let mut waiting = vec![path.to_owned()];
    while let Some(path) = waiting.pop() {
        match fs::symlink_metadata(&path) {
            Ok(metadata) if metadata.is_dir() => match entries(&path) {
                Ok(below) => waiting.extend(below),
                // An agent may have closed a directory to everybody, its owner included.
                Err(error) if error.kind() == ErrorKind::PermissionDenied => {}
                Err(error) => return Err(error),
            },
            Ok(metadata) => total = total.saturating_add(metadata.len()),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(total)
}

/// Removes a file or a tree; one that is gone already is removed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(io::Error::other(format!("{}: {error}", path.display()))),
        Ok(()) => Ok(()),
    }
}

fn entries(dir: &Path) -> io::Result<Vec<PathBuf>> {
    match fs::read_dir(dir) {
        Ok(read) => read.map(|entry| Ok(entry?.path())).collect(),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

fn timestamp(time: SystemTime) -> Timestamp {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::time::Duration;

    use super::*;

    /// Whatever was named lately stays, of every kind.
    #[test]
    fn only_old_uploads_are_found() {
        let dir = tempfile::tempdir().expect("a directory");
        let root = dir.path();
        let day = Duration::from_secs(86_400);
        let mut old = Vec::new();
        for (place, is_old) in [
            ("p/blobs/ab/one", true),
            ("p/blobs/ab/two", false),
            ("p/manifests/one.json", true),
            ("p/incoming/two", false),
            ("q/trees/one", true),
        ] {
            let path = root.join(place);
            fs::create_dir_all(path.parent().expect("a parent")).expect("a directory");
            fs::write(&path, "four").expect("written");
            if is_old {
                let file = File::options().write(true).open(&path).expect("opened");
                file.set_modified(SystemTime::now() - 2 * day)
                    .expect("a time");
                old.push(path);
            }
        }
        let oldest = timestamp(SystemTime::now() - day);
        let mut found = find_uploads(root, oldest).expect("found");
        found.sort_by(|one, other| one.path.cmp(&other.path));
        let paths: Vec<_> = found.iter().map(|found| found.path.clone()).collect();
        assert_eq!(paths, old);
        assert!(found.iter().all(|found| found.bytes == 4));
        assert_eq!(find_uploads(&root.join("none"), oldest).expect("none"), []);
    }
}
