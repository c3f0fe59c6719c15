//! Reading answers.

use std::collections::HashMap;

use abp_core::ir::{IrChoice, IrFinish, IrFinishReason, IrResponse, IrUsage, Leaf, Origin};
use abp_dialect::{DialectError, Item};

use super::{message_in, shape, usage};
use crate::{Flavour, wire};

/// Reads an answer.
pub(crate) fn read(flavour: &Flavour, root: Item<'_>) -> Result<IrResponse, DialectError> {
    let root = root.object()?;
    if root.some("error").is_some() && root.some("choices").is_none() {
        return Err(DialectError::NotThis {
            dialect: flavour.dialect,
            what: "response",
            problem: "it is an error".to_owned(),
        });
    }
    shape(root, &["object"]);
    let mut choices: Vec<Part<'_>> = Vec::new();
    let mut places = HashMap::new();
    for item in root.need("choices")?.array()? {
        let choice = read_choice(flavour, item.object()?)?;
        let place = *places.entry(choice.index).or_insert(choices.len());
        match choices.get_mut(place) {
            Some(known) => merge(known, Part { choice, item }),
            None => choices.push(Part { choice, item }),
        }
    }
    let choices = choices.into_iter().map(|part| part.choice).collect();
    Ok(IrResponse {
        id: some_text(root, "id")?,
        model: some_text(root, "model")?,
        created: root.opt_number("created")?,
        choices,
        usage: read_usage(root)?,
        vendor: root.vendor_fields(wire::RESPONSE_MEMBERS),
    })
}

/// Reads what an answer says was used.
pub(crate) fn read_usage(root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
    root.some("usage").map(usage::read).transpose()
}

/// A text that says something; some servers fill in every member they know.
pub(crate) fn some_text(root: Item<'_>, key: &str) -> Result<Option<Leaf<String>>, DialectError> {
    let Some(item) = root.some(key) else {
        return Ok(None);
    };
    let text = item.text()?;
    if text.is_empty() {
        item.structure();
        return Ok(None);
    }
    Ok(Some(text))
}

fn read_choice(flavour: &Flavour, choice: Item<'_>) -> Result<IrChoice, DialectError> {
    let message = choice.need("message")?.object()?;
    shape(message, &["role"]);
    Ok(IrChoice {
        index: read_index(choice),
        message: message_in::assistant(flavour, message)?,
        finish: read_finish(choice)?,
        vendor: choice.vendor_fields(wire::CHOICE_MEMBERS),
        origin: choice.origin(),
    })
}

/// The number of a choice; the first where it has none.
pub(crate) fn read_index(choice: Item<'_>) -> u32 {
    let Some(index) = choice.get("index") else {
        return 0;
    };
    index.structure();
    let number = index
        .view()
        .as_u64()
        .and_then(|index| u32::try_from(index).ok());
    number.unwrap_or_default()
}

/// Why a choice ended; an empty word says nothing.
pub(crate) fn read_finish(choice: Item<'_>) -> Result<Option<IrFinish>, DialectError> {
    let word = some_text(choice, "finish_reason")?;
    Ok(word.map(|word| IrFinish::new(wire::finish_reason(&word), Some(word))))
}

/// Whether an end says more than the one that is known: a call has to be answered, whatever the
/// other parts of the answer say.
pub(crate) fn outranks(next: Option<&IrFinish>, known: Option<&IrFinish>) -> bool {
    let calls = |finish: &IrFinish| finish.reason == IrFinishReason::ToolUse;
    known.is_none() || next.is_some_and(calls)
}

/// A choice, and where its end is said.
struct Part<'t> {
    choice: IrChoice,
    item: Item<'t>,
}

/// Puts together what a server split over two choices of one number: a text here, calls there. What
/// is put together is no longer what the source says at one place.
fn merge<'t>(known: &mut Part<'t>, mut next: Part<'t>) {
    if outranks(next.choice.finish.as_ref(), known.choice.finish.as_ref()) {
        std::mem::swap(&mut known.choice.finish, &mut next.choice.finish);
        std::mem::swap(&mut known.item, &mut next.item);
    }
    // One answer ends once.
    if let Some(end) = next.item.get("finish_reason") {
        end.repeats();
    }
    let (known, next) = (&mut known.choice, next.choice);
    known.origin = Origin::Host;
    known.message.origin = Origin::Host;
    known.message.plain &= next.message.content.is_empty();
    known.message.content.extend(next.message.content);
    known.message.vendor.extend(next.message.vendor);
    known.vendor.extend(next.vendor);
}
