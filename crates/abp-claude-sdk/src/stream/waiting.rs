//! Blocks that began before the one before them ended.
//!
//! The vendor's blocks come strictly one after the other. Whatever belongs to a later block is kept
//! until its turn has come.

use abp_core::ir::{IrBlockStart, IrCitation, Leaf};
use abp_dialect::EventSink;

/// A block that waits for its turn.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) block: u32,
    pub(super) start: IrBlockStart,
    pub(super) text: String,
    pub(super) signature: String,
    pub(super) citations: Vec<IrCitation>,
    pub(super) stopped: bool,
}

impl Waiting {
    pub(super) fn new(block: u32, start: &IrBlockStart, out: &mut EventSink<'_>) -> Self {
        Self {
            block,
            start: hold_start(start, out),
            text: String::new(),
            signature: String::new(),
            citations: Vec::new(),
            stopped: false,
        }
    }
}

fn hold_start(start: &IrBlockStart, out: &mut EventSink<'_>) -> IrBlockStart {
    let mut held = start.clone();
    match &mut held {
        IrBlockStart::Thinking {
            kind: _,
            item_id,
            encrypted,
        } => {
            hold(item_id.as_mut(), out);
            hold(encrypted.as_mut(), out);
        }
        IrBlockStart::RedactedThinking { data } => hold(Some(data), out),
        IrBlockStart::ToolUse {
            id,
            name,
            custom: _,
            item_id,
        } => {
            hold(id.as_mut(), out);
            hold(Some(name), out);
            hold(item_id.as_mut(), out);
        }
        IrBlockStart::Opaque { kind: _, native } => hold(Some(native), out),
        _ => {}
    }
    held
}

pub(super) fn hold_citation(citation: &IrCitation, out: &mut EventSink<'_>) -> IrCitation {
    let mut held = citation.clone();
    let IrCitation {
        url,
        title,
        quote,
        range,
        native,
    } = &mut held;
    for text in [url, title, quote] {
        hold(text.as_mut(), out);
    }
    if let Some(range) = range {
        hold(Some(&mut range.start), out);
        hold(Some(&mut range.end), out);
    }
    hold(Some(native), out);
    held
}

/// Keeps a leaf beyond its event.
pub(super) fn hold<T: Clone>(leaf: Option<&mut Leaf<T>>, out: &mut EventSink<'_>) {
    if let Some(leaf) = leaf {
        *leaf = out.hold(leaf);
    }
}
