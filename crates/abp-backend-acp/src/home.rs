//! The private home directories of agents.
//!
//! Each run has one: the agent's settings are written there before it starts, and its sessions are what it
//! leaves there. A later run that goes on with a session gets a copy. What an agent left is hostile input: only
//! plain files and directories are copied, no link is followed, and the size is limited.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use abp_error::{AbpError, ErrorCode};
use uuid::Uuid;

/// The most bytes of a home directory that a later run gets.
const MAX_COPY: u64 = 256 << 20;
/// The most files of it.
const MAX_FILES: u64 = 50_000;
/// The deepest nesting of directories that is copied.
const MAX_DEPTH: usize = 64;

/// The directory that holds the home directories of all runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgentHomes {
    root: PathBuf,
}

impl AgentHomes {
    /// The directory at this path, which need not be there yet.
    #[must_use]
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.root
    }

    /// The home directory of a run, whether or not it is there.
    #[must_use]
    pub fn of_run(&self, run_id: Uuid) -> PathBuf {
        self.root.join(run_id.to_string())
    }

    /// Makes the home directory of a run; with a copy of an earlier run's where that is to be gone on with.
    ///
    /// # Errors
    /// Fails where it cannot be made, and where the earlier one is gone or too large.
    pub(crate) fn make(&self, run_id: Uuid, earlier: Option<Uuid>) -> Result<PathBuf, AbpError> {
        let home = self.of_run(run_id);
        if let Some(earlier) = earlier
            && !self.of_run(earlier).is_dir()
        {
            let message =
                format!("the agent's directory of run {earlier} is gone; its session cannot go on");
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
        make_private(&home).map_err(|error| failed("make", &error))?;
        // Another attempt of the same run goes on in the directory of the one before.
        if let Some(earlier) = earlier.filter(|earlier| *earlier != run_id) {
            let source = self.of_run(earlier);
            let mut copy = Copy {
                bytes: MAX_COPY,
                files: MAX_FILES,
            };
            copy.directory(&source, &home, MAX_DEPTH)
                .map_err(|error| failed("copy", &error))?;
        }
        // The sandbox mounts it by this path, in which no link may be.
        home.canonicalize().map_err(|error| failed("find", &error))
    }

    /// Removes the home directory of a run, where it has one.
    ///
    /// # Errors
    /// Fails where it is there and cannot be removed.
    pub fn remove(&self, run_id: Uuid) -> Result<(), AbpError> {
        match fs::remove_dir_all(self.of_run(run_id)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(failed("remove", &error)),
            _ => Ok(()),
        }
    }
}

/// Writes a file of a home directory, for its owner alone.
///
/// # Errors
/// Fails where the path leaves the directory, and where it cannot be written.
pub(crate) fn write_file(home: &Path, path: &str, content: &str) -> Result<(), AbpError> {
    let relative = Path::new(path);
    let is_plain = |part: Component<'_>| matches!(part, Component::Normal(_));
    if path.is_empty() || !relative.components().all(is_plain) {
        let message = format!("{path:?} is no path below a home directory");
        return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
    }
    let file = home.join(relative);
    let written = file.parent().map_or(Ok(()), make_private).and_then(|()| {
        // An earlier session may have left a link here: whatever is there is replaced.
        match fs::remove_file(&file) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut options = fs::OpenOptions::new();
        let mut opened = options
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&file)?;
        io::Write::write_all(&mut opened, content.as_bytes())
    });
    written.map_err(|error| failed("write", &error))
}

fn make_private(directory: &Path) -> io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    builder.recursive(true).mode(0o700).create(directory)
}

fn failed(what: &str, error: &io::Error) -> AbpError {
    let message = format!("cannot {what} the home directory of an agent: {error}");
    AbpError::new(ErrorCode::ExecutionWorkspaceError, message)
}

/// The allowance of a copy: bytes and files that may still follow.
struct Copy {
    bytes: u64,
    files: u64,
}

impl Copy {
    fn directory(&mut self, source: &Path, target: &Path, depth: usize) -> io::Result<()> {
        if depth == 0 {
            return Err(io::Error::other("directories are nested too deeply"));
        }
        make_private(target)?;
        for entry in fs::read_dir(source)? {
            let entry = entry?;
            // Of the entry itself, whatever it leads to.
            let kind = entry.file_type()?;
            let (from, to) = (entry.path(), target.join(entry.file_name()));
            if kind.is_dir() {
                self.directory(&from, &to, depth - 1)?;
            } else if kind.is_file() {
                self.file(&from, &to)?;
            }
        }
        Ok(())
    }

    fn file(&mut self, source: &Path, target: &Path) -> io::Result<()> {
        let size = fs::symlink_metadata(source)?.len();
        let left = self.bytes.checked_sub(size).zip(self.files.checked_sub(1));
        let Some((bytes, files)) = left else {
            return Err(io::Error::other("it is too large to be copied"));
        };
        (self.bytes, self.files) = (bytes, files);
        fs::copy(source, target).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_later_run_gets_files_and_no_links() {
        let dir = tempfile::tempdir().unwrap();
        let homes = AgentHomes::new(dir.path().join("homes"));
        let (first, second) = (Uuid::new_v4(), Uuid::new_v4());
        let home = homes.make(first, None).unwrap();
        write_file(&home, ".agent/sessions/1.json", "one").unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(dir.path(), home.join("out")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), home.join(".agent/link")).unwrap();
        let copy = homes.make(second, Some(first)).unwrap();
        let read = |path: &str| fs::read_to_string(copy.join(path)).ok();
        assert_eq!(read(".agent/sessions/1.json").as_deref(), Some("one"));
        assert!(!copy.join("out").exists() && !copy.join(".agent/link").exists());
        homes.remove(first).unwrap();
        homes.remove(first).unwrap();
        assert!(
            homes.make(Uuid::new_v4(), Some(first)).is_err(),
            "it is gone"
        );
    }

    #[test]
    fn a_setting_is_not_written_through_a_link_or_outside() {
        let dir = tempfile::tempdir().unwrap();
        let (home, outside) = (dir.path().join("home"), dir.path().join("outside"));
        fs::create_dir(&home).unwrap();
        fs::write(&outside, "kept").unwrap();
        std::os::unix::fs::symlink(&outside, home.join("settings")).unwrap();
        write_file(&home, "settings", "new").unwrap();
        assert_eq!(fs::read_to_string(&outside).unwrap(), "kept");
        assert_eq!(fs::read_to_string(home.join("settings")).unwrap(), "new");
        for path in ["../x", "/x", "", "a/../../x"] {
            assert!(write_file(&home, path, "x").is_err(), "{path:?}");
        }
    }

    #[test]
    fn a_directory_that_is_too_large_is_not_copied() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("a"), dir.path().join("b"));
        fs::create_dir(&from).unwrap();
        fs::write(from.join("1"), "12345").unwrap();
        fs::write(from.join("2"), "12345").unwrap();
        for (bytes, files, fits) in [(10, 2, true), (9, 2, false), (10, 1, false)] {
            let done = Copy { bytes, files }.directory(&from, &to, 4);
            assert_eq!(done.is_ok(), fits, "{bytes} {files}");
        }
    }
}
