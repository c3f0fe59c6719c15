//! The orchestrator: takes a work order through plan, policy, workspace and backend to its receipt.
//!
//! [`Runtime::run_streaming`] plans the run, which fails before anything happened, and then hands it
//! to one supervisor task. The supervisor owns the run to its end: it serves the backend's requests
//! one by one through the gate, records every event, enforces the limits, and whatever happens it
//! ends in exactly one receipt.

mod application;
mod approval;
mod audience;
mod entry;
mod error;
mod execute;
mod finish;
mod follow;
mod gate;
mod handle;
mod journal;
mod lease;
mod mcp;
mod meter;
mod mortality;
mod observe;
mod options;
mod permission;
mod record;
mod recover;
mod run_trace;
mod running;
mod runtime;
mod stage;
mod store;
mod tools;
mod trace;
mod trash;

pub use abp_backend_core::CancelHandle;
pub use abp_core::PriceTable;
pub use abp_store::Decider;
pub use application::{Applied, ApplyRequest, DecisionState, HostFiles};
pub use approval::{Approvals, Approver};
pub use audience::Audience;
pub use error::RuntimeError;
pub use follow::{EventStream, FollowedEvent};
pub use handle::{ReceiptHandle, RunHandle, StartedRun};
pub use mcp::{McpPlace, McpServers};
pub use mortality::may_die;
pub use options::{RunOptions, RunPrices};
pub use running::RunPlace;
pub use runtime::{BegunRun, Runtime, RuntimeOptions};
pub use stage::workspace_error;
