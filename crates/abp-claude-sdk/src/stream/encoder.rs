//! Writing a stream.

use std::collections::VecDeque;

use abp_core::ir::{
    IrBlockStart, IrCitation, IrDelta, IrFinish, IrFinishReason, IrUsage, IrVendorField, Leaf,
    RawJson,
};
use abp_dialect::{EventSink, Fate, StreamEncoder};

use super::events::{
    Current, Form, drop_part, write_citation, write_error, write_json_piece, write_piece,
    write_signature, write_start,
};
use super::waiting::{Waiting, hold, hold_citation};
use crate::lowering::{self, is_own};

/// Writes a stream: the message's start, its blocks one after the other, its end.
///
/// Why the answer ended and what it used are told at the very end, because some dialects tell the
/// one after the other.
#[derive(Debug)]
pub(crate) struct ClaudeEncoder {
    /// The model as the caller named it.
    model: Option<String>,
    started: bool,
    current: Option<Current>,
    waiting: VecDeque<Waiting>,
    /// The number of the next block.
    next: u64,
    usage: Option<IrUsage>,
    finish: Option<IrFinish>,
    vendor: Vec<IrVendorField>,
}

impl StreamEncoder for ClaudeEncoder {
    fn delta(&mut self, delta: &IrDelta, out: &mut EventSink<'_>) {
        match delta {
            IrDelta::Start {
                id,
                model,
                created,
                vendor,
            } => {
                if let Some(created) = created {
                    drop_part(created.origin, "created", "an answer has no date here", out);
                }
                self.start(id.as_ref(), model.as_ref(), vendor, out);
            }
            IrDelta::Role { choice: 0, role } => out.carried(role.origin),
            IrDelta::BlockStart {
                choice: 0,
                block,
                start,
            } => self.block_start(*block, start, out),
            IrDelta::Append {
                choice: 0,
                block,
                text,
            } => self.append(*block, text, out),
            IrDelta::Signature {
                choice: 0,
                block,
                signature,
            } => self.signature(*block, signature, out),
            IrDelta::Citation {
                choice: 0,
                block,
                citation,
            } => self.citation(*block, citation, out),
            IrDelta::BlockStop { choice: 0, block } => self.block_stop(*block, out),
            IrDelta::Finish { choice: 0, finish } => self.hold_finish(finish, out),
            IrDelta::Usage(usage) => self.hold_usage(usage, out),
            IrDelta::Vendor(field) => self.hold_vendor(field, out),
            IrDelta::Ping if self.started => {
                out.event(Some("ping"), |out| out.tag("type", "ping"));
            }
            IrDelta::Ping => {}
            IrDelta::End => self.end(out),
            IrDelta::Error(error) => write_error(error, out),
            other => drop_extra_choice(other, out),
        }
    }
}

impl ClaudeEncoder {
    pub(crate) fn new(model: Option<String>) -> Self {
        Self {
            model,
            started: false,
            current: None,
            waiting: VecDeque::new(),
            next: 0,
            usage: None,
            finish: None,
            vendor: Vec::new(),
        }
    }

    fn start(
        &mut self,
        id: Option<&Leaf<String>>,
        model: Option<&Leaf<String>>,
        vendor: &[IrVendorField],
        out: &mut EventSink<'_>,
    ) {
        self.started = true;
        out.event(Some("message_start"), |out| {
            out.tag("type", "message_start");
            out.put_object("message", |out| {
                lowering::write_id(id, out);
                out.tag("type", "message");
                out.tag("role", "assistant");
                lowering::write_model(model, self.model.as_deref(), out);
                out.put_array("content", |_| {});
                lowering::write_finish(None, out);
                // What the answer uses is not known yet; the end tells.
                out.put_object("usage", |out| {
                    out.tag("input_tokens", &0_u64);
                    out.tag("output_tokens", &0_u64);
                });
                lowering::put_own(vendor, out);
            });
        });
    }

    fn ensure_started(&mut self, out: &mut EventSink<'_>) {
        if !self.started {
            self.start(None, None, &[], out);
        }
    }

    fn block_start(&mut self, block: u32, start: &IrBlockStart, out: &mut EventSink<'_>) {
        self.ensure_started(out);
        let own = is_own(out.source());
        match start {
            IrBlockStart::RedactedThinking { data } if !own => {
                let reason = "only its own vendor can read it";
                drop_part(data.origin, "redacted_thinking", reason, out);
            }
            IrBlockStart::Opaque { native, .. } if !own => {
                let reason = "content that only another dialect knows";
                drop_part(native.origin, "foreign_content", reason, out);
            }
            _ if self.current.is_some() => {
                self.waiting.push_back(Waiting::new(block, start, out));
            }
            _ => self.begin(block, start, out),
        }
    }

    fn begin(&mut self, block: u32, start: &IrBlockStart, out: &mut EventSink<'_>) {
        let index = self.next;
        self.next += 1;
        let form = match start {
            IrBlockStart::Refusal => Form::Refusal,
            IrBlockStart::Thinking { .. } => Form::Thinking,
            IrBlockStart::ToolUse { custom: true, .. } => Form::FreeText,
            IrBlockStart::ToolUse { .. } => Form::Input,
            IrBlockStart::RedactedThinking { .. } | IrBlockStart::Opaque { .. } => Form::Whole,
            _ => Form::Text,
        };
        let current = Current { block, index, form };
        self.current = Some(current);
        out.event(Some("content_block_start"), |out| {
            out.tag("type", "content_block_start");
            out.tag("index", &index);
            out.key("content_block");
            write_start(start, out);
        });
        if form == Form::FreeText {
            write_json_piece(current, r#"{"input":""#, out);
        }
    }

    fn append(&mut self, block: u32, text: &Leaf<String>, out: &mut EventSink<'_>) {
        if let Some(current) = self.current.filter(|current| current.block == block) {
            write_piece(current, text, out);
        } else if let Some(waiting) = self.waiting(block) {
            let text = out.hold(text);
            waiting.text.push_str(&text);
        } else {
            drop_part(
                text.origin,
                "foreign_content",
                "it belongs to no block here",
                out,
            );
        }
    }

    fn signature(&mut self, block: u32, signature: &Leaf<String>, out: &mut EventSink<'_>) {
        if !is_own(out.source()) {
            let reason = "a signature means something to its own vendor only";
            drop_part(signature.origin, "thinking_signature", reason, out);
        } else if let Some(current) = self.current.filter(|current| current.block == block) {
            write_signature(current, signature, out);
        } else if let Some(waiting) = self.waiting(block) {
            let signature = out.hold(signature);
            waiting.signature.push_str(&signature);
        }
    }

    fn citation(&mut self, block: u32, citation: &IrCitation, out: &mut EventSink<'_>) {
        if !lowering::cites(citation, out.source(), true) {
            let reason = "the vendor cites what has an address only";
            drop_part(citation.native.origin, "citations", reason, out);
        } else if let Some(current) = self.current.filter(|current| current.block == block) {
            write_citation(current, citation, out);
        } else if let Some(waiting) = self.waiting(block) {
            let citation = hold_citation(citation, out);
            waiting.citations.push(citation);
        }
    }

    fn waiting(&mut self, block: u32) -> Option<&mut Waiting> {
        // They wait in the order of their numbers, which is that of their beginnings.
        let place = self
            .waiting
            .binary_search_by_key(&block, |waiting| waiting.block);
        self.waiting.get_mut(place.ok()?)
    }

    fn block_stop(&mut self, block: u32, out: &mut EventSink<'_>) {
        if let Some(waiting) = self.waiting(block) {
            waiting.stopped = true;
        } else if self.current.is_some_and(|current| current.block == block) {
            self.stop_current(out);
            self.next_waiting(out);
        }
    }

    fn stop_current(&mut self, out: &mut EventSink<'_>) {
        let Some(current) = self.current.take() else {
            return;
        };
        if current.form == Form::FreeText {
            write_json_piece(current, r#""}"#, out);
        }
        out.event(Some("content_block_stop"), |out| {
            out.tag("type", "content_block_stop");
            out.tag("index", &current.index);
        });
    }

    /// Gives their turn to blocks that waited, until one is not complete.
    fn next_waiting(&mut self, out: &mut EventSink<'_>) {
        while self.current.is_none() {
            let Some(waiting) = self.waiting.pop_front() else {
                return;
            };
            self.begin(waiting.block, &waiting.start, out);
            let Some(current) = self.current else {
                return;
            };
            write_piece(current, &Leaf::from(waiting.text), out);
            for citation in &waiting.citations {
                write_citation(current, citation, out);
            }
            if !waiting.signature.is_empty() {
                write_signature(current, &Leaf::from(waiting.signature), out);
            }
            if waiting.stopped {
                self.stop_current(out);
            }
        }
    }

    fn hold_finish(&mut self, finish: &IrFinish, out: &mut EventSink<'_>) {
        let own = is_own(out.source());
        let mut held = finish.clone();
        let IrFinish {
            reason,
            native,
            stop_sequence,
            details,
        } = &mut held;
        if let (false, Some(native)) = (own, native.as_ref()) {
            let (_, how) = lowering::stop_word(*reason);
            out.remark(native.origin, Fate::Carried(how));
        }
        if !own && let Some(details) = details.take() {
            let reason = "the vendor's details of an ending are its own";
            drop_part(details.origin, "finish_details", reason, out);
        }
        hold(native.as_mut(), out);
        hold(stop_sequence.as_mut(), out);
        hold(details.as_mut(), out);
        self.finish = Some(held);
    }

    fn hold_usage(&mut self, usage: &IrUsage, out: &mut EventSink<'_>) {
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
        for (known, new) in [
            (&mut known.input_tokens, input_tokens),
            (&mut known.output_tokens, output_tokens),
            (&mut known.cache_creation_tokens, cache_creation_tokens),
            (&mut known.cache_read_tokens, cache_read_tokens),
            (&mut known.reasoning_tokens, reasoning_tokens),
            (&mut known.total_tokens, total_tokens),
        ] {
            if let Some(new) = new {
                *known = Some(out.hold(new));
            }
        }
        if is_own(out.source()) {
            for field in vendor {
                hold_field(&mut known.vendor, field, out);
            }
        }
    }

    fn hold_vendor(&mut self, field: &IrVendorField, out: &mut EventSink<'_>) {
        if is_own(out.source()) {
            hold_field(&mut self.vendor, field, out);
        }
    }

    fn end(&mut self, out: &mut EventSink<'_>) {
        self.ensure_started(out);
        let broken = IrFinish::new(IrFinishReason::Incomplete, None);
        let finish = self.finish.take().unwrap_or(broken);
        out.event(Some("message_delta"), |out| {
            out.tag("type", "message_delta");
            out.put_object("delta", |out| {
                lowering::write_finish(Some(&finish), out);
                out.put_vendor(&self.vendor, |_, name| name == "container");
            });
            out.put_object("usage", |out| {
                lowering::write_usage(self.usage.as_ref(), out);
            });
            out.put_vendor(&self.vendor, |_, name| name != "container");
        });
        out.event(Some("message_stop"), |out| out.tag("type", "message_stop"));
    }
}

fn hold_field(known: &mut Vec<IrVendorField>, field: &IrVendorField, out: &mut EventSink<'_>) {
    let value: Leaf<RawJson> = out.hold(&field.value);
    match known.iter_mut().find(|known| known.name == field.name) {
        Some(known) => known.value = value,
        None => known.push(IrVendorField {
            name: field.name.clone(),
            value,
        }),
    }
}

/// The vendor gives one answer; the parts of any other are left out.
fn drop_extra_choice(delta: &IrDelta, out: &mut EventSink<'_>) {
    let origins = match delta {
        IrDelta::Append { text, .. } => vec![text.origin],
        IrDelta::Signature { signature, .. } => vec![signature.origin],
        IrDelta::Citation { citation, .. } => vec![citation.native.origin],
        IrDelta::Finish { finish, .. } => finish.native.iter().map(|leaf| leaf.origin).collect(),
        IrDelta::BlockStart {
            start: IrBlockStart::ToolUse { id, name, .. },
            ..
        } => id.iter().chain([name]).map(|leaf| leaf.origin).collect(),
        _ => Vec::new(),
    };
    for origin in origins {
        drop_part(origin, "extra_choices", "the vendor gives one answer", out);
    }
}
