//! Calls and their answers: every call an id, every answer its call.

use std::collections::{HashMap, HashSet, VecDeque};

use abp_core::ir::{IrContentBlock, IrConversation, IrMessage, IrRole, Leaf, Origin};
use abp_dialect::{DialectRules, How};

use super::Fit;
use super::names::NameMap;

/// A call of the conversation.
#[derive(Debug, Clone)]
struct Call {
    /// The id that the target will see.
    id: Option<String>,
    name: String,
}

/// Gives ids where they are missing or do not fit, names answers after their calls, and answers
/// calls that nobody answered.
pub(super) fn pair_calls_and_answers(
    conversation: &mut IrConversation,
    rules: &DialectRules,
    fit: &mut Fit<'_>,
) {
    let mut pairing = Pairing {
        rules,
        ids: rules.tool_id.shape.map(NameMap::new),
        taken: HashSet::new(),
        by_source: HashMap::new(),
        open: OpenCalls::default(),
    };
    let mut turn = 0;
    let mut unanswered = Vec::new();
    for (index, message) in conversation.messages.iter_mut().enumerate() {
        if matches!(message.role, IrRole::Assistant | IrRole::User) {
            let open = std::mem::take(&mut pairing.open).left();
            if !open.is_empty() {
                unanswered.push((index, open));
            }
        }
        match message.role {
            IrRole::Assistant => {
                pairing.calls(message, turn, fit);
                turn += 1;
            }
            IrRole::Tool => pairing.answers(message, fit),
            _ => {}
        }
    }
    if let Some(ids) = pairing.ids {
        fit.exchange.tool_ids = ids.undo();
    }
    if rules.answered_calls {
        answer(&mut conversation.messages, unanswered);
    }
}

struct Pairing<'a> {
    rules: &'a DialectRules,
    ids: Option<NameMap>,
    /// The ids that the target sees so far. A later id that equals one of them is made another, whether
    /// it is the source's or made: whoever knows how ids are made could otherwise give one call the id of
    /// another. Only what came before counts, so that a conversation that goes on keeps its ids, and a
    /// vendor its cache of them.
    taken: HashSet<String>,
    /// What is known of an id of the source.
    by_source: HashMap<String, Known>,
    open: OpenCalls,
}

/// What is known of an id.
#[derive(Debug, Default)]
struct Known {
    /// The number of the last call that has it, which is part of the id made of it.
    number: u32,
    /// The last call with it.
    last: Option<Call>,
}

/// The calls that wait for their answers. Whoever asks finds the first one that fits without looking at
/// the others: there may be thousands.
#[derive(Debug, Default)]
struct OpenCalls {
    /// In their order; nothing where the answer is there.
    calls: Vec<Option<Call>>,
    /// Every call before this one has its answer.
    first: usize,
    by_source: HashMap<String, VecDeque<usize>>,
    by_name: HashMap<String, VecDeque<usize>>,
}

impl OpenCalls {
    fn push(&mut self, source: Option<String>, call: Call) {
        let place = self.calls.len();
        if let Some(source) = source {
            self.by_source.entry(source).or_default().push_back(place);
        }
        let named = self.by_name.entry(call.name.clone()).or_default();
        named.push_back(place);
        self.calls.push(Some(call));
    }

    fn with_source(&mut self, source: &str) -> Option<Call> {
        first_open(&mut self.calls, self.by_source.get_mut(source)?)
    }

    fn with_name(&mut self, name: &str) -> Option<Call> {
        first_open(&mut self.calls, self.by_name.get_mut(name)?)
    }

    fn next(&mut self) -> Option<Call> {
        while let Some(call) = self.calls.get_mut(self.first) {
            self.first += 1;
            if let Some(call) = call.take() {
                return Some(call);
            }
        }
        None
    }

    fn left(self) -> Vec<Call> {
        self.calls.into_iter().flatten().collect()
    }
}

/// Takes the first call of those at `places` that is still open.
fn first_open(calls: &mut [Option<Call>], places: &mut VecDeque<usize>) -> Option<Call> {
    while let Some(place) = places.pop_front() {
        if let Some(call) = calls.get_mut(place).and_then(Option::take) {
            return Some(call);
        }
    }
    None
}

impl Pairing<'_> {
    fn calls(&mut self, message: &mut IrMessage, turn: u32, fit: &mut Fit<'_>) {
        let mut number = 0;
        let mut changed = false;
        for block in &mut message.content {
            let IrContentBlock::ToolUse { id, name, .. } = &mut block.body else {
                continue;
            };
            let source = id.as_ref().map(|id| id.value.clone());
            changed |= self.fit_call_id(id, turn, number, fit);
            number += 1;
            let call = Call {
                id: id.as_ref().map(|id| id.value.clone()),
                name: name.value.clone(),
            };
            if let Some(known) = source.as_deref().and_then(|id| self.by_source.get_mut(id)) {
                known.last = Some(call.clone());
            }
            self.open.push(source, call);
        }
        if changed {
            message.origin = Origin::Host;
        }
    }

    /// Keeps an id from being given again.
    fn take(&mut self, id: &str) {
        if let Some(ids) = &mut self.ids {
            ids.reserve(id);
        }
        self.taken.insert(id.to_owned());
    }

    /// The first of these ids, numbered from `number`, that is free, and its number.
    fn free(&mut self, mut number: u32, id: impl Fn(u32) -> String) -> (String, u32) {
        while self.taken.contains(&id(number)) {
            number += 1;
        }
        let free = id(number);
        self.take(&free);
        (free, number)
    }

    fn fit_call_id(
        &mut self,
        id: &mut Option<Leaf<String>>,
        turn: u32,
        number: u32,
        fit: &mut Fit<'_>,
    ) -> bool {
        let Some(leaf) = id else {
            if self.rules.tool_id.required {
                let (minted, _) = self.free(0, |attempt| match attempt {
                    0 => format!("call_{turn}_{number}"),
                    attempt => format!("call_{turn}_{number}_{attempt}"),
                });
                *id = Some(Leaf::new(minted, Origin::Made("minted_tool_id")));
            }
            return self.rules.tool_id.required;
        };
        let other = self.again(&leaf.value);
        let wanted = other.as_deref().unwrap_or(&leaf.value);
        let fitting = self.ids.as_mut().and_then(|ids| ids.fitting(wanted));
        let new = fitting.or(other);
        self.take(new.as_deref().unwrap_or(&leaf.value));
        let Some(new) = new else {
            return false;
        };
        fit.carried(leaf.origin, How::Converted("tool_id_mapped"));
        leaf.value = new;
        true
    }

    /// Another id for a call whose id an earlier one has, too.
    fn again(&mut self, id: &str) -> Option<String> {
        let known = self.by_source.entry(id.to_owned()).or_default();
        known.number += 1;
        if known.number == 1 && !self.taken.contains(id) {
            return None;
        }
        let from = known.number.max(2);
        let (other, number) = self.free(from, |number| format!("{id}_{number}"));
        if let Some(known) = self.by_source.get_mut(id) {
            // The next one need not look at the same numbers again.
            known.number = number;
        }
        Some(other)
    }

    fn answers(&mut self, message: &mut IrMessage, fit: &mut Fit<'_>) {
        let mut changed = false;
        for block in &mut message.content {
            let origin = block.origin;
            let IrContentBlock::ToolResult {
                tool_use_id, name, ..
            } = &mut block.body
            else {
                continue;
            };
            let call = self.call_of(tool_use_id.as_ref(), name.as_ref());
            let Some(call) = call else {
                if let Some(id) = tool_use_id {
                    changed |= self.fit_orphan_id(id, fit);
                }
                if self.rules.named_results && name.is_none() {
                    let place = tool_use_id.as_ref().map_or(origin, |id| id.origin);
                    fit.unsupported(
                        place,
                        "unknown_tool_call",
                        "the target wants the name of the tool, and no call has this id",
                    );
                }
                continue;
            };
            changed |= self.fit_answer_id(tool_use_id, &call, fit);
            if self.rules.named_results && name.is_none() {
                *name = Some(Leaf::new(call.name, Origin::Made("tool_name_of_call")));
                changed = true;
            }
        }
        if changed {
            message.origin = Origin::Host;
        }
    }

    /// An answer whose call is not in the conversation must not become the answer to another one.
    fn fit_orphan_id(&mut self, id: &mut Leaf<String>, fit: &mut Fit<'_>) -> bool {
        if !self.taken.contains(&id.value) {
            return false;
        }
        let (other, _) = self.free(2, |number| format!("{}_{number}", id.value));
        fit.carried(id.origin, How::Converted("tool_id_mapped"));
        id.value = other;
        true
    }

    /// The call an answer belongs to: by id, else the first open one of that name, else the first.
    fn call_of(&mut self, id: Option<&Leaf<String>>, name: Option<&Leaf<String>>) -> Option<Call> {
        match (id, name) {
            (Some(id), _) => {
                let open = self.open.with_source(&id.value);
                open.or_else(|| self.by_source.get(&id.value)?.last.clone())
            }
            (None, Some(name)) => self.open.with_name(&name.value),
            (None, None) => self.open.next(),
        }
    }

    fn fit_answer_id(&self, id: &mut Option<Leaf<String>>, call: &Call, fit: &mut Fit<'_>) -> bool {
        match (id.as_mut(), &call.id) {
            (Some(leaf), Some(wanted)) if leaf.value != *wanted => {
                fit.carried(leaf.origin, How::Converted("tool_id_mapped"));
                leaf.value.clone_from(wanted);
                true
            }
            (None, Some(wanted)) => {
                *id = Some(Leaf::new(wanted.clone(), Origin::Made("minted_tool_id")));
                true
            }
            _ => false,
        }
    }
}

/// Puts an answer behind every call that has none although the conversation went on.
fn answer(messages: &mut Vec<IrMessage>, unanswered: Vec<(usize, Vec<Call>)>) {
    let made = Origin::Made("missing_result");
    let mut rest = std::mem::take(messages).into_iter().enumerate().peekable();
    for (place, calls) in unanswered {
        let before = std::iter::from_fn(|| rest.next_if(|(index, _)| *index < place));
        messages.extend(before.map(|(_, message)| message));
        let content = calls.into_iter().map(|call| IrContentBlock::ToolResult {
            tool_use_id: call.id.map(|id| Leaf::new(id, made)),
            name: Some(Leaf::new(call.name, made)),
            content: vec![IrContentBlock::text(Leaf::new("not executed".to_owned(), made)).into()],
            plain: true,
            is_error: Some(Leaf::new(true, made)),
        });
        messages.push(IrMessage::new(IrRole::Tool, content.collect()));
    }
    messages.extend(rest.map(|(_, message)| message));
}
