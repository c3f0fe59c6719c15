//! Requirements that follow from a conversation itself.

use abp_core::ir::{
    IrContentBlock, IrConversation, IrReasoning, IrReasoningMode, IrResponseFormatKind, IrSettings,
};
use abp_core::{Capability, CapabilityRequirement, CapabilityRequirements, MinSupport};

/// What a backend must be able to do for this conversation, whatever the caller declared.
#[must_use]
pub fn infer(conversation: &IrConversation) -> CapabilityRequirements {
    let mut needed = Vec::new();
    if !conversation.tools.is_empty() {
        needed.push(Capability::ToolUse);
    }
    needed.extend(needed_by(&conversation.settings));
    for block in conversation
        .messages
        .iter()
        .flat_map(|message| &message.content)
    {
        needed.extend(needed_for(&block.body));
    }
    needed.sort();
    needed.dedup();
    CapabilityRequirements {
        required: needed
            .into_iter()
            .map(|capability| CapabilityRequirement {
                capability,
                min_support: MinSupport::Emulated,
            })
            .collect(),
    }
}

/// What the way an answer should be made needs.
fn needed_by(settings: &IrSettings) -> Vec<Capability> {
    let mut needed = Vec::new();
    let format = settings.response_format.as_ref();
    if format.is_some_and(|format| matches!(format.kind, IrResponseFormatKind::JsonSchema { .. })) {
        needed.push(Capability::StructuredOutputJsonSchema);
    }
    if settings.reasoning.as_ref().is_some_and(asks_for_reasoning) {
        needed.push(Capability::ExtendedThinking);
    }
    needed
}

/// Whether a caller wants more reasoning than none. How it should show is another question.
fn asks_for_reasoning(reasoning: &IrReasoning) -> bool {
    let effort = reasoning
        .effort
        .as_ref()
        .map(|effort| effort.value.as_str());
    match reasoning.mode.as_ref().map(|mode| mode.value) {
        Some(IrReasoningMode::Enabled) => true,
        Some(_) => false,
        None => effort.map_or(reasoning.budget_tokens.is_some(), |effort| effort != "none"),
    }
}

fn needed_for(block: &IrContentBlock) -> Vec<Capability> {
    match block {
        IrContentBlock::Image { .. } => vec![Capability::ImageInput],
        IrContentBlock::Audio { .. } => vec![Capability::Audio],
        IrContentBlock::ToolUse { .. } => vec![Capability::ToolUse],
        IrContentBlock::ToolResult { content, .. } => std::iter::once(Capability::ToolUse)
            .chain(content.iter().flat_map(|block| needed_for(&block.body)))
            .collect(),
        // Text needs nothing, and past reasoning can be left out by a backend without it.
        _ => Vec::new(),
    }
}
