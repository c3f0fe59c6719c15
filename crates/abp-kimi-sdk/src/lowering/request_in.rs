//! Reading what only Kimi's requests have.

use abp_core::ir::{IrConversation, IrMediaData};
use abp_dialect::Item;

use super::pictures;
use crate::wire;

/// Gives what the common reader found its meaning.
pub(crate) fn adopt(conversation: &mut IrConversation, root: Item<'_>) {
    for message in &mut conversation.messages {
        for media in pictures(&mut message.content) {
            // Nobody else can open a file that Kimi keeps.
            if let IrMediaData::Url(address) = &media.data
                && wire::is_kept_file(address)
            {
                media.data = IrMediaData::FileId(address.clone());
            }
        }
    }
    let last = root.get("messages").and_then(|list| list.items().last());
    let flag = last.and_then(|message| message.get(wire::PARTIAL));
    if let Some(flag) = flag
        && flag.view().as_bool() == Some(true)
    {
        // An assistant's message at the end says it already, wherever answers are continued.
        flag.structure();
    }
}
