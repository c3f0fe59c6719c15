//! Git, run so that nothing but git runs: a directory the host has just filled becomes a repository.
//!
//! Agents expect to start in a repository. [`Git::ensure_git_repo`] makes one with a single commit.
//! What changed in it afterwards is not asked of git: `abp-workspace` finds that out by itself and
//! prints it in git's forms.
//!
//! Invariants:
//! - The program is found at fixed places and is root's alone to change, or the operator named it.
//!   Neither `PATH` nor the current directory has a say.
//! - It gets no environment but ours, reads no settings of the system or the user, runs no hook,
//!   filter, monitor, pager, helper or background task, and is told nothing that comes from outside
//!   by its command line.
//! - It is never run in a directory that an agent may have written to: one that already has a `.git`
//!   is refused.
//! - It ends in time, or it is ended, and what it says is read up to a limit.

mod error;
mod process;
mod program;
mod repository;
mod stream;

pub use error::Error;
pub use program::Git;
pub use stream::{BaselineStream, FileMode};
