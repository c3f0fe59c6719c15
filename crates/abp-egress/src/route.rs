//! Routes: targets whose credential is put in by the host.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use http::header::{ACCEPT_ENCODING, AUTHORIZATION, HOST, HeaderMap, HeaderName, HeaderValue};
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::RootCertStore;
use secrecy::{ExposeSecret as _, SecretString};
use url::{Host, Url};

use crate::body::{Download, DownloadBody, SecretFilter, UploadBody};
use crate::connection::{Failure, ProxyBody, boxed};
use crate::event::{EgressOutcome, EgressRule, EventDraft};
use crate::head_scan::HeadWatch;
use crate::headers::remove_hop_by_hop;
use crate::limits::EgressLimits;
use crate::relay::until_silent;
use crate::route_path::why_unsafe;
use crate::tls::client_config;

/// Headers in which clients send credentials. All of them are dropped where a route puts one in, so
/// that a client's placeholder does not compete with it.
const CREDENTIAL_HEADERS: [&str; 4] = ["authorization", "x-api-key", "x-goog-api-key", "api-key"];

/// Shorter secrets are not looked for in responses: they would be found by accident.
const SHORTEST_FOUND_SECRET: usize = 8;

const POOL_IDLE: Duration = Duration::from_secs(50);

/// A route: requests to `/NAME/...` of the proxy go to one target, below its base path.
#[derive(Debug, Clone)]
pub struct Route {
    name: String,
    scheme: Scheme,
    authority: Authority,
    host: String,
    port: u16,
    /// Without a slash at its end.
    base_path: String,
    credential: Option<RouteCredential>,
}

/// A header with a secret that the host puts into requests of a route.
#[derive(Debug, Clone)]
pub struct RouteCredential {
    header: HeaderName,
    value: HeaderValue,
    secret: SecretString,
}

/// A route that cannot be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RouteError {
    /// The name cannot be the first segment of a path.
    #[error("the route name {0:?} has other characters than a-z, A-Z, 0-9, '-' and '_'")]
    Name(String),
    /// Two routes have the same name.
    #[error("two routes have the name {0:?}")]
    SameName(String),
    /// The base address is not one.
    #[error("the base address of route {name:?} is not usable: {why}")]
    Base {
        /// The route.
        name: String,
        /// The objection.
        why: &'static str,
    },
    /// The header or its value cannot be sent.
    #[error("the credential's header name or value has characters that no header may have")]
    Credential,
    /// TLS cannot be used.
    #[error("TLS is not usable")]
    Tls(#[source] rustls::Error),
}

impl RouteCredential {
    /// The header `header: <prefix><secret>`, for example `authorization`, `Bearer ` and a token.
    ///
    /// # Errors
    /// Fails where the name or the value contains characters that no header may have.
    pub fn new(header: &str, prefix: &str, secret: SecretString) -> Result<Self, RouteError> {
        let header = header.parse().map_err(|_| RouteError::Credential)?;
        let text = format!("{prefix}{}", secret.expose_secret());
        let mut value = HeaderValue::try_from(text).map_err(|_| RouteError::Credential)?;
        value.set_sensitive(true);
        Ok(Self {
            header,
            value,
            secret,
        })
    }

    /// The header `authorization: Bearer <token>`.
    ///
    /// # Errors
    /// Fails where the token contains characters that no header may have.
    pub fn bearer(token: SecretString) -> Result<Self, RouteError> {
        Self::new(AUTHORIZATION.as_str(), "Bearer ", token)
    }

    /// Puts the credential in, in place of any that the client sent.
    fn put_into(&self, headers: &mut HeaderMap) {
        for name in CREDENTIAL_HEADERS {
            headers.remove(name);
        }
        headers.insert(self.header.clone(), self.value.clone());
        // A compressed response could not be searched for the credential.
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }

    /// Drops response headers that tell the credential.
    fn remove_from(&self, headers: &mut HeaderMap) {
        headers.remove(&self.header);
        let secret = self.secret.expose_secret().as_bytes();
        let telling: Vec<HeaderName> = headers
            .iter()
            .filter(|(_, value)| memchr::memmem::find(value.as_bytes(), secret).is_some())
            .map(|(name, _)| name.clone())
            .collect();
        for name in telling {
            headers.remove(name);
        }
    }

    fn filter(&self) -> Option<SecretFilter> {
        let is_findable = self.secret.expose_secret().len() >= SHORTEST_FOUND_SECRET;
        is_findable.then(|| SecretFilter::new(self.secret.clone()))
    }
}

impl Route {
    /// A route to `base`, an `https` URL whose path all requests stay below. Plain `http` is accepted
    /// for addresses of loopback only, because a credential would travel in the open.
    ///
    /// # Errors
    /// Fails where the name or the base address is not usable.
    pub fn new(
        name: &str,
        base: &str,
        credential: Option<RouteCredential>,
    ) -> Result<Self, RouteError> {
        let is_name = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if name.is_empty() || !name.bytes().all(is_name) {
            return Err(RouteError::Name(name.to_owned()));
        }
        let refuse = |why| RouteError::Base {
            name: name.to_owned(),
            why,
        };
        let base = Url::parse(base).map_err(|_| refuse("it is no URL"))?;
        if !base.username().is_empty() || base.password().is_some() {
            return Err(refuse("it has user information"));
        }
        if base.query().is_some() || base.fragment().is_some() {
            return Err(refuse("it has a query or a fragment"));
        }
        let scheme = match base.scheme() {
            "https" => Scheme::HTTPS,
            "http" if is_loopback(&base) => Scheme::HTTP,
            _ => return Err(refuse("it is neither https nor http on loopback")),
        };
        let (Some(host), Some(port)) = (base.host_str(), base.port_or_known_default()) else {
            return Err(refuse("it has no host"));
        };
        let authority = base.authority().parse();
        Ok(Self {
            name: name.to_owned(),
            scheme,
            authority: authority.map_err(|_| refuse("its host is not usable"))?,
            host: host.to_owned(),
            port,
            base_path: base.path().trim_end_matches('/').to_owned(),
            credential,
        })
    }

    /// A route to a listener of this process, for example that of the model gateway.
    ///
    /// # Errors
    /// Fails where the name is not usable or the address is not one of loopback.
    pub fn local(
        name: &str,
        address: SocketAddr,
        credential: Option<RouteCredential>,
    ) -> Result<Self, RouteError> {
        Self::new(name, &format!("http://{address}/"), credential)
    }

    fn uri(&self, path: &str, query: Option<&str>) -> Option<Uri> {
        let mut text = format!("{}{path}", self.base_path);
        if text.is_empty() {
            text.push('/');
        }
        if let Some(query) = query {
            text.push('?');
            text.push_str(query);
        }
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.clone())
            .path_and_query(PathAndQuery::try_from(text).ok()?)
            .build()
            .ok()
    }
}

fn is_loopback(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(address)) => IpAddr::V4(address).is_loopback(),
        Some(Host::Ipv6(address)) => IpAddr::V6(address).is_loopback(),
        Some(Host::Domain(_)) | None => false,
    }
}

/// The routes of a proxy and the client that all of them share.
#[derive(Debug)]
pub(crate) struct Routes {
    by_name: RwLock<BTreeMap<String, Arc<Route>>>,
    client: Client<HttpsConnector<HttpConnector>, UploadBody>,
}

fn insert(by_name: &mut BTreeMap<String, Arc<Route>>, route: Route) -> Result<(), RouteError> {
    if by_name.contains_key(&route.name) {
        return Err(RouteError::SameName(route.name));
    }
    by_name.insert(route.name.clone(), Arc::new(route));
    Ok(())
}

/// A request to a route, without the name.
#[derive(Debug)]
pub(crate) struct RouteRequest {
    pub(crate) path: String,
    pub(crate) query: Option<String>,
    pub(crate) request: Request<Incoming>,
}

impl Routes {
    pub(crate) fn new(
        routes: Vec<Route>,
        roots: Option<RootCertStore>,
        limits: &EgressLimits,
    ) -> Result<Self, RouteError> {
        // Reading the system's certificates takes milliseconds.
        let needs_tls = routes.iter().any(|route| route.scheme == Scheme::HTTPS);
        let roots = if needs_tls {
            roots
        } else {
            Some(RootCertStore::empty())
        };
        let mut by_name = BTreeMap::new();
        for route in routes {
            insert(&mut by_name, route)?;
        }
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(limits.connect_time));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(client_config(roots).map_err(RouteError::Tls)?)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(POOL_IDLE)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(limits.buffer_bytes())
            .build(connector);
        let by_name = RwLock::new(by_name);
        Ok(Self { by_name, client })
    }

    /// Adds a route to a listener of this machine. Others need certificates, which are read at the start.
    pub(crate) fn add_local(&self, route: Route) -> Result<(), RouteError> {
        if route.scheme != Scheme::HTTP {
            let why = "only routes to this machine can be added later";
            return Err(RouteError::Base {
                name: route.name,
                why,
            });
        }
        let mut by_name = self.by_name.write().unwrap_or_else(PoisonError::into_inner);
        insert(&mut by_name, route)
    }

    fn find(&self, name: &str) -> Option<Arc<Route>> {
        let by_name = self.by_name.read().unwrap_or_else(PoisonError::into_inner);
        by_name.get(name).cloned()
    }

    /// Sends a request to its route's target. Redirections are passed on, not followed.
    pub(crate) async fn serve(
        &self,
        name: &str,
        request: RouteRequest,
        mut draft: EventDraft,
        watch: Arc<HeadWatch>,
        limits: &EgressLimits,
    ) -> Result<Response<ProxyBody>, (Failure, EventDraft)> {
        let Some(route) = self.find(name) else {
            return Err((Failure::Denied(EgressRule::NoRoute), draft));
        };
        draft.set_target(&route.host, Some(route.port));
        if let Some(why) = why_unsafe(&request.path) {
            return Err((Failure::Denied(EgressRule::RoutePath { why }), draft));
        }
        let Some(uri) = route.uri(&request.path, request.query.as_deref()) else {
            let why = "the path cannot be sent";
            return Err((Failure::Denied(EgressRule::RoutePath { why }), draft));
        };
        draft.allow(EgressRule::Route {
            name: route.name.clone(),
        });
        let bytes = draft.bytes();
        let (mut head, body) = request.request.into_parts();
        let body = UploadBody::new(body, Arc::clone(&bytes), limits.idle_time);
        let upload_has_ended = body.has_ended();
        remove_hop_by_hop(&mut head.headers);
        head.headers.remove(HOST);
        if let Some(credential) = &route.credential {
            credential.put_into(&mut head.headers);
        }
        let mut outgoing = Request::new(body);
        *outgoing.method_mut() = head.method;
        *outgoing.uri_mut() = uri;
        *outgoing.headers_mut() = head.headers;
        let answered = tokio::select! {
            answered = self.client.request(outgoing) => answered,
            () = until_silent(&bytes, limits.response_time) => {
                return Err((Failure::Ended(EgressOutcome::TimedOut), draft));
            }
        };
        let response = match answered {
            Ok(response) => response,
            Err(error) => {
                let outcome = if error.is_connect() {
                    EgressOutcome::Unreachable
                } else {
                    EgressOutcome::Broken
                };
                return Err((Failure::Ended(outcome), draft));
            }
        };
        if response.status() == StatusCode::SWITCHING_PROTOCOLS {
            return Err((Failure::Ended(EgressOutcome::Broken), draft));
        }
        let (mut head, body) = response.into_parts();
        remove_hop_by_hop(&mut head.headers);
        if let Some(credential) = &route.credential {
            credential.remove_from(&mut head.headers);
        }
        let credential = route.credential.as_ref();
        let download = Download {
            draft,
            watch,
            upload_has_ended,
            driver: None,
            filter: credential.and_then(RouteCredential::filter),
            idle_time: limits.idle_time,
        };
        let body = boxed(DownloadBody::new(body, download));
        Ok(Response::from_parts(head, body))
    }
}
