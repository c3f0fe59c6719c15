//! Agents that speak the Agent Client Protocol, as backends.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abp_agents::{AgentsDirectory, InstallState, PermissionBehaviour, presets};
use abp_backend_acp::{AcpBackend, AcpSpec, AgentHomes};
use abp_backend_core::ModelGateway;
use abp_config::{AgentModels, BackendConfig, Config, EnvValue};
use abp_host::ResourceLimits;
use abp_integrations::BackendRegistry;
use abp_sidecar_sdk::{Place, sandbox_settings, secret_values};

use crate::upstreams::first_configured_model;

/// The directory of installed agents: the configured one, or else one below the user's data directory.
#[must_use]
pub fn agents_directory(config: &Config) -> AgentsDirectory {
    let configured = config.agents_dir.clone();
    let absolute = |variable: &str| {
        let path = std::env::var_os(variable).map(PathBuf::from);
        path.filter(|path| path.is_absolute())
    };
    let usual = || {
        let data = absolute("XDG_DATA_HOME");
        let data = data.or_else(|| absolute("HOME").map(|home| home.join(".local/share")));
        data.map(|data| data.join("abp/agents"))
    };
    // Without any of them nothing is installed, which is what is found below the state directory.
    let root = configured.or_else(usual);
    AgentsDirectory::new(root.unwrap_or_else(|| config.state_dir.join("agents")))
}

/// The private home directories of agents: beside the stages, because both are lent to agents.
#[must_use]
pub fn homes(config: &Config) -> AgentHomes {
    let stages = &config.stages_dir;
    let own = stages.file_name().unwrap_or_default();
    let all = stages.parent().and_then(|all| all.parent());
    AgentHomes::new(all.unwrap_or(stages).join("homes").join(own))
}

/// The names of agents that ask models through the gateway.
pub(crate) fn agent_names(config: &Config) -> Vec<String> {
    let configured = config.backends.iter().filter(|(_, backend)| {
        let models = AgentModels::Gateway;
        matches!(backend, BackendConfig::Acp { models: found, .. } if *found == models)
    });
    let configured = configured.map(|(name, _)| name.clone());
    let is_free = |name: &&str| !config.backends.contains_key(*name);
    let known = presets().iter().map(|preset| preset.name).filter(is_free);
    known.map(ToOwned::to_owned).chain(configured).collect()
}

/// Whether a backend is an agent, which keeps what it knows in a home directory of its own.
pub(crate) fn is_agent(config: &Config, backend: &str) -> bool {
    match config.backends.get(backend) {
        Some(configured) => matches!(configured, BackendConfig::Acp { .. }),
        None => presets().iter().any(|preset| preset.name == backend),
    }
}

/// Adds the installed agents of the table, under their own names, and the configured ones, which win over
/// others of the same name.
pub(crate) fn register_agents(
    registry: &mut BackendRegistry,
    config: &Config,
    place: &Place,
    gateway: &Arc<dyn ModelGateway>,
) {
    let mut register = |name: &str, spec: AcpSpec, limits: AgentLimits| {
        let is_gateways = !spec.has_own_login;
        let mut backend = AcpBackend::new(name, spec, homes(config), limits.priority);
        if is_gateways {
            backend = backend.with_gateway(Arc::clone(gateway));
            if config.upstreams.is_empty() {
                backend = backend.with_demonstration_models();
            }
        }
        if let Some(settings) = sandbox_settings(&config.sandbox, place) {
            backend = backend.in_sandbox(settings);
        }
        if let Some(bytes) = limits.workspace_bytes {
            backend = backend.with_workspace_limit(bytes);
        }
        registry.register(Arc::new(backend));
    };
    let directory = agents_directory(config);
    for preset in presets() {
        if let InstallState::Installed(installed) = directory.state(preset) {
            let mut spec = AcpSpec::of_preset(preset, &installed);
            settle(&mut spec, config, place);
            register(preset.name, spec, AgentLimits::default());
        }
    }
    for (name, backend) in &config.backends {
        if let Some((spec, limits)) = configured(backend, config, place) {
            register(name, spec, limits);
        }
    }
}

/// The settings of an agent's backend besides its specification.
#[derive(Default)]
struct AgentLimits {
    priority: u32,
    workspace_bytes: Option<u64>,
}

fn configured(
    backend: &BackendConfig,
    config: &Config,
    place: &Place,
) -> Option<(AcpSpec, AgentLimits)> {
    let BackendConfig::Acp {
        command,
        args,
        env,
        models,
        mode,
        stall_timeout_secs,
        max_processes,
        max_memory_mb,
        max_file_mb,
        max_workspace_mb,
        priority,
    } = backend
    else {
        return None;
    };
    let bytes = |megabytes: u32| u64::from(megabytes) << 20;
    let mut spec = AcpSpec::new(command);
    spec.args.clone_from(args);
    spec.env = EnvValue::exposed(env);
    // Texts with places for the run's own values are no secrets.
    let given = spec.env.iter().filter(|(_, value)| !value.contains('{'));
    let given = given.map(|(name, value)| (name.clone(), value.clone()));
    spec.secrets = secret_values(&given.collect());
    spec.has_own_login = match models {
        AgentModels::Gateway => false,
        AgentModels::Own => true,
    };
    spec.mode.clone_from(mode);
    // It may ask, and its questions are answered; that it asks is nothing to rely on.
    spec.permissions = PermissionBehaviour::AsksFor(&[]);
    if let Some(seconds) = *stall_timeout_secs {
        spec.timing.stall = Duration::from_secs(seconds.into());
    }
    spec.limits = ResourceLimits {
        processes: max_processes.map(u64::from),
        memory_bytes: max_memory_mb.map(bytes),
        file_bytes: max_file_mb.map(bytes),
    };
    settle(&mut spec, config, place);
    let limits = AgentLimits {
        priority: priority.unwrap_or_default(),
        workspace_bytes: max_workspace_mb.map(bytes),
    };
    Some((spec, limits))
}

/// Fills in what every agent of this process has.
fn settle(spec: &mut AcpSpec, config: &Config, place: &Place) {
    spec.launcher = place.launcher.clone();
    spec.records = Some(abp_host::records::directory(&config.state_dir));
    if let Some(model) = first_configured_model(config) {
        model.clone_into(&mut spec.usual_model);
    }
}
