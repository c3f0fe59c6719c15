//! What Kimi's requests have besides the common form.

pub(crate) mod request_in;
pub(crate) mod request_out;

use abp_core::ir::{IrBlock, IrContentBlock, IrMedia};

/// The pictures and films among blocks, those in answers of tools included.
fn pictures(blocks: &mut [IrBlock]) -> Vec<&mut IrMedia> {
    let mut found = Vec::new();
    for block in blocks {
        match &mut block.body {
            IrContentBlock::Image { media, .. } | IrContentBlock::Video { media } => {
                found.push(media);
            }
            IrContentBlock::ToolResult { content, .. } => found.extend(pictures(content)),
            _ => {}
        }
    }
    found
}
