//! What a command works with: the effective configuration, and what follows from it.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abp_backend_mock::{MockBackend, MockScript};
use abp_config::{BackendConfig, Config, Loaded, Override, Sources, load, render};
use abp_core::PolicyProfile;
use abp_error::{AbpError, ErrorCode};
use abp_integrations::BackendRegistry;
use abp_plan::PlanSettings;
use abp_runtime::{PriceTable, Runtime, RuntimeOptions};
use abp_sidecar_sdk::{Place, built_in_hosts, register_sidecars};
use abp_store::{Store, StoreOptions};

use crate::args::GlobalArgs;
use crate::input;
use crate::output::Output;
use crate::upstreams::{self, UpstreamBackend};

/// The backend of a run that nobody chose one for.
const DEFAULT_BACKEND: &str = "mock";
/// How long a question waits for its answer when nothing else is configured.
const DEFAULT_APPROVAL_TIMEOUT: Duration = Duration::from_secs(300);

/// The effective configuration of a command.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) loaded: Loaded,
    scripts: Vec<MockScript>,
}

impl Session {
    /// Loads the configuration; what is odd about it is told on standard error.
    pub(crate) fn open(
        global: &GlobalArgs,
        scripts: &[PathBuf],
        output: &mut Output,
    ) -> Result<Self, AbpError> {
        let mut read = Vec::new();
        for path in scripts {
            let bytes = input::read(path)?;
            read.push(input::document::<MockScript>(path, &bytes)?);
        }
        let mut sources = sources(global);
        sources
            .known_backends
            .extend(read.iter().map(|script| script.name.clone()));
        let loaded = load(&sources)?;
        if !loaded.warnings.is_empty() {
            output.diagnostics(&render(&loaded.warnings, output.is_coloured()));
        }
        Ok(Self {
            loaded,
            scripts: read,
        })
    }

    pub(crate) fn config(&self) -> &Config {
        &self.loaded.config
    }

    /// The store of the state directory.
    pub(crate) async fn store(&self) -> Result<Store, AbpError> {
        Ok(Store::open(&self.config().state_dir, StoreOptions::default()).await?)
    }

    /// The backends: the embedded one, upstreams, configured ones, and those of scripts.
    pub(crate) fn registry(&self) -> Result<BackendRegistry, AbpError> {
        self.registry_with(&upstreams::backends(self.config(), None)?)
    }

    fn registry_with(&self, upstreams: &[UpstreamBackend]) -> Result<BackendRegistry, AbpError> {
        let mut registry = BackendRegistry::with_embedded();
        for upstream in upstreams {
            registry.register(Arc::clone(&upstream.backend));
        }
        register_sidecars(&mut registry, self.config(), &Place::of_this_program());
        for (name, backend) in &self.config().backends {
            let BackendConfig::Mock { script, priority } = backend else {
                continue;
            };
            let mut read = match script {
                Some(path) => input::document(path, &input::read(path)?)?,
                None => MockScript::demonstration(),
            };
            read.name.clone_from(name);
            read.priority = priority.unwrap_or(read.priority);
            registry.register(Arc::new(MockBackend::from_script(read)));
        }
        for script in &self.scripts {
            registry.register(Arc::new(MockBackend::from_script(script.clone())));
        }
        Ok(registry)
    }

    /// The backend of a run: the one asked for, the configured one, or the embedded one.
    pub(crate) fn backend(&self, asked: Option<&str>) -> Result<String, AbpError> {
        let configured = self.config().default_backend.as_deref();
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

    /// A policy by its configured name, or from a file.
    pub(crate) fn policy(&self, name_or_file: &str) -> Result<PolicyProfile, AbpError> {
        match self.config().policies.get(name_or_file) {
            Some(policy) => Ok(policy.clone()),
            None => input::policy(name_or_file.as_ref()),
        }
    }

    /// The policy of a run that brings none, where one is configured.
    pub(crate) fn default_policy(&self) -> Option<PolicyProfile> {
        let name = self.config().default_policy.as_ref()?;
        self.config().policies.get(name).cloned()
    }

    /// The prices of a file, or those configured for a backend.
    pub(crate) fn prices(
        &self,
        file: Option<&PathBuf>,
        backend: &str,
    ) -> Result<PriceTable, AbpError> {
        let Some(path) = file else {
            return Ok(self.configured_prices(backend));
        };
        let prices: PriceTable = input::strict(path, ErrorCode::ConfigInvalid)?;
        if let Some(model) = prices.first_invalid() {
            let message = format!(
                "{}: a price of {model:?} is not a number of dollars, zero or more",
                path.display()
            );
            return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
        }
        Ok(prices)
    }

    fn configured_prices(&self, backend: &str) -> PriceTable {
        let config = self.config();
        let usual = || config.prices.get(config.default_prices.as_ref()?).cloned();
        let table = upstreams::prices(config, backend).or_else(usual);
        let mut prices = PriceTable::default();
        for (model, price) in table.into_iter().flatten() {
            prices.set(model, price);
        }
        prices
    }

    pub(crate) fn approval_timeout(&self) -> Duration {
        let configured = self.config().approval_timeout_secs;
        configured.map_or(DEFAULT_APPROVAL_TIMEOUT, |secs| {
            Duration::from_secs(secs.into())
        })
    }

    /// A runtime for looking at what was run, and deciding about it.
    pub(crate) fn archive(&self) -> Result<Runtime, AbpError> {
        self.runtime(PriceTable::default(), None)
    }

    /// A runtime over all of that, for runs that ask for a model.
    pub(crate) fn runtime(
        &self,
        prices: PriceTable,
        model: Option<&str>,
    ) -> Result<Runtime, AbpError> {
        let upstreams = upstreams::backends(self.config(), model)?;
        let targets = upstreams.iter().filter_map(|upstream| {
            let name = upstream.backend.descriptor().name.clone();
            Some((name, upstream.target.clone()?))
        });
        let options = RuntimeOptions {
            state_dir: self.config().state_dir.clone(),
            prices,
            planning: PlanSettings {
                emulation: self.config().emulation_config(),
                models: targets.collect(),
            },
        };
        let records = abp_host::records::directory(&self.config().state_dir);
        if let Err(error) = abp_host::records::sweep(&records) {
            tracing::warn!(target: "abp.sidecar", %error, "cannot look for sidecars of lost hosts");
        }
        Ok(Runtime::new(self.registry_with(&upstreams)?, options))
    }
}

/// Where the configuration of this process comes from.
pub(crate) fn sources(global: &GlobalArgs) -> Sources {
    let mut sources = Sources::of_process(global.config.clone());
    let built_in = built_in_hosts().iter().map(|host| host.name);
    sources.known_backends = built_in
        .chain([DEFAULT_BACKEND, upstreams::MOCK_BACKEND])
        .map(str::to_owned)
        .collect();
    if let Some(state_dir) = &global.state_dir {
        sources.overrides.push(Override {
            key: "state_dir".to_owned(),
            value: state_dir.display().to_string(),
            flag: "--state-dir".to_owned(),
        });
    }
    sources
}

/// Runs a command's async part to its end.
pub(crate) fn block_on<T>(
    future: impl Future<Output = Result<T, AbpError>>,
) -> Result<T, AbpError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .map_err(|error| {
            AbpError::new(ErrorCode::Internal, "cannot start the async runtime").with_source(error)
        })?;
    runtime.block_on(future)
}
