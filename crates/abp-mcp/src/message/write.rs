//! Writing messages.

use abp_json::Writer;

use super::RequestId;
use crate::refusal::RpcRefusal;
use crate::version::{Era, ProtocolVersion};

/// A request; `params` is a JSON object.
#[must_use]
pub fn request(id: &RequestId, method: &str, params: Option<&str>) -> String {
    let mut out = begin();
    out.key("id");
    out.raw(&id.to_json());
    call(out, method, params)
}

/// A notification; `params` is a JSON object.
#[must_use]
pub fn notification(method: &str, params: Option<&str>) -> String {
    call(begin(), method, params)
}

/// An answer; `result` is a JSON object.
#[must_use]
pub fn result(id: &RequestId, result: &str) -> String {
    let mut out = begin();
    out.key("id");
    out.raw(&id.to_json());
    out.key("result");
    out.raw(result);
    end(out)
}

/// An answer that is an error; `data` is JSON. Without an id it says that the request could not be
/// read, in the way of the version that was agreed on, or of the newest if none was.
#[must_use]
pub fn error(
    id: Option<&RequestId>,
    version: Option<ProtocolVersion>,
    code: i64,
    message: &str,
    data: Option<&str>,
) -> String {
    let mut out = begin();
    let omits_id = version.is_none_or(ProtocolVersion::omits_unknown_id);
    if id.is_some() || !omits_id {
        out.key("id");
        out.raw(&id.map_or_else(|| "null".to_owned(), RequestId::to_json));
    }
    out.key("error");
    out.begin_object();
    out.key("code");
    out.raw(&code.to_string());
    out.key("message");
    out.string(message);
    if let Some(data) = data {
        out.key("data");
        out.raw(data);
    }
    out.end_object();
    end(out)
}

/// An answer that refuses.
pub(crate) fn refusal(
    id: Option<&RequestId>,
    version: Option<ProtocolVersion>,
    refusal: &RpcRefusal,
    era: Era,
) -> String {
    let data = refusal.data();
    let message = refusal.to_string();
    error(id, version, refusal.code(era), &message, data.as_deref())
}

fn begin() -> Writer {
    let mut out = Writer::default();
    out.begin_object();
    out.key("jsonrpc");
    out.string("2.0");
    out
}

fn call(mut out: Writer, method: &str, params: Option<&str>) -> String {
    out.key("method");
    out.string(method);
    if let Some(params) = params {
        out.key("params");
        out.raw(params);
    }
    end(out)
}

/// A line break can only be between two parts of a message, never within one. There a space means
/// the same, and the message is one line, as transports over pipes need it.
fn end(mut out: Writer) -> String {
    out.end_object();
    out.into_text().replace(['\n', '\r'], " ")
}
