//! Parts of the source that leave no trace, or whose trace is needed after the source is gone.

use abp_core::ir::{
    IrBlock, IrBlockStart, IrCitation, IrContentBlock, IrDelta, IrRange, Leaf, Origin, RawJson,
};
use abp_dialect::{EventSink, Fate};

/// What was written once is repeated later, when its source is gone.
pub(super) fn forget_block(block: &mut IrBlock) {
    let forget = |leaf: &mut Option<Leaf<String>>| {
        if let Some(leaf) = leaf {
            leaf.origin = Origin::Host;
        }
    };
    match &mut block.body {
        IrContentBlock::Thinking {
            encrypted, item_id, ..
        } => [encrypted, item_id].into_iter().for_each(forget),
        IrContentBlock::ToolUse {
            id, name, item_id, ..
        } => {
            name.origin = Origin::Host;
            [id, item_id].into_iter().for_each(forget);
        }
        IrContentBlock::Opaque { native, .. } => native.origin = Origin::Host,
        _ => {}
    }
}

/// A source of a text, for a later event.
pub(super) fn without_origins(citation: &IrCitation) -> IrCitation {
    let bare = |leaf: &Option<Leaf<String>>| leaf.as_ref().map(|leaf| leaf.value.clone().into());
    IrCitation {
        url: bare(&citation.url),
        title: bare(&citation.title),
        quote: bare(&citation.quote),
        range: citation.range.as_ref().map(|range| IrRange {
            start: range.start.value.into(),
            end: range.end.value.into(),
        }),
        native: Leaf::<RawJson>::from(citation.native.value.clone()),
    }
}

/// The answer that a delta belongs to.
pub(super) fn choice_of(delta: &IrDelta) -> Option<u32> {
    match delta {
        IrDelta::Role { choice, .. }
        | IrDelta::BlockStart { choice, .. }
        | IrDelta::Append { choice, .. }
        | IrDelta::Signature { choice, .. }
        | IrDelta::Citation { choice, .. }
        | IrDelta::BlockStop { choice, .. }
        | IrDelta::Finish { choice, .. } => Some(*choice),
        _ => None,
    }
}

/// There is one answer; what belongs to another is left out.
pub(super) fn drop_choice(delta: &IrDelta, out: &mut EventSink<'_>) {
    let origins: Vec<Origin> = match delta {
        IrDelta::Role { role, .. } => vec![role.origin],
        IrDelta::BlockStart { start, .. } => start_origins(start),
        IrDelta::Append { text, .. } => vec![text.origin],
        IrDelta::Signature { signature, .. } => vec![signature.origin],
        IrDelta::Citation { citation, .. } => vec![citation.native.origin],
        IrDelta::Finish { finish, .. } => {
            finish.native.iter().map(|native| native.origin).collect()
        }
        _ => Vec::new(),
    };
    for origin in origins {
        drop_part(origin, "choices", "OpenAI Responses gives one answer", out);
    }
}

fn start_origins(start: &IrBlockStart) -> Vec<Origin> {
    let texts = match start {
        IrBlockStart::Thinking {
            item_id, encrypted, ..
        } => vec![item_id.as_ref(), encrypted.as_ref()],
        IrBlockStart::RedactedThinking { data } => vec![Some(data)],
        IrBlockStart::ToolUse {
            id, name, item_id, ..
        } => vec![id.as_ref(), Some(name), item_id.as_ref()],
        IrBlockStart::Opaque { native, .. } => return vec![native.origin],
        _ => Vec::new(),
    };
    texts
        .into_iter()
        .flatten()
        .map(|leaf| leaf.origin)
        .collect()
}

/// Says that a part of this event is left out.
pub(super) fn drop_part(
    origin: Origin,
    label: &'static str,
    reason: &'static str,
    out: &mut EventSink<'_>,
) {
    let (label, reason) = (label.into(), reason.into());
    out.remark(origin, Fate::Dropped { label, reason });
}
