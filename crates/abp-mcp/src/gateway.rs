//! Many servers as one: lists merged, calls routed, both eras bridged.
//!
//! A client with a handshake has a [`Fleet`](fleet::Fleet) of its own: connections with every server,
//! opened with what that client declared. Clients without share one where they declare the same, are the
//! same principal and belong to the same [`McpScope`]. So no server learns of capabilities that its client
//! does not have.

mod emulate;
mod exchange;
mod fleet;
mod inputs;
mod json;
mod lists;
mod rounds;
mod scope;
mod session;
mod tools;
mod watch;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abp_core::SandboxReport;
use abp_glob::GlobList;

pub use emulate::{
    Emulations, PreparedAnswers, Sample, SampleMessage, SamplePart, SampleRequest, SampleRole,
    SampleStop, Sampler, SamplingRules, SubscribeRules,
};
pub use scope::McpScope;
pub use tools::{ServerTool, ToolQuestion, ToolRules, ToolTally};

use crate::lifecycle::ClientTimeouts;
use crate::meta::Implementation;
use crate::serve::McpSession;
use crate::upstream::ServerAddress;
use crate::version::ProtocolVersion;
use emulate::Emulator;
use rounds::Parked;
use session::GatewaySession;

/// A server behind the gateway.
#[derive(Clone, Debug)]
pub struct GatewayServer {
    /// What it is called here.
    pub name: String,
    /// Where it is.
    pub address: ServerAddress,
    /// The versions that are spoken with it.
    pub versions: Vec<ProtocolVersion>,
    /// How long it may take.
    pub timeouts: ClientTimeouts,
    /// How long it may take until it can be used.
    pub open_timeout: Duration,
    /// The tools that may be used, by its own names.
    pub allow_tools: GlobList,
    /// The tools that may not; wins.
    pub deny_tools: GlobList,
}

/// Many servers as one.
#[derive(Clone)]
pub struct McpGateway {
    shared: Arc<GatewayShared>,
    /// Of every session that is in no other.
    scope: Arc<McpScope>,
}

struct GatewayShared {
    servers: Vec<GatewayServer>,
    info: Implementation,
    emulator: Arc<Emulator>,
    parked: Parked,
}

impl std::fmt::Debug for McpGateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("McpGateway")
            .field("servers", &self.shared.servers)
            .finish_non_exhaustive()
    }
}

impl GatewayServer {
    /// Whether a tool may be used.
    pub(crate) fn admits(&self, tool: &str) -> bool {
        self.allow_tools.is_match(tool) && !self.deny_tools.is_match(tool)
    }
}

impl McpGateway {
    /// A gateway in front of servers that fills nothing in. Nothing is opened yet.
    #[must_use]
    pub fn new(servers: Vec<GatewayServer>, info: Implementation) -> Self {
        Self::emulating(servers, info, Emulations::default(), None)
    }

    /// A gateway that fills in what is allowed. Without a sampler nobody samples.
    #[must_use]
    pub fn emulating(
        servers: Vec<GatewayServer>,
        info: Implementation,
        emulations: Emulations,
        sampler: Option<Sampler>,
    ) -> Self {
        Self {
            shared: Arc::new(GatewayShared {
                servers,
                info,
                emulator: Arc::new(Emulator::new(emulations, sampler)),
                parked: Parked::default(),
            }),
            scope: Arc::default(),
        }
    }

    /// The session of a new connection, of whoever is authenticated.
    #[must_use]
    pub fn session(&self, principal: &str) -> Arc<dyn McpSession> {
        self.session_in(&self.scope, principal)
    }

    /// The session of a new connection that belongs to others: those of a run, for example.
    #[must_use]
    pub fn session_in(&self, scope: &Arc<McpScope>, principal: &str) -> Arc<dyn McpSession> {
        let (gateway, scope) = (Arc::clone(&self.shared), Arc::clone(scope));
        Arc::new(GatewaySession::new(gateway, scope, principal))
    }

    /// The servers by name, with the sandboxes of those that are programs.
    #[must_use]
    pub fn sandboxes(&self) -> BTreeMap<String, Option<SandboxReport>> {
        let servers = self.shared.servers.iter();
        let sandboxes = servers.map(|server| (server.name.clone(), server.address.sandbox()));
        sandboxes.collect()
    }

    /// Waits until no program that was started for it is left, but not for longer than this.
    pub async fn programs_ended(&self, limit: Duration) {
        let servers = self.shared.servers.iter();
        let programs = servers.filter_map(|server| match &server.address {
            ServerAddress::Program(program) => Some(&program.running),
            ServerAddress::Http(_) => None,
        });
        let all = async {
            for running in programs {
                running.ended().await;
            }
        };
        if tokio::time::timeout(limit, all).await.is_err() {
            tracing::warn!(target: "abp.mcp", "a program of an MCP server does not end");
        }
    }

    /// Closes every connection that is shared. Those of sessions close with them.
    pub fn close(&self) {
        self.scope.close();
        self.shared.parked.clear();
    }
}
