//! `abp mcp`: the backplane as an MCP server, other MCP servers behind one, and what they agree on.

mod negotiate;

use std::sync::Arc;
use std::time::Duration;

use abp_control::{
    ABP_INSTRUCTIONS, AbpServer, ControlPlane, GATEWAY_INSTRUCTIONS, mcp_gateway, mcp_offer,
};
use abp_error::{AbpError, ErrorCode, ExitStatus};
use abp_gateway::Gateway;
use abp_mcp::{
    ConnectionOptions, McpConnection, McpSession, Offer, Profile, StateKey, serve_lines,
};

use crate::args::{GlobalArgs, McpArgs, McpCommand};
use crate::output::Output;
use crate::session::{Session, block_on};

/// How long a client may take to answer what it is asked.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);
/// How long servers may take to end.
const GRACE: Duration = Duration::from_secs(5);
/// The most requests that are served at once.
const MAX_REQUESTS: usize = 64;

pub(crate) fn run(
    args: &McpArgs,
    global: &GlobalArgs,
    output: &mut Output,
) -> Result<ExitStatus, AbpError> {
    if let Some(McpCommand::Negotiate(args)) = &args.command {
        return negotiate::run(args, global, output);
    }
    let session = Session::open(global, &args.host.mock_scripts, output)?;
    let profile = if args.strict {
        Profile::Strict
    } else {
        Profile::Compat
    };
    let root = std::env::current_dir();
    let root = root.map_err(|error| internal("the directory cannot be read").with_source(error))?;
    block_on(async {
        if args.gateway {
            let models = models(&session.plane).await?;
            let gateway = mcp_gateway(session.config(), models.as_ref(), Some(&root))?;
            serve(
                gateway.session(""),
                mcp_offer(profile, GATEWAY_INSTRUCTIONS),
            )
            .await?;
            gateway.close();
            gateway.programs_ended(GRACE).await;
            if let Some(models) = models {
                models.close().await;
            }
        } else {
            let server = AbpServer::new(session.plane, &[root])?;
            serve(
                Arc::clone(&server) as _,
                mcp_offer(profile, ABP_INSTRUCTIONS),
            )
            .await?;
            server.finish().await;
        }
        Ok(ExitStatus::Success)
    })
}

/// The models that MCP servers may sample from, where they may.
async fn models(plane: &ControlPlane) -> Result<Option<Gateway>, AbpError> {
    if plane.config().mcp.emulate.sampling.is_none() {
        return Ok(None);
    }
    let models = plane.gateway().await?;
    models.reload_keys(None).await?;
    Ok(Some(models))
}

/// Serves the client at the standard streams until it closes them.
async fn serve(session: Arc<dyn McpSession>, offer: Offer) -> Result<(), AbpError> {
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
