//! Connecting to a vendor within a time limit.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use http::Uri;
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

/// So often the system asks a silent peer whether it is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

type BoxError = Box<dyn StdError + Send + Sync>;

/// The connection did not stand in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub(crate) struct ConnectTimedOut;

/// Connects by TCP and, where the address says so, TLS.
pub(crate) struct Connector {
    inner: HttpsConnector<HttpConnector>,
    limit: Duration,
}

impl Connector {
    pub(crate) fn new(tls: Arc<ClientConfig>, https: bool, limit: Duration) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Without this, small writes wait for acknowledgements that the peer delays.
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        let names = Arc::new(DefaultServerNameResolver::default());
        Self {
            inner: HttpsConnector::new(tcp, tls, https, names),
            limit,
        }
    }
}

/// What a vendor is talked to over.
pub(crate) type VendorStream = MaybeHttpsStream<TokioIo<TcpStream>>;

impl Connector {
    /// Connects.
    ///
    /// # Errors
    /// Fails where the connection does not stand in time.
    pub(crate) async fn connect(&self, origin: Uri) -> Result<VendorStream, BoxError> {
        let mut inner = self.inner.clone();
        let connecting = async {
            poll_fn(|context| inner.poll_ready(context)).await?;
            inner.call(origin).await
        };
        tokio::time::timeout(self.limit, connecting)
            .await
            .unwrap_or_else(|_| Err(ConnectTimedOut.into()))
    }
}
