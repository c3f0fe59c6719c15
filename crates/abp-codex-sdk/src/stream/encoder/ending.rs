//! How a streamed answer ends: why, at what cost, or in an error.

use abp_core::ir::{
    IrBlockStart, IrContentBlock, IrError, IrFinish, IrFinishReason, IrUsage, IrVendorField, Leaf,
};
use abp_dialect::{EventSink, Fate, How, Lowering};

use super::Encoder;
use crate::lowering::{
    constant, is_own, refusal, write_echo, write_ending, write_head, write_item, write_usage,
};
use crate::stream::origins::drop_part;
use crate::wire::{self, Ending, Streamed};

/// The number of a block that ABP adds itself.
const OWN_BLOCK: u32 = u32::MAX;

impl Encoder {
    pub(super) fn finish(&mut self, finish: &IrFinish, out: &mut EventSink<'_>) {
        let IrFinish {
            reason,
            native,
            stop_sequence,
            details,
        } = finish;
        let refused = self.items.iter().flat_map(|item| &item.parts);
        let says_so = refused
            .into_iter()
            .any(|part| part.streamed == Streamed::Refusal);
        if *reason == IrFinishReason::Refusal && !says_so {
            self.refuse(out);
        }
        self.seal(out);
        let native = native.as_ref().map(|native| {
            let is_kept = is_own(out.source()) && wire::is_unknown_word(*reason, native);
            if is_kept || Ending::of(*reason).1 {
                out.hold(native)
            } else {
                let how = How::degraded("finish_reason", "OpenAI Responses has no such end");
                out.remark(native.origin, Fate::Carried(how));
                Leaf::from(native.value.clone())
            }
        });
        if let Some(text) = stop_sequence {
            let why = "which text ended the answer has no place";
            drop_part(text.origin, "stop_sequence", why, out);
        }
        if let Some(details) = details {
            let why = "more about the end has no place";
            drop_part(details.origin, "finish_details", why, out);
        }
        self.finish = Some(IrFinish::new(*reason, native));
    }

    /// Clients look for a refusal in the content.
    fn refuse(&mut self, out: &mut EventSink<'_>) {
        if let IrContentBlock::Refusal { text } = refusal() {
            self.block_start(OWN_BLOCK, &IrBlockStart::Refusal, out);
            self.append(OWN_BLOCK, &text, out);
            self.block_stop(OWN_BLOCK, out);
        }
    }

    pub(super) fn count(&mut self, usage: &IrUsage, out: &mut EventSink<'_>) {
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
        let pairs = [
            (&mut known.input_tokens, input_tokens),
            (&mut known.output_tokens, output_tokens),
            (&mut known.cache_creation_tokens, cache_creation_tokens),
            (&mut known.cache_read_tokens, cache_read_tokens),
            (&mut known.reasoning_tokens, reasoning_tokens),
            (&mut known.total_tokens, total_tokens),
        ];
        for (kept, new) in pairs {
            if let Some(new) = new {
                *kept = Some(out.hold(new));
            }
        }
        if is_own(out.source()) {
            known.vendor = vendor
                .iter()
                .map(|field| IrVendorField {
                    name: field.name.clone(),
                    value: out.hold(&field.value),
                })
                .collect();
        }
    }

    pub(super) fn end(&mut self, out: &mut EventSink<'_>) {
        self.seal(out);
        self.over = true;
        let broken_off = IrFinish::new(IrFinishReason::Incomplete, None);
        let finish = self.finish.take().unwrap_or(broken_off);
        let (ending, _) = Ending::of(finish.reason);
        self.emit_response(ending.event(), out, |out| write_ending(&finish, out));
    }

    /// Clients of this dialect pay no attention to a bare `error`; they look for a failed answer.
    pub(super) fn fail(&mut self, error: &IrError, out: &mut EventSink<'_>) {
        let IrError {
            kind,
            status: _,
            message,
            native,
            code,
            param,
            request_id,
            vendor: _,
        } = error;
        self.over = true;
        let why = "a failed answer has no place for it";
        for (leaf, label) in [(param, "error_param"), (request_id, "request_id")] {
            if let Some(leaf) = leaf {
                drop_part(leaf.origin, label, why, out);
            }
        }
        let own_code = code.as_ref().filter(|_| is_own(out.source()));
        let foreign = code.as_ref().filter(|_| own_code.is_none());
        let native = native.as_ref().map(|native| native.origin);
        let from = [native, foreign.map(|code| code.origin)].map(Option::unwrap_or_default);
        self.emit_response("response.failed", out, |out| {
            out.tag("status", "failed");
            out.tag("incomplete_details", &constant("null"));
            out.put_object("error", |out| {
                match own_code {
                    Some(code) => {
                        out.put("code", code);
                        out.note(from[0], How::Converted("error_code"));
                    }
                    None => {
                        let how = How::Converted("error_code");
                        out.put_as("code", wire::failure_code(*kind), &from, &how);
                    }
                }
                out.put("message", message);
            });
        });
    }

    /// An event with the whole answer as it is now.
    fn emit_response(
        &mut self,
        event: &'static str,
        out: &mut EventSink<'_>,
        write_end: impl FnOnce(&mut Lowering<'_>),
    ) {
        let (head, vendor, items, usage) = (&self.head, &self.vendor, &self.items, &self.usage);
        self.sequence.emit(event, out, |out| {
            out.put_object("response", |out| {
                write_head(head, out);
                write_end(out);
                write_echo(&head.echo, vendor, out);
                out.put_array("output", |out| {
                    for item in items {
                        let status = if item.done { "completed" } else { "incomplete" };
                        write_item(item.view(), &item.id, status, out);
                    }
                });
                match usage {
                    Some(usage) => write_usage(usage, out),
                    None => out.tag("usage", &constant("null")),
                }
            });
        });
    }
}
