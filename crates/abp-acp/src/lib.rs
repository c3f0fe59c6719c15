//! ABP as an agent: version 1 of the Agent Client Protocol (ACP) over standard streams, for editors.
//!
//! [`serve`] answers one client. A prompt becomes a run of the control plane in the editor's directory, by the
//! same submission as `abp run`, so policy, staging, sandbox, budgets and receipts are the same.
//!
//! - Events of the run go out as session updates, in order (`updates`).
//! - Questions of the gate go out as permission requests, and the answers go into the stored approvals (`turn`).
//! - The changes of a run that succeeded are applied when the person at the editor allows it (`placing`).
//! - A session is a series of runs in the store: listing, loading and resuming read it (`history`).

mod content;
mod history;
mod placing;
mod providers;
mod refusal;
mod server;
mod settings;
mod turn;
mod updates;

pub use server::{AcpOptions, serve};
