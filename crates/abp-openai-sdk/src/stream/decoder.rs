//! Reading a stream.
//!
//! Compatible servers repeat ids and names in every chunk or give them once, number calls or do not,
//! send usage in the last chunk or in all, end with `[DONE]` or just end. All of that is read here;
//! what is repeated is marked as such.

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlockStart, IrContentBlock, IrDelta, IrFinish, IrFinishReason, IrRole, IrThinkingKind,
    IrVendorField, Leaf,
};
use abp_dialect::{DialectError, How, Item, StreamDecoder};
use abp_json::Kind;

use crate::lowering::{error, message_in, response_in, shape, unplaced, usage};
use crate::{Flavour, wire};

/// Reads a stream.
#[derive(Debug)]
pub(crate) struct Decoder {
    flavour: &'static Flavour,
    started: bool,
    over: bool,
    choices: BTreeMap<u32, Choice>,
    /// The vendor's fields as they were last told.
    told: Vec<IrVendorField>,
}

/// An answer in the making.
#[derive(Debug, Default)]
struct Choice {
    has_role: bool,
    finished: bool,
    /// How many blocks have begun.
    blocks: u32,
    /// The block that is being spoken. Calls are not spoken: they stay open beside it.
    spoken: Option<(Voice, u32)>,
    calls: Vec<Call>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Voice {
    Text,
    Thinking,
    Refusal,
}

/// A call in the making.
#[derive(Debug, Default)]
struct Call {
    index: Option<u64>,
    id: Option<String>,
    name: Option<String>,
    /// Its block, once its name is known.
    block: Option<u32>,
    /// Arguments that came before the name.
    early: String,
}

impl Decoder {
    pub(crate) fn new(flavour: &'static Flavour) -> Self {
        Self {
            flavour,
            started: false,
            over: false,
            choices: BTreeMap::new(),
            told: Vec::new(),
        }
    }

    /// Reads what the chunks have in common. A chunk that names neither answer nor model announces
    /// the stream, and is not its start.
    fn head(&mut self, root: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        shape(root, &["object", "obfuscation"]);
        let vendor = self.news(root);
        if self.started {
            for item in ["id", "model", "created"]
                .iter()
                .filter_map(|key| root.get(key))
            {
                item.repeats();
            }
            deltas.extend(vendor.into_iter().map(IrDelta::Vendor));
            return Ok(());
        }
        let id = response_in::some_text(root, "id")?;
        let model = response_in::some_text(root, "model")?;
        let speaks = |key| root.some(key).is_some_and(|item| !item.view().is_empty());
        let created = root.opt_number("created")?;
        if id.is_none() && model.is_none() && !speaks("choices") {
            shape(root, &["created"]);
            return Ok(());
        }
        self.started = true;
        deltas.push(IrDelta::Start {
            id,
            model,
            created,
            vendor,
        });
        Ok(())
    }

    /// The vendor's fields that say something new; the others repeat what was told.
    fn news(&mut self, root: Item<'_>) -> Vec<IrVendorField> {
        let fields = root.vendor_fields(wire::RESPONSE_MEMBERS);
        let (old, new): (Vec<_>, Vec<_>) = fields
            .into_iter()
            .partition(|field| self.told.contains(field));
        for item in old.iter().filter_map(|field| root.get(&field.name)) {
            item.repeats();
        }
        for IrVendorField { name, value } in &new {
            self.told.retain(|known| known.name != *name);
            self.told.push(IrVendorField {
                name: name.clone(),
                value: value.value.clone().into(),
            });
        }
        new
    }

    fn choice(&mut self, item: Item<'_>, deltas: &mut Vec<IrDelta>) -> Result<(), DialectError> {
        let number = response_in::read_index(item);
        let choice = self.choices.entry(number).or_default();
        unplaced(item, wire::CHOICE_MEMBERS);
        // Some servers send the whole message so far beside each delta, a few nothing else.
        let delta = match (item.some("delta"), item.some("message")) {
            (Some(delta), whole) => {
                whole.into_iter().for_each(Item::repeats);
                Some(delta)
            }
            (None, whole) => whole,
        };
        if let Some(delta) = delta {
            choice.delta(self.flavour, number, delta.object()?, deltas)?;
        }
        if let Some(finish) = response_in::read_finish(item)? {
            choice.close(number, deltas);
            choice.finished = true;
            deltas.push(IrDelta::Finish {
                choice: number,
                finish,
            });
        }
        if let Some(counts) = item.some("usage") {
            deltas.push(IrDelta::Usage(usage::read(counts)?));
        }
        Ok(())
    }

    /// Ends the stream; an answer that gave no reason to end broke off.
    fn finish(&mut self, deltas: &mut Vec<IrDelta>) {
        if self.over {
            return;
        }
        self.over = true;
        if !self.started {
            deltas.push(IrDelta::Start {
                id: None,
                model: None,
                created: None,
                vendor: Vec::new(),
            });
        }
        if self.choices.is_empty() {
            self.choices.insert(0, Choice::default());
        }
        for (number, choice) in &mut self.choices {
            if !choice.finished {
                choice.close(*number, deltas);
                deltas.push(IrDelta::Finish {
                    choice: *number,
                    finish: IrFinish::new(IrFinishReason::Incomplete, None),
                });
            }
        }
        deltas.push(IrDelta::End);
    }
}

impl StreamDecoder for Decoder {
    fn event(
        &mut self,
        name: Option<&str>,
        data: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if self.over {
            return Ok(());
        }
        let root = data.object()?;
        self.head(root, deltas)?;
        if let Some(choices) = root.some("choices") {
            for item in choices.array()? {
                self.choice(item.object()?, deltas)?;
            }
        }
        if let Some(counts) = root.some("usage") {
            deltas.push(IrDelta::Usage(usage::read(counts)?));
        }
        if root.some("error").is_some() || name == Some("error") {
            let error = error::read(self.flavour.dialect, root, None)?;
            for (number, choice) in &mut self.choices {
                choice.close(*number, deltas);
            }
            self.over = true;
            deltas.push(IrDelta::Error(error));
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

impl Choice {
    fn delta(
        &mut self,
        flavour: &Flavour,
        choice: u32,
        delta: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        self.role(choice, delta, deltas);
        if self.finished {
            // Nothing follows an end; what a server says after it stays unread.
            if delta
                .some("content")
                .and_then(|text| text.view().string_source())
                == Some("")
            {
                shape(delta, &["content"]);
            }
            return Ok(());
        }
        unplaced(delta, flavour.message_members);
        unplaced(delta, wire::COMPATIBLE_MESSAGE_MEMBERS);
        self.reasoning(choice, delta, deltas)?;
        if let Some(content) = delta.some("content") {
            self.content(choice, content, deltas)?;
        }
        if let Some(refusal) = delta.some("refusal") {
            self.say(choice, Voice::Refusal, refusal, deltas)?;
        }
        self.citations(choice, delta, deltas)?;
        if let Some(calls) = delta.some("tool_calls") {
            for call in calls.array()? {
                let call = call.object()?;
                shape(call, &["type"]);
                match (call.some("function"), call.some("custom")) {
                    (Some(body), _) => self.call(choice, call, body, false, deltas)?,
                    (None, Some(body)) => self.call(choice, call, body, true, deltas)?,
                    (None, None) => self.call(choice, call, call, false, deltas)?,
                }
            }
        }
        if let Some(call) = delta.some("function_call") {
            self.call(choice, call.object()?, call, false, deltas)?;
        }
        Ok(())
    }

    fn role(&mut self, choice: u32, delta: Item<'_>, deltas: &mut Vec<IrDelta>) {
        let Some(item) = delta.some("role") else {
            return;
        };
        let word = item.tag().unwrap_or_default();
        if self.has_role || word.is_empty() {
            return;
        }
        self.has_role = true;
        let role = wire::role(&word).unwrap_or(IrRole::Assistant);
        deltas.push(IrDelta::Role {
            choice,
            role: Leaf::new(role, item.origin()),
        });
    }

    /// Reads reasoning; where a server sends it under two names, the second repeats the first.
    fn reasoning(
        &mut self,
        choice: u32,
        delta: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let mut texts = message_in::REASONING
            .iter()
            .filter_map(|key| delta.some(key))
            .filter(|item| item.kind() == Kind::String);
        if let Some(first) = texts.next() {
            self.say(choice, Voice::Thinking, first, deltas)?;
            for other in texts {
                if other.view().as_str() == first.view().as_str() {
                    other.repeats();
                } else {
                    self.say(choice, Voice::Thinking, other, deltas)?;
                }
            }
        }
        Ok(())
    }

    fn content(
        &mut self,
        choice: u32,
        content: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        if content.kind() == Kind::String {
            return self.say(choice, Voice::Text, content, deltas);
        }
        for part in content.array()? {
            match message_in::read_part(part)?.body {
                IrContentBlock::Text { .. } => {
                    self.say(choice, Voice::Text, part.need("text")?, deltas)?;
                }
                _ => {
                    let kind = part.tag_of("type").unwrap_or_default().into_owned();
                    let native = part.raw();
                    self.hush(choice, deltas);
                    let block = self.begin(choice, IrBlockStart::Opaque { kind, native }, deltas);
                    deltas.push(IrDelta::BlockStop { choice, block });
                }
            }
        }
        Ok(())
    }

    /// Reads sources; they belong to the text that is being spoken.
    fn citations(
        &mut self,
        choice: u32,
        delta: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let Some(list) = delta.some("annotations") else {
            return Ok(());
        };
        let Some((Voice::Text, block)) = self.spoken else {
            unplaced(delta, &["annotations"]);
            return Ok(());
        };
        for annotation in list.array()? {
            deltas.push(IrDelta::Citation {
                choice,
                block,
                citation: message_in::read_citation(annotation)?,
            });
        }
        Ok(())
    }

    /// Adds to what is being spoken; another voice ends it.
    fn say(
        &mut self,
        choice: u32,
        voice: Voice,
        item: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let text = item.text()?;
        if text.is_empty() {
            item.structure();
            return Ok(());
        }
        let block = match self.spoken {
            Some((speaking, block)) if speaking == voice => block,
            _ => {
                self.hush(choice, deltas);
                let start = match voice {
                    Voice::Text => IrBlockStart::Text,
                    Voice::Refusal => IrBlockStart::Refusal,
                    Voice::Thinking => IrBlockStart::Thinking {
                        kind: IrThinkingKind::Raw,
                        item_id: None,
                        encrypted: None,
                    },
                };
                let block = self.begin(choice, start, deltas);
                self.spoken = Some((voice, block));
                block
            }
        };
        deltas.push(IrDelta::Append {
            choice,
            block,
            text,
        });
        Ok(())
    }

    fn begin(&mut self, choice: u32, start: IrBlockStart, deltas: &mut Vec<IrDelta>) -> u32 {
        let block = self.blocks;
        self.blocks += 1;
        deltas.push(IrDelta::BlockStart {
            choice,
            block,
            start,
        });
        block
    }

    /// Ends what is being spoken.
    fn hush(&mut self, choice: u32, deltas: &mut Vec<IrDelta>) {
        if let Some((_, block)) = self.spoken.take() {
            deltas.push(IrDelta::BlockStop { choice, block });
        }
    }

    /// Ends every block.
    fn close(&mut self, choice: u32, deltas: &mut Vec<IrDelta>) {
        self.hush(choice, deltas);
        let mut calls: Vec<_> = self.calls.drain(..).filter_map(|call| call.block).collect();
        calls.sort_unstable();
        for block in calls {
            deltas.push(IrDelta::BlockStop { choice, block });
        }
    }

    /// Reads a piece of a call: `body` holds its name and arguments.
    fn call(
        &mut self,
        choice: u32,
        call: Item<'_>,
        body: Item<'_>,
        custom: bool,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let index = call.get("index").and_then(|index| {
            index.structure();
            index.view().as_u64()
        });
        let id = message_in::read_id(call)?;
        let name = response_in::some_text(body, "name")?;
        let mut state = self.take_call(index, id.as_ref(), name.as_ref());
        match (state.block, name) {
            (None, Some(name)) => {
                state.name = Some(name.value.clone());
                let id = id.or(state.id.take().map(Leaf::from));
                state.id = id.as_ref().map(|id| id.value.clone());
                self.hush(choice, deltas);
                let start = IrBlockStart::ToolUse {
                    id,
                    name,
                    custom,
                    item_id: None,
                };
                state.block = Some(self.begin(choice, start, deltas));
            }
            (None, None) => {
                shape(call, &["id"]);
                state.id = id.map(|id| id.value);
            }
            (Some(_), name) => {
                let again = name.and_then(|_| body.get("name"));
                let known = id.and_then(|_| call.get("id"));
                again.into_iter().chain(known).for_each(Item::repeats);
            }
        }
        state.arguments(choice, body, deltas)?;
        if let (Some(block), Some(signature)) = (state.block, message_in::thought_signature(call)?)
        {
            deltas.push(IrDelta::Signature {
                choice,
                block,
                signature,
            });
        }
        self.calls.push(state);
        Ok(())
    }

    /// The call that a piece belongs to, taken out of the list: by its number, else its id, else the
    /// last one. Another id or another name under the same number is another call.
    fn take_call(
        &mut self,
        index: Option<u64>,
        id: Option<&Leaf<String>>,
        name: Option<&Leaf<String>>,
    ) -> Call {
        let same = |call: &Call| match (index, id) {
            (Some(_), _) => call.index == index,
            (None, Some(id)) => call.id.as_ref() == Some(&id.value),
            (None, None) => name.is_none() || call.name.is_none(),
        };
        let contradicts = |known: Option<&String>, new: Option<&Leaf<String>>| {
            known
                .zip(new)
                .is_some_and(|(known, new)| *known != new.value)
        };
        let place = self.calls.iter().rposition(same);
        let place = place.filter(|place| {
            self.calls.get(*place).is_some_and(|call| {
                !contradicts(call.id.as_ref(), id) && !contradicts(call.name.as_ref(), name)
            })
        });
        match place {
            Some(place) => self.calls.remove(place),
            None => Call {
                index,
                ..Call::default()
            },
        }
    }
}

impl Call {
    /// Reads a piece of the arguments; they wait where the name has not come yet.
    fn arguments(
        &mut self,
        choice: u32,
        body: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        let piece = match body.some("arguments").or_else(|| body.some("input")) {
            Some(item) => Some((item, read_arguments(item)?)),
            None => None,
        };
        let Some(block) = self.block else {
            if let Some((item, text)) = piece {
                item.structure();
                self.early.push_str(&text);
            }
            return Ok(());
        };
        let early = std::mem::take(&mut self.early);
        if !early.is_empty() {
            deltas.push(IrDelta::Append {
                choice,
                block,
                text: early.into(),
            });
        }
        match piece {
            Some((item, text)) if text.is_empty() => item.structure(),
            Some((_, text)) => deltas.push(IrDelta::Append {
                choice,
                block,
                text,
            }),
            None => {}
        }
        Ok(())
    }
}

/// Reads arguments; some local servers forget the string around them.
fn read_arguments(item: Item<'_>) -> Result<Leaf<String>, DialectError> {
    if item.kind() != Kind::Object {
        return item.text();
    }
    item.note(How::Converted("json_in_text"));
    let raw = item.raw();
    Ok(Leaf::new(raw.value.into_text(), raw.origin))
}
