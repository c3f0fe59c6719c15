//! HTTP proxies: which one, and how a connection is made through it.
//!
//! An address of https is reached through a tunnel (`CONNECT`), so the proxy sees the host and the port and
//! nothing else. For one of http the proxy is asked itself, with the whole address.

use std::fmt;
use std::net::IpAddr;

use abp_error::{AbpError, ErrorCode};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderValue, Uri};
use percent_encoding::percent_decode_str;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use url::{Host, Url};

/// The longest head of a proxy's answer.
const LONGEST_HEAD: usize = 16 * 1024;

/// A proxy that connections go through.
#[derive(Clone, PartialEq, Eq)]
pub struct ProxyAddress {
    pub(crate) uri: Uri,
    /// The value of `Proxy-Authorization`.
    pub(crate) authorization: Option<HeaderValue>,
}

impl fmt::Debug for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyAddress")
            .field("uri", &self.uri)
            .field("has_password", &self.authorization.is_some())
            .finish()
    }
}

impl ProxyAddress {
    /// Reads the address of a proxy, with or without `http://`, a user and a password.
    ///
    /// # Errors
    /// Fails where it is none, without repeating it: it may hold a password.
    pub fn parse(text: &str) -> Result<Self, AbpError> {
        let invalid = |problem: &str| {
            let message = format!("the proxy's address {problem}");
            AbpError::new(ErrorCode::ConfigInvalid, message)
        };
        let full = match text.contains("://") {
            true => text.to_owned(),
            false => format!("http://{text}"),
        };
        let url = Url::parse(&full).map_err(|_| invalid("is no address"))?;
        if url.scheme() != "http" {
            return Err(invalid("must begin with http://"));
        }
        let host = url.host_str().filter(|host| !host.is_empty());
        let host = host.ok_or_else(|| invalid("names no host"))?;
        let port = url.port().unwrap_or(80);
        let uri = format!("http://{host}:{port}");
        let authorization = match (url.username(), url.password()) {
            ("", None) => None,
            (user, password) => {
                let decoded = |text| percent_decode_str(text).collect::<Vec<u8>>();
                let pair = [
                    decoded(user),
                    b":".to_vec(),
                    decoded(password.unwrap_or_default()),
                ];
                let value = format!("Basic {}", STANDARD.encode(pair.concat()));
                let value = HeaderValue::from_str(&value);
                let mut value = value.map_err(|_| invalid("holds an unusable password"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        Ok(Self {
            uri: uri.parse().map_err(|_| invalid("names no usable host"))?,
            authorization,
        })
    }

    /// The proxy that the environment names for an address: `HTTPS_PROXY`, for an address of http
    /// `http_proxy`, or else `ALL_PROXY`, each in small letters first; none for the hosts of `NO_PROXY`, and
    /// none for this machine. (`HTTP_PROXY` in capitals is not read, as curl does not: a web server may
    /// have set it from a request.)
    ///
    /// # Errors
    /// Fails where the variable holds no usable address.
    pub fn from_environment(
        base_url: &str,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<Self>, AbpError> {
        let Ok(url) = Url::parse(base_url) else {
            return Ok(None);
        };
        let set = |name: &str| variable(name).filter(|value| !value.is_empty());
        let excluded = set("no_proxy").or_else(|| set("NO_PROXY"));
        if is_excluded(&url, excluded.as_deref().unwrap_or_default()) {
            return Ok(None);
        }
        let names: &[&str] = match url.scheme() {
            "https" => &["https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"],
            _ => &["http_proxy", "all_proxy", "ALL_PROXY"],
        };
        let found = names.iter().find_map(|name| Some((name, set(name)?)));
        let Some((name, address)) = found else {
            return Ok(None);
        };
        let named =
            |error: AbpError| AbpError::new(error.code(), format!("{name}: {}", error.message()));
        Self::parse(&address).map(Some).map_err(named)
    }
}

/// Whether an address is asked without a proxy.
fn is_excluded(url: &Url, list: &str) -> bool {
    let Some(host) = url.host() else { return true };
    let (name, address) = match &host {
        Host::Domain(name) => (name.to_ascii_lowercase(), None),
        Host::Ipv4(address) => (address.to_string(), Some(IpAddr::V4(*address))),
        Host::Ipv6(address) => (address.to_string(), Some(IpAddr::V6(*address))),
    };
    if name == "localhost" || address.is_some_and(|address| address.is_loopback()) {
        return true;
    }
    let port = url.port_or_known_default();
    let rules = list.split([',', ' ']).map(str::trim);
    rules.filter(|rule| !rule.is_empty()).any(|rule| {
        rule == "*" || address.is_some_and(|it| is_within(it, rule)) || matches(&name, port, rule)
    })
}

/// A rule names a host, with or without a port, and everything below it.
fn matches(name: &str, port: Option<u16>, rule: &str) -> bool {
    let rule = rule.to_ascii_lowercase();
    let (rule, of_port) = match rule.rsplit_once(':') {
        Some((host, digits)) if !host.contains(':') => (host, digits.parse().ok()),
        _ => (rule.as_str(), None),
    };
    if of_port.is_some() && of_port != port {
        return false;
    }
    let rule = rule.trim_start_matches("*.").trim_start_matches('.');
    let rule = rule.trim_start_matches('[').trim_end_matches(']');
    let below = name.strip_suffix(rule);
    below.is_some_and(|rest| rest.is_empty() || (rest.ends_with('.') && !rule.is_empty()))
}

/// Whether an address lies in a network such as `10.0.0.0/8`.
fn is_within(address: IpAddr, rule: &str) -> bool {
    let Some((network, bits)) = rule.split_once('/') else {
        return false;
    };
    let (Ok(network), Ok(bits)) = (network.parse::<IpAddr>(), bits.parse::<u32>()) else {
        return false;
    };
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let mask = u32::MAX
                .checked_shl(32_u32.saturating_sub(bits))
                .unwrap_or(0);
            u32::from(address) & mask == u32::from(network) & mask
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let mask = u128::MAX
                .checked_shl(128_u32.saturating_sub(bits))
                .unwrap_or(0);
            u128::from(address) & mask == u128::from(network) & mask
        }
        _ => false,
    }
}

/// Why a proxy makes no connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TunnelError {
    #[error("the proxy answers {0}")]
    Refused(u16),
    #[error("the proxy's answer is not HTTP")]
    Malformed,
    #[error("the proxy: {0}")]
    Io(#[from] std::io::Error),
}

/// Asks a proxy for a connection to `target` (`host:port`). Afterwards the stream is that connection.
///
/// # Errors
/// Fails where the proxy does not give one.
pub(crate) async fn open_tunnel(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    target: &str,
    proxy: &ProxyAddress,
) -> Result<(), TunnelError> {
    let mut request = format!("CONNECT {target} HTTP/1.1\r\nhost: {target}\r\n").into_bytes();
    if let Some(authorization) = &proxy.authorization {
        request.extend_from_slice(b"proxy-authorization: ");
        request.extend_from_slice(authorization.as_bytes());
        request.extend_from_slice(b"\r\n");
    }
    request.extend_from_slice(b"\r\n");
    stream.write_all(&request).await?;
    let mut head = Vec::with_capacity(256);
    // Byte by byte, as whatever follows the head belongs to the connection.
    while !head.ends_with(b"\r\n\r\n") {
        if head.len() >= LONGEST_HEAD {
            return Err(TunnelError::Malformed);
        }
        head.push(stream.read_u8().await?);
    }
    let text = String::from_utf8_lossy(&head);
    let status = text
        .strip_prefix("HTTP/1.")
        .and_then(|rest| rest.get(2..5)?.parse::<u16>().ok())
        .ok_or(TunnelError::Malformed)?;
    match status {
        200..=299 => Ok(()),
        refused => Err(TunnelError::Refused(refused)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn proxy_for(address: &str, variables: &[(&str, &str)]) -> Option<String> {
        let variable = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let proxy = ProxyAddress::from_environment(address, variable).unwrap();
        proxy.map(|proxy| proxy.uri.to_string())
    }

    #[test]
    fn the_environment_names_a_proxy_and_its_exceptions() {
        let all = [
            ("HTTPS_PROXY", "http://secure:3128"),
            ("http_proxy", "plain"),
            (
                "NO_PROXY",
                "internal.example, .corp.example,10.0.0.0/8,fd00::/8,only.example:8443",
            ),
        ];
        let cases: &[(&str, Option<&str>)] = &[
            ("https://api.example.com", Some("http://secure:3128/")),
            ("http://api.example.com", Some("http://plain:80/")),
            ("https://internal.example/v1", None),
            ("https://a.internal.example/v1", None),
            (
                "https://notinternal.example/v1",
                Some("http://secure:3128/"),
            ),
            ("https://x.corp.example", None),
            ("https://10.1.2.3", None),
            ("https://11.1.2.3", Some("http://secure:3128/")),
            ("https://[fd00::1]", None),
            ("https://[2001:db8::1]", Some("http://secure:3128/")),
            ("https://only.example:8443", None),
            ("https://only.example", Some("http://secure:3128/")),
            ("http://127.0.0.1:11434", None),
            ("http://localhost:11434", None),
            ("http://[::1]:1", None),
        ];
        for (address, expected) in cases {
            assert_eq!(proxy_for(address, &all).as_deref(), *expected, "{address}");
        }
        let none = [("HTTPS_PROXY", "http://p:1"), ("NO_PROXY", "*")];
        assert_eq!(proxy_for("https://api.example.com", &none), None);
        // A request's `Proxy` header would be in this one.
        assert_eq!(
            proxy_for("http://h.example", &[("HTTP_PROXY", "http://p:1")]),
            None
        );
        let other = proxy_for("https://h.example", &[("ALL_PROXY", "p:1")]);
        assert_eq!(other.as_deref(), Some("http://p:1/"));
    }

    #[test]
    fn addresses_of_proxies_keep_their_passwords_to_themselves() {
        let proxy = ProxyAddress::parse("http://me:pa%3Ass@proxy.example:8080").unwrap();
        assert_eq!(proxy.uri, "http://proxy.example:8080/");
        // echo -n 'me:pa:ss' | base64
        assert_eq!(proxy.authorization.as_ref().unwrap(), "Basic bWU6cGE6c3M=");
        assert!(!format!("{proxy:?}").contains("bWU6"), "{proxy:?}");
        for wrong in ["https://p:1", "socks5://p:1", "http://", "http://u:canary@"] {
            let error = ProxyAddress::parse(wrong).unwrap_err();
            assert!(!error.message().contains("canary"), "{error:?}");
        }
    }
}
