//! Errors.

use abp_core::ir::{IrError, IrErrorKind, Leaf};
use abp_dialect::{Dialect, DialectError, How, Item, Lowering};
use abp_json::Kind;

use crate::wire::{Fields, error_kind, error_word, vendor};

const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";
const ERROR_INFO: &str = "type.googleapis.com/google.rpc.ErrorInfo";
const REQUEST_INFO: &str = "type.googleapis.com/google.rpc.RequestInfo";

/// Reads an error: an object, or a list with one where a stream was asked for.
pub(crate) fn read_error(root: Item<'_>, status: Option<u16>) -> Result<IrError, DialectError> {
    let holder = match root.kind() {
        Kind::Array => root.items().next().ok_or_else(|| root.wrong("an error"))?,
        _ => root,
    };
    let error = Fields::of(holder)?.item().need("error")?;
    if error.kind() == Kind::String {
        return Ok(new(error.text()?, status));
    }
    let fields = Fields::of(error)?;
    let message = match fields.text("message")? {
        Some(message) => message,
        None => Leaf::from(String::new()),
    };
    let code = fields.get("code");
    let told = code.and_then(|code| u16::try_from(code.view().as_u64()?).ok());
    if let Some(code) = code {
        code.repeats();
    }
    let native = fields.text("status")?;
    let mut read = new(message, status.or(told));
    if let Some(kind) = native.as_ref().and_then(|word| error_kind(word)) {
        read.kind = kind;
    }
    read.native = native;
    read.vendor = fields.vendor(vendor::ERROR);
    read_details(fields, &mut read)?;
    Ok(read)
}

fn new(message: Leaf<String>, status: Option<u16>) -> IrError {
    IrError {
        kind: status.map_or(IrErrorKind::Other, IrErrorKind::of_status),
        status,
        message,
        native: None,
        code: None,
        param: None,
        request_id: None,
        vendor: Vec::new(),
    }
}

/// Reads what others have fields for: the wrong parameter, a code, the id of the request.
fn read_details(error: Fields<'_>, read: &mut IrError) -> Result<(), DialectError> {
    for detail in error.repeated("details") {
        let Ok(fields) = Fields::of(detail) else {
            continue;
        };
        let kind = detail.get("@type").and_then(|kind| kind.view().as_str());
        match kind.as_deref() {
            Some(BAD_REQUEST) => {
                let violation = fields.repeated("fieldViolations").next();
                if let Some(violation) = violation {
                    read.param = Fields::of(violation)?.text("field")?;
                }
            }
            Some(ERROR_INFO) => read.code = fields.get("reason").map(Item::raw),
            Some(REQUEST_INFO) => read.request_id = fields.text("requestId")?,
            _ => {}
        }
    }
    Ok(())
}

/// Writes an error as a document.
pub(crate) fn write_error(error: &IrError, out: &mut Lowering<'_>) -> u16 {
    let mut status = 0;
    out.object(|out| status = write_error_body(error, out));
    status
}

/// Writes the one member of an error. Returns its HTTP status.
pub(crate) fn write_error_body(error: &IrError, out: &mut Lowering<'_>) -> u16 {
    let IrError {
        kind,
        status: told,
        message,
        native,
        code,
        param,
        request_id,
        vendor,
    } = error;
    let own = out.source() == Some(Dialect::Gemini);
    let (usual, word) = error_word(*kind);
    let status = told.filter(|_| own).unwrap_or(usual);
    out.put_object("error", |out| {
        out.tag("code", &u64::from(status));
        out.put("message", message);
        match native {
            Some(native) if own => out.put("status", native),
            Some(native) => {
                let how = How::Converted("error_status");
                out.put_as("status", word, &[native.origin], &how);
            }
            None => out.tag("status", word),
        }
        if own {
            out.put_vendor(vendor, |_, _| true);
        } else if code.is_some() || param.is_some() || request_id.is_some() {
            out.put_array("details", |out| {
                if let Some(param) = param {
                    out.object(|out| {
                        out.tag("@type", BAD_REQUEST);
                        out.put_array("fieldViolations", |out| {
                            out.object(|out| out.put("field", param));
                        });
                    });
                }
                if let Some(code) = code {
                    out.object(|out| {
                        out.tag("@type", ERROR_INFO);
                        out.put("reason", code);
                    });
                }
                if let Some(id) = request_id {
                    out.object(|out| {
                        out.tag("@type", REQUEST_INFO);
                        out.put("requestId", id);
                    });
                }
            });
        }
    });
    status
}
