//! What the host gives a running backend.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use abp_core::{AgentEventKind, CancelReason, WorkOrder};
use abp_plan::{ConfirmedPlan, Payload};
use abp_policy::Rule;
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use crate::CancelSignal;

/// The hands of a running backend: its plan, and the way to everything outside.
///
/// Every call is a request to the host, answered in order. That is the back-pressure: a backend
/// cannot produce faster than the host takes.
#[derive(Debug, Clone)]
pub struct RunContext {
    plan: Arc<ConfirmedPlan>,
    workspace_root: PathBuf,
    host: mpsc::Sender<HostRequest>,
    cancel: CancelSignal,
    mcp: Option<McpAccess>,
}

/// The way to the MCP servers of a run: an address that is there as long as the run is.
#[derive(Debug, Clone)]
pub struct McpAccess {
    /// Where they are, as one server over Streamable HTTP.
    pub url: String,
    /// The bearer token it wants. Whoever has it can call the run's tools.
    pub key: SecretString,
}

/// A request of a backend to the host.
#[derive(Debug)]
pub enum HostRequest {
    /// Something happened.
    Emit {
        /// What, in order.
        events: Vec<Emission>,
        /// Whether the run goes on.
        reply: oneshot::Sender<Result<(), EmitError>>,
    },
    /// Use one of the host's tools.
    Tool {
        /// Which, and with what.
        invocation: ToolInvocation,
        /// The agent's own call that it is used for. The event of that call is not judged again.
        parent: Option<String>,
        /// What came of it.
        reply: oneshot::Sender<Result<ToolOutput, ToolError>>,
    },
    /// Judge the use of a tool of the backend's own before it happens.
    Permission {
        /// The tool and its input.
        question: PermissionQuestion,
        /// Whether it may be used.
        reply: oneshot::Sender<Result<(), ToolError>>,
    },
    /// The host's own proxy carried or refused a connection of the backend's processes.
    Connection(ObservedConnection),
}

/// A tool that an agent asks to use. The event of its call is not judged again.
#[derive(Debug, Clone, PartialEq)]
pub struct PermissionQuestion {
    /// The tool, by the name that its `tool_call` will have.
    pub tool_name: String,
    /// The call's id.
    pub tool_use_id: String,
    /// The arguments, with the paths and addresses that the call concerns.
    pub input: Value,
}

/// A connection that the host's own proxy carried or refused. A backend's processes cannot make one up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObservedConnection {
    /// The host as it was asked for.
    pub host: String,
    /// The port, where one was named.
    pub port: Option<u16>,
    /// The rule of the policy that refused it, where one did.
    pub refused_by: Option<Rule>,
    /// Whether it was allowed.
    pub allowed: bool,
    /// The rule behind it, in words.
    pub rule: String,
    /// Bytes sent.
    pub bytes_up: u64,
    /// Bytes received.
    pub bytes_down: u64,
}

/// Something that happened.
#[derive(Debug, Clone, PartialEq)]
pub struct Emission {
    /// What.
    pub kind: AgentEventKind,
    /// What the backend attaches to it.
    pub ext: Option<BTreeMap<String, Value>>,
}

/// A use of one of the host's tools.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolInvocation {
    /// Lists the files of the workspace.
    ListFiles,
    /// Reads a file of the workspace.
    ReadFile {
        /// Relative to the workspace.
        path: String,
    },
    /// Writes a file of the workspace.
    WriteFile {
        /// Relative to the workspace.
        path: String,
        /// All of its content.
        content: Vec<u8>,
    },
}

/// What a tool gave back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolOutput {
    /// Paths, relative to the workspace.
    Files(Vec<PathBuf>),
    /// The content of a file.
    Content(Vec<u8>),
    /// Done.
    Done,
}

/// The run is over: the backend should end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the run was stopped")]
pub struct EmitError {
    /// Why, where the host said so.
    pub reason: Option<CancelReason>,
}

/// Why a tool was of no use.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ToolError {
    /// The policy, or a person, forbids it. The run goes on.
    #[error("denied: {0}")]
    Denied(String),
    /// It was tried and failed. The run goes on.
    #[error("{0}")]
    Failed(String),
    /// The run is over.
    #[error(transparent)]
    Stopped(#[from] EmitError),
}

impl RunContext {
    /// A context for a confirmed plan. Requests go to `host`.
    #[must_use]
    pub fn new(
        plan: Arc<ConfirmedPlan>,
        workspace_root: PathBuf,
        host: mpsc::Sender<HostRequest>,
        cancel: CancelSignal,
    ) -> Self {
        Self {
            plan,
            workspace_root,
            host,
            cancel,
            mcp: None,
        }
    }

    /// The context of a run that has MCP servers.
    #[must_use]
    pub fn with_mcp(mut self, access: McpAccess) -> Self {
        self.mcp = Some(access);
        self
    }

    /// The order.
    #[must_use]
    pub fn order(&self) -> &WorkOrder {
        self.plan.order()
    }

    /// The plan that is carried out.
    #[must_use]
    pub fn plan(&self) -> &ConfirmedPlan {
        &self.plan
    }

    /// What the backend is to work on.
    #[must_use]
    pub fn payload(&self) -> &Payload {
        self.plan.payload()
    }

    /// The directory the backend works in.
    #[must_use]
    pub fn workspace_root(&self) -> &Path {
        &self.workspace_root
    }

    /// The way to the run's MCP servers, where it asked for some.
    #[must_use]
    pub fn mcp(&self) -> Option<&McpAccess> {
        self.mcp.as_ref()
    }

    /// Reports an event; the host stamps it with the time.
    ///
    /// # Errors
    /// Fails when the run is over; the backend should then end.
    pub async fn emit(&self, kind: AgentEventKind) -> Result<(), EmitError> {
        self.emit_all(vec![Emission { kind, ext: None }]).await
    }

    /// Reports events that came together: one question to the host instead of many.
    ///
    /// # Errors
    /// As [`Self::emit`].
    pub async fn emit_all(&self, events: Vec<Emission>) -> Result<(), EmitError> {
        self.ask(|reply| HostRequest::Emit { events, reply })
            .await?
    }

    /// Uses one of the host's tools.
    ///
    /// # Errors
    /// Says whether the use was denied, failed, or came after the end of the run.
    pub async fn use_tool(&self, invocation: ToolInvocation) -> Result<ToolOutput, ToolError> {
        self.use_tool_for(None, invocation).await
    }

    /// Uses one of the host's tools for a call of the agent's own.
    ///
    /// # Errors
    /// As [`Self::use_tool`].
    pub async fn use_tool_for(
        &self,
        parent: Option<String>,
        invocation: ToolInvocation,
    ) -> Result<ToolOutput, ToolError> {
        self.ask(|reply| HostRequest::Tool {
            invocation,
            parent,
            reply,
        })
        .await?
    }

    /// Asks whether a tool of the backend's own may be used, before it is used.
    ///
    /// # Errors
    /// Says whether the use was denied, or came after the end of the run.
    pub async fn request_permission(&self, question: PermissionQuestion) -> Result<(), ToolError> {
        self.ask(|reply| HostRequest::Permission { question, reply })
            .await?
    }

    /// Tells the host of a connection that its proxy carried or refused. After the end of the run nobody
    /// listens.
    pub async fn observe_connection(&self, connection: ObservedConnection) {
        drop(self.host.send(HostRequest::Connection(connection)).await);
    }

    /// Waits until the host wants the run to end.
    pub async fn cancelled(&self) -> CancelReason {
        self.cancel.clone().cancelled().await
    }

    async fn ask<T>(
        &self,
        request: impl FnOnce(oneshot::Sender<T>) -> HostRequest,
    ) -> Result<T, EmitError> {
        let (reply, answer) = oneshot::channel();
        let over = |_| EmitError {
            reason: self.cancel.reason(),
        };
        self.host.send(request(reply)).await.map_err(|_| over(()))?;
        answer.await.map_err(|_| over(()))
    }
}
