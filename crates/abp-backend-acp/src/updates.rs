//! Updates of an agent's session, as events.
//!
//! A tool call is told once its fate is known, because an agent announces a call before it asks about it: when
//! the host answered a question about it, when it is over, or, for an agent that never asks, when it is under
//! way. A call that was not asked about is judged when it is told.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use abp_backend_core::{Emission, PermissionQuestion};
use abp_core::{AgentEventKind, OpaqueEvent, PlanEntry};
use agent_client_protocol::v1::schema::{
    ContentBlock, SessionUpdate, ToolCall, ToolCallContent, ToolCallStatus, ToolCallUpdate,
    ToolCallUpdateFields, ToolKind,
};
use serde_json::{Map, Value, json};

/// The most bytes of a tool's output, and of a text in a diff, that an event carries.
const MAX_TEXT: usize = 64 * 1024;
/// Members that hold words and no paths.
const WORDS: [&str; 3] = ["text", "oldText", "newText"];
/// The most bytes of an unknown update that an event carries.
const MAX_UNKNOWN: usize = 16 * 1024;

/// The open tool calls of a session, and what was told so far.
#[derive(Debug, Default)]
pub(crate) struct UpdateMapper {
    calls: BTreeMap<String, Call>,
    /// Whether the agent may ask before it acts.
    asks: bool,
    /// The workspace, as the agent sees it.
    root: PathBuf,
    /// Whether it said or did anything.
    pub(crate) is_active: bool,
}

/// A tool call as far as it is known.
#[derive(Debug, Default)]
struct Call {
    name: Option<String>,
    title: String,
    kind: ToolKind,
    status: ToolCallStatus,
    input: Option<Value>,
    output: Option<Value>,
    content: Vec<ToolCallContent>,
    paths: Vec<String>,
    asked: Option<AskedCall>,
    /// The name it was told or asked about under.
    told_name: Option<String>,
    is_told: bool,
    is_over: bool,
}

/// A tool call as permission was asked for it.
#[derive(Debug, Clone)]
struct AskedCall {
    raw_input: Option<Value>,
    tool_name: String,
    input: Value,
}

impl UpdateMapper {
    pub(crate) fn new(asks: bool, root: PathBuf) -> Self {
        Self {
            asks,
            root,
            ..Self::default()
        }
    }

    /// The events of an update.
    pub(crate) fn map(&mut self, update: &Value) -> Vec<Emission> {
        let update = &self.relative(update);
        let Ok(known) = serde_json::from_value::<SessionUpdate>(update.clone()) else {
            return vec![unknown(update)];
        };
        match known {
            SessionUpdate::AgentMessageChunk(chunk) => self.text(chunk.content, |text| {
                AgentEventKind::AssistantDelta { text }
            }),
            SessionUpdate::AgentThoughtChunk(chunk) => {
                self.text(chunk.content, |text| AgentEventKind::ThinkingDelta { text })
            }
            // An echo of the host's own prompt.
            SessionUpdate::UserMessageChunk(_) => Vec::new(),
            SessionUpdate::ToolCall(call) => self.take_call(call, update),
            SessionUpdate::ToolCallUpdate(call) => self.take_update(call, update),
            SessionUpdate::Plan(plan) => {
                let entries = plan.entries.into_iter().map(|entry| PlanEntry {
                    content: entry.content,
                    status: wire_name(&entry.status),
                });
                vec![plain(AgentEventKind::PlanUpdated {
                    entries: entries.collect(),
                })]
            }
            SessionUpdate::AvailableCommandsUpdate(commands) => {
                let names = commands.available_commands.into_iter();
                let names: Vec<String> = names.map(|command| command.name).collect();
                vec![labelled("available_commands", json!({ "names": names }))]
            }
            SessionUpdate::CurrentModeUpdate(mode) => {
                let mode = mode.current_mode_id.to_string();
                vec![labelled("session_mode", json!({ "mode": mode }))]
            }
            // A title, settings and the size of the context say nothing about the work.
            SessionUpdate::SessionInfoUpdate(_)
            | SessionUpdate::ConfigOptionUpdate(_)
            | SessionUpdate::UsageUpdate(_) => Vec::new(),
            _ => vec![unknown(update)],
        }
    }

    /// The question that a permission request asks, once its call is merged with what is known of it.
    pub(crate) fn question(&mut self, raw: &Value) -> Option<PermissionQuestion> {
        let raw = &self.relative(raw);
        let update: ToolCallUpdate = serde_json::from_value(raw.clone()).ok()?;
        let id = update.tool_call_id.to_string();
        let call = self.calls.entry(id.clone()).or_default();
        call.merge(update.fields, raw);
        let asked = AskedCall {
            raw_input: call.input.clone(),
            tool_name: call.tool_name(),
            input: call.question_input(),
        };
        call.asked = Some(asked.clone());
        Some(PermissionQuestion {
            tool_name: asked.tool_name,
            tool_use_id: id,
            input: asked.input,
        })
    }

    /// The call that a file is written for, where one that is not settled names the file.
    pub(crate) fn call_of_path(&self, path: &Path) -> Option<String> {
        let path = path.strip_prefix(&self.root).unwrap_or(path);
        let path = path.to_string_lossy();
        let concerns = |call: &Call| {
            let is_named = call.paths.iter().any(|known| *known == path);
            is_named && !call.is_told && !call.is_over
        };
        let mut calls = self.calls.iter();
        calls
            .find(|(_, call)| concerns(call))
            .map(|(id, _)| id.clone())
    }

    /// A question about a call was answered: it is told now.
    pub(crate) fn answered(&mut self, id: &str) -> Vec<Emission> {
        let Some(call) = self.calls.get_mut(id) else {
            return Vec::new();
        };
        call.tell(id)
    }

    /// The calls whose end was never told.
    pub(crate) fn unfinished(&mut self) -> Vec<Emission> {
        let calls = self.calls.iter_mut();
        calls.flat_map(|(id, call)| call.tell(id)).collect()
    }

    /// A message with the paths of the workspace as the host names them: relative to it.
    fn relative(&self, message: &Value) -> Value {
        let mut message = message.clone();
        relate(&mut message, &self.root);
        message
    }

    fn text(
        &mut self,
        content: ContentBlock,
        event: impl FnOnce(String) -> AgentEventKind,
    ) -> Vec<Emission> {
        self.is_active = true;
        match content {
            ContentBlock::Text(text) => vec![plain(event(text.text))],
            other => {
                let data = serde_json::to_value(&other).unwrap_or_default();
                let block_type = data.get("type").and_then(Value::as_str);
                let block_type = block_type.unwrap_or("content").to_owned();
                vec![plain(AgentEventKind::ContentBlock { block_type, data })]
            }
        }
    }

    fn take_call(&mut self, call: ToolCall, raw: &Value) -> Vec<Emission> {
        let id = call.tool_call_id.to_string();
        let update = ToolCallUpdateFields::new()
            .title(call.title)
            .name(call.name)
            .kind(call.kind)
            .status(call.status)
            .content(call.content)
            .locations(call.locations)
            .raw_input(call.raw_input)
            .raw_output(call.raw_output);
        self.take(&id, update, raw)
    }

    fn take_update(&mut self, update: ToolCallUpdate, raw: &Value) -> Vec<Emission> {
        let id = update.tool_call_id.to_string();
        self.take(&id, update.fields, raw)
    }

    fn take(&mut self, id: &str, fields: ToolCallUpdateFields, raw: &Value) -> Vec<Emission> {
        self.is_active = true;
        let asks = self.asks;
        let call = self.calls.entry(id.to_owned()).or_default();
        call.merge(fields, raw);
        match call.status {
            ToolCallStatus::Completed | ToolCallStatus::Failed => call.finish(id),
            ToolCallStatus::InProgress if !asks && call.is_whole() => call.tell(id),
            _ => Vec::new(),
        }
    }
}

impl Call {
    fn merge(&mut self, fields: ToolCallUpdateFields, raw: &Value) {
        let named = raw.pointer("/_meta/claudeCode/toolName");
        let named = named.and_then(Value::as_str).map(ToOwned::to_owned);
        self.name = fields.name.or(named).or(self.name.take());
        if let Some(title) = fields.title {
            self.title = title;
        }
        self.kind = fields.kind.unwrap_or(self.kind);
        self.status = fields.status.unwrap_or(self.status);
        self.input = fields.raw_input.or(self.input.take());
        self.output = fields.raw_output.or(self.output.take());
        if let Some(content) = fields.content.filter(|content| !content.is_empty()) {
            self.content = content;
        }
        for location in fields.locations.into_iter().flatten() {
            self.add_path(location.path.to_string_lossy().into_owned());
        }
        let diffs: Vec<String> = self.diffs().map(|(path, ..)| path).collect();
        for path in diffs {
            self.add_path(path);
        }
    }

    fn add_path(&mut self, path: String) {
        if !path.is_empty() && !self.paths.contains(&path) {
            self.paths.push(path);
        }
    }

    fn diffs(&self) -> impl Iterator<Item = (String, Option<&String>, &String)> {
        self.content.iter().filter_map(|content| match content {
            ToolCallContent::Diff(diff) => Some((
                diff.path.to_string_lossy().into_owned(),
                diff.old_text.as_ref(),
                &diff.new_text,
            )),
            _ => None,
        })
    }

    /// The name of the tool, which stays as it was told first.
    fn tool_name(&mut self) -> String {
        let name = self.told_name.take().unwrap_or_else(|| self.usual_name());
        self.told_name.insert(name).clone()
    }

    /// The name that policies know the tool by: its own where it is written as Claude Code writes them, or else
    /// that of the kind of tool it is.
    fn usual_name(&self) -> String {
        let own = self.name.as_deref();
        let is_usual = |name: &&str| {
            name.starts_with("mcp__") || name.chars().next().is_some_and(char::is_uppercase)
        };
        if let Some(name) = own.filter(is_usual) {
            return name.to_owned();
        }
        let makes_file = self
            .diffs()
            .any(|(_, old, _)| old.is_none_or(String::is_empty));
        let usual = match self.kind {
            ToolKind::Read => "Read",
            ToolKind::Edit if makes_file => "Write",
            ToolKind::Edit => "Edit",
            ToolKind::Delete => "Delete",
            ToolKind::Move => "Move",
            ToolKind::Search => "Grep",
            ToolKind::Execute => "Bash",
            ToolKind::Fetch => "WebFetch",
            ToolKind::Think => "Think",
            ToolKind::SwitchMode => "SwitchMode",
            _ => own.unwrap_or("Other"),
        };
        usual.to_owned()
    }

    /// Whether enough is known of a call under way to tell it.
    fn is_whole(&self) -> bool {
        let has_input = self.input.as_ref().is_some_and(|input| match input {
            Value::Object(members) => !members.is_empty(),
            other => !other.is_null(),
        });
        has_input && matches!(self.kind, ToolKind::Execute | ToolKind::Fetch)
    }

    /// The input of the call with the paths and the command that the agent names outside of it.
    fn question_input(&self) -> Value {
        let mut input = match &self.input {
            Some(Value::Object(members)) => members.clone(),
            Some(Value::Null) | None => Map::new(),
            Some(other) => Map::from_iter([("input".to_owned(), other.clone())]),
        };
        if self.kind == ToolKind::Execute && !input.contains_key("command") {
            input.insert("command".to_owned(), self.title.clone().into());
        }
        let told = Value::Object(input.clone()).to_string();
        let missing = self.paths.iter();
        let missing: Vec<&String> = missing.filter(|path| !told.contains(*path)).collect();
        if !missing.is_empty() {
            input.insert("paths".to_owned(), json!(missing));
        }
        Value::Object(input)
    }

    /// The tool and its input as they are told: as they were asked about, unless the agent gave the call
    /// another input since.
    fn announced(&mut self) -> (String, Value) {
        match &self.asked {
            Some(asked) if asked.raw_input == self.input => {
                (asked.tool_name.clone(), asked.input.clone())
            }
            _ => (self.tool_name(), self.question_input()),
        }
    }

    fn tell(&mut self, id: &str) -> Vec<Emission> {
        if std::mem::replace(&mut self.is_told, true) {
            return Vec::new();
        }
        let mut ext = BTreeMap::new();
        if !self.title.is_empty() {
            ext.insert("title".to_owned(), json!(self.title));
        }
        let (tool_name, input) = self.announced();
        if let Some(name) = self.name.as_ref().filter(|name| **name != tool_name) {
            ext.insert("agent_tool".to_owned(), json!(name));
        }
        if !self.paths.is_empty() {
            ext.insert("locations".to_owned(), json!(self.paths));
        }
        let diffs: Vec<Value> = self.diffs().map(diff_value).collect();
        if !diffs.is_empty() {
            ext.insert("diffs".to_owned(), Value::Array(diffs));
        }
        vec![Emission {
            kind: AgentEventKind::ToolCall {
                tool_name,
                tool_use_id: Some(id.to_owned()),
                parent_tool_use_id: None,
                input,
            },
            ext: (!ext.is_empty()).then_some(ext),
        }]
    }

    fn finish(&mut self, id: &str) -> Vec<Emission> {
        let mut events = self.tell(id);
        if std::mem::replace(&mut self.is_over, true) {
            return events;
        }
        let is_error = self.status == ToolCallStatus::Failed;
        events.push(plain(AgentEventKind::ToolResult {
            tool_name: self.tool_name(),
            tool_use_id: Some(id.to_owned()),
            output: self.result(),
            is_error,
        }));
        if !is_error {
            let changes = self.diffs().map(|(path, old, new)| {
                let summary = match old {
                    Some(old) if !old.is_empty() => {
                        format!("{} bytes, before {}", new.len(), old.len())
                    }
                    _ => format!("new, {} bytes", new.len()),
                };
                plain(AgentEventKind::FileChanged { path, summary })
            });
            let changes: Vec<Emission> = changes.collect();
            events.extend(changes);
        }
        events
    }

    fn result(&self) -> Value {
        let texts = self.content.iter().filter_map(|content| match content {
            ToolCallContent::Content(content) => match &content.content {
                ContentBlock::Text(text) => Some(text.text.as_str()),
                _ => None,
            },
            _ => None,
        });
        let text: String = texts.collect::<Vec<_>>().join("\n");
        match &self.output {
            Some(output) if output.to_string().len() <= MAX_TEXT => output.clone(),
            _ => Value::String(shortened(&text)),
        }
    }
}

/// Makes the paths in a message relative to a directory: texts that begin with it, but for those that are
/// somebody's words.
fn relate(value: &mut Value, root: &Path) {
    match value {
        Value::String(text) => {
            if let Ok(below) = Path::new(text.as_str()).strip_prefix(root) {
                let below = below.to_string_lossy().into_owned();
                *text = if below.is_empty() {
                    ".".to_owned()
                } else {
                    below
                };
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| relate(item, root)),
        Value::Object(members) => {
            let is_words = |name: &str| WORDS.contains(&name);
            let members = members.iter_mut().filter(|(name, _)| !is_words(name));
            members.for_each(|(_, member)| relate(member, root));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn diff_value((path, old, new): (String, Option<&String>, &String)) -> Value {
    json!({
        "path": path,
        "old_text": old.map(|old| shortened(old)),
        "new_text": shortened(new),
    })
}

/// The beginning of a text, with a note where some is missing.
fn shortened(text: &str) -> String {
    if text.len() <= MAX_TEXT {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_TEXT);
    let kept = text.get(..end).unwrap_or_default();
    format!("{kept}\n[{} bytes more]", text.len() - end)
}

fn plain(kind: AgentEventKind) -> Emission {
    Emission { kind, ext: None }
}

/// An event of a kind of its own.
pub(crate) fn labelled(kind: &str, fields: Value) -> Emission {
    let fields = match fields {
        Value::Object(fields) => fields,
        other => Map::from_iter([("value".to_owned(), other)]),
    };
    plain(AgentEventKind::Opaque(OpaqueEvent {
        kind: kind.to_owned(),
        fields,
    }))
}

/// An update that this version does not know, kept with its name.
pub(crate) fn unknown(update: &Value) -> Emission {
    let name = update["sessionUpdate"].as_str().unwrap_or("unnamed");
    let text = update.to_string();
    let mut fields = Map::from_iter([("update".to_owned(), json!(name))]);
    match text.len() <= MAX_UNKNOWN {
        true => fields.insert("content".to_owned(), update.clone()),
        false => fields.insert("bytes".to_owned(), json!(text.len())),
    };
    labelled("acp_update", Value::Object(fields))
}

/// The name a unit variant has on the wire.
pub(crate) fn wire_name(value: &impl serde::Serialize) -> String {
    let written = serde_json::to_value(value).unwrap_or_default();
    written.as_str().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests;
