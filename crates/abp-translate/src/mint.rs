//! Ids for the calls of an answer whose vendor gives none.
//!
//! A caller answers a call by its id, and what is kept for later turns is found by it. So an id must
//! be that call's alone, among all answers: it is the answer's own id with the call's number.

use abp_core::ir::{IrBlockStart, IrContentBlock, IrDelta, IrResponse, Leaf, Origin};
use abp_dialect::DialectRules;

/// How much of the answer's id is taken over: the shortest limit that a vendor sets is 40 for all of it.
const LONGEST: usize = 28;

/// Gives ids to the calls of an answer, where the target asks for ids.
pub(crate) fn mint_ids(response: &mut IrResponse, rules: &DialectRules) {
    let mut minting = Minting::new(rules);
    minting.begin(response.id.as_ref());
    let messages = response.choices.iter_mut();
    let blocks = messages.flat_map(|choice| &mut choice.message.content);
    for block in blocks {
        if let IrContentBlock::ToolUse { id, .. } = &mut block.body {
            minting.mint(id);
        }
    }
}

/// Gives ids to calls, one after the other.
#[derive(Debug)]
pub(crate) struct Minting {
    required: bool,
    /// Its id.
    answer: String,
    number: u32,
}

impl Minting {
    pub(crate) fn new(rules: &DialectRules) -> Self {
        Self {
            required: rules.tool_id.required,
            answer: String::new(),
            number: 0,
        }
    }

    /// Gives an id to the call that begins here, where one does.
    pub(crate) fn delta(&mut self, delta: &mut IrDelta) {
        match delta {
            IrDelta::Start { id, .. } => self.begin(id.as_ref()),
            IrDelta::BlockStart {
                start: IrBlockStart::ToolUse { id, .. },
                ..
            } => self.mint(id),
            _ => {}
        }
    }

    fn begin(&mut self, answer: Option<&Leaf<String>>) {
        self.answer = answer.map_or_else(String::new, |id| id.value.clone());
    }

    fn mint(&mut self, id: &mut Option<Leaf<String>>) {
        let number = self.number;
        self.number += 1;
        if id.is_some() || !self.required {
            return;
        }
        let is_plain =
            |letter: &char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
        let plain = self.answer.chars().filter(is_plain);
        let minted = match plain.take(LONGEST).collect::<String>().as_str() {
            "" => format!("call_{number}"),
            answer => format!("call_{answer}_{number}"),
        };
        *id = Some(Leaf::new(minted, Origin::Made("minted_tool_id")));
    }
}
