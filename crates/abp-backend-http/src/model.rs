//! A model as a backend: one request, one answer, told as the events of a run.

mod answer;
mod failure;
mod request;
mod usage;

use std::sync::Arc;

use abp_backend_core::{
    Backend, BackendDescriptor, BoxFuture, Completion, Emission, EmitError, ModelReply, OpenSpec,
    RunContext, RunEnd, Session, Upstream, UpstreamError,
};
use abp_core::{AgentEventKind, BackendIdentity, Capability, CapabilityManifest, SupportLevel};
use abp_dialect::{Dialect, Exchange, TargetProfile};
use abp_error::{AbpError, ErrorCode};
use abp_plan::{ModelTarget, Payload};
use abp_policy::{Holder, Holders};

use self::answer::{AnswerReader, read_whole};
use self::usage::VendorUsage;
use crate::upstream::{is_event_stream, media_type};

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

/// A model has no tools: nothing it says reads, writes or runs anything. Its one connection goes to the
/// upstream's own address, which is judged when the session is opened.
const HOLDERS: Holders = Holders {
    tools: Holder::host("no tools"),
    approvals: Holder::host("no tools"),
    reads: Holder::host("no tools"),
    writes: Holder::host("no tools"),
    network: Holder::NONE,
};

/// The longest answer that is taken where it does not come as a stream.
const MAX_WHOLE_ANSWER: usize = 64 << 20;

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
        Self {
            descriptor: BackendDescriptor {
                name: format!("upstream:{}", upstream.descriptor().name),
                manifest: Some(manifest(&*upstream, abilities, None)),
                holders: HOLDERS,
                measures_usage: true,
                priority,
            },
            upstream,
            abilities,
        }
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
}

/// What a model behind an upstream can do.
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
        Some(manifest(&*self.upstream, self.abilities, model))
    }

    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        let session = ModelSession {
            identity: BackendIdentity {
                id: self.descriptor.name.clone(),
                backend_version: self.upstream.descriptor().wire_version.clone(),
                adapter_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            },
            manifest: manifest(&*self.upstream, self.abilities, spec.model.as_deref()),
            upstream: Arc::clone(&self.upstream),
        };
        Box::pin(async move { Ok(Box::new(session) as Box<dyn Session>) })
    }
}

struct ModelSession {
    identity: BackendIdentity,
    manifest: CapabilityManifest,
    upstream: Arc<dyn Upstream>,
}

impl Session for ModelSession {
    fn identity(&self) -> &BackendIdentity {
        &self.identity
    }

    fn manifest(&self) -> &CapabilityManifest {
        &self.manifest
    }

    fn holders(&self) -> Holders {
        HOLDERS
    }

    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        Box::pin(async move {
            let mut usage = VendorUsage::default();
            let ended = tokio::select! {
                biased;
                // Dropping the exchange ends it at the vendor, too.
                _ = context.cancelled() => Err(Interrupted::Stopped),
                ended = exchange(&*self.upstream, &context, &mut usage) => ended,
            };
            let result = match ended {
                Ok(()) | Err(Interrupted::Stopped) => Ok(Completion::Whole),
                Err(Interrupted::Failed(error)) => Err(error),
            };
            RunEnd {
                result,
                usage_raw: usage.into_value(),
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

/// Asks, and tells what is answered.
async fn exchange(
    upstream: &dyn Upstream,
    context: &RunContext,
    usage: &mut VendorUsage,
) -> Result<(), Interrupted> {
    let call = request::call(context.order(), context.payload(), upstream.descriptor())?;
    let dialect = call.dialect;
    let undo = match context.payload() {
        Payload::Lowered { exchange, .. } => (**exchange).clone(),
        _ => Exchange::default(),
    };
    let reply = upstream.send(call).await?;
    if !reply.status.is_success() {
        return Err(failure::of_reply(dialect, reply).await.into());
    }
    if is_event_stream(&reply.headers) {
        return follow(dialect, &undo, reply, context, usage).await;
    }
    let kind = media_type(&reply.headers).unwrap_or("nothing");
    if !kind.eq_ignore_ascii_case("application/json") {
        let message = format!("the vendor answers with {kind:?} instead of events or JSON");
        return Err(broken(message).into());
    }
    let body = reply.body.collect(MAX_WHOLE_ANSWER).await?;
    let events = read_whole(dialect, &undo, &body, usage)?;
    emit(context, events).await
}

/// Tells a stream as it comes, and at its end what it was as a whole.
async fn follow(
    dialect: Dialect,
    undo: &Exchange,
    reply: ModelReply,
    context: &RunContext,
    usage: &mut VendorUsage,
) -> Result<(), Interrupted> {
    let mut reader = AnswerReader::new(dialect, undo)?;
    match pieces(&mut reader, reply, context, usage).await {
        Ok(()) => emit(context, reader.conclude()?).await,
        Err(interrupted) => {
            // What was used until then was used.
            emit(context, reader.usage_so_far().into_iter().collect()).await?;
            Err(interrupted)
        }
    }
}

async fn pieces(
    reader: &mut AnswerReader,
    mut reply: ModelReply,
    context: &RunContext,
    usage: &mut VendorUsage,
) -> Result<(), Interrupted> {
    while !reader.is_over() {
        let mut events = Vec::new();
        let read = match reply.body.next().await {
            Some(part) => reader.push(&part?, usage, &mut events),
            None => reader.end(usage, &mut events),
        };
        emit(context, events).await?;
        read?;
    }
    Ok(())
}

async fn emit(context: &RunContext, events: Vec<AgentEventKind>) -> Result<(), Interrupted> {
    if events.is_empty() {
        return Ok(());
    }
    let events = events.into_iter().map(|kind| Emission { kind, ext: None });
    Ok(context.emit_all(events.collect()).await?)
}

fn broken(problem: impl Into<String>) -> AbpError {
    AbpError::new(ErrorCode::BackendBrokenAnswer, problem)
}
