//! Agents that speak the Agent Client Protocol, as backends.

use std::path::PathBuf;
use std::sync::Arc;

use abp_agents::{AgentsDirectory, InstallState, presets};
use abp_backend_acp::{AcpBackend, AcpSpec, AgentHomes};
use abp_backend_core::ModelGateway;
use abp_config::Config;
use abp_integrations::BackendRegistry;
use abp_sidecar_sdk::{Place, sandbox_settings};

use crate::upstreams::first_configured_model;

/// Where agents are installed: where the configuration says, or else below the user's data directory.
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

/// Adds the installed agents of the table, under their own names.
pub(crate) fn register_agents(
    registry: &mut BackendRegistry,
    config: &Config,
    place: &Place,
    gateway: &Arc<dyn ModelGateway>,
) {
    let directory = agents_directory(config);
    for preset in presets() {
        let InstallState::Installed(installed) = directory.state(preset) else {
            continue;
        };
        let mut spec = AcpSpec::of_preset(preset, &installed);
        spec.launcher = place.launcher.clone();
        spec.records = Some(abp_host::records::directory(&config.state_dir));
        if let Some(model) = first_configured_model(config) {
            spec.usual_model = model.to_owned();
        }
        let backend = AcpBackend::new(preset.name, spec, homes(config), 0);
        let backend = backend.with_gateway(Arc::clone(gateway));
        registry.register(Arc::new(match sandbox_settings(&config.sandbox, place) {
            Some(settings) => backend.in_sandbox(settings),
            None => backend,
        }));
    }
}
