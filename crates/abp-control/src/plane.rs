//! The composition root, and the one way to start a run.

use std::sync::{Arc, Weak};

use abp_agents::{find_preset, presets};
use abp_backend_core::ModelGateway;
use abp_backend_mock::MockScript;
use abp_config::Config;
use abp_core::{Capability, PolicyProfile, Receipt, SupportLevel, WorkOrder};
use abp_error::{AbpError, ErrorCode};
use abp_integrations::BackendRegistry;
use abp_plan::RunPlan;
use abp_runtime::{RunOptions, RunPrices, Runtime, RuntimeOptions, StartedRun, may_die};
use abp_sidecar_sdk::{HostInstallation, built_in_hosts};
use abp_store::{Acceptance, KeyScope, NewRun, Queueing, RunState, Store};
use abp_telemetry::MetricsCollector;
use secrecy::SecretString;
use uuid::Uuid;

use crate::backends::register;
use crate::location::store_location;
use crate::mcp::run_servers;
use crate::run_gateway::RunGateway;
use crate::secrets::configured_secrets;
use crate::submission::StoredSubmission;
use crate::upstreams::{self, MOCK, MOCK_BACKEND, UpstreamBackend};
use crate::worker::{QUEUE_LIMITS, WorkerSignals};
use crate::{Principal, Submission, Submitted};

/// The backend of a run for which none was chosen.
const DEFAULT_BACKEND: &str = "mock";
/// How many runs go on at once; each may be several processes.
const MAX_RUNNING: usize = 32;
/// How many runs may wait for a person besides those that go on; each may be several processes.
const MAX_PARKED: usize = 64;
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
    runtime: Runtime,
    upstreams: Vec<UpstreamBackend>,
    metrics: Arc<MetricsCollector>,
    secrets: Vec<SecretString>,
    run_gateway: Arc<RunGateway>,
    signals: WorkerSignals,
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
            max_running: MAX_RUNNING,
            max_parked: MAX_PARKED,
        };
        let runtime = Runtime::new(registry, options)
            .with_store(store_location(&config)?)
            .with_mcp(run_servers(&config))
            .with_metrics(Arc::clone(&metrics));
        let secrets = configured_secrets(&config);
        let shared = Arc::new(PlaneState {
            config,
            runtime,
            upstreams,
            metrics,
            secrets,
            run_gateway,
            signals: WorkerSignals::default(),
        });
        shared.run_gateway.attach(WeakPlane {
            shared: Arc::downgrade(&shared),
        });
        Ok(Self { shared })
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
        principal.require(KeyScope::RunsWrite)?;
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
            limits: QUEUE_LIMITS,
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

    /// How often a run on a backend may be begun: again only where the backend can take up a session, so
    /// that it can be told what it did before.
    fn max_attempts(&self, backend: &str) -> u32 {
        let backend = self.registry().get(backend);
        let manifest = backend.and_then(|backend| backend.descriptor().manifest.as_ref());
        let resumes = manifest
            .and_then(|manifest| manifest.get(&Capability::SessionResume))
            .is_some_and(|level| *level == SupportLevel::Native);
        match resumes {
            true => MAX_ATTEMPTS,
            false => 1,
        }
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
            notify: _,
        } = submission;
        let backend = self.backend(backend.as_deref())?;
        upstreams::settle_model(self.config(), &backend, &mut order.config);
        let options = RunOptions {
            timeout,
            approvals,
            client_origins,
            prices: prices.map_or_else(|| self.configured_prices(), RunPrices::from),
            models: upstreams::targets(&self.shared.upstreams),
            secrets: self.shared.secrets.clone(),
            session,
        };
        Ok((backend, order, options))
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
