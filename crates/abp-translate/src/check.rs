//! Judging the text of a streamed answer before its end is told.

use std::collections::BTreeSet;

use abp_core::ir::{IrBlockStart, IrDelta, IrError};

/// Says what is wrong with the text of an answer, if anything is.
pub type TextCheck = Box<dyn Fn(&str) -> Option<IrError> + Send + Sync>;

/// Gathers the text of the first choice. Where it is found wanting, the answer ends in the error instead
/// of its own end; what was said cannot be taken back.
pub(crate) struct CheckedText {
    check: TextCheck,
    text: String,
    blocks: BTreeSet<u32>,
    failed: Option<IrError>,
}

impl CheckedText {
    pub(crate) fn new(check: TextCheck) -> Self {
        Self {
            check,
            text: String::new(),
            blocks: BTreeSet::new(),
            failed: None,
        }
    }

    /// What a piece is after the check; `None` where it is held back because the check failed.
    pub(crate) fn piece(&mut self, piece: IrDelta) -> Option<IrDelta> {
        match &piece {
            IrDelta::BlockStart {
                choice: 0,
                block,
                start: IrBlockStart::Text,
            } => {
                self.blocks.insert(*block);
            }
            IrDelta::Append {
                choice: 0,
                block,
                text,
            } if self.blocks.contains(block) => self.text.push_str(text),
            IrDelta::Finish { choice: 0, .. } => self.failed = (self.check)(&self.text),
            IrDelta::End => {
                if let Some(error) = self.failed.take() {
                    return Some(IrDelta::Error(error));
                }
            }
            _ => {}
        }
        self.failed.is_none().then_some(piece)
    }
}
