//! Playing a script.

use std::time::Duration;

use abp_backend_core::{
    AgentSession, Backend, BackendDescriptor, BoxFuture, OpenSpec, RunContext, RunEnd, Session,
    ToolError, ToolInvocation, ToolOutput,
};
use abp_core::ir::{IrContentBlock, IrConversation, IrRole};
use abp_core::{
    AgentEventKind, BackendIdentity, Capability, CapabilityManifest, SupportLevel, UsageNormalized,
};
use abp_error::AbpError;
use abp_policy::Holders;

use crate::{MockScript, Step};

/// The file the demonstration writes.
const GREETING: &str = "abp-hello.md";

/// The embedded backend.
#[derive(Debug)]
pub struct MockBackend {
    descriptor: BackendDescriptor,
    opened_manifest: CapabilityManifest,
    steps: Option<Vec<Step>>,
}

impl MockBackend {
    /// The backend `mock` with the default demonstration.
    #[must_use]
    pub fn new() -> Self {
        Self::from_script(MockScript::demonstration())
    }

    /// A backend that plays a script.
    #[must_use]
    pub fn from_script(script: MockScript) -> Self {
        let manifest = script.manifest.unwrap_or_else(default_manifest);
        Self {
            opened_manifest: script.opened_manifest.unwrap_or_else(|| manifest.clone()),
            descriptor: BackendDescriptor {
                name: script.name,
                manifest: Some(manifest),
                // It has no hands but the host's tools, which ask the policy first.
                holders: Holders::HOST_TOOLS,
                // It is part of the host, and counts itself.
                mounts: false,
                asked_tools: &[],
                overlays: false,
                measures_usage: true,
                priority: script.priority,
                is_demonstration: script.is_demonstration,
                takes_sessions: true,
                model: None,
            },
            steps: script.steps,
        }
    }
}

impl Default for MockBackend {
    fn default() -> Self {
        Self::new()
    }
}

impl Backend for MockBackend {
    fn descriptor(&self) -> &BackendDescriptor {
        &self.descriptor
    }

    fn open(&self, spec: OpenSpec) -> BoxFuture<'_, Result<Box<dyn Session>, AbpError>> {
        let session = MockSession {
            identity: BackendIdentity {
                id: self.descriptor.name.clone(),
                backend_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
                adapter_version: Some(env!("CARGO_PKG_VERSION").to_owned()),
            },
            manifest: self.opened_manifest.clone(),
            steps: self.steps.clone(),
            earlier: spec.session,
        };
        Box::pin(async move { Ok(Box::new(session) as Box<dyn Session>) })
    }
}

fn default_manifest() -> CapabilityManifest {
    CapabilityManifest::from([
        (Capability::Streaming, SupportLevel::Native),
        (Capability::ToolRead, SupportLevel::Emulated),
    ])
}

struct MockSession {
    identity: BackendIdentity,
    manifest: CapabilityManifest,
    steps: Option<Vec<Step>>,
    earlier: Option<AgentSession>,
}

impl Session for MockSession {
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
        Box::pin(async move {
            let played = match &self.steps {
                Some(steps) => play(&context, steps, self.earlier.as_ref()).await,
                None => demonstrate(&context).await,
            };
            match played {
                Ok(()) | Err(Interrupted::Stopped) => RunEnd::completed(),
                Err(Interrupted::Failed(error)) => RunEnd::failed(error),
            }
        })
    }
}

/// Why a script did not reach its end.
enum Interrupted {
    /// The host stopped the run.
    Stopped,
    /// The script says so.
    Failed(AbpError),
}

impl From<abp_backend_core::EmitError> for Interrupted {
    fn from(_: abp_backend_core::EmitError) -> Self {
        Self::Stopped
    }
}

async fn play(
    context: &RunContext,
    steps: &[Step],
    earlier: Option<&AgentSession>,
) -> Result<(), Interrupted> {
    for step in steps {
        match step {
            Step::Say { text } => say(context, text).await?,
            Step::Think { text } => {
                for piece in pieces(text) {
                    context
                        .emit(AgentEventKind::ThinkingDelta {
                            text: piece.to_owned(),
                        })
                        .await?;
                }
            }
            Step::Read { path } => {
                try_tool(context, ToolInvocation::ReadFile { path: path.clone() }).await?;
            }
            Step::Write { path, content } => {
                let (path, content) = (path.clone(), content.clone().into_bytes());
                try_tool(context, ToolInvocation::WriteFile { path, content }).await?;
            }
            Step::Usage { usage } => {
                context
                    .emit(AgentEventKind::UsageUpdated {
                        usage: usage.clone(),
                    })
                    .await?;
            }
            Step::Session { id } => {
                let earlier = earlier.map(|earlier| earlier.session_id.clone());
                let session_id = earlier.unwrap_or_else(|| id.clone());
                let begun = AgentEventKind::SessionStarted { session_id };
                context.emit(begun).await?;
            }
            Step::Emit { event } => context.emit(event.clone()).await?,
            Step::Sleep { ms } => {
                tokio::select! {
                    () = tokio::time::sleep(Duration::from_millis(*ms)) => {}
                    _ = context.cancelled() => return Err(Interrupted::Stopped),
                }
            }
            Step::Fail { code, message } => {
                return Err(Interrupted::Failed(AbpError::new(*code, message.clone())));
            }
        }
    }
    Ok(())
}

/// Shows the whole path on whatever workspace it is given.
async fn demonstrate(context: &RunContext) -> Result<(), Interrupted> {
    let task = context.order().task.trim().to_owned();
    let files = match use_tool(context, ToolInvocation::ListFiles).await? {
        Ok(ToolOutput::Files(files)) => files,
        Ok(_) | Err(_) => Vec::new(),
    };
    let mut said = format!("You asked: {task}\n");
    if let Some(instructions) = system_text(context.payload()) {
        said.push_str(&format!("My instructions: {instructions}\n"));
    }
    said.push_str(&match files.len() {
        0 => "The workspace is empty.\n".to_owned(),
        1 => "The workspace has one file.\n".to_owned(),
        count => format!("The workspace has {count} files.\n"),
    });
    if let Some(first) = files.first() {
        let path = first.to_string_lossy().into_owned();
        let outcome = use_tool(context, ToolInvocation::ReadFile { path: path.clone() }).await?;
        said.push_str(&match outcome {
            Ok(ToolOutput::Content(content)) => {
                format!("I read {path} ({} bytes).\n", content.len())
            }
            Ok(_) => String::new(),
            Err(problem) => format!("I could not read {path}: {problem}\n"),
        });
    }
    let content = format!("# Hello from the mock backend\n\nTask: {task}\n").into_bytes();
    let written = use_tool(
        context,
        ToolInvocation::WriteFile {
            path: GREETING.to_owned(),
            content,
        },
    );
    said.push_str(&match written.await? {
        Ok(_) => format!("I wrote {GREETING}."),
        Err(problem) => format!("I could not write {GREETING}: {problem}"),
    });
    say(context, &said).await?;
    let words = |text: &str| u64::try_from(text.split_whitespace().count()).unwrap_or(u64::MAX);
    let usage = UsageNormalized {
        input_tokens: Some(words(&task)),
        output_tokens: Some(words(&said)),
        ..UsageNormalized::default()
    };
    context.emit(AgentEventKind::UsageUpdated { usage }).await?;
    Ok(())
}

async fn say(context: &RunContext, text: &str) -> Result<(), Interrupted> {
    for piece in pieces(text) {
        context
            .emit(AgentEventKind::AssistantDelta {
                text: piece.to_owned(),
            })
            .await?;
    }
    context
        .emit(AgentEventKind::AssistantMessage {
            text: text.to_owned(),
        })
        .await?;
    Ok(())
}

/// A script goes on after a refusal, as agents do; the host has it in the trace.
async fn try_tool(context: &RunContext, invocation: ToolInvocation) -> Result<(), Interrupted> {
    match use_tool(context, invocation).await? {
        Ok(_) | Err(_) => Ok(()),
    }
}

/// A denied or failed tool is not the end for an agent, so it comes back as a value.
async fn use_tool(
    context: &RunContext,
    invocation: ToolInvocation,
) -> Result<Result<ToolOutput, String>, Interrupted> {
    match context.use_tool(invocation).await {
        Ok(output) => Ok(Ok(output)),
        Err(ToolError::Stopped(_)) => Err(Interrupted::Stopped),
        Err(problem) => Ok(Err(problem.to_string())),
    }
}

/// Streams go out in lines, as models send a few tokens at a time.
fn pieces(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive('\n')
}

fn system_text(payload: &abp_plan::Payload) -> Option<String> {
    let abp_plan::Payload::Conversation { conversation } = payload else {
        return None;
    };
    let IrConversation { messages, .. } = &**conversation;
    let system = messages
        .iter()
        .find(|message| message.role == IrRole::System)?;
    let texts = system.content.iter().filter_map(|block| match &block.body {
        IrContentBlock::Text { text, .. } => Some(text.as_str()),
        _ => None,
    });
    Some(texts.collect::<Vec<_>>().join(" "))
}
