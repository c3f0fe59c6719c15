//! Writing a stream.

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlockStart, IrCitation, IrDelta, IrFinish, IrFinishReason, IrUsage, IrVendorField, Leaf,
    Origin, RawJson,
};
use abp_dialect::{Dialect, EventSink, Exchange, Fate, How, Lowering, StreamEncoder, WireFamily};

use super::chunk::{
    CHUNK, Head, put_argument, put_call, put_call_start, put_choice, put_first_model,
};
use crate::lowering::response_out::{self, Calls};
use crate::lowering::{assistant_out, error, usage};
use crate::{Flavour, wire};

/// Writes a stream.
#[derive(Debug)]
pub(crate) struct Encoder {
    flavour: &'static Flavour,
    legacy: bool,
    wants_usage: bool,
    /// The model as the caller named it.
    asked_model: Option<String>,
    head: Head,
    choices: BTreeMap<u32, Choice>,
    usage: Option<IrUsage>,
}

/// An answer in the making.
#[derive(Debug, Default)]
struct Choice {
    has_role: bool,
    /// Characters of text so far, and those before the block that is being written.
    written: u64,
    calls: u64,
    blocks: BTreeMap<u32, Block>,
    finished: Option<IrFinishReason>,
    /// Something was written after the end: the last chunk then says once more why it ended.
    resumed: bool,
}

/// What becomes of a block.
#[derive(Debug, Clone, Copy)]
enum Block {
    /// Text; so many characters stand before it.
    Text {
        before: u64,
    },
    Thinking,
    Refusal,
    Call(Call),
    /// It has no form here.
    Silent,
}

#[derive(Debug, Clone, Copy)]
struct Call {
    number: u64,
    custom: bool,
    /// Whether it has arguments so far.
    argued: bool,
}

impl Encoder {
    pub(crate) fn new(flavour: &'static Flavour, exchange: &Exchange) -> Self {
        Self {
            flavour,
            legacy: exchange.legacy_functions,
            wants_usage: exchange.include_usage != Some(false),
            asked_model: exchange.model.clone(),
            head: Head::default(),
            choices: BTreeMap::new(),
            usage: None,
        }
    }

    fn start(
        &mut self,
        id: Option<&Leaf<String>>,
        model: Option<&Leaf<String>>,
        created: Option<&Leaf<RawJson>>,
        vendor: &[IrVendorField],
        out: &mut EventSink<'_>,
    ) {
        self.head = Head {
            id: id.map_or_else(|| "chatcmpl-abp".to_owned(), |id| id.value.clone()),
            created: created.map(|created| created.value.clone()),
            model: self
                .asked_model
                .take()
                .or(model.map(|model| model.value.clone())),
        };
        let first = self.choices.entry(0).or_default();
        first.has_role = true;
        let head = &self.head;
        out.event(None, |out| {
            match id {
                Some(id) => out.put("id", id),
                None => out.made("id", &head.id, "response_id", "an answer needs an id"),
            }
            out.tag("object", CHUNK);
            match created {
                Some(created) => out.put("created", created),
                None => out.made("created", &0, "created", "the source does not say when"),
            }
            put_first_model(head.model.as_ref(), model, out);
            put_choice(0, out, |out| {
                out.tag("role", "assistant");
                out.tag("content", "");
            });
            out.put_vendor(vendor, |from, name| {
                wire::RESPONSE_MEMBERS.contains(&name) && wire::shared_member(from, name)
            });
        });
    }

    /// Writes a chunk of one choice.
    fn chunk(
        &mut self,
        choice: u32,
        out: &mut EventSink<'_>,
        fill: impl FnOnce(&mut Lowering<'_>),
    ) {
        let state = self.choices.entry(choice).or_default();
        let role = !std::mem::replace(&mut state.has_role, true);
        state.resumed |= state.finished.is_some();
        let head = &self.head;
        out.event(None, |out| {
            head.put(out);
            put_choice(choice, out, |out| {
                if role {
                    out.tag("role", "assistant");
                }
                fill(out);
            });
        });
    }

    fn block_start(
        &mut self,
        choice: u32,
        block: u32,
        start: &IrBlockStart,
        out: &mut EventSink<'_>,
    ) {
        let state = self.choices.entry(choice).or_default();
        let before = state.written;
        let begun = match start {
            IrBlockStart::Text => Block::Text { before },
            IrBlockStart::Refusal => Block::Refusal,
            IrBlockStart::Thinking {
                kind: _,
                item_id,
                encrypted,
            } => {
                drop_proof(item_id.as_ref(), "reasoning_item_id", out);
                drop_proof(encrypted.as_ref(), "encrypted_reasoning", out);
                Block::Thinking
            }
            IrBlockStart::RedactedThinking { data } => {
                drop_proof(Some(data), "redacted_thinking", out);
                Block::Silent
            }
            IrBlockStart::ToolUse {
                id,
                name,
                custom,
                item_id,
            } => {
                drop_proof(item_id.as_ref(), "item_id", out);
                self.call_start(choice, id.as_ref(), name, *custom, out)
            }
            IrBlockStart::Opaque { kind, native } => {
                let reason = format!("{kind} exists in the source's dialect only");
                dropped(native.origin, kind.clone(), reason, out);
                Block::Silent
            }
            _ => Block::Silent,
        };
        let state = self.choices.entry(choice).or_default();
        state.blocks.insert(block, begun);
    }

    fn call_start(
        &mut self,
        choice: u32,
        id: Option<&Leaf<String>>,
        name: &Leaf<String>,
        custom: bool,
        out: &mut EventSink<'_>,
    ) -> Block {
        let state = self.choices.entry(choice).or_default();
        let number = state.calls;
        state.calls += 1;
        if self.legacy {
            if let Some(id) = id {
                let how = How::Converted("named_by_call");
                out.remark(id.origin, Fate::Carried(how));
            }
            if number > 0 {
                let reason = "a function is called one at a time";
                dropped(name.origin, "parallel_call", reason, out);
                return Block::Silent;
            }
            self.chunk(choice, out, |out| {
                out.put_object("function_call", |out| {
                    out.put("name", name);
                    out.tag("arguments", "");
                });
            });
        } else {
            self.chunk(choice, out, |out| {
                put_call(number, out, |out| {
                    put_call_start(number, id, name, custom, out);
                });
            });
        }
        Block::Call(Call {
            number,
            custom,
            argued: false,
        })
    }

    fn append(&mut self, choice: u32, block: u32, text: &Leaf<String>, out: &mut EventSink<'_>) {
        let state = self.choices.entry(choice).or_default();
        let key = match state.blocks.get_mut(&block) {
            Some(Block::Text { .. }) => {
                state.written += text.chars().count() as u64;
                "content"
            }
            Some(Block::Thinking) => self.flavour.reasoning_member,
            Some(Block::Refusal) => "refusal",
            Some(Block::Call(call)) => {
                call.argued = true;
                let call = *call;
                self.arguments(choice, call, out, |key, out| put_argument(key, text, out));
                return;
            }
            Some(Block::Silent) | None => {
                let reason = "the block it belongs to has no form here";
                dropped(text.origin, "silent_block", reason, out);
                return;
            }
        };
        self.chunk(choice, out, |out| out.put(key, text));
    }

    /// Writes a piece of a call's arguments; `put` writes it under the key it is given.
    fn arguments(
        &mut self,
        choice: u32,
        call: Call,
        out: &mut EventSink<'_>,
        put: impl FnOnce(&str, &mut Lowering<'_>),
    ) {
        let legacy = self.legacy;
        self.chunk(choice, out, |out| {
            if legacy {
                out.put_object("function_call", |out| put("arguments", out));
                return;
            }
            put_call(call.number, out, |out| {
                if call.custom {
                    out.put_object("custom", |out| put("input", out));
                } else {
                    out.put_object("function", |out| put("arguments", out));
                }
            });
        });
    }

    fn signature(
        &mut self,
        choice: u32,
        block: u32,
        signature: &Leaf<String>,
        out: &mut EventSink<'_>,
    ) {
        let state = self.choices.entry(choice).or_default();
        let carried = matches!(
            out.source().map(Dialect::family),
            Some(WireFamily::GenerateContent | WireFamily::Chat)
        );
        match state.blocks.get(&block) {
            Some(Block::Call(call)) if carried && !self.legacy => {
                let number = call.number;
                self.chunk(choice, out, |out| {
                    put_call(number, out, |out| {
                        // Clients expect a piece of the function with every piece of a call.
                        out.put_object("function", |out| out.tag("arguments", ""));
                        assistant_out::put_signature(signature, out);
                    });
                });
            }
            _ => drop_proof(Some(signature), "thinking_signature", out),
        }
    }

    fn citation(
        &mut self,
        choice: u32,
        block: u32,
        citation: &IrCitation,
        out: &mut EventSink<'_>,
    ) {
        let state = self.choices.entry(choice).or_default();
        match state.blocks.get(&block) {
            Some(Block::Text { before }) if citation.url.is_some() => {
                let before = *before;
                self.chunk(choice, out, |out| {
                    out.put_array("annotations", |out| {
                        out.object(|out| assistant_out::put_citation(citation, before, out));
                    });
                });
            }
            _ => {
                let reason = "a source without an address has no form here";
                dropped(citation.native.origin, "citation", reason, out);
            }
        }
    }

    /// Ends a block. Arguments that never came are an empty object: no arguments are no JSON.
    fn block_stop(&mut self, choice: u32, block: u32, out: &mut EventSink<'_>) {
        let state = self.choices.entry(choice).or_default();
        let Some(Block::Call(call)) = state.blocks.remove(&block) else {
            return;
        };
        if !call.argued && !call.custom {
            self.arguments(choice, call, out, |key, out| {
                out.made(key, "{}", "empty_arguments", "arguments are an object");
            });
        }
    }

    fn finish(&mut self, choice: u32, finish: &IrFinish, out: &mut EventSink<'_>) {
        let state = self.choices.entry(choice).or_default();
        let was_resumed = std::mem::replace(&mut state.resumed, false);
        if state.finished.replace(finish.reason) == Some(finish.reason) && !was_resumed {
            if let Some(native) = &finish.native {
                out.carried(native.origin);
            }
            return;
        }
        let calls = match (state.calls, self.legacy) {
            (0, _) => Calls::None,
            (_, false) => Calls::Tools,
            (_, true) => Calls::Functions,
        };
        let head = &self.head;
        out.event(None, |out| {
            head.put(out);
            out.put_array("choices", |out| {
                out.object(|out| {
                    out.tag("index", &u64::from(choice));
                    out.put_object("delta", |_| {});
                    response_out::put_finish(finish, calls, out);
                });
            });
        });
    }

    /// Ends the answers that went on after their end, as Gemini's may: clients take the reason from the last
    /// chunk of an answer.
    fn finish_resumed(&mut self, out: &mut EventSink<'_>) {
        let resumed = self.choices.iter().filter(|(_, choice)| choice.resumed);
        let resumed: Vec<_> = resumed
            .filter_map(|(index, choice)| Some((*index, choice.finished?)))
            .collect();
        for (choice, reason) in resumed {
            self.finish(choice, &IrFinish::new(reason, None), out);
        }
    }

    /// Keeps counts for the last chunk, which is where they stand.
    fn count(&mut self, new: &IrUsage, out: &mut EventSink<'_>) {
        if !self.wants_usage {
            dropped(
                new.origin,
                "usage_not_asked",
                "the caller did not ask for usage",
                out,
            );
            return;
        }
        let known = self.usage.get_or_insert_default();
        let counts = [
            (&mut known.input_tokens, &new.input_tokens),
            (&mut known.output_tokens, &new.output_tokens),
            (&mut known.cache_creation_tokens, &new.cache_creation_tokens),
            (&mut known.cache_read_tokens, &new.cache_read_tokens),
            (&mut known.reasoning_tokens, &new.reasoning_tokens),
            (&mut known.total_tokens, &new.total_tokens),
        ];
        for (known, new) in counts {
            if let Some(new) = new {
                *known = Some(out.hold(new));
            }
        }
    }

    /// Writes the counts that were kept; a stream that ends in an error tells them too.
    fn write_usage(&mut self, out: &mut EventSink<'_>) {
        if let Some(counts) = self.usage.take() {
            let head = &self.head;
            out.event(None, |out| {
                head.put(out);
                out.put_array("choices", |_| {});
                usage::put(&counts, out);
            });
        }
    }
}

impl StreamEncoder for Encoder {
    fn delta(&mut self, delta: &IrDelta, out: &mut EventSink<'_>) {
        match delta {
            IrDelta::Start {
                id,
                model,
                created,
                vendor,
            } => self.start(id.as_ref(), model.as_ref(), created.as_ref(), vendor, out),
            // A choice's first chunk says who speaks: here that is always the assistant.
            IrDelta::Role { choice: _, role } => out.carried(role.origin),
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => self.block_start(*choice, *block, start, out),
            IrDelta::Append {
                choice,
                block,
                text,
            } => self.append(*choice, *block, text, out),
            IrDelta::Signature {
                choice,
                block,
                signature,
            } => self.signature(*choice, *block, signature, out),
            IrDelta::Citation {
                choice,
                block,
                citation,
            } => self.citation(*choice, *block, citation, out),
            IrDelta::BlockStop { choice, block } => self.block_stop(*choice, *block, out),
            IrDelta::Finish { choice, finish } => self.finish(*choice, finish, out),
            IrDelta::Usage(counts) => self.count(counts, out),
            IrDelta::End => {
                self.finish_resumed(out);
                self.write_usage(out);
                out.terminator("[DONE]");
            }
            IrDelta::Error(error) => {
                self.write_usage(out);
                out.event(None, |out| error::put(error, out));
            }
            // Signs of life are the connection's, and a vendor's fields belong to the first chunk.
            _ => {}
        }
    }
}

fn drop_proof(leaf: Option<&Leaf<String>>, label: &'static str, out: &mut EventSink<'_>) {
    if let Some(leaf) = leaf {
        let reason = "only its own vendor knows what it means";
        dropped(leaf.origin, label, reason, out);
    }
}

fn dropped(
    origin: Origin,
    label: impl Into<std::borrow::Cow<'static, str>>,
    reason: impl Into<std::borrow::Cow<'static, str>>,
    out: &mut EventSink<'_>,
) {
    let (label, reason) = (label.into(), reason.into());
    out.remark(origin, Fate::Dropped { label, reason });
}
