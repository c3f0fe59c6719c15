//! Token counts.
//!
//! The vendor counts tokens of reasoning, and those that its own tools read, apart from the rest.

use abp_core::ir::{IrUsage, Leaf};
use abp_dialect::{DialectError, How, Item, Lowering};

use crate::wire::{Fields, vendor};

const INCLUSIVE: How = How::Converted("usage_inclusive");

/// Reads `usageMetadata`.
pub(crate) fn read_usage(item: Item<'_>) -> Result<IrUsage, DialectError> {
    let fields = Fields::of(item)?;
    let reasoning = fields.count("thoughtsTokenCount")?;
    let total = fields.count("totalTokenCount")?;
    if let Some(total) = fields.get("totalTokenCount") {
        total.repeats();
    }
    let input = sum(fields, "promptTokenCount", "toolUsePromptTokenCount")?;
    let written = sum(fields, "candidatesTokenCount", "thoughtsTokenCount")?;
    // A count of zero is left out; the total then tells that it is known.
    let rest = || {
        let (total, input) = (total.as_ref()?, input.as_ref()?);
        Some(Leaf::from(total.saturating_sub(input.value)))
    };
    let output = written.or_else(rest);
    Ok(IrUsage {
        input_tokens: input,
        output_tokens: output,
        cache_creation_tokens: None,
        cache_read_tokens: fields.count("cachedContentTokenCount")?,
        reasoning_tokens: reasoning,
        total_tokens: total,
        vendor: fields.vendor(vendor::USAGE),
        origin: item.origin(),
    })
}

/// A count together with another that the vendor keeps apart.
fn sum(fields: Fields<'_>, name: &str, apart: &str) -> Result<Option<Leaf<u64>>, DialectError> {
    let (Some(main), Some(other)) = (fields.count(name)?, fields.count(apart)?) else {
        return Ok(fields.count(name)?.or(fields.count(apart)?));
    };
    for item in [fields.get(name), fields.get(apart)].into_iter().flatten() {
        item.note(INCLUSIVE);
    }
    Ok(Some(main.with(main.saturating_add(other.value))))
}

/// Writes `usageMetadata`; `own` says that the source speaks this dialect, too.
pub(crate) fn write_usage(usage: &IrUsage, own: bool, out: &mut Lowering<'_>) {
    let IrUsage {
        input_tokens,
        output_tokens,
        cache_creation_tokens,
        cache_read_tokens,
        reasoning_tokens,
        total_tokens,
        vendor,
        origin: _,
    } = usage;
    if let Some(created) = cache_creation_tokens {
        let reason = "Gemini does not count tokens that are written to a cache";
        out.drop(created.origin, "cache_creation_tokens", reason);
    }
    out.put_object("usageMetadata", |out| {
        out.put_opt("promptTokenCount", input_tokens.as_ref());
        out.put_opt("cachedContentTokenCount", cache_read_tokens.as_ref());
        match (output_tokens, reasoning_tokens) {
            (Some(output), Some(reasoning)) => {
                let rest = output.saturating_sub(reasoning.value);
                out.put_as("candidatesTokenCount", &rest, &[output.origin], &INCLUSIVE);
            }
            (output, _) => out.put_opt("candidatesTokenCount", output.as_ref()),
        }
        out.put_opt("thoughtsTokenCount", reasoning_tokens.as_ref());
        match (total_tokens, input_tokens, output_tokens) {
            (Some(total), ..) => out.put("totalTokenCount", total),
            (None, Some(input), Some(output)) => out.made(
                "totalTokenCount",
                &input.saturating_add(output.value),
                "usage_total",
                "Gemini gives the sum, too",
            ),
            _ => {}
        }
        for field in vendor.iter().filter(|_| own) {
            out.put(&field.name, &field.value);
        }
    });
}
