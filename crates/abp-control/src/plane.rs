//! The composition root, and the one way to start a run.

use std::sync::{Arc, Weak};

use abp_agents::{find_preset, presets};
use abp_backend_core::ModelGateway;
use abp_backend_mock::MockScript;
use abp_config::Config;
use abp_core::{Capability, PolicyProfile, Receipt, WorkOrder, WorkspaceMode};
use abp_error::{AbpError, ErrorCode};
use abp_host::CheckCommand;
use abp_integrations::BackendRegistry;
use abp_plan::RunPlan;
use abp_runtime::{RunOptions, RunPrices, Runtime, RuntimeOptions, StartedRun, may_die};
use abp_sidecar_sdk::{HostInstallation, Place, built_in_hosts, sandbox_settings};
use abp_store::{Acceptance, NewRun, Queueing, RunState, Store};
use abp_telemetry::MetricsCollector;
use secrecy::SecretString;
use uuid::Uuid;

use crate::backends::register;
use crate::limits::StoredSizes;
use crate::location::store_location;
use crate::mcp::run_servers;
use crate::run_gateway::RunGateway;
use crate::secrets::configured_secrets;
use crate::session::can;
use crate::submission::StoredSubmission;
use crate::telemetry::TelemetrySender;
use crate::upstreams::{self, MOCK, MOCK_BACKEND, UpstreamBackend};
use crate::worker::WorkerSignals;
use crate::{Principal, Submission, Submitted};

/// The backend of a run for which none was chosen.
const DEFAULT_BACKEND: &str = "mock";
/// How often a run that can be resumed is begun.
const MAX_ATTEMPTS: u32 = 3;

/// Everything that runs share in one process.
#[derive(Debug, Clone)]
pub struct ControlPlane {
    shared: Arc<PlaneState>,
}

#[derive(Debug)]
struct PlaneState {
    config: Config,
    scripts: Vec<MockScript>,
    runtime: Runtime,
    upstreams: Vec<UpstreamBackend>,
    metrics: Arc<MetricsCollector>,
    secrets: Vec<SecretString>,
    run_gateway: Arc<RunGateway>,
    telemetry: Option<TelemetrySender>,
    signals: WorkerSignals,
    sizes: StoredSizes,
}

/// A control plane, as long as somebody else holds it.
#[derive(Debug, Clone)]
pub(crate) struct WeakPlane {
    shared: Weak<PlaneState>,
}

impl WeakPlane {
    pub(crate) fn upgrade(&self) -> Option<ControlPlane> {
        let shared = self.shared.upgrade()?;
        Some(ControlPlane { shared })
    }
}

impl ControlPlane {
    /// The control plane of a configuration, with scripted backends besides the configured ones. Nothing
    /// is opened or written before it is needed.
    ///
    /// # Errors
    /// Fails where an upstream could not be used even with a key, and where a script is not valid.
    pub fn open(config: Config, scripts: &[MockScript]) -> Result<Self, AbpError> {
        let upstreams = upstreams::backends(&config)?;
        let run_gateway = Arc::new(RunGateway::default());
        let gateway: Arc<dyn ModelGateway> = Arc::clone(&run_gateway) as _;
        let registry = register(&config, &upstreams, scripts, &gateway)?;
        let names = config.upstreams.keys().map(String::as_str);
        let metrics = Arc::new(MetricsCollector::new(names.chain([MOCK])));
        let options = RuntimeOptions {
            lend: config.sandbox.lend(),
            state_dir: config.state_dir.clone(),
            stages_dir: config.stages_dir.clone(),
            emulation: config.emulation_config(),
            max_running: config.control.max_running as usize,
            max_parked: config.control.max_parked as usize,
        };
        let runtime = Runtime::new(registry, options)
            .with_store(store_location(&config)?)
            .with_mcp(run_servers(&config))
            .with_metrics(Arc::clone(&metrics));
        let telemetry = TelemetrySender::new(&config.telemetry, &metrics)?;
        let secrets = configured_secrets(&config);
        let shared = Arc::new(PlaneState {
            config,
            scripts: scripts.to_vec(),
            runtime,
            upstreams,
            metrics,
            secrets,
            run_gateway,
            telemetry,
            signals: WorkerSignals::default(),
            sizes: StoredSizes::default(),
        });
        shared.run_gateway.attach(WeakPlane {
            shared: Arc::downgrade(&shared),
        });
        Ok(Self { shared })
    }

    /// A control plane of the same scripted backends and of another configuration. It opens the store anew, so
    /// this one is to be closed before the other is used.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn reopened(&self, config: Config) -> Result<Self, AbpError> {
        Self::open(config, &self.shared.scripts)
    }

    /// The names of backends that need no configuration.
    pub fn known_backends() -> impl Iterator<Item = &'static str> {
        let built_in = built_in_hosts().iter().map(|host| host.name);
        let agents = presets().iter().map(|preset| preset.name);
        built_in
            .chain(agents)
            .chain([DEFAULT_BACKEND, MOCK_BACKEND])
    }

    /// The configuration.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.shared.config
    }

    /// The runtime of all runs.
    #[must_use]
    pub fn runtime(&self) -> &Runtime {
        &self.shared.runtime
    }

    /// The backends.
    #[must_use]
    pub fn registry(&self) -> &BackendRegistry {
        self.shared.runtime.registry()
    }

    /// Where runs and exchanges are counted.
    #[must_use]
    pub fn metrics(&self) -> &Arc<MetricsCollector> {
        &self.shared.metrics
    }

    /// The store of this process; the first call opens it and recovers what a crash interrupted.
    ///
    /// # Errors
    /// Fails where it cannot be opened or recovered.
    pub async fn store(&self) -> Result<&Store, AbpError> {
        Ok(self.shared.runtime.store().await?)
    }

    /// Ends in order: what waits is written, and the store is closed where it was opened.
    pub async fn close(&self) {
        self.shared.run_gateway.close().await;
        self.runtime().close().await;
        if let Some(telemetry) = self.telemetry() {
            telemetry.flush().await;
        }
    }

    /// The policy of a run that brings none, where one is configured.
    #[must_use]
    pub fn default_policy(&self) -> Option<PolicyProfile> {
        let name = self.config().default_policy.as_ref()?;
        self.config().policies.get(name).cloned()
    }

    /// The backend of a run: the one asked for, the configured one, or the embedded one.
    ///
    /// # Errors
    /// Fails where its host is not installed.
    pub fn backend(&self, asked: Option<&str>) -> Result<String, AbpError> {
        let configured = self.config().default_backend.as_deref();
        let name = asked.or(configured).unwrap_or(DEFAULT_BACKEND);
        if self.registry().get(name).is_none()
            && let Some(message) = self.missing_host(name)
        {
            return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
        }
        if find_preset(name).is_some() && self.registry().get(name).is_none() {
            let message =
                format!("the agent {name} is not installed; run `abp agents install {name}`");
            return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
        }
        Ok(name.to_owned())
    }

    /// The reason why a host that comes with ABP is not registered, and what to do about it.
    pub(crate) fn missing_host(&self, name: &str) -> Option<String> {
        let host = built_in_hosts().iter().find(|host| host.name == name)?;
        let program = std::env::current_exe().ok();
        match host.installation(self.config(), program.as_deref()) {
            HostInstallation::Complete { .. } => None,
            HostInstallation::PackageMissing { install } => Some(format!(
                "the packages of backend {name:?} are not installed; install them with `{install}`"
            )),
            HostInstallation::Absent => Some(format!(
                "the host of backend {name:?} is not beside the program; set `hosts_dir` or ABP_HOSTS_DIR"
            )),
        }
    }

    /// Plans a submission without starting it.
    ///
    /// # Errors
    /// Says why the order cannot be carried out by that backend, or by any (`auto`).
    pub fn plan(&self, submission: Submission) -> Result<RunPlan, AbpError> {
        let (backend, order, options) = self.prepare(submission)?;
        Ok(self.runtime().plan(&backend, order, &options)?)
    }

    /// Submits a run: it is durable, and queued, when this returns. A worker of any process carries it out.
    /// With an idempotency key that the principal used before it is the run of that submission.
    ///
    /// # Errors
    /// Fails, before anything happened, where the principal may not, the backend is not there, the order is
    /// refused, or as many runs wait as may.
    pub async fn submit(
        &self,
        principal: &Principal,
        mut submission: Submission,
    ) -> Result<Submitted, AbpError> {
        principal.require(submission.scope)?;
        self.check_stored(principal).await?;
        let root = &mut submission.order.workspace.root;
        // Another process has another working directory.
        if let Ok(absolute) = std::path::absolute(&*root) {
            *root = absolute.to_string_lossy().into_owned();
        }
        let key = submission.idempotency_key.take();
        let key = key.map(|key| principal.own_key(&key));
        let notify = std::mem::take(&mut submission.notify);
        let backend = self.backend(submission.backend.as_deref())?;
        upstreams::settle_model(self.config(), &backend, &mut submission.order.config);
        let stored = StoredSubmission::of(&submission, &backend);
        let (backend, order, options) = self.prepare(submission)?;
        let entry = self
            .runtime()
            .queue_entry(&backend, order, &options, key.as_deref())?;
        let run = NewRun {
            principal: principal.id().map(str::to_owned),
            ..entry
        };
        let queueing = Queueing {
            submission: stored.to_bytes()?,
            max_attempts: self.max_attempts(&run.backend),
            notify,
            limits: self.queue_limits(),
        };
        let (store, run_id) = (self.store().await?, run.run_id);
        let accepted = store.submit(run, queueing).await?;
        may_die("submitted");
        match accepted {
            Acceptance::New => {
                self.signals().submitted.notify_waiters();
                Ok(Submitted {
                    run_id,
                    state: RunState::Queued,
                    is_new: true,
                })
            }
            Acceptance::Existing(run_id) => {
                let state = store.run_state(run_id).await?;
                Ok(Submitted {
                    run_id,
                    state: state.unwrap_or(RunState::Queued),
                    is_new: false,
                })
            }
        }
    }

    /// Starts a run that this process, and no other, carries out. Its start is durable before anything of
    /// it happens; with an idempotency key that was used before it is the run of that request.
    ///
    /// # Errors
    /// Fails, before anything happened, where the backend is not there, the order is refused, or as many
    /// runs go on as may.
    pub async fn run_here(
        &self,
        principal: &Principal,
        submission: Submission,
    ) -> Result<StartedRun, AbpError> {
        self.end_lost_sidecars();
        let key = submission.idempotency_key.clone();
        let key = key.map(|key| principal.own_key(&key));
        let principal = principal.id().map(str::to_owned);
        let (backend, order, options) = self.prepare(submission)?;
        let runtime = self.runtime();
        Ok(runtime
            .run_once(&backend, order, options, principal, key.as_deref())
            .await?)
    }

    /// How often a run on a backend may be begun: again only where the backend goes on with the agent's
    /// session, in which the agent has what it did before. An agent that says only when it is opened what
    /// it can do may turn out not to; its run then ends with that reason.
    fn max_attempts(&self, backend: &str) -> u32 {
        let backend = self.registry().get(backend);
        let resumes = backend.is_some_and(|backend| {
            let descriptor = backend.descriptor();
            let manifest = descriptor.manifest.as_ref();
            descriptor.takes_sessions
                && manifest.is_none_or(|manifest| can(manifest, &Capability::SessionResume))
        });
        match resumes {
            true => MAX_ATTEMPTS,
            false => 1,
        }
    }

    pub(crate) fn telemetry(&self) -> Option<&TelemetrySender> {
        self.shared.telemetry.as_ref()
    }

    pub(crate) fn sizes(&self) -> &StoredSizes {
        &self.shared.sizes
    }

    pub(crate) fn signals(&self) -> &WorkerSignals {
        &self.shared.signals
    }

    /// The receipt of a run, once it has ended, whichever process carries it out.
    ///
    /// # Errors
    /// Fails where there is no such run, and where the store cannot be read.
    pub async fn receipt(&self, run_id: Uuid) -> Result<Receipt, AbpError> {
        Ok(self.runtime().receipt(run_id).await?)
    }

    /// What the runtime needs of a submission: which model is asked for on the backend, and what it costs.
    pub(crate) fn prepare(
        &self,
        submission: Submission,
    ) -> Result<(String, WorkOrder, RunOptions), AbpError> {
        let Submission {
            mut order,
            backend,
            timeout,
            approvals,
            client_origins,
            prices,
            idempotency_key: _,
            session,
            check,
            notify: _,
            trace,
            scope: _,
            discards_changes: _,
        } = submission;
        let backend = self.backend(backend.as_deref())?;
        upstreams::settle_model(self.config(), &backend, &mut order.config);
        let mode = order.workspace.mode;
        let options = RunOptions {
            timeout,
            approvals,
            client_origins,
            prices: prices.map_or_else(|| self.configured_prices(), RunPrices::from),
            models: upstreams::targets(&self.shared.upstreams),
            secrets: self.shared.secrets.clone(),
            trace,
            session,
            check: check
                .map(|command| self.check_command(command, mode))
                .transpose()?,
        };
        Ok((backend, order, options))
    }

    /// The sandbox of a check. Without one nothing that the agent wrote is run.
    fn check_command(
        &self,
        command: String,
        mode: WorkspaceMode,
    ) -> Result<CheckCommand, AbpError> {
        if mode == WorkspaceMode::PassThrough {
            let message = "a check judges a staged copy; leave out --workspace-mode pass-through";
            return Err(AbpError::new(ErrorCode::ValidationFailed, message));
        }
        let place = Place::of_this_program();
        let config = self.config();
        let Some(sandbox) = sandbox_settings(&config.sandbox, &place) else {
            let message = "a check runs in a sandbox only, and the configuration switches sandboxes off: \
                           engine = \"none\" under [sandbox]";
            return Err(AbpError::new(ErrorCode::SandboxUnavailable, message));
        };
        Ok(CheckCommand {
            command,
            sandbox,
            launcher: place.launcher,
            records: abp_host::records::directory(&config.state_dir),
        })
    }

    fn configured_prices(&self) -> RunPrices {
        let config = self.config();
        let usual = config.default_prices.as_ref();
        let usual = usual.and_then(|name| config.prices.get(name));
        RunPrices {
            backends: upstreams::prices_by_backend(config),
            usual: usual.map(upstreams::price_table).unwrap_or_default(),
        }
    }

    /// Ends sidecars whose host was killed; the first run of this process is when they may be in the way.
    pub(crate) fn end_lost_sidecars(&self) {
        let records = abp_host::records::directory(&self.config().state_dir);
        if let Err(error) = abp_host::records::sweep(&records) {
            tracing::warn!(target: "abp.sidecar", %error, "cannot look for sidecars of lost hosts");
        }
    }
}
