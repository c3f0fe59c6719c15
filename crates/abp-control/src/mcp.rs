//! MCP over the control plane: runs as tools of a server, and the operator's servers behind one.

mod gateway;
mod program;
mod resources;
mod runs;
mod sampling;
mod server;
mod tools;

use abp_mcp::{Implementation, Offer, Profile, ProtocolVersion, ServerCapabilities};

pub(crate) use self::gateway::run_servers;
pub use self::gateway::{GATEWAY_INSTRUCTIONS, mcp_emulations, mcp_gateway};
pub use self::server::{ABP_INSTRUCTIONS, AbpServer};

/// What clients are offered; the session says what it has when one asks.
#[must_use]
pub fn mcp_offer(profile: Profile, instructions: &str) -> Offer {
    Offer {
        versions: ProtocolVersion::ALL.to_vec(),
        capabilities: ServerCapabilities::none(),
        info: Implementation::new("abp", env!("CARGO_PKG_VERSION")),
        instructions: Some(instructions.to_owned()),
        profile,
    }
}
