//! Streams with events of Copilot's extensions among the chunks.

use abp_core::ir::IrDelta;
use abp_dialect::{DialectError, How, Item, StreamDecoder};
use abp_json::Kind;

use crate::wire;

/// Reads a stream.
pub(crate) struct Decoder {
    chat: Box<dyn StreamDecoder>,
}

impl Decoder {
    pub(crate) fn new(chat: Box<dyn StreamDecoder>) -> Self {
        Self { chat }
    }
}

impl StreamDecoder for Decoder {
    fn event(
        &mut self,
        name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let known = |extension: &&&str| name == Some(**extension);
        if let Some(extension) = wire::EXTENSIONS.iter().find(known) {
            // It is Copilot's own, and says nothing of the answer.
            drop(data.vendor(extension));
            let reason = "events of extensions have no counterpart";
            data.note(How::degraded(extension, reason));
            return Ok(());
        }
        self.chat.event(name, data, deltas)?;
        if data.kind() == Kind::Object {
            drop(data.vendor_fields(wire::EXTENSIONS));
        }
        Ok(())
    }

    fn terminator(&mut self, deltas: &mut Vec<IrDelta>) {
        self.chat.terminator(deltas);
    }

    fn end(&mut self, deltas: &mut Vec<IrDelta>) {
        self.chat.end(deltas);
    }
}
