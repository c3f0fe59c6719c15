//! Events of a run, as updates of a session.
//!
//! ABP knows a tool call only once its fate is known, and may ask about it before. So the first of "asked",
//! "called" and "denied" announces the call to the client, and everything after it updates the announced one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use abp_backend_acp::protocol::schema::{
    Content, ContentBlock, ContentChunk, Diff, Notice, NoticeSeverity, Plan, PlanEntry,
    PlanEntryPriority, PlanEntryStatus, SessionUpdate, TextContent, ToolCall, ToolCallContent,
    ToolCallLocation, ToolCallStatus, ToolCallUpdate, ToolCallUpdateFields, ToolKind,
};
use abp_core::{AgentEvent, AgentEventKind, PermissionOutcome};
use serde_json::Value;

/// Members of a tool's input that name what the call is about.
const TARGETS: [&str; 7] = [
    "file_path",
    "path",
    "notebook_path",
    "command",
    "url",
    "pattern",
    "query",
];
/// Those of them that are paths.
const PATHS: usize = 3;

/// Makes the updates of one turn.
#[derive(Debug)]
pub(crate) struct UpdateMapper {
    /// Counts the turns of the session; ids of calls are unique in a session only with it.
    turn: usize,
    root: PathBuf,
    /// Whether the client shows notices.
    has_notices: bool,
    /// The calls that were announced, by the agent's ids.
    calls: BTreeMap<String, AnnouncedCall>,
    /// Paths and commands that a call has shown.
    shown: BTreeSet<String>,
    /// Whether the agent's text was streamed, so that the whole message need not be repeated.
    is_streaming: bool,
}

#[derive(Debug)]
struct AnnouncedCall {
    has_diffs: bool,
    is_over: bool,
}

/// A tool call as an event tells it.
struct CallDetails<'e> {
    id: &'e str,
    tool_name: &'e str,
    input: Option<&'e Value>,
    event: &'e AgentEvent,
}

impl UpdateMapper {
    pub(crate) fn new(turn: usize, root: PathBuf, has_notices: bool) -> Self {
        Self {
            turn,
            root,
            has_notices,
            calls: BTreeMap::new(),
            shown: BTreeSet::new(),
            is_streaming: false,
        }
    }

    /// The updates of an event with this number.
    pub(crate) fn map(&mut self, seq: u64, event: &AgentEvent) -> Vec<SessionUpdate> {
        let made_up = format!("event-{seq}");
        match &event.kind {
            AgentEventKind::AssistantDelta { text } => {
                self.is_streaming = true;
                vec![said(text)]
            }
            AgentEventKind::AssistantMessage { text } => {
                match std::mem::take(&mut self.is_streaming) {
                    true => Vec::new(),
                    false => vec![said(text)],
                }
            }
            AgentEventKind::ThinkingDelta { text } => vec![thought(text)],
            AgentEventKind::ContentBlock { data, .. } => block(data).into_iter().collect(),
            AgentEventKind::PlanUpdated { entries } => {
                let entries = entries.iter().map(|entry| {
                    let status = plan_status(&entry.status);
                    PlanEntry::new(entry.content.clone(), PlanEntryPriority::Medium, status)
                });
                vec![SessionUpdate::Plan(Plan::new(entries.collect()))]
            }
            AgentEventKind::ToolCall {
                tool_name,
                tool_use_id,
                input,
                ..
            } => self.called(&CallDetails {
                id: tool_use_id.as_deref().unwrap_or(&made_up),
                tool_name,
                input: Some(input),
                event,
            }),
            AgentEventKind::ToolResult {
                tool_name,
                tool_use_id,
                output,
                is_error,
            } => {
                let id = tool_use_id.as_deref().unwrap_or(tool_name);
                self.over(id, output, *is_error)
            }
            AgentEventKind::PermissionRequested {
                tool_name,
                tool_use_id,
                target,
                reason,
                ..
            } => {
                let id = tool_use_id.as_deref().unwrap_or(&made_up);
                self.asked(id, tool_name, target.as_deref(), reason)
            }
            AgentEventKind::PermissionResolved {
                tool_name,
                tool_use_id,
                target,
                outcome,
                decided_by,
                reason,
                ..
            } => match outcome {
                PermissionOutcome::Approved => Vec::new(),
                PermissionOutcome::Denied => {
                    let id = tool_use_id.as_deref().unwrap_or(&made_up);
                    let why = format!("denied by {decided_by}: {reason}");
                    self.denied(id, tool_name, target.as_deref(), &why)
                }
            },
            AgentEventKind::FileChanged { path, summary } => {
                self.done(&made_up, path, ToolKind::Edit, path, summary)
            }
            AgentEventKind::CommandExecuted {
                command,
                output_preview,
                ..
            } => {
                let output = output_preview.as_deref().unwrap_or_default();
                self.done(&made_up, command, ToolKind::Execute, "", output)
            }
            AgentEventKind::Warning { message } => {
                vec![self.note(NoticeSeverity::Warning, message)]
            }
            AgentEventKind::Error { message, .. } => {
                vec![self.note(NoticeSeverity::Error, message)]
            }
            AgentEventKind::NetworkConnection {
                host,
                allowed: false,
                rule,
                ..
            } => {
                let message = format!("a connection to {host} was refused ({rule})");
                vec![self.note(NoticeSeverity::Warning, &message)]
            }
            // The client has the state of the run from the prompt itself; the rest is for programs that read
            // the trace.
            _ => Vec::new(),
        }
    }

    /// The id of a call in the session.
    pub(crate) fn session_call_id(&self, id: &str) -> String {
        format!("{}:{id}", self.turn)
    }

    /// Something that the person should know and the agent did not say.
    pub(crate) fn note(&self, severity: NoticeSeverity, message: &str) -> SessionUpdate {
        if self.has_notices {
            return SessionUpdate::Notice(Notice::new(severity, message));
        }
        let word = match severity {
            NoticeSeverity::Error => "error",
            NoticeSeverity::Warning => "warning",
            _ => "note",
        };
        thought(&format!("{word}: {message}\n"))
    }

    fn called(&mut self, call: &CallDetails<'_>) -> Vec<SessionUpdate> {
        let diffs = self.diffs(call.event);
        let title = title(call);
        for shown in targets(call.input).map(|(_, text)| text) {
            self.shown.insert(shown.to_owned());
        }
        let locations = self.locations(call);
        let kind = tool_kind(call.tool_name);
        let has_diffs = !diffs.is_empty();
        let id = self.session_call_id(call.id);
        if let Some(announced) = self.calls.get_mut(call.id) {
            announced.has_diffs |= has_diffs;
            let status = (!announced.is_over).then_some(ToolCallStatus::InProgress);
            let fields = ToolCallUpdateFields::new()
                .title(title)
                .kind(kind)
                .status(status)
                .locations(locations)
                .raw_input(call.input.cloned());
            let fields = match has_diffs {
                true => fields.content(diffs),
                false => fields,
            };
            return vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
                id, fields,
            ))];
        }
        self.announce(call.id, has_diffs);
        let announced = ToolCall::new(id, title)
            .name(call.tool_name.to_owned())
            .kind(kind)
            .status(ToolCallStatus::InProgress)
            .content(diffs)
            .locations(locations)
            .raw_input(call.input.cloned());
        vec![SessionUpdate::ToolCall(announced)]
    }

    fn asked(
        &mut self,
        id: &str,
        tool_name: &str,
        target: Option<&str>,
        reason: &str,
    ) -> Vec<SessionUpdate> {
        if self.calls.contains_key(id) {
            let fields = ToolCallUpdateFields::new().status(ToolCallStatus::Pending);
            let update = ToolCallUpdate::new(self.session_call_id(id), fields);
            return vec![SessionUpdate::ToolCallUpdate(update)];
        }
        self.announce(id, false);
        let call = self.question_call(id, tool_name, target);
        let call = call
            .status(ToolCallStatus::Pending)
            .content(vec![text_content(reason)]);
        vec![SessionUpdate::ToolCall(call)]
    }

    /// A call as a question about it names it.
    pub(crate) fn question_call(
        &self,
        id: &str,
        tool_name: &str,
        target: Option<&str>,
    ) -> ToolCall {
        let title = match target {
            Some(target) => format!("{tool_name} {target}"),
            None => tool_name.to_owned(),
        };
        let kind = tool_kind(tool_name);
        let has_path = matches!(
            kind,
            ToolKind::Read | ToolKind::Edit | ToolKind::Delete | ToolKind::Move
        );
        let locations = target.filter(|_| has_path);
        let locations = locations.map(|path| ToolCallLocation::new(self.root.join(path)));
        ToolCall::new(self.session_call_id(id), title)
            .name(tool_name.to_owned())
            .kind(kind)
            .locations(locations.into_iter().collect())
    }

    fn denied(
        &mut self,
        id: &str,
        tool_name: &str,
        target: Option<&str>,
        why: &str,
    ) -> Vec<SessionUpdate> {
        let content = vec![text_content(why)];
        if let Some(announced) = self.calls.get_mut(id) {
            if std::mem::replace(&mut announced.is_over, true) {
                return Vec::new();
            }
            let fields = ToolCallUpdateFields::new()
                .status(ToolCallStatus::Failed)
                .content(content);
            let id = self.session_call_id(id);
            return vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
                id, fields,
            ))];
        }
        self.announce(id, false);
        if let Some(announced) = self.calls.get_mut(id) {
            announced.is_over = true;
        }
        let call = self.question_call(id, tool_name, target);
        let call = call.status(ToolCallStatus::Failed).content(content);
        vec![SessionUpdate::ToolCall(call)]
    }

    fn over(&mut self, id: &str, output: &Value, is_error: bool) -> Vec<SessionUpdate> {
        let session_id = self.session_call_id(id);
        let Some(call) = self.calls.get_mut(id) else {
            return Vec::new();
        };
        if std::mem::replace(&mut call.is_over, true) {
            return Vec::new();
        }
        let status = match is_error {
            true => ToolCallStatus::Failed,
            false => ToolCallStatus::Completed,
        };
        let fields = ToolCallUpdateFields::new()
            .status(status)
            .raw_output(output.clone());
        // The content replaces what was shown before, so a diff stays unless there is an error to show.
        let words = output.as_str().filter(|text| !text.is_empty());
        let fields = match words {
            Some(text) if is_error || !call.has_diffs => fields.content(vec![text_content(text)]),
            _ => fields,
        };
        vec![SessionUpdate::ToolCallUpdate(ToolCallUpdate::new(
            session_id, fields,
        ))]
    }

    /// Something that happened without a call that shows it.
    fn done(
        &mut self,
        id: &str,
        target: &str,
        kind: ToolKind,
        path: &str,
        text: &str,
    ) -> Vec<SessionUpdate> {
        if !self.shown.insert(target.to_owned()) {
            return Vec::new();
        }
        let locations = match path {
            "" => Vec::new(),
            path => vec![ToolCallLocation::new(self.root.join(path))],
        };
        let content = match text {
            "" => Vec::new(),
            text => vec![text_content(text)],
        };
        let call = ToolCall::new(self.session_call_id(id), target)
            .kind(kind)
            .status(ToolCallStatus::Completed)
            .locations(locations)
            .content(content);
        vec![SessionUpdate::ToolCall(call)]
    }

    fn announce(&mut self, id: &str, has_diffs: bool) {
        let call = AnnouncedCall {
            has_diffs,
            is_over: false,
        };
        self.calls.insert(id.to_owned(), call);
    }

    /// The diffs that an agent told with its call.
    fn diffs(&mut self, event: &AgentEvent) -> Vec<ToolCallContent> {
        let told = event.ext.as_ref().and_then(|ext| ext.get("diffs"));
        let told = told.and_then(Value::as_array).into_iter().flatten();
        let mut diffs = Vec::new();
        for diff in told {
            let text = |key: &str| diff.get(key).and_then(Value::as_str);
            let (Some(path), Some(new_text)) = (text("path"), text("new_text")) else {
                continue;
            };
            self.shown.insert(path.to_owned());
            let old_text = text("old_text").map(str::to_owned);
            let diff = Diff::new(self.root.join(path), new_text).old_text(old_text);
            diffs.push(ToolCallContent::Diff(diff));
        }
        diffs
    }

    fn locations(&self, call: &CallDetails<'_>) -> Vec<ToolCallLocation> {
        let told = call.event.ext.as_ref().and_then(|ext| ext.get("locations"));
        let told = told.and_then(Value::as_array).into_iter().flatten();
        let mut paths: Vec<&str> = told.filter_map(Value::as_str).collect();
        if paths.is_empty() {
            let named = targets(call.input).filter(|(place, _)| *place < PATHS);
            paths.extend(named.map(|(_, path)| path));
        }
        let paths = paths.into_iter().map(|path| self.root.join(path));
        paths.map(ToolCallLocation::new).collect()
    }
}

/// A piece of what the agent says.
pub(crate) fn said(text: &str) -> SessionUpdate {
    SessionUpdate::AgentMessageChunk(chunk(text))
}

/// The answer of the person.
pub(crate) fn asked_by_person(text: &str) -> SessionUpdate {
    SessionUpdate::UserMessageChunk(chunk(text))
}

fn thought(text: &str) -> SessionUpdate {
    SessionUpdate::AgentThoughtChunk(chunk(text))
}

fn chunk(text: &str) -> ContentChunk {
    ContentChunk::new(ContentBlock::Text(TextContent::new(text)))
}

/// A text of a tool call.
pub(crate) fn text_content(text: &str) -> ToolCallContent {
    let block = ContentBlock::Text(TextContent::new(text));
    ToolCallContent::Content(Content::new(block))
}

/// A block of an agent that speaks this protocol itself. Other blocks were presented as text before.
fn block(data: &Value) -> Option<SessionUpdate> {
    let block: ContentBlock = serde_json::from_value(data.clone()).ok()?;
    Some(SessionUpdate::AgentMessageChunk(ContentChunk::new(block)))
}

/// Whether a block is one of the protocol, which a client shows as it is.
pub(crate) fn is_protocol_block(kind: &AgentEventKind) -> bool {
    matches!(kind, AgentEventKind::ContentBlock { data, .. } if block(data).is_some())
}

fn plan_status(status: &str) -> PlanEntryStatus {
    match status {
        "completed" | "done" => PlanEntryStatus::Completed,
        "in_progress" => PlanEntryStatus::InProgress,
        _ => PlanEntryStatus::Pending,
    }
}

/// The subject of a call, with the place of its name among the known ones.
fn targets(input: Option<&Value>) -> impl Iterator<Item = (usize, &str)> {
    let named = TARGETS.iter().enumerate();
    named.filter_map(move |(place, name)| Some((place, input?.get(name)?.as_str()?)))
}

fn title(call: &CallDetails<'_>) -> String {
    let told = call.event.ext.as_ref().and_then(|ext| ext.get("title"));
    if let Some(title) = told.and_then(Value::as_str) {
        return title.to_owned();
    }
    match targets(call.input).next() {
        Some((_, target)) => format!("{} {target}", call.tool_name),
        None => call.tool_name.to_owned(),
    }
}

/// The kind of a tool, by the names that policies know.
fn tool_kind(tool_name: &str) -> ToolKind {
    match tool_name {
        "Read" => ToolKind::Read,
        "Write" | "Edit" | "MultiEdit" | "NotebookEdit" => ToolKind::Edit,
        "Delete" => ToolKind::Delete,
        "Move" => ToolKind::Move,
        "Grep" | "Glob" | "LS" => ToolKind::Search,
        "Bash" => ToolKind::Execute,
        "WebFetch" | "WebSearch" => ToolKind::Fetch,
        "Think" | "Task" => ToolKind::Think,
        "SwitchMode" => ToolKind::SwitchMode,
        _ => ToolKind::Other,
    }
}

/// A path of the workspace as the client names it.
pub(crate) fn client_path(root: &Path, path: &str) -> PathBuf {
    root.join(path)
}

#[cfg(test)]
mod tests {
    use abp_core::Timestamp;
    use serde_json::json;

    use super::*;

    /// The updates of events, as they are on the wire.
    fn mapped(events: &[Value], has_notices: bool) -> Vec<Value> {
        let mut mapper = UpdateMapper::new(3, PathBuf::from("/p"), has_notices);
        let mut updates = Vec::new();
        for (seq, event) in events.iter().enumerate() {
            let mut event = event.clone();
            event["ts"] = json!(Timestamp::from_unix_millis(0));
            let event: AgentEvent = serde_json::from_value(event).unwrap();
            updates.extend(mapper.map(seq as u64, &event));
        }
        let updates = updates
            .iter()
            .map(|update| serde_json::to_value(update).unwrap());
        updates.collect()
    }

    #[test]
    fn a_call_is_told_with_its_diffs_and_places_and_not_twice() {
        let diff = json!({"path": "a.rs", "old_text": "1", "new_text": "2"});
        let updates = mapped(
            &[
                json!({"type": "tool_call", "tool_name": "Edit", "tool_use_id": "c", "input": {"file_path": "a.rs"},
                    "ext": {"title": "Edit a.rs", "locations": ["a.rs"], "diffs": [diff]}}),
                json!({"type": "tool_result", "tool_name": "Edit", "tool_use_id": "c", "output": "ok", "is_error": false}),
                json!({"type": "file_changed", "path": "a.rs", "summary": "2 bytes"}),
                json!({"type": "tool_call", "tool_name": "Bash", "tool_use_id": "d", "input": {"command": "ls"}}),
                json!({"type": "command_executed", "command": "ls", "exit_code": 0}),
                json!({"type": "command_executed", "command": "pwd", "output_preview": "/p"}),
                json!({"type": "file_changed", "path": "b.rs", "summary": "new"}),
            ],
            false,
        );
        let expected = [
            json!({"sessionUpdate": "tool_call", "toolCallId": "3:c", "title": "Edit a.rs", "name": "Edit",
                "kind": "edit", "status": "in_progress", "locations": [{"path": "/p/a.rs"}],
                "content": [{"type": "diff", "path": "/p/a.rs", "oldText": "1", "newText": "2"}],
                "rawInput": {"file_path": "a.rs"}}),
            json!({"sessionUpdate": "tool_call_update", "toolCallId": "3:c", "status": "completed",
                "rawOutput": "ok"}),
            json!({"sessionUpdate": "tool_call", "toolCallId": "3:d", "title": "Bash ls", "name": "Bash",
                "kind": "execute", "status": "in_progress", "rawInput": {"command": "ls"}}),
            json!({"sessionUpdate": "tool_call", "toolCallId": "3:event-5", "title": "pwd", "kind": "execute",
                "status": "completed",
                "content": [{"type": "content", "content": {"type": "text", "text": "/p"}}]}),
            json!({"sessionUpdate": "tool_call", "toolCallId": "3:event-6", "title": "b.rs", "kind": "edit",
                "status": "completed", "locations": [{"path": "/p/b.rs"}],
                "content": [{"type": "content", "content": {"type": "text", "text": "new"}}]}),
        ];
        assert_eq!(updates, expected);
    }

    /// An agent's question comes before its call, a denial of the policy without a question.
    #[test]
    fn a_call_is_announced_once_whatever_comes_first() {
        let asked = json!({"type": "permission_requested", "tool_name": "Write", "tool_use_id": "c", "target": "a",
            "reason": "r"});
        let resolved = |id: &str, outcome: &str| {
            json!({"type": "permission_resolved", "tool_name": "Write", "tool_use_id": id, "outcome": outcome,
                "decided_by": "policy", "reason": "r"})
        };
        let called = |id: &str| json!({"type": "tool_call", "tool_name": "Write", "tool_use_id": id, "input": {}});
        let over = |id: &str, is_error: bool| {
            json!({"type": "tool_result", "tool_name": "Write", "tool_use_id": id, "output": "",
                "is_error": is_error})
        };
        let events = [
            asked,
            resolved("c", "approved"),
            called("c"),
            over("c", false),
            resolved("d", "denied"),
            called("d"),
            over("d", true),
        ];
        let updates = mapped(&events, false);
        let shown = updates.iter().map(|update| {
            let text = |key: &str| update[key].as_str().unwrap_or("-").to_owned();
            [text("sessionUpdate"), text("toolCallId"), text("status")].join(" ")
        });
        let shown: Vec<String> = shown.collect();
        let expected = [
            // Pending is the default, which is not written.
            "tool_call 3:c -",
            "tool_call_update 3:c in_progress",
            "tool_call_update 3:c completed",
            "tool_call 3:d failed",
            "tool_call_update 3:d -",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn warnings_are_notices_where_the_client_shows_them() {
        let warning = [json!({"type": "warning", "message": "careful"})];
        let shown = mapped(&warning, true);
        assert_eq!(shown[0]["sessionUpdate"], "notice");
        assert_eq!(shown[0]["title"], "careful");
        let thought = mapped(&warning, false);
        assert_eq!(thought[0]["sessionUpdate"], "agent_thought_chunk");
        assert_eq!(thought[0]["content"]["text"], "warning: careful\n");
    }
}
