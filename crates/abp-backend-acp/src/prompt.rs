//! A work order as a prompt.

use abp_backend_core::RunContext;
use abp_backend_sidecar::{conversation_of, deliver_emulations};
use abp_error::AbpError;
use agent_client_protocol::v1::schema::{ContentBlock, ResourceLink, TextContent};

/// The content of a prompt: the task with ABP's instructions, and the order's context.
///
/// # Errors
/// Fails where an emulation cannot be delivered in words.
pub(crate) fn content(context: &RunContext) -> Result<Vec<ContentBlock>, AbpError> {
    let mut order = context.order().clone();
    let applied = &context.plan().report().emulation.applied;
    deliver_emulations(&mut order, applied, conversation_of(context.payload()))?;
    let mut blocks = vec![text(order.task)];
    for snippet in order.context.snippets {
        blocks.push(text(format!("{}:\n\n{}", snippet.name, snippet.content)));
    }
    for file in order.context.files {
        let uri = format!("file://{}", context.workspace_root().join(&file).display());
        blocks.push(ContentBlock::ResourceLink(ResourceLink::new(file, uri)));
    }
    Ok(blocks)
}

fn text(text: String) -> ContentBlock {
    ContentBlock::Text(TextContent::new(text))
}
