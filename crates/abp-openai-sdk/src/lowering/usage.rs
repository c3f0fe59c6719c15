//! Token counts. They are inclusive here, as in the representation.

use abp_core::ir::{IrUsage, Leaf};
use abp_dialect::{DialectError, How, Item, Lowering};

use crate::wire;

/// Reads counts.
pub(crate) fn read(usage: Item<'_>) -> Result<IrUsage, DialectError> {
    let usage = usage.object()?;
    let prompt = usage.some("prompt_tokens_details");
    let completion = usage.some("completion_tokens_details");
    let mut vendor = usage.vendor_fields(wire::USAGE_MEMBERS);
    for details in prompt.iter().chain(&completion) {
        vendor.extend(details.vendor_fields(wire::USAGE_MEMBERS));
    }
    // Kimi and DeepSeek count what came from a cache under names of their own, some of them twice.
    let cached = [
        prompt.and_then(|details| details.some("cached_tokens")),
        usage.some("cached_tokens"),
        usage.some("prompt_cache_hit_tokens"),
    ];
    let reasoning = [
        completion.and_then(|details| details.some("reasoning_tokens")),
        usage.some("reasoning_tokens"),
    ];
    let written = [prompt.and_then(|details| details.some("cache_write_tokens"))];
    Ok(IrUsage {
        input_tokens: usage.opt_count("prompt_tokens")?,
        output_tokens: usage.opt_count("completion_tokens")?,
        cache_creation_tokens: first(&written)?,
        cache_read_tokens: first(&cached)?,
        reasoning_tokens: first(&reasoning)?,
        total_tokens: usage.opt_count("total_tokens")?,
        vendor,
        origin: usage.origin(),
    })
}

/// The first count that is there; the others repeat it.
fn first(places: &[Option<Item<'_>>]) -> Result<Option<Leaf<u64>>, DialectError> {
    let mut found = places.iter().flatten();
    let count = found.next().map(|item| item.count()).transpose()?;
    for item in found {
        item.repeats();
    }
    Ok(count)
}

/// Writes counts; what is unknown is left out.
pub(crate) fn put(usage: &IrUsage, out: &mut Lowering<'_>) {
    let IrUsage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        reasoning_tokens,
        total_tokens,
        vendor: _,
        origin: _,
    } = usage;
    out.put_object("usage", |out| {
        out.put_opt("prompt_tokens", input_tokens.as_ref());
        out.put_opt("completion_tokens", output_tokens.as_ref());
        match (total_tokens, input_tokens, output_tokens) {
            (Some(total), _, _) => out.put("total_tokens", total),
            (None, Some(input), Some(output)) => {
                let from = [input.origin, output.origin];
                let total = input.value.saturating_add(output.value);
                out.put_as(
                    "total_tokens",
                    &total,
                    &from,
                    &How::Converted("usage_total"),
                );
            }
            _ => {}
        }
        if cache_read_tokens.is_some() || cache_creation_tokens.is_some() {
            out.put_object("prompt_tokens_details", |out| {
                out.put_opt("cached_tokens", cache_read_tokens.as_ref());
                out.put_opt("cache_write_tokens", cache_creation_tokens.as_ref());
            });
        }
        if let Some(reasoning) = reasoning_tokens {
            out.put_object("completion_tokens_details", |out| {
                out.put("reasoning_tokens", reasoning);
            });
        }
    });
}
