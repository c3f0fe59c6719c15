//! Failures to start a program.

use crate::ProgramError;

/// Why a program could not be started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SpawnError {
    /// The launcher could not be started.
    #[error("cannot start the launcher {program}")]
    Launcher {
        /// The launcher.
        program: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// There is no program to start.
    #[error(transparent)]
    NoProgram(#[from] ProgramError),
    /// The working directory cannot be used.
    #[error("cannot work in {directory}")]
    Directory {
        /// The directory.
        directory: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The launcher could not start the program.
    #[error("cannot start {0}")]
    Program(String),
    /// The kernel refused an overlay of the program's sandbox; a copy can stand in for it.
    #[error("cannot mount the overlay: {0}")]
    Overlay(String),
    /// The launcher was lost before it had started the program.
    #[error("the launcher ended before it had started the program")]
    Lost,
    /// The pipes to the program could not be made.
    #[error("cannot make the pipes to the program")]
    Pipes(#[from] std::io::Error),
}
