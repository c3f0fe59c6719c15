//! The events of a run as those of AG-UI.

use std::collections::HashMap;

use abp_core::{AgentEvent, AgentEventKind, Outcome, PresentationType, Receipt};
use abp_error::AbpError;
use serde_json::{Map, Value, json};
use uuid::Uuid;

/// The version of AG-UI that is spoken.
const VERSION: &str = "1.0";

/// The sender's own names for what it takes part in.
#[derive(Debug, Clone)]
pub struct Conversation {
    /// The thread.
    pub thread_id: String,
    /// The run within the thread.
    pub run_id: String,
}

/// Writes the events of one run. Messages and reasoning are opened when something is said and closed
/// when something else happens; what AG-UI has no event for is a custom one.
#[derive(Debug)]
pub struct AgUi {
    run_id: Uuid,
    conversation: Conversation,
    open: Open,
    /// Whether the agent's text was streamed, so that the whole message need not be repeated.
    streamed: bool,
    /// How many ids were made up.
    made: u64,
    /// Calls that came without an id and wait for their result, by tool.
    unnamed: HashMap<String, Vec<String>>,
    /// What goes on, and the message that tells how far it is.
    progress: Option<(Value, String)>,
    out: Vec<Value>,
}

/// What is being said.
#[derive(Debug)]
enum Open {
    Nothing,
    Text(String),
    Reasoning(String),
}

impl AgUi {
    /// The events of a new stream.
    #[must_use]
    pub fn new(run_id: Uuid, conversation: Conversation) -> Self {
        Self {
            run_id,
            conversation,
            open: Open::Nothing,
            streamed: false,
            made: 0,
            unnamed: HashMap::new(),
            progress: None,
            out: Vec::new(),
        }
    }

    /// The events for an event of the run.
    pub fn event(&mut self, event: &AgentEvent) -> Vec<Value> {
        match &event.kind {
            AgentEventKind::RunStarted { .. } => self.start(event),
            AgentEventKind::AssistantDelta { text } => {
                self.streamed = true;
                self.say(text);
            }
            AgentEventKind::AssistantMessage { text } => {
                if !std::mem::take(&mut self.streamed) {
                    self.close();
                    self.say(text);
                }
                self.close();
            }
            AgentEventKind::ThinkingDelta { text } => self.reason(text),
            AgentEventKind::ToolCall {
                tool_name,
                tool_use_id,
                input,
                ..
            } => self.call(tool_name, tool_use_id.as_deref(), input),
            AgentEventKind::ToolResult {
                tool_name,
                tool_use_id,
                output,
                is_error,
            } => self.result(tool_name, tool_use_id.as_deref(), output, *is_error),
            AgentEventKind::FileChanged { path, summary } => {
                self.activity("FILE_CHANGE", json!({ "path": path, "summary": summary }));
            }
            AgentEventKind::CommandExecuted {
                command,
                exit_code,
                output_preview,
            } => {
                let content =
                    json!({ "command": command, "exitCode": exit_code, "output": output_preview });
                self.activity("COMMAND", content);
            }
            AgentEventKind::PlanUpdated { entries } => {
                self.activity("PLAN", json!({ "entries": entries }));
            }
            AgentEventKind::ContentBlock { block_type, data } => self.block(block_type, data),
            AgentEventKind::Adapted { adaptation } => {
                self.custom("abp.adapted", &json!(adaptation));
            }
            // How it ended is told with the receipt.
            AgentEventKind::RunCompleted { .. } => self.close(),
            other => self.custom(&format!("abp.{}", other.name()), &json!(event)),
        }
        std::mem::take(&mut self.out)
    }

    /// How the run ended.
    pub fn end(&mut self, receipt: &Result<Receipt, AbpError>) -> Vec<Value> {
        self.close();
        match receipt {
            Ok(receipt) => self.finish(receipt),
            Err(error) => self.fail(error.code().as_str(), error.message()),
        }
        std::mem::take(&mut self.out)
    }

    fn start(&mut self, event: &AgentEvent) {
        let Conversation { thread_id, run_id } = &self.conversation;
        let started = json!({
            "type": "RUN_STARTED", "threadId": thread_id, "runId": run_id,
            "protocolVersion": VERSION, "timestamp": event.ts.as_unix_millis(),
        });
        self.out.push(started);
        let client = event.ext.as_ref().and_then(|ext| ext.get("client"));
        self.custom(
            "abp.run",
            &json!({ "run_id": self.run_id, "client": client }),
        );
    }

    fn finish(&mut self, receipt: &Receipt) {
        let told = json!({
            "run_id": self.run_id, "outcome": receipt.outcome,
            "receipt_sha256": receipt.receipt_sha256,
        });
        self.custom("abp.receipt", &told);
        let outcome = match (receipt.outcome, &receipt.error) {
            (Outcome::Complete, _) => "success",
            (Outcome::Cancelled, _) => "cancelled",
            (Outcome::Partial | Outcome::Failed, Some(error)) => {
                return self.fail(error.code.as_str(), &error.message);
            }
            (Outcome::Partial | Outcome::Failed, None) => {
                return self.fail("RUN_FAILED", "the run did not succeed");
            }
        };
        let Conversation { thread_id, run_id } = &self.conversation;
        self.out.push(json!({
            "type": "RUN_FINISHED", "threadId": thread_id, "runId": run_id,
            "outcome": { "type": outcome },
        }));
    }

    fn fail(&mut self, code: &str, message: &str) {
        self.out
            .push(json!({ "type": "RUN_ERROR", "code": code, "message": message }));
    }

    fn say(&mut self, text: &str) {
        let id = match &self.open {
            Open::Text(id) => id.clone(),
            Open::Nothing | Open::Reasoning(_) => {
                self.close();
                let id = self.new_id();
                self.out.push(
                    json!({ "type": "TEXT_MESSAGE_START", "messageId": id, "role": "assistant" }),
                );
                self.open = Open::Text(id.clone());
                id
            }
        };
        self.out
            .push(json!({ "type": "TEXT_MESSAGE_CONTENT", "messageId": id, "delta": text }));
    }

    fn reason(&mut self, text: &str) {
        let id = match &self.open {
            Open::Reasoning(id) => id.clone(),
            Open::Nothing | Open::Text(_) => {
                self.close();
                let id = self.new_id();
                self.out
                    .push(json!({ "type": "REASONING_START", "messageId": id }));
                self.out.push(json!({
                    "type": "REASONING_MESSAGE_START", "messageId": id, "role": "reasoning"
                }));
                self.open = Open::Reasoning(id.clone());
                id
            }
        };
        self.out
            .push(json!({ "type": "REASONING_MESSAGE_CONTENT", "messageId": id, "delta": text }));
    }

    /// Ends what is being said.
    fn close(&mut self) {
        match std::mem::replace(&mut self.open, Open::Nothing) {
            Open::Nothing => {}
            Open::Text(id) => {
                self.out
                    .push(json!({ "type": "TEXT_MESSAGE_END", "messageId": id }));
            }
            Open::Reasoning(id) => {
                self.out
                    .push(json!({ "type": "REASONING_MESSAGE_END", "messageId": id }));
                self.out
                    .push(json!({ "type": "REASONING_END", "messageId": id }));
            }
        }
    }

    fn call(&mut self, tool: &str, id: Option<&str>, input: &Value) {
        self.close();
        let id = id.map_or_else(|| self.name_call(tool), str::to_owned);
        let input = input.to_string();
        self.out
            .push(json!({ "type": "TOOL_CALL_START", "toolCallId": id, "toolCallName": tool }));
        self.out
            .push(json!({ "type": "TOOL_CALL_ARGS", "toolCallId": id, "delta": input }));
        self.out
            .push(json!({ "type": "TOOL_CALL_END", "toolCallId": id }));
    }

    /// An id for a call that has none.
    fn name_call(&mut self, tool: &str) -> String {
        let id = self.new_id();
        let waiting = self.unnamed.entry(tool.to_owned()).or_default();
        waiting.push(id.clone());
        id
    }

    fn result(&mut self, tool: &str, id: Option<&str>, output: &Value, is_error: bool) {
        self.close();
        let unnamed = self.unnamed.get_mut(tool);
        let waiting = unnamed.filter(|calls| !calls.is_empty());
        let id = match (id, waiting) {
            (Some(id), _) => id.to_owned(),
            (None, Some(calls)) => calls.remove(0),
            // Of no call that was told.
            (None, None) => self.new_id(),
        };
        let content = match output {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let message = self.new_id();
        let mut result = json!({
            "type": "TOOL_CALL_RESULT", "messageId": message, "toolCallId": id,
            "content": content, "role": "tool",
        });
        if let (true, Value::Object(result)) = (is_error, &mut result) {
            result.insert("metadata".to_owned(), json!({ "isError": true }));
        }
        self.out.push(result);
    }

    /// Progress of the same thing replaces what was told of it before.
    fn block(&mut self, block_type: &str, data: &Value) {
        let kind = PresentationType::parse(block_type);
        if kind != PresentationType::ProgressIndicator {
            return self.activity(kind.as_str(), data.clone());
        }
        let label = data.get("label").cloned().unwrap_or_default();
        let id = match self.progress.take() {
            Some((before, id)) if before == label => id,
            _ => self.new_id(),
        };
        self.progress = Some((label, id.clone()));
        self.snapshot(kind.as_str(), &id, data.clone());
    }

    fn activity(&mut self, kind: &str, content: Value) {
        let id = self.new_id();
        self.snapshot(kind, &id, content);
    }

    fn snapshot(&mut self, kind: &str, id: &str, content: Value) {
        self.close();
        let content = match content {
            Value::Object(content) => content,
            other => Map::from_iter([("value".to_owned(), other)]),
        };
        self.out.push(json!({
            "type": "ACTIVITY_SNAPSHOT", "messageId": id, "activityType": kind, "content": content,
        }));
    }

    fn custom(&mut self, name: &str, value: &Value) {
        self.out
            .push(json!({ "type": "CUSTOM", "name": name, "value": value }));
    }

    /// An id that no other run makes up.
    fn new_id(&mut self) -> String {
        self.made += 1;
        format!("{}-{}", self.run_id, self.made)
    }
}
