//! Which headers go along with a request and which come back with its answer.

use abp_dialect::{Dialect, WireFamily};
use abp_error::{AbpError, ErrorCode};
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE,
    COOKIE, EXPECT, FORWARDED, HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER,
    TRANSFER_ENCODING, UPGRADE, USER_AGENT, VIA,
};
use http::{HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

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

/// The headers that an upstream adds itself, ready to be sent. Keys in it are marked as sensitive, so
/// that no debug output shows them.
pub(crate) struct OwnHeaders {
    host: HeaderValue,
    bearer: Option<HeaderValue>,
    key: Option<HeaderValue>,
    wire_version: HeaderValue,
}

impl OwnHeaders {
    /// # Errors
    /// Fails where the key or the version holds what no header can carry.
    pub(crate) fn new(
        host: HeaderValue,
        key: Option<&SecretString>,
        wire_version: Option<&str>,
    ) -> Result<Self, AbpError> {
        let invalid = |problem: &str| AbpError::new(ErrorCode::ConfigInvalid, problem);
        let secret = |text: &str| {
            let unusable = |_| invalid("the key holds characters that no header can carry");
            let mut value = HeaderValue::from_str(text).map_err(unusable)?;
            value.set_sensitive(true);
            Ok::<_, AbpError>(value)
        };
        let key = key.map(ExposeSecret::expose_secret);
        if key.is_some_and(str::is_empty) {
            return Err(invalid("the key is empty"));
        }
        let version = wire_version.unwrap_or(CLAUDE_VERSION);
        Ok(Self {
            host,
            bearer: key
                .map(|key| secret(&format!("Bearer {key}")))
                .transpose()?,
            key: key.map(secret).transpose()?,
            wire_version: HeaderValue::from_str(version)
                .map_err(|_| invalid("wire_version holds characters that no header can carry"))?,
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
        for (name, value) in headers {
            let stays = HOP_BY_HOP.contains(name)
                || of_connection.contains(name)
                || NEVER_FORWARDED.contains(name)
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
        if !headers.contains_key(USER_AGENT) {
            let agent = concat!("agent-backplane/", env!("CARGO_PKG_VERSION"));
            write_header(head, &USER_AGENT, &HeaderValue::from_static(agent));
        }
        let (name, value) = match dialect.family() {
            WireFamily::Messages => {
                if !headers.contains_key(ANTHROPIC_VERSION) {
                    write_header(head, &ANTHROPIC_VERSION, &self.wire_version);
                }
                (API_KEY, &self.key)
            }
            WireFamily::GenerateContent => (GOOGLE_KEY, &self.key),
            _ => (AUTHORIZATION, &self.bearer),
        };
        if let Some(value) = value {
            write_header(head, &name, value);
        }
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
