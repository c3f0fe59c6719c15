//! The supervisor: one task that owns a run to its end.

mod check;
mod engage;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{
    Backend, CancelHandle, CancelSignal, Completion, Emission, EmitError, HostRequest,
    ObservedConnection, PermissionQuestion, RunContext, RunEnd, Session, SessionUse, ToolError,
    cancellation,
};
use abp_core::{
    AgentEvent, AgentEventKind, Attestation, BackendIdentity, CancelReason, CapabilityManifest,
    CheckReport, ClientProfile, EventOrigin, McpReport, Receipt, SandboxReport, StateAccess,
    WorkspaceSpec,
};
use abp_error::{AbpError, ErrorCode};
use abp_mcp::ToolQuestion;
use abp_plan::{ConfirmedPlan, RunPlan};
use abp_policy::{Holders, PolicyEngine, PolicyList, Rule};
use abp_store::{Lease, Store};
use abp_telemetry::{MetricsCollector, TraceContext};
use abp_workspace::{Placeholder, StageChoice, StageProgress, WorkspaceManager};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use tokio::time::Instant;
use uuid::Uuid;

use crate::RuntimeError;
use crate::approval::ApprovalDesk;
use crate::finish::{Ended, finish, give_back};
use crate::follow::EventPublisher;
use crate::gate::Gate;
use crate::journal::Journal;
use crate::lease::CancelSlot;
use crate::mcp::{McpGrant, RunMcp};
use crate::meter::Meter;
use crate::mortality::may_die;
use crate::observe::Observed;
use crate::options::RunOptions;
use crate::permission::AnsweredCalls;
use crate::record::{End, Recorder};
use crate::recover::cancelled_by;
use crate::running::RunPlace;
use crate::runtime::RuntimeOptions;
use crate::stage::{Stage, keep_state_out};
use crate::tools::{ToolCallIds, use_tool};

/// The most connections of a run that are events of its trace.
const MAX_CONNECTIONS: u64 = 1_000;
/// How long a backend may take to end after it was told to.
const GRACE: Duration = Duration::from_secs(2);
/// How many events of earlier attempts are read at a time.
const EARLIER_EVENTS: u32 = 1_000;
/// Requests of a backend that may wait; each is answered before the next is taken.
const REQUEST_QUEUE: usize = 16;

/// A run that was accepted: from here on it ends in a receipt.
pub(crate) struct Accepted {
    pub(crate) run_id: Uuid,
    pub(crate) plan: RunPlan,
    pub(crate) backends: Vec<Arc<dyn Backend>>,
    pub(crate) policy: PolicyEngine,
    pub(crate) meter: Meter,
    pub(crate) mcp: Option<McpGrant>,
    pub(crate) metrics: Option<Arc<MetricsCollector>>,
    pub(crate) options: RunOptions,
    pub(crate) runtime: Arc<RuntimeOptions>,
    /// Carries the epoch of the lease in every write for the run.
    pub(crate) store: Store,
    pub(crate) lease: Lease,
    pub(crate) place: Arc<RunPlace>,
    pub(crate) staging: Arc<StageProgress>,
    pub(crate) attempt: Attempt,
    /// The request that cancels the run, where there is one.
    pub(crate) cancelled: CancelSlot,
}

impl Accepted {
    /// The place in a trace that the run's processes and model calls are told: that of the run where it is
    /// recorded, else that of its caller.
    pub(crate) fn trace(&self) -> Option<TraceContext> {
        let caller = self.options.trace;
        let is_recorded = self
            .metrics
            .as_ref()
            .is_some_and(|metrics| metrics.spans().is_some());
        match is_recorded {
            true => Some(TraceContext::of_id(self.run_id.into_bytes(), caller)),
            false => caller,
        }
    }
}

/// Which attempt of a run this is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Attempt {
    /// Counted from 1.
    pub(crate) number: u32,
    /// The number of its first event.
    pub(crate) from_seq: u64,
    /// Whether there may be another one.
    pub(crate) may_retry: bool,
}

/// What is known about the backend that was opened, or tried.
pub(crate) struct Engaged {
    pub(crate) identity: BackendIdentity,
    pub(crate) manifest: CapabilityManifest,
    pub(crate) holders: Holders,
    pub(crate) measures_usage: bool,
    pub(crate) contained_by: Option<&'static str>,
    pub(crate) state: Option<StateAccess>,
    pub(crate) sandbox: Option<SandboxReport>,
    /// The rules that a mount in the sandbox holds.
    pub(crate) mounted: Vec<Rule>,
    /// The tools that the backend asks about before it uses them.
    pub(crate) asked_tools: &'static [&'static str],
    pub(crate) plan: Option<Arc<ConfirmedPlan>>,
}

impl Engaged {
    /// A backend that is not open: nothing is known of it but its name, and whatever was known of
    /// another that was tried before is no statement about it.
    fn untried(name: &str) -> Self {
        Self {
            identity: BackendIdentity {
                id: name.to_owned(),
                backend_version: None,
                adapter_version: None,
            },
            manifest: CapabilityManifest::new(),
            holders: Holders::NONE,
            measures_usage: false,
            contained_by: None,
            state: None,
            sandbox: None,
            mounted: Vec::new(),
            asked_tools: &[],
            plan: None,
        }
    }
}

/// The state of a run under way.
pub(crate) struct Supervisor {
    pub(crate) accepted: Accepted,
    pub(crate) recorder: Recorder,
    pub(crate) gate: Gate,
    pub(crate) engaged: Engaged,
    /// What came of the run's MCP servers.
    pub(crate) mcp: Option<McpReport>,
    cancel: CancelSignal,
    deadline: Option<Instant>,
    tool_calls: u64,
    /// Calls of the backend's own tools that were decided before they were announced.
    answered: AnsweredCalls,
    /// Connections that the host's proxy carried or refused.
    connections: u64,
    /// Whether the kernel refused an overlay of this run.
    overlays_refused: bool,
    /// The verdict of the operator's check on the result.
    pub(crate) check: Option<CheckReport>,
}

/// Why no backend was opened.
enum NotEngaged {
    /// The overlay of the stage cannot be mounted; a copy can stand in.
    NoOverlay(String),
    /// The run is over.
    Ended(Ended),
}

/// A running session, from the host's side.
struct Running {
    requests: mpsc::Receiver<HostRequest>,
    /// Tells the session to end.
    stop: CancelHandle,
    /// Set once the session was told to end.
    stopped: Option<Stop>,
}

/// Why and since when a session is to end.
struct Stop {
    reason: CancelReason,
    until: Instant,
    error: Option<AbpError>,
}

/// Carries a run to its receipt. Never fails for what happens in the run itself.
pub(crate) async fn supervise(
    accepted: Accepted,
    cancel: CancelSignal,
    events: EventPublisher,
) -> Result<Receipt, RuntimeError> {
    let deadline = accepted
        .options
        .timeout
        .map(|timeout| Instant::now() + timeout);
    let selected = accepted.plan.projection().selected_backend.clone();
    let end = End {
        cancel: cancel.clone(),
        deadline,
    };
    let journal = Journal::new(accepted.store.clone(), accepted.run_id, events);
    let desk = ApprovalDesk {
        store: accepted.store.clone(),
        lease: accepted.lease,
        place: Arc::clone(&accepted.place),
        may_retry: accepted.attempt.may_retry,
    };
    let mut supervisor = Supervisor {
        recorder: Recorder::new(
            accepted.plan.order(),
            &accepted.options.secrets,
            journal,
            end,
        ),
        gate: Gate::new(
            accepted.policy.clone(),
            accepted.options.approvals.clone(),
            desk,
        ),
        engaged: Engaged::untried(&selected),
        accepted,
        mcp: None,
        cancel,
        deadline,
        tool_calls: 0,
        answered: AnsweredCalls::default(),
        connections: 0,
        overlays_refused: false,
        check: None,
    };
    let (stage, ended) = match supervisor.catch_up().await {
        Ok(()) => supervisor.carry_out().await,
        Err(error) => (None, Ended::failed(error.into())),
    };
    let ended = supervisor.check_result(stage.as_ref(), ended).await;
    let is_shutdown = ended.cancel_reason == Some(CancelReason::Shutdown);
    if is_shutdown && supervisor.accepted.attempt.may_retry {
        return give_back(supervisor, stage).await;
    }
    finish(supervisor, stage, ended).await
}

impl Supervisor {
    /// Reads what earlier attempts recorded: the receipt is about the whole run.
    async fn catch_up(&mut self) -> Result<(), RuntimeError> {
        let (store, run_id) = (self.accepted.store.clone(), self.accepted.run_id);
        let mut next = 0;
        while next < self.accepted.attempt.from_seq {
            let page = store.events(run_id, next, EARLIER_EVENTS).await?;
            if page.is_empty() {
                let problem = format!("event {next} of an earlier attempt is missing");
                return Err(RuntimeError::Lost(problem));
            }
            for record in page {
                let event: AgentEvent = serde_json::from_str(&record.json)
                    .map_err(|error| RuntimeError::Lost(error.to_string()))?;
                let model = event
                    .ext
                    .as_ref()
                    .and_then(|ext| ext.get("model")?.as_str());
                self.accepted.meter.recall(&event.kind, model);
                self.recorder.recall(&event)?;
                next = record.seq + 1;
            }
        }
        self.accepted.meter.begin_attempt();
        Ok(())
    }

    fn start_message(&self) -> String {
        let run = format!(
            "run {} on {}",
            self.accepted.run_id, self.engaged.identity.id
        );
        let Some(session) = &self.accepted.options.session else {
            return run;
        };
        let what = match session.usage {
            SessionUse::Continue => "continues the session of run",
            SessionUse::Fork => "forks the session of run",
        };
        format!("{run}, {what} {}", session.run_id)
    }

    /// Says that the run, or another attempt of it, begins.
    async fn announce_start(&mut self) {
        let Attempt {
            number, from_seq, ..
        } = self.accepted.attempt;
        let kind = match from_seq {
            0 => AgentEventKind::RunStarted {
                message: self.start_message(),
            },
            from_seq => AgentEventKind::RunResumed {
                from_seq,
                attempt: number,
            },
        };
        let client = self.client();
        self.recorder.record(kind, client).await;
    }

    async fn carry_out(&mut self) -> (Option<Stage>, Ended) {
        self.announce_start().await;
        let mut spec = self.accepted.plan.order().workspace.clone();
        let own = self.accepted.runtime.own_dirs();
        if let Err(error) = keep_state_out(&mut spec, &own) {
            return (None, Ended::failed(error));
        }
        let mut stage = match self.prepare(spec.clone(), self.stage_choice(&spec)).await {
            Ok(stage) => stage,
            Err(ended) => return (None, ended),
        };
        may_die("staged");
        let mut engaged = self.engage(&stage).await;
        if let Err(NotEngaged::NoOverlay(reason)) = engaged {
            // Nothing ran in it yet.
            if let Err(error) = stage.discard().await {
                return (None, Ended::failed(error));
            }
            let reason = Some(reason);
            self.overlays_refused = true;
            stage = match self.prepare(spec, StageChoice::Copy { reason }).await {
                Ok(stage) => stage,
                Err(ended) => return (None, ended),
            };
            engaged = self.engage(&stage).await;
        }
        let ended = match engaged {
            Ok((session, plan)) => match self.open_mcp(&stage).await {
                Ok(mcp) => self.run(session, &stage, plan, mcp).await,
                Err(error) => Ended::failed(error),
            },
            Err(NotEngaged::Ended(ended)) => ended,
            Err(NotEngaged::NoOverlay(reason)) => {
                Ended::failed(AbpError::new(ErrorCode::WorkspaceInitFailed, reason))
            }
        };
        (Some(stage), ended)
    }

    /// The names of ignored directories that the run may use. Every backend that may be used has to mount
    /// them, and no program outside its sandbox may meet the empty mount points.
    fn lent_names(&self) -> Vec<String> {
        let backends = &self.accepted.backends;
        let can_mount = backends.iter().all(|one| one.descriptor().overlays);
        if !can_mount || self.accepted.mcp.is_some() || self.overlays_refused {
            return Vec::new();
        }
        self.accepted.runtime.lend.clone()
    }

    /// Names that the policy protects and that must not be created either. They are of use only where every
    /// backend that may be used mounts over them.
    fn placeholders(&self) -> Vec<Placeholder> {
        let backends = &self.accepted.backends;
        if !backends.iter().all(|one| one.descriptor().mounts) {
            return Vec::new();
        }
        let named = self.accepted.policy.named_paths().into_iter();
        named
            .filter(|(rule, _)| rule.list == PolicyList::DenyWrite)
            .map(|(rule, path)| Placeholder::of_pattern(&rule.pattern, path))
            .collect()
    }

    /// The form of the stage. An overlay is seen in one sandbox alone, so everything that works on the
    /// workspace has to be in it, whichever backend is used in the end.
    fn stage_choice(&self, spec: &WorkspaceSpec) -> StageChoice {
        let copy = |reason: String| StageChoice::Copy {
            reason: Some(reason),
        };
        if spec.snapshot {
            return copy("the order asks for a snapshot".to_owned());
        }
        if self.accepted.mcp.is_some() {
            return copy("MCP servers of the run use the workspace, too".to_owned());
        }
        let mut backends = self.accepted.backends.iter().map(|one| one.descriptor());
        match backends.find(|backend| !backend.overlays) {
            Some(backend) => copy(format!("backend {} has no sandbox for it", backend.name)),
            None => StageChoice::Overlay,
        }
    }

    /// Prepares the workspace. When the run ends meanwhile, the copying thread is stopped and awaited, so
    /// that its stage is gone before the receipt is written. A thread that hangs in the file system is
    /// left alone after the grace period; the next sweep removes its stage.
    async fn prepare(&mut self, spec: WorkspaceSpec, choice: StageChoice) -> Result<Stage, Ended> {
        let progress = Arc::clone(&self.accepted.staging);
        let manager = WorkspaceManager::new(&self.accepted.runtime.stages_dir)
            .with_choice(choice)
            .with_lent(self.lent_names())
            .with_placeholders(self.placeholders())
            .with_progress(Arc::clone(&progress));
        let hidden = self.accepted.policy.unreadable_paths().clone();
        let is_first = self.accepted.attempt.number == 1;
        let run_id = self.accepted.run_id;
        let preparing = async {
            if !is_first {
                // An earlier attempt may have left its stage, or may even still write to it.
                Stage::evict(manager.clone(), run_id).await?;
            }
            Stage::prepare(manager, spec, run_id, hidden).await
        };
        tokio::pin!(preparing);
        let reason = tokio::select! {
            biased;
            reason = self.cancel.cancelled() => reason,
            () = until(self.deadline) => CancelReason::Timeout,
            prepared = &mut preparing => return prepared.map_err(Ended::failed),
        };
        progress.stop();
        if let Ok(Ok(stage)) = tokio::time::timeout(GRACE, preparing).await
            && let Err(error) = stage.discard().await
        {
            tracing::warn!(target: "abp.workspace", %error, "the stage could not be discarded");
        }
        Err(Ended::stopped(reason, self.limit_error(reason)))
    }

    /// What the client can render and who said so, as far as anybody said something.
    fn client(&self) -> Option<BTreeMap<String, Value>> {
        let capabilities = self.accepted.plan.order().client.clone()?;
        let profile = ClientProfile {
            capabilities: Some(capabilities),
            origins: self.accepted.options.client_origins,
        };
        Some(BTreeMap::from([("client".to_owned(), json!(profile))]))
    }

    /// Serves the session until it ended, was stopped, or panicked.
    async fn run(
        &mut self,
        session: Box<dyn Session>,
        stage: &Stage,
        plan: Arc<ConfirmedPlan>,
        mut mcp: Option<RunMcp>,
    ) -> Ended {
        if plan.checks_answer() {
            self.recorder.keep_answer();
        }
        let (sender, requests) = mpsc::channel(REQUEST_QUEUE);
        let (stop, signal) = cancellation();
        let mut context =
            RunContext::new(Arc::clone(&plan), stage.root().to_owned(), sender, signal);
        if let Some(mcp) = &mcp {
            context = context.with_mcp(mcp.access());
        }
        // Calling the backend is in the task too: whatever panics there is its failure, not ours.
        let mut task = tokio::spawn(async move { session.run(context).await });
        may_die("engaged");
        let mut running = Running {
            requests,
            stop,
            stopped: None,
        };
        let joined = loop {
            let stopping = running.stopped.as_ref().map(|stop| stop.until);
            tokio::select! {
                biased;
                reason = self.cancel.cancelled(), if stopping.is_none() => running.stop(reason, None),
                () = until(self.deadline), if stopping.is_none() => running.stop(CancelReason::Timeout, None),
                error = self.recorder.failed(), if stopping.is_none() => running.stop(CancelReason::Storage, Some(error)),
                () = until(stopping), if stopping.is_some() => {
                    task.abort();
                    break (&mut task).await;
                }
                Some(question) = next_question(&mut mcp) => self.judge_call(question, &running).await,
                Some(request) = running.requests.recv() => self.serve(request, &mut running, stage).await,
                joined = &mut task => break joined,
            }
        };
        may_die("ended");
        self.recorder.end_pieces().await;
        if let Some(mcp) = mcp {
            self.mcp = Some(mcp.close().await);
        }
        self.judge(joined, running, &plan)
    }

    async fn serve(&mut self, request: HostRequest, running: &mut Running, stage: &Stage) {
        let request = match request {
            // A connection happened, whether or not the run is being stopped.
            HostRequest::Connection(connection) => return self.record_connection(connection).await,
            request @ (HostRequest::Emit { .. }
            | HostRequest::Tool { .. }
            | HostRequest::Permission { .. }) => request,
        };
        if let Some(stop) = &running.stopped {
            refuse(request, stop.reason);
            return;
        }
        match request {
            HostRequest::Connection(_) => {}
            HostRequest::Emit { events, reply } => {
                let end = self.take_events(events, stage).await;
                let answer = match end {
                    None => Ok(()),
                    Some((reason, error)) => {
                        running.stop(reason, error);
                        Err(EmitError {
                            reason: Some(reason),
                        })
                    }
                };
                // The backend may have gone away meanwhile; its end is seen by the loop.
                let _ = reply.send(answer);
            }
            HostRequest::Tool {
                invocation,
                parent,
                reply,
            } => {
                self.tool_calls += 1;
                let call = ToolCallIds {
                    number: self.tool_calls,
                    parent: parent.clone(),
                };
                let answer = use_tool(&mut self.gate, &mut self.recorder, stage, call, invocation);
                let answer = answer.await;
                if let Some(parent) = parent {
                    let is_denied = matches!(answer, Err(ToolError::Denied(_)));
                    self.answered.add_use(parent, !is_denied);
                }
                drop(reply.send(answer));
            }
            HostRequest::Permission { question, reply } => {
                let answer = self.decide_permission(question, stage).await;
                drop(reply.send(answer));
            }
        }
    }

    /// Records a connection that the host's proxy carried or refused.
    async fn record_connection(&mut self, connection: ObservedConnection) {
        if let Some(rule) = &connection.refused_by {
            self.gate.count_rule(rule);
        }
        self.connections += 1;
        if self.connections == MAX_CONNECTIONS + 1 {
            let message = format!(
                "the run made more than {MAX_CONNECTIONS} connections; refusals are still counted, but no \
                 further connection is listed"
            );
            self.recorder
                .record(AgentEventKind::Warning { message }, None)
                .await;
        }
        if self.connections > MAX_CONNECTIONS {
            return;
        }
        let kind = AgentEventKind::NetworkConnection {
            host: connection.host,
            port: connection.port,
            allowed: connection.allowed,
            rule: connection.rule,
            bytes_up: connection.bytes_up,
            bytes_down: connection.bytes_down,
        };
        self.recorder.record(kind, None).await;
    }

    /// Decides about a tool that the agent is about to use. A denial does not end the run: nothing was done.
    async fn decide_permission(
        &mut self,
        question: PermissionQuestion,
        stage: &Stage,
    ) -> Result<(), ToolError> {
        let observed = Observed::of_question(&question, stage.root());
        let judged = observed.judge(&mut self.gate, &mut self.recorder, stage);
        let judged = judged.await.map_err(ToolError::Denied);
        self.answered.add_question(question, judged.is_ok());
        judged
    }

    /// Decides about a call of a tool of the run's MCP servers.
    async fn judge_call(&mut self, question: ToolQuestion, running: &Running) {
        let answer = match running.stopped {
            Some(_) => Err("the run is over".to_owned()),
            None => self.gate.mcp_tool(&question.tool, &mut self.recorder).await,
        };
        // Whoever called may have gone away meanwhile.
        drop(question.answer.send(answer));
    }

    /// Records what the backend says happened, up to where the run has to end, and says why then.
    async fn take_events(
        &mut self,
        events: Vec<Emission>,
        stage: &Stage,
    ) -> Option<(CancelReason, Option<AbpError>)> {
        let mut end = None;
        for Emission { kind, ext } in events {
            end = match self.cancel.reason() {
                Some(reason) => Some((reason, None)),
                None => self.take_event(kind, ext, stage).await,
            };
            if end.is_some() {
                break;
            }
        }
        self.recorder.flush().await;
        end
    }

    async fn take_event(
        &mut self,
        kind: AgentEventKind,
        ext: Option<BTreeMap<String, Value>>,
        stage: &Stage,
    ) -> Option<(CancelReason, Option<AbpError>)> {
        if kind.is_host_only() {
            let message = format!(
                "the backend sent {}, which only the host may say",
                kind.name()
            );
            let error = AbpError::new(ErrorCode::ProtocolUnexpectedMessage, message);
            return Some((CancelReason::Violation, Some(error)));
        }
        let meter = &mut self.accepted.meter;
        let model = ext.as_ref().and_then(|ext| ext.get("model")?.as_str());
        let over = meter.observe(&kind, model).map(|reason| (reason, None));
        let origin = match (&kind, meter.provenance()) {
            (AgentEventKind::UsageUpdated { .. }, Some(Attestation::Measured)) => {
                EventOrigin::Gateway
            }
            _ => EventOrigin::Backend,
        };
        let unjudged = self.answered.unjudged(&kind);
        self.recorder.gather(kind, ext, origin).await;
        let judged = match unjudged {
            Ok(None) => return over,
            Ok(Some(observed)) => {
                observed
                    .judge(&mut self.gate, &mut self.recorder, stage)
                    .await
            }
            Err(breach) => Err(breach),
        };
        match judged {
            Ok(()) => over,
            Err(reason) => {
                let message = format!("the backend did what is denied: {reason}");
                let error = AbpError::new(ErrorCode::PolicyDenied, message);
                Some((CancelReason::Policy, Some(error)))
            }
        }
    }

    /// What the end of the session means for the run.
    fn judge(
        &mut self,
        joined: Result<RunEnd, tokio::task::JoinError>,
        running: Running,
        plan: &ConfirmedPlan,
    ) -> Ended {
        let end = match joined {
            Ok(end) => end,
            Err(error) if error.is_panic() => RunEnd::failed(AbpError::new(
                ErrorCode::BackendCrashed,
                "the backend panicked",
            )),
            // Aborted by us after the grace period.
            Err(_) => RunEnd::completed(),
        };
        let (usage_raw, artifacts) = (end.usage_raw, end.artifacts);
        let (model, exchanges) = (end.model, end.exchanges);
        if let Some(model) = &model {
            self.accepted.meter.name_model(model);
        }
        let ended = match (running.stopped, end.result) {
            (Some(stop), _) => Ended::stopped(
                stop.reason,
                stop.error.or_else(|| self.limit_error(stop.reason)),
            ),
            // The gateway stopped it before the meter could.
            (None, Err(error)) if error.code() == ErrorCode::BudgetExceeded => {
                Ended::stopped(CancelReason::Budget, Some(error))
            }
            (None, Err(error)) => Ended::failed(error),
            (None, Ok(Completion::Partial)) => Ended::partial(),
            (None, Ok(Completion::Whole)) => match self.check_answer(plan) {
                Ok(()) => Ended::complete(),
                Err(error) => Ended::failed(error),
            },
        };
        Ended {
            usage_raw,
            artifacts,
            model,
            exchanges,
            ..ended
        }
    }

    /// Checks the final answer: for what was emulated, and for the output schema that the vendor was to
    /// hold it to.
    fn check_answer(&self, plan: &ConfirmedPlan) -> Result<(), AbpError> {
        let answer = self.recorder.answer();
        plan.post().check(answer).map_err(|problem| {
            AbpError::new(ErrorCode::CapabilityEmulationFailed, problem.to_string())
        })?;
        plan.check_native_output(answer).map_err(|problem| {
            let message = format!("the answer does not hold to the output schema: {problem}");
            AbpError::new(ErrorCode::BackendBrokenAnswer, message)
        })
    }

    fn limit_error(&self, reason: CancelReason) -> Option<AbpError> {
        let meter = &self.accepted.meter;
        match reason {
            CancelReason::Budget => {
                let spent = meter.cost().unwrap_or_default();
                let budget = meter.budget().unwrap_or_default();
                let message = format!("the run cost {spent}, more than its budget of {budget}");
                Some(AbpError::new(ErrorCode::BudgetExceeded, message))
            }
            CancelReason::User => self.accepted.cancelled.get().map(cancelled_by),
            CancelReason::TurnLimit => {
                let turns = meter.max_turns().unwrap_or_default();
                Some(AbpError::new(
                    ErrorCode::TurnLimitExceeded,
                    format!("the run took more than {turns} turns"),
                ))
            }
            _ => None,
        }
    }
}

impl Running {
    fn stop(&mut self, reason: CancelReason, error: Option<AbpError>) {
        tracing::debug!(target: "abp.runtime", ?reason, "stopping the backend");
        self.stop.cancel(reason);
        self.stopped = Some(Stop {
            reason,
            until: Instant::now() + GRACE,
            error,
        });
    }
}

fn refuse(request: HostRequest, reason: CancelReason) {
    let over = EmitError {
        reason: Some(reason),
    };
    match request {
        HostRequest::Emit { reply, .. } => drop(reply.send(Err(over))),
        HostRequest::Tool { reply, .. } => drop(reply.send(Err(ToolError::Stopped(over)))),
        HostRequest::Permission { reply, .. } => drop(reply.send(Err(ToolError::Stopped(over)))),
        HostRequest::Connection(_) => {}
    }
}

/// Opening a backend is foreign code too: a panic in it is that backend's failure.
async fn caught<T>(future: impl Future<Output = Result<T, AbpError>>) -> Result<T, AbpError> {
    let mut future = std::pin::pin!(future);
    std::future::poll_fn(|context| {
        std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(context))).unwrap_or_else(
            |_| {
                std::task::Poll::Ready(Err(AbpError::new(
                    ErrorCode::BackendCrashed,
                    "the backend panicked while opening",
                )))
            },
        )
    })
    .await
}

async fn next_question(mcp: &mut Option<RunMcp>) -> Option<ToolQuestion> {
    match mcp {
        Some(mcp) => mcp.question().await,
        None => std::future::pending().await,
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
