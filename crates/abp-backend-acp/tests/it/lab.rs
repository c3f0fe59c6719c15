//! A runtime with one scripted agent.

use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use abp_agents::PermissionBehaviour;
use abp_backend_acp::{AcpBackend, AcpSpec, AgentHomes};
use abp_core::{AgentEventKind, PolicyProfile, Receipt, WorkOrder, WorkOrderBuilder};
use abp_emulation::EmulationConfig;
use abp_host::Launcher;
use abp_integrations::BackendRegistry;
use abp_runtime::{RunOptions, Runtime, RuntimeOptions};
use tempfile::TempDir;

/// The tools that the scripted agent asks about.
const ASKED: &[&str] = &["Write", "Edit"];

pub(crate) struct Lab {
    dir: TempDir,
    pub(crate) runtime: Runtime,
}

impl Lab {
    /// A lab with an agent of this behaviour.
    pub(crate) fn new(behaviour: &str) -> Self {
        Self::with(behaviour, |_| {})
    }

    pub(crate) fn with(behaviour: &str, change: impl FnOnce(&mut AcpSpec)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        for name in ["state", "stages", "source"] {
            let mut builder = std::fs::DirBuilder::new();
            builder.mode(0o700).create(dir.path().join(name)).unwrap();
        }
        std::fs::write(dir.path().join("source/kept.txt"), "kept\n").unwrap();
        let mut spec = AcpSpec::new(env!("CARGO_BIN_EXE_acp-test-agent"));
        spec.args = vec![behaviour.to_owned()];
        spec.launcher = Launcher::at(env!("CARGO_BIN_EXE_acp-launcher"));
        spec.permissions = match behaviour {
            "silent" | "through-host" => PermissionBehaviour::NeverAsks,
            _ => PermissionBehaviour::AsksFor(ASKED),
        };
        spec.offers_files = behaviour == "through-host";
        spec.timing.initialize = Duration::from_secs(20);
        change(&mut spec);
        let homes = AgentHomes::new(dir.path().join("homes"));
        let mut registry = BackendRegistry::new();
        registry.register(Arc::new(AcpBackend::new("agent", spec, homes, 0)));
        let options = RuntimeOptions {
            state_dir: dir.path().join("state"),
            stages_dir: dir.path().join("stages"),
            emulation: EmulationConfig::default(),
            max_running: 4,
            max_parked: 4,
            lend: Vec::new(),
        };
        Self {
            runtime: Runtime::new(registry, options),
            dir,
        }
    }

    pub(crate) fn source(&self) -> PathBuf {
        self.dir.path().join("source")
    }

    pub(crate) fn homes(&self) -> PathBuf {
        self.dir.path().join("homes")
    }

    pub(crate) fn order(&self, policy: PolicyProfile) -> WorkOrder {
        let root = self.source();
        let order = WorkOrderBuilder::new("write FILE=new.txt").root(root.to_str().unwrap());
        let mut order = order.build();
        order.policy = policy;
        order
    }

    pub(crate) async fn run(&self, policy: PolicyProfile) -> Receipt {
        self.run_with(self.order(policy), RunOptions::default())
            .await
    }

    pub(crate) async fn run_with(&self, order: WorkOrder, options: RunOptions) -> Receipt {
        let handle = self
            .runtime
            .run_with("agent", order, options)
            .await
            .unwrap();
        drop(handle.events);
        handle.receipt.await.unwrap()
    }
}

/// The names of the events, each once in a row.
pub(crate) fn names(receipt: &Receipt) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for event in &receipt.trace {
        names.push(event.kind.name().to_owned());
    }
    names.dedup();
    names
}

pub(crate) fn warnings(receipt: &Receipt) -> Vec<&str> {
    let mut warnings = Vec::new();
    for event in &receipt.trace {
        if let AgentEventKind::Warning { message } = &event.kind {
            warnings.push(message.as_str());
        }
    }
    warnings
}

/// Whether a process of the scripted agent with this home directory is left.
pub(crate) fn is_anything_left(home: &Path) -> bool {
    let mark = format!("HOME={}", home.display());
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes
        .filter_map(|entry| std::fs::read(entry.path().join("environ")).ok())
        .any(|environ| {
            let mut variables = environ.split(|byte| *byte == 0);
            variables.any(|variable| variable.starts_with(mark.as_bytes()))
        })
}
