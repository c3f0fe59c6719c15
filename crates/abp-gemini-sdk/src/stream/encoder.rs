//! Writing a stream.

use std::borrow::Cow;
use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlockStart, IrCitation, IrDelta, IrFinish, IrToolInput, IrUsage, IrVendorField, Leaf, Origin,
    RawJson,
};
use abp_dialect::{Dialect, EventSink, Fate, How, Lowering, StreamEncoder};
use abp_json::{Kind, Limits, Tape};

use crate::grounding::{self, Chunk, Widths, Written};
use crate::lowering::{write_arguments, write_error_body, write_finish, write_usage};
use crate::wire::{SIGNATURE, finish_word};

/// Writes a stream. Calls are written whole, and what ends an answer is written in one last piece.
#[derive(Debug)]
pub(crate) struct GeminiEncoder {
    /// The model as the caller named it.
    alias: Option<String>,
    id: Option<String>,
    model: Option<String>,
    choices: BTreeMap<u32, Choice>,
    usage: Option<IrUsage>,
    over: bool,
}

#[derive(Debug, Default)]
struct Choice {
    blocks: BTreeMap<u32, Block>,
    citations: Vec<Written>,
    finish: Option<IrFinish>,
}

/// A block that was begun.
#[derive(Debug)]
enum Block {
    Text(Widths),
    Refusal,
    Thought,
    Call(Call),
    /// Complete, or without a place here.
    Done,
}

#[derive(Debug)]
struct Call {
    id: Option<Leaf<String>>,
    name: Leaf<String>,
    custom: bool,
    arguments: String,
    signature: Option<Leaf<String>>,
}

impl StreamEncoder for GeminiEncoder {
    fn delta(&mut self, delta: &IrDelta, out: &mut EventSink<'_>) {
        if self.over {
            return;
        }
        match delta {
            IrDelta::Start {
                id,
                model,
                created,
                vendor: _,
            } => {
                self.id = id.as_ref().map(|id| out.hold(id).value);
                self.model = model.as_ref().map(|model| out.hold(model).value);
                if let Some(created) = created {
                    lose(
                        created.origin,
                        "created",
                        "Gemini does not say when it answered",
                        out,
                    );
                }
            }
            IrDelta::Role { role, .. } => out.carried(role.origin),
            IrDelta::BlockStart {
                choice,
                block,
                start,
            } => self.begin(*choice, *block, start, out),
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
            IrDelta::BlockStop { choice, block } => self.stop(*choice, *block, out),
            IrDelta::Finish { choice, finish } => {
                self.choices.entry(*choice).or_default().finish = Some(held_finish(finish, out));
            }
            IrDelta::Usage(usage) => self.usage(usage, out),
            IrDelta::Vendor(field)
                if field.name == SIGNATURE && out.source() == Some(Dialect::Gemini) =>
            {
                self.piece(0, out, |out| {
                    out.tag("text", "");
                    out.put(SIGNATURE, &field.value);
                });
            }
            IrDelta::End => self.end(out),
            IrDelta::Error(error) => {
                self.over = true;
                out.event(None, |out| {
                    write_error_body(error, out);
                });
            }
            _ => {}
        }
    }
}

impl GeminiEncoder {
    pub(crate) fn new(alias: Option<String>) -> Self {
        Self {
            alias,
            id: None,
            model: None,
            choices: BTreeMap::new(),
            usage: None,
            over: false,
        }
    }

    fn begin(&mut self, choice: u32, block: u32, start: &IrBlockStart, out: &mut EventSink<'_>) {
        let begun = match start {
            IrBlockStart::Text => Block::Text(Widths::default()),
            IrBlockStart::Refusal => Block::Refusal,
            IrBlockStart::Thinking {
                kind: _,
                item_id,
                encrypted,
            } => {
                let reason = "only the vendor that gave it can use it";
                if let Some(id) = item_id {
                    lose(id.origin, "item_id", reason, out);
                }
                if let Some(encrypted) = encrypted {
                    lose(encrypted.origin, "encrypted_reasoning", reason, out);
                }
                Block::Thought
            }
            IrBlockStart::RedactedThinking { data } => {
                let reason = "only the vendor that hid it can read it";
                lose(data.origin, "redacted_thinking", reason, out);
                Block::Done
            }
            IrBlockStart::ToolUse {
                id,
                name,
                custom,
                item_id,
            } => {
                if let Some(id) = item_id {
                    lose(id.origin, "item_id", "Gemini has one id for a call", out);
                }
                Block::Call(Call {
                    id: id.as_ref().map(|id| out.hold(id)),
                    name: out.hold(name),
                    custom: *custom,
                    arguments: String::new(),
                    signature: None,
                })
            }
            IrBlockStart::Opaque { kind, native } => {
                self.opaque(choice, kind, native, out);
                Block::Done
            }
            _ => Block::Done,
        };
        let blocks = &mut self.choices.entry(choice).or_default().blocks;
        blocks.insert(block, begun);
    }

    fn opaque(&self, choice: u32, kind: &str, native: &Leaf<RawJson>, out: &mut EventSink<'_>) {
        if out.source() == Some(Dialect::Gemini) {
            self.candidate(choice, out, |out| out.value(native));
        } else {
            let reason = format!("{kind} exists in its own dialect only");
            lose(native.origin, "opaque_block", reason, out);
        }
    }

    fn block(&mut self, choice: u32, block: u32) -> Option<&mut Block> {
        self.choices.get_mut(&choice)?.blocks.get_mut(&block)
    }

    fn append(&mut self, choice: u32, block: u32, text: &Leaf<String>, out: &mut EventSink<'_>) {
        match self.block(choice, block) {
            Some(Block::Text(widths)) => {
                widths.push(text);
                self.piece(choice, out, |out| out.put("text", text));
            }
            Some(Block::Refusal) => {
                let how = How::degraded("refusal", "Gemini has no words for a refusal but text");
                self.piece(choice, out, |out| {
                    out.put_as("text", &text.value, &[text.origin], &how);
                });
            }
            Some(Block::Thought) => self.piece(choice, out, |out| {
                out.put("text", text);
                out.tag("thought", &true);
            }),
            Some(Block::Call(call)) => call.arguments.push_str(&out.hold(text)),
            Some(Block::Done) | None => {
                lose(
                    text.origin,
                    "opaque_block",
                    "Gemini has no such content",
                    out,
                );
            }
        }
    }

    fn signature(
        &mut self,
        choice: u32,
        block: u32,
        proof: &Leaf<String>,
        out: &mut EventSink<'_>,
    ) {
        let own = out.source() == Some(Dialect::Gemini);
        match self.block(choice, block) {
            Some(Block::Call(call)) => {
                let more = out.hold(proof);
                let known = call.signature.get_or_insert_default();
                known.value.push_str(&more);
            }
            Some(Block::Thought) if own => self.piece(choice, out, |out| {
                out.tag("text", "");
                out.tag("thought", &true);
                out.put(SIGNATURE, proof);
            }),
            _ => {
                let reason = "the proof is another vendor's";
                lose(proof.origin, "thinking_signature", reason, out);
            }
        }
    }

    fn citation(&mut self, choice: u32, block: u32, cited: &IrCitation, out: &mut EventSink<'_>) {
        let own = out.source() == Some(Dialect::Gemini);
        let Some(Block::Text(widths)) = self.block(choice, block) else {
            let reason = "Gemini cites for texts";
            return lose(cited.native.origin, "citations", reason, out);
        };
        let part = u64::from(block);
        let planned = grounding::plan(cited, part, widths, own, |origin, reason| {
            lose(origin, "citations", reason, out);
        });
        let Some(planned) = planned else { return };
        let range = planned.range.map(|(start, end, from)| {
            from.into_iter().for_each(|origin| out.carried(origin));
            (start, end, [Origin::Host; 2])
        });
        let chunk = match planned.chunk {
            Chunk::Web { url, title } => Chunk::Web {
                url: out.hold(&url),
                title: title.map(|title| out.hold(&title)),
            },
            Chunk::Own(native) => Chunk::Own(out.hold(&native)),
        };
        let planned = Written { part, chunk, range };
        self.choices
            .entry(choice)
            .or_default()
            .citations
            .push(planned);
    }

    fn stop(&mut self, choice: u32, block: u32, out: &mut EventSink<'_>) {
        let Some(open) = self.block(choice, block) else {
            return;
        };
        // The widths of a text are of no use once its citations are known.
        let Block::Call(call) = std::mem::replace(open, Block::Done) else {
            return;
        };
        let Call {
            id,
            name,
            custom,
            arguments,
            signature,
        } = call;
        let input = arguments_of(arguments, custom);
        self.piece(choice, out, |out| {
            out.put_object("functionCall", |out| {
                out.put_opt("id", id.as_ref());
                out.put("name", &name);
                write_arguments(&input, out);
            });
            out.put_opt(SIGNATURE, signature.as_ref());
        });
    }

    /// Keeps the newest of each count.
    fn usage(&mut self, usage: &IrUsage, out: &mut EventSink<'_>) {
        let IrUsage {
            input_tokens,
            output_tokens,
            cache_creation_tokens,
            cache_read_tokens,
            reasoning_tokens,
            total_tokens,
            vendor,
            origin: _,
        } = usage;
        let known = self.usage.get_or_insert_default();
        if out.source() == Some(Dialect::Gemini) {
            known.vendor = vendor.iter().map(|field| held_field(field, out)).collect();
        }
        let pairs = [
            (&mut known.input_tokens, input_tokens),
            (&mut known.output_tokens, output_tokens),
            (&mut known.cache_read_tokens, cache_read_tokens),
            (&mut known.reasoning_tokens, reasoning_tokens),
            (&mut known.total_tokens, total_tokens),
        ];
        for (known, new) in pairs {
            if let Some(new) = new {
                *known = Some(out.hold(new));
            }
        }
        if let Some(created) = cache_creation_tokens {
            let reason = "Gemini does not count tokens that are written to a cache";
            lose(created.origin, "cache_creation_tokens", reason, out);
        }
    }

    /// The last piece: why each candidate ended, its sources, and what all of it used.
    fn end(&mut self, out: &mut EventSink<'_>) {
        self.over = true;
        out.event(None, |out| {
            out.put_array("candidates", |out| {
                for (index, choice) in &self.choices {
                    out.object(|out| {
                        write_content(out, |out| out.object(|out| out.tag("text", "")));
                        if let Some(finish) = &choice.finish {
                            write_finish(finish, finish.native.is_some(), out);
                        }
                        out.tag("index", &u64::from(*index));
                        grounding::write(&choice.citations, out);
                    });
                }
            });
            // Fields of other vendors were not kept in the first place.
            if let Some(usage) = &self.usage {
                write_usage(usage, true, out);
            }
            self.names(out);
        });
    }

    /// Writes an event with one more part of a candidate.
    fn piece<'s>(
        &self,
        choice: u32,
        out: &mut EventSink<'s>,
        fill: impl FnOnce(&mut Lowering<'s>),
    ) {
        self.candidate(choice, out, |out| out.object(fill));
    }

    fn candidate<'s>(
        &self,
        choice: u32,
        out: &mut EventSink<'s>,
        part: impl FnOnce(&mut Lowering<'s>),
    ) {
        out.event(None, |out| {
            out.put_array("candidates", |out| {
                out.object(|out| {
                    write_content(out, part);
                    out.tag("index", &u64::from(choice));
                });
            });
            self.names(out);
        });
    }

    fn names(&self, out: &mut Lowering<'_>) {
        if let Some(model) = self.alias.as_ref().or(self.model.as_ref()) {
            out.tag("modelVersion", model);
        }
        if let Some(id) = &self.id {
            out.tag("responseId", id);
        }
    }
}

fn write_content<'s>(out: &mut Lowering<'s>, part: impl FnOnce(&mut Lowering<'s>)) {
    out.put_object("content", |out| {
        out.put_array("parts", part);
        out.tag("role", "model");
    });
}

fn lose(
    origin: Origin,
    label: &'static str,
    reason: impl Into<Cow<'static, str>>,
    out: &mut EventSink<'_>,
) {
    let (label, reason) = (label.into(), reason.into());
    out.remark(origin, Fate::Dropped { label, reason });
}

fn held_field(field: &IrVendorField, out: &mut EventSink<'_>) -> IrVendorField {
    IrVendorField {
        name: field.name.clone(),
        value: out.hold(&field.value),
    }
}

/// The end of a candidate, kept for the last piece: in the vendor's own word, or without one. Losses
/// are remarked on now.
fn held_finish(finish: &IrFinish, out: &mut EventSink<'_>) -> IrFinish {
    let IrFinish {
        reason,
        native,
        stop_sequence,
        details,
    } = finish;
    if out.source() == Some(Dialect::Gemini) {
        return IrFinish {
            details: details.as_ref().map(|details| out.hold(details)),
            ..IrFinish::new(*reason, native.as_ref().map(|word| out.hold(word)))
        };
    }
    let (word, exact) = finish_word(*reason);
    if let Some(native) = native {
        if !exact {
            let reason = format!("{word} is the nearest word that Gemini has for this end");
            let how = How::degraded("finish_reason", reason);
            out.remark(native.origin, Fate::Carried(how));
        }
        out.carried(native.origin);
    }
    if let Some(sequence) = stop_sequence {
        let reason = "Gemini does not say which stop sequence it met";
        lose(sequence.origin, "stop_sequence", reason, out);
    }
    if let Some(details) = details {
        let reason = "Gemini has no place for more about an end";
        lose(details.origin, "finish_details", reason, out);
    }
    IrFinish::new(*reason, None)
}

/// Arguments as JSON where they are an object.
fn arguments_of(text: String, custom: bool) -> IrToolInput {
    if custom {
        return IrToolInput::Text(text.into());
    }
    let text = if text.trim().is_empty() {
        "{}".to_owned()
    } else {
        text
    };
    let object = Tape::parse_str(&text, &Limits::default())
        .is_ok_and(|tape| tape.root().kind() == Kind::Object);
    if object {
        IrToolInput::Json(RawJson::trusted(text).into())
    } else {
        IrToolInput::Invalid(text.into())
    }
}
