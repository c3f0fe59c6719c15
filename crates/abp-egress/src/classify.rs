//! The three forms of a request: a tunnel, a request in absolute form, and a request to a route.
//!
//! Only the parsed parts are used further on, and everything that is sent upstream is written anew from
//! them, so that no second reading of the request line or the Host header exists.

use abp_policy::NetworkTarget;
use http::header::{CONTENT_LENGTH, HOST, HeaderMap, TRANSFER_ENCODING};
use http::request::Parts;
use http::{Method, Uri};

use crate::event::{EgressKind, EgressRule};

/// A request that is well formed. Nothing is decided about its target yet.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum RequestForm {
    Tunnel(NetworkTarget, u16),
    Forward(NetworkTarget, u16),
    /// The name of a route, and the path below it with its query.
    Route {
        name: String,
        path: String,
        query: Option<String>,
    },
}

/// The hosts and the port under which the sandbox reaches the proxy itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OwnAuthority {
    pub(crate) port: u16,
}

impl OwnAuthority {
    fn is(self, target: &NetworkTarget) -> bool {
        matches!(target.host(), "127.0.0.1" | "localhost" | "::1")
            && target.port().unwrap_or(80) == self.port
    }
}

/// The kind and the host of a request as events tell them, whether or not it is well formed.
pub(crate) fn describe(head: &Parts) -> (EgressKind, String, Option<u16>) {
    let authority = head
        .uri
        .authority()
        .map_or("", |authority| authority.as_str());
    let (host, port) = match NetworkTarget::parse(authority) {
        Ok(target) => (target.host().to_owned(), target.port()),
        Err(_) => (authority.to_owned(), None),
    };
    let kind = match &head.method {
        &Method::CONNECT => EgressKind::Tunnel,
        _ if head.uri.authority().is_some() => EgressKind::Http,
        _ => EgressKind::Route,
    };
    (kind, host, port)
}

/// Reads the form of a request.
pub(crate) fn classify(head: &Parts, own: OwnAuthority) -> Result<RequestForm, EgressRule> {
    if head.method == Method::CONNECT {
        return tunnel(head);
    }
    // TRACE sends back what the target received, credentials included.
    if head.method == Method::TRACE || head.method.as_str().eq_ignore_ascii_case("track") {
        return Err(EgressRule::Request {
            why: "TRACE is not served",
        });
    }
    match (head.uri.scheme_str(), head.uri.authority()) {
        (None, None) => own_request(head, own),
        (Some("http"), Some(authority)) => absolute(head, authority.as_str(), own),
        (Some("https"), _) => Err(EgressRule::Request {
            why: "https needs a CONNECT request",
        }),
        _ => Err(EgressRule::Request {
            why: "only http can be requested in absolute form",
        }),
    }
}

fn tunnel(head: &Parts) -> Result<RequestForm, EgressRule> {
    if head.headers.contains_key(CONTENT_LENGTH) || head.headers.contains_key(TRANSFER_ENCODING) {
        return Err(EgressRule::Framing {
            why: "a CONNECT request has no body",
        });
    }
    let is_authority_form = head.uri.scheme().is_none() && head.uri.path_and_query().is_none();
    let Some(authority) = head.uri.authority().filter(|_| is_authority_form) else {
        return Err(EgressRule::Request {
            why: "CONNECT needs host:port",
        });
    };
    let target = parse_target(authority.as_str())?;
    let Some(port) = target.port() else {
        return Err(EgressRule::TargetSpelling {
            why: "CONNECT needs a port",
        });
    };
    // Clients of HTTP/1.0 send no Host header with CONNECT; a different one is always wrong.
    if head.headers.contains_key(HOST) {
        let host = host_header(&head.headers)?;
        let same_port = host.port().is_none_or(|named| named == port);
        if host.host() != target.host() || !same_port {
            return Err(EgressRule::HostHeader {
                why: "the Host header is not the host of the CONNECT request",
            });
        }
    }
    Ok(RequestForm::Tunnel(target, port))
}

fn absolute(head: &Parts, authority: &str, own: OwnAuthority) -> Result<RequestForm, EgressRule> {
    let target = parse_target(authority)?;
    let host = host_header(&head.headers)?;
    let port = target.port().unwrap_or(80);
    if host.host() != target.host() || host.port().unwrap_or(80) != port {
        return Err(EgressRule::HostHeader {
            why: "the Host header is not the host of the target",
        });
    }
    if own.is(&target) {
        return route(&head.uri);
    }
    let target = with_port(&target, port)?;
    Ok(RequestForm::Forward(target, port))
}

fn own_request(head: &Parts, own: OwnAuthority) -> Result<RequestForm, EgressRule> {
    let host = host_header(&head.headers)?;
    if !own.is(&host) {
        return Err(EgressRule::HostHeader {
            why: "the Host header is not the proxy's",
        });
    }
    route(&head.uri)
}

fn route(uri: &Uri) -> Result<RequestForm, EgressRule> {
    let Some(path) = uri.path().strip_prefix('/') else {
        return Err(EgressRule::Request {
            why: "the request has no path",
        });
    };
    let end = path.find('/').unwrap_or(path.len());
    let (name, below) = path.split_at(end);
    Ok(RequestForm::Route {
        name: name.to_owned(),
        path: below.to_owned(),
        query: uri.query().map(str::to_owned),
    })
}

fn host_header(headers: &HeaderMap) -> Result<NetworkTarget, EgressRule> {
    let mut values = headers.get_all(HOST).iter();
    let (Some(value), None) = (values.next(), values.next()) else {
        return Err(EgressRule::HostHeader {
            why: "the request does not have exactly one Host header",
        });
    };
    let target = value.to_str().ok().and_then(|text| parse_target(text).ok());
    target.ok_or(EgressRule::HostHeader {
        why: "the Host header is not a host",
    })
}

fn parse_target(authority: &str) -> Result<NetworkTarget, EgressRule> {
    // Without brackets it is not clear where an IPv6 address ends and a port begins.
    if !authority.starts_with('[') && authority.matches(':').nth(1).is_some() {
        return Err(EgressRule::TargetSpelling {
            why: "an IPv6 address needs brackets",
        });
    }
    NetworkTarget::parse(authority).map_err(|why| EgressRule::TargetSpelling { why })
}

/// The target with its port written out, which is what rules are about.
fn with_port(target: &NetworkTarget, port: u16) -> Result<NetworkTarget, EgressRule> {
    let text = match target.address() {
        Some(std::net::IpAddr::V6(address)) => format!("[{address}]:{port}"),
        Some(std::net::IpAddr::V4(_)) | None => format!("{}:{port}", target.host()),
    };
    parse_target(&text)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn head(method: &str, uri: &str, host: &str) -> Option<Parts> {
        let request = http::Request::builder()
            .method(method)
            .uri(uri)
            .header(HOST, host)
            .body(());
        Some(request.ok()?.into_parts().0)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        /// Whatever is asked for, a target that is accepted is in the one form: DNS characters in lower
        /// case or a plain address, with a port; and reading it again gives the same.
        #[test]
        fn an_accepted_target_has_one_form(
            method in prop_oneof![Just("CONNECT"), Just("GET")],
            prefix in prop_oneof![Just(""), Just("http://"), Just("HTTP://"), Just("//"), Just("http:/")],
            authority in prop_oneof![
                "[a-zA-Z0-9.:@%\\[\\]_\\\\/-]{1,24}",
                "[0-9a-fx]{1,6}(\\.[0-9a-fx]{1,6}){0,4}(:[0-9]{1,6})?",
                "\\[[0-9a-f:.%]{1,30}\\](:[0-9]{1,6})?",
                "[a-z]{1,5}(\\.[A-Z]{1,5}){0,3}\\.?(:[0-9]{1,5})?",
                "\\PC{0,12}",
            ],
            host in prop_oneof![Just(None), "\\PC{0,12}".prop_map(Some)],
        ) {
            let uri = format!("{prefix}{authority}");
            let host = host.unwrap_or_else(|| authority.clone());
            let Some(head) = head(method, &uri, &host) else { return Ok(()) };
            let (target, port) = match classify(&head, OwnAuthority { port: 1 }) {
                Ok(RequestForm::Tunnel(target, port) | RequestForm::Forward(target, port)) => (target, port),
                Ok(RequestForm::Route { .. }) | Err(_) => return Ok(()),
            };
            prop_assert_eq!(target.port(), Some(port));
            prop_assert!(port > 0);
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b".-_".contains(&byte);
            match target.address() {
                Some(address) => prop_assert_eq!(address.to_string(), target.host()),
                None => prop_assert!(target.host().bytes().all(plain), "{:?}", target),
            }
            let again = with_port(&target, port).unwrap();
            prop_assert_eq!(again, target);
        }
    }
}
