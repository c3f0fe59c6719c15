//! Writing a streamed answer.

mod ending;

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlock, IrBlockStart, IrCitation, IrContentBlock, IrDelta, IrFinish, IrThinkingKind,
    IrToolInput, IrUsage, IrVendorField, Leaf, Origin,
};
use abp_dialect::{EventSink, Exchange, How, Lowering, StreamEncoder};

use super::origins::{choice_of, drop_choice, drop_part, forget_block, without_origins};
use super::output::{Part, StreamedItem};
use crate::lowering::{
    Head, constant, has_citation_form, is_own, item_prefix, shown_kind, thinking_how,
    write_citation, write_echo, write_head, write_item, write_output_part,
};
use crate::wire::Streamed;

/// Writes the events of one answer.
#[derive(Debug, Default)]
pub(crate) struct Encoder {
    sequence: Sequence,
    started: bool,
    over: bool,
    head: Head,
    vendor: Vec<IrVendorField>,
    items: Vec<StreamedItem>,
    /// Where each block is: its item, and its number in there.
    places: BTreeMap<u32, (usize, usize)>,
    /// How reasoning that is open reaches the client.
    hows: BTreeMap<u32, How>,
    usage: Option<IrUsage>,
    finish: Option<IrFinish>,
}

/// Numbers the events.
#[derive(Debug, Default)]
struct Sequence(u64);

impl Sequence {
    fn emit(
        &mut self,
        name: &'static str,
        out: &mut EventSink<'_>,
        fill: impl FnOnce(&mut Lowering<'_>),
    ) {
        let number = self.0;
        self.0 += 1;
        out.event(Some(name), |out| {
            out.tag("type", name);
            out.tag("sequence_number", &number);
            fill(out);
        });
    }
}

impl StreamEncoder for Encoder {
    fn delta(&mut self, delta: &IrDelta, out: &mut EventSink<'_>) {
        if self.over {
            return;
        }
        if let IrDelta::Start {
            id,
            model,
            created,
            vendor,
        } = delta
        {
            self.head.id.clone_from(id);
            self.head.model.clone_from(model);
            self.head.created.clone_from(created);
            self.vendor.clone_from(vendor);
            return self.start(out);
        }
        if !matches!(delta, IrDelta::Ping) {
            self.start(out);
        }
        if choice_of(delta).is_some_and(|choice| choice != 0) {
            return drop_choice(delta, out);
        }
        self.write(delta, out);
    }

    fn follow(&mut self, events: u64) {
        self.sequence.0 = events;
    }
}

impl Encoder {
    /// An encoder that undoes what the request's translation did.
    pub(crate) fn new(exchange: &Exchange) -> Self {
        Self {
            head: Head::new(exchange),
            ..Self::default()
        }
    }

    fn write(&mut self, delta: &IrDelta, out: &mut EventSink<'_>) {
        match delta {
            IrDelta::Role { role, .. } => out.carried(role.origin),
            IrDelta::BlockStart { block, start, .. } => self.block_start(*block, start, out),
            IrDelta::Append { block, text, .. } => self.append(*block, text, out),
            IrDelta::Signature { signature, .. } => drop_part(
                signature.origin,
                "thinking_signature",
                "only the vendor that made it can read it",
                out,
            ),
            IrDelta::Citation {
                block, citation, ..
            } => self.cite(*block, citation, out),
            IrDelta::BlockStop { block, .. } => self.block_stop(*block, out),
            IrDelta::Finish { finish, .. } => self.finish(finish, out),
            IrDelta::Usage(usage) => self.count(usage, out),
            IrDelta::Vendor(field) if is_own(out.source()) => {
                let value = out.hold(&field.value);
                let name = field.name.clone();
                self.vendor.retain(|known| known.name != name);
                self.vendor.push(IrVendorField { name, value });
            }
            IrDelta::End => self.end(out),
            IrDelta::Error(error) => self.fail(error, out),
            _ => {}
        }
    }

    /// Announces the answer, once.
    fn start(&mut self, out: &mut EventSink<'_>) {
        if std::mem::replace(&mut self.started, true) {
            return;
        }
        for event in ["response.created", "response.in_progress"] {
            let (head, vendor) = (&self.head, &self.vendor);
            self.sequence.emit(event, out, |out| {
                out.put_object("response", |out| {
                    write_head(head, out);
                    out.tag("status", "in_progress");
                    out.tag("error", &constant("null"));
                    out.tag("incomplete_details", &constant("null"));
                    write_echo(&head.echo, vendor, out);
                    out.put_array("output", |_| {});
                });
            });
            self.forget_origins();
        }
    }

    /// What was written once is repeated later, when its source is gone.
    fn forget_origins(&mut self) {
        let Head {
            id,
            model,
            created,
            alias: _,
            echo: _,
        } = &mut self.head;
        for leaf in [id, model].into_iter().flatten() {
            leaf.origin = Origin::Host;
        }
        if let Some(created) = created {
            created.origin = Origin::Host;
        }
        for field in &mut self.vendor {
            field.value.origin = Origin::Host;
        }
    }

    fn block_start(&mut self, block: u32, start: &IrBlockStart, out: &mut EventSink<'_>) {
        match start {
            IrBlockStart::Text => {
                self.begin_part(block, Streamed::Text, IrContentBlock::text(""), out);
            }
            IrBlockStart::Refusal => {
                let text = Leaf::from("");
                let body = IrContentBlock::Refusal { text };
                self.begin_part(block, Streamed::Refusal, body, out);
            }
            IrBlockStart::Thinking {
                kind,
                item_id,
                encrypted,
            } => self.begin_thinking(block, *kind, item_id.as_ref(), encrypted.as_ref(), out),
            IrBlockStart::ToolUse { .. } => self.begin_call(block, start, out),
            IrBlockStart::Opaque { kind, native } if is_own(out.source()) => {
                let body = IrContentBlock::Opaque {
                    kind: kind.clone(),
                    native: native.clone(),
                };
                self.add_item(body, None, out);
                self.finish_last(out);
            }
            IrBlockStart::Opaque { native, .. } => drop_part(
                native.origin,
                "foreign_block",
                "the block exists in its own dialect only",
                out,
            ),
            IrBlockStart::RedactedThinking { data } => drop_part(
                data.origin,
                "redacted_thinking",
                "only the vendor that made it can read it",
                out,
            ),
            _ => {}
        }
    }

    /// A part of a message: of the last item, if that is a message that may go on.
    fn begin_part(
        &mut self,
        block: u32,
        streamed: Streamed,
        body: IrContentBlock,
        out: &mut EventSink<'_>,
    ) {
        if !self.items.last().is_some_and(|item| item.admits(streamed)) {
            self.add_message(out);
        }
        self.join(block, streamed, body);
        self.announce_part(block, out);
    }

    fn begin_thinking(
        &mut self,
        block: u32,
        kind: IrThinkingKind,
        item_id: Option<&Leaf<String>>,
        encrypted: Option<&Leaf<String>>,
        out: &mut EventSink<'_>,
    ) {
        let streamed = match shown_kind(kind, out.source()) {
            IrThinkingKind::Summary => Streamed::Summary,
            IrThinkingKind::Raw => Streamed::Reasoning,
        };
        let thinking = |item_id: Option<Leaf<String>>, encrypted: Option<Leaf<String>>| {
            IrContentBlock::Thinking {
                text: Leaf::from(""),
                kind,
                signature: None,
                encrypted,
                item_id,
            }
        };
        let joins =
            item_id.is_none() && self.items.last().is_some_and(|item| item.admits(streamed));
        if joins {
            let encrypted = encrypted.filter(|_| is_own(out.source()));
            let encrypted = encrypted.map(|encrypted| out.hold(encrypted));
            self.join(block, streamed, thinking(None, encrypted));
        } else {
            self.add_item(thinking(item_id.cloned(), encrypted.cloned()), item_id, out);
            self.take_place(block, streamed);
        }
        self.hows.insert(block, thinking_how(kind, out.source()));
    }

    fn begin_call(&mut self, block: u32, start: &IrBlockStart, out: &mut EventSink<'_>) {
        let IrBlockStart::ToolUse {
            id,
            name,
            custom,
            item_id,
        } = start
        else {
            return;
        };
        let nothing = Leaf::from("");
        let (input, streamed) = if *custom {
            (IrToolInput::Text(nothing), Streamed::Input)
        } else {
            (IrToolInput::Invalid(nothing), Streamed::Arguments)
        };
        let body = IrContentBlock::ToolUse {
            id: id.clone(),
            name: name.clone(),
            input,
            item_id: item_id.clone(),
            signature: None,
        };
        self.add_item(body, item_id.as_ref(), out);
        self.take_place(block, streamed);
    }

    fn add_message(&mut self, out: &mut EventSink<'_>) {
        self.seal(out);
        self.push_item(Vec::new(), None);
        self.announce_last(out);
    }

    /// An item that starts with a block of its own.
    fn add_item(
        &mut self,
        body: IrContentBlock,
        item_id: Option<&Leaf<String>>,
        out: &mut EventSink<'_>,
    ) {
        self.seal(out);
        let own_id = item_id.filter(|_| is_own(out.source()));
        self.push_item(vec![IrBlock::from(body)], own_id);
        self.announce_last(out);
        if let Some(item) = self.items.last_mut() {
            item.blocks.iter_mut().for_each(forget_block);
        }
    }

    fn push_item(&mut self, blocks: Vec<IrBlock>, id: Option<&Leaf<String>>) {
        let mut item = StreamedItem {
            id: String::new(),
            blocks,
            parts: Vec::new(),
            numbered: [0; 2],
            sealed: false,
            done: false,
        };
        item.id = match id {
            Some(id) => id.value.clone(),
            None => {
                let response = self.head.id.as_ref().map_or("abp", |id| id.as_str());
                format!(
                    "{}_{response}_{}",
                    item_prefix(item.view()),
                    self.items.len()
                )
            }
        };
        self.items.push(item);
    }

    fn announce_last(&mut self, out: &mut EventSink<'_>) {
        let index = self.items.len().saturating_sub(1) as u64;
        if let Some(item) = self.items.last() {
            self.sequence
                .emit("response.output_item.added", out, |out| {
                    out.tag("output_index", &index);
                    out.key("item");
                    write_item(item.view(), &item.id, "in_progress", out);
                });
        }
    }

    /// Adds a block to the last item.
    fn join(&mut self, block: u32, streamed: Streamed, body: IrContentBlock) {
        if let Some(item) = self.items.last_mut() {
            item.blocks.push(body.into());
        }
        self.take_place(block, streamed);
    }

    /// Says that the last block of the last item is this one.
    fn take_place(&mut self, block: u32, streamed: Streamed) {
        let last = self.items.len().saturating_sub(1);
        if let Some(item) = self.items.last_mut() {
            self.places.insert(block, (last, item.parts.len()));
            item.parts.push(Part {
                streamed,
                index: None,
                open: true,
            });
        }
    }

    /// Announces a block as a part of its item, where such parts are announced, once.
    fn announce_part(&mut self, block: u32, out: &mut EventSink<'_>) {
        let Some(&(at, number)) = self.places.get(&block) else {
            return;
        };
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let Some(streamed) = item.parts.get(number).map(|part| part.streamed) else {
            return;
        };
        if let Some((added, _)) = streamed.frame()
            && item.number(number)
        {
            let item = &*item;
            self.sequence.emit(added, out, |out| {
                write_place(item, at, number, out);
                out.key("part");
                write_part(&empty_part(streamed), streamed, out);
            });
        }
    }

    fn append(&mut self, block: u32, text: &Leaf<String>, out: &mut EventSink<'_>) {
        self.announce_part(block, out);
        let Some(&(at, number)) = self.places.get(&block) else {
            let reason = "it belongs to a block that has no form";
            return drop_part(text.origin, "foreign_block", reason, out);
        };
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        item.append(number, text);
        let Some(streamed) = item.parts.get(number).map(|part| part.streamed) else {
            return;
        };
        let how = self.hows.get(&block).unwrap_or(&How::AsIs);
        self.sequence.emit(streamed.names().delta, out, |out| {
            write_place(item, at, number, out);
            out.put_as("delta", &text.value, &[text.origin], how);
            if streamed == Streamed::Text {
                out.tag("logprobs", &constant("[]"));
            }
        });
    }

    fn cite(&mut self, block: u32, citation: &IrCitation, out: &mut EventSink<'_>) {
        if !has_citation_form(citation, is_own(out.source())) {
            return drop_part(
                citation.native.origin,
                "citation",
                "only sources with an address have a form",
                out,
            );
        }
        let Some(&(at, number)) = self.places.get(&block) else {
            let reason = "it belongs to a block that has no form";
            return drop_part(citation.native.origin, "foreign_block", reason, out);
        };
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let index = item.cite(number, without_origins(citation));
        self.sequence
            .emit("response.output_text.annotation.added", out, |out| {
                write_place(item, at, number, out);
                out.tag("annotation_index", &index);
                out.key("annotation");
                write_citation(citation, out);
            });
    }

    fn block_stop(&mut self, block: u32, out: &mut EventSink<'_>) {
        let Some((at, number)) = self.places.remove(&block) else {
            return;
        };
        self.hows.remove(&block);
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        let Some(part) = item.parts.get_mut(number) else {
            return;
        };
        part.open = false;
        let (streamed, announced) = (part.streamed, part.index.is_some());
        let is_call = matches!(streamed, Streamed::Arguments | Streamed::Input);
        if streamed == Streamed::Arguments && item.text(number).is_empty() {
            // A call without arguments still takes an object.
            item.append(number, "{}");
        }
        let item = &*item;
        if announced || is_call {
            let names = streamed.names();
            self.sequence.emit(names.done, out, |out| {
                write_place(item, at, number, out);
                out.tag(names.member, item.text(number));
                if streamed == Streamed::Text {
                    out.tag("logprobs", &constant("[]"));
                }
            });
        }
        if let (true, Some((_, done)), Some(body)) =
            (announced, streamed.frame(), item.blocks.get(number))
        {
            self.sequence.emit(done, out, |out| {
                write_place(item, at, number, out);
                out.key("part");
                write_part(body, streamed, out);
            });
        }
        if is_call || item.sealed {
            self.finish_item(at, out);
        }
    }

    /// Lets no further block join the last item.
    fn seal(&mut self, out: &mut EventSink<'_>) {
        if let Some(item) = self.items.last_mut() {
            item.sealed = true;
            self.finish_last(out);
        }
    }

    fn finish_last(&mut self, out: &mut EventSink<'_>) {
        if let Some(last) = self.items.len().checked_sub(1) {
            self.finish_item(last, out);
        }
    }

    /// Tells of an item as a whole, once none of its blocks is open.
    fn finish_item(&mut self, at: usize, out: &mut EventSink<'_>) {
        let Some(item) = self.items.get_mut(at) else {
            return;
        };
        if item.done || item.is_open() {
            return;
        }
        (item.done, item.sealed) = (true, true);
        let item = &*item;
        self.sequence.emit("response.output_item.done", out, |out| {
            out.tag("output_index", &(at as u64));
            out.key("item");
            write_item(item.view(), &item.id, "completed", out);
        });
    }
}

/// Where in the output an event belongs.
fn write_place(item: &StreamedItem, at: usize, number: usize, out: &mut Lowering<'_>) {
    out.tag("item_id", &item.id);
    out.tag("output_index", &(at as u64));
    if let Some(part) = item.parts.get(number)
        && let (Some(key), Some(index)) = (part.streamed.index(), part.index)
    {
        out.tag(key, &index);
    }
}

fn write_part(block: &IrBlock, streamed: Streamed, out: &mut Lowering<'_>) {
    match (&block.body, streamed.names().part) {
        (IrContentBlock::Thinking { text, .. }, Some(kind)) => out.object(|out| {
            out.tag("type", kind);
            out.tag("text", &text.value);
        }),
        _ => write_output_part(block, out),
    }
}

fn empty_part(streamed: Streamed) -> IrBlock {
    let text = Leaf::new(String::new(), Origin::Host);
    match streamed {
        Streamed::Refusal => IrContentBlock::Refusal { text },
        Streamed::Summary | Streamed::Reasoning => IrContentBlock::Thinking {
            text,
            kind: IrThinkingKind::Summary,
            signature: None,
            encrypted: None,
            item_id: None,
        },
        Streamed::Text | Streamed::Arguments | Streamed::Input => IrContentBlock::text(text),
    }
    .into()
}
