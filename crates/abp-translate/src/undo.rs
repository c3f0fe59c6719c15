//! Undoing in a streamed answer what its request's translation did.

use std::collections::BTreeMap;

use abp_core::ir::{IrBlockStart, IrDelta, Leaf, Origin};
use abp_dialect::{Exchange, Note, Reader};
use abp_json::NodeId;

use crate::exchange::{note, restore_name, unwrap_input};
use crate::stop::{StopCut, after_stop};

/// Gives the caller its own names, ids and tools of free text back, and ends the answer where the
/// caller wanted it to.
#[derive(Debug)]
pub struct Undo {
    exchange: Exchange,
    /// Arguments that stand for free text, kept until they are complete.
    wrapped: BTreeMap<(u32, u32), String>,
    stop: StopCut,
}

/// What was done with the pieces of one event.
#[derive(Debug, Default)]
pub struct Undone {
    notes: Vec<Note>,
    held: Vec<NodeId>,
    /// Something was said after the end.
    cut: bool,
}

impl Undone {
    /// A text for a later piece, or in another cut: it counts as carried.
    pub(crate) fn hold(&mut self, text: &Leaf<String>) -> String {
        if let Origin::Node(node) = text.origin {
            self.held.push(node);
        }
        text.value.clone()
    }

    /// Says what became of parts of the event.
    pub(crate) fn remark(&mut self, notes: impl IntoIterator<Item = Note>) {
        self.notes.extend(notes);
    }

    /// Something of the event is left out, as it comes after the end.
    pub(crate) fn leave_out(&mut self) {
        self.cut = true;
    }

    pub(crate) fn held(&mut self) -> Vec<NodeId> {
        std::mem::take(&mut self.held)
    }

    /// The remarks on the event that was read by `reader`.
    pub(crate) fn notes(&mut self, reader: Option<&Reader<'_>>) -> Vec<Note> {
        if let Some(reader) = reader.filter(|_| self.cut) {
            self.notes.push(after_stop(reader.root().origin()));
        }
        std::mem::take(&mut self.notes)
    }
}

impl Undo {
    /// Undoes what `exchange` says was done.
    #[must_use]
    pub fn new(exchange: &Exchange) -> Self {
        Self {
            stop: StopCut::new(&exchange.stop_at),
            exchange: exchange.clone(),
            wrapped: BTreeMap::new(),
        }
    }

    /// What the caller gets for a piece.
    pub fn delta(&mut self, delta: IrDelta, undone: &mut Undone) -> Vec<IrDelta> {
        let pieces = self.restored(delta, undone);
        if self.exchange.stop_at.is_empty() {
            return pieces;
        }
        pieces
            .into_iter()
            .flat_map(|piece| self.stop.delta(piece, undone))
            .collect()
    }

    fn restored(&mut self, mut delta: IrDelta, undone: &mut Undone) -> Vec<IrDelta> {
        match &mut delta {
            IrDelta::BlockStart {
                choice,
                block,
                start:
                    IrBlockStart::ToolUse {
                        id, name, custom, ..
                    },
            } => {
                restore_name(name, &self.exchange, &mut undone.notes);
                if let Some(id) = id
                    && let Some(source) = self.exchange.tool_ids.get(&id.value)
                {
                    note(&mut undone.notes, id.origin, "tool_id_mapped");
                    id.value.clone_from(source);
                }
                if !*custom && self.exchange.custom_tools.contains(&name.value) {
                    *custom = true;
                    self.wrapped.insert((*choice, *block), String::new());
                }
            }
            IrDelta::Append {
                choice,
                block,
                text,
            } => {
                if let Some(kept) = self.wrapped.get_mut(&(*choice, *block)) {
                    kept.push_str(&undone.hold(text));
                    return Vec::new();
                }
            }
            IrDelta::BlockStop { choice, block } => {
                if let Some(json) = self.wrapped.remove(&(*choice, *block)) {
                    let (choice, block) = (*choice, *block);
                    let text = Leaf::from(unwrap_input(&json).unwrap_or(json));
                    let whole = IrDelta::Append {
                        choice,
                        block,
                        text,
                    };
                    return vec![whole, delta];
                }
            }
            _ => {}
        }
        vec![delta]
    }
}
