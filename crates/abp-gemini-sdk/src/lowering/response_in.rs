//! Reading an answer.

use abp_core::ir::{
    IrBlock, IrChoice, IrContentBlock, IrFinish, IrFinishReason, IrMessage, IrResponse, IrRole,
    IrUsage, IrVendorField, Leaf, Origin,
};
use abp_dialect::{Dialect, DialectError, How, Item};
use abp_json::Kind;

use super::content_in::{message, read_parts};
use super::usage::read_usage;
use crate::grounding::{self, Segment};
use crate::wire::{Fields, finish_reason, numbered, vendor};

/// The vendor field that stands for an answer which came as a list of pieces.
pub(super) const PIECES: &str = "pieces";

/// Reads an answer: one document, or the list of pieces that a stream without events is.
pub(crate) fn read_response(root: Item<'_>) -> Result<IrResponse, DialectError> {
    let mut response = IrResponse::default();
    if root.kind() == Kind::Array {
        response.vendor.push(root.vendor(PIECES));
        root.note(How::Converted("pieces_joined"));
        for piece in root.items() {
            read_piece(Fields::of(piece)?, &mut response)?;
        }
    } else {
        read_piece(Fields::of(root)?, &mut response)?;
    }
    if response.choices.is_empty() {
        response
            .choices
            .push(nothing_said(IrFinishReason::Incomplete, None));
    }
    Ok(response)
}

/// Reads what an answer says was used; of pieces, the last one that tells.
pub(crate) fn read_usage_of(root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
    let counts = match root.kind() {
        Kind::Array => root.items().filter_map(counts_of).last(),
        _ => counts_of(root),
    };
    counts.map(read_usage).transpose()
}

fn counts_of(piece: Item<'_>) -> Option<Item<'_>> {
    Fields::of(piece).ok()?.get("usageMetadata")
}

fn read_piece(fields: Fields<'_>, response: &mut IrResponse) -> Result<(), DialectError> {
    let known = ["candidates", "promptFeedback", "usageMetadata"];
    if fields.has("error") || !known.iter().any(|name| fields.has(name)) {
        return Err(DialectError::NotThis {
            dialect: Dialect::Gemini,
            what: "response",
            problem: "it has neither candidates nor feedback nor usage".to_owned(),
        });
    }
    for (name, known) in [
        ("responseId", &mut response.id),
        ("modelVersion", &mut response.model),
    ] {
        match (fields.get(name), known) {
            (Some(item), Some(_)) => item.repeats(),
            (Some(item), known) => *known = Some(item.text()?),
            (None, _) => {}
        }
    }
    response.vendor.extend(fields.vendor(vendor::RESPONSE));
    for (position, candidate) in fields.repeated("candidates").enumerate() {
        read_candidate(Fields::of(candidate)?, position, &mut response.choices)?;
    }
    if let Some(feedback) = fields.fields("promptFeedback")? {
        response
            .vendor
            .extend(feedback.vendor(vendor::PROMPT_FEEDBACK));
        if let Some(finish) = block_reason(feedback)? {
            let choice = nothing_said(finish.reason, finish.native);
            response.choices.push(choice);
        }
    }
    if let Some(item) = fields.get("usageMetadata") {
        // The counts of a piece are sums so far.
        response.usage = Some(read_usage(item)?);
    }
    Ok(())
}

fn nothing_said(reason: IrFinishReason, native: Option<Leaf<String>>) -> IrChoice {
    IrChoice {
        index: 0,
        message: IrMessage::new(IrRole::Assistant, Vec::new()),
        finish: Some(IrFinish::new(reason, native)),
        vendor: Vec::new(),
        origin: Origin::Host,
    }
}

/// Why a prompt got no answer at all.
pub(crate) fn block_reason(feedback: Fields<'_>) -> Result<Option<IrFinish>, DialectError> {
    let word = feedback.word("blockReason", numbered::BLOCK_REASON)?;
    Ok(word.map(|word| IrFinish::new(IrFinishReason::ContentFilter, Some(word))))
}

fn read_candidate(
    fields: Fields<'_>,
    position: usize,
    choices: &mut Vec<IrChoice>,
) -> Result<(), DialectError> {
    let item = fields.item();
    let index = candidate_index(fields, position);
    let mut said = match fields.fields("content")? {
        Some(content) => {
            if let Some(role) = content.get("role") {
                role.structure();
            }
            message(IrRole::Assistant, read_parts(content)?, content.item())
        }
        None => message(IrRole::Assistant, Vec::new(), item),
    };
    let known = choices.iter_mut().find(|choice| choice.index == index);
    let before = known
        .as_ref()
        .map_or(&[][..], |choice| choice.message.content.as_slice());
    let calls = said.content.iter().chain(before).any(is_call);
    let finish = read_finish(fields, Finish { calls })?;
    let mut beside = fields.vendor(vendor::CANDIDATE);
    match known {
        Some(choice) => {
            join(&mut choice.message, said.content);
            beside.extend(cite(fields, &mut choice.message)?);
            choice.finish = finish.or(choice.finish.take());
            choice.vendor.extend(beside);
        }
        None => {
            beside.extend(cite(fields, &mut said)?);
            choices.push(IrChoice {
                index,
                message: said,
                finish,
                vendor: beside,
                origin: item.origin(),
            });
        }
    }
    Ok(())
}

/// The number of a candidate; zero is often left out.
pub(crate) fn candidate_index(fields: Fields<'_>, position: usize) -> u32 {
    let Some(item) = fields.get("index") else {
        return u32::try_from(position).unwrap_or(u32::MAX);
    };
    item.structure();
    let index = item
        .view()
        .as_u64()
        .and_then(|index| u32::try_from(index).ok());
    index.unwrap_or_default()
}

fn is_call(block: &IrBlock) -> bool {
    matches!(block.body, IrContentBlock::ToolUse { .. })
}

/// What is known when a candidate ends.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Finish {
    /// Whether it called tools, which the vendor's word does not tell.
    pub(crate) calls: bool,
}

/// Reads why a candidate ended; `None` where it did not.
pub(crate) fn read_finish(
    fields: Fields<'_>,
    known: Finish,
) -> Result<Option<IrFinish>, DialectError> {
    let Some(word) = fields.word("finishReason", numbered::FINISH_REASON)? else {
        return Ok(None);
    };
    let reason = match finish_reason(&word) {
        IrFinishReason::Stop if known.calls => IrFinishReason::ToolUse,
        reason => reason,
    };
    Ok(Some(IrFinish {
        details: fields.get("finishMessage").map(Item::raw),
        ..IrFinish::new(reason, Some(word))
    }))
}

/// Appends what a later piece says; texts of the same kind grow together.
fn join(message: &mut IrMessage, more: Vec<IrBlock>) {
    for block in more {
        let grown = message
            .content
            .last_mut()
            .is_some_and(|last| grow(&mut last.body, &block.body));
        if !grown {
            message.content.push(block);
        }
    }
    message.plain = matches!(
        message.content.as_slice(),
        [IrBlock {
            body: IrContentBlock::Text { .. },
            ..
        }]
    );
}

fn grow(last: &mut IrContentBlock, more: &IrContentBlock) -> bool {
    match (last, more) {
        (IrContentBlock::Text { text, .. }, IrContentBlock::Text { text: more, .. }) => {
            text.value.push_str(more);
        }
        (
            IrContentBlock::Thinking {
                text, signature, ..
            },
            IrContentBlock::Thinking {
                text: more,
                signature: proof,
                ..
            },
        ) if signature.is_none() => {
            text.value.push_str(more);
            signature.clone_from(proof);
        }
        _ => return false,
    }
    true
}

/// Attaches the sources of a candidate to its texts; returns what belongs to none.
fn cite(fields: Fields<'_>, message: &mut IrMessage) -> Result<Vec<IrVendorField>, DialectError> {
    let blocks = &message.content;
    let locate = |segment: &Segment| {
        blocks.iter().enumerate().find_map(|(number, block)| {
            let IrContentBlock::Text { text, .. } = &block.body else {
                return None;
            };
            let (start, end) = grounding::characters(text, segment)?;
            Some((number, start, end))
        })
    };
    let found = grounding::read(fields, &mut Vec::new(), locate)?;
    for (number, citation) in found.citations {
        if let Some(block) = message.content.get_mut(number)
            && let IrContentBlock::Text { citations, .. } = &mut block.body
        {
            citations.push(citation);
        }
    }
    Ok(found.vendor)
}
