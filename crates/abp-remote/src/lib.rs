//! A client of another machine's control plane.
//!
//! [`Remote`] speaks the routes of `abp-control-http` with its documents, follows runs across broken
//! connections, uploads the files of a workspace that the server lacks, and applies the changes of a remote
//! run to a local directory with the same three-way code as a local run.
//!
//! Invariants:
//! - The key goes to the one server it is for: redirects are not followed.
//! - Files that the order's policy hides from the agent are not uploaded.
//! - What a server sends is data: hashes are checked, and no path of a server's is opened.

mod apply;
mod client;
mod connect;
mod events;
mod journal;
mod upload;

pub use apply::{LocalApply, apply_locally};
pub use client::{Remote, RemoteAddress};
pub use events::RemoteEvents;
pub use journal::{RecoveredApply, recover_applies};
pub use upload::UploadSummary;
