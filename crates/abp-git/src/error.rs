//! What can go wrong with running git.

use std::io;
use std::path::PathBuf;
use std::time::Duration;

/// A failure to find or to run git.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no git at any of the places it is looked for.
    #[error("git is not installed")]
    NotInstalled,
    /// There is one that somebody other than root or the user could have replaced.
    #[error("git at {} is not trusted: {reason}", path.display())]
    Untrusted {
        /// The program, with every link followed.
        path: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// The directory is not one the host has just filled.
    #[error("{} cannot become a repository: {reason}", root.display())]
    NotFresh {
        /// The directory.
        root: PathBuf,
        /// Why.
        reason: &'static str,
    },
    /// The program could not be started or waited for.
    #[error("cannot run git {step}")]
    Run {
        /// What it was to do.
        step: &'static str,
        /// Why.
        source: io::Error,
    },
    /// The program took too long and was ended.
    #[error("git {step} took longer than {} ms", limit.as_millis())]
    TimedOut {
        /// What it was doing.
        step: &'static str,
        /// How long everything may take.
        limit: Duration,
    },
    /// The program refused.
    #[error("git {step} failed: {stderr}")]
    Failed {
        /// What it was to do.
        step: &'static str,
        /// The end of what it said, without control characters.
        stderr: String,
    },
}
