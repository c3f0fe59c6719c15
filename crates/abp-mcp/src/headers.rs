//! The HTTP headers that repeat a part of the body, checked against it.
//!
//! Somebody between client and server may decide by the headers, so they must not say anything else.

use std::borrow::Cow;

use abp_json::View;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::message::Request;
use crate::meta;
use crate::method::Method;
use crate::refusal::{RpcRefusal, shorten};
use crate::version::ProtocolVersion;

const PREFIX: &str = "=?base64?";
const SUFFIX: &str = "?=";

/// The headers of a request, since 2026-07-28.
#[derive(Clone, Copy, Debug, Default)]
pub struct McpHeaders<'a> {
    /// `MCP-Protocol-Version`.
    pub protocol_version: Option<&'a str>,
    /// `Mcp-Method`.
    pub method: Option<&'a str>,
    /// `Mcp-Name`.
    pub name: Option<&'a str>,
}

/// Checks the headers of a request since 2026-07-28.
///
/// # Errors
/// Names the header that is missing or says something else than the body.
pub fn check_headers(headers: &McpHeaders<'_>, request: &Request<'_>) -> Result<(), RpcRefusal> {
    // A body that does not say its version is refused for that, not for a header.
    if let Some(version) = meta::protocol_version(request.params) {
        same("MCP-Protocol-Version", headers.protocol_version, &version)?;
    }
    same("Mcp-Method", headers.method, &request.method)?;
    let Some(name) = name_of(request) else {
        return Ok(());
    };
    let decoded = headers.name.map(decode_header).transpose()?;
    same("Mcp-Name", decoded.as_deref(), &name)
}

/// The version that a request with a handshake says in its header; without one it is
/// [`ProtocolVersion::WITHOUT_HEADER`].
///
/// # Errors
/// Refuses a version that is not spoken.
pub fn header_version(
    header: Option<&str>,
    spoken: &[ProtocolVersion],
) -> Result<ProtocolVersion, RpcRefusal> {
    let Some(text) = header else {
        return Ok(ProtocolVersion::WITHOUT_HEADER);
    };
    let version = ProtocolVersion::parse(text).filter(|version| spoken.contains(version));
    version.ok_or_else(|| RpcRefusal::UnsupportedVersion {
        requested: shorten(text),
        supported: spoken.to_vec(),
    })
}

/// What a request of ours says in `Mcp-Name`, if it has to.
#[must_use]
pub fn name_header(request: &Request<'_>) -> Option<String> {
    name_of(request).map(|name| encode_header(&name).into_owned())
}

/// Writes a value so that a header can carry it.
#[must_use]
pub fn encode_header(value: &str) -> Cow<'_, str> {
    let is_plain = value
        .bytes()
        .all(|byte| matches!(byte, b'\t' | b' '..=b'~'));
    let looks_encoded = value.starts_with(PREFIX) && value.ends_with(SUFFIX);
    if is_plain && value.trim() == value && !looks_encoded {
        return Cow::Borrowed(value);
    }
    Cow::Owned(format!("{PREFIX}{}{SUFFIX}", STANDARD.encode(value)))
}

/// Reads a value that a header carries.
///
/// # Errors
/// Refuses what is marked as encoded and is not.
pub fn decode_header(value: &str) -> Result<Cow<'_, str>, RpcRefusal> {
    let encoded = value.strip_prefix(PREFIX);
    let Some(encoded) = encoded.and_then(|rest| rest.strip_suffix(SUFFIX)) else {
        return Ok(Cow::Borrowed(value));
    };
    let bytes = STANDARD.decode(encoded).ok();
    bytes
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .map(Cow::Owned)
        .ok_or_else(|| mismatch("a header is not base64 of UTF-8"))
}

/// What of a request its `Mcp-Name` repeats.
fn name_of<'t>(request: &Request<'t>) -> Option<Cow<'t, str>> {
    let key = match request.known_method()? {
        Method::ToolsCall | Method::PromptsGet => "name",
        Method::ResourcesRead => "uri",
        Method::TasksGet | Method::TasksUpdate | Method::TasksCancel => "taskId",
        _ => return None,
    };
    request.params?.get(key).and_then(View::as_str)
}

fn same(header: &str, said: Option<&str>, body: &str) -> Result<(), RpcRefusal> {
    match said {
        Some(said) if said == body => Ok(()),
        Some(said) => {
            let (said, body) = (shorten(said), shorten(body));
            Err(mismatch(&format!(
                "{header} is {said:?}, the body says {body:?}"
            )))
        }
        None => Err(mismatch(&format!("{header} is missing"))),
    }
}

fn mismatch(what: &str) -> RpcRefusal {
    RpcRefusal::HeaderMismatch {
        what: what.to_owned(),
    }
}
