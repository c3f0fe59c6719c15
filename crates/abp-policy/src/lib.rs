//! Answers what a run may do: which tools it may use, which paths it may read and write, which
//! hosts it may reach, and for which tools a person is asked.
//!
//! [`PolicyEngine`] compiles a [`PolicyProfile`](abp_core::PolicyProfile) once and then only
//! computes: no files, no clock, no network. Deny always wins over allow, an empty profile allows
//! everything, and every [`Decision`] names the [`Rule`] that made it.
//!
//! Invariants:
//! - Decisions are taken on names in one form only. A path must be the resolved one, relative to
//!   the workspace, and a host must be written plainly; other spellings are denied rather than
//!   interpreted, so no second reading of the same name can slip past a rule.
//! - [`ApprovedRead`] and [`ApprovedWrite`] can only come from an engine that allowed the path. The
//!   workspace reads and writes only against them.
//!
//! [`host_execution_reason`] is no rule of a profile: it names the paths that take effect on the
//! developer's machine by being there, for every place that asks before it writes them.

mod decision;
mod engine;
mod error;
mod holder;
mod host_files;
mod network;
mod path;

pub use decision::{Decision, PolicyList, Rule, Verdict};
pub use engine::PolicyEngine;
pub use error::PolicyError;
pub use holder::{Holder, Holders, lists_in_use};
pub use host_files::host_execution_reason;
pub use network::{NetworkGrant, NetworkListing, NetworkTarget};
pub use path::{ApprovedRead, ApprovedWrite};
