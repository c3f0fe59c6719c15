//! Runs a model's session as the host does.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use abp_backend_core::{
    Backend as _, BoxFuture, CancelHandle, Emission, HostRequest, ModelBody, ModelCall,
    ModelOperation, ModelReply, OpenSpec, RunContext, RunEnd, ToolError, ToolInvocation,
    ToolOutput, Upstream, UpstreamDescriptor, UpstreamError, cancellation,
};
use abp_backend_http::ModelBackend;
use abp_core::{AgentEventKind, Capability, CapabilityManifest, SupportLevel, WorkOrder};
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_plan::{Candidate, ConfirmedPlan, PlanSettings, plan};
use abp_policy::PolicyEngine;
use abp_testkit::{FakeVendor, Reply};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::support::upstream;

/// What a run told, and how it ended.
pub(crate) struct Ran {
    pub(crate) events: Vec<AgentEventKind>,
    /// What was attached to each event.
    pub(crate) exts: Vec<Option<BTreeMap<String, Value>>>,
    /// The files that were asked for.
    pub(crate) reads: Vec<String>,
    pub(crate) end: RunEnd,
}

impl Ran {
    pub(crate) fn code(&self) -> Option<ErrorCode> {
        self.end
            .result
            .as_ref()
            .err()
            .map(abp_error::AbpError::code)
    }

    pub(crate) fn texts(&self, of: impl Fn(&AgentEventKind) -> Option<&String>) -> String {
        self.events.iter().filter_map(of).cloned().collect()
    }

    pub(crate) fn said_in_pieces(&self) -> String {
        self.texts(|event| match event {
            AgentEventKind::AssistantDelta { text } => Some(text),
            _ => None,
        })
    }

    pub(crate) fn thought(&self) -> String {
        self.texts(|event| match event {
            AgentEventKind::ThinkingDelta { text } => Some(text),
            _ => None,
        })
    }

    /// Everything but the pieces.
    pub(crate) fn whole(&self) -> Vec<Value> {
        let piece = |event: &&AgentEventKind| {
            matches!(
                event,
                AgentEventKind::AssistantDelta { .. } | AgentEventKind::ThinkingDelta { .. }
            )
        };
        let rest = self.events.iter().filter(|event| !piece(event));
        rest.map(|event| serde_json::to_value(event).unwrap())
            .collect()
    }
}

pub(crate) fn backend(upstream: Arc<dyn Upstream>) -> ModelBackend {
    let abilities = |_, _: Option<&str>| {
        CapabilityManifest::from([
            (Capability::ToolUse, SupportLevel::Native),
            (Capability::ToolBash, SupportLevel::Native),
        ])
    };
    ModelBackend::new(upstream, abilities, 0)
}

pub(crate) fn confirmed(backend: &ModelBackend, abp: &Value) -> Arc<ConfirmedPlan> {
    let order = json!({
        "task": "Say hello.",
        "config": {"model": "some-model", "vendor": {"abp": abp}},
    });
    confirmed_order(backend, order)
}

pub(crate) fn confirmed_order(backend: &ModelBackend, order: Value) -> Arc<ConfirmedPlan> {
    let order: WorkOrder = serde_json::from_value(order).unwrap();
    let descriptor = backend.descriptor();
    let name = descriptor.name.clone();
    let candidate = Candidate {
        backend: name.clone(),
        manifest: descriptor.manifest.clone(),
        holders: descriptor.holders,
        priority: descriptor.priority,
        is_demonstration: descriptor.is_demonstration,
        model: descriptor.model.clone(),
    };
    let settings = PlanSettings {
        models: [(name.clone(), backend.target().unwrap())].into(),
        ..PlanSettings::default()
    };
    let manifest = descriptor.manifest.as_ref().unwrap();
    let plan = plan(order, &[candidate], &settings).unwrap();
    let confirmed = plan.confirm(&name, manifest, &descriptor.holders);
    Arc::new(confirmed.unwrap())
}

/// The files of a workspace, as the host's tool for reading gives them.
pub(crate) type Files = BTreeMap<String, Result<Vec<u8>, ToolError>>;

/// Runs a plan as the host does; `started` is given what cancels it.
pub(crate) async fn run_plan(
    backend: &ModelBackend,
    plan: Arc<ConfirmedPlan>,
    started: impl FnOnce(CancelHandle),
) -> Ran {
    run_with_files(backend, plan, &Files::new(), started).await
}

pub(crate) fn spec(policy: PolicyEngine) -> OpenSpec {
    OpenSpec {
        run_id: Default::default(),
        workspace_root: PathBuf::new(),
        overlays: Vec::new(),
        model: None,
        policy,
        hidden: Vec::new(),
        source: None,
        budget: None,
        session: None,
        traceparent: None,
    }
}

pub(crate) async fn run_with_files(
    backend: &ModelBackend,
    plan: Arc<ConfirmedPlan>,
    files: &Files,
    started: impl FnOnce(CancelHandle),
) -> Ran {
    let session = backend.open(spec(PolicyEngine::default())).await.unwrap();
    assert!(backend.descriptor().measures_usage);
    let (sender, mut requests) = mpsc::channel(1);
    let (cancel, signal) = cancellation();
    started(cancel);
    let context = RunContext::new(plan, PathBuf::new(), sender, signal);
    let running = tokio::spawn(session.run(context));
    let (mut told, mut exts, mut reads) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(request) = requests.recv().await {
        match request {
            HostRequest::Emit { events, reply } => {
                for Emission { kind, ext } in events {
                    told.push(kind);
                    exts.push(ext);
                }
                reply.send(Ok(())).unwrap();
            }
            HostRequest::Tool {
                invocation, reply, ..
            } => {
                let ToolInvocation::ReadFile { path } = invocation else {
                    panic!("a model's session asks for {invocation:?}");
                };
                let missing = || Err(ToolError::Failed("there is no such file".to_owned()));
                let content = files.get(&path).cloned().unwrap_or_else(missing);
                reads.push(path);
                reply.send(content.map(ToolOutput::Content)).unwrap();
            }
            HostRequest::Permission { question, .. } => {
                panic!("a model asks for no permission: {question:?}")
            }
            HostRequest::Connection(connection) => {
                panic!("a model's session has no proxy: {connection:?}");
            }
        }
    }
    Ran {
        events: told,
        exts,
        reads,
        end: running.await.unwrap(),
    }
}

pub(crate) async fn run(upstream: Arc<dyn Upstream>, abp: Value) -> Ran {
    let backend = backend(upstream);
    let plan = confirmed(&backend, &abp);
    run_plan(&backend, plan, drop).await
}

/// A vendor that answers an order so.
pub(crate) async fn answered(dialect: Dialect, reply: Reply) -> Ran {
    let vendor = FakeVendor::start(reply).unwrap();
    run(Arc::new(upstream(&vendor, dialect)), json!({})).await
}

/// An upstream without a network: one answer, whole or as a stream, for every call.
#[derive(Debug)]
pub(crate) struct Canned {
    descriptor: UpstreamDescriptor,
    answer: Mutex<Result<Vec<u8>, UpstreamError>>,
}

impl Canned {
    pub(crate) fn new(dialect: Dialect, stream: Vec<u8>) -> Self {
        Self {
            descriptor: UpstreamDescriptor {
                name: "canned".to_owned(),
                dialects: vec![dialect],
                wire_version: None,
                address: None,
                is_demonstration: false,
            },
            answer: Mutex::new(Ok(stream)),
        }
    }

    pub(crate) fn failing(error: UpstreamError) -> Self {
        let canned = Self::new(Dialect::Claude, Vec::new());
        *canned.answer.lock().unwrap() = Err(error);
        canned
    }

    pub(crate) fn set(&self, stream: Vec<u8>) {
        *self.answer.lock().unwrap() = Ok(stream);
    }
}

impl Upstream for Canned {
    fn descriptor(&self) -> &UpstreamDescriptor {
        &self.descriptor
    }

    fn send(&self, call: ModelCall) -> BoxFuture<'_, Result<ModelReply, UpstreamError>> {
        assert_eq!(call.operation, ModelOperation::Generate { stream: true });
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(async move {
            let answer = answer?;
            let kind = match answer.first() {
                Some(b'{' | b'[') => "application/json",
                _ => "text/event-stream",
            };
            let kind = [("content-type".parse().unwrap(), kind.parse().unwrap())];
            Ok(ModelReply {
                status: StatusCode::OK,
                headers: HeaderMap::from_iter(kind),
                body: ModelBody::whole(answer),
            })
        })
    }
}
