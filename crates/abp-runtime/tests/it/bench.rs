//! A place to run orders in, and backends that behave as a test needs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, OpenSpec, RunContext, RunEnd, Session,
};
use abp_backend_mock::MockBackend;
use abp_core::{
    AgentEvent, AgentEventKind, BackendIdentity, CapabilityManifest, ModelPrice, Receipt,
    WorkOrder, WorkOrderBuilder, WorkspaceMode, verify_receipt_document,
};
use abp_emulation::EmulationConfig;
use abp_error::AbpError;
use abp_integrations::BackendRegistry;
use abp_policy::Holders;
use abp_runtime::{PriceTable, RunHandle, RunOptions, Runtime, RuntimeOptions};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A source directory, a state directory and a runtime over some backends.
pub(crate) struct Bench {
    pub(crate) source: TempDir,
    pub(crate) state: TempDir,
    pub(crate) stages: TempDir,
    prices: PriceTable,
    pub(crate) runtime: Runtime,
}

/// A directory that only its owner can reach, as a state directory has to be.
fn private_dir() -> TempDir {
    let mode = std::fs::Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().permissions(mode).tempdir();
    made.unwrap()
}

impl Bench {
    pub(crate) fn new(backends: impl IntoIterator<Item = Arc<dyn Backend>>) -> Self {
        let (source, state) = (TempDir::new().unwrap(), private_dir());
        std::fs::write(source.path().join("kept.txt"), "kept\n").unwrap();
        let mut registry = BackendRegistry::new();
        for backend in backends {
            registry.register(backend);
        }
        let mut prices = PriceTable::default();
        let price = ModelPrice {
            input_usd_per_mtok: 1.0,
            output_usd_per_mtok: 10.0,
            ..ModelPrice::default()
        };
        prices.set("priced", price);
        let stages = TempDir::new().unwrap();
        let options = RuntimeOptions {
            lend: Vec::new(),
            state_dir: state.path().to_owned(),
            stages_dir: stages.path().to_owned(),
            emulation: EmulationConfig::default(),
            max_running: 32,
            max_parked: 32,
        };
        Self {
            source,
            state,
            stages,
            prices,
            runtime: Runtime::new(registry, options),
        }
    }

    /// A bench with one mock that plays these steps.
    pub(crate) fn scripted(steps: &Value) -> Self {
        Self::new([script(json!({ "name": "mock", "steps": steps }))])
    }

    /// An order on the source, with what `extra` says.
    pub(crate) fn order(&self, extra: Value) -> WorkOrder {
        let order = WorkOrderBuilder::new("say hello").root(self.source.path().to_str().unwrap());
        let mut document = serde_json::to_value(order.build()).unwrap();
        merge(&mut document, extra);
        serde_json::from_value(document).unwrap()
    }

    /// Runs an order on the backend `mock` and follows it to its end.
    pub(crate) async fn run(&self, extra: Value) -> (Receipt, Vec<AgentEvent>) {
        self.run_with(self.order(extra), self.options()).await
    }

    pub(crate) async fn run_with(
        &self,
        order: WorkOrder,
        options: RunOptions,
    ) -> (Receipt, Vec<AgentEvent>) {
        let handle = self.runtime.run_with("mock", order, options).await.unwrap();
        self.follow(handle).await
    }

    /// Options with the bench's prices.
    pub(crate) fn options(&self) -> RunOptions {
        RunOptions {
            prices: self.prices.clone().into(),
            ..RunOptions::default()
        }
    }

    /// Follows a run to its end and checks what must hold for every run.
    pub(crate) async fn follow(&self, handle: RunHandle) -> (Receipt, Vec<AgentEvent>) {
        let run_id = handle.run_id;
        let mut stream = handle.events;
        let mut events = Vec::new();
        while let Some(followed) = stream.next().await.unwrap() {
            assert_eq!(followed.seq, events.len() as u64);
            events.push(AgentEvent::clone(&followed.event));
        }
        let receipt = handle.receipt.await.unwrap();
        assert_eq!(receipt.meta.run_id, run_id);
        assert_eq!(
            receipt.trace, events,
            "what was streamed is what is recorded"
        );
        let last = events.last().map(|event| event.kind.name().to_owned());
        assert_eq!(last.as_deref(), Some("run_completed"));
        self.check_state(&receipt);
        (receipt, events)
    }

    /// Exactly one receipt is stored, it verifies, and a stage stays only where there is something
    /// to decide about.
    pub(crate) fn check_state(&self, receipt: &Receipt) {
        assert_eq!(
            self.receipts(),
            [self.runtime.receipt_path(receipt.meta.run_id)]
        );
        let document = std::fs::read(&self.receipts()[0]).unwrap();
        assert_eq!(&verify_receipt_document(&document).unwrap(), receipt);
        let undecided = receipt.workspace.as_ref().is_some_and(|workspace| {
            let changed = workspace
                .changes
                .as_ref()
                .is_some_and(|changes| changes.files_changed > 0);
            workspace.mode == WorkspaceMode::Staged && changed && !workspace.applied
        });
        let mut stages = entries(self.stages.path());
        stages.retain(|stage| !stage.ends_with(".trash"));
        assert_eq!(stages.len(), usize::from(undecided), "{stages:?}");
    }

    pub(crate) fn receipts(&self) -> Vec<PathBuf> {
        entries(&self.state.path().join("receipts"))
    }
}

fn entries(directory: &std::path::Path) -> Vec<PathBuf> {
    match std::fs::read_dir(directory) {
        Ok(entries) => entries.map(|entry| entry.unwrap().path()).collect(),
        Err(_) => Vec::new(),
    }
}

fn merge(target: &mut Value, extra: Value) {
    match (target, extra) {
        (Value::Object(target), Value::Object(extra)) => {
            for (key, value) in extra {
                merge(target.entry(key).or_insert(Value::Null), value);
            }
        }
        (target, extra) => *target = extra,
    }
}

pub(crate) fn script(script: Value) -> Arc<dyn Backend> {
    Arc::new(MockBackend::from_script(
        serde_json::from_value(script).unwrap(),
    ))
}

/// The text the agent said.
pub(crate) fn said(events: &[AgentEvent]) -> Vec<&str> {
    fn text(event: &AgentEvent) -> Option<&str> {
        match &event.kind {
            AgentEventKind::AssistantMessage { text } => Some(text),
            _ => None,
        }
    }
    events.iter().filter_map(text).collect()
}

type Behaviour = Box<dyn Fn(RunContext) -> BoxFuture<'static, RunEnd> + Send + Sync>;

/// A backend made of a closure.
pub(crate) struct Probe {
    descriptor: BackendDescriptor,
    pub(crate) opened: AtomicUsize,
    pub(crate) open: fn() -> Result<(), AbpError>,
    behaviour: Arc<Behaviour>,
}

impl Probe {
    pub(crate) fn new<F>(behaviour: impl Fn(RunContext) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = RunEnd> + Send + 'static,
    {
        Self {
            descriptor: BackendDescriptor {
                name: "mock".to_owned(),
                manifest: Some(CapabilityManifest::new()),
                holders: Holders::HOST_TOOLS,
                mounts: false,
                asked_tools: &[],
                overlays: false,
                measures_usage: true,
                priority: 0,
                is_demonstration: false,
                takes_sessions: false,
                model: None,
            },
            opened: AtomicUsize::new(0),
            open: || Ok(()),
            behaviour: Arc::new(Box::new(move |context| Box::pin(behaviour(context)))),
        }
    }
}

impl std::fmt::Debug for Probe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Probe")
    }
}

impl Backend for Probe {
    fn descriptor(&self) -> &BackendDescriptor {
        &self.descriptor
    }

    fn open(&self, _: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        Box::pin(async move {
            self.opened.fetch_add(1, Ordering::SeqCst);
            (self.open)()?;
            let session = ProbeSession {
                identity: BackendIdentity {
                    id: self.descriptor.name.clone(),
                    backend_version: None,
                    adapter_version: None,
                },
                manifest: CapabilityManifest::new(),
                behaviour: Arc::clone(&self.behaviour),
            };
            Ok(Box::new(session) as Box<dyn Session>)
        })
    }
}

struct ProbeSession {
    identity: BackendIdentity,
    manifest: CapabilityManifest,
    behaviour: Arc<Behaviour>,
}

impl Session for ProbeSession {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn manifest(&self) -> &CapabilityManifest {
        &self.manifest
    }

    fn holders(&self) -> Holders {
        Holders::HOST_TOOLS
    }

    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        (self.behaviour)(context)
    }
}
