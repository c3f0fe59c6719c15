//! Errors, both ways.

use abp_core::ir::{IrError, IrErrorKind, Leaf, Origin};
use abp_dialect::{Dialect, DialectError, How, Item, Lowering};
use abp_json::Kind;

use super::{constant, same_spelling, settle_empty};
use crate::wire;

/// Reads an error's body.
pub(crate) fn read_error(root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
    let root = root.object()?;
    let error = root.some("error").unwrap_or(root);
    match error.kind() {
        Kind::String => Ok(failure(error.text()?, None, status)),
        _ => {
            let native = error.object()?.opt_text("type")?;
            read_failure(error, native, status)
        }
    }
}

/// Reads the object that tells of an error; its type is known already.
pub(crate) fn read_failure(
    error: Item<'_>,
    native: Option<Leaf<String>>,
    status: Option<u16>,
) -> Result<IrError, DialectError> {
    settle_empty(error);
    let Some(message) = error.some("message").or(error.some("detail")) else {
        return Err(DialectError::NotThis {
            dialect: Dialect::Codex,
            what: "error",
            problem: "it has no message".to_owned(),
        });
    };
    let message = if message.kind() == Kind::String {
        message.text()?
    } else {
        message.note(How::Converted("json_in_text"));
        let json = message.raw();
        Leaf::new(json.value.into_text(), json.origin)
    };
    let code = error.some("code");
    let word = code.and_then(|code| code.view().as_str());
    let kind = word.as_deref().and_then(wire::error_kind);
    let mut failure = failure(message, native, status);
    if let Some(kind) = kind {
        failure.kind = kind;
    }
    failure.code = code.map(Item::raw);
    failure.param = error.opt_text("param")?;
    Ok(failure)
}

fn failure(message: Leaf<String>, native: Option<Leaf<String>>, status: Option<u16>) -> IrError {
    let by_type = || wire::error_kind(native.as_ref()?.as_str());
    let kind = status.and_then(wire::error_kind_of_status).or_else(by_type);
    IrError {
        kind: kind.unwrap_or(IrErrorKind::Other),
        status,
        message,
        native,
        code: None,
        param: None,
        request_id: None,
        vendor: Vec::new(),
    }
}

/// Writes an error's body. Returns its HTTP status.
pub(crate) fn write_error(error: &IrError, out: &mut Lowering<'_>) -> u16 {
    let IrError {
        kind,
        status,
        message,
        native,
        code,
        param,
        request_id,
        vendor: _,
    } = error;
    let (word, usual) = wire::error_word(*kind);
    let known = same_spelling(out.source());
    let status = match status {
        Some(status) if known || *kind == IrErrorKind::Other => *status,
        _ => usual,
    };
    let request_id = request_id.as_ref().map_or(Origin::Host, |id| id.origin);
    out.drop(request_id, "request_id", "the body has no place for it");
    out.object(|out| {
        out.put_object("error", |out| {
            out.put("message", message);
            match native {
                Some(native) if known => out.put("type", native),
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
                None => out.tag("param", &constant("null")),
            }
            match code {
                // A number is the HTTP status once more, as some vendors put it.
                Some(code) if code.as_u64().is_some() => {
                    out.note(code.origin, How::Converted("http_status"));
                    out.tag("code", &constant("null"));
                }
                Some(code) => out.put("code", code),
                None => out.tag("code", &constant("null")),
            }
        });
    });
    status
}
