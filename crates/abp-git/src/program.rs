//! Finding the program, and the one way its command lines begin.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::Error;

/// Where systems install git.
const PLACES: [&str; 4] = [
    "/usr/bin/git",
    "/usr/local/bin/git",
    "/bin/git",
    "/run/current-system/sw/bin/git",
];
const ROOT: u32 = 0;

/// Settings that are worth more than those of any file.
const SETTINGS: [&str; 17] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.untrackedCache=false",
    "core.attributesFile=/dev/null",
    "core.excludesFile=/dev/null",
    "core.autocrlf=false",
    "core.safecrlf=false",
    "core.pager=",
    "core.editor=false",
    "core.askPass=",
    "credential.helper=",
    "commit.gpgSign=false",
    "gc.auto=0",
    "maintenance.auto=false",
    "protocol.allow=never",
    "submodule.recurse=false",
    "safe.bareRepository=explicit",
];

/// A git that may be run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Git {
    path: PathBuf,
}

impl Git {
    /// Finds the git of the system.
    ///
    /// # Errors
    /// [`Error::NotInstalled`], or [`Error::Untrusted`] where somebody other than root could have
    /// replaced the only one there is.
    pub fn find() -> Result<Self, Error> {
        let mut untrusted = None;
        for place in PLACES {
            match trusted(Path::new(place), &[ROOT]) {
                Ok(path) => return Ok(Self { path }),
                Err(Error::NotInstalled) => {}
                Err(error) => untrusted = Some(error),
            }
        }
        Err(untrusted.unwrap_or(Error::NotInstalled))
    }

    /// Takes the git an operator names, which may be the operator's own.
    ///
    /// # Errors
    /// [`Error::NotInstalled`] where there is none, [`Error::Untrusted`] where the path is not
    /// absolute, or somebody other than root and this user could have replaced it.
    pub fn at(path: &Path) -> Result<Self, Error> {
        let owners = [ROOT, rustix::process::geteuid().as_raw()];
        let path = trusted(path, &owners)?;
        Ok(Self { path })
    }

    /// The program, with every link followed.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A command in a directory, with no environment and no settings but ours.
    pub(crate) fn command(&self, directory: &Path) -> Command {
        let mut command = Command::new(&self.path);
        command
            .current_dir(directory)
            .env_clear()
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_ATTR_NOSYSTEM", "1")
            .env("GIT_OPTIONAL_LOCKS", "0")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("GIT_LITERAL_PATHSPECS", "1")
            .env("GIT_NO_REPLACE_OBJECTS", "1")
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped());
        for setting in SETTINGS {
            command.args(["-c", setting]);
        }
        command
    }
}

/// Follows a path to the program it means, and makes sure that only `owners` can change what is
/// there.
fn trusted(path: &Path, owners: &[u32]) -> Result<PathBuf, Error> {
    let untrusted = |path: &Path, reason| Error::Untrusted {
        path: path.to_owned(),
        reason,
    };
    if !path.is_absolute() {
        return Err(untrusted(path, "its path is not absolute"));
    }
    let real = path.canonicalize().map_err(|_| Error::NotInstalled)?;
    let stat = fs::metadata(&real).map_err(|_| Error::NotInstalled)?;
    if !stat.is_file() || stat.mode() & 0o111 == 0 {
        return Err(untrusted(&real, "it is not a program"));
    }
    // Both the way that was asked for and the one it leads to.
    for place in real.ancestors().chain(path.ancestors().skip(1)) {
        let Ok(stat) = fs::metadata(place) else {
            return Err(untrusted(&real, "a directory above it cannot be read"));
        };
        if !owners.contains(&stat.uid()) {
            return Err(untrusted(
                &real,
                "it or a directory above it is another user's",
            ));
        }
        if stat.mode() & 0o022 != 0 {
            return Err(untrusted(
                &real,
                "others can write to it or to a directory above it",
            ));
        }
    }
    Ok(real)
}
