//! Connecting to a vendor within a time limit.

use std::error::Error as StdError;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::Uri;
use http::uri::Scheme;
use hyper_rustls::{DefaultServerNameResolver, HttpsConnector, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;

use crate::proxy::{ProxyAddress, open_tunnel};

/// So often the system asks a silent peer whether it is still there.
const TCP_KEEPALIVE: Duration = Duration::from_secs(60);

type BoxError = Box<dyn StdError + Send + Sync>;

/// The connection did not stand in time.
#[derive(Debug, thiserror::Error)]
#[error("no connection in time")]
pub(crate) struct ConnectTimedOut;

/// Connects by TCP, through a proxy where there is one, and by TLS where the address says so.
pub(crate) struct Connector {
    inner: HttpsConnector<TcpConnector>,
    limit: Duration,
}

impl Connector {
    pub(crate) fn new(
        tls: Arc<ClientConfig>,
        https: bool,
        proxy: Option<ProxyAddress>,
        limit: Duration,
    ) -> Self {
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        // Without this, small writes wait for acknowledgements that the peer delays.
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(TCP_KEEPALIVE));
        let names = Arc::new(DefaultServerNameResolver::default());
        let proxy = proxy.map(Arc::new);
        Self {
            inner: HttpsConnector::new(TcpConnector { tcp, proxy }, tls, https, names),
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

/// The part below TLS: a connection to the vendor itself, or to a proxy that leads there.
#[derive(Clone)]
struct TcpConnector {
    tcp: HttpConnector,
    proxy: Option<Arc<ProxyAddress>>,
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tcp.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, origin: Uri) -> Self::Future {
        let Some(proxy) = self.proxy.clone() else {
            let connecting = self.tcp.call(origin);
            return Box::pin(async move { Ok(connecting.await?) });
        };
        let connecting = self.tcp.call(proxy.uri.clone());
        Box::pin(async move {
            let mut stream = connecting.await?.into_inner();
            // A request to an address of http is given to the proxy itself.
            if origin.scheme() == Some(&Scheme::HTTPS) {
                let host = origin.host().unwrap_or_default();
                let target = format!("{host}:{}", origin.port_u16().unwrap_or(443));
                open_tunnel(&mut stream, &target, &proxy).await?;
            }
            Ok(TokioIo::new(stream))
        })
    }
}
