//! Between ABP's events and Claude Code's messages.

use abp_core::{AgentEventKind, PlanEntry, UsageNormalized};
use abp_error::AbpError;
use serde_json::{Value, json};

use crate::message::{
    AssistantBody, ClaudeMessage, ClaudeUsage, ContentBlock, ControlRequest, UserBody,
};

/// Claude Code's tool for its plan.
const PLAN_TOOL: &str = "TodoWrite";

/// Writes the events of a run as Claude Code's messages. Keeps what the last message needs.
#[derive(Debug, Default)]
pub struct MessageWriter {
    session_id: String,
    usage: ClaudeUsage,
    last_text: String,
}

impl MessageWriter {
    /// The messages that say what an event says; none where Claude Code has no words for it.
    pub fn write(&mut self, event: &AgentEventKind) -> Option<ClaudeMessage> {
        match event {
            AgentEventKind::SessionStarted { session_id } => {
                self.session_id.clone_from(session_id);
                Some(ClaudeMessage::System {
                    subtype: "init".to_owned(),
                    session_id: session_id.clone(),
                })
            }
            AgentEventKind::AssistantDelta { text } => {
                Some(self.piece(&json!({ "type": "text_delta", "text": text })))
            }
            AgentEventKind::ThinkingDelta { text } => {
                Some(self.piece(&json!({ "type": "thinking_delta", "thinking": text })))
            }
            AgentEventKind::AssistantMessage { text } => {
                self.last_text.clone_from(text);
                let block = ContentBlock::Text { text: text.clone() };
                Some(self.assistant(block, None))
            }
            AgentEventKind::ToolCall {
                tool_name,
                tool_use_id,
                parent_tool_use_id,
                input,
            } => {
                let block = ContentBlock::ToolUse {
                    id: tool_use_id.clone().unwrap_or_default(),
                    name: tool_name.clone(),
                    input: input.clone(),
                };
                Some(self.assistant(block, parent_tool_use_id.clone()))
            }
            AgentEventKind::ToolResult {
                tool_use_id,
                output,
                is_error,
                ..
            } => Some(self.result_of_tool(tool_use_id.as_ref(), output, *is_error)),
            AgentEventKind::UsageUpdated { usage } => {
                self.usage = ClaudeUsage::from(usage);
                None
            }
            // Claude Code tells of a plan by the call of its tool, which is an event of its own here.
            _ => None,
        }
    }

    /// The question of a host as Claude Code's own.
    #[must_use]
    pub fn question(
        &self,
        request_id: &str,
        tool_name: &str,
        tool_use_id: Option<&str>,
        input: &Value,
    ) -> ClaudeMessage {
        ClaudeMessage::ControlRequest {
            request_id: request_id.to_owned(),
            request: ControlRequest::CanUseTool {
                tool_name: tool_name.to_owned(),
                input: input.clone(),
                tool_use_id: tool_use_id.map(str::to_owned),
            },
        }
    }

    /// The last message.
    #[must_use]
    pub fn finish(self, end: Result<(), &AbpError>) -> ClaudeMessage {
        let (subtype, result) = match end {
            Ok(()) => ("success", self.last_text),
            Err(error) => ("error_during_execution", error.to_string()),
        };
        ClaudeMessage::Result {
            subtype: subtype.to_owned(),
            is_error: end.is_err(),
            result,
            session_id: self.session_id,
            usage: self.usage,
        }
    }

    fn piece(&self, delta: &Value) -> ClaudeMessage {
        ClaudeMessage::StreamEvent {
            event: json!({ "type": "content_block_delta", "index": 0, "delta": delta }),
            parent_tool_use_id: None,
            session_id: self.session_id.clone(),
        }
    }

    fn assistant(&self, block: ContentBlock, parent: Option<String>) -> ClaudeMessage {
        ClaudeMessage::Assistant {
            message: AssistantBody {
                role: "assistant".to_owned(),
                content: vec![block],
            },
            parent_tool_use_id: parent,
            session_id: self.session_id.clone(),
        }
    }

    fn result_of_tool(&self, id: Option<&String>, output: &Value, is_error: bool) -> ClaudeMessage {
        // The Messages API takes text or blocks; anything else is told as its JSON.
        let content = match output {
            Value::String(_) => output.clone(),
            other => Value::String(other.to_string()),
        };
        let block = ContentBlock::ToolResult {
            tool_use_id: id.cloned().unwrap_or_default(),
            content,
            is_error,
        };
        ClaudeMessage::User {
            message: UserBody {
                role: "user".to_owned(),
                content: vec![block],
            },
            parent_tool_use_id: None,
            session_id: self.session_id.clone(),
        }
    }
}

/// The events that a message of Claude Code stands for. The result of a tool names only its call, so `tool_name`
/// finds the tool of a call by its id.
pub fn events_of(
    message: &ClaudeMessage,
    tool_name: impl Fn(&str) -> Option<String>,
) -> Vec<AgentEventKind> {
    match message {
        ClaudeMessage::System {
            subtype,
            session_id,
        } if subtype == "init" => vec![AgentEventKind::SessionStarted {
            session_id: session_id.clone(),
        }],
        ClaudeMessage::System { .. } | ClaudeMessage::ControlRequest { .. } => Vec::new(),
        ClaudeMessage::Assistant {
            message,
            parent_tool_use_id,
            ..
        } => message
            .content
            .iter()
            .flat_map(|block| assistant_events(block, parent_tool_use_id.as_ref()))
            .collect(),
        ClaudeMessage::User { message, .. } => message
            .content
            .iter()
            .filter_map(|block| tool_result(block, &tool_name))
            .collect(),
        ClaudeMessage::StreamEvent { event, .. } => delta(event).into_iter().collect(),
        ClaudeMessage::Result { usage, .. } => vec![AgentEventKind::UsageUpdated {
            usage: UsageNormalized::from(*usage),
        }],
    }
}

fn assistant_events(block: &ContentBlock, parent: Option<&String>) -> Vec<AgentEventKind> {
    match block {
        ContentBlock::Text { text } => {
            vec![AgentEventKind::AssistantMessage { text: text.clone() }]
        }
        // It was told in pieces before.
        ContentBlock::Thinking { .. } | ContentBlock::ToolResult { .. } | ContentBlock::Other => {
            Vec::new()
        }
        ContentBlock::ToolUse { id, name, input } => {
            let call = AgentEventKind::ToolCall {
                tool_name: name.clone(),
                tool_use_id: Some(id.clone()),
                parent_tool_use_id: parent.cloned(),
                input: input.clone(),
            };
            let plan = plan(name, input);
            std::iter::once(call).chain(plan).collect()
        }
    }
}

fn plan(tool: &str, input: &Value) -> Option<AgentEventKind> {
    let entries = input.get("todos").filter(|_| tool == PLAN_TOOL)?;
    let text = |entry: &Value, name: &str| entry.get(name)?.as_str().map(str::to_owned);
    let entry = |entry: &Value| {
        Some(PlanEntry {
            content: text(entry, "content")?,
            status: text(entry, "status")?,
        })
    };
    let entries = entries.as_array()?.iter().filter_map(entry).collect();
    Some(AgentEventKind::PlanUpdated { entries })
}

fn tool_result(
    block: &ContentBlock,
    tool_name: impl Fn(&str) -> Option<String>,
) -> Option<AgentEventKind> {
    let ContentBlock::ToolResult {
        tool_use_id,
        content,
        is_error,
    } = block
    else {
        return None;
    };
    Some(AgentEventKind::ToolResult {
        tool_name: tool_name(tool_use_id)?,
        tool_use_id: Some(tool_use_id.clone()),
        output: content.clone(),
        is_error: *is_error,
    })
}

fn delta(event: &Value) -> Option<AgentEventKind> {
    let delta = event.get("delta")?;
    let text = |name: &str| delta.get(name)?.as_str().map(str::to_owned);
    match delta.get("type")?.as_str()? {
        "text_delta" => Some(AgentEventKind::AssistantDelta {
            text: text("text")?,
        }),
        "thinking_delta" => Some(AgentEventKind::ThinkingDelta {
            text: text("thinking")?,
        }),
        _ => None,
    }
}

impl From<&UsageNormalized> for ClaudeUsage {
    fn from(usage: &UsageNormalized) -> Self {
        Self {
            input_tokens: usage.input_tokens.unwrap_or_default(),
            output_tokens: usage.output_tokens.unwrap_or_default(),
            cache_read_input_tokens: usage.cache_read_tokens.unwrap_or_default(),
            cache_creation_input_tokens: usage.cache_write_tokens.unwrap_or_default(),
        }
    }
}

impl From<ClaudeUsage> for UsageNormalized {
    fn from(usage: ClaudeUsage) -> Self {
        Self {
            input_tokens: Some(usage.input_tokens),
            output_tokens: Some(usage.output_tokens),
            cache_read_tokens: Some(usage.cache_read_input_tokens),
            cache_write_tokens: Some(usage.cache_creation_input_tokens),
            ..Self::default()
        }
    }
}

#[cfg(test)]
mod tests;
