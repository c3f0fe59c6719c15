//! Reasoning that a client does not carry from turn to turn.
//!
//! Some vendors want their own reasoning back, signed or encrypted, next to the calls it led to. A
//! client that speaks another dialect has no place for it, so somebody has to keep it meanwhile. That
//! store is not here: [`kept_reasoning`] says what to keep of an answer, [`needed_reasoning`] what a
//! request lacks, and [`recover`] puts back what was found. Whoever keeps it must key it by the
//! caller, the vendor and the model too; otherwise it would leak between callers.

use std::collections::BTreeMap;

use abp_core::ir::{
    IrBlock, IrContentBlock, IrConversation, IrMessage, IrResponse, IrRole, Leaf, Origin,
};
use abp_dialect::Dialect;
use serde::{Deserialize, Serialize};

/// Reasoning found again, by the id of a call it led to.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recovered {
    calls: BTreeMap<String, KeptReasoning>,
}

/// The reasoning that led to a call.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct KeptReasoning {
    /// The blocks that stood before the first call.
    pub blocks: Vec<IrBlock>,
    /// The vendor's proof on the call itself.
    pub signature: Option<String>,
}

impl Recovered {
    /// Adds what was kept for a call.
    pub fn insert(&mut self, call: impl Into<String>, kept: KeptReasoning) {
        self.calls.insert(call.into(), kept);
    }
}

/// What of an answer has to be kept for later turns, by the id of the call it led to.
#[must_use]
pub fn kept_reasoning(response: &IrResponse) -> Vec<(String, KeptReasoning)> {
    response
        .choices
        .iter()
        .flat_map(|choice| kept_of(&choice.message))
        .collect()
}

fn kept_of(message: &IrMessage) -> Vec<(String, KeptReasoning)> {
    let mut before: Vec<IrBlock> = Vec::new();
    let mut kept = Vec::new();
    for block in &message.content {
        match &block.body {
            IrContentBlock::Thinking { .. } | IrContentBlock::RedactedThinking { .. } => {
                before.push(without_origin(block));
            }
            IrContentBlock::ToolUse {
                id: Some(id),
                signature,
                ..
            } if !before.is_empty() || signature.is_some() => {
                let reasoning = KeptReasoning {
                    blocks: std::mem::take(&mut before),
                    signature: signature.as_ref().map(|signature| signature.value.clone()),
                };
                kept.push((id.value.clone(), reasoning));
            }
            _ => {}
        }
    }
    kept
}

/// The calls whose reasoning the target wants and the conversation lacks.
#[must_use]
pub fn needed_reasoning(conversation: &IrConversation, to: Dialect) -> Vec<String> {
    conversation
        .messages
        .iter()
        .filter(|message| message.role == IrRole::Assistant && !is_proven(message, to))
        .flat_map(|message| call_ids(message).map(str::to_owned))
        .collect()
}

/// Puts reasoning back: what led to a turn's first calls at the turn's start, where vendors want it, the
/// rest before its calls. What was not found stays away; the target's dialect then does what it can, and
/// labels it.
pub fn recover(conversation: &mut IrConversation, to: Dialect, recovered: &Recovered) {
    for message in &mut conversation.messages {
        if message.role != IrRole::Assistant || is_proven(message, to) {
            continue;
        }
        let mut content = Vec::with_capacity(message.content.len());
        let mut thought = false;
        for mut block in std::mem::take(&mut message.content) {
            if let IrContentBlock::ToolUse {
                id: Some(id),
                signature,
                ..
            } = &mut block.body
                && let Some(kept) = recovered.calls.get(&id.value)
            {
                message.origin = Origin::Host;
                let place = if thought { content.len() } else { 0 };
                content.splice(place..place, kept.blocks.iter().map(without_origin));
                thought = true;
                if signature.is_none() {
                    let made = |proof: &String| Leaf::new(proof.clone(), Origin::RECOVERED);
                    *signature = kept.signature.as_ref().map(made);
                }
            }
            content.push(block);
        }
        message.content = content;
    }
}

/// Whether a turn that calls tools carries the proof that the target wants, or needs none.
fn is_proven(message: &IrMessage, to: Dialect) -> bool {
    if call_ids(message).next().is_none() {
        return true;
    }
    let any = |wanted: fn(&IrContentBlock) -> bool| {
        message.content.iter().any(|block| wanted(&block.body))
    };
    match to {
        Dialect::Claude => any(|body| match body {
            IrContentBlock::Thinking { signature, .. } => signature.is_some(),
            IrContentBlock::RedactedThinking { .. } => true,
            _ => false,
        }),
        Dialect::Gemini => any(
            |body| matches!(body, IrContentBlock::ToolUse { signature, .. } if signature.is_some()),
        ),
        Dialect::Codex => any(
            |body| matches!(body, IrContentBlock::Thinking { encrypted, .. } if encrypted.is_some()),
        ),
        Dialect::Kimi => any(|body| matches!(body, IrContentBlock::Thinking { .. })),
        _ => true,
    }
}

fn call_ids(message: &IrMessage) -> impl Iterator<Item = &str> {
    message
        .content
        .iter()
        .filter_map(|block| match &block.body {
            IrContentBlock::ToolUse { id: Some(id), .. } => Some(id.as_str()),
            _ => None,
        })
}

/// A copy that does not point into the document it was read from. Keeping forgets where it came from.
fn without_origin(block: &IrBlock) -> IrBlock {
    let fresh = |leaf: &Leaf<String>| Leaf::new(leaf.value.clone(), Origin::RECOVERED);
    let body = match &block.body {
        IrContentBlock::Thinking {
            text,
            kind,
            signature,
            encrypted,
            item_id,
        } => IrContentBlock::Thinking {
            text: fresh(text),
            kind: *kind,
            signature: signature.as_ref().map(fresh),
            encrypted: encrypted.as_ref().map(fresh),
            item_id: item_id.as_ref().map(fresh),
        },
        IrContentBlock::RedactedThinking { data } => {
            IrContentBlock::RedactedThinking { data: fresh(data) }
        }
        other => other.clone(),
    };
    body.into()
}
