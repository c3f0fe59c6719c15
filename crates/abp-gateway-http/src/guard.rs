//! What is checked of every request before anything else.

use std::net::IpAddr;

use abp_error::ErrorCode;
use abp_gateway::Refusal;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, HOST, ORIGIN};
use http::request::Parts;
use http::{HeaderMap, HeaderValue};

/// Names under which every server on this machine can be reached.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Which hosts a request may be for, and which pages it may come from.
#[derive(Debug, Clone, Default)]
pub(crate) struct Allowed {
    hosts: Vec<String>,
    origins: Vec<String>,
}

impl Allowed {
    /// Names besides the local ones; `bound` is the address the server has.
    pub(crate) fn new(hosts: &[String], origins: &[String], bound: IpAddr) -> Self {
        let mut hosts = hosts.to_vec();
        hosts.extend(LOCAL.map(str::to_owned));
        if !bound.is_unspecified() {
            hosts.push(match bound {
                IpAddr::V4(address) => address.to_string(),
                IpAddr::V6(address) => format!("[{address}]"),
            });
        }
        Self {
            hosts,
            origins: origins.to_vec(),
        }
    }

    /// Refuses a request that is for somebody else, or that a page makes which is not allowed to.
    pub(crate) fn check(&self, parts: &Parts) -> Result<(), Refusal> {
        let host = self.host(parts)?;
        let mut origins = parts.headers.get_all(ORIGIN).iter();
        let Some(origin) = origins.next() else {
            return Ok(());
        };
        let origin = origin.to_str().unwrap_or_default();
        let own = origin
            .split_once("://")
            .is_some_and(|(_, rest)| rest.eq_ignore_ascii_case(host));
        if origins.next().is_none() && (own || is_listed(&self.origins, origin)) {
            return Ok(());
        }
        Err(Refusal::new(
            ErrorCode::OriginDenied,
            "pages of this origin may not use the server",
        ))
    }

    /// The page that a request comes from, where it is listed: its browser has to be told.
    pub(crate) fn listed_page(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        is_listed(&self.origins, origin.to_str().ok()?).then(|| origin.clone())
    }

    fn host<'p>(&self, parts: &'p Parts) -> Result<&'p str, Refusal> {
        let denied = |what: &str| Refusal::new(ErrorCode::OriginDenied, what);
        let mut hosts = parts.headers.get_all(HOST).iter();
        let host = hosts
            .next()
            .ok_or_else(|| denied("there is no host header"))?;
        if hosts.next().is_some() {
            return Err(denied("there are two host headers"));
        }
        let host = host.to_str().unwrap_or_default();
        if let Some(authority) = parts.uri.authority()
            && !authority.as_str().eq_ignore_ascii_case(host)
        {
            return Err(denied("the address and the host header differ"));
        }
        let name = match host.rsplit_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            _ => host,
        };
        if is_listed(&self.hosts, name) || is_listed(&self.hosts, host) {
            Ok(host)
        } else {
            Err(denied("the server is not known under this host's name"))
        }
    }
}

fn is_listed(list: &[String], name: &str) -> bool {
    list.iter().any(|listed| listed.eq_ignore_ascii_case(name))
}

/// Refuses a body that would have to be unpacked.
pub(crate) fn check_body_coding(parts: &Parts) -> Result<(), Refusal> {
    let codings = parts.headers.get_all(CONTENT_ENCODING);
    if codings.iter().any(|coding| coding != "identity") {
        let message = "compressed bodies are not taken";
        return Err(Refusal::new(ErrorCode::UnsupportedMediaType, message));
    }
    Ok(())
}

/// Refuses a body that is no plain JSON. A page of another origin cannot send such a body unasked.
pub(crate) fn check_body_kind(parts: &Parts) -> Result<(), Refusal> {
    check_body_coding(parts)?;
    let headers = &parts.headers;
    let refused = |message: &str| Refusal::new(ErrorCode::UnsupportedMediaType, message);
    let kind = headers
        .get(CONTENT_TYPE)
        .and_then(|kind| kind.to_str().ok());
    let essence = kind.and_then(|kind| kind.split(';').next()).map(str::trim);
    if essence.is_some_and(|kind| kind.eq_ignore_ascii_case("application/json")) {
        Ok(())
    } else {
        Err(refused("the body has to be application/json"))
    }
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    /// A2, A3, A4: names and pages.
    #[test]
    fn a2_hosts_and_origins_are_on_a_list_or_refused() {
        let extra = ["gateway.example", "other.example:8088"].map(str::to_owned);
        let pages = ["https://console.example".to_owned()];
        let allowed = Allowed::new(&extra, &pages, IpAddr::from([10, 0, 0, 7]));
        let cases: [(&str, &[&str], &[&str], bool); 19] = [
            ("/", &["localhost:8088"], &[], true),
            ("/", &["LOCALHOST"], &[], true),
            ("/", &["127.0.0.1:1"], &[], true),
            ("/", &["[::1]:8088"], &[], true),
            ("/", &["10.0.0.7:8088"], &[], true),
            ("/", &["gateway.example"], &[], true),
            ("/", &["other.example:8088"], &[], true),
            ("/", &["other.example:9"], &[], false),
            ("/", &["evil.example"], &[], false),
            ("/", &["localhost.evil.example"], &[], false),
            ("/", &["127.0.0.1.evil.example:80"], &[], false),
            ("/", &["localhost:8088", "evil.example"], &[], false),
            ("/", &[], &[], false),
            ("http://evil.example/", &["localhost"], &[], false),
            ("http://localhost:8088/", &["localhost:8088"], &[], true),
            ("/", &["localhost:8088"], &["https://console.example"], true),
            ("/", &["localhost:8088"], &["http://localhost:8088"], true),
            ("/", &["localhost:8088"], &["https://evil.example"], false),
            ("/", &["localhost:8088"], &["null"], false),
        ];
        for (uri, hosts, origins, expected) in cases {
            let mut request = Request::builder().uri(uri);
            for host in hosts {
                request = request.header(HOST, *host);
            }
            for origin in origins {
                request = request.header(ORIGIN, *origin);
            }
            let (parts, ()) = request.body(()).expect("a request").into_parts();
            let place = format!("{uri} {hosts:?} {origins:?}");
            assert_eq!(allowed.check(&parts).is_ok(), expected, "{place}");
        }
    }
}
