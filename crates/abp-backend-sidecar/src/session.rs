//! Running a work order on a sidecar.

use std::pin::pin;

use abp_backend_core::{BoxFuture, Completion, Emission, McpAccess, RunContext, RunEnd, Session};
use abp_core::{
    AgentEvent, AgentEventKind, BackendIdentity, CancelReason, CapabilityManifest, ExecutionMode,
    Outcome, RuntimeConfig, UsageNormalized, WorkOrder,
};
use abp_error::{AbpError, ErrorCode};
use abp_host::{Claim, Containment, RunEnded, SidecarClient, SidecarRun};
use abp_plan::Payload;
use abp_policy::Holders;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::quota::outgrown;

/// A sidecar that said hello.
pub(crate) struct SidecarSession {
    client: SidecarClient,
    run_id: Uuid,
    max_workspace: Option<u64>,
}

impl SidecarSession {
    pub(crate) fn new(client: SidecarClient, run_id: Uuid, max_workspace: Option<u64>) -> Self {
        Self {
            client,
            run_id,
            max_workspace,
        }
    }

    fn start(self, context: &RunContext) -> Result<SidecarRun, AbpError> {
        let invalid = |problem: String| AbpError::new(ErrorCode::Internal, problem);
        let asked = context.order().config.execution_mode();
        let asked = asked.map_err(|error| invalid(error.to_string()))?;
        let taken = self.client.mode();
        if asked != taken {
            let message = format!(
                "the sidecar takes {} requests, the order is {}",
                mode_name(taken),
                mode_name(asked)
            );
            return Err(AbpError::new(ErrorCode::CapabilityUnsupported, message));
        }
        if let Some(access) = context.mcp() {
            self.client.hide(access.key.expose_secret());
        }
        let order = order_for(context).map_err(|error| invalid(error.to_string()))?;
        let run = self.client.run(self.run_id, &order);
        run.map_err(|error| invalid(error.to_string()))
    }
}

impl Session for SidecarSession {
    fn identity(&self) -> &BackendIdentity {
        self.client.identity()
    }

    fn manifest(&self) -> &CapabilityManifest {
        self.client.manifest()
    }

    fn holders(&self) -> Holders {
        Holders::ANNOUNCED
    }

    fn contained_by(&self) -> Option<&'static str> {
        self.client.containment().map(Containment::as_str)
    }

    fn run(self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        Box::pin(async move {
            let max_workspace = self.max_workspace;
            match self.start(&context) {
                Ok(run) => follow(run, &context, max_workspace).await,
                Err(error) => RunEnd::failed(error),
            }
        })
    }
}

/// The order as the sidecar gets it: it works in the prepared workspace, on the plan's payload, and is
/// told where its MCP servers are.
fn order_for(context: &RunContext) -> Result<WorkOrder, serde_json::Error> {
    let mut order = context.order().clone();
    order.workspace.root = context.workspace_root().to_string_lossy().into_owned();
    // A vendor's request is in the order already; a conversation has emulations applied to it.
    if let Payload::Conversation { conversation } = context.payload() {
        let conversation = serde_json::to_value(conversation)?;
        set_own(&mut order.config, "conversation", conversation);
    }
    if let Some(McpAccess { url, key }) = context.mcp() {
        let authorization = format!("Bearer {}", key.expose_secret());
        let headers = json!({ "authorization": authorization });
        let access = json!({ "url": url, "headers": headers });
        set_own(&mut order.config, "mcp", access);
    }
    Ok(order)
}

/// Sets one of ABP's own settings, in place of whatever the order has under this name.
fn set_own(config: &mut RuntimeConfig, key: &str, value: Value) {
    let flat = format!("abp.{key}");
    config.vendor.remove(&flat);
    let settings = config.vendor.entry("abp".to_owned());
    match settings.or_insert_with(|| json!({})) {
        Value::Object(settings) => {
            settings.insert(key.to_owned(), value);
        }
        _ => {
            config.vendor.insert(flat, value);
        }
    }
}

/// Hands on what the sidecar says happened, until it ended.
async fn follow(mut run: SidecarRun, context: &RunContext, max_workspace: Option<u64>) -> RunEnd {
    let cancel = run.cancel_token();
    let mut outgrown = pin!(outgrown(context.workspace_root(), max_workspace));
    let mut stopped = false;
    let mut usage = UsageNormalized::default();
    loop {
        let events = tokio::select! {
            biased;
            reason = context.cancelled(), if !stopped => {
                cancel.cancel(reason_name(reason));
                stopped = true;
                continue;
            }
            // Nothing it still says can make up for a full disk: it ends without being asked.
            error = &mut outgrown => return RunEnd::failed(error),
            events = run.next_events() => events,
        };
        let Some(events) = events else {
            break;
        };
        // After the end of the run the sidecar may still say something; nobody takes it.
        if stopped {
            continue;
        }
        if let Some(AgentEventKind::UsageUpdated { usage: last }) =
            events.iter().map(|event| &event.kind).rfind(is_usage)
        {
            usage.clone_from(last);
        }
        let events = events
            .into_iter()
            .map(|AgentEvent { kind, ext, .. }| Emission { kind, ext });
        if let Err(error) = context.emit_all(events.collect()).await {
            cancel.cancel(error.reason.map_or_else(String::new, reason_name));
            stopped = true;
        }
    }
    conclude(run.finish().await, usage, context).await
}

fn is_usage(kind: &&AgentEventKind) -> bool {
    matches!(kind, AgentEventKind::UsageUpdated { .. })
}

async fn conclude(ended: RunEnded, reported: UsageNormalized, context: &RunContext) -> RunEnd {
    for message in ended.warnings {
        // Where the run was stopped nobody listens any more.
        let _ = context.emit(AgentEventKind::Warning { message }).await;
    }
    let claim = match ended.result {
        Ok(claim) => claim,
        Err(failure) => return RunEnd::failed(failure.into()),
    };
    if claim.usage != UsageNormalized::default() && claim.usage != reported {
        let usage = claim.usage.clone();
        let _ = context.emit(AgentEventKind::UsageUpdated { usage }).await;
    }
    end_of(claim)
}

/// A claim of success proves nothing; a claim of failure is believed.
fn end_of(claim: Claim) -> RunEnd {
    let result = match claim.outcome {
        Some(Outcome::Failed) => Err(claim.error.map_or_else(
            || {
                AbpError::new(
                    ErrorCode::BackendCrashed,
                    "the sidecar says that its work failed",
                )
            },
            AbpError::from,
        )),
        Some(Outcome::Partial | Outcome::Cancelled) => Ok(Completion::Partial),
        Some(Outcome::Complete) | None => Ok(Completion::Whole),
    };
    RunEnd {
        result,
        usage_raw: claim.usage_raw,
        artifacts: claim.artifacts,
        ..RunEnd::completed()
    }
}

fn reason_name(reason: CancelReason) -> String {
    wire_name(&reason)
}

fn mode_name(mode: ExecutionMode) -> String {
    wire_name(&mode)
}

/// The name a unit variant has on the wire.
fn wire_name(value: &impl serde::Serialize) -> String {
    let written = serde_json::to_value(value).unwrap_or_default();
    written.as_str().unwrap_or_default().to_owned()
}
