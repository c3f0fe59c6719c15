//! Serving one client: its requests, its open sessions, and the end of the connection.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use abp_backend_acp::protocol::schema::{
    AgentCapabilities, CancelNotification, CloseSessionRequest, ConfigOptionUpdate, ContentBlock,
    CurrentModeUpdate, DisableProviderRequest, Implementation, InitializeRequest,
    InitializeResponse, ListProvidersRequest, ListSessionsRequest, ListSessionsResponse,
    LoadSessionRequest, LoadSessionResponse, McpServer, NewSessionRequest, NewSessionResponse,
    PromptCapabilities, PromptRequest, ProvidersCapabilities, ResumeSessionRequest,
    ResumeSessionResponse, SessionCapabilities, SessionCloseCapabilities, SessionConfigOptionValue,
    SessionInfo, SessionListCapabilities, SessionNotification, SessionResumeCapabilities,
    SessionUpdate, SetProviderRequest, SetSessionConfigOptionRequest,
    SetSessionConfigOptionResponse, SetSessionModeRequest,
};
use abp_backend_acp::protocol::{
    AcpConnection, AcpMessage, AcpSender, Client, Error, ProtocolVersion,
};
use abp_control::{ControlPlane, PolicyChoice, Principal, RunRecord};
use abp_core::{CancelReason, ExecutionLane};
use abp_error::{AbpError, ErrorCode};
use abp_store::path_text;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use sidecar_kit::DEFAULT_MAX_LINE;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::task::JoinSet;
use uuid::Uuid;

use crate::content;
use crate::history::{self, order_of, turns};
use crate::providers::Providers;
use crate::refusal::{self, invalid, unknown_session, untimely};
use crate::settings::{LANE, SessionSettings};
use crate::turn::Turn;
use crate::updates::{UpdateMapper, asked_by_person};

/// The time that runs may take to end when the client is gone.
const GRACE: Duration = Duration::from_secs(10);

/// The operator's choices on the command line.
#[derive(Debug, Clone)]
pub struct AcpOptions {
    /// The backend of new sessions; the configured one where it is `None`.
    pub backend: Option<String>,
    /// The lane of new sessions.
    pub lane: ExecutionLane,
    /// The policy of every run.
    pub policy: PolicyChoice,
    /// The model to ask for; the backend's default where it is `None`.
    pub model: Option<String>,
    /// The time that a question of the gate waits for its answer.
    pub approval_timeout: Duration,
    /// The person at the editor, for approvals and receipts.
    pub person: String,
}

/// The agent that one client talks to.
#[derive(Debug)]
pub(crate) struct AcpServer {
    plane: Mutex<ControlPlane>,
    providers: Mutex<Providers>,
    pub(crate) options: AcpOptions,
    pub(crate) principal: Principal,
    pub(crate) sender: AcpSender<Client>,
    has_notices: AtomicBool,
    sessions: Mutex<BTreeMap<Uuid, OpenSession>>,
}

/// A session that the client opened on this connection.
#[derive(Debug)]
struct OpenSession {
    root: PathBuf,
    settings: SessionSettings,
    /// Names of MCP servers that the operator configured.
    mcp_servers: Vec<String>,
    /// Names of MCP servers of the client that agents do not get, until the client was told.
    untold_servers: Vec<String>,
    /// Cancels the prompt under way.
    prompt: Option<watch::Sender<bool>>,
}

/// Serves a client until it closes its end, or until `stop` is done. Runs that go on then are cancelled: without
/// the client nobody would answer their questions or see what they cost.
///
/// # Errors
/// Fails where the connection cannot be made, and where the client broke the protocol.
pub async fn serve<R, W>(
    plane: ControlPlane,
    options: AcpOptions,
    stdin: R,
    stdout: W,
    stop: impl Future<Output = ()>,
) -> Result<(), AbpError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    // A backend that is not there is told before an editor waits for it.
    plane.backend(options.backend.as_deref())?;
    let mut connection = AcpConnection::serve(stdin, stdout, DEFAULT_MAX_LINE).await?;
    let server = Arc::new(AcpServer {
        principal: Principal::local(&options.person).via("acp"),
        sender: connection.sender(),
        has_notices: AtomicBool::new(false),
        sessions: Mutex::default(),
        providers: Mutex::new(Providers::new(plane.config().upstreams.clone())),
        plane: Mutex::new(plane),
        options,
    });
    let mut prompts = JoinSet::new();
    let mut stop = std::pin::pin!(stop);
    loop {
        let incoming = tokio::select! {
            incoming = connection.next_request() => incoming,
            () = &mut stop => None,
        };
        match incoming {
            None => break,
            Some(AcpMessage::Notification { method, params }) => server.notified(&method, params),
            Some(AcpMessage::Request {
                method,
                params,
                responder,
            }) if method == "session/prompt" => {
                match server.begin_prompt(params) {
                    Ok((turn, blocks)) => {
                        let server = Arc::clone(&server);
                        prompts.spawn(async move {
                            let session = turn.session;
                            let answer = prompt(turn, blocks).await;
                            server.end_prompt(session);
                            server.sender.respond(*responder, answer);
                        });
                    }
                    Err(error) => server.sender.respond(*responder, Err(error)),
                };
            }
            Some(AcpMessage::Request {
                method,
                params,
                responder,
            }) => {
                let answer = tokio::select! {
                    answer = server.answer(&method, params) => answer,
                    () = &mut stop => break,
                };
                server.sender.respond(*responder, answer);
            }
        }
        while prompts.try_join_next().is_some() {}
    }
    let plane = server.plane();
    let left = plane
        .runtime()
        .finish(CancelReason::Disconnect, GRACE)
        .await;
    if left > 0 {
        tracing::warn!(target: "abp.acp", left, "runs did not end in time");
    }
    prompts.shutdown().await;
    let problem = connection.problem();
    connection.close().await;
    plane.close().await;
    match problem {
        Some(problem) => {
            let message = format!("the client broke the protocol: {problem}");
            Err(AbpError::new(ErrorCode::ValidationFailed, message))
        }
        None => Ok(()),
    }
}

/// Carries a prompt out; the answer to it.
async fn prompt(turn: Turn, blocks: Vec<ContentBlock>) -> Result<Value, Error> {
    let content = content::read(blocks, &turn.root).map_err(invalid)?;
    written(&turn.carry_out(content).await?)
}

impl AcpServer {
    pub(crate) fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Relaxed)
    }

    /// Answers every request but a prompt.
    async fn answer(&self, method: &str, params: Value) -> Result<Value, Error> {
        match method {
            "initialize" => written(&self.initialize(&read(params)?)),
            "session/new" => written(&self.new_session(read(params)?)?),
            "session/list" => written(&self.list_sessions(read(params)?).await?),
            "session/load" => {
                let request: LoadSessionRequest = read(params)?;
                let id = session_id(&request.session_id.0)?;
                let turns = self.stored_turns(id, &request.cwd).await?;
                self.replay(id, &turns, &request.cwd).await?;
                let session = self.reopen(&turns, request.cwd, &request.mcp_servers)?;
                let settings = self.open(id, session);
                written(
                    &LoadSessionResponse::new()
                        .modes(settings.modes())
                        .config_options(settings.options(&self.plane())),
                )
            }
            "session/resume" => {
                let request: ResumeSessionRequest = read(params)?;
                let id = session_id(&request.session_id.0)?;
                let turns = self.stored_turns(id, &request.cwd).await?;
                let session = self.reopen(&turns, request.cwd, &request.mcp_servers)?;
                let settings = self.open(id, session);
                written(
                    &ResumeSessionResponse::new()
                        .modes(settings.modes())
                        .config_options(settings.options(&self.plane())),
                )
            }
            "session/close" => {
                let request: CloseSessionRequest = read(params)?;
                let id = session_id(&request.session_id.0)?;
                let closed = self.sessions().remove(&id);
                let closed = closed.ok_or_else(|| unknown_session(&request.session_id.0))?;
                if let Some(prompt) = closed.prompt {
                    prompt.send_replace(true);
                }
                Ok(json!({}))
            }
            "session/set_mode" => {
                let request: SetSessionModeRequest = read(params)?;
                let id = session_id(&request.session_id.0)?;
                let settings = self.set(id, LANE, &request.mode_id.0)?;
                let options = settings.options(&self.plane());
                let update = ConfigOptionUpdate::new(options);
                self.update(id, SessionUpdate::ConfigOptionUpdate(update));
                Ok(json!({}))
            }
            "session/set_config_option" => {
                let request: SetSessionConfigOptionRequest = read(params)?;
                let id = session_id(&request.session_id.0)?;
                let SessionConfigOptionValue::ValueId { value } = &request.value else {
                    return Err(invalid("every option is a choice, none is a yes or no"));
                };
                let settings = self.set(id, &request.config_id.0, &value.0)?;
                if &*request.config_id.0 == LANE {
                    let mode = settings.modes().current_mode_id;
                    let update = CurrentModeUpdate::new(mode);
                    self.update(id, SessionUpdate::CurrentModeUpdate(update));
                }
                let options = settings.options(&self.plane());
                written(&SetSessionConfigOptionResponse::new(options))
            }
            "providers/list" => {
                read::<ListProvidersRequest>(params)?;
                written(&locked(&self.providers).list())
            }
            "providers/set" => {
                let request: SetProviderRequest = read(params)?;
                self.change_providers(|providers| providers.set(request))
                    .await
            }
            "providers/disable" => {
                let request: DisableProviderRequest = read(params)?;
                let id = &request.provider_id.0;
                self.change_providers(|providers| providers.disable(id))
                    .await
            }
            _ => Err(Error::method_not_found().data(json!({ "method": method }))),
        }
    }

    /// Lets the client change the upstreams of the runs to come.
    async fn change_providers(
        &self,
        change: impl FnOnce(&mut Providers) -> Result<(), String>,
    ) -> Result<Value, Error> {
        if self
            .sessions()
            .values()
            .any(|session| session.prompt.is_some())
        {
            return Err(untimely("a prompt is under way; cancel it first"));
        }
        let mut providers = locked(&self.providers).clone();
        change(&mut providers).map_err(invalid)?;
        let old = self.plane();
        let mut config = old.config().clone();
        config.upstreams = providers.upstreams();
        let plane = old.reopened(config);
        let plane = plane.map_err(|error| refusal::of_error(&error))?;
        *locked(&self.providers) = providers;
        *locked(&self.plane) = plane;
        old.close().await;
        Ok(json!({}))
    }

    /// The control plane of the runs to come.
    fn plane(&self) -> ControlPlane {
        locked(&self.plane).clone()
    }

    fn initialize(&self, request: &InitializeRequest) -> InitializeResponse {
        let session = request.client_capabilities.session.as_ref();
        let has_notices = session.is_some_and(|session| session.notices.is_some());
        self.has_notices.store(has_notices, Ordering::Relaxed);
        let sessions = SessionCapabilities::new()
            .list(SessionListCapabilities::new())
            .resume(SessionResumeCapabilities::new())
            .close(SessionCloseCapabilities::new());
        let capabilities = AgentCapabilities::new()
            .load_session(true)
            .prompt_capabilities(PromptCapabilities::new().embedded_context(true))
            .session_capabilities(sessions)
            .providers(ProvidersCapabilities::new());
        InitializeResponse::new(ProtocolVersion::V1)
            .agent_capabilities(capabilities)
            .agent_info(
                Implementation::new("abp", env!("CARGO_PKG_VERSION")).title("Agent Backplane"),
            )
    }

    fn new_session(&self, request: NewSessionRequest) -> Result<NewSessionResponse, Error> {
        if !request.additional_directories.is_empty() {
            return Err(invalid(
                "a session works on one directory, without additional ones",
            ));
        }
        let settings = SessionSettings {
            backend: self
                .plane()
                .backend(self.options.backend.as_deref())
                .map_err(|error| refusal::of_error(&error))?,
            lane: self.options.lane,
        };
        let session = self.session(request.cwd, settings, &request.mcp_servers)?;
        let id = Uuid::now_v7();
        let settings = self.open(id, session);
        Ok(NewSessionResponse::new(id.to_string())
            .modes(settings.modes())
            .config_options(settings.options(&self.plane())))
    }

    /// A session on a directory.
    fn session(
        &self,
        root: PathBuf,
        settings: SessionSettings,
        servers: &[McpServer],
    ) -> Result<OpenSession, Error> {
        if !root.is_absolute() || !root.is_dir() {
            let root = root.display();
            return Err(invalid(format!(
                "{root} is no directory with an absolute path"
            )));
        }
        let plane = self.plane();
        let configured = &plane.config().mcp.servers;
        let names = servers.iter().map(server_name);
        let (mcp_servers, untold_servers) = names.partition(|name| configured.contains_key(name));
        Ok(OpenSession {
            root,
            settings,
            mcp_servers,
            untold_servers,
            prompt: None,
        })
    }

    fn open(&self, id: Uuid, session: OpenSession) -> SessionSettings {
        let settings = session.settings.clone();
        self.sessions().insert(id, session);
        settings
    }

    async fn list_sessions(
        &self,
        request: ListSessionsRequest,
    ) -> Result<ListSessionsResponse, Error> {
        let cursor = request.cursor.as_deref().map(str::parse::<i64>).transpose();
        let cursor = cursor.map_err(|_| invalid("the cursor is none that was given"))?;
        let directory = request.cwd.map(|cwd| cwd.canonicalize().unwrap_or(cwd));
        let directory = directory.map(|directory| path_text(&directory));
        let listed =
            history::list(&self.plane(), &self.principal, directory.as_deref(), cursor).await;
        let (sessions, next) = listed.map_err(|error| refusal::of_error(&error))?;
        let sessions = sessions.into_iter().map(|session| {
            SessionInfo::new(session.id.to_string(), session.directory)
                .title(session.title)
                .updated_at(session.updated_at)
        });
        let response = ListSessionsResponse::new(sessions.collect());
        Ok(response.next_cursor(next.map(|next| next.to_string())))
    }

    /// The turns of a session of the store, which worked on that directory.
    async fn stored_turns(&self, id: Uuid, root: &Path) -> Result<Vec<RunRecord>, Error> {
        let failed = |error: AbpError| refusal::of_error(&error);
        if let Some(open) = self.sessions().get(&id)
            && open.prompt.is_some()
        {
            return Err(untimely(
                "a prompt of this session is under way; cancel it first",
            ));
        }
        let turns = turns(&self.plane(), id).await.map_err(failed)?;
        let Some(first) = turns.first() else {
            return Err(unknown_session(&id.to_string()));
        };
        let asked = root.canonicalize().map(|root| path_text(&root));
        let Some(project) = first.project.as_ref().map(|project| &project.path) else {
            return Err(invalid("the session's directory is not known any more"));
        };
        // A directory that is gone was moved, and the client knows where to.
        let is_moved = !Path::new(project).is_dir();
        match asked {
            Ok(asked) if asked == *project || is_moved => Ok(turns),
            _ => Err(invalid(format!("the session works on {project}"))),
        }
    }

    /// A session as its last turn left it.
    fn reopen(
        &self,
        turns: &[RunRecord],
        root: PathBuf,
        servers: &[McpServer],
    ) -> Result<OpenSession, Error> {
        let failed = |error: AbpError| refusal::of_error(&error);
        let last = turns
            .last()
            .ok_or_else(|| invalid("the session has no turn"))?;
        let settings = SessionSettings {
            backend: last.backend.clone(),
            lane: order_of(last).map_err(failed)?.lane,
        };
        self.session(root, settings, servers)
    }

    /// Tells everything that the store has of the turns.
    async fn replay(&self, id: Uuid, turns: &[RunRecord], root: &Path) -> Result<(), Error> {
        let failed = |error: AbpError| refusal::of_error(&error);
        let plane = self.plane();
        for (number, turn) in turns.iter().enumerate() {
            let order = order_of(turn).map_err(failed)?;
            self.update(id, asked_by_person(&order.task));
            let mut mapper = UpdateMapper::new(number, root.to_owned(), self.has_notices());
            let mut from = 0;
            loop {
                let page = history::events(&plane, turn.run_id, from).await;
                let page = page.map_err(failed)?;
                if page.is_empty() {
                    break;
                }
                for (seq, event) in page {
                    from = seq + 1;
                    self.sender.room().await;
                    for update in mapper.map(seq, &event) {
                        self.update(id, update);
                    }
                }
            }
        }
        Ok(())
    }

    fn set(&self, id: Uuid, option: &str, value: &str) -> Result<SessionSettings, Error> {
        let mut sessions = self.sessions();
        let session = sessions.get_mut(&id);
        let session = session.ok_or_else(|| unknown_session(&id.to_string()))?;
        let set = session.settings.set(option, value, &self.plane());
        set.map_err(invalid)?;
        Ok(session.settings.clone())
    }

    /// Marks a session as busy with a prompt, before anything else of the client is read.
    fn begin_prompt(self: &Arc<Self>, params: Value) -> Result<(Turn, Vec<ContentBlock>), Error> {
        let request: PromptRequest = read(params)?;
        let id = session_id(&request.session_id.0)?;
        let mut sessions = self.sessions();
        let session = sessions.get_mut(&id);
        let session = session.ok_or_else(|| unknown_session(&id.to_string()))?;
        if session.prompt.is_some() {
            return Err(untimely(
                "a prompt of this session is under way; cancel it first",
            ));
        }
        let (cancel, cancelled) = watch::channel(false);
        session.prompt = Some(cancel);
        let turn = Turn {
            server: Arc::clone(self),
            plane: self.plane(),
            session: id,
            root: session.root.clone(),
            settings: session.settings.clone(),
            mcp_servers: session.mcp_servers.clone(),
            mapper: UpdateMapper::new(0, session.root.clone(), self.has_notices()),
            cancelled,
        };
        let untold = std::mem::take(&mut session.untold_servers);
        drop(sessions);
        if !untold.is_empty() {
            let names = untold.join(", ");
            turn.note(&format!(
                "the MCP servers {names} are not passed on: agents get those under [mcp.servers] of ABP's configuration"
            ));
        }
        Ok((turn, request.prompt))
    }

    fn end_prompt(&self, id: Uuid) {
        if let Some(session) = self.sessions().get_mut(&id) {
            session.prompt = None;
        }
    }

    fn notified(&self, method: &str, params: Value) {
        if method != "session/cancel" {
            tracing::debug!(target: "abp.acp", method, "a notification is not known");
            return;
        }
        let id = serde_json::from_value::<CancelNotification>(params).ok();
        let id = id.and_then(|cancel| cancel.session_id.0.parse::<Uuid>().ok());
        let sessions = self.sessions();
        let session = id.and_then(|id| sessions.get(&id));
        match session.and_then(|session| session.prompt.as_ref()) {
            Some(prompt) => drop(prompt.send_replace(true)),
            None => tracing::debug!(target: "abp.acp", "nothing is under way that was cancelled"),
        }
    }

    fn update(&self, id: Uuid, update: SessionUpdate) {
        self.sender
            .notify(SessionNotification::new(id.to_string(), update));
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeMap<Uuid, OpenSession>> {
        locked(&self.sessions)
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn server_name(server: &McpServer) -> String {
    match server {
        McpServer::Http(server) => server.name.clone(),
        McpServer::Sse(server) => server.name.clone(),
        McpServer::Stdio(server) => server.name.clone(),
        _ => "of an unknown kind".to_owned(),
    }
}

fn session_id(text: &str) -> Result<Uuid, Error> {
    text.parse().map_err(|_| unknown_session(text))
}

fn read<T: DeserializeOwned>(params: Value) -> Result<T, Error> {
    serde_json::from_value(params).map_err(|error| invalid(error.to_string()))
}

fn written(answer: &impl Serialize) -> Result<Value, Error> {
    serde_json::to_value(answer).map_err(|error| invalid(error.to_string()))
}
