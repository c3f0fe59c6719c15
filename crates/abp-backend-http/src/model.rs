//! A model as a backend: one request, one answer, told as the events of a run.

mod account;
mod answer;
mod failure;
mod files;
mod leftovers;
mod request;
mod sound;
mod talk;
mod usage;

use std::sync::Arc;

use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, Completion, Emission, EmitError, OpenSpec, RunContext,
    RunEnd, Session, Upstream, UpstreamError,
};
use abp_core::{AgentEventKind, BackendIdentity, Capability, CapabilityManifest, SupportLevel};
use abp_dialect::{Dialect, TargetProfile};
use abp_error::{AbpError, ErrorCode};
use abp_plan::{ModelOffer, ModelTarget, ServedModels};
use abp_policy::{Holder, Holders, PolicyEngine};

use self::account::Account;
pub(crate) use self::account::hex;
use self::talk::Talk;

/// What an agent has and a bare model has not: hands, hooks and a memory.
const LACKS: [Capability; 17] = [
    Capability::ToolRead,
    Capability::ToolWrite,
    Capability::ToolEdit,
    Capability::ToolBash,
    Capability::ToolGlob,
    Capability::ToolGrep,
    Capability::ToolWebSearch,
    Capability::ToolWebFetch,
    Capability::ToolAskUser,
    Capability::HooksPreToolUse,
    Capability::HooksPostToolUse,
    Capability::SessionResume,
    Capability::SessionFork,
    Capability::Checkpointing,
    Capability::McpClient,
    Capability::McpServer,
    Capability::BatchMode,
];

/// A model has no tools: nothing it says reads, writes or runs anything. Files of the order's context
/// are read for it by the host, which asks the gate first. Its one connection goes to the upstream's
/// own address, which is judged when the session is opened.
const fn holders(network: &'static str) -> Holders {
    Holders {
        tools: Holder::host("tool proxy"),
        approvals: Holder::host("tool proxy"),
        reads: Holder::host("tool proxy"),
        writes: Holder::host("no tools"),
        network: Holder::host(network),
    }
}

/// The holder of network rules for an upstream with an address, and for one without.
const BY_ADDRESS: &str = "upstream address";
const NO_CONNECTION: &str = "no connection";

/// A backend that gives a work order's request to a model and tells what it answers.
#[derive(Debug)]
pub struct ModelBackend {
    descriptor: BackendDescriptor,
    upstream: Arc<dyn Upstream>,
    abilities: fn(Dialect, Option<&str>) -> CapabilityManifest,
}

impl ModelBackend {
    /// The backend `upstream:NAME` over an upstream. `abilities` says what a model of a dialect can do;
    /// capabilities that need more than a model (tools, sessions) are removed.
    #[must_use]
    pub fn new(
        upstream: Arc<dyn Upstream>,
        abilities: fn(Dialect, Option<&str>) -> CapabilityManifest,
        priority: u32,
    ) -> Self {
        let known = upstream.descriptor();
        let network = match known.address {
            Some(_) => BY_ADDRESS,
            None => NO_CONNECTION,
        };
        Self {
            descriptor: BackendDescriptor {
                name: format!("upstream:{}", known.name),
                manifest: Some(manifest(&*upstream, abilities, None)),
                holders: holders(network),
                mounts: false,
                asked_tools: &[],
                overlays: false,
                measures_usage: true,
                priority,
                is_demonstration: known.is_demonstration,
                takes_sessions: false,
                model: Some(ModelOffer {
                    dialects: known.dialects.clone(),
                    served: None,
                }),
            },
            upstream,
            abilities,
        }
    }

    /// Names the models that it serves; without this, any may be asked for.
    #[must_use]
    pub fn serving(mut self, models: ServedModels) -> Self {
        if let Some(offer) = &mut self.descriptor.model {
            offer.served = Some(models);
        }
        self
    }

    /// What a plan has to know to write requests for it; `None` where it speaks no dialect.
    #[must_use]
    pub fn target(&self) -> Option<ModelTarget> {
        let descriptor = self.upstream.descriptor();
        Some(ModelTarget {
            dialect: *descriptor.dialects.first()?,
            profile: TargetProfile {
                wire_version: descriptor.wire_version.clone(),
                ..TargetProfile::default()
            },
        })
    }

    /// The capabilities for a model: the one asked for, under its vendor's name, or the first served.
    fn manifest_for(&self, model: Option<&str>) -> CapabilityManifest {
        let offer = self.descriptor.model.as_ref();
        let served = offer.and_then(|offer| offer.served.as_ref());
        let model = model.or_else(|| served?.first_named());
        let model = model.map(|model| served.map_or(model, |served| served.vendor_name(model)));
        manifest(&*self.upstream, self.abilities, model)
    }

    /// Judges the one address that the upstream connects to by the rules of the run's policy.
    fn may_connect(&self, policy: &PolicyEngine) -> Result<(), AbpError> {
        let Some(address) = &self.upstream.descriptor().address else {
            return Ok(());
        };
        let decision = policy.can_reach_network(address);
        if decision.is_allowed() {
            return Ok(());
        }
        let name = &self.descriptor.name;
        let message = format!("{name} may not be reached: {}", decision.reason);
        let error =
            AbpError::new(ErrorCode::PolicyDenied, message).with_context("host", address.as_str());
        Err(match decision.rule {
            Some(rule) => error
                .with_context("list", rule.list.as_str())
                .with_context("pattern", rule.pattern),
            None => error,
        })
    }
}

/// The capabilities of a model behind an upstream, without those that need more than a model.
fn manifest(
    upstream: &dyn Upstream,
    abilities: fn(Dialect, Option<&str>) -> CapabilityManifest,
    model: Option<&str>,
) -> CapabilityManifest {
    let dialect = upstream.descriptor().dialects.first();
    let mut manifest = dialect.map_or_else(CapabilityManifest::new, |dialect| {
        abilities(*dialect, model)
    });
    manifest.insert(Capability::Streaming, SupportLevel::Native);
    manifest.extend(LACKS.map(|lacking| (lacking, SupportLevel::Unsupported)));
    manifest
}

impl Backend for ModelBackend {
    fn descriptor(&self) -> &BackendDescriptor {
        &self.descriptor
    }

    fn manifest(&self, model: Option<&str>) -> Option<CapabilityManifest> {
        Some(self.manifest_for(model))
    }

    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        if let Err(denied) = self.may_connect(&spec.policy) {
            return Box::pin(async move { Err(denied) });
        }
        let session = ModelSession {
            holders: self.descriptor.holders,
            identity: BackendIdentity {
                id: self.descriptor.name.clone(),
                backend_version: self.upstream.descriptor().wire_version.clone(),
                adapter_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            },
            manifest: self.manifest_for(spec.model.as_deref()),
            upstream: Arc::clone(&self.upstream),
            traceparent: spec.traceparent,
        };
        Box::pin(async move { Ok(Box::new(session) as Box<dyn Session>) })
    }
}

struct ModelSession {
    holders: Holders,
    identity: BackendIdentity,
    manifest: CapabilityManifest,
    upstream: Arc<dyn Upstream>,
    traceparent: Option<String>,
}

impl Session for ModelSession {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn manifest(&self) -> &CapabilityManifest {
        &self.manifest
    }

    fn holders(&self) -> Holders {
        self.holders
    }

    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        Box::pin(async move {
            let mut account = Account::default();
            let mut talk = Talk {
                upstream: &*self.upstream,
                context: &context,
                account: &mut account,
                traceparent: self.traceparent.as_deref(),
            };
            let ended = tokio::select! {
                biased;
                // Dropping the exchange ends it at the vendor, too.
                _ = context.cancelled() => Err(Interrupted::Stopped),
                ended = talk.carry_out() => ended,
            };
            let result = match ended {
                Ok(()) | Err(Interrupted::Stopped) => Ok(Completion::Whole),
                Err(Interrupted::Failed(error)) => Err(error),
            };
            let (model, exchanges, usage_raw) = account.close();
            RunEnd {
                result,
                usage_raw,
                model,
                exchanges,
                ..RunEnd::completed()
            }
        })
    }
}

/// Why an answer was not told to its end.
#[derive(Debug)]
enum Interrupted {
    /// The host stopped the run.
    Stopped,
    /// The vendor failed.
    Failed(AbpError),
}

impl From<EmitError> for Interrupted {
    fn from(_: EmitError) -> Self {
        Self::Stopped
    }
}

impl From<AbpError> for Interrupted {
    fn from(error: AbpError) -> Self {
        Self::Failed(error)
    }
}

impl From<UpstreamError> for Interrupted {
    fn from(error: UpstreamError) -> Self {
        Self::Failed(error.into())
    }
}

async fn emit(context: &RunContext, kinds: Vec<AgentEventKind>) -> Result<(), Interrupted> {
    let events = kinds.into_iter().map(|kind| Emission { kind, ext: None });
    emit_all(context, events.collect()).await
}

async fn emit_all(context: &RunContext, events: Vec<Emission>) -> Result<(), Interrupted> {
    if events.is_empty() {
        return Ok(());
    }
    Ok(context.emit_all(events).await?)
}

fn broken(problem: impl Into<String>) -> AbpError {
    AbpError::new(ErrorCode::BackendBrokenAnswer, problem)
}
