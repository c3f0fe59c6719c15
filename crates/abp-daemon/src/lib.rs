//! The daemon: the gateway and the control plane behind HTTP.
//!
//! The vendors' endpoints are those of [`abp_gateway_http`]. The daemon adds rows to its table of routes:
//! those of [`abp_control_http`] submit, follow and decide runs, `/v1/assist` submits runs
//! and answers in the form their sender can take, `/mcp` offers runs as MCP tools, and
//! `/mcp/gateway` the operator's MCP servers as one. All of them are faces of one
//! [`ControlPlane`](abp_control::ControlPlane).

mod assist;
mod mcp;
mod routes;

pub use routes::Daemon;
