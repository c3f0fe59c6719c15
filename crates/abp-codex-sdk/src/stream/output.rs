//! The output of a streamed answer as it grows.
//!
//! The last events of an item and of the answer repeat everything, so everything is kept. Blocks of a
//! message, and of one piece of reasoning, share an item as long as nothing else comes between.

use abp_core::ir::{IrBlock, IrCitation, IrContentBlock, IrToolInput};

use crate::lowering::OutputItem;
use crate::wire::Streamed;

/// An item of the output.
#[derive(Debug)]
pub(super) struct StreamedItem {
    /// Its id.
    pub(super) id: String,
    /// What it holds so far.
    pub(super) blocks: Vec<IrBlock>,
    /// How far its blocks are.
    pub(super) parts: Vec<Part>,
    /// How many of its parts were announced: those of a summary, and others.
    pub(super) numbered: [u64; 2],
    /// Whether no further block may join it.
    pub(super) sealed: bool,
    /// Whether its last event is out.
    pub(super) done: bool,
}

/// How far a block is.
#[derive(Debug)]
pub(super) struct Part {
    /// What is streamed.
    pub(super) streamed: Streamed,
    /// Its number among the parts of its item, once it was announced.
    pub(super) index: Option<u64>,
    /// Whether it is still open.
    pub(super) open: bool,
}

impl StreamedItem {
    /// The item as it is written.
    pub(super) fn view(&self) -> OutputItem<'_> {
        match self.blocks.first() {
            Some(IrBlock {
                body: IrContentBlock::Opaque { native, .. },
                ..
            }) => OutputItem::Native(native),
            Some(first) => match &first.body {
                IrContentBlock::Thinking { .. } => OutputItem::Reasoning(&self.blocks),
                IrContentBlock::ToolUse { .. } => OutputItem::Call(first),
                _ => OutputItem::Message(&self.blocks),
            },
            None => OutputItem::Message(&[]),
        }
    }

    /// Whether another block of this kind may join.
    pub(super) fn admits(&self, streamed: Streamed) -> bool {
        let is_message = |streamed| matches!(streamed, Streamed::Text | Streamed::Refusal);
        let is_reasoning = |streamed| matches!(streamed, Streamed::Summary | Streamed::Reasoning);
        // What is true of one of its parts is true of all.
        !self.sealed
            && self.parts.first().is_none_or(|part| {
                (is_message(part.streamed) && is_message(streamed))
                    || (is_reasoning(part.streamed) && is_reasoning(streamed))
            })
    }

    /// Whether a block of it is open.
    pub(super) fn is_open(&self) -> bool {
        self.parts.iter().any(|part| part.open)
    }

    /// Gives a part its number; says whether it had none.
    pub(super) fn number(&mut self, part: usize) -> bool {
        let part = self.parts.get_mut(part);
        let Some(part) = part.filter(|part| part.index.is_none()) else {
            return false;
        };
        let [summaries, others] = &mut self.numbered;
        let next = match part.streamed {
            Streamed::Summary => summaries,
            _ => others,
        };
        part.index = Some(*next);
        *next += 1;
        true
    }

    /// Adds a piece to a block.
    pub(super) fn append(&mut self, part: usize, piece: &str) {
        if let Some(text) = self
            .blocks
            .get_mut(part)
            .and_then(|block| text_mut(&mut block.body))
        {
            text.push_str(piece);
        }
    }

    /// What a block says so far.
    pub(super) fn text(&self, part: usize) -> &str {
        match self.blocks.get(part).map(|block| &block.body) {
            Some(
                IrContentBlock::Text { text, .. }
                | IrContentBlock::Refusal { text }
                | IrContentBlock::Thinking { text, .. }
                | IrContentBlock::ToolUse {
                    input: IrToolInput::Text(text) | IrToolInput::Invalid(text),
                    ..
                },
            ) => text,
            _ => "",
        }
    }

    /// Adds a source to a text; tells how many it had.
    pub(super) fn cite(&mut self, part: usize, citation: IrCitation) -> u64 {
        match self.blocks.get_mut(part).map(|block| &mut block.body) {
            Some(IrContentBlock::Text { citations, .. }) => {
                citations.push(citation);
                citations.len() as u64 - 1
            }
            _ => 0,
        }
    }
}

fn text_mut(body: &mut IrContentBlock) -> Option<&mut String> {
    match body {
        IrContentBlock::Text { text, .. }
        | IrContentBlock::Refusal { text }
        | IrContentBlock::Thinking { text, .. }
        | IrContentBlock::ToolUse {
            input: IrToolInput::Text(text) | IrToolInput::Invalid(text),
            ..
        } => Some(&mut text.value),
        _ => None,
    }
}
