//! Errors, both ways.

use abp_core::ir::{IrError, Leaf};
use abp_dialect::{DialectError, How, Item, Lowering};
use abp_json::Kind;

use super::{constant, is_own, object, put_own};
use crate::wire;

/// Reads an error: the vendor's object, or the bare text that proxies make of it.
pub(crate) fn read_error(root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
    let root = object(root)?;
    let error = root.need("error")?;
    if let Some(tag) = root.get("type") {
        tag.structure();
    }
    let (message, native) = match error.kind() {
        Kind::String => (error.text()?, None),
        _ => (
            error.object()?.need("message")?.text()?,
            error.opt_text("type")?,
        ),
    };
    let word = native.as_ref().map_or("", |word| word.as_str());
    let (kind, usual) = wire::error_kind(word, status);
    Ok(IrError {
        kind,
        status: status.or(usual),
        message,
        native,
        code: None,
        param: None,
        request_id: root.opt_text("request_id")?,
        vendor: error.vendor_fields(&["details"]),
    })
}

/// Writes an error. Returns its status.
pub(crate) fn write_error(error: &IrError, out: &mut Lowering<'_>) -> u16 {
    let usual = wire::error_word(error.kind).map(|(_, status)| status);
    if out.native() {
        out.object(|out| {
            out.copy_native_members(&[]);
        });
        return error.status.or(usual).unwrap_or(500);
    }
    out.object(|out| write_error_members(error, out));
    usual.or(error.status).unwrap_or(500)
}

/// Writes the members of an error, in a body or in an event.
pub(crate) fn write_error_members(error: &IrError, out: &mut Lowering<'_>) {
    let IrError {
        kind,
        status: _,
        message,
        native,
        code,
        param,
        request_id,
        vendor,
    } = error;
    let word = wire::error_word(*kind).map_or("api_error", |(word, _)| word);
    out.tag("type", "error");
    out.put_object("error", |out| {
        match native {
            Some(native) if is_own(out.source()) => out.put("type", native),
            Some(native) => {
                let how = How::Converted("error_type");
                out.put_as("type", word, &[native.origin], &how);
            }
            None => out.tag("type", word),
        }
        out.put("message", message);
        put_own(vendor, out);
    });
    match request_id {
        Some(id) => out.put("request_id", id),
        None => out.tag("request_id", &constant("null")),
    }
    drop_detail(code.as_ref(), "error_code", out);
    drop_detail(param.as_ref(), "error_param", out);
}

fn drop_detail<T>(leaf: Option<&Leaf<T>>, label: &'static str, out: &mut Lowering<'_>) {
    if let Some(leaf) = leaf {
        out.drop(
            leaf.origin,
            label,
            "the vendor's errors have a type and a message only",
        );
    }
}
