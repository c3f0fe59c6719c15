//! Agents that speak the Agent Client Protocol (ACP), version 1.
//!
//! [`AcpBackend`] starts an agent for every run, in the sandbox of its plan, with a private home directory and a
//! key of the run for the gateway. The protocol's messages and its JSON-RPC are those of the crate
//! `agent-client-protocol`; only `connection` and the modules that read its types know it.
//!
//! - Updates become events (`updates`). A tool call is told when it is settled: asked about, or over.
//! - A permission request is judged by the run's gate, and the matching option is chosen (`permission`).
//! - Reading and writing files through the host is offered only where the preset says so (`files`).
//! - Any other request is answered with "method not found", any unknown update is kept with its label.

mod backend;
mod connection;
mod files;
mod home;
mod manifest;
mod permission;
mod prompt;
mod session;
mod spec;
mod transport;
mod turn;
mod updates;

pub use backend::AcpBackend;
pub use home::{AgentHomes, HomeLimits};
pub use spec::AcpSpec;
