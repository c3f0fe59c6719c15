//! Reading answers.

use abp_core::ir::{IrBlock, IrChoice, IrFinish, IrMessage, IrResponse, IrRole, IrUsage, Leaf};
use abp_dialect::{Dialect, DialectError, How, Item};

use super::content_in::read_block;
use super::object;
use crate::wire;

/// Reads an answer, or the count of a request's tokens, which is an answer without choices.
pub(crate) fn read_response(root: Item<'_>) -> Result<IrResponse, DialectError> {
    let root = object(root)?;
    let Some(content) = root.some("content") else {
        return read_token_count(root);
    };
    for shape in ["type", "role"] {
        if let Some(tag) = root.get(shape) {
            tag.structure();
        }
    }
    let blocks = content
        .array()?
        .map(read_block)
        .collect::<Result<Vec<IrBlock>, _>>()?;
    let message = IrMessage {
        role: IrRole::Assistant,
        content: blocks,
        plain: false,
        vendor: Vec::new(),
        origin: content.origin(),
    };
    let choice = IrChoice {
        index: 0,
        message,
        finish: read_finish(root)?,
        vendor: Vec::new(),
        origin: content.origin(),
    };
    Ok(IrResponse {
        id: root.opt_text("id")?,
        model: root.opt_text("model")?,
        created: None,
        choices: vec![choice],
        usage: read_usage_of(root)?,
        vendor: root.vendor_fields(wire::RESPONSE_VENDOR),
    })
}

fn read_token_count(root: Item<'_>) -> Result<IrResponse, DialectError> {
    let Some(count) = root.opt_count("input_tokens")? else {
        return Err(DialectError::NotThis {
            dialect: Dialect::Claude,
            what: "response",
            problem: "there is no content".to_owned(),
        });
    };
    Ok(IrResponse {
        usage: Some(IrUsage {
            input_tokens: Some(count),
            origin: root.origin(),
            ..IrUsage::default()
        }),
        vendor: root.vendor_fields(wire::RESPONSE_VENDOR),
        ..IrResponse::default()
    })
}

/// Reads why an answer ended, where it did.
pub(crate) fn read_finish(item: Item<'_>) -> Result<Option<IrFinish>, DialectError> {
    let Some(word) = item.opt_text("stop_reason")? else {
        return Ok(None);
    };
    Ok(Some(IrFinish {
        reason: wire::finish_reason(&word),
        native: Some(word),
        stop_sequence: item.opt_text("stop_sequence")?,
        details: item.opt_raw("stop_details"),
    }))
}

/// Reads what a message says was used.
pub(crate) fn read_usage_of(root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
    let usage = root.some("usage");
    usage.map(|usage| read_usage(usage, 0)).transpose()
}

/// Reads token counts. The vendor does not count cached tokens as input; the representation does.
/// `cached` is what an earlier event counted as cached, for events that do not repeat it.
pub(crate) fn read_usage(item: Item<'_>, cached: u64) -> Result<IrUsage, DialectError> {
    let usage = object(item)?;
    let created = usage.opt_count("cache_creation_input_tokens")?;
    let read = usage.opt_count("cache_read_input_tokens")?;
    let cached = cached_tokens(created.as_ref(), read.as_ref()).unwrap_or(cached);
    let input = usage.opt_count("input_tokens")?;
    let input = input.map(|fresh| fresh.with(fresh.value.saturating_add(cached)));
    if cached > 0
        && let Some(fresh) = usage.some("input_tokens")
    {
        fresh.note(How::Converted("usage_inclusive"));
    }
    let details = usage.some("output_tokens_details");
    let reasoning = details.map(|details| details.opt_count("thinking_tokens"));
    Ok(IrUsage {
        input_tokens: input,
        output_tokens: usage.opt_count("output_tokens")?,
        cache_creation_tokens: created,
        cache_read_tokens: read,
        reasoning_tokens: reasoning.transpose()?.flatten(),
        total_tokens: None,
        vendor: usage.vendor_fields(wire::USAGE_VENDOR),
        origin: usage.origin(),
    })
}

/// All tokens from or into a cache; `None` where nothing is said about them.
pub(crate) fn cached_tokens(created: Option<&Leaf<u64>>, read: Option<&Leaf<u64>>) -> Option<u64> {
    let count = |leaf: Option<&Leaf<u64>>| leaf.map_or(0, |leaf| leaf.value);
    let known = created.is_some() || read.is_some();
    known.then(|| count(created).saturating_add(count(read)))
}
