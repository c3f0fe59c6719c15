//! Errors: bodies of failed requests, and errors inside a stream.

use abp_core::ir::{IrError, Leaf, RawJson};
use abp_dialect::{Dialect, DialectError, How, Item, Lowering, WireFamily};
use abp_json::Kind;

use crate::wire;

/// Reads an error's body. Compatible servers leave out the object around it, or everything but the
/// text.
pub(crate) fn read(
    dialect: Dialect,
    root: Item<'_>,
    status: Option<u16>,
) -> Result<IrError, DialectError> {
    let body = root.some("error").unwrap_or(root);
    if body.kind() == Kind::String {
        return Ok(bare(body.text()?, status));
    }
    let text = ["message", "detail"]
        .iter()
        .find_map(|key| body.some(key))
        .filter(|text| text.kind() == Kind::String);
    let Some(text) = text else {
        return Err(DialectError::NotThis {
            dialect,
            what: "error",
            problem: "it has no message".to_owned(),
        });
    };
    let native = body.opt_text("type")?;
    let code = body.opt_raw("code");
    let number = code
        .as_ref()
        .and_then(|code| u16::try_from(code.as_u64()?).ok());
    let status = status.or(number.filter(|number| (400..600).contains(number)));
    let word = body.some("code").and_then(|code| code.view().as_str());
    let kind = wire::error_kind(
        word.as_deref(),
        status,
        native.as_ref().map_or("", |native| native.as_str()),
    );
    Ok(IrError {
        kind,
        status,
        message: text.text()?,
        native,
        code,
        param: body.opt_text("param")?,
        request_id: None,
        vendor: body.vendor_fields(wire::ERROR_MEMBERS),
    })
}

fn bare(message: Leaf<String>, status: Option<u16>) -> IrError {
    IrError {
        kind: wire::error_kind(None, status, ""),
        status,
        message,
        native: None,
        code: None,
        param: None,
        request_id: None,
        vendor: Vec::new(),
    }
}

/// Writes an error's body. Returns its status.
pub(crate) fn write(error: &IrError, out: &mut Lowering<'_>) -> u16 {
    out.object(|out| {
        if !out.copy_native_members(&[]) {
            put(error, out);
        }
    });
    wire::error_status(error.kind, error.status)
}

/// Writes the member that makes an object an error.
pub(crate) fn put(error: &IrError, out: &mut Lowering<'_>) {
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
    let null = RawJson::trusted("null");
    out.put_object("error", |out| {
        out.put("message", message);
        let (word, _) = wire::error_word(*kind);
        match native {
            Some(native) if out.same_family() || native.value == word => out.put("type", native),
            Some(native) => {
                out.put_as(
                    "type",
                    word,
                    &[native.origin],
                    &How::Converted("error_type"),
                );
            }
            None => out.tag("type", word),
        }
        match param {
            Some(param) => out.put("param", param),
            None => out.tag("param", &null),
        }
        match code {
            Some(code) if code.text().starts_with('"') || out.same_family() => {
                out.put("code", code);
            }
            _ => out.tag("code", &null),
        }
        out.put_vendor(vendor, |from, _| from.family() == WireFamily::Chat);
    });
    if let Some(code) = code.as_ref().filter(|code| !code.text().starts_with('"'))
        && !out.same_family()
    {
        // A number here is the status, which the answer has.
        out.note(code.origin, How::Converted("error_status"));
    }
    if let Some(id) = request_id {
        out.drop(
            id.origin,
            "request_id",
            "an error's body has no place for it",
        );
    }
}
