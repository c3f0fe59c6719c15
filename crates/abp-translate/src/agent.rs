//! From work orders to conversations, and from vendors' counts to a receipt's.

use abp_core::ir::{IrContentBlock, IrConversation, IrMessage, IrRole, IrUsage, Leaf};
use abp_core::{UsageNormalized, WorkOrder};

/// A file of an order's context whose content a model is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContextFile {
    /// The path, as the order names it.
    pub path: String,
    /// All of the file's text.
    pub content: String,
}

/// The conversation a work order starts: one message of the user with the task and its context.
#[must_use]
pub fn map_work_order(order: &WorkOrder) -> IrConversation {
    map_work_order_with(order, &[])
}

/// The conversation a work order starts, with the contents of files that were read for it.
///
/// Every part is a text of its own: the task, `Context: NAME` with each snippet, `Files that matter:`
/// with all paths, and `File: PATH` with the content of each file that is given.
#[must_use]
pub fn map_work_order_with(order: &WorkOrder, files: &[ContextFile]) -> IrConversation {
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
    texts.extend(
        files
            .iter()
            .map(|file| format!("File: {}\n\n{}", file.path, file.content)),
    );
    let plain = texts.len() == 1;
    let content = texts.into_iter().map(IrContentBlock::text).collect();
    let mut conversation = IrConversation::from_messages(vec![IrMessage {
        plain,
        ..IrMessage::new(IrRole::User, content)
    }]);
    conversation.settings.model = order.config.model.as_deref().map(Leaf::from);
    conversation
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
