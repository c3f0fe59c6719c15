//! Opening an agent.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_agents::{GatewayTarget, fill, fill_pairs};
use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, ModelGateway, ModelGrant, OpenSpec, RunModels, Session,
};
use abp_backend_sidecar::Secrets;
use abp_core::BackendIdentity;
use abp_error::{AbpError, ErrorCode};
use abp_host::{
    AgentProcess, AgentStreams, ConfinedProgram, Confinement, Engine, Network, RunSandbox,
    SandboxSettings, SidecarSpec,
};
use abp_policy::Holders;
use agent_client_protocol::schema::ProtocolVersion;
use agent_client_protocol::v1::schema::{
    ClientCapabilities, FileSystemCapabilities, Implementation, InitializeRequest,
    InitializeResponse,
};
use secrecy::{ExposeSecret as _, SecretString};
use sidecar_kit::DEFAULT_MAX_LINE;

use crate::connection::AcpConnection;
use crate::home::{AgentHomes, write_file};
use crate::manifest;
use crate::session::AcpSession;
use crate::spec::AcpSpec;

/// The name of the gateway's route out of the sandbox.
const ROUTE: &str = "models";
/// The version of this adapter.
const ADAPTER_VERSION: &str = env!("CARGO_PKG_VERSION");

/// A backend that starts an ACP agent for every run.
#[derive(Debug)]
pub struct AcpBackend {
    descriptor: BackendDescriptor,
    spec: AcpSpec,
    homes: AgentHomes,
    gateway: Option<Arc<dyn ModelGateway>>,
    sandbox: Option<SandboxSettings>,
    max_workspace: Option<u64>,
}

impl AcpBackend {
    /// A backend of that name. Agents have their home directories in `homes`.
    pub fn new(name: impl Into<String>, spec: AcpSpec, homes: AgentHomes, priority: u32) -> Self {
        Self {
            descriptor: BackendDescriptor {
                name: name.into(),
                // Of a configured program only the program itself knows.
                manifest: spec
                    .told
                    .as_ref()
                    .map(|told| manifest::native(told.iter().chain(&spec.tools))),
                // It has tools of its own: what it does is seen when it says so.
                holders: Holders::ANNOUNCED,
                mounts: false,
                overlays: false,
                asked_tools: spec.permissions.asked_tools(),
                measures_usage: false,
                priority,
                is_demonstration: false,
                model: None,
            },
            spec,
            homes,
            gateway: None,
            sandbox: None,
            max_workspace: None,
        }
    }

    /// Gives every run a key for this gateway, which measures what the run uses.
    #[must_use]
    pub fn with_gateway(mut self, gateway: Arc<dyn ModelGateway>) -> Self {
        self.descriptor.measures_usage = true;
        self.gateway = Some(gateway);
        self
    }

    /// Says that its models are a demonstration, so that it is never chosen while a real backend is there.
    #[must_use]
    pub fn with_demonstration_models(mut self) -> Self {
        self.descriptor.is_demonstration = true;
        self
    }

    /// Runs every agent in a sandbox of its own.
    #[must_use]
    pub fn in_sandbox(mut self, settings: SandboxSettings) -> Self {
        self.descriptor.mounts = matches!(settings.engine(), Ok(Engine::Namespaces));
        // Files that the agent reads and writes through the host are not in an overlay, which only the agent sees.
        self.descriptor.overlays = settings.has_overlays() && !self.spec.offers_files;
        let confined = settings.expected_holders();
        self.descriptor.holders = self.descriptor.holders.or_stronger(confined);
        self.sandbox = Some(settings);
        self
    }

    /// Ends runs whose workspace has more than so many bytes.
    #[must_use]
    pub fn with_workspace_limit(mut self, bytes: u64) -> Self {
        self.max_workspace = Some(bytes);
        self
    }

    async fn start(&self, spec: OpenSpec) -> Result<AcpSession, AbpError> {
        let models = self.open_models(&spec).await?;
        let earlier = spec.session.as_ref().map(|session| session.run_id);
        let own_home = self.homes.make(spec.run_id, earlier)?;
        self.homes.sweep_once();
        let home = &own_home.path;
        let sandbox = self.plan_sandbox(&spec, home)?;
        let network = sandbox.as_ref().map(|sandbox| sandbox.plan.network());
        let url = inside_url(models.as_ref(), network)?;
        let key = models
            .as_ref()
            .map_or("", |models| models.key.expose_secret());
        let asked = spec.model.as_deref().filter(|model| !model.is_empty());
        let target = GatewayTarget {
            url: &url,
            key,
            model: asked.unwrap_or(&self.spec.usual_model),
        };
        let program = self.program(&spec, &target, home, sandbox.as_ref())?;
        let secrets = Secrets::new(program.secrets.clone());
        let started = AgentProcess::spawn(program).await;
        let (process, streams) = started.map_err(|error| secrets.redact(error))?;
        let AgentStreams {
            stdin,
            stdout,
            egress,
        } = streams;
        if let (Some(egress), Some(models)) = (&egress, &models) {
            let route = egress.add_route(ROUTE, &models.url);
            route.map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
        }
        let mut link = AcpConnection::open(stdout, stdin, DEFAULT_MAX_LINE).await?;
        let answer = match self.initialize(&mut link).await {
            Ok(answer) => answer,
            Err(error) => {
                link.close().await;
                let ended = process.end(Duration::ZERO).await;
                return Err(secrets.redact(ended.explain(error)));
            }
        };
        let root = match &sandbox {
            Some(sandbox) => sandbox.inside(&spec.workspace_root),
            None => spec.workspace_root.clone(),
        };
        Ok(AcpSession {
            root,
            identity: identity(&self.descriptor.name, &answer),
            manifest: manifest::manifest(&answer.agent_capabilities, &self.spec.tools),
            capabilities: answer.agent_capabilities,
            spec: self.spec.clone(),
            link,
            process,
            egress,
            models,
            sandbox,
            secrets,
            earlier: spec.session,
            home: own_home,
            max_workspace: self.max_workspace,
        })
    }

    async fn open_models(&self, spec: &OpenSpec) -> Result<Option<RunModels>, AbpError> {
        let Some(gateway) = &self.gateway else {
            return Ok(None);
        };
        gateway.open(ModelGrant::of(spec)).await.map(Some)
    }

    fn plan_sandbox(&self, spec: &OpenSpec, home: &Path) -> Result<Option<RunSandbox>, AbpError> {
        let Some(settings) = &self.sandbox else {
            return Ok(None);
        };
        let own = self.spec.env.get("PATH").map(OsString::from);
        let search_path = own.or_else(|| std::env::var_os("PATH")).unwrap_or_default();
        let own = spec.hidden.iter().chain(&spec.source);
        let own: Vec<PathBuf> = own.cloned().collect();
        let program = ConfinedProgram {
            command: &self.spec.command,
            args: &self.spec.args,
            search_path: &search_path,
            workspace: &spec.workspace_root,
            hidden: &own,
            home: Some(home),
            installation: &self.spec.installation,
            overlays: &spec.overlays,
            is_in_place: spec.source.is_none(),
        };
        settings.plan(&program, &spec.policy).map(Some)
    }

    /// The program with everything filled in, and its settings in its home directory.
    fn program(
        &self,
        spec: &OpenSpec,
        target: &GatewayTarget<'_>,
        home: &Path,
        sandbox: Option<&RunSandbox>,
    ) -> Result<SidecarSpec, AbpError> {
        for (path, text) in &self.spec.files {
            write_file(home, path, &fill(text, target)?)?;
        }
        let args = self.spec.args.iter().map(|arg| fill(arg, target));
        let env = fill_pairs(&self.spec.env, target)?;
        let mut env: BTreeMap<String, String> = env.into_iter().collect();
        let (confinement, home) = match sandbox {
            Some(sandbox) => {
                let variables = sandbox.plan.environment().iter();
                let own = variables.filter(|(name, _)| name == "HOME");
                let own = own.map(|(_, home)| PathBuf::from(home)).next_back();
                let seen = own.unwrap_or_else(|| home.to_owned());
                (Confinement::Sandboxed(sandbox.plan.clone()), seen)
            }
            None => {
                env.insert("HOME".to_owned(), home.to_string_lossy().into_owned());
                (Confinement::Hidden(spec.hidden.clone()), home.to_owned())
            }
        };
        // Agents that follow the base directory specification would find the user's own directories else.
        for (variable, path) in [
            ("XDG_CONFIG_HOME", ".config"),
            ("XDG_DATA_HOME", ".local/share"),
            ("XDG_STATE_HOME", ".local/state"),
            ("XDG_CACHE_HOME", ".cache"),
        ] {
            let path = home.join(path).to_string_lossy().into_owned();
            env.entry(variable.to_owned()).or_insert(path);
        }
        let mut secrets = self.spec.secrets.clone();
        if !target.key.is_empty() {
            secrets.push(SecretString::from(target.key));
        }
        Ok(SidecarSpec {
            args: args.collect::<Result<_, _>>()?,
            env,
            secrets,
            confinement,
            egress: Some(spec.policy.clone()),
            launcher: self.spec.launcher.clone(),
            limits: self.spec.limits,
            records: self.spec.records.clone(),
            ..SidecarSpec::new(&self.spec.command, &spec.workspace_root)
        })
    }

    async fn initialize(&self, link: &mut AcpConnection) -> Result<InitializeResponse, AbpError> {
        let files = FileSystemCapabilities::new()
            .read_text_file(self.spec.offers_files)
            .write_text_file(self.spec.offers_files);
        let request = InitializeRequest::new(ProtocolVersion::V1)
            .client_capabilities(ClientCapabilities::new().fs(files))
            .client_info(
                Implementation::new("abp", ADAPTER_VERSION).title("Agent Backplane".to_owned()),
            );
        let patience = self.spec.timing.initialize;
        let answer = tokio::time::timeout(patience, link.request(request)).await;
        let answer = answer.map_err(|_| {
            let message = format!("the agent did not answer initialize within {patience:?}");
            AbpError::new(ErrorCode::ProtocolHandshakeFailed, message)
        })?;
        let answer = answer.map_err(|error| {
            manifest::foreign_version(&error).unwrap_or_else(|| link.failure("initialize", &error))
        })?;
        manifest::check(&answer, &self.spec)?;
        Ok(answer)
    }
}

/// The gateway's address as the agent reaches it: directly, or by the route out of its sandbox.
fn inside_url(models: Option<&RunModels>, network: Option<Network>) -> Result<String, AbpError> {
    let Some(models) = models else {
        return Ok(String::new());
    };
    match network {
        None | Some(Network::Open) => Ok(models.url.clone()),
        Some(Network::Proxied(port)) => Ok(format!("http://127.0.0.1:{port}/{ROUTE}")),
        Some(Network::Closed) => {
            let message = "an agent cannot reach a model: this sandbox has no way out, not even to the gateway";
            Err(AbpError::new(ErrorCode::SandboxUnavailable, message))
        }
    }
}

fn identity(name: &str, answer: &InitializeResponse) -> BackendIdentity {
    let info = answer.agent_info.as_ref();
    BackendIdentity {
        id: name.to_owned(),
        backend_version: info.map(|info| format!("{} {}", info.name, info.version)),
        adapter_version: Some(ADAPTER_VERSION.to_owned()),
    }
}

impl Backend for AcpBackend {
    fn descriptor(&self) -> &BackendDescriptor {
        &self.descriptor
    }

    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        Box::pin(async move {
            let session = self.start(spec).await?;
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}
