//! Sidecars into the registry.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::ModelGateway;
use abp_backend_sidecar::SidecarBackend;
use abp_config::{BackendConfig, Config, EnvValue, SandboxConfig, SandboxEngine, SandboxNetwork};
use abp_host::{
    EngineChoice, Launcher, Machine, Network, PROXY_PORT, ResourceLimits, SandboxSettings,
    SidecarSpec,
};
use abp_integrations::BackendRegistry;

use crate::HostInstallation;
use crate::secrets::secret_values;

/// Where the program that registers sidecars is, and keeps its things.
#[derive(Debug, Clone)]
pub struct Place {
    /// The program itself; hosts are looked for beside it.
    pub program: Option<PathBuf>,
    /// Who starts the sidecars.
    pub launcher: Launcher,
    /// The machine that their sandboxes are made on.
    pub machine: Arc<Machine>,
}

impl Place {
    /// That of the running program, whose `main` begins with [`abp_host::run_if_launcher`].
    #[must_use]
    pub fn of_this_program() -> Self {
        let launcher = Launcher::this_program();
        let home = std::env::var_os("HOME").map(PathBuf::from);
        Self {
            program: std::env::current_exe().ok(),
            machine: Arc::new(Machine::new(launcher.clone(), home)),
            launcher,
        }
    }
}

/// Adds the sidecars that come with ABP, where they are installed, and the configured ones, which
/// win over others of the same name.
/// Hosts of vendors' agents ask their models through `gateway`, where upstreams are configured for it.
pub fn register_sidecars(
    registry: &mut BackendRegistry,
    config: &Config,
    place: &Place,
    gateway: &Arc<dyn ModelGateway>,
) {
    let sandbox = sandbox_settings(&config.sandbox, place);
    for host in crate::built_in_hosts() {
        let found = host.installation(config, place.program.as_deref());
        let HostInstallation::Complete { script, directory } = found else {
            continue;
        };
        let mut spec = spec(host.command, config, place);
        spec.args = vec![script.to_string_lossy().into_owned()];
        let mut backend = SidecarBackend::new(host.name, spec, 0);
        if host.asks_first {
            backend = backend.asking_first();
        }
        if host.asks_models && !config.upstreams.is_empty() {
            backend = backend.with_gateway(Arc::clone(gateway));
        }
        // A host with packages of its own is an installation by itself, and needs the common library.
        let sandbox = sandbox.clone().map(|mut settings| {
            settings.read_only.push(directory);
            settings
        });
        registry.register(Arc::new(sandboxed(backend, sandbox)));
    }
    for (name, backend) in &config.backends {
        if let Some(backend) = configured(name, backend, config, place) {
            registry.register(Arc::new(sandboxed(backend, sandbox.clone())));
        }
    }
}

fn sandboxed(backend: SidecarBackend, sandbox: Option<SandboxSettings>) -> SidecarBackend {
    match sandbox {
        Some(settings) => backend.in_sandbox(settings),
        None => backend,
    }
}

/// The settings of sandboxes; `None` where they are switched off.
#[must_use]
pub fn sandbox_settings(config: &SandboxConfig, place: &Place) -> Option<SandboxSettings> {
    let engine = match config.engine {
        SandboxEngine::Auto => EngineChoice::Auto,
        SandboxEngine::Namespaces => EngineChoice::Namespaces,
        SandboxEngine::Landlock => EngineChoice::Landlock,
        SandboxEngine::None => return None,
    };
    let network = match config.network {
        SandboxNetwork::Policy => Network::Proxied(PROXY_PORT),
        SandboxNetwork::Open => Network::Open,
    };
    Some(SandboxSettings {
        machine: Arc::clone(&place.machine),
        engine,
        read_only: config.read_only.clone(),
        network,
        scratch_bytes: config.scratch_mb.map(bytes),
    })
}

fn configured(
    name: &str,
    backend: &BackendConfig,
    config: &Config,
    place: &Place,
) -> Option<SidecarBackend> {
    let BackendConfig::Sidecar {
        command,
        args,
        env,
        timeout_secs,
        hello_timeout_secs,
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
    let mut spec = spec(command, config, place);
    spec.args.clone_from(args);
    spec.env = EnvValue::exposed(env);
    spec.secrets = secret_values(&spec.env);
    let seconds = |secs: u32| Duration::from_secs(secs.into());
    let timing = &mut spec.timing;
    timing.run = timeout_secs.map(seconds);
    timing.hello = hello_timeout_secs.map_or(timing.hello, seconds);
    timing.progress = stall_timeout_secs.map_or(timing.progress, seconds);
    spec.limits = ResourceLimits {
        processes: max_processes.map(u64::from),
        memory_bytes: max_memory_mb.map(bytes),
        file_bytes: max_file_mb.map(bytes),
    };
    let mut backend = SidecarBackend::new(name, spec, priority.unwrap_or_default());
    if let Some(megabytes) = *max_workspace_mb {
        backend = backend.with_workspace_limit(bytes(megabytes));
    }
    Some(backend)
}

fn bytes(megabytes: u32) -> u64 {
    u64::from(megabytes) * 1024 * 1024
}

fn spec(command: &str, config: &Config, place: &Place) -> SidecarSpec {
    SidecarSpec {
        launcher: place.launcher.clone(),
        records: Some(abp_host::records::directory(&config.state_dir)),
        // Every run brings its own.
        ..SidecarSpec::new(command, ".")
    }
}
