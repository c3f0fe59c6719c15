//! Running a work order on a sidecar.

use std::pin::pin;

use abp_backend_core::{
    BoxFuture, Completion, Emission, EmitError, McpAccess, PermissionQuestion, RunContext, RunEnd,
    Session, ToolError,
};
use abp_core::{
    AgentEvent, AgentEventKind, BackendIdentity, CancelReason, Capability, CapabilityManifest,
    EmulationEntry, ExecutionMode, Outcome, SandboxReport, StateAccess, UsageNormalized, WorkOrder,
};
use abp_error::{AbpError, ErrorCode};
use abp_host::{
    Claim, Containment, Egress, Exit, PermissionRequest, PermissionResponse, RunEnded, RunItem,
    RunSandbox, SidecarClient, SidecarRun, with_process_end,
};
use abp_plan::ConfirmedPlan;
use abp_policy::{Holders, Rule};
use abp_stream::names_a_secret;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::json;
use uuid::Uuid;

use crate::connections::Connections;
use crate::delivery::{
    check_deliverable, conversation_of, deliver_emulations, remove_own, set_own,
};
use crate::models::ModelUse;
use crate::quota::outgrown;
use crate::secrets::Secrets;

/// ABP's own setting that tells a sidecar where its models are.
const MODEL_API: &str = "model_api";

/// A sidecar that said hello.
pub(crate) struct SidecarSession {
    pub(crate) client: SidecarClient,
    pub(crate) run_id: Uuid,
    pub(crate) models: ModelUse,
    pub(crate) max_workspace: Option<u64>,
    pub(crate) secrets: Secrets,
    /// `None` where the operator switched sandboxes off.
    pub(crate) sandbox: Option<RunSandbox>,
    /// The holders of rules without the sandbox.
    pub(crate) holders: Holders,
}

impl SidecarSession {
    fn check_mode(&self, order: &WorkOrder) -> Result<(), AbpError> {
        let asked = order.config.execution_mode();
        let asked = asked.map_err(|error| internal(&error))?;
        let taken = self.client.mode();
        if asked != taken {
            let message = format!(
                "the sidecar takes {} requests, the order is {}",
                mode_name(taken),
                mode_name(asked)
            );
            return Err(AbpError::new(ErrorCode::CapabilityUnsupported, message));
        }
        Ok(())
    }

    fn start(
        mut self,
        context: &RunContext,
    ) -> Result<(SidecarRun, Option<Egress>, ModelUse), AbpError> {
        self.check_mode(context.order())?;
        let egress = self.client.take_egress();
        let mut order = order_for(context, egress.as_ref())?;
        // An order cannot say where models are: that would lead the run's traffic elsewhere.
        remove_own(&mut order.config, MODEL_API);
        if let Some(setting) = self.models.setting(egress.as_ref())? {
            set_own(&mut order.config, MODEL_API, setting);
        }
        let run = self.client.run(self.run_id, &order);
        let models = self.models;
        run.map(|run| (run, egress, models))
            .map_err(|error| internal(&error))
    }

    /// Keeps the secrets of the run, besides those of the configuration, out of the log and of errors.
    fn hide_secrets(&mut self, context: &RunContext) {
        let of_order = context.order().config.env.iter();
        let of_order = of_order
            .filter(|(name, _)| names_a_secret(name))
            .map(|(_, value)| value.as_str());
        let of_mcp = context.mcp().map(|access| access.key.expose_secret());
        for secret in of_order.chain(of_mcp) {
            self.client.hide(secret);
            self.secrets.add(secret);
        }
    }
}

fn internal(problem: &dyn std::error::Error) -> AbpError {
    AbpError::new(ErrorCode::Internal, problem.to_string())
}

impl Session for SidecarSession {
    fn identity(&self) -> &BackendIdentity {
        self.client.identity()
    }

    fn manifest(&self) -> &CapabilityManifest {
        self.client.manifest()
    }

    fn holders(&self) -> Holders {
        let confined = self.sandbox.as_ref().map(RunSandbox::holders);
        self.holders.or_stronger(confined.unwrap_or(Holders::NONE))
    }

    fn sandbox(&self) -> Option<SandboxReport> {
        Some(match &self.sandbox {
            Some(sandbox) => sandbox.report(),
            None => SandboxReport::none(),
        })
    }

    fn mounted_rules(&self) -> Vec<Rule> {
        let sandbox = self.sandbox.iter();
        sandbox
            .flat_map(|sandbox| sandbox.mounted.clone())
            .collect()
    }

    fn contained_by(&self) -> Option<&'static str> {
        self.client.containment().map(Containment::as_str)
    }

    fn state_access(&self) -> Option<StateAccess> {
        self.client.state_access()
    }

    fn secrets(&self) -> Vec<SecretString> {
        self.secrets.to_vec()
    }

    fn accept(&self, plan: &ConfirmedPlan) -> Result<(), AbpError> {
        self.check_mode(plan.order())?;
        check_deliverable(plan)
    }

    fn run(mut self: Box<Self>, context: RunContext) -> BoxFuture<'static, RunEnd> {
        Box::pin(async move {
            let max_workspace = self.max_workspace;
            self.hide_secrets(&context);
            let secrets = self.secrets.clone();
            // Its temporary directory has to be there until the end.
            let _sandbox = self.sandbox.clone();
            let end = match self.start(&context) {
                Ok((run, egress, mut models)) => {
                    let end = follow(run, egress, &mut models, &context, max_workspace).await;
                    models.finish(end, &context).await
                }
                Err(error) => RunEnd::failed(error),
            };
            RunEnd {
                result: end.result.map_err(|error| secrets.redact(error)),
                ..end
            }
        })
    }
}

/// The order as the sidecar gets it: it works in the prepared workspace, on the plan's payload, has
/// ABP's instructions in its task, and is told where its MCP servers are.
fn order_for(context: &RunContext, egress: Option<&Egress>) -> Result<WorkOrder, AbpError> {
    let mut order = context.order().clone();
    let applied = &context.plan().report().emulation.applied;
    let conversation = conversation_of(context.payload());
    deliver_emulations(&mut order, applied, conversation)?;
    order.workspace.root = context.workspace_root().to_string_lossy().into_owned();
    // A vendor's request is in the order already; a conversation has emulations applied to it.
    if let Some(conversation) = conversation {
        let conversation = serde_json::to_value(conversation).map_err(|error| internal(&error))?;
        set_own(&mut order.config, "conversation", conversation);
    }
    if let Some(McpAccess { url, key }) = context.mcp() {
        let authorization = format!("Bearer {}", key.expose_secret());
        let headers = json!({ "authorization": authorization });
        // The host's own address is not there in a network namespace.
        let url = match egress {
            Some(egress) => egress
                .add_route("mcp", url)
                .map_err(|error| internal(&error))?,
            None => url.clone(),
        };
        let access = json!({ "url": url, "headers": headers });
        set_own(&mut order.config, "mcp", access);
    }
    Ok(order)
}

/// Hands on what the sidecar says happened, until it ended.
async fn follow(
    mut run: SidecarRun,
    egress: Option<Egress>,
    models: &mut ModelUse,
    context: &RunContext,
    max_workspace: Option<u64>,
) -> RunEnd {
    let mut connections = Connections::new(egress);
    let cancel = run.cancel_token();
    let mut outgrown = pin!(outgrown(context.workspace_root(), max_workspace));
    let mut stopped = false;
    let mut usage = UsageNormalized::default();
    loop {
        let items = tokio::select! {
            biased;
            reason = context.cancelled(), if !stopped => {
                cancel.cancel(reason_name(reason));
                stopped = true;
                continue;
            }
            // Nothing it still says can make up for a full disk: it ends without being asked.
            error = &mut outgrown => {
                connections.finish(context).await;
                let RunEnded { exit, stderr_tail, .. } = run.stop().await;
                return RunEnd::failed(with_process_end(error, exit, &stderr_tail));
            }
            report = connections.next() => match report {
                Ok(report) => {
                    connections.tell(report, context).await;
                    continue;
                }
                Err(error) => {
                    let RunEnded { exit, stderr_tail, .. } = run.stop().await;
                    connections.finish(context).await;
                    return RunEnd::failed(with_process_end(error, exit, &stderr_tail));
                }
            },
            measured = models.next() => {
                if let Err(error) = models.tell(measured, context).await {
                    connections.finish(context).await;
                    let RunEnded { exit, stderr_tail, .. } = run.stop().await;
                    return RunEnd::failed(with_process_end(error, exit, &stderr_tail));
                }
                continue;
            }
            items = run.next_items() => items,
        };
        let Some(mut items) = items else {
            break;
        };
        if models.is_measured() {
            items.retain(|item| usage_of(item).is_none());
        }
        // After the end of the run the sidecar may still say something; nobody takes it.
        if stopped {
            continue;
        }
        if let Some(last) = items.iter().filter_map(usage_of).next_back() {
            usage.clone_from(last);
        }
        if let Err(error) = hand_on(items, &run, context).await {
            cancel.cancel(error.reason.map_or_else(String::new, reason_name));
            stopped = true;
        }
    }
    let mut ended = run.finish().await;
    connections.finish(context).await;
    if models.is_measured()
        && let Ok(claim) = &mut ended.result
    {
        claim.usage = UsageNormalized::default();
    }
    conclude(ended, usage, context).await
}

fn usage_of(item: &RunItem) -> Option<&UsageNormalized> {
    match item {
        RunItem::Event(AgentEvent {
            kind: AgentEventKind::UsageUpdated { usage },
            ..
        }) => Some(usage),
        RunItem::Event(_) | RunItem::Question(_) => None,
    }
}

/// Hands on events and answers questions, each in its place: the agent asks about what follows from the events
/// before.
async fn hand_on(
    items: Vec<RunItem>,
    run: &SidecarRun,
    context: &RunContext,
) -> Result<(), EmitError> {
    let mut events = Vec::new();
    for item in items {
        match item {
            RunItem::Event(AgentEvent { kind, ext, .. }) => events.push(Emission { kind, ext }),
            RunItem::Question(request) => {
                if !events.is_empty() {
                    context.emit_all(std::mem::take(&mut events)).await?;
                }
                run.answer(decide(request, context).await?);
            }
        }
    }
    if events.is_empty() {
        return Ok(());
    }
    context.emit_all(events).await
}

async fn decide(
    request: PermissionRequest,
    context: &RunContext,
) -> Result<PermissionResponse, EmitError> {
    let question = PermissionQuestion {
        tool_name: request.tool_name,
        // A call without an id is known by that of the question.
        tool_use_id: request.tool_use_id.unwrap_or_else(|| request.id.clone()),
        input: request.input,
    };
    let (approved, reason) = match context.request_permission(question).await {
        Ok(()) => (true, None),
        Err(ToolError::Stopped(stopped)) => return Err(stopped),
        Err(ToolError::Denied(reason)) => (false, Some(reason)),
        Err(error) => (false, Some(error.to_string())),
    };
    Ok(PermissionResponse {
        id: request.id,
        approved,
        reason,
    })
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
    let applied = &context.plan().report().emulation.applied;
    if let Some(message) = ignored_instructions(&claim, applied) {
        let _ = context.emit(AgentEventKind::Warning { message }).await;
    }
    end_of(claim, ended.exit, &ended.stderr_tail)
}

/// What a sidecar that tells which instructions its agent got leaves out.
fn ignored_instructions(claim: &Claim, applied: &[EmulationEntry]) -> Option<String> {
    let told = claim.emulation.as_ref()?;
    let missing = applied.iter().map(|entry| &entry.capability);
    let missing = missing.filter(|capability| !told.contains(capability));
    let missing: Vec<_> = missing.map(Capability::as_str).collect();
    (!missing.is_empty()).then(|| {
        format!(
            "the sidecar says that its agent was not given the instructions for {}",
            missing.join(", ")
        )
    })
}

/// A claim of success proves nothing; a claim of failure is believed.
fn end_of(claim: Claim, exit: Option<Exit>, stderr_tail: &str) -> RunEnd {
    let failed = || {
        let message = "the sidecar says that its work failed";
        AbpError::new(ErrorCode::BackendCrashed, message)
    };
    let result = match claim.outcome {
        Some(Outcome::Failed) => {
            let error = claim.error.map_or_else(failed, AbpError::from);
            Err(with_process_end(error, exit, stderr_tail))
        }
        // A final that does not say how the work ended does not say that it is complete.
        Some(Outcome::Partial | Outcome::Cancelled) | None => Ok(Completion::Partial),
        Some(Outcome::Complete) => match claim.error {
            Some(error) => Err(with_process_end(error.into(), exit, stderr_tail)),
            None => Ok(Completion::Whole),
        },
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
