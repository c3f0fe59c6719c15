//! What runs need, as it follows from the operator's configuration.

mod upstreams;

use std::path::Path;
use std::sync::Arc;

use abp_backend_mock::{MockBackend, MockScript};
use abp_config::{BackendConfig, Config};
use abp_core::{PolicyProfile, RuntimeConfig, WorkOrder, read_document};
use abp_error::{AbpError, ErrorCode};
use abp_integrations::BackendRegistry;
use abp_plan::PlanSettings;
use abp_runtime::{PriceTable, RunHandle, RunOptions, Runtime, RuntimeOptions, workspace_error};
use abp_sidecar_sdk::{Place, built_in_hosts, register_sidecars};
use abp_telemetry::MetricsCollector;
use uuid::Uuid;

use self::upstreams::{MOCK_BACKEND, UpstreamBackend};
use crate::mcp::run_servers;

pub use self::upstreams::{ConfiguredModel, configured_models, first_configured_model};

/// The backend of a run that nobody chose one for.
const DEFAULT_BACKEND: &str = "mock";

/// Backends, prices and policies of runs, and runtimes over them.
#[derive(Debug)]
pub struct RunPlane {
    config: Config,
    scripts: Vec<MockScript>,
    metrics: Option<Arc<MetricsCollector>>,
}

impl RunPlane {
    /// The plane of a configuration, with scripted backends besides the configured ones.
    #[must_use]
    pub fn new(config: Config, scripts: Vec<MockScript>) -> Self {
        Self {
            config,
            scripts,
            metrics: None,
        }
    }

    /// Counts runs here as they end.
    #[must_use]
    pub fn with_metrics(mut self, metrics: Arc<MetricsCollector>) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// The names of backends that need no configuration.
    pub fn known_backends() -> impl Iterator<Item = &'static str> {
        let built_in = built_in_hosts().iter().map(|host| host.name);
        built_in.chain([DEFAULT_BACKEND, MOCK_BACKEND])
    }

    /// The configuration that all of it follows from.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The backends: the embedded one, upstreams, configured ones, and those of scripts.
    ///
    /// # Errors
    /// Fails where an upstream could not be used even with a key, and where a script is not valid.
    pub fn registry(&self) -> Result<BackendRegistry, AbpError> {
        self.registry_with(&upstreams::backends(&self.config, None)?)
    }

    fn registry_with(&self, upstreams: &[UpstreamBackend]) -> Result<BackendRegistry, AbpError> {
        let mut registry = BackendRegistry::with_embedded();
        for upstream in upstreams {
            registry.register(Arc::clone(&upstream.backend));
        }
        register_sidecars(&mut registry, &self.config, &Place::of_this_program());
        for (name, backend) in &self.config.backends {
            let BackendConfig::Mock { script, priority } = backend else {
                continue;
            };
            let mut script = match script {
                Some(path) => read_script(path)?,
                None => MockScript::demonstration(),
            };
            script.name.clone_from(name);
            script.priority = priority.unwrap_or(script.priority);
            registry.register(Arc::new(MockBackend::from_script(script)));
        }
        for script in &self.scripts {
            registry.register(Arc::new(MockBackend::from_script(script.clone())));
        }
        Ok(registry)
    }

    /// The backend of a run: the one asked for, the configured one, or the embedded one.
    ///
    /// # Errors
    /// Fails where its host is not installed.
    pub fn backend(&self, asked: Option<&str>) -> Result<String, AbpError> {
        let configured = self.config.default_backend.as_deref();
        let name = asked.or(configured).unwrap_or(DEFAULT_BACKEND);
        let built_in = built_in_hosts().iter().any(|host| host.name == name);
        if built_in && self.registry()?.get(name).is_none() {
            let message = format!(
                "the host of backend {name:?} is not beside the program; say in `hosts_dir` or ABP_HOSTS_DIR where it is"
            );
            return Err(AbpError::new(ErrorCode::BackendUnavailable, message));
        }
        Ok(name.to_owned())
    }

    /// The policy of a run that brings none, where one is configured.
    #[must_use]
    pub fn default_policy(&self) -> Option<PolicyProfile> {
        let name = self.config.default_policy.as_ref()?;
        self.config.policies.get(name).cloned()
    }

    /// The prices that are configured for a backend.
    #[must_use]
    pub fn prices(&self, backend: &str) -> PriceTable {
        let config = &self.config;
        let usual = || config.prices.get(config.default_prices.as_ref()?).cloned();
        let table = upstreams::prices(config, backend).or_else(usual);
        let mut prices = PriceTable::default();
        for (model, price) in table.into_iter().flatten() {
            prices.set(model, price);
        }
        prices
    }

    /// Settles which model a run on an upstream asks for: it is named as its vendor names it and,
    /// where nobody named one, it is the first that the upstream serves by name.
    pub fn settle_model(&self, backend: &str, asked: &mut RuntimeConfig) {
        upstreams::settle_model(&self.config, backend, asked);
    }

    /// A runtime for looking at what was run, and deciding about it.
    ///
    /// # Errors
    /// As [`RunPlane::registry`].
    pub fn archive(&self) -> Result<Runtime, AbpError> {
        self.runtime(PriceTable::default(), None)
    }

    /// A runtime over all of that, for runs that ask for a model.
    ///
    /// # Errors
    /// As [`RunPlane::registry`].
    pub fn runtime(&self, prices: PriceTable, model: Option<&str>) -> Result<Runtime, AbpError> {
        let upstreams = upstreams::backends(&self.config, model)?;
        let targets = upstreams.iter().filter_map(|upstream| {
            let name = upstream.backend.descriptor().name.clone();
            Some((name, upstream.target.clone()?))
        });
        let options = RuntimeOptions {
            state_dir: self.config.state_dir.clone(),
            prices,
            planning: PlanSettings {
                emulation: self.config.emulation_config(),
                models: targets.collect(),
            },
        };
        let records = abp_host::records::directory(&self.config.state_dir);
        if let Err(error) = abp_host::records::sweep(&records) {
            tracing::warn!(target: "abp.sidecar", %error, "cannot look for sidecars of lost hosts");
        }
        let runtime = Runtime::new(self.registry_with(&upstreams)?, options);
        let runtime = runtime.with_mcp(run_servers(&self.config));
        Ok(match &self.metrics {
            Some(metrics) => runtime.with_metrics(Arc::clone(metrics)),
            None => runtime,
        })
    }

    /// Starts a run: on the backend asked for or the usual one, for the model it asks for or the
    /// backend's first, at the configured prices. The operator's restrictions hold whatever policy
    /// the order has.
    ///
    /// # Errors
    /// Fails where the backend is not there and where the run is refused.
    pub async fn start(
        &self,
        backend: Option<&str>,
        mut order: WorkOrder,
        options: RunOptions,
    ) -> Result<RunHandle, AbpError> {
        let backend = self.backend(backend)?;
        self.settle_model(&backend, &mut order.config);
        self.config.restrictions.apply(&mut order.policy);
        let runtime = self.runtime(self.prices(&backend), order.config.model.as_deref())?;
        Ok(runtime.run_with(&backend, order, options).await?)
    }

    /// Removes what a run left in its staged workspace. Takes a while.
    ///
    /// # Errors
    /// Fails where there is nothing, and where it cannot be removed.
    pub fn discard(&self, run_id: Uuid) -> Result<(), AbpError> {
        let stage = self.archive()?.workspaces().reopen(run_id);
        let stage = stage.map_err(|error| workspace_error(&error))?;
        stage.remove().map_err(|error| workspace_error(&error))
    }
}

/// Reads the script of a backend.
fn read_script(path: &Path) -> Result<MockScript, AbpError> {
    let bytes = std::fs::read(path).map_err(|error| {
        let message = format!("cannot read {}", path.display());
        AbpError::new(ErrorCode::ConfigInvalid, message).with_source(error)
    })?;
    read_document(&bytes).map_err(|error| {
        AbpError::new(error.code(), format!("{}: {error}", path.display()))
            .with_context("file", path.display().to_string())
    })
}
