//! One prompt: its run from the submission to the receipt.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use abp_backend_acp::protocol::schema::{
    NoticeSeverity, PermissionOption, PermissionOptionKind, PromptResponse,
    RequestPermissionOutcome, RequestPermissionRequest, RequestPermissionResponse,
    SessionNotification, SessionUpdate, StopReason, ToolCallUpdate, ToolCallUpdateFields, Usage,
};
use abp_backend_acp::protocol::{AcpSender, Client, Error};
use abp_backend_core::{AgentSession, SessionUse};
use abp_control::{Answer, CancelRequest, ControlPlane, OrderDraft, RunRecord, Submission};
use abp_core::{
    AgentEvent, AgentEventKind, Capability, CapabilityOrigins, CapabilitySource,
    ClientCapabilities, Outcome, PresentationType, Receipt, SupportLevel, UsageNormalized,
    WorkOrder,
};
use abp_error::{AbpError, ErrorCode};
use abp_runtime::{Approvals, Audience, EventStream, FollowedEvent, RunHandle, StartedRun};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesUnordered;
use serde_json::{Value, json};
use tokio::sync::watch;
use uuid::Uuid;

use crate::content::PromptContent;
use crate::history::{agent_session, turn_key, turns};
use crate::placing::Placement;
use crate::refusal;
use crate::server::AcpServer;
use crate::settings::SessionSettings;
use crate::updates::{UpdateMapper, is_protocol_block, text_content};

/// The option that allows a tool.
const ALLOW: &str = "allow";
/// The option that does not.
const REJECT: &str = "reject";

/// A prompt under way.
pub(crate) struct Turn {
    pub(crate) server: Arc<AcpServer>,
    pub(crate) plane: ControlPlane,
    pub(crate) session: Uuid,
    pub(crate) root: PathBuf,
    pub(crate) settings: SessionSettings,
    /// Names of MCP servers that the operator configured.
    pub(crate) mcp_servers: Vec<String>,
    pub(crate) mapper: UpdateMapper,
    /// Whether the client cancelled the prompt.
    pub(crate) cancelled: watch::Receiver<bool>,
}

/// The answer of a client to a question of the gate.
type PermissionAnswer = (Uuid, Result<RequestPermissionResponse, Error>);

impl Turn {
    /// Carries a prompt out: submits its run, follows it and places its changes.
    ///
    /// # Errors
    /// The error that the client gets: what the run was refused for, or failed with.
    pub(crate) async fn carry_out(
        mut self,
        content: PromptContent,
    ) -> Result<PromptResponse, Error> {
        let failed = |error: AbpError| refusal::of_error(&error);
        let earlier = turns(&self.plane, self.session).await.map_err(failed)?;
        let session = self.earlier_session(&earlier).await;
        let receipt = self
            .run(&content, earlier.len(), session.clone())
            .await
            .map_err(failed)?;
        // The agent said before it got its task that it cannot take up sessions.
        let is_refused = receipt.error.as_ref().map(|error| error.code)
            == Some(ErrorCode::CapabilityUnsupported);
        let receipt = match session {
            Some(_) if is_refused => {
                self.note("the agent cannot go on with its earlier session; it starts anew");
                self.run(&content, earlier.len() + 1, None)
                    .await
                    .map_err(failed)?
            }
            _ => receipt,
        };
        let placement = self.place_changes(&receipt).await.map_err(failed)?;
        respond(&receipt, placement, *self.cancelled.borrow())
    }

    /// The agent's session to go on with; where there is none, the client is told why.
    async fn earlier_session(&self, earlier: &[RunRecord]) -> Option<AgentSession> {
        if earlier.is_empty() {
            return None;
        }
        let plane = &self.plane;
        let Some((run_id, found)) = agent_session(plane, earlier).await else {
            self.note(
                "no agent had a session of its own: this prompt starts without the earlier ones",
            );
            return None;
        };
        if found.backend != self.settings.backend {
            let message = format!(
                "{} cannot go on with the session of {}: this prompt starts without the earlier ones",
                self.settings.backend, found.backend
            );
            self.note(&message);
            return None;
        }
        let backend = plane.registry().get(&found.backend);
        let manifest = backend.and_then(|backend| backend.descriptor().manifest.as_ref());
        let resumes = manifest.is_none_or(|manifest| {
            manifest
                .get(&Capability::SessionResume)
                .is_some_and(|level| *level == SupportLevel::Native)
        });
        if !resumes {
            let message = format!(
                "{} cannot take up sessions: this prompt starts without the earlier ones",
                found.backend
            );
            self.note(&message);
            return None;
        }
        if found.has_undecided_changes {
            let message = format!(
                "the changes of run {run_id} are not in the directory; the agent remembers them all the same"
            );
            self.note(&message);
        }
        Some(AgentSession {
            run_id,
            session_id: found.session_id,
            usage: SessionUse::Continue,
        })
    }

    /// One run from its submission to its receipt.
    async fn run(
        &mut self,
        content: &PromptContent,
        number: usize,
        session: Option<AgentSession>,
    ) -> Result<Receipt, AbpError> {
        let server = Arc::clone(&self.server);
        self.mapper = UpdateMapper::new(number, self.root.clone(), server.has_notices());
        let order = self.order(content)?;
        let audience = Audience::new(order.client.clone());
        let submission = Submission {
            backend: Some(self.settings.backend.clone()),
            approvals: Approvals::default().or_ask(server.options.approval_timeout),
            client_origins: CapabilityOrigins::all(CapabilitySource::Protocol),
            idempotency_key: Some(turn_key(self.session, number)),
            session,
            ..Submission::new(order)
        };
        let started = self.plane.run_here(&server.principal, submission).await;
        let handle = match started {
            Ok(StartedRun::Started(handle)) => handle,
            Ok(StartedRun::Existing(run_id)) => return Err(taken(run_id)),
            Err(error) if error.code() == ErrorCode::IdempotencyKeyReused => {
                return Err(AbpError::new(ErrorCode::IdempotencyKeyReused, TAKEN));
            }
            Err(error) => return Err(error),
        };
        self.follow(handle, audience).await
    }

    fn order(&self, content: &PromptContent) -> Result<WorkOrder, AbpError> {
        let root = self.root.to_str().ok_or_else(|| {
            let message = "the session's directory has a name that is no text";
            AbpError::new(ErrorCode::ValidationFailed, message)
        })?;
        let options = &self.server.options;
        OrderDraft::new(&content.task)
            .policy(options.policy.clone())
            .with(|order| {
                root.clone_into(&mut order.workspace.root);
                order.lane = self.settings.lane;
                order.context = content.context.clone();
                order.config.model.clone_from(&options.model);
                order.client = Some(client());
                if !self.mcp_servers.is_empty() {
                    let settings = json!({ "mcp": self.mcp_servers });
                    order.config.vendor.insert("abp".to_owned(), settings);
                }
            })
            .build(&self.plane)
    }

    /// Sends the events of a run on, asks the client what the gate asks, and waits for the receipt.
    async fn follow(
        &mut self,
        handle: RunHandle,
        mut audience: Audience,
    ) -> Result<Receipt, AbpError> {
        let run_id = handle.run_id;
        let mut events = handle.events;
        let sender = self.server.sender.clone();
        let mut answers = FuturesUnordered::<BoxFuture<'static, PermissionAnswer>>::new();
        let mut answered = BTreeSet::new();
        let mut is_cancelled = false;
        loop {
            tokio::select! {
                biased;
                () = self.cancelled(), if !is_cancelled => {
                    is_cancelled = true;
                    self.cancel(run_id).await?;
                }
                Some((approval_id, answer)) = answers.next() => {
                    if !is_cancelled && answered.insert(approval_id) {
                        self.answer(approval_id, answer).await?;
                    }
                }
                event = next_event(&mut events, &sender) => match event? {
                    Some(followed) => {
                        let event = AgentEvent::clone(&followed.event);
                        self.present(run_id, followed.seq, &event, &mut audience).await;
                        match &event.kind {
                            AgentEventKind::PermissionResolved { approval_id: Some(id), .. } => {
                                answered.insert(*id);
                            }
                            kind => answers.extend(self.question(followed.seq, kind)),
                        }
                    }
                    None => break,
                },
            }
        }
        for event in audience.finish() {
            self.map_and_send(run_id, None, &event);
        }
        Ok(handle.receipt.await?)
    }

    async fn present(
        &mut self,
        run_id: Uuid,
        seq: u64,
        event: &AgentEvent,
        audience: &mut Audience,
    ) {
        if is_protocol_block(&event.kind) {
            self.map_and_send(run_id, Some(seq), event);
            return;
        }
        let presented = audience.present(event).await;
        for shown in presented.events() {
            self.map_and_send(run_id, Some(seq), &shown);
        }
    }

    fn map_and_send(&mut self, run_id: Uuid, seq: Option<u64>, event: &AgentEvent) {
        for update in self.mapper.map(seq.unwrap_or(u64::MAX), event) {
            self.update(update, Some((run_id, seq)));
        }
    }

    /// Sends an update, with the event that it comes from.
    pub(crate) fn update(&self, update: SessionUpdate, source: Option<(Uuid, Option<u64>)>) {
        let mut notification = SessionNotification::new(self.session.to_string(), update);
        if let Some((run_id, seq)) = source {
            let meta = json!({ "run_id": run_id, "seq": seq });
            notification.meta = Some(serde_json::Map::from_iter([("abp".to_owned(), meta)]));
        }
        self.server.sender.notify(notification);
    }

    /// Tells the person something that no agent said.
    pub(crate) fn note(&self, message: &str) {
        self.update(self.mapper.note(NoticeSeverity::Info, message), None);
    }

    /// Completes once the client cancelled the prompt.
    pub(crate) async fn cancelled(&mut self) {
        if self
            .cancelled
            .wait_for(|is_cancelled| *is_cancelled)
            .await
            .is_err()
        {
            // The session is gone, and with it the one who could cancel.
            std::future::pending::<()>().await;
        }
    }

    async fn cancel(&self, run_id: Uuid) -> Result<(), AbpError> {
        let request = CancelRequest {
            reason: Some("cancelled in the editor".to_owned()),
        };
        let server = &self.server;
        self.plane
            .cancel(&server.principal, run_id, request)
            .await?;
        Ok(())
    }

    /// A question of the gate, as a request to the client.
    fn question(
        &self,
        seq: u64,
        kind: &AgentEventKind,
    ) -> Option<BoxFuture<'static, PermissionAnswer>> {
        let AgentEventKind::PermissionRequested {
            tool_name,
            tool_use_id,
            target,
            reason,
            approval_id: Some(approval_id),
        } = kind
        else {
            return None;
        };
        let made_up = format!("event-{seq}");
        let id = tool_use_id.as_deref().unwrap_or(&made_up);
        let call = self.mapper.question_call(id, tool_name, target.as_deref());
        let fields = ToolCallUpdateFields::new()
            .title(call.title)
            .name(call.name)
            .kind(call.kind)
            .locations(call.locations)
            .content(vec![text_content(reason)]);
        let options = vec![
            PermissionOption::new(ALLOW, "Allow", PermissionOptionKind::AllowOnce),
            PermissionOption::new(REJECT, "Reject", PermissionOptionKind::RejectOnce),
        ];
        let call = ToolCallUpdate::new(call.tool_call_id, fields);
        let mut request = RequestPermissionRequest::new(self.session.to_string(), call, options);
        let meta = json!({ "approval_id": approval_id });
        request.meta = Some(serde_json::Map::from_iter([("abp".to_owned(), meta)]));
        let answer = self.server.sender.request(request);
        let approval_id = *approval_id;
        Some(Box::pin(async move { (approval_id, answer.await) }))
    }

    /// Puts the client's answer into the stored approval. The first answer counts, whoever gave it.
    async fn answer(
        &self,
        approval_id: Uuid,
        answer: Result<RequestPermissionResponse, Error>,
    ) -> Result<(), AbpError> {
        let (approve, reason) = match answer.map(|answer| answer.outcome) {
            Ok(RequestPermissionOutcome::Selected(chosen)) => (&*chosen.option_id.0 == ALLOW, None),
            Ok(_) => (false, Some("dismissed in the editor".to_owned())),
            Err(error) => {
                let message = format!(
                    "the editor could not be asked ({}); `abp approve {approval_id}` answers",
                    error.message
                );
                self.note(&message);
                return Ok(());
            }
        };
        let server = &self.server;
        let answer = Answer { approve, reason };
        self.plane
            .answer(&server.principal, approval_id, answer)
            .await?;
        Ok(())
    }
}

const TAKEN: &str = "another client sent the next prompt of this session; load the session again";

fn taken(run_id: Uuid) -> AbpError {
    AbpError::new(ErrorCode::IdempotencyKeyReused, TAKEN).with_context("run_id", run_id.to_string())
}

/// The next event, once the client has read enough of the ones before.
async fn next_event(
    events: &mut EventStream,
    sender: &AcpSender<Client>,
) -> Result<Option<FollowedEvent>, AbpError> {
    sender.room().await;
    Ok(events.next().await?)
}

/// An editor renders markdown and shows thoughts.
fn client() -> ClientCapabilities {
    ClientCapabilities {
        supported_events: vec![PresentationType::ThoughtTrace.to_string()],
        prefers_markdown: true,
        image_resolution: None,
    }
}

/// The answer to the prompt.
fn respond(
    receipt: &Receipt,
    placement: Placement,
    is_cancelled: bool,
) -> Result<PromptResponse, Error> {
    let report = report(receipt, placement);
    let code = receipt.error.as_ref().map(|error| error.code);
    let reason = match receipt.outcome {
        _ if is_cancelled => StopReason::Cancelled,
        Outcome::Cancelled => StopReason::Cancelled,
        Outcome::Complete => StopReason::EndTurn,
        Outcome::Partial | Outcome::Failed if code == Some(ErrorCode::TurnLimitExceeded) => {
            StopReason::MaxTurnRequests
        }
        Outcome::Partial if code.is_none() => StopReason::EndTurn,
        Outcome::Partial | Outcome::Failed => return Err(refusal::of_receipt(receipt, &report)),
    };
    let mut response = PromptResponse::new(reason).usage(usage(&receipt.usage));
    response.meta = Some(serde_json::Map::from_iter([("abp".to_owned(), report)]));
    Ok(response)
}

/// Facts about the run for a program to read.
fn report(receipt: &Receipt, placement: Placement) -> Value {
    json!({
        "run_id": receipt.meta.run_id,
        "outcome": receipt.outcome,
        "receipt_sha256": receipt.receipt_sha256,
        "backend": receipt.backend.id,
        "changes": placement.as_str(),
    })
}

/// The tokens of the run, where they are known.
fn usage(usage: &UsageNormalized) -> Option<Usage> {
    let (input, output) = (usage.input_tokens?, usage.output_tokens?);
    let cached = usage.cache_read_tokens.unwrap_or(0) + usage.cache_write_tokens.unwrap_or(0);
    Some(
        Usage::new(input + output + cached, input, output)
            .cached_read_tokens(usage.cache_read_tokens)
            .cached_write_tokens(usage.cache_write_tokens),
    )
}
