//! The daemon: the gateway behind HTTP.
//!
//! [`Server::bind`] refuses what would expose callers, [`Server::run`] serves. Every request goes the same
//! way: its bytes are watched while they come, its host, origin and framing are checked,
//! its address is looked up in one table of routes, its key is found, its body is read within
//! limits, and only then does the gateway see it. Vendors' routes answer in the vendor's words,
//! errors included. `/v1/assist` starts runs for whoever asks, in the form it can take.
//!
//! HTTP/1.1 only: that is what vendors' clients speak to a plain address, and it leaves out every
//! attack that needs more.

mod app;
mod assist;
mod auth;
mod body;
mod cors;
mod find;
mod guard;
mod lanes;
mod mcp;
mod pages;
mod policy;
mod route;
mod runs;
mod serve;
mod setup;
mod tls;
mod wire;

pub use find::find_run;
pub use mcp::{
    ABP_INSTRUCTIONS, AbpServer, GATEWAY_INSTRUCTIONS, mcp_emulations, mcp_gateway, mcp_offer,
};
pub use policy::usual_policy;
pub use runs::{ConfiguredModel, RunPlane, configured_models, first_configured_model};
pub use serve::{Planes, Server, ServerOptions};
pub use setup::{
    gateway, harden, http_upstream, new_key, operator_key, operator_key_file, server_options,
};
