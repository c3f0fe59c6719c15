//! Requirements that follow from a conversation itself.

use abp_core::ir::{IrContentBlock, IrConversation};
use abp_core::{Capability, CapabilityRequirement, CapabilityRequirements, MinSupport};

/// What a backend must be able to do for this conversation, whatever the caller declared.
#[must_use]
pub fn infer(conversation: &IrConversation) -> CapabilityRequirements {
    let mut needed = Vec::new();
    if !conversation.tools.is_empty() {
        needed.push(Capability::ToolUse);
    }
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

fn needed_for(block: &IrContentBlock) -> Vec<Capability> {
    match block {
        IrContentBlock::Image { .. } => vec![Capability::ImageInput],
        IrContentBlock::ToolUse { .. } => vec![Capability::ToolUse],
        IrContentBlock::ToolResult { content, .. } => std::iter::once(Capability::ToolUse)
            .chain(content.iter().flat_map(|block| needed_for(&block.body)))
            .collect(),
        // Text needs nothing, and past reasoning can be left out by a backend without it.
        _ => Vec::new(),
    }
}
