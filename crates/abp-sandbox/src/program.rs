//! Finding the program to start, never in the directory that an agent can write.

use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// Why there is no program to start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// A path that is neither absolute nor a bare name.
    #[error(
        "{program:?} is a relative path, which would depend on the working directory; give an absolute path or a bare name"
    )]
    Relative {
        /// What was to be started.
        program: String,
    },
    /// No directory of the search path has it.
    #[error("{program:?} was not found on PATH{}", list(searched, passed_over))]
    NotFound {
        /// What was to be started.
        program: String,
        /// The directories it was looked for in.
        searched: Vec<PathBuf>,
        /// Entries of the search path that were not looked into, and files that were not taken, each
        /// with the reason.
        passed_over: Vec<String>,
    },
    /// The program at an absolute path cannot be executed.
    #[error("{program:?} cannot be executed")]
    Unusable {
        /// What was to be started.
        program: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
}

/// A search path without entries that an agent controls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SearchPath {
    entries: Vec<PathBuf>,
    passed_over: Vec<String>,
    workspace: PathBuf,
}

impl SearchPath {
    /// The entries of a `PATH` variable that are absolute and outside the workspace. The working
    /// directory, which an empty entry and `.` stand for, is the workspace.
    #[must_use]
    pub fn new(variable: &OsStr, workspace: &Path) -> Self {
        let mut path = Self {
            workspace: resolved(workspace),
            ..Self::default()
        };
        for entry in std::env::split_paths(variable) {
            if !entry.is_absolute() {
                let problem = format!("{:?} (not absolute)", entry.display().to_string());
                path.passed_over.push(problem);
            } else if path.is_inside(&entry) {
                let problem = format!("{} (inside the workspace)", entry.display());
                path.passed_over.push(problem);
            } else {
                path.entries.push(entry);
            }
        }
        path
    }

    /// The value of `PATH` for the program itself; `None` where no entry is left.
    #[must_use]
    pub fn to_variable(&self) -> Option<OsString> {
        // Entries came out of such a variable, so they can be joined again.
        let joined = std::env::join_paths(&self.entries).ok()?;
        (!joined.is_empty()).then_some(joined)
    }

    /// The path of a program: an absolute one as it is, a bare name from the first directory that
    /// has it.
    ///
    /// # Errors
    /// Says what was looked for, and where.
    pub fn find(&self, program: &OsStr) -> Result<PathBuf, ProgramError> {
        let path = Path::new(program);
        let shown = || program.to_string_lossy().into_owned();
        if path.is_absolute() {
            return match executable(path) {
                Ok(()) => Ok(path.to_owned()),
                Err(source) => Err(ProgramError::Unusable {
                    program: shown(),
                    source,
                }),
            };
        }
        // `..` has no slash and is no name of a program either.
        if program.as_bytes().contains(&b'/') || path.file_name() != Some(program) {
            return Err(ProgramError::Relative { program: shown() });
        }
        let mut passed_over = self.passed_over.clone();
        for entry in &self.entries {
            let candidate = entry.join(program);
            if executable(&candidate).is_err() {
                continue;
            }
            if self.is_inside(&candidate) {
                let problem = format!("{} (leads into the workspace)", candidate.display());
                passed_over.push(problem);
                continue;
            }
            return Ok(candidate);
        }
        Err(ProgramError::NotFound {
            program: shown(),
            searched: self.entries.clone(),
            passed_over,
        })
    }

    /// Whether a path leads into the workspace, by its name or by links.
    fn is_inside(&self, path: &Path) -> bool {
        path.starts_with(&self.workspace) || resolved(path).starts_with(&self.workspace)
    }
}

/// The path without links and `..`; as it is where it cannot be followed.
fn resolved(path: &Path) -> PathBuf {
    path.canonicalize().unwrap_or_else(|_| path.to_owned())
}

fn executable(path: &Path) -> io::Result<()> {
    if path.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(access(path, Access::EXEC_OK)?)
}

fn list(searched: &[PathBuf], passed_over: &[String]) -> String {
    let searched: Vec<_> = searched
        .iter()
        .map(|entry| entry.display().to_string())
        .collect();
    let mut text = match searched.as_slice() {
        [] => ", which has no usable entry".to_owned(),
        searched => format!(" in {}", searched.join(", ")),
    };
    if !passed_over.is_empty() {
        let _ = write!(text, "; passed over: {}", passed_over.join(", "));
    }
    text
}

#[cfg(test)]
mod tests;
