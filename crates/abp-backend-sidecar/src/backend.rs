//! Opening a sidecar.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, ModelGateway, ModelGrant, OpenSpec, Session,
};
use abp_error::{AbpError, ErrorCode};
use abp_host::{
    ConfinedProgram, Confinement, Engine, RunSandbox, SandboxSettings, SidecarClient, SidecarSpec,
    without_parent_components,
};
use abp_policy::Holders;
use secrecy::ExposeSecret as _;

use crate::models::ModelUse;
use crate::secrets::Secrets;
use crate::session::SidecarSession;
use crate::{Breaker, BreakerState};

/// A backend that starts a sidecar for every run.
#[derive(Debug)]
pub struct SidecarBackend {
    descriptor: BackendDescriptor,
    spec: SidecarSpec,
    breaker: Mutex<Breaker>,
    born: Instant,
    /// The holders of rules without a sandbox.
    holders: Holders,
    /// The gateway that gives each run a key for models.
    gateway: Option<Arc<dyn ModelGateway>>,
    /// How many bytes the workspace of a run may have.
    max_workspace: Option<u64>,
    /// The sandboxes of runs; `None` where the operator switched them off.
    sandbox: Option<SandboxSettings>,
}

impl SidecarBackend {
    /// A backend of that name. The directory in `spec` is replaced by the workspace of each run.
    pub fn new(name: impl Into<String>, spec: SidecarSpec, priority: u32) -> Self {
        Self {
            descriptor: BackendDescriptor {
                name: name.into(),
                // Only the sidecar itself knows.
                manifest: None,
                // It has tools of its own: what it does is seen when it says so.
                holders: Holders::ANNOUNCED,
                mounts: false,
                asked_tools: &[],
                overlays: false,
                measures_usage: false,
                priority,
                is_demonstration: false,
                takes_sessions: false,
                model: None,
            },
            spec,
            breaker: Mutex::new(Breaker::default()),
            born: Instant::now(),
            holders: Holders::ANNOUNCED,
            gateway: None,
            max_workspace: None,
            sandbox: None,
        }
    }

    /// A sidecar that is known to ask before every use of a tool and to obey the answer. Tests have to show it
    /// for each: receipts say of the rules on tools that the host held them.
    #[must_use]
    pub fn asking_first(mut self) -> Self {
        self.holders = Holders::ASKED;
        self.descriptor.holders = self.descriptor.holders.or_stronger(Holders::ASKED);
        self
    }

    /// Gives every run a key for this gateway, which measures what the run uses. The sidecar has to take its models
    /// from `config.vendor.abp.model_api`.
    #[must_use]
    pub fn with_gateway(mut self, gateway: Arc<dyn ModelGateway>) -> Self {
        self.descriptor.measures_usage = true;
        self.gateway = Some(gateway);
        self
    }

    /// Ends runs whose workspace has more than so many bytes.
    #[must_use]
    pub fn with_workspace_limit(mut self, bytes: u64) -> Self {
        self.max_workspace = Some(bytes);
        self
    }

    /// Runs every sidecar in a sandbox of its own.
    #[must_use]
    pub fn in_sandbox(mut self, settings: SandboxSettings) -> Self {
        self.descriptor.mounts = matches!(settings.engine(), Ok(Engine::Namespaces));
        self.descriptor.overlays = settings.has_overlays();
        let confined = settings.expected_holders();
        self.descriptor.holders = self.descriptor.holders.or_stronger(confined);
        self.sandbox = Some(settings);
        self
    }

    /// Whether the sidecar may be started now.
    pub fn state(&self) -> BreakerState {
        self.with_breaker(|breaker, now| breaker.state(now))
    }

    async fn start(&self, spec: OpenSpec) -> Result<SidecarSession, AbpError> {
        match self.state() {
            BreakerState::Closed => {}
            BreakerState::BackingOff { wait, .. } => tokio::time::sleep(wait).await,
            BreakerState::Open { failures, retry_in } => {
                let message = format!(
                    "the sidecar could not be started {failures} times in a row; the next attempt may be made in {retry_in:.1?}"
                );
                return Err(AbpError::new(ErrorCode::CircuitBreakerOpen, message));
            }
        }
        let sandbox = self.plan_sandbox(&spec)?;
        let models = match &self.gateway {
            Some(gateway) => Some(gateway.open(ModelGrant::of(&spec)).await?),
            None => None,
        };
        let confinement = match &sandbox {
            Some(sandbox) => Confinement::Sandboxed(sandbox.plan.clone()),
            None => Confinement::Hidden(spec.hidden),
        };
        let args = self.spec.args.iter();
        let args = args.map(|argument| match &sandbox {
            Some(_) => without_parent_components(argument),
            None => argument.clone(),
        });
        let mut env = self.spec.env.clone();
        if let Some(traceparent) = spec.traceparent {
            env.insert("TRACEPARENT".to_owned(), traceparent);
        }
        let sidecar = SidecarSpec {
            env,
            args: args.collect(),
            directory: spec.workspace_root,
            egress: Some(spec.policy),
            confinement,
            ..self.spec.clone()
        };
        match SidecarClient::spawn(sidecar).await {
            Ok(client) => {
                self.with_breaker(|breaker, _| breaker.succeeded());
                let mut secrets = Secrets::new(self.spec.secrets.clone());
                if let Some(models) = &models {
                    client.hide(models.key.expose_secret());
                    secrets.add(models.key.expose_secret());
                }
                Ok(SidecarSession {
                    client,
                    models: ModelUse::new(models),
                    run_id: spec.run_id,
                    max_workspace: self.max_workspace,
                    secrets,
                    sandbox,
                    holders: self.holders,
                })
            }
            Err(failure) => {
                // An overlay that cannot be mounted says nothing about the sidecar.
                if failure.error.code() != ErrorCode::WorkspaceInitFailed {
                    self.with_breaker(Breaker::failed);
                }
                // The run has no session that could name the secrets, so they are taken out here.
                let error = Secrets::new(self.spec.secrets.clone()).redact(failure.into());
                tracing::warn!(target: "abp.sidecar", backend = self.descriptor.name, state = ?self.state(), %error, "cannot open");
                Err(error)
            }
        }
    }

    fn plan_sandbox(&self, spec: &OpenSpec) -> Result<Option<RunSandbox>, AbpError> {
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
            home: None,
            installation: &[],
            overlays: &spec.overlays,
            is_in_place: spec.source.is_none(),
        };
        settings.plan(&program, &spec.policy).map(Some)
    }

    fn with_breaker<T>(&self, use_it: impl FnOnce(&mut Breaker, Duration) -> T) -> T {
        let mut breaker = self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        use_it(&mut breaker, self.born.elapsed())
    }
}

impl Backend for SidecarBackend {
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
