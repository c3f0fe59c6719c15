//! The directories of state and of stages: whether they are the user's alone, and can be written.

use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use super::{Check, Status};

/// Below this, staging is likely to fail.
const LOW_DISK_BYTES: u64 = 1 << 30;

/// A directory that is made for its owner alone where it is missing.
pub(super) fn private_directory(name: &str, path: &Path) -> Check {
    let place = existing(path);
    // Asking for permission is not enough: root has it on disks that take nothing.
    let probe = place.join(format!(".abp-doctor-{}", std::process::id()));
    let writable = std::fs::File::create_new(&probe).and_then(|_| std::fs::remove_file(&probe));
    let shown = path.display();
    let (status, detail) = match writable {
        Err(error) => (
            Status::Failed,
            format!("{} cannot be written: {error}", place.display()),
        ),
        Ok(()) if place != path => (Status::Ok, format!("{shown} will be made")),
        Ok(()) => match exposure(path) {
            None => (
                Status::Ok,
                format!("{shown} can be written, by its owner alone"),
            ),
            Some(problem) => (Status::Failed, format!("{shown}: {problem}")),
        },
    };
    Check::new(name, status, detail)
}

/// The ways in which others than this user can reach a directory.
fn exposure(path: &Path) -> Option<String> {
    let found = match path.metadata() {
        Ok(found) => found,
        Err(error) => return Some(format!("it cannot be examined: {error}")),
    };
    let mode = found.mode() & 0o7777;
    if !found.is_dir() {
        Some("it is not a directory; use another name".to_owned())
    } else if found.uid() != rustix::process::geteuid().as_raw() {
        let uid = found.uid();
        Some(format!("it belongs to user {uid}; use another directory"))
    } else if mode & 0o077 != 0 {
        Some(format!(
            "it has mode {mode:04o} and others can reach it; run `chmod 700` on it"
        ))
    } else {
        None
    }
}

pub(super) fn disk(name: &str, directory: &Path) -> Check {
    let (status, detail) = match rustix::fs::statvfs(existing(directory)) {
        Ok(disk) => {
            let free = disk.f_bavail.saturating_mul(disk.f_frsize);
            let status = if free < LOW_DISK_BYTES {
                Status::Warning
            } else {
                Status::Ok
            };
            (status, format!("{} MiB free", free >> 20))
        }
        Err(error) => (Status::Failed, format!("cannot be read: {error}")),
    };
    Check::new(name, status, detail)
}

/// The nearest path that exists: the directory itself, or the place where it will be made.
fn existing(path: &Path) -> &Path {
    let mut candidate = path;
    while !candidate.exists() {
        match candidate.parent() {
            Some(parent) if parent != Path::new("") => candidate = parent,
            _ => return Path::new("."),
        }
    }
    candidate
}
