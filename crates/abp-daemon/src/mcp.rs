//! MCP: the backplane's own server, and the operator's servers behind one.
//!
//! Whoever asks was checked before: host, origin and key. The key's id is the principal, so a session of
//! one key is nothing to another. The backplane's own server starts runs, which belong to the operator;
//! the operator's servers are for every key.

use std::sync::Arc;
use std::time::Duration;

use abp_control::{
    ABP_INSTRUCTIONS, AbpServer, ControlPlane, GATEWAY_INSTRUCTIONS, mcp_gateway, mcp_offer,
};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{Gateway, Principal, Refusal};
use abp_mcp::{HttpOptions, McpBody, McpCaller, McpGateway, McpHttp, Profile, StateKey};
use bytes::Bytes;
use http::Response;
use http::request::Parts;

/// How long a client may take to answer what it is asked.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(300);
/// How long programs may take to end.
const GRACE: Duration = Duration::from_secs(5);

/// Both servers, behind HTTP.
#[derive(Debug)]
pub(crate) struct McpPlane {
    server: Arc<AbpServer>,
    own: McpHttp,
    gateway: Option<(McpGateway, McpHttp)>,
}

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum McpPlace {
    /// The backplane's own server.
    Own,
    /// The operator's servers.
    Gateway,
}

impl McpPlane {
    /// Nothing is started before somebody asks.
    ///
    /// # Errors
    /// Fails where a configured server cannot be used.
    pub(crate) fn new(plane: ControlPlane, models: &Gateway) -> Result<Self, AbpError> {
        let gateway = match plane.config().mcp.servers.is_empty() {
            true => None,
            false => Some(mcp_gateway(plane.config(), Some(models), None)?),
        };
        let gateway = gateway.map(|gateway| {
            let sessions = gateway.clone();
            let offer = mcp_offer(Profile::Compat, GATEWAY_INSTRUCTIONS);
            let http = McpHttp::new(offer, options()?, move |principal| {
                sessions.session(principal)
            });
            Ok::<_, AbpError>((gateway, http))
        });
        let roots = plane.config().mcp.roots.clone();
        let server = AbpServer::new(plane, &roots)?;
        let session = Arc::clone(&server);
        let offer = mcp_offer(Profile::Compat, ABP_INSTRUCTIONS);
        let own = McpHttp::new(offer, options()?, move |_| Arc::clone(&session) as _);
        Ok(Self {
            server,
            own,
            gateway: gateway.transpose()?,
        })
    }

    pub(crate) async fn answer(
        &self,
        place: McpPlace,
        principal: &Principal,
        parts: Parts,
        body: Bytes,
    ) -> Result<Response<McpBody>, Refusal> {
        let http = match place {
            McpPlace::Own if !principal.is_operator => {
                let message =
                    "runs need the operator's key: they are not counted against a key's limits";
                return Err(Refusal::new(ErrorCode::PolicyDenied, message));
            }
            McpPlace::Own => &self.own,
            McpPlace::Gateway => match &self.gateway {
                Some((_, http)) => http,
                None => {
                    let message = "no MCP server is configured under [mcp.servers]";
                    return Err(Refusal::new(ErrorCode::NotFound, message));
                }
            },
        };
        let caller = McpCaller {
            principal: &principal.id,
            max_sessions: principal.max_sessions,
        };
        Ok(http.handle_for(caller, parts, body).await)
    }

    /// Ends every session and stream, cancels runs and ends programs.
    pub(crate) async fn close(&self) {
        self.own.close();
        if let Some((gateway, http)) = &self.gateway {
            http.close();
            gateway.close();
            gateway.programs_ended(GRACE).await;
        }
        self.server.finish().await;
    }
}

fn options() -> Result<HttpOptions, AbpError> {
    let key = StateKey::random()
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(HttpOptions {
        request_timeout: CLIENT_TIMEOUT,
        ..HttpOptions::new(key)
    })
}
