//! AWS Signature Version 4, for requests whose body is known when they are signed.
//!
//! A request is written in a canonical form, its hash is put into a text together with the time and the
//! scope (`20260102/eu-west-1/bedrock/aws4_request`), and that text is signed with a key that is derived
//! from the secret for this scope alone.

use bytes::Bytes;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{HeaderName, HeaderValue, Method};
use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

use crate::model::hex;

/// Everything but RFC 3986's unreserved characters and the slash.
const OUTSIDE_PATH: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'/');

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// The credentials of an AWS identity.
#[derive(Clone)]
pub(crate) struct AwsKeys {
    pub(crate) access_key_id: String,
    pub(crate) secret_access_key: SecretString,
    pub(crate) session_token: Option<SecretString>,
}

/// The part of AWS that a signature is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct SigningScope {
    pub(crate) region: String,
    pub(crate) service: String,
}

/// A request as far as it is signed.
pub(crate) struct SignedRequest<'r> {
    pub(crate) method: &'r Method,
    /// The path as it is sent.
    pub(crate) path: &'r str,
    /// The query as it is sent, without `?`.
    pub(crate) query: &'r str,
    pub(crate) host: &'r HeaderValue,
    pub(crate) body: &'r Bytes,
}

/// The headers that make a request signed.
///
/// # Errors
/// Fails where the credentials hold what no header can carry.
pub(crate) fn sign(
    request: &SignedRequest<'_>,
    keys: &AwsKeys,
    scope: &SigningScope,
    now: Timestamp,
) -> Result<Vec<(HeaderName, HeaderValue)>, &'static str> {
    let value =
        |text: &str| HeaderValue::from_str(text).map_err(|_| "they hold what no header can carry");
    let time = now.strftime("%Y%m%dT%H%M%SZ").to_string();
    let date = time.get(..8).unwrap_or_default();
    let mut headers = vec![
        (http::header::HOST, request.host.clone()),
        (
            HeaderName::from_static("x-amz-content-sha256"),
            value(&hex(&Sha256::digest(request.body)))?,
        ),
        (HeaderName::from_static("x-amz-date"), value(&time)?),
    ];
    if let Some(token) = &keys.session_token {
        let mut token = value(token.expose_secret())?;
        token.set_sensitive(true);
        headers.push((HeaderName::from_static("x-amz-security-token"), token));
    }
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let canonical = canonical_request(request, &headers, &names);
    let scope_text = format!("{date}/{}/{}/aws4_request", scope.region, scope.service);
    let to_sign = format!(
        "{ALGORITHM}\n{time}\n{scope_text}\n{}",
        hex(&Sha256::digest(canonical))
    );
    let signature = hex(&hmac(&signing_key(keys, scope, date)?, &to_sign)?);
    let authorization = format!(
        "{ALGORITHM} Credential={}/{scope_text}, SignedHeaders={names}, Signature={signature}",
        keys.access_key_id
    );
    let mut authorization = value(&authorization)?;
    authorization.set_sensitive(true);
    // The host is written with every request, signed or not.
    headers.remove(0);
    headers.push((http::header::AUTHORIZATION, authorization));
    Ok(headers)
}

fn canonical_request(
    request: &SignedRequest<'_>,
    headers: &[(HeaderName, HeaderValue)],
    names: &str,
) -> Vec<u8> {
    let mut canonical = Vec::with_capacity(512);
    // The path is escaped once for the address and once more for the signature.
    let path = utf8_percent_encode(request.path, OUTSIDE_PATH);
    let query = canonical_query(request.query);
    let start = format!("{}\n{path}\n{query}\n", request.method);
    canonical.extend_from_slice(start.as_bytes());
    for (name, value) in headers {
        canonical.extend_from_slice(name.as_str().as_bytes());
        canonical.push(b':');
        canonical.extend_from_slice(value.as_bytes().trim_ascii());
        canonical.push(b'\n');
    }
    let end = format!("\n{names}\n{}", hex(&Sha256::digest(request.body)));
    canonical.extend_from_slice(end.as_bytes());
    canonical
}

/// The parameters in the order of their names, then of their values.
fn canonical_query(query: &str) -> String {
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let mut pairs: Vec<(&str, &str)> = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// A key that signs nothing outside of its day, region and service.
fn signing_key(keys: &AwsKeys, scope: &SigningScope, date: &str) -> Result<[u8; 32], &'static str> {
    let first = format!("AWS4{}", keys.secret_access_key.expose_secret());
    let key = hmac(first.as_bytes(), date)?;
    let key = hmac(&key, &scope.region)?;
    let key = hmac(&key, &scope.service)?;
    hmac(&key, "aws4_request")
}

fn hmac(key: &[u8], text: &str) -> Result<[u8; 32], &'static str> {
    let mac = Hmac::<Sha256>::new_from_slice(key);
    let mut mac = mac.map_err(|_| "the secret cannot be used as a key")?;
    mac.update(text.as_bytes());
    Ok(mac.finalize().into_bytes().into())
}

#[cfg(test)]
mod tests;
