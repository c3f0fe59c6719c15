//! Events of a run.
//!
//! On the wire an event is one flat object: `ts`, the discriminator `type`, the fields of its kind,
//! and optionally `ext`. A kind this version does not know is kept whole as [`OpaqueEvent`]; a known
//! kind with wrong fields is an error, because reading it as opaque would hide the mistake.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abp_error::ErrorCode;
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::de::Error as _;
use serde::ser::SerializeMap as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::{Map, Value};
use uuid::Uuid;

use crate::{Adaptation, Timestamp, UsageNormalized};

/// Something that happened during a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentEvent {
    /// When it happened.
    pub ts: Timestamp,
    /// Who says so; absent in documents of peers and of older versions. Only the host sets it.
    pub origin: Option<EventOrigin>,
    /// What happened.
    pub kind: AgentEventKind,
    /// Anything else the source attached, e.g. the vendor's own message as `raw_message`.
    pub ext: Option<BTreeMap<String, Value>>,
}

impl AgentEvent {
    /// An event without origin and extensions.
    #[must_use]
    pub fn new(ts: Timestamp, kind: AgentEventKind) -> Self {
        Self {
            ts,
            origin: None,
            kind,
            ext: None,
        }
    }
}

/// Whose statement an event is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum EventOrigin {
    /// The host saw or did it itself.
    Host,
    /// The backend says so.
    Backend,
    /// The gateway measured it on the exchanges it carried.
    Gateway,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[non_exhaustive]
pub enum AgentEventKind {
    /// The run began.
    RunStarted {
        /// In words.
        message: String,
    },
    /// Another attempt of an interrupted run began, on a new copy of the source. What the earlier attempt did
    /// outside its workspace is done. The agent goes on with the session it had, where it had begun one: the
    /// `session_started` that follows has the same id.
    RunResumed {
        /// The number of the first event of this attempt, which is this one.
        from_seq: u64,
        /// Counts the attempts, from 1.
        attempt: u32,
    },
    /// The run ended.
    RunCompleted {
        /// In words.
        message: String,
    },
    /// A piece of the agent's answer.
    AssistantDelta {
        /// The piece.
        text: String,
    },
    /// A whole message of the agent.
    AssistantMessage {
        /// The message.
        text: String,
    },
    /// A piece of the agent's reasoning.
    ThinkingDelta {
        /// The piece.
        text: String,
    },
    /// The agent called a tool.
    ToolCall {
        /// The tool.
        tool_name: String,
        /// The call's id.
        #[serde(default)]
        tool_use_id: Option<String>,
        /// The call this one was made for.
        #[serde(default)]
        parent_tool_use_id: Option<String>,
        /// The arguments.
        input: Value,
    },
    /// A tool answered.
    ToolResult {
        /// The tool.
        tool_name: String,
        /// The call's id.
        #[serde(default)]
        tool_use_id: Option<String>,
        /// The answer.
        output: Value,
        /// Whether the answer is an error.
        #[serde(default)]
        is_error: bool,
    },
    /// A file was changed.
    FileChanged {
        /// The file.
        path: String,
        /// What changed.
        summary: String,
    },
    /// A command was executed.
    CommandExecuted {
        /// The command.
        command: String,
        /// Its exit code.
        #[serde(default)]
        exit_code: Option<i32>,
        /// The beginning of its output.
        #[serde(default)]
        output_preview: Option<String>,
    },
    /// Something the reader should know.
    Warning {
        /// In words.
        message: String,
    },
    /// Something failed.
    Error {
        /// In words.
        message: String,
        /// The code.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        error_code: Option<ErrorCode>,
    },
    /// The agent's plan is now this.
    PlanUpdated {
        /// The steps.
        entries: Vec<PlanEntry>,
    },
    /// An action waits for approval.
    PermissionRequested {
        /// The tool that waits.
        tool_name: String,
        /// The call's id.
        #[serde(default)]
        tool_use_id: Option<String>,
        /// What the action is about: a path, a command, a host.
        #[serde(default)]
        target: Option<String>,
        /// Why approval is needed.
        reason: String,
        /// The stored question; absent where nobody is asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<Uuid>,
    },
    /// The gate decided about an action: every denial, and every answer to a request.
    PermissionResolved {
        /// The tool concerned.
        tool_name: String,
        /// The call's id.
        #[serde(default)]
        tool_use_id: Option<String>,
        /// What the action is about: a path, a command, a host.
        #[serde(default)]
        target: Option<String>,
        /// The decision.
        outcome: PermissionOutcome,
        /// Who decided: the name of a person, `policy`, or `default` where nobody could be asked.
        decided_by: String,
        /// How a person decided, such as `terminal` or `--approve`; absent where none did.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        decided_via: Option<String>,
        /// Why.
        reason: String,
        /// The stored question; absent where nobody was asked.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        approval_id: Option<Uuid>,
    },
    /// The usage so far.
    UsageUpdated {
        /// The totals.
        usage: UsageNormalized,
    },
    /// The agent opened a session of its own.
    SessionStarted {
        /// The agent's id for it.
        session_id: String,
    },
    /// A block for presentation.
    ContentBlock {
        /// The block's type, e.g. `CITATION_BLOCK`.
        block_type: String,
        /// The block.
        data: Value,
    },
    /// Something was changed to fit the client.
    Adapted {
        /// What was changed, and why.
        adaptation: Adaptation,
    },
    /// A process of the run connected to the network through the host's proxy, or was refused. It is told
    /// when the connection ended.
    NetworkConnection {
        /// The host as it was asked for.
        host: String,
        /// The port, where one was named.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        port: Option<u16>,
        /// Whether the connection was allowed.
        allowed: bool,
        /// The rule behind it.
        rule: String,
        /// Bytes sent.
        bytes_up: u64,
        /// Bytes received.
        bytes_down: u64,
    },
    /// An event of a kind this version does not know.
    #[serde(skip)]
    Opaque(OpaqueEvent),
}

impl AgentEventKind {
    /// Whether only the host may state it: a backend that sends such an event breaks the protocol.
    #[must_use]
    pub fn is_host_only(&self) -> bool {
        match self {
            Self::RunStarted { .. }
            | Self::RunResumed { .. }
            | Self::RunCompleted { .. }
            | Self::PermissionRequested { .. }
            | Self::PermissionResolved { .. }
            | Self::Adapted { .. }
            | Self::NetworkConnection { .. } => true,
            Self::AssistantDelta { .. }
            | Self::AssistantMessage { .. }
            | Self::ThinkingDelta { .. }
            | Self::ToolCall { .. }
            | Self::ToolResult { .. }
            | Self::FileChanged { .. }
            | Self::CommandExecuted { .. }
            | Self::Warning { .. }
            | Self::Error { .. }
            | Self::PlanUpdated { .. }
            | Self::UsageUpdated { .. }
            | Self::SessionStarted { .. }
            | Self::ContentBlock { .. }
            | Self::Opaque(_) => false,
        }
    }

    const KNOWN: &'static [&'static str] = &[
        "run_started",
        "run_resumed",
        "run_completed",
        "assistant_delta",
        "assistant_message",
        "thinking_delta",
        "tool_call",
        "tool_result",
        "file_changed",
        "command_executed",
        "warning",
        "error",
        "plan_updated",
        "permission_requested",
        "permission_resolved",
        "usage_updated",
        "session_started",
        "content_block",
        "adapted",
        "network_connection",
    ];

    /// The wire name of the kind.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::RunStarted { .. } => "run_started",
            Self::RunResumed { .. } => "run_resumed",
            Self::RunCompleted { .. } => "run_completed",
            Self::AssistantDelta { .. } => "assistant_delta",
            Self::AssistantMessage { .. } => "assistant_message",
            Self::ThinkingDelta { .. } => "thinking_delta",
            Self::ToolCall { .. } => "tool_call",
            Self::ToolResult { .. } => "tool_result",
            Self::FileChanged { .. } => "file_changed",
            Self::CommandExecuted { .. } => "command_executed",
            Self::Warning { .. } => "warning",
            Self::Error { .. } => "error",
            Self::PlanUpdated { .. } => "plan_updated",
            Self::PermissionRequested { .. } => "permission_requested",
            Self::PermissionResolved { .. } => "permission_resolved",
            Self::UsageUpdated { .. } => "usage_updated",
            Self::SessionStarted { .. } => "session_started",
            Self::ContentBlock { .. } => "content_block",
            Self::Adapted { .. } => "adapted",
            Self::NetworkConnection { .. } => "network_connection",
            Self::Opaque(event) => &event.kind,
        }
    }
}

/// An event of a kind this version does not know, kept as it came.
#[derive(Debug, Clone, PartialEq)]
pub struct OpaqueEvent {
    /// The wire name of the kind.
    pub kind: String,
    /// Its fields, without `ts`, `origin`, `type` and `ext`.
    pub fields: Map<String, Value>,
}

/// One step of an agent's plan.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PlanEntry {
    /// The step.
    pub content: String,
    /// Its state, in the agent's words (`pending`, `in_progress`, `completed`, …).
    pub status: String,
}

/// How the gate decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum PermissionOutcome {
    /// The action may happen.
    Approved,
    /// The action does not happen.
    Denied,
}

/// The wire form of a known event; serialising through it keeps one pass and no copies.
#[derive(Serialize)]
struct KnownEvent<'a> {
    ts: Timestamp,
    #[serde(skip_serializing_if = "Option::is_none")]
    origin: Option<EventOrigin>,
    #[serde(flatten)]
    kind: &'a AgentEventKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    ext: &'a Option<BTreeMap<String, Value>>,
}

impl Serialize for AgentEvent {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let AgentEventKind::Opaque(opaque) = &self.kind else {
            let event = KnownEvent {
                ts: self.ts,
                origin: self.origin,
                kind: &self.kind,
                ext: &self.ext,
            };
            return event.serialize(serializer);
        };
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("ts", &self.ts)?;
        if let Some(origin) = &self.origin {
            map.serialize_entry("origin", origin)?;
        }
        map.serialize_entry("type", &opaque.kind)?;
        for (key, value) in &opaque.fields {
            map.serialize_entry(key, value)?;
        }
        if let Some(ext) = &self.ext {
            map.serialize_entry("ext", ext)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for AgentEvent {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut fields = Map::deserialize(deserializer)?;
        let ts = fields
            .remove("ts")
            .ok_or_else(|| D::Error::missing_field("ts"))?;
        let ts =
            serde_json::from_value(ts).map_err(|error| D::Error::custom(format!("ts: {error}")))?;
        let ext = match fields.remove("ext") {
            None | Some(Value::Null) => None,
            Some(ext) => Some(
                serde_json::from_value(ext)
                    .map_err(|error| D::Error::custom(format!("ext: {error}")))?,
            ),
        };
        // A peer may use the name for something of its own, which is not ours to judge.
        let origin = fields.remove("origin");
        let origin = origin.and_then(|origin| serde_json::from_value(origin).ok());
        let name = match fields.get("type") {
            Some(Value::String(name)) => name.as_str(),
            Some(_) => return Err(D::Error::custom("type: expected a string")),
            None => return Err(D::Error::missing_field("type")),
        };
        let kind = if AgentEventKind::KNOWN.contains(&name) {
            serde_json::from_value(Value::Object(fields)).map_err(D::Error::custom)?
        } else {
            let kind = name.to_owned();
            fields.remove("type");
            AgentEventKind::Opaque(OpaqueEvent { kind, fields })
        };
        Ok(Self {
            ts,
            origin,
            kind,
            ext,
        })
    }
}

/// The schema of an event; kinds beyond the listed ones are kept by readers.
#[derive(JsonSchema)]
#[schemars(rename = "AgentEvent")]
#[expect(dead_code, reason = "only its schema is used")]
struct EventSchema {
    ts: Timestamp,
    origin: Option<EventOrigin>,
    #[schemars(flatten)]
    kind: AgentEventKind,
    ext: Option<BTreeMap<String, Value>>,
}

impl JsonSchema for AgentEvent {
    fn schema_name() -> Cow<'static, str> {
        "AgentEvent".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        EventSchema::json_schema(generator)
    }
}
