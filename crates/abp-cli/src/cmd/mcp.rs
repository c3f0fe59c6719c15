//! `abp mcp`: the backplane as an MCP server, other MCP servers behind one, and what they agree on.

mod gateway;
mod negotiate;
mod resources;
mod runs;
mod server;
mod tools;

use std::sync::Arc;
use std::time::Duration;

use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_mcp::{
    ConnectionOptions, Implementation, McpConnection, McpSession, Offer, Profile, ProtocolVersion,
    ServerCapabilities, StateKey, serve_lines,
};

use crate::args::{GlobalArgs, McpArgs, McpCommand};
use crate::output::Output;
use crate::session::{Session, block_on};

/// How long a client may take to answer what it is asked.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);
/// The most requests that are served at once.
const MAX_REQUESTS: usize = 64;

pub(crate) fn run(
    args: &McpArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if let Some(McpCommand::Negotiate(args)) = &args.command {
        return negotiate::run(args, output);
    }
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let profile = if args.strict {
        Profile::Strict
    } else {
        Profile::Compat
    };
    block_on(async {
        if args.gateway {
            let gateway = gateway::open(session.config())?;
            serve(gateway.session(), profile, gateway::INSTRUCTIONS).await?;
            gateway.close().await;
        } else {
            let server = server::AbpServer::new(session)?;
            serve(Arc::clone(&server) as _, profile, server::INSTRUCTIONS).await?;
            server.finish().await;
        }
        Ok(ExitStatus::Success)
    })
}

/// Serves the client at the standard streams until it closes them.
async fn serve(
    session: Arc<dyn McpSession>,
    profile: Profile,
    instructions: &str,
) -> Result<(), AbpError> {
    let offer = Offer {
        versions: ProtocolVersion::ALL.to_vec(),
        // The session says what it has when a client asks.
        capabilities: ServerCapabilities::none(),
        info: Implementation::new("abp", env!("CARGO_PKG_VERSION")),
        instructions: Some(instructions.to_owned()),
        profile,
    };
    let options = ConnectionOptions {
        principal: String::new(),
        state_key: StateKey::random().map_err(|error| internal(&error.to_string()))?,
        request_timeout: CLIENT_TIMEOUT,
        max_requests: MAX_REQUESTS,
    };
    let connection = McpConnection::new(session, offer, options);
    let served = serve_lines(connection, tokio::io::stdin(), tokio::io::stdout()).await;
    served.map_err(|error| internal("the connection broke").with_source(error))
}

fn internal(message: &str) -> AbpError {
    AbpError::new(ErrorCode::Internal, message)
}
