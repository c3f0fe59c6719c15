//! Between work orders and conversations, and between answers and events.

use abp_core::ir::{
    IrContentBlock, IrConversation, IrFinishReason, IrMessage, IrResponse, IrRole, IrToolInput,
    IrUsage, Leaf,
};
use abp_core::{AgentEventKind, UsageNormalized, WorkOrder};
use abp_json::Limits;
use serde_json::Value;

/// The conversation a work order starts: one message of the user with the task and its context.
#[must_use]
pub fn map_work_order(order: &WorkOrder) -> IrConversation {
    let mut texts = vec![order.task.clone()];
    texts.extend(
        order
            .context
            .snippets
            .iter()
            .map(|snippet| format!("Context: {}\n\n{}", snippet.name, snippet.content)),
    );
    if !order.context.files.is_empty() {
        texts.push(format!(
            "Files that matter:\n{}",
            order.context.files.join("\n")
        ));
    }
    let plain = texts.len() == 1;
    let content = texts.into_iter().map(IrContentBlock::text).collect();
    let mut conversation = IrConversation::from_messages(vec![IrMessage {
        plain,
        ..IrMessage::new(IrRole::User, content)
    }]);
    conversation.settings.model = order.config.model.as_deref().map(Leaf::from);
    conversation
}

/// What an answer means for a run. Only the first choice counts: a run asks for one.
#[must_use]
pub fn map_response(response: &IrResponse) -> Vec<AgentEventKind> {
    let mut events = Vec::new();
    let Some(choice) = response.choices.first() else {
        return events;
    };
    for block in &choice.message.content {
        events.extend(event(&block.body));
    }
    let reason = choice.finish.as_ref().map(|finish| finish.reason);
    events.extend(reason.and_then(warning));
    if let Some(usage) = &response.usage {
        events.push(AgentEventKind::UsageUpdated {
            usage: normalized_usage(usage),
        });
    }
    events
}

fn event(body: &IrContentBlock) -> Option<AgentEventKind> {
    Some(match body {
        IrContentBlock::Text { text, .. } | IrContentBlock::Refusal { text } => {
            AgentEventKind::AssistantMessage {
                text: text.value.clone(),
            }
        }
        IrContentBlock::Thinking { text, .. } if !text.is_empty() => {
            AgentEventKind::ThinkingDelta {
                text: text.value.clone(),
            }
        }
        IrContentBlock::ToolUse {
            id, name, input, ..
        } => AgentEventKind::ToolCall {
            tool_name: name.value.clone(),
            tool_use_id: id.as_ref().map(|id| id.value.clone()),
            parent_tool_use_id: None,
            input: arguments(input),
        },
        _ => return None,
    })
}

/// Arguments as an event carries them; what is no JSON is told as the text it is.
fn arguments(input: &IrToolInput) -> Value {
    match input {
        IrToolInput::Json(json) => {
            let text = json.text();
            abp_json::admit_text(text.as_bytes(), &Limits::default()).map_or_else(
                |_| Value::String(text.to_owned()),
                |admitted| admitted.value,
            )
        }
        IrToolInput::Text(text) | IrToolInput::Invalid(text) => Value::String(text.value.clone()),
    }
}

/// An end that the reader of a run should know of.
fn warning(reason: IrFinishReason) -> Option<AgentEventKind> {
    let message = match reason {
        IrFinishReason::Length => "the answer was cut off at its limit of tokens",
        IrFinishReason::ContentFilter => "the vendor's filter ended the answer",
        IrFinishReason::Refusal => "the model declined",
        IrFinishReason::Pause => "the vendor paused the turn",
        IrFinishReason::Error => "the model's answer is not usable",
        IrFinishReason::Incomplete => "the answer broke off",
        _ => return None,
    };
    Some(AgentEventKind::Warning {
        message: message.to_owned(),
    })
}

/// The counts as a receipt carries them. A vendor's input includes what came from or went into a
/// cache; a receipt counts those apart, because they are priced apart.
#[must_use]
pub fn normalized_usage(usage: &IrUsage) -> UsageNormalized {
    let count = |leaf: &Option<Leaf<u64>>| leaf.as_ref().map(|leaf| leaf.value);
    let read = count(&usage.cache_read_tokens);
    let written = count(&usage.cache_creation_tokens);
    let cached = read.unwrap_or(0).saturating_add(written.unwrap_or(0));
    UsageNormalized {
        input_tokens: count(&usage.input_tokens).map(|all| all.saturating_sub(cached)),
        output_tokens: count(&usage.output_tokens),
        cache_read_tokens: read,
        cache_write_tokens: written,
        ..UsageNormalized::default()
    }
}
