//! The way to a daemon: HTTP/1.1, plain or with TLS.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{
    ACCEPT_ENCODING, AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue, USER_AGENT,
};
use http::uri::{Authority, Scheme};
use http::{HeaderMap, Method, Request, Response, Uri};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

use crate::error::TransportError;

/// The longest that connecting may take.
const CONNECT: Duration = Duration::from_secs(10);

/// So often the system asks a silent peer whether it is still there.
const KEEPALIVE: Duration = Duration::from_secs(60);

/// Daemons close connections that were idle for a minute and a half; ours are gone before.
const IDLE: Duration = Duration::from_secs(50);

/// What a vendor's API looks like over HTTP.
#[derive(Debug, Clone, Copy)]
pub struct HttpForm {
    /// The version that every path starts with. A base URL may end in it or not.
    pub version: &'static str,
    /// The header that the key goes into.
    pub key_header: KeyHeader,
    /// The environment variable that vendors' own clients take the base URL from.
    pub base_url_variable: &'static str,
    /// The one for the key.
    pub key_variable: &'static str,
}

/// The header that a key goes into.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyHeader {
    /// `authorization`, after `Bearer`.
    Bearer,
    /// This one, as it is.
    Plain(&'static str),
}

/// A daemon at an address.
pub(crate) struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    scheme: Scheme,
    authority: Authority,
    /// What every path starts with, the version included.
    prefix: String,
    /// What every request carries. The key in it is marked, so that no debug output shows it.
    headers: HeaderMap,
}

impl Http {
    /// A daemon that is not connected yet.
    pub(crate) fn new(form: &HttpForm, base_url: &str, key: &str) -> Result<Self, TransportError> {
        let (scheme, authority, path) = parts(base_url).map_err(|problem| {
            // The address itself is not repeated: it may hold a password.
            TransportError::NotUsable(format!("the base URL {problem}"))
        })?;
        let path = path.trim_end_matches('/');
        let path = path.strip_suffix(form.version).unwrap_or(path);
        Ok(Self {
            client: Client::builder(TokioExecutor::new())
                .pool_idle_timeout(IDLE)
                .pool_timer(TokioTimer::new())
                .build(connector(&scheme)?),
            scheme,
            authority,
            prefix: format!("{path}{}", form.version),
            headers: headers(form.key_header, key)?,
        })
    }

    /// Sends a request; returns with the head of the answer.
    pub(crate) async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<Response<Incoming>, TransportError> {
        let uri = Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(format!("{}{path}", self.prefix))
            .build();
        let uri = uri.map_err(|error| TransportError::NotUsable(error.to_string()))?;
        let mut request = Request::new(Full::new(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        request.headers_mut().extend(headers.clone());
        // Ours come last, so that nothing takes their place.
        request.headers_mut().extend(self.headers.clone());
        let answer = self.client.request(request).await;
        answer.map_err(|error| TransportError::NoAnswer(root_cause(&error)))
    }
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Http({}://{})", self.scheme, self.authority)
    }
}

fn parts(base_url: &str) -> Result<(Scheme, Authority, String), &'static str> {
    let uri: Uri = base_url.parse().map_err(|_| "is none")?;
    let scheme = uri.scheme().filter(|scheme| {
        // Only these two can be connected to.
        **scheme == Scheme::HTTP || **scheme == Scheme::HTTPS
    });
    let scheme = scheme.ok_or("must begin with http:// or https://")?;
    let authority = uri.authority().ok_or("names no host")?;
    if authority.as_str().contains('@') {
        return Err("holds a user name or a password");
    }
    if uri.query().is_some() {
        return Err("holds a query");
    }
    Ok((scheme.clone(), authority.clone(), uri.path().to_owned()))
}

fn headers(form: KeyHeader, key: &str) -> Result<HeaderMap, TransportError> {
    let (name, value) = match form {
        KeyHeader::Bearer => (AUTHORIZATION, format!("Bearer {key}")),
        KeyHeader::Plain(name) => (HeaderName::from_static(name), key.to_owned()),
    };
    let mut value = HeaderValue::from_str(&value).map_err(|_| {
        TransportError::NotUsable("the key holds what no header can carry".to_owned())
    })?;
    value.set_sensitive(true);
    let agent = concat!("agent-backplane-shim/", env!("CARGO_PKG_VERSION"));
    Ok(HeaderMap::from_iter([
        (name, value),
        (CONTENT_TYPE, HeaderValue::from_static("application/json")),
        (ACCEPT_ENCODING, HeaderValue::from_static("identity")),
        (USER_AGENT, HeaderValue::from_static(agent)),
    ]))
}

fn connector(scheme: &Scheme) -> Result<HttpsConnector<HttpConnector>, TransportError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT));
    tcp.set_keepalive(Some(KEEPALIVE));
    // Without this, small writes wait for acknowledgements that the peer delays.
    tcp.set_nodelay(true);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| TransportError::NotUsable(error.to_string()))?
        .with_root_certificates(roots(scheme))
        .with_no_client_auth();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
    Ok(builder.https_or_http().enable_http1().wrap_connector(tcp))
}

/// Whom to believe: the system's certificates, or Mozilla's list where it has none. Reading them takes
/// time that a plain connection need not spend.
fn roots(scheme: &Scheme) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if *scheme == Scheme::HTTPS {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
    }
    roots
}

/// The innermost cause says what happened; the others only where.
pub(crate) fn root_cause(error: &(dyn StdError + 'static)) -> String {
    let causes = std::iter::successors(Some(error), |&cause| cause.source());
    causes.last().map(ToString::to_string).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base_urls_may_name_the_version_or_not() {
        let form = HttpForm {
            version: "/v1",
            key_header: KeyHeader::Bearer,
            base_url_variable: "",
            key_variable: "",
        };
        let cases = [
            ("http://127.0.0.1:8088", Ok("/v1")),
            ("http://127.0.0.1:8088/", Ok("/v1")),
            ("http://127.0.0.1:8088/v1/", Ok("/v1")),
            ("https://example.com/openai/v1", Ok("/openai/v1")),
            ("https://example.com/v10", Ok("/v10/v1")),
            ("ftp://example.com", Err("http://")),
            ("127.0.0.1:8088", Err("http://")),
            ("http://me:secret@example.com", Err("password")),
            ("http://example.com/?key=secret", Err("query")),
            ("not a URL", Err("none")),
        ];
        for (base_url, expected) in cases {
            let made = Http::new(&form, base_url, "key");
            match (made, expected) {
                (Ok(http), Ok(prefix)) => assert_eq!(http.prefix, prefix, "{base_url}"),
                (Err(error), Err(problem)) => {
                    let error = error.to_string();
                    assert!(error.contains(problem), "{base_url}: {error}");
                    assert!(!error.contains("secret"), "{error}");
                }
                (made, _) => panic!("{base_url}: {made:?}"),
            }
        }
        let error = Http::new(&form, "http://localhost", "a\nb").expect_err("no header");
        assert!(!error.to_string().contains("a\nb"), "{error}");
    }
}
