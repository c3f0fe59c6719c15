//! The routes that the daemon adds to the vendors' endpoints.

use std::sync::Arc;

use abp_config::Loaded;
use abp_console::ConsoleFile;
use abp_control::ControlPlane;
use abp_control_http::ControlFace;
use abp_error::AbpError;
use abp_gateway::Gateway;
use abp_gateway_http::{BodyRule, ExtraRoute, HttpReply, StaticFile};
use abp_mcp::MESSAGE_LIMITS;
use http::Method;

use crate::assist::Assist;
use crate::mcp::{McpPlace, McpPlane};

/// A GET opens a stream of an MCP session, a DELETE ends the session.
const MCP_METHODS: &[Method] = &[Method::POST, Method::GET, Method::DELETE];

/// The faces of a control plane over HTTP.
#[derive(Debug)]
pub struct Daemon {
    control: ControlFace,
    assist: Arc<Assist>,
    mcp: Arc<McpPlane>,
}

impl Daemon {
    /// The faces of a control plane. Nothing is started before it is asked for. `loaded` is the
    /// configuration of the plane with the origin of each value, for those who may look at it.
    ///
    /// # Errors
    /// Fails where a configured MCP server cannot be used.
    pub fn new(
        plane: &ControlPlane,
        gateway: &Gateway,
        loaded: Option<&Loaded>,
    ) -> Result<Self, AbpError> {
        Ok(Self {
            control: ControlFace::new(plane, gateway, loaded),
            assist: Arc::new(Assist::new(plane.clone())),
            mcp: Arc::new(McpPlane::new(plane.clone(), gateway)?),
        })
    }

    /// The rows for [`Server::bind`](abp_gateway_http::Server::bind).
    #[must_use]
    pub fn routes(&self) -> Vec<ExtraRoute> {
        let mut routes = vec![
            self.assist(),
            self.mcp("/mcp", McpPlace::Own),
            self.mcp("/mcp/gateway", McpPlace::Gateway),
        ];
        routes.extend(self.control.routes());
        routes.extend(console());
        routes
    }

    /// Begins what goes on by itself: webhooks.
    ///
    /// # Errors
    /// Fails where a configured webhook cannot be used, and where the store cannot be opened.
    pub async fn start(&self) -> Result<(), AbpError> {
        self.control.start().await
    }

    /// Ends every session and stream, and ends programs. Runs are the workers' to end.
    pub async fn close(&self) {
        self.control.close();
        self.assist.close();
        self.mcp.close().await;
    }

    fn assist(&self) -> ExtraRoute {
        let assist = Arc::clone(&self.assist);
        ExtraRoute::new("/assist", &[Method::POST], BodyRule::Json, move |call| {
            let assist = Arc::clone(&assist);
            Box::pin(async move {
                let headers = &call.parts.headers;
                assist.answer(&call.principal, headers, &call.body).await
            })
        })
    }

    fn mcp(&self, path: &'static str, place: McpPlace) -> ExtraRoute {
        let mcp = Arc::clone(&self.mcp);
        let body = BodyRule::JsonOfPost(MESSAGE_LIMITS.max_bytes);
        ExtraRoute::new(path, MCP_METHODS, body, move |call| {
            let mcp = Arc::clone(&mcp);
            Box::pin(async move {
                let answered = mcp.answer(place, &call.principal, call.parts, call.body);
                Ok(HttpReply::foreign(answered.await?))
            })
        })
    }
}

/// The console's page and files. They say nothing of any caller: the pages ask for a key.
fn console() -> [ExtraRoute; 2] {
    let file = |file: &ConsoleFile| StaticFile {
        name: file.name,
        media_type: file.media_type,
        bytes: file.bytes,
    };
    let files = abp_console::FILES.iter().map(file).collect();
    [
        ExtraRoute::files(
            "/console",
            abp_console::POLICY,
            vec![file(&abp_console::INDEX)],
        ),
        ExtraRoute::files("/console/{file}", abp_console::POLICY, files),
    ]
}
