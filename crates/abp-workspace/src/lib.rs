//! The directory a run works on: staged from a source, handed to an agent, verified and applied.
//!
//! [`WorkspaceManager::prepare`] copies the source into a stage (or takes it in place) and records
//! a content [`Manifest`] and the original bytes outside the agent's reach.
//! [`PreparedWorkspace::changes`] compares that record with what is there afterwards and prints the
//! difference in git's forms; [`PreparedWorkspace::apply_to_source`] makes it in the source.
//! [`PreparedWorkspace::keep`] leaves all that for a later process, which takes it up again with
//! [`WorkspaceManager::reopen`].
//!
//! Invariants:
//! - Every descent goes through directory handles with `openat2`, beneath the root and without
//!   following links. No path is checked as text and then opened as text.
//! - Git is never run where an agent has been: an agent-writable tree can make it execute host code,
//!   and can make it hide changes. The manifest sees everything in a stage, ignored files included,
//!   but for the repository the stage started with ([`GitBaseline`]).
//! - FIFOs, sockets and devices are never opened.
//! - Tools read and write only against tokens of the policy, and only at resolved paths.
//! - A failed preparation leaves nothing behind; a conflicting application changes nothing.
//!
//! The crate blocks; callers on an async runtime run it on a blocking thread. It needs Linux 5.6.

mod apply;
mod binary;
mod changes;
mod conflict;
mod content;
mod crew;
mod diff;
mod dir;
mod error;
mod git;
mod ingest;
mod left_out;
mod limits;
mod manager;
mod manifest;
mod merge;
mod notes;
mod pack;
mod plan;
mod prepared;
mod progress;
mod quote;
mod record;
mod remove;
mod resolve;
mod selection;
mod stage;
mod walk;
mod walked;

pub use changes::{ChangeKind, Changes, ContentChange, FileChange};
pub use conflict::{Conflict, ConflictReason, LineRange};
pub use error::Error;
pub use git::{GitBaseline, GitLimits};
pub use limits::StageLimits;
pub use manager::WorkspaceManager;
pub use manifest::{Entry, FileKind, Manifest, SpecialKind};
pub use prepared::{PreparedWorkspace, WriteKind};
pub use progress::StageProgress;
pub use stage::StageInfo;
