//! The gateway behind HTTP: the vendors' endpoints, for the daemon, `abp launch` and runs.
//!
//! [`Server::bind`] refuses what would expose callers, [`Server::run`] serves. Every request takes the same
//! path: its bytes are watched while they arrive, its host, origin and framing are checked, its address is
//! looked up in one table of routes, its key is authenticated, its body is read within limits, and only
//! then does the gateway see it. Vendors' routes answer in the vendor's form, errors included. A program
//! adds its own addresses as rows ([`ExtraRoute`]); they pass the same checks.
//!
//! HTTP/1.1 only: vendors' clients speak it to a plain address, and it leaves out every attack that needs
//! more.

mod app;
mod auth;
mod body;
mod cors;
mod extra;
mod guard;
mod harden;
mod lanes;
mod options;
mod pages;
mod route;
mod serve;
mod tls;
mod upgrade;
mod upload;
mod wire;

pub use body::{HttpReply, json_answer};
pub use extra::{BodyRule, ExtraCall, ExtraFuture, ExtraRoute, PathParams, StaticFile};
pub use harden::harden;
pub use options::ServerOptions;
pub use serve::Server;
pub use upgrade::UpgradeSession;
pub use upload::UploadBody;
