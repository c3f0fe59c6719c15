//! Items as a whole: what was not told in pieces is told at once.

use abp_core::ir::{
    IrBlock, IrBlockStart, IrContentBlock, IrDelta, IrThinkingKind, IrToolInput, Leaf,
};
use abp_dialect::{DialectError, Item};

use super::Decoder;
use crate::lowering::{model_blocks, read_part, settle_empty};
use crate::stream::slot::{Place, Slot, append, stop};

impl Decoder {
    /// Brings out what an item has and its pieces had not, and closes its blocks.
    pub(super) fn reconcile(
        &mut self,
        item: Item<'_>,
        mut slots: Vec<Slot>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        for (key, place) in [
            ("summary", Place::Summary as fn(u64) -> Place),
            ("content", Place::Content),
        ] {
            let parts = item.some(key).into_iter().flat_map(Item::items);
            for (index, part) in (0..).zip(parts) {
                match slots.iter_mut().find(|slot| slot.place == place(index)) {
                    Some(slot) => slot.complete(part, deltas)?,
                    None => self.emit_part(part, deltas)?,
                }
            }
        }
        for slot in &mut slots {
            slot.complete(item, deltas)?;
        }
        if let Some(encrypted) = item.opt_text("encrypted_content")? {
            // The ciphertext comes last, when its item's blocks are under way already.
            let block = IrContentBlock::Thinking {
                text: Leaf::from(""),
                kind: IrThinkingKind::Summary,
                signature: None,
                encrypted: Some(encrypted),
                item_id: None,
            };
            self.emit(block.into(), deltas);
        }
        // A message's phase has no place in a stream; the mark names it in the ledger.
        drop(item.vendor_fields(&["phase"]));
        Ok(())
    }

    fn emit_part(&mut self, part: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        let kind = match part
            .get("type")
            .and_then(|kind| kind.view().as_str())
            .as_deref()
        {
            Some("summary_text") => IrThinkingKind::Summary,
            Some("reasoning_text") => IrThinkingKind::Raw,
            _ => {
                self.emit(read_part(part)?, deltas);
                return Ok(());
            }
        };
        let block = IrContentBlock::Thinking {
            text: part.need("text")?.text()?,
            kind,
            signature: None,
            encrypted: None,
            item_id: None,
        };
        self.emit(block.into(), deltas);
        Ok(())
    }

    pub(super) fn emit_item(
        &mut self,
        item: Item<'_>,
        kind: &str,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        settle_empty(item);
        for block in model_blocks(item, kind)?.0 {
            self.emit(block, deltas);
        }
        Ok(())
    }

    /// A whole block at once.
    fn emit(&mut self, block: IrBlock, deltas: &mut Vec<IrDelta>) {
        let (start, text, citations) = match block.body {
            IrContentBlock::Text { text, citations } => (IrBlockStart::Text, text, citations),
            IrContentBlock::Refusal { text } => (IrBlockStart::Refusal, text, Vec::new()),
            IrContentBlock::Thinking {
                text,
                kind,
                encrypted,
                item_id,
                ..
            } => {
                let start = IrBlockStart::Thinking {
                    kind,
                    item_id,
                    encrypted,
                };
                (start, text, Vec::new())
            }
            IrContentBlock::ToolUse {
                id,
                name,
                input,
                item_id,
                ..
            } => {
                let custom = matches!(input, IrToolInput::Text(_));
                let text = match input {
                    IrToolInput::Json(json) => Leaf::new(json.value.into_text(), json.origin),
                    IrToolInput::Text(text) | IrToolInput::Invalid(text) => text,
                };
                let start = IrBlockStart::ToolUse {
                    id,
                    name,
                    custom,
                    item_id,
                };
                (start, text, Vec::new())
            }
            IrContentBlock::Opaque { kind, native } => {
                let start = IrBlockStart::Opaque { kind, native };
                (start, Leaf::from(""), Vec::new())
            }
            // Items of the model's side are nothing else.
            _ => return,
        };
        let number = self.start(start, deltas);
        if !text.is_empty() {
            deltas.push(append(number, text));
        }
        deltas.extend(citations.into_iter().map(|citation| IrDelta::Citation {
            choice: 0,
            block: number,
            citation,
        }));
        deltas.push(stop(number));
    }
}
