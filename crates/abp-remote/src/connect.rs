//! HTTP/1.1 connections, plain or with TLS.

use std::sync::Arc;
use std::time::Duration;

use abp_error::{AbpError, ErrorCode};
use bytes::Bytes;
use http_body_util::Full;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::{ClientConfig, RootCertStore};

/// The longest that connecting may take.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Servers close connections that were idle for a minute and a half; ours are gone before.
const IDLE_TIMEOUT: Duration = Duration::from_secs(50);

/// A pool of connections.
pub(crate) type HttpClient = Client<HttpsConnector<HttpConnector>, Full<Bytes>>;

/// A pool of connections to a server; `is_secure` where its address begins with https.
pub(crate) fn client(is_secure: bool) -> Result<HttpClient, AbpError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    tcp.set_nodelay(true);
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let tls = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?
        .with_root_certificates(roots(is_secure))
        .with_no_client_auth();
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls);
    let connector = builder.https_or_http().enable_http1().wrap_connector(tcp);
    Ok(Client::builder(TokioExecutor::new())
        .pool_idle_timeout(IDLE_TIMEOUT)
        .pool_timer(TokioTimer::new())
        .build(connector))
}

/// The system's certificates, or Mozilla's list where it has none. Reading them takes time that a plain
/// connection need not spend.
fn roots(is_secure: bool) -> RootCertStore {
    let mut roots = RootCertStore::empty();
    if is_secure {
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            roots.extend(webpki_roots::TLS_SERVER_ROOTS.iter().cloned());
        }
    }
    roots
}
