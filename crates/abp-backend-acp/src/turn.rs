//! One run of an agent: everything that can happen while a request of ours is under way.

use std::path::PathBuf;
use std::pin::pin;
use std::time::Duration;

use abp_backend_core::{
    Emission, MeasuredExchange, MeasuredModels, RunContext, RunModels, ToolError,
};
use abp_backend_sidecar::{Connections, outgrown};
use abp_core::{AgentEventKind, CancelReason};
use abp_error::{AbpError, ErrorCode};
use agent_client_protocol as acp;
use agent_client_protocol::Agent;
use agent_client_protocol::v1::Responder;
use agent_client_protocol::v1::schema::{
    CancelNotification, ReadTextFileRequest, RequestPermissionRequest, RequestPermissionResponse,
    SessionId, WriteTextFileRequest,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::connection::{AcpConnection, AcpMessage};
use crate::files;
use crate::permission::{GateDecision, answer};
use crate::updates::{UpdateMapper, labelled, unknown};

/// The most kinds of messages that are warned about.
const MAX_WARNINGS: usize = 20;

/// Why a request was given up.
#[derive(Debug)]
pub(crate) enum Stop {
    /// The host wants the run to end.
    Cancelled,
    /// Something failed.
    Failed(AbpError),
}

impl From<AbpError> for Stop {
    fn from(error: AbpError) -> Self {
        Self::Failed(error)
    }
}

/// The time limit of a request.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Patience {
    /// So long in all.
    Total(Duration),
    /// So long without anything happening; when it is cancelled the agent gets so long to end its turn.
    Prompt { stall: Duration, cancel: Duration },
}

/// The state of a run under way.
pub(crate) struct Turn<'c> {
    pub(crate) context: &'c RunContext,
    /// The workspace, as the agent sees it.
    pub(crate) root: PathBuf,
    pub(crate) link: AcpConnection<Agent>,
    pub(crate) connections: Connections,
    pub(crate) models: Option<RunModels>,
    pub(crate) measured: MeasuredModels,
    pub(crate) updates: UpdateMapper,
    pub(crate) offers_files: bool,
    pub(crate) session: Option<SessionId>,
    /// Whether updates are those of an earlier run that are told again.
    pub(crate) is_replaying: bool,
    pub(crate) max_workspace: Option<u64>,
    pub(crate) warned: Vec<String>,
}

impl Turn<'_> {
    /// Waits for the answer to a request, and serves the agent meanwhile.
    pub(crate) async fn drive<T>(
        &mut self,
        what: &str,
        answer: impl Future<Output = Result<T, acp::Error>>,
        patience: Patience,
    ) -> Result<T, Stop> {
        let mut answer = pin!(answer);
        let root = self.context.workspace_root().to_owned();
        let mut outgrown = pin!(outgrown(&root, self.max_workspace));
        let started = Instant::now();
        let mut last = started;
        loop {
            let deadline = match patience {
                Patience::Total(total) => started + total,
                Patience::Prompt { stall, .. } => last + stall,
            };
            tokio::select! {
                biased;
                reason = self.context.cancelled() => {
                    if let Patience::Prompt { cancel, .. } = patience {
                        self.cancel(reason, answer.as_mut(), cancel).await;
                    }
                    return Err(Stop::Cancelled);
                }
                Some(incoming) = self.link.next() => self.serve(incoming).await?,
                Some(exchange) = next_exchange(&mut self.models) => self.measure(exchange).await?,
                report = self.connections.next() => self.connections.tell(report?, self.context).await,
                error = &mut outgrown => return Err(Stop::Failed(error)),
                answered = &mut answer => {
                    self.serve_waiting().await?;
                    return answered.map_err(|error| Stop::Failed(self.link.failure(what, &error)));
                }
                () = tokio::time::sleep_until(deadline) => return Err(Stop::Failed(too_slow(what, patience))),
            }
            last = Instant::now();
        }
    }

    /// Tells the agent that its turn is cancelled, and gives it a moment to end it. Whatever it still asks is
    /// answered as cancelled.
    async fn cancel<T>(
        &mut self,
        reason: CancelReason,
        answer: std::pin::Pin<&mut impl Future<Output = Result<T, acp::Error>>>,
        patience: Duration,
    ) {
        tracing::debug!(target: "abp.acp", ?reason, "cancelling the turn");
        if let Some(session) = &self.session {
            self.link.notify(CancelNotification::new(session.clone()));
        }
        let ended = async {
            let mut answer = answer;
            loop {
                tokio::select! {
                    _ = &mut answer => break,
                    incoming = self.link.next() => match incoming {
                        Some(incoming) => refuse(incoming),
                        None => break,
                    },
                }
            }
        };
        // An agent that does not end its turn is ended with its process.
        let _ = tokio::time::timeout(patience, ended).await;
    }

    async fn serve_waiting(&mut self) -> Result<(), Stop> {
        while let Some(incoming) = self.link.try_next() {
            self.serve(incoming).await?;
        }
        Ok(())
    }

    async fn serve(&mut self, incoming: AcpMessage) -> Result<(), Stop> {
        match incoming {
            AcpMessage::Notification { method, params } if method == "session/update" => {
                self.update(&params).await
            }
            // Methods with an underscore are the agent's own; nothing has to be done about them.
            AcpMessage::Notification { method, .. } if method.starts_with('_') => Ok(()),
            AcpMessage::Notification { method, .. } => {
                self.tell_once(method, |method| {
                    labelled("acp_notification", json!({ "method": method }))
                })
                .await
            }
            AcpMessage::Request {
                method,
                params,
                responder,
            } => self.answer(&method, params, *responder).await,
        }
    }

    async fn update(&mut self, params: &Value) -> Result<(), Stop> {
        if self.is_replaying {
            return Ok(());
        }
        let update = &params["update"];
        let of_session = params["sessionId"].as_str();
        let own = self.session.as_ref().map(ToString::to_string);
        let events = if of_session.is_some() && own.as_deref() != of_session && own.is_some() {
            // Of a session that the agent opened itself.
            vec![unknown(update)]
        } else {
            self.updates.map(update)
        };
        self.emit(events).await
    }

    async fn answer(
        &mut self,
        method: &str,
        params: Value,
        responder: Responder<Value>,
    ) -> Result<(), Stop> {
        match method {
            "session/request_permission" => self.permission(params, responder).await,
            "fs/read_text_file" if self.offers_files => {
                let read = match serde_json::from_value::<ReadTextFileRequest>(params) {
                    Ok(request) => files::read(self.context, &self.root, &request).await,
                    Err(error) => Err(invalid(&error)),
                };
                respond(responder, read);
                Ok(())
            }
            "fs/write_text_file" if self.offers_files => self.write(params, responder).await,
            _ => {
                respond(responder, Err(acp::Error::method_not_found()));
                // Extensions of an agent need no warning.
                if method.contains('/') && is_of_protocol(method) {
                    let message = format!("the agent asked for {method:?}, which is not offered");
                    return self.warn_once(message).await;
                }
                Ok(())
            }
        }
    }

    async fn permission(&mut self, params: Value, responder: Responder<Value>) -> Result<(), Stop> {
        let raw = params.get("toolCall").cloned().unwrap_or_default();
        let request = match serde_json::from_value::<RequestPermissionRequest>(params) {
            Ok(request) => request,
            Err(error) => {
                respond(responder, Err(invalid(&error)));
                return Ok(());
            }
        };
        let Some(question) = self.updates.question(&raw) else {
            respond(responder, Err(acp::Error::invalid_params()));
            return Ok(());
        };
        let id = question.tool_use_id.clone();
        let decision = match self.context.request_permission(question).await {
            Ok(()) => GateDecision::Allowed,
            Err(ToolError::Stopped(_)) => GateDecision::Stopped,
            Err(_) => GateDecision::Denied,
        };
        // Told before the agent goes on, so that the call comes before its result.
        let told = self.updates.answered(&id);
        let emitted = match decision {
            GateDecision::Stopped => Err(Stop::Cancelled),
            GateDecision::Allowed | GateDecision::Denied => self.emit(told).await,
        };
        let outcome = answer(&request.options, decision);
        let response = serde_json::to_value(RequestPermissionResponse::new(outcome));
        respond(responder, response.map_err(|error| invalid(&error)));
        emitted
    }

    /// Writes a file for the agent. The call that it belongs to is settled by what comes of it.
    async fn write(&mut self, params: Value, responder: Responder<Value>) -> Result<(), Stop> {
        let request = match serde_json::from_value::<WriteTextFileRequest>(params) {
            Ok(request) => request,
            Err(error) => {
                respond(responder, Err(invalid(&error)));
                return Ok(());
            }
        };
        let parent = self.updates.call_of_path(&request.path);
        let written = files::write(self.context, &self.root, request, parent.clone()).await;
        let told = parent.map(|id| self.updates.answered(&id));
        let emitted = self.emit(told.unwrap_or_default()).await;
        respond(responder, written);
        emitted
    }

    pub(crate) async fn emit(&mut self, events: Vec<Emission>) -> Result<(), Stop> {
        if events.is_empty() {
            return Ok(());
        }
        let emitted = self.context.emit_all(events).await;
        emitted.map_err(|_| Stop::Cancelled)
    }

    pub(crate) async fn warn_once(&mut self, message: String) -> Result<(), Stop> {
        self.tell_once(message, |message| Emission {
            kind: AgentEventKind::Warning { message },
            ext: None,
        })
        .await
    }

    /// Tells something the first time it is seen.
    async fn tell_once(
        &mut self,
        what: String,
        event: impl FnOnce(String) -> Emission,
    ) -> Result<(), Stop> {
        if self.warned.contains(&what) || self.warned.len() >= MAX_WARNINGS {
            return Ok(());
        }
        self.warned.push(what.clone());
        self.emit(vec![event(what)]).await
    }

    /// Takes an exchange into account and tells the host. One that the budget did not allow ends the run.
    pub(crate) async fn measure(&mut self, exchange: MeasuredExchange) -> Result<(), Stop> {
        let added = self.measured.add(exchange);
        self.emit(vec![self.measured.event()]).await?;
        Ok(added?)
    }
}

async fn next_exchange(models: &mut Option<RunModels>) -> Option<MeasuredExchange> {
    match models {
        Some(models) => match models.exchanges.recv().await {
            Some(exchange) => Some(exchange),
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

/// Answers what an agent still asks after it was cancelled.
fn refuse(incoming: AcpMessage) {
    let AcpMessage::Request {
        method, responder, ..
    } = incoming
    else {
        return;
    };
    let answer = if method == "session/request_permission" {
        let outcome = answer(&[], GateDecision::Stopped);
        let response = serde_json::to_value(RequestPermissionResponse::new(outcome));
        response.map_err(|error| invalid(&error))
    } else {
        Err(acp::Error::new(-32800, "the run was cancelled"))
    };
    respond(*responder, answer);
}

fn respond(responder: Responder<Value>, answer: Result<Value, acp::Error>) {
    if let Err(error) = responder.respond_with_result(answer) {
        tracing::debug!(target: "abp.acp", %error, "an answer was not sent");
    }
}

fn invalid(error: &serde_json::Error) -> acp::Error {
    acp::Error::invalid_params().data(json!(error.to_string()))
}

/// Whether a method belongs to the protocol, so that an agent may expect it.
fn is_of_protocol(method: &str) -> bool {
    ["fs/", "terminal/", "session/", "elicitation/"]
        .iter()
        .any(|prefix| method.starts_with(prefix))
}

fn too_slow(what: &str, patience: Patience) -> AbpError {
    match patience {
        Patience::Total(total) => {
            let message = format!("the agent did not answer {what} within {total:?}");
            AbpError::new(ErrorCode::BackendTimeout, message)
        }
        Patience::Prompt { stall, .. } => {
            let message = format!("the agent said and did nothing for {stall:?}");
            AbpError::new(ErrorCode::BackendStalled, message)
        }
    }
}
