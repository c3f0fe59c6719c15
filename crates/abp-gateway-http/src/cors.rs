//! What browsers have to be told before they let a page of another origin use the server: that the
//! operator listed it. Keys come in headers that pages set themselves, never with cookies.

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_HEADERS,
    ACCESS_CONTROL_REQUEST_METHOD, VARY,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method};

/// What a page may read of an answer besides its body.
const READABLE: &str = "x-abp-run-id, x-abp-backend, x-abp-mode, x-abp-fidelity, x-abp-emulated, \
                        x-abp-error, retry-after, location, mcp-session-id";

/// Whether a browser asks what a page may do before it lets it.
pub(crate) fn is_preflight(parts: &Parts) -> bool {
    parts.method == Method::OPTIONS && parts.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// What a listed page may do: everything that anybody may who has a key.
pub(crate) fn permission(parts: &Parts) -> HeaderMap {
    let mut headers = HeaderMap::new();
    let methods = HeaderValue::from_static("GET, POST, PUT, DELETE");
    headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    if let Some(asked) = parts.headers.get(ACCESS_CONTROL_REQUEST_HEADERS) {
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked.clone());
    }
    headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    headers
}

/// Lets a listed page have an answer.
pub(crate) fn share(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(
        ACCESS_CONTROL_EXPOSE_HEADERS,
        HeaderValue::from_static(READABLE),
    );
    headers.append(VARY, HeaderValue::from_static("origin"));
}
