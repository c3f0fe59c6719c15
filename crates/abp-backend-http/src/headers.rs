//! Which headers go along with a request and which come back with its answer.

use abp_dialect::{Dialect, WireFamily};
use abp_error::{AbpError, ErrorCode};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};

use crate::credential::Credential;
use crate::message::write_header;

/// What belongs to one connection (RFC 9110, 7.6.1) and ends with it.
static HOP_BY_HOP: [HeaderName; 9] = [
    CONNECTION,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// What is the upstream's own business, and is never taken over from a caller.
static NEVER_FORWARDED: [HeaderName; 13] = [
    ACCEPT_ENCODING,
    AUTHORIZATION,
    API_KEY,
    GOOGLE_KEY,
    HeaderName::from_static("api-key"),
    COOKIE,
    CONTENT_ENCODING,
    CONTENT_LENGTH,
    CONTENT_TYPE,
    EXPECT,
    FORWARDED,
    HOST,
    VIA,
];

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOGLE_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");
const ANTHROPIC_VERSION: HeaderName = HeaderName::from_static("anthropic-version");

/// The version that Claude's API has for those who name none.
const CLAUDE_VERSION: &str = "2023-06-01";

/// The headers that an upstream adds itself, ready to be sent.
pub(crate) struct OwnHeaders {
    pub(crate) host: HeaderValue,
    wire_version: HeaderValue,
    /// The operator's additions, which stand over what a caller sent.
    extra: Vec<(HeaderName, HeaderValue)>,
    /// For a proxy that is given the request itself.
    proxy_authorization: Option<HeaderValue>,
}

impl OwnHeaders {
    /// # Errors
    /// Fails where the version holds what no header can carry, and where an extra header is one that only
    /// ABP can write.
    pub(crate) fn new(
        host: HeaderValue,
        wire_version: Option<&str>,
        extra: Vec<(HeaderName, HeaderValue)>,
        proxy_authorization: Option<HeaderValue>,
    ) -> Result<Self, AbpError> {
        let invalid = |problem: &str| AbpError::new(ErrorCode::ConfigInvalid, problem);
        let of_message = [CONTENT_LENGTH, CONTENT_ENCODING, CONTENT_TYPE, EXPECT, HOST];
        let is_own = |name: &HeaderName| HOP_BY_HOP.contains(name) || of_message.contains(name);
        if let Some((name, _)) = extra.iter().find(|(name, _)| is_own(name)) {
            return Err(invalid(&format!("the header {name} cannot be set")));
        }
        let version = wire_version.unwrap_or(CLAUDE_VERSION);
        Ok(Self {
            host,
            wire_version: HeaderValue::from_str(version)
                .map_err(|_| invalid("wire_version holds characters that no header can carry"))?,
            extra,
            proxy_authorization,
        })
    }

    /// Writes what of a caller's headers goes along, and what the vendor wants besides.
    pub(crate) fn write(
        &self,
        head: &mut Vec<u8>,
        headers: &HeaderMap,
        dialect: Dialect,
        content_type: Option<&HeaderValue>,
    ) {
        let of_connection = named_in_connection(headers);
        let is_extra = |wanted: &HeaderName| self.extra.iter().any(|(name, _)| name == wanted);
        for (name, value) in headers {
            let stays = HOP_BY_HOP.contains(name)
                || of_connection.contains(name)
                || NEVER_FORWARDED.contains(name)
                || is_extra(name)
                || name.as_str().starts_with("x-forwarded-");
            if !stays {
                write_header(head, name, value);
            }
        }
        write_header(head, &HOST, &self.host);
        if let Some(content_type) = content_type {
            write_header(head, &CONTENT_TYPE, content_type);
        }
        write_header(
            head,
            &ACCEPT_ENCODING,
            &HeaderValue::from_static("identity"),
        );
        if !headers.contains_key(USER_AGENT) && !is_extra(&USER_AGENT) {
            let agent = concat!("agent-backplane/", env!("CARGO_PKG_VERSION"));
            write_header(head, &USER_AGENT, &HeaderValue::from_static(agent));
        }
        if dialect.family() == WireFamily::Messages
            && !headers.contains_key(ANTHROPIC_VERSION)
            && !is_extra(&ANTHROPIC_VERSION)
        {
            write_header(head, &ANTHROPIC_VERSION, &self.wire_version);
        }
        for (name, value) in &self.extra {
            write_header(head, name, value);
        }
        if let Some(value) = &self.proxy_authorization {
            write_header(head, &PROXY_AUTHORIZATION, value);
        }
    }
}

/// The header in which the vendor of a dialect takes its key.
pub(crate) fn key_header(dialect: Dialect, credential: &Credential) -> (HeaderName, &HeaderValue) {
    match dialect.family() {
        WireFamily::Messages => (API_KEY, &credential.plain),
        WireFamily::GenerateContent => (GOOGLE_KEY, &credential.plain),
        _ => (AUTHORIZATION, &credential.bearer),
    }
}

/// Drops what belongs to the connection, and what its `Connection` header names as such.
pub(crate) fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named = named_in_connection(headers);
    let is_unwanted = |name: &&HeaderName| HOP_BY_HOP.contains(name) || named.contains(name);
    // There is rarely anything to remove.
    let unwanted: Vec<HeaderName> = headers.keys().filter(is_unwanted).cloned().collect();
    for name in unwanted {
        headers.remove(name);
    }
}

fn named_in_connection(headers: &HeaderMap) -> Vec<HeaderName> {
    let values = headers.get_all(CONNECTION).iter();
    let names = values.filter_map(|value| value.to_str().ok());
    let names = names.flat_map(|names| names.split(','));
    names.filter_map(|name| name.trim().parse().ok()).collect()
}
