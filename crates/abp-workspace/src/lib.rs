//! The directory a run works on: staged from a source, handed to an agent, verified and applied.
//!
//! [`WorkspaceManager::prepare`] copies the source into a stage (or takes it in place) and records a
//! content [`Manifest`] and the original bytes outside the agent's reach.
//! [`PreparedWorkspace::changes`] compares that record with the tree afterwards and prints the
//! difference in git's forms. [`PreparedWorkspace::change_set`] turns it into a [`ChangeSet`], a
//! document that the caller stores and that is all a later process goes by. [`Application`] makes
//! the changes in the source, in steps that the caller journals, and [`recover`] ends an application
//! that was interrupted.
//!
//! Invariants:
//! - Every descent goes through directory handles with `openat2`, beneath the root and without
//!   following links. No path is checked as text and then opened as text.
//! - Git is never run where an agent has been: an agent-writable tree can make it execute host code,
//!   and can make it hide changes. The manifest sees everything in a stage, ignored files included,
//!   but for the repository the stage started with ([`GitBaseline`]).
//! - FIFOs, sockets and devices are never opened.
//! - Tools read and write only against tokens of the policy, and only at resolved paths.
//! - A failed preparation leaves nothing behind; a failed application changes nothing, and one that
//!   was killed ends as all of it, or as none of it plus the saves of the user.
//! - The crate knows no store: documents and images go to the caller and come back from it.
//!
//! The crate blocks; callers on an async runtime run it on a blocking thread. It needs Linux 5.6.

mod application;
mod attributes;
mod binary;
mod change_set;
mod changes;
mod check;
mod choice;
mod commit;
mod conflict;
mod content;
mod crew;
mod diff;
mod dir;
mod document;
mod error;
mod git;
mod holding;
mod ingest;
mod journal;
mod layers;
mod left_out;
mod lent;
mod limits;
mod manager;
mod manifest;
mod mask;
mod merge;
mod notes;
mod observe;
mod overlay;
mod pack;
mod placeholder;
mod plan;
mod prepared;
mod progress;
mod quote;
mod recover;
mod remove;
mod resolve;
mod rollback;
mod selection;
mod source;
mod stage;
mod trash;
mod walk;
mod walked;

pub use application::{Application, CommittedApplication, StagedApplication};
pub use change_set::{BeforeImage, ChangeSet, ChangedPath};
pub use changes::{ChangeKind, Changes, ContentChange, FileChange};
pub use conflict::{Conflict, ConflictReason, LineRange};
pub use error::Error;
pub use git::{GitBaseline, GitLimits};
pub use journal::{ApplyJournal, ApplyPhase};
pub use limits::StageLimits;
pub use manager::{StageChoice, WorkspaceManager};
pub use manifest::{Entry, FileKind, Manifest, SpecialKind};
pub use placeholder::{Placeholder, PlaceholderKind};
pub use prepared::{PreparedWorkspace, StageForm, WriteKind};
pub use progress::StageProgress;
pub use recover::{RecoveryOutcome, recover};
pub use source::SourceIdentity;
pub use stage::{ClaimedStage, StageInfo};
pub use trash::TrashSweep;
