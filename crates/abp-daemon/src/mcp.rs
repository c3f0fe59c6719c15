//! MCP: the backplane's own server, and the operator's servers behind one.
//!
//! Callers were checked before: host, origin and key. The key's id is the principal, so a session of one
//! key is nothing to another. The backplane's own server submits runs, which belong to the key and are the
//! only ones it shows; the operator's servers are for every key.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_control::{
    ABP_INSTRUCTIONS, AbpServer, ControlPlane, GATEWAY_INSTRUCTIONS, KeyScope, Principal,
    mcp_gateway, mcp_offer,
};
use abp_error::{AbpError, ErrorCode};
use abp_gateway::{Gateway, Refusal};
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
    /// The server as each principal sees it.
    faces: Arc<Mutex<HashMap<String, Arc<AbpServer>>>>,
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
        let faces: Arc<Mutex<HashMap<String, Arc<AbpServer>>>> = Arc::default();
        let (known, nobodys) = (Arc::clone(&faces), Arc::clone(&server));
        let offer = mcp_offer(Profile::Compat, ABP_INSTRUCTIONS);
        let own = McpHttp::new(offer, options()?, move |principal| {
            let face = lock(&known).get(principal).cloned();
            // Every caller has a face before it is let through.
            face.unwrap_or_else(|| nobodys.for_principal(Principal::key(principal, "", []))) as _
        });
        Ok(Self {
            server,
            faces,
            own,
            gateway: gateway.transpose()?,
        })
    }

    pub(crate) async fn answer(
        &self,
        place: McpPlace,
        principal: &abp_gateway::Principal,
        parts: Parts,
        body: Bytes,
    ) -> Result<Response<McpBody>, Refusal> {
        let http = match place {
            McpPlace::Own => {
                let caller = Principal::of_caller(principal);
                caller.require(KeyScope::RunsRead)?;
                let mut faces = lock(&self.faces);
                if !faces.contains_key(&principal.id) {
                    faces.insert(principal.id.clone(), self.server.for_principal(caller));
                }
                &self.own
            }
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

    /// Ends every session and stream, and ends programs. Runs are the workers' to end.
    pub(crate) async fn close(&self) {
        self.own.close();
        if let Some((gateway, http)) = &self.gateway {
            http.close();
            gateway.close();
            gateway.programs_ended(GRACE).await;
        }
    }
}

fn lock<T>(shared: &Mutex<T>) -> MutexGuard<'_, T> {
    // A map is never half changed.
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn options() -> Result<HttpOptions, AbpError> {
    let key = StateKey::random()
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    Ok(HttpOptions {
        request_timeout: CLIENT_TIMEOUT,
        ..HttpOptions::new(key)
    })
}
