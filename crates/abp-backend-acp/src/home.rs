//! The private home directories of agents.
//!
//! Each run has one: the agent's settings are written there before it starts, and its sessions are what it
//! leaves there. A later run that goes on with a session gets a copy. What an agent left is hostile input: only
//! plain files and directories are copied, no link is followed, and the size is limited.
//!
//! Homes are kept for later runs, within limits that [`AgentHomes::sweep`] holds: one that is too large to be
//! copied is of no use, and the oldest go first. A process that uses a home holds a lock on it, which no sweep
//! breaks.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, SystemTime};

use abp_error::{AbpError, ErrorCode};
use uuid::Uuid;

/// The most bytes of a home directory that a later run gets.
const MAX_COPY: u64 = 256 << 20;
/// The most files of it.
const MAX_FILES: u64 = 50_000;
/// The deepest nesting of directories that is copied.
const MAX_DEPTH: usize = 64;

/// The bytes that all homes together may take.
const MAX_KEPT: u64 = 4 << 30;
/// The age at which a home is removed.
const MAX_AGE: Duration = Duration::from_secs(30 * 24 * 60 * 60);

/// The limits on homes that are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HomeLimits {
    /// The most bytes of one home.
    pub each: u64,
    /// The most bytes of all homes.
    pub all: u64,
    /// The age at which a home is removed, by the time of its run.
    pub age: Duration,
}

impl Default for HomeLimits {
    fn default() -> Self {
        Self {
            each: MAX_COPY,
            all: MAX_KEPT,
            age: MAX_AGE,
        }
    }
}

/// The home directory of a run that is in use.
#[derive(Debug)]
pub(crate) struct AgentHome {
    /// Its path, without links.
    pub(crate) path: PathBuf,
    /// Keeps sweeps away; gone with this.
    _lock: File,
}

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

    /// The home directory of a run, whether or not it is there.
    #[must_use]
    pub fn of_run(&self, run_id: Uuid) -> PathBuf {
        self.root.join(run_id.to_string())
    }

    /// Makes the home directory of a run; with a copy of an earlier run's where that is to be gone on with.
    ///
    /// # Errors
    /// Fails where it cannot be made, and where the earlier one is gone or too large.
    pub(crate) fn make(&self, run_id: Uuid, earlier: Option<Uuid>) -> Result<AgentHome, AbpError> {
        let home = self.of_run(run_id);
        make_private(&home).map_err(|error| failed("make", &error))?;
        let lock = lock(&home).map_err(|error| failed("lock", &error))?;
        if let Some(earlier) = earlier {
            let source = self.of_run(earlier);
            if !source.is_dir() {
                let message = format!(
                    "the agent's directory of run {earlier} is gone; its session cannot go on"
                );
                return Err(AbpError::new(ErrorCode::ValidationFailed, message));
            }
            let _lock = self::lock(&source).map_err(|error| failed("lock", &error))?;
            let mut copy = Copy {
                bytes: MAX_COPY,
                files: MAX_FILES,
            };
            copy.directory(&source, &home, MAX_DEPTH)
                .map_err(|error| failed("copy", &error))?;
        }
        // The sandbox mounts it by this path, in which no link may be.
        let path = home.canonicalize();
        Ok(AgentHome {
            path: path.map_err(|error| failed("find", &error))?,
            _lock: lock,
        })
    }

    /// Removes homes beyond the limits, the oldest first, and returns how many. Those in use stay.
    ///
    /// # Errors
    /// Fails where a home is there and cannot be removed.
    pub fn sweep(&self, limits: HomeLimits, now: SystemTime) -> Result<usize, AbpError> {
        let entries = fs::read_dir(&self.root).into_iter().flatten().flatten();
        let mut homes: Vec<(Uuid, u64)> = Vec::new();
        for entry in entries {
            let name = entry.file_name();
            // Whatever else is there is not ours to remove.
            if let Some(run_id) = name.to_str().and_then(|name| Uuid::parse_str(name).ok()) {
                homes.push((run_id, size(&entry.path(), MAX_DEPTH)));
            }
        }
        // Ids of runs begin with their time.
        homes.sort_unstable();
        let mut total: u64 = homes.iter().map(|(_, bytes)| bytes).sum();
        let mut removed = 0;
        for (run_id, bytes) in homes {
            let is_old = age(run_id, now).is_some_and(|age| age > limits.age);
            if !is_old && bytes <= limits.each && total <= limits.all {
                continue;
            }
            if try_lock(&self.of_run(run_id)).is_none() {
                continue;
            }
            self.remove(run_id)?;
            total = total.saturating_sub(bytes);
            removed += 1;
        }
        Ok(removed)
    }

    /// Sweeps once in this process, on a thread of its own: no run waits for it.
    pub(crate) fn sweep_once(&self) {
        static SWEPT: Once = Once::new();
        let homes = self.clone();
        SWEPT.call_once(move || {
            let sweep = move || {
                if let Err(error) = homes.sweep(HomeLimits::default(), SystemTime::now()) {
                    tracing::warn!(target: "abp.acp", %error, "home directories of agents could not be swept");
                }
            };
            let thread = std::thread::Builder::new().name("abp-homes".to_owned());
            if let Err(error) = thread.spawn(sweep) {
                tracing::warn!(target: "abp.acp", %error, "home directories of agents are swept later");
            }
        });
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

/// Holds a home for as long as the file is open.
fn lock(home: &Path) -> io::Result<File> {
    let opened = File::open(home)?;
    opened.lock_shared()?;
    Ok(opened)
}

/// The lock of a home that no process uses.
fn try_lock(home: &Path) -> Option<File> {
    let opened = File::open(home).ok()?;
    opened.try_lock().ok().map(|()| opened)
}

/// The bytes of the files below a directory, without following links.
fn size(directory: &Path, depth: usize) -> u64 {
    if depth == 0 {
        return 0;
    }
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let sizes = entries.map(|entry| match entry.metadata() {
        Ok(found) if found.is_dir() => size(&entry.path(), depth - 1),
        Ok(found) => found.len(),
        Err(_) => 0,
    });
    sizes.fold(0, u64::saturating_add)
}

/// The age of a run, by the time in its id.
fn age(run_id: Uuid, now: SystemTime) -> Option<Duration> {
    let (seconds, nanoseconds) = run_id.get_timestamp()?.to_unix();
    let began = SystemTime::UNIX_EPOCH + Duration::new(seconds, nanoseconds);
    now.duration_since(began).ok()
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
        let home = homes.make(first, None).unwrap().path;
        write_file(&home, ".agent/sessions/1.json", "one").unwrap();
        fs::write(dir.path().join("secret"), "s").unwrap();
        std::os::unix::fs::symlink(dir.path(), home.join("out")).unwrap();
        std::os::unix::fs::symlink(dir.path().join("secret"), home.join(".agent/link")).unwrap();
        let copy = homes.make(second, Some(first)).unwrap().path;
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
    fn homes_beyond_the_limits_are_swept_and_those_in_use_stay() {
        const DAY: u64 = 24 * 60 * 60;
        let id = |day: u64| Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, day * DAY, 0));
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(100 * DAY);
        let limits = |each, all, days| HomeLimits {
            each,
            all,
            age: Duration::from_secs(days * DAY),
        };
        // Four homes of ten bytes, of days 10, 50, 90 and 99; the last one has twenty.
        let cases = [
            (limits(100, 100, 200), false, vec![10, 50, 90, 99]),
            (limits(100, 100, 30), false, vec![90, 99]),
            (limits(10, 100, 200), false, vec![10, 50, 90]),
            (limits(100, 30, 200), false, vec![90, 99]),
            // The oldest is in use, so the next goes.
            (limits(100, 40, 200), true, vec![10, 90, 99]),
        ];
        for (limits, is_used, expected) in cases {
            let dir = tempfile::tempdir().unwrap();
            let homes = AgentHomes::new(dir.path());
            fs::create_dir(dir.path().join("something-else")).unwrap();
            for (day, bytes) in [(10, 10), (50, 10), (90, 10), (99, 20)] {
                let home = homes.make(id(day), None).unwrap().path;
                fs::create_dir(home.join("d")).unwrap();
                fs::write(home.join("d/f"), vec![0; bytes]).unwrap();
            }
            let ids: Vec<Uuid> = fs::read_dir(dir.path())
                .unwrap()
                .filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok())
                .collect();
            let day_of = |run: &Uuid| run.get_timestamp().unwrap().to_unix().0 / DAY;
            let oldest = ids.iter().min().unwrap();
            let used = is_used.then(|| lock(&homes.of_run(*oldest)).unwrap());
            let removed = homes.sweep(limits, now).unwrap();
            let mut left: Vec<u64> = ids
                .iter()
                .filter(|run| homes.of_run(**run).exists())
                .map(day_of)
                .collect();
            left.sort_unstable();
            assert_eq!(left, expected, "{limits:?}");
            assert_eq!(removed, 4 - expected.len());
            assert!(dir.path().join("something-else").exists());
            drop(used);
        }
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
