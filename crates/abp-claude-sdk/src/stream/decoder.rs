//! Reading a stream.

use abp_core::ir::{
    IrBlockStart, IrDelta, IrFinish, IrFinishReason, IrRole, IrThinkingKind, Leaf, Origin,
};
use abp_dialect::{DialectError, How, Item, MAX_OPEN_BLOCKS, StreamDecoder};

use super::held::Held;
use crate::lowering;
use crate::wire::{self, BlockType};

/// Reads a stream.
#[derive(Debug, Default)]
pub(crate) struct ClaudeDecoder {
    open: Vec<Open>,
    /// The number of the next block.
    next: u32,
    /// Tokens from or into a cache, as the start of the message counts them.
    cached: u64,
    finished: bool,
    over: bool,
}

/// A block that was started.
#[derive(Debug)]
struct Open {
    /// Its number in the source.
    index: u64,
    state: State,
    /// How many characters of text it has so far.
    length: u64,
}

#[derive(Debug)]
enum State {
    /// It began under this number and takes deltas.
    Begun(u32),
    /// It begins when it is complete.
    Held(Held),
}

impl StreamDecoder for ClaudeDecoder {
    fn event(
        &mut self,
        name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if self.over {
            return Ok(());
        }
        let tag = lowering::object(data)?.tag_of("type");
        let kind = tag.as_deref().or(name).unwrap_or_default();
        match kind {
            "message_start" => self.message_start(data, deltas)?,
            // No block belongs to an answer that ended.
            "content_block_start" | "content_block_delta" | "content_block_stop"
                if self.finished => {}
            "content_block_start" => self.block_start(data, deltas)?,
            "content_block_delta" => self.block_delta(data, deltas)?,
            "content_block_stop" => self.block_stop(data, deltas),
            "message_delta" => self.message_delta(data, deltas)?,
            "message_stop" => self.finish(deltas),
            "ping" => deltas.push(IrDelta::Ping),
            "error" => {
                self.over = true;
                deltas.push(IrDelta::Error(lowering::read_error(data, None)?));
            }
            // Whatever else the vendor may send is left unread, and reported.
            _ => {}
        }
        Ok(())
    }

    fn terminator(&mut self, deltas: &mut Vec<IrDelta>) {
        self.finish(deltas);
    }

    fn end(&mut self, deltas: &mut Vec<IrDelta>) {
        self.finish(deltas);
    }
}

impl ClaudeDecoder {
    fn message_start(
        &mut self,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let message = lowering::object(data.need("message")?)?;
        if let Some(tag) = message.get("type") {
            tag.structure();
        }
        deltas.push(IrDelta::Start {
            id: message.opt_text("id")?,
            model: message.opt_text("model")?,
            created: None,
            vendor: message.vendor_fields(wire::RESPONSE_VENDOR),
        });
        if let Some(role) = message.some("role") {
            role.structure();
            deltas.push(IrDelta::Role {
                choice: 0,
                role: Leaf::new(IrRole::Assistant, role.origin()),
            });
        }
        if let Some(usage) = message.some("usage") {
            self.usage(usage, deltas)?;
        }
        Ok(())
    }

    fn usage(&mut self, item: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        let usage = lowering::read_usage(item, self.cached)?;
        let created = usage.cache_creation_tokens.as_ref();
        let read = usage.cache_read_tokens.as_ref();
        self.cached = lowering::cached_tokens(created, read).unwrap_or(self.cached);
        deltas.push(IrDelta::Usage(usage));
        Ok(())
    }

    fn block_start(
        &mut self,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if self.open.len() >= MAX_OPEN_BLOCKS {
            return Err(DialectError::too_many_open("blocks"));
        }
        let index = read_index(data);
        let block = lowering::object(data.need("content_block")?)?;
        let tag = block.need("type")?;
        let word = tag.tag().ok_or_else(|| tag.wrong("a string"))?;
        let start = match BlockType::of(&word) {
            Some(BlockType::Text) => IrBlockStart::Text,
            Some(BlockType::Thinking) => IrBlockStart::Thinking {
                kind: IrThinkingKind::Raw,
                item_id: None,
                encrypted: None,
            },
            Some(BlockType::RedactedThinking) => IrBlockStart::RedactedThinking {
                data: block.need("data")?.text()?,
            },
            Some(BlockType::ToolUse) => start_call(block)?,
            _ => {
                self.opaque_start(index, block, &word, deltas);
                return Ok(());
            }
        };
        let number = self.begin(start, deltas);
        self.open.push(Open {
            index,
            state: State::Begun(number),
            length: block.some("text").map_or(0, characters),
        });
        first_pieces(block, number, deltas)
    }

    fn opaque_start(&mut self, index: u64, block: Item<'_>, word: &str, deltas: &mut Vec<IrDelta>) {
        let state = if let Some(held) = Held::begin(block, word) {
            block.repeats();
            State::Held(held)
        } else {
            let start = IrBlockStart::Opaque {
                kind: word.to_owned(),
                native: block.raw(),
            };
            State::Begun(self.begin(start, deltas))
        };
        self.open.push(Open {
            index,
            state,
            length: 0,
        });
    }

    fn begin(&mut self, start: IrBlockStart, deltas: &mut Vec<IrDelta>) -> u32 {
        let block = self.next;
        self.next += 1;
        deltas.push(IrDelta::BlockStart {
            choice: 0,
            block,
            start,
        });
        block
    }

    /// Deltas of blocks that are not open are left unread, and so is what no block takes.
    fn block_delta(
        &mut self,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let index = read_index(data);
        let delta = data.need("delta")?.object()?;
        let Some(open) = self.open.iter_mut().find(|open| open.index == index) else {
            return Ok(());
        };
        let kind = delta.tag_of("type").unwrap_or_default();
        let Open { state, length, .. } = open;
        let block = match state {
            State::Begun(block) => *block,
            State::Held(held) => {
                held.take(delta);
                return Ok(());
            }
        };
        let member = match kind.as_ref() {
            "text_delta" => "text",
            "thinking_delta" => "thinking",
            "input_json_delta" => "partial_json",
            "signature_delta" => {
                deltas.push(IrDelta::Signature {
                    choice: 0,
                    block,
                    signature: delta.need("signature")?.text()?,
                });
                return Ok(());
            }
            "citations_delta" => {
                deltas.push(IrDelta::Citation {
                    choice: 0,
                    block,
                    citation: lowering::read_citation(delta.need("citation")?, *length)?,
                });
                return Ok(());
            }
            _ => return Ok(()),
        };
        let piece = delta.need(member)?;
        *length += characters(piece);
        deltas.push(append(block, piece.text()?));
        Ok(())
    }

    fn block_stop(&mut self, data: Item<'_>, deltas: &mut Vec<IrDelta>) {
        let index = read_index(data);
        let Some(at) = self.open.iter().position(|open| open.index == index) else {
            return;
        };
        let open = self.open.swap_remove(at);
        let mut origin = Origin::Host;
        if let (State::Held(_), Some(index)) = (&open.state, data.get("index")) {
            // The event that completes a block stands for all of it.
            index.taken();
            index.note(How::Converted("streamed_block"));
            origin = index.origin();
        }
        self.stop(open, origin, deltas);
    }

    fn stop(&mut self, open: Open, origin: Origin, deltas: &mut Vec<IrDelta>) {
        let block = match open.state {
            State::Begun(block) => block,
            State::Held(held) => {
                let (kind, native) = held.finish();
                let native = Leaf::new(native, origin);
                self.begin(IrBlockStart::Opaque { kind, native }, deltas)
            }
        };
        deltas.push(IrDelta::BlockStop { choice: 0, block });
    }

    fn stop_all(&mut self, deltas: &mut Vec<IrDelta>) {
        for open in std::mem::take(&mut self.open) {
            self.stop(open, Origin::Host, deltas);
        }
    }

    fn message_delta(
        &mut self,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if let Some(delta) = data.some("delta") {
            if let Some(finish) = lowering::read_finish(lowering::object(delta)?)? {
                self.stop_all(deltas);
                self.finished = true;
                deltas.push(IrDelta::Finish { choice: 0, finish });
            }
            let fields = delta.vendor_fields(wire::RESPONSE_VENDOR);
            deltas.extend(fields.into_iter().map(IrDelta::Vendor));
        }
        if let Some(usage) = data.some("usage") {
            self.usage(usage, deltas)?;
        }
        let fields = data.vendor_fields(wire::RESPONSE_VENDOR);
        deltas.extend(fields.into_iter().map(IrDelta::Vendor));
        Ok(())
    }

    /// Closes what is open. An answer of which nobody said why it ended broke off.
    fn finish(&mut self, deltas: &mut Vec<IrDelta>) {
        if self.over {
            return;
        }
        self.stop_all(deltas);
        if !self.finished {
            deltas.push(IrDelta::Finish {
                choice: 0,
                finish: IrFinish::new(IrFinishReason::Incomplete, None),
            });
        }
        deltas.push(IrDelta::End);
        self.over = true;
    }
}

/// How many characters a text has.
fn characters(text: Item<'_>) -> u64 {
    text.view()
        .as_str_lossy()
        .map_or(0, |text| text.chars().count() as u64)
}

fn append(block: u32, text: Leaf<String>) -> IrDelta {
    IrDelta::Append {
        choice: 0,
        block,
        text,
    }
}

/// The number of a block in the source. Blocks come one after the other, so that a source that
/// numbers none of them can be read as well.
fn read_index(data: Item<'_>) -> u64 {
    let Some(index) = data.get("index") else {
        return 0;
    };
    index.structure();
    index.view().as_u64().unwrap_or_default()
}

fn start_call(block: Item<'_>) -> Result<IrBlockStart, DialectError> {
    if let Some(caller) = block.some("caller") {
        // A call that the model makes itself is what every call is elsewhere.
        match caller
            .get("type")
            .and_then(|word| word.view().as_str())
            .as_deref()
        {
            Some("direct") => caller.structure(),
            _ => drop(caller.vendor("caller")),
        }
    }
    Ok(IrBlockStart::ToolUse {
        id: block.opt_text("id")?,
        name: block.need("name")?.text()?,
        custom: false,
        item_id: None,
    })
}

/// What a block holds when it begins: nothing as a rule, all of it with some servers.
fn first_pieces(
    block: Item<'_>,
    number: u32,
    deltas: &mut Vec<IrDelta>,
) -> Result<(), DialectError> {
    for key in ["text", "thinking"] {
        match block.some(key) {
            Some(text) if text.view().raw() == r#""""# => text.structure(),
            Some(text) => deltas.push(append(number, text.text()?)),
            None => {}
        }
    }
    if let Some(signature) = lowering::read_signature(block)? {
        deltas.push(IrDelta::Signature {
            choice: 0,
            block: number,
            signature,
        });
    }
    let length = block.some("text").map_or(0, characters);
    for citation in block.some("citations").into_iter().flat_map(Item::items) {
        deltas.push(IrDelta::Citation {
            choice: 0,
            block: number,
            citation: lowering::read_citation(citation, length)?,
        });
    }
    if let Some(input) = block.some("input").filter(|input| !input.view().is_empty()) {
        input.taken();
        input.note(How::Converted("json_in_text"));
        let text = input.object()?.view().raw().to_owned();
        deltas.push(append(number, Leaf::new(text, input.origin())));
    }
    Ok(())
}
