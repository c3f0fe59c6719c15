//! Blocks that only this dialect knows and that come in pieces.
//!
//! Elsewhere such a block is one value, so it is kept until it is complete: a server's call until
//! its input is there, a compaction until its text is.

use abp_core::ir::RawJson;
use abp_dialect::Item;
use abp_json::{Kind, Limits, Tape, Writer};

/// A block that is not complete.
#[derive(Debug)]
pub(super) struct Held {
    kind: String,
    /// The block as it began.
    start: String,
    /// The member that comes in pieces.
    member: &'static str,
    pieces: String,
}

impl Held {
    /// A block whose beginning shows that pieces will follow; `None` where it is complete.
    pub(super) fn begin(block: Item<'_>, kind: &str) -> Option<Self> {
        let empty_input = |item: &Item<'_>| item.kind() == Kind::Object && item.view().is_empty();
        let member = if block.get("input").as_ref().is_some_and(empty_input) {
            "input"
        } else if block
            .get("content")
            .is_some_and(|content| content.view().is_null())
        {
            "content"
        } else {
            return None;
        };
        Some(Self {
            kind: kind.to_owned(),
            start: block.view().raw().to_owned(),
            member,
            pieces: String::new(),
        })
    }

    /// Takes a piece, where the delta is one of this block.
    pub(super) fn take(&mut self, delta: Item<'_>) -> bool {
        let key = match self.member {
            "input" => "partial_json",
            _ => "content",
        };
        let Some(piece) = delta.some(key) else {
            return false;
        };
        let Some(text) = piece.view().as_str() else {
            return false;
        };
        self.pieces.push_str(&text);
        piece.repeats();
        true
    }

    /// The type of the block, and all of it.
    pub(super) fn finish(self) -> (String, RawJson) {
        let whole = self.whole();
        (self.kind, RawJson::trusted(whole.unwrap_or(self.start)))
    }

    fn whole(&self) -> Option<String> {
        if self.pieces.is_empty() {
            return None;
        }
        let limits = Limits::default();
        let tape = Tape::parse_str(&self.start, &limits).ok()?;
        let is_object = |json: &str| {
            Tape::parse_str(json, &limits).is_ok_and(|tape| tape.root().kind() == Kind::Object)
        };
        let mut writer = Writer::with_capacity(self.start.len() + self.pieces.len());
        writer.begin_object();
        for (key, value) in tape.root().entries() {
            let key = key.as_str()?;
            writer.key(&key);
            match key.as_ref() {
                name if name != self.member => writer.raw(value.raw()),
                "input" if is_object(&self.pieces) => writer.raw(&self.pieces),
                _ => writer.string(&self.pieces),
            }
        }
        writer.end_object();
        Some(writer.into_text())
    }
}
