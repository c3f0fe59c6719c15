//! Running a work order on an agent.

use std::path::PathBuf;
use std::time::Duration;

use abp_agents::PermissionBehaviour;
use abp_backend_core::{
    AgentSession, BoxFuture, Completion, Emission, McpAccess, MeasuredModels, RunContext, RunEnd,
    RunModels, Session, SessionUse,
};
use abp_backend_sidecar::{Connections, Secrets, check_deliverable};
use abp_core::{
    AgentEventKind, BackendIdentity, CapabilityManifest, ExecutionMode, SandboxReport, StateAccess,
    UsageNormalized,
};
use abp_error::{AbpError, ErrorCode};
use abp_host::{AgentProcess, Containment, Egress, RunSandbox};
use abp_plan::ConfirmedPlan;
use abp_policy::{Holders, Rule};
use agent_client_protocol::Agent;
use agent_client_protocol::v1::schema::{
    AgentCapabilities, ForkSessionRequest, HttpHeader, LoadSessionRequest, McpServer,
    McpServerHttp, NewSessionRequest, PromptRequest, PromptResponse, ResumeSessionRequest,
    SessionId, SetSessionModeRequest, StopReason,
};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::connection::AcpConnection;
use crate::prompt;
use crate::spec::AcpSpec;
use crate::turn::{Patience, Stop, Turn};
use crate::updates::UpdateMapper;

/// An agent that answered `initialize`.
pub(crate) struct AcpSession {
    pub(crate) spec: AcpSpec,
    pub(crate) identity: BackendIdentity,
    pub(crate) manifest: CapabilityManifest,
    pub(crate) capabilities: AgentCapabilities,
    pub(crate) link: AcpConnection<Agent>,
    pub(crate) process: AgentProcess,
    pub(crate) egress: Option<Egress>,
    pub(crate) models: Option<RunModels>,
    pub(crate) sandbox: Option<RunSandbox>,
    /// The workspace, as the agent sees it.
    pub(crate) root: PathBuf,
    pub(crate) secrets: Secrets,
    pub(crate) earlier: Option<AgentSession>,
    pub(crate) max_workspace: Option<u64>,
}

impl Session for AcpSession {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn manifest(&self) -> &CapabilityManifest {
        &self.manifest
    }

    fn holders(&self) -> Holders {
        let confined = self.sandbox.as_ref().map(RunSandbox::holders);
        Holders::ANNOUNCED.or_stronger(confined.unwrap_or(Holders::NONE))
    }

    fn asked_tools(&self) -> &'static [&'static str] {
        self.spec.permissions.asked_tools()
    }

    fn contained_by(&self) -> Option<&'static str> {
        Some(Containment::as_str(self.process.containment()))
    }

    fn sandbox(&self) -> Option<SandboxReport> {
        Some(match &self.sandbox {
            Some(sandbox) => sandbox.report(),
            None => SandboxReport::none(),
        })
    }

    fn mounted_rules(&self) -> Vec<Rule> {
        let sandbox = self.sandbox.iter();
        sandbox
            .flat_map(|sandbox| sandbox.mounted.clone())
            .collect()
    }

    fn state_access(&self) -> Option<StateAccess> {
        Some(self.process.state_access())
    }

    fn secrets(&self) -> Vec<SecretString> {
        self.secrets.to_vec()
    }

    fn accept(&self, plan: &ConfirmedPlan) -> Result<(), AbpError> {
        let unsupported = |message: &str| AbpError::new(ErrorCode::CapabilityUnsupported, message);
        let mode = plan.order().config.execution_mode();
        if !matches!(mode, Ok(ExecutionMode::Mapped)) {
            return Err(unsupported(
                "an agent takes a task, not a vendor's request as it is",
            ));
        }
        let asks_for_mcp = matches!(plan.order().config.mcp_ask(), Ok(Some(_)));
        if asks_for_mcp && !self.capabilities.mcp_capabilities.http {
            return Err(unsupported("the agent cannot reach MCP servers over HTTP"));
        }
        check_session(self.earlier.as_ref(), &self.capabilities)?;
        check_deliverable(plan)
    }

    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        Box::pin(async move {
            let secrets = self.secrets.clone();
            let end = carry_out(*self, &context).await;
            RunEnd {
                result: end.result.map_err(|error| secrets.redact(error)),
                ..end
            }
        })
    }
}

/// Refuses to go on with a session where the agent does not offer it.
fn check_session(
    earlier: Option<&AgentSession>,
    capabilities: &AgentCapabilities,
) -> Result<(), AbpError> {
    let sessions = &capabilities.session_capabilities;
    let (offered, what) = match earlier.map(|earlier| earlier.usage) {
        None => return Ok(()),
        Some(SessionUse::Continue) => (
            capabilities.load_session || sessions.resume.is_some(),
            "go on with an earlier session",
        ),
        Some(SessionUse::Fork) => (sessions.fork.is_some(), "fork a session"),
    };
    if offered {
        return Ok(());
    }
    let message = format!("the agent cannot {what}");
    Err(AbpError::new(ErrorCode::CapabilityUnsupported, message))
}

async fn carry_out(session: AcpSession, context: &RunContext) -> RunEnd {
    let AcpSession {
        spec,
        capabilities,
        link,
        process,
        egress,
        models,
        sandbox,
        root,
        earlier,
        max_workspace,
        ..
    } = session;
    let servers = match mcp_servers(context, egress.as_ref(), &process) {
        Ok(servers) => servers,
        Err(error) => return RunEnd::failed(error),
    };
    let asks = spec.permissions != PermissionBehaviour::NeverAsks;
    let mut turn = Turn {
        context,
        link,
        connections: Connections::new(egress),
        models,
        measured: MeasuredModels::default(),
        updates: UpdateMapper::new(asks, root.clone()),
        root,
        offers_files: spec.offers_files,
        session: None,
        is_replaying: false,
        max_workspace,
        warned: Vec::new(),
    };
    let worked = work(&mut turn, &spec, &capabilities, earlier, servers).await;
    let unfinished = turn.updates.unfinished();
    // A run that was stopped takes no more events.
    drop(turn.emit(unfinished).await);
    let noise = turn.link.noise();
    if noise > 0 {
        let message =
            format!("the agent wrote {noise} lines to its standard output that are no messages");
        drop(turn.warn_once(message).await);
    }
    let is_idle = !turn.updates.is_active && turn.measured.is_empty();
    turn.link.close().await;
    let closed = std::time::Instant::now();
    // Agents write their sessions when their input ends; of a run that was cancelled nothing is waited for.
    let patience = match worked {
        Err(Stop::Cancelled) => Duration::ZERO,
        Ok(_) | Err(Stop::Failed(_)) => spec.timing.exit,
    };
    let ended = process.end(patience).await;
    tracing::debug!(target: "abp.acp", exit = %ended.exit, took = ?closed.elapsed(), "the agent ended");
    // Its temporary directory had to be there until the end.
    drop(sandbox);
    let mut refused = None;
    if let Some(models) = turn.models.take() {
        for exchange in models.close().await {
            // The agent is gone; what it still cost is told, and a refusal for the budget counts, all the same.
            refused = turn.measured.add(exchange).err().or(refused);
            drop(turn.emit(vec![turn.measured.event()]).await);
        }
    }
    let Turn {
        connections,
        measured,
        ..
    } = turn;
    connections.finish(context).await;
    let (result, usage_raw) = match worked {
        Ok(response) => conclude(&response, is_idle, measured.is_empty(), context).await,
        Err(Stop::Cancelled) => (Ok(Completion::Partial), Value::Null),
        Err(Stop::Failed(error)) => (Err(ended.explain(error)), Value::Null),
    };
    let result = match (result, refused) {
        (Ok(_), Some(error)) => Err(error),
        (result, _) => result,
    };
    measured.complete(RunEnd {
        result,
        usage_raw,
        ..RunEnd::completed()
    })
}

/// Opens the session and gives the agent its task.
async fn work(
    turn: &mut Turn<'_>,
    spec: &AcpSpec,
    capabilities: &AgentCapabilities,
    earlier: Option<AgentSession>,
    servers: Vec<McpServer>,
) -> Result<PromptResponse, Stop> {
    if spec.has_own_login {
        let message =
            "the agent asks models with a login of its own: ABP neither measures nor limits it";
        turn.warn_once(message.to_owned()).await?;
    }
    let session = open_session(turn, spec, capabilities, earlier, servers).await?;
    turn.session = Some(session.clone());
    let kind = AgentEventKind::SessionStarted {
        session_id: session.to_string(),
    };
    turn.emit(vec![Emission { kind, ext: None }]).await?;
    let request = Patience::Total(spec.timing.request);
    if let Some(mode) = &spec.mode {
        let asked = turn
            .link
            .request(SetSessionModeRequest::new(session.clone(), mode.clone()));
        turn.drive("session/set_mode", asked, request).await?;
    }
    let content = prompt::content(turn.context, &turn.root)?;
    let asked = turn.link.request(PromptRequest::new(session, content));
    let patience = Patience::Prompt {
        stall: spec.timing.stall,
        cancel: spec.timing.cancel,
    };
    turn.drive("session/prompt", asked, patience).await
}

async fn open_session(
    turn: &mut Turn<'_>,
    spec: &AcpSpec,
    capabilities: &AgentCapabilities,
    earlier: Option<AgentSession>,
    servers: Vec<McpServer>,
) -> Result<SessionId, Stop> {
    let patience = Patience::Total(spec.timing.request);
    let root = turn.root.clone();
    let Some(earlier) = earlier else {
        let asked = turn
            .link
            .request(NewSessionRequest::new(root).mcp_servers(servers));
        let opened = turn.drive("session/new", asked, patience).await?;
        return Ok(opened.session_id);
    };
    let id = SessionId::new(earlier.session_id);
    match earlier.usage {
        SessionUse::Fork => {
            let request = ForkSessionRequest::new(id, root).mcp_servers(servers);
            let asked = turn.link.request(request);
            let forked = turn.drive("session/fork", asked, patience).await?;
            Ok(forked.session_id)
        }
        SessionUse::Continue if capabilities.session_capabilities.resume.is_some() => {
            let request = ResumeSessionRequest::new(id.clone(), root).mcp_servers(servers);
            let asked = turn.link.request(request);
            turn.drive("session/resume", asked, patience).await?;
            Ok(id)
        }
        SessionUse::Continue => {
            // The agent tells the whole earlier conversation again.
            turn.is_replaying = true;
            let request = LoadSessionRequest::new(id.clone(), root).mcp_servers(servers);
            let asked = turn.link.request(request);
            turn.drive("session/load", asked, patience).await?;
            turn.is_replaying = false;
            Ok(id)
        }
    }
}

/// The run's MCP servers, at the address that leads to them from inside the sandbox.
fn mcp_servers(
    context: &RunContext,
    egress: Option<&Egress>,
    process: &AgentProcess,
) -> Result<Vec<McpServer>, AbpError> {
    let Some(McpAccess { url, key }) = context.mcp() else {
        return Ok(Vec::new());
    };
    process.hide(key.expose_secret());
    let url = match egress {
        Some(egress) => egress
            .add_route("mcp", url)
            .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?,
        None => url.clone(),
    };
    let authorization = format!("Bearer {}", key.expose_secret());
    let headers = vec![HttpHeader::new("authorization", authorization)];
    let server = McpServerHttp::new("abp", url).headers(headers);
    Ok(vec![McpServer::Http(server)])
}

/// Reads the end of the turn. An agent that ends its turn without having said or done anything did not do
/// its work, whatever it says.
async fn conclude(
    response: &PromptResponse,
    is_idle: bool,
    is_unmeasured: bool,
    context: &RunContext,
) -> (Result<Completion, AbpError>, Value) {
    let usage_raw = json!({ "usage": response.usage, "_meta": response.meta });
    if is_unmeasured && let Some(usage) = &response.usage {
        let usage = UsageNormalized {
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            cache_read_tokens: usage.cached_read_tokens,
            cache_write_tokens: usage.cached_write_tokens,
            ..UsageNormalized::default()
        };
        // A run that was stopped takes no more events.
        let _ = context.emit(AgentEventKind::UsageUpdated { usage }).await;
    }
    let result = match response.stop_reason {
        StopReason::EndTurn if is_idle => {
            let message =
                "the agent ended its turn without an answer, a tool call or a request to a model";
            Err(AbpError::new(ErrorCode::BackendBrokenAnswer, message))
        }
        StopReason::EndTurn => Ok(Completion::Whole),
        StopReason::MaxTokens | StopReason::MaxTurnRequests | StopReason::Cancelled => {
            let message = format!("the agent ended its turn early: {:?}", response.stop_reason);
            let _ = context.emit(AgentEventKind::Warning { message }).await;
            Ok(Completion::Partial)
        }
        StopReason::Refusal => {
            let message = "the agent refused the task";
            Err(AbpError::new(ErrorCode::BackendBrokenAnswer, message))
        }
        _ => Ok(Completion::Partial),
    };
    (result, usage_raw)
}
