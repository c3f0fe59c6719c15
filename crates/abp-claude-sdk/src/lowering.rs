//! Requests, answers and errors, both ways.

mod content_in;
mod content_out;
mod error;
mod media_out;
mod request_in;
mod request_out;
mod response_in;
mod response_out;
mod settings_out;
mod thinking_out;

use abp_core::ir::{IrVendorField, RawJson};
use abp_dialect::{Dialect, DialectError, Item, Lowering};
use abp_json::Kind;

pub(crate) use content_in::{read_citation, read_signature};
pub(crate) use content_out::{cites, write_citation};
pub(crate) use error::{read_error, write_error, write_error_members};
pub(crate) use request_in::read_request;
pub(crate) use request_out::write_request;
pub(crate) use response_in::{
    cached_tokens, read_finish, read_response, read_usage, read_usage_of,
};
pub(crate) use response_out::{
    stop_word, write_finish, write_id, write_model, write_response, write_usage,
};

/// An object. Members that are `null` or empty are part of its shape: others leave them out.
pub(crate) fn object(item: Item<'_>) -> Result<Item<'_>, DialectError> {
    let object = item.object()?;
    for (_, member) in object.entries() {
        let empty = match member.kind() {
            Kind::Null => true,
            Kind::Array | Kind::Object => member.view().is_empty(),
            Kind::Bool | Kind::Number | Kind::String => false,
        };
        if empty {
            member.structure();
        }
    }
    Ok(object)
}

/// Whether what is written was read from this dialect, so that its signatures, its files and the
/// blocks that only it knows mean something.
pub(crate) fn is_own(source: Option<Dialect>) -> bool {
    source == Some(Dialect::Claude)
}

/// JSON that is the same every time.
pub(crate) fn constant(json: &'static str) -> RawJson {
    RawJson::trusted(json)
}

/// Writes what only this dialect knows, where it was read from it.
pub(crate) fn put_own(fields: &[IrVendorField], out: &mut Lowering<'_>) {
    out.put_vendor(fields, |from, _| from == Dialect::Claude);
}
