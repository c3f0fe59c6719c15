//! One answer of a stream: its text, its reasoning, its calls.

use abp_core::ir::{IrBlockStart, IrContentBlock, IrDelta, IrFinish, IrRole, IrThinkingKind, Leaf};
use abp_dialect::{DialectError, How, Item, MAX_OPEN_BLOCKS};
use abp_json::Kind;

use crate::lowering::{message_in, response_in, unplaced};
use crate::{Flavour, wire};

/// An answer in the making.
#[derive(Debug, Default)]
pub(super) struct Choice {
    has_role: bool,
    /// Whether it gave a reason to end.
    pub(super) finished: bool,
    /// The reason to end, where it waits for other parts of the answer.
    pub(super) held: Option<IrFinish>,
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
    /// What came of the name while more of it may follow.
    early_name: String,
}

impl Choice {
    /// Keeps a reason to end for the end of the stream.
    pub(super) fn hold(&mut self, finish: &IrFinish) {
        if response_in::outranks(Some(finish), self.held.as_ref()) {
            let native = finish.native.as_ref();
            let native = native.map(|word| Leaf::from(word.value.clone()));
            self.held = Some(IrFinish::new(finish.reason, native));
        }
    }

    /// Reads what a chunk adds to it.
    pub(super) fn delta(
        &mut self,
        flavour: &Flavour,
        choice: u32,
        delta: Item<'_>,
        deltas: &mut Vec<IrDelta>,
    ) -> Result<(), DialectError> {
        self.role(choice, delta, deltas);
        let silent = |item: Item<'_>| matches!(item.view().raw(), "null" | r#""""#);
        for (_, item) in delta.entries().filter(|(_, item)| silent(*item)) {
            item.repeats();
        }
        if self.finished {
            // Nothing follows an end; what a server says after it stays unread.
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
                frame(call, &["type"]);
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
            item.repeats();
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
            item.repeats();
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
    pub(super) fn close(&mut self, choice: u32, deltas: &mut Vec<IrDelta>) {
        self.hush(choice, deltas);
        let mut calls = std::mem::take(&mut self.calls);
        calls.sort_by_key(|call| call.index);
        for call in calls.iter_mut().filter(|call| call.block.is_none()) {
            let name = std::mem::take(&mut call.early_name);
            if !name.is_empty() {
                self.begin_call(choice, call, None, name.into(), false, deltas);
                call.append_early(choice, deltas);
            }
        }
        let mut blocks: Vec<_> = calls.iter().filter_map(|call| call.block).collect();
        blocks.sort_unstable();
        for block in blocks {
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
        let index = call.get("index").and_then(|index| index.view().as_u64());
        frame(call, &["index"]);
        let id = message_in::read_id(call)?;
        let name = response_in::some_text(body, "name")?;
        let mut state = self.take_call(index, id.as_ref(), name.as_ref());
        if self.calls.len() >= MAX_OPEN_BLOCKS {
            return Err(DialectError::too_many_open("calls"));
        }
        match (state.block, name) {
            (None, Some(name)) if index.is_some() && has_no_arguments(body) => {
                body.get("name").into_iter().for_each(Item::repeats);
                frame(call, &["id"]);
                state.add_to_name(&name);
                state.id = state.id.or(id.map(|id| id.value));
            }
            (None, Some(name)) => {
                let name = if state.early_name.is_empty() {
                    name
                } else {
                    body.get("name").into_iter().for_each(Item::repeats);
                    state.add_to_name(&name);
                    std::mem::take(&mut state.early_name).into()
                };
                self.begin_call(choice, &mut state, id, name, custom, deltas);
            }
            (None, None) => {
                frame(call, &["id"]);
                state.id = state.id.or(id.map(|id| id.value));
                if !state.early_name.is_empty() {
                    let name = std::mem::take(&mut state.early_name).into();
                    self.begin_call(choice, &mut state, None, name, custom, deltas);
                }
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

    fn begin_call(
        &mut self,
        choice: u32,
        call: &mut Call,
        id: Option<Leaf<String>>,
        name: Leaf<String>,
        custom: bool,
        deltas: &mut Vec<IrDelta>,
    ) {
        call.name = Some(name.value.clone());
        let id = id.or(call.id.take().map(Leaf::from));
        call.id = id.as_ref().map(|id| id.value.clone());
        self.hush(choice, deltas);
        let start = IrBlockStart::ToolUse {
            id,
            name,
            custom,
            item_id: None,
        };
        call.block = Some(self.begin(choice, start, deltas));
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
    /// Adds a piece of the name; a server that says the whole name again adds nothing.
    fn add_to_name(&mut self, piece: &str) {
        if self.early_name != piece {
            self.early_name.push_str(piece);
        }
    }

    /// Adds the arguments that came before the name.
    fn append_early(&mut self, choice: u32, deltas: &mut Vec<IrDelta>) {
        let early = std::mem::take(&mut self.early);
        if let (Some(block), false) = (self.block, early.is_empty()) {
            deltas.push(IrDelta::Append {
                choice,
                block,
                text: early.into(),
            });
        }
    }

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
                item.repeats();
                self.early.push_str(&text);
            }
            return Ok(());
        };
        self.append_early(choice, deltas);
        match piece {
            Some((item, text)) if text.is_empty() => item.repeats(),
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

/// Marks members that chunks say again and again: the frame of what they bring.
pub(super) fn frame(item: Item<'_>, keys: &[&str]) {
    for member in keys.iter().filter_map(|key| item.get(key)) {
        member.repeats();
    }
}

/// Whether a piece of a call says nothing of its arguments. The vendor always does; where a server does
/// not, more of the name may follow.
fn has_no_arguments(body: Item<'_>) -> bool {
    body.some("arguments").is_none() && body.some("input").is_none()
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
