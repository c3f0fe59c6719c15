//! Requests, answers and errors, both ways.

mod echo;
mod error;
mod items_in;
mod items_out;
mod output_out;
mod parts_in;
mod parts_out;
mod request_in;
mod request_out;
mod response_in;
mod response_out;
mod settings_out;

use abp_core::ir::{IrBlock, IrContentBlock, IrVendorField, RawJson};
use abp_dialect::{Dialect, Item, Lowering, WireFamily};
use abp_json::Kind;

pub(crate) use echo::echo;
pub(crate) use error::{read_error, read_failure, write_error};
pub(crate) use items_in::{item_kind, model_blocks};
pub(crate) use output_out::{
    OutputItem, item_prefix, shown_kind, thinking_how, write_item, write_output_part,
};
pub(crate) use parts_in::{read_citation, read_part};
pub(crate) use parts_out::{has_citation_form, write_citation};
pub(crate) use request_in::read_request;
pub(crate) use request_out::write_request;
pub(crate) use response_in::{read_finish, read_response, read_usage, read_usage_of};
pub(crate) use response_out::{
    Head, refusal, write_echo, write_ending, write_head, write_response, write_usage,
};

/// Whether what is written was read from this dialect, so that its own ids, items and ciphertext
/// mean something.
pub(crate) fn is_own(source: Option<Dialect>) -> bool {
    source == Some(Dialect::Codex)
}

/// Whether what is written was read from a dialect of the same vendor's making: words, JSON in
/// strings and data URLs are spelled alike.
fn same_spelling(source: Option<Dialect>) -> bool {
    source
        .is_some_and(|dialect| matches!(dialect.family(), WireFamily::Chat | WireFamily::Responses))
}

/// Whether file ids and the like are of the same vendor.
fn same_vendor(source: Option<Dialect>) -> bool {
    matches!(source, Some(Dialect::Codex | Dialect::OpenAi))
}

/// Marks the members of an object that are `null` or empty: the vendor spells out what is not set.
pub(crate) fn settle_empty(object: Item<'_>) {
    for (_, value) in object.entries() {
        let is_empty = match value.kind() {
            Kind::Null => true,
            Kind::Array | Kind::Object => value.view().is_empty(),
            Kind::Bool | Kind::Number | Kind::String => false,
        };
        if is_empty {
            value.structure();
        }
    }
}

/// JSON that is the same every time.
pub(crate) fn constant(json: &'static str) -> RawJson {
    RawJson::trusted(json)
}

/// Writes what only this dialect knows, where it was read from it, except the members named.
fn put_own(fields: &[IrVendorField], except: &[&str], out: &mut Lowering<'_>) {
    out.put_vendor(fields, |from, name| {
        from == Dialect::Codex && !except.contains(&name)
    });
}

/// Blocks that make one item together.
enum Run<'b> {
    /// The content of a message.
    Parts(&'b [IrBlock]),
    /// One reasoning item.
    Reasoning(&'b [IrBlock]),
    /// An item of its own, or nothing that this dialect has a form for.
    Single(&'b IrBlock),
}

/// The content of messages that were items of their own in this dialect, each for itself.
fn messages(parts: &[IrBlock], source: Option<Dialect>) -> impl Iterator<Item = &[IrBlock]> {
    let own = is_own(source);
    parts.chunk_by(move |left, right| !own || left.origin == right.origin)
}

/// Groups blocks into items.
fn runs(mut blocks: &[IrBlock]) -> impl Iterator<Item = Run<'_>> {
    std::iter::from_fn(move || {
        let (first, rest) = blocks.split_first()?;
        let followers = match &first.body {
            body if is_part(body) => rest.iter().take_while(|block| is_part(&block.body)).count(),
            IrContentBlock::Thinking { .. } => rest
                .iter()
                .take_while(|block| continues_reasoning(block))
                .count(),
            _ => 0,
        };
        let (run, tail) = blocks.split_at_checked(followers + 1)?;
        blocks = tail;
        Some(match &first.body {
            body if is_part(body) => Run::Parts(run),
            IrContentBlock::Thinking { .. } => Run::Reasoning(run),
            _ => Run::Single(first),
        })
    })
}

fn is_part(body: &IrContentBlock) -> bool {
    match body {
        IrContentBlock::Text { .. }
        | IrContentBlock::Json { .. }
        | IrContentBlock::Image { .. }
        | IrContentBlock::Document { .. }
        | IrContentBlock::Audio { .. }
        | IrContentBlock::Video { .. }
        | IrContentBlock::Refusal { .. } => true,
        IrContentBlock::Opaque { kind, .. } => crate::wire::is_content_part(kind),
        _ => false,
    }
}

/// Whether a block is a further part of the reasoning item before it: only the first part of an
/// item carries its id.
fn continues_reasoning(block: &IrBlock) -> bool {
    matches!(&block.body, IrContentBlock::Thinking { item_id: None, .. })
}
