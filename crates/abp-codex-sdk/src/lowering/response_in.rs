//! Reading answers.

use abp_core::ir::{
    IrBlock, IrChoice, IrContentBlock, IrFinish, IrFinishReason, IrMessage, IrResponse, IrRole,
    IrUsage, IrVendorField,
};
use abp_dialect::{Dialect, DialectError, Item};
use abp_json::Kind;

use super::items_in::{item_kind, model_blocks};
use super::settle_empty;
use crate::wire;

/// Reads an answer.
pub(crate) fn read_response(root: Item<'_>) -> Result<IrResponse, DialectError> {
    let root = root.object()?;
    let object = root.tag_of("object");
    settle_empty(root);
    let Some(output) = root.some("output") else {
        return Err(DialectError::NotThis {
            dialect: Dialect::Codex,
            what: "response",
            problem: format!("{:?} has no output", object.unwrap_or_default()),
        });
    };
    if let Some(text) = root.some("output_text") {
        text.repeats();
    }
    let mut vendor = root.vendor_fields(wire::RESPONSE_VENDOR);
    if object.is_some_and(|object| object != "response") {
        vendor.extend(root.vendor_fields(&["object"]));
    }
    let content = read_output(output)?;
    let finish = read_finish(root, completed_reason(&content), &mut vendor)?;
    let message = IrMessage {
        role: IrRole::Assistant,
        content,
        plain: false,
        vendor: Vec::new(),
        origin: output.origin(),
    };
    Ok(IrResponse {
        id: root.opt_text("id")?,
        model: root.opt_text("model")?,
        created: root.opt_number("created_at")?,
        choices: vec![IrChoice {
            index: 0,
            message,
            finish,
            vendor: Vec::new(),
            origin: output.origin(),
        }],
        usage: read_usage_of(root)?,
        vendor,
    })
}

fn read_output(output: Item<'_>) -> Result<Vec<IrBlock>, DialectError> {
    let mut blocks = Vec::new();
    for item in output.array()? {
        let item = item.object()?;
        settle_empty(item);
        blocks.append(&mut model_blocks(item, &item_kind(item))?.0);
    }
    Ok(blocks)
}

/// Reads why an answer ended; `None` where it did not. What `completed` means, the content tells.
pub(crate) fn read_finish(
    response: Item<'_>,
    completed: IrFinishReason,
    vendor: &mut Vec<IrVendorField>,
) -> Result<Option<IrFinish>, DialectError> {
    let Some(status) = response.some("status") else {
        return Ok(None);
    };
    let finish = match status.text()?.as_str() {
        "completed" => IrFinish::new(completed, Some(status.text()?)),
        "incomplete" => read_incomplete(response, status)?,
        "failed" => IrFinish {
            details: response.opt_raw("error"),
            ..IrFinish::new(IrFinishReason::Error, Some(status.text()?))
        },
        "cancelled" => IrFinish::new(IrFinishReason::Incomplete, Some(status.text()?)),
        _ => {
            vendor.push(status.vendor("status"));
            return Ok(None);
        }
    };
    Ok(Some(finish))
}

fn completed_reason(content: &[IrBlock]) -> IrFinishReason {
    let has = |wanted: fn(&IrContentBlock) -> bool| content.iter().any(|block| wanted(&block.body));
    if has(|body| matches!(body, IrContentBlock::ToolUse { .. })) {
        IrFinishReason::ToolUse
    } else if has(|body| matches!(body, IrContentBlock::Refusal { .. })) {
        IrFinishReason::Refusal
    } else {
        IrFinishReason::Stop
    }
}

fn read_incomplete(response: Item<'_>, status: Item<'_>) -> Result<IrFinish, DialectError> {
    let details = response.some("incomplete_details");
    let Some(reason) = details.and_then(|details| details.some("reason")) else {
        return Ok(IrFinish::new(
            IrFinishReason::Incomplete,
            Some(status.text()?),
        ));
    };
    status.structure();
    let word = reason.text()?;
    Ok(IrFinish::new(wire::incomplete_reason(&word), Some(word)))
}

/// Reads what an answer says was used.
pub(crate) fn read_usage_of(root: Item<'_>) -> Result<Option<IrUsage>, DialectError> {
    root.some("usage").map(read_usage).transpose()
}

/// Reads counts, which include cached and reasoning tokens already.
pub(crate) fn read_usage(usage: Item<'_>) -> Result<IrUsage, DialectError> {
    let usage = usage.object()?;
    settle_empty(usage);
    let detail = |group: &str, key: &str| match usage.some(group) {
        Some(details) if details.kind() == Kind::Object => details.opt_count(key),
        _ => Ok(None),
    };
    Ok(IrUsage {
        input_tokens: usage.opt_count("input_tokens")?,
        output_tokens: usage.opt_count("output_tokens")?,
        cache_creation_tokens: detail("input_tokens_details", "cache_write_tokens")?,
        cache_read_tokens: detail("input_tokens_details", "cached_tokens")?,
        reasoning_tokens: detail("output_tokens_details", "reasoning_tokens")?,
        total_tokens: usage.opt_count("total_tokens")?,
        vendor: usage.vendor_fields(wire::USAGE_VENDOR),
        origin: usage.origin(),
    })
}
