//! The one place where backends are registered.

use std::path::Path;
use std::sync::Arc;

use abp_backend_core::ModelGateway;
use abp_backend_mock::{MockBackend, MockScript};
use abp_config::{BackendConfig, Config};
use abp_core::read_document;
use abp_error::{AbpError, ErrorCode};
use abp_integrations::BackendRegistry;
use abp_sidecar_sdk::{Place, register_sidecars};

use crate::agents::register_agents;
use crate::upstreams::UpstreamBackend;

/// Registers every kind of backend: the embedded one, upstreams, agents, sidecars, configured ones, and those
/// of scripts. A later one replaces an earlier one of the same name.
///
/// # Errors
/// Fails where a script is not valid.
pub(crate) fn register(
    config: &Config,
    upstreams: &[UpstreamBackend],
    scripts: &[MockScript],
    gateway: &Arc<dyn ModelGateway>,
) -> Result<BackendRegistry, AbpError> {
    let mut registry = BackendRegistry::with_embedded();
    for upstream in upstreams {
        registry.register(Arc::clone(&upstream.backend));
    }
    let place = Place::of_this_program();
    register_agents(&mut registry, config, &place, gateway);
    register_sidecars(&mut registry, config, &place, gateway);
    for (name, backend) in &config.backends {
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
    for script in scripts {
        registry.register(Arc::new(MockBackend::from_script(script.clone())));
    }
    Ok(registry)
}

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
