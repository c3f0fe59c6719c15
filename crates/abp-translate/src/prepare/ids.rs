//! Calls and their answers: every call an id, every answer its call.

use std::collections::{BTreeMap, VecDeque};

use abp_core::ir::{IrContentBlock, IrConversation, IrMessage, IrRole, Leaf, Origin};
use abp_dialect::{DialectRules, How};

use super::Fit;
use super::names::NameMap;

/// A call that waits for its answer.
#[derive(Debug, Clone)]
struct Call {
    /// The id in the source, where it has one.
    source: Option<String>,
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
        used: BTreeMap::new(),
        open: VecDeque::new(),
        known: BTreeMap::new(),
    };
    let mut turn = 0;
    let mut unanswered = Vec::new();
    for (index, message) in conversation.messages.iter_mut().enumerate() {
        if matches!(message.role, IrRole::Assistant | IrRole::User) && !pairing.open.is_empty() {
            unanswered.push((index, std::mem::take(&mut pairing.open)));
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
    /// How often an id of the source was used for a call.
    used: BTreeMap<String, u32>,
    open: VecDeque<Call>,
    /// Every call so far by its id in the source.
    known: BTreeMap<String, Call>,
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
                source: source.clone(),
                id: id.as_ref().map(|id| id.value.clone()),
                name: name.value.clone(),
            };
            if let Some(source) = source {
                self.known.insert(source, call.clone());
            }
            self.open.push_back(call);
        }
        if changed {
            message.origin = Origin::Host;
        }
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
                let minted = format!("call_{turn}_{number}");
                *id = Some(Leaf::new(minted, Origin::Made("minted_tool_id")));
            }
            return self.rules.tool_id.required;
        };
        let uses = self.used.entry(leaf.value.clone()).or_default();
        *uses += 1;
        let again = (*uses > 1).then(|| format!("{}_{uses}", leaf.value));
        let wanted = again.as_deref().unwrap_or(&leaf.value);
        let fitting = self.ids.as_mut().and_then(|ids| ids.fitting(wanted));
        let Some(new) = fitting.or(again) else {
            return false;
        };
        fit.carried(leaf.origin, How::Converted("tool_id_mapped"));
        leaf.value = new;
        true
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

    /// The call an answer belongs to: by id, else the first open one of that name, else the first.
    fn call_of(&mut self, id: Option<&Leaf<String>>, name: Option<&Leaf<String>>) -> Option<Call> {
        let place = match (id, name) {
            (Some(id), _) => {
                let same = |call: &Call| call.source.as_deref() == Some(id.as_str());
                match self.open.iter().position(same) {
                    Some(place) => Some(place),
                    None => return self.known.get(&id.value).cloned(),
                }
            }
            (None, Some(name)) => self.open.iter().position(|call| call.name == name.value),
            (None, None) => (!self.open.is_empty()).then_some(0),
        };
        self.open.remove(place?)
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
fn answer(messages: &mut Vec<IrMessage>, unanswered: Vec<(usize, VecDeque<Call>)>) {
    let made = Origin::Made("missing_result");
    for (index, calls) in unanswered.into_iter().rev() {
        let content = calls.into_iter().map(|call| IrContentBlock::ToolResult {
            tool_use_id: call.id.map(|id| Leaf::new(id, made)),
            name: Some(Leaf::new(call.name, made)),
            content: vec![IrContentBlock::text(Leaf::new("not executed".to_owned(), made)).into()],
            plain: true,
            is_error: Some(Leaf::new(true, made)),
        });
        messages.insert(index, IrMessage::new(IrRole::Tool, content.collect()));
    }
}
