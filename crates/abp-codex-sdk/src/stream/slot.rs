//! Parts of open items, and where they are.

use abp_core::ir::{IrDelta, Leaf};
use abp_dialect::{DialectError, How, Item};

use crate::lowering::read_citation;
use crate::wire::Streamed;

/// A part of an open item that has a block.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) place: Place,
    pub(super) block: u32,
    pub(super) open: bool,
    /// How many bytes of it came in pieces.
    pub(super) streamed: usize,
    /// Whether any of its sources came.
    pub(super) cited: bool,
}

/// Where in its item a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Content(u64),
    Summary(u64),
    Call,
}

impl Slot {
    /// Closes the block; brings out first what a part, or a call's item, has and its pieces had not.
    pub(super) fn complete(
        &mut self,
        part: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if !self.open {
            return Ok(());
        }
        let members = match self.place {
            Place::Call => ["arguments", "input"],
            Place::Content(_) | Place::Summary(_) => ["text", "refusal"],
        };
        if let Some(text) = members.iter().find_map(|key| part.some(key)) {
            self.catch_up(text, deltas)?;
        }
        if !self.cited {
            let annotations = part.some("annotations").into_iter().flat_map(Item::items);
            deltas.extend(annotations.map(|annotation| IrDelta::Citation {
                choice: 0,
                block: self.block,
                citation: read_citation(annotation),
            }));
        }
        self.close(deltas);
        Ok(())
    }

    /// Brings out the whole where there were no pieces. A whole that is not the sum of its pieces is
    /// remarked on: what was sent cannot be taken back.
    pub(super) fn catch_up(
        &mut self,
        whole: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let text = whole.text()?;
        if self.streamed == text.len() {
            whole.repeats();
        } else if self.streamed == 0 {
            self.streamed = text.len();
            deltas.push(append(self.block, text));
        } else {
            let reason = "the whole is not what the pieces make";
            whole.note(How::degraded("stream_differs", reason));
        }
        Ok(())
    }

    pub(super) fn close(&mut self, deltas: &mut Vec<IrDelta>) {
        if std::mem::take(&mut self.open) {
            deltas.push(stop(self.block));
        }
    }
}

pub(super) fn append(block: u32, text: Leaf<String>) -> IrDelta {
    IrDelta::Append {
        choice: 0,
        block,
        text,
    }
}

pub(super) fn stop(block: u32) -> IrDelta {
    IrDelta::BlockStop { choice: 0, block }
}

pub(super) fn count(data: Item<'_>, key: &str) -> Option<u64> {
    data.get(key)?.view().as_u64()
}

pub(super) fn output_index(data: Item<'_>) -> u64 {
    count(data, "output_index").unwrap_or_default()
}

pub(super) fn place(streamed: Streamed, data: Item<'_>) -> Place {
    let index = streamed
        .index()
        .and_then(|key| count(data, key))
        .unwrap_or_default();
    match streamed {
        Streamed::Summary => Place::Summary(index),
        Streamed::Text | Streamed::Refusal | Streamed::Reasoning => Place::Content(index),
        Streamed::Arguments | Streamed::Input => Place::Call,
    }
}
