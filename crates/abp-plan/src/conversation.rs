//! A work order as a conversation.

use abp_core::WorkOrder;
use abp_core::ir::{IrContentBlock, IrConversation, IrMessage, IrRole};

/// The conversation an order starts: one user message of the task and its context.
pub(crate) fn conversation(order: &WorkOrder) -> IrConversation {
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
    let content = texts
        .into_iter()
        .map(IrContentBlock::text)
        .collect();
    IrConversation::from_messages(vec![IrMessage::new(IrRole::User, content)])
}
