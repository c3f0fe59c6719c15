//! The orchestrator: takes a work order through plan, policy, workspace and backend to its receipt.
//!
//! [`Runtime::run_streaming`] plans the run, which fails before anything happened, and then hands it
//! to one supervisor task. The supervisor owns the run to its end: it serves the backend's requests
//! one by one through the gate, records every event, enforces the limits, and whatever happens it
//! ends in exactly one receipt.

mod application;
mod approval;
mod audience;
mod error;
mod execute;
mod finish;
mod gate;
mod handle;
mod journal;
mod mcp;
mod meter;
mod mortality;
mod observe;
mod permission;
mod queue;
mod record;
mod recover;
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
pub use approval::{ApprovalRequest, Approvals, Approver};
pub use audience::Audience;
pub use error::RuntimeError;
pub use handle::{EventStream, ReceiptHandle, RunHandle, Submitted};
pub use mcp::McpServers;
pub use runtime::{RunOptions, RunPrices, Runtime, RuntimeOptions};
pub use stage::workspace_error;
