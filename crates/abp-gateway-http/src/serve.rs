//! The accept loop: connections with deadlines, bounded in number, ended in order.

use std::convert::Infallible;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use abp_error::{AbpError, ErrorCode};
use abp_gateway::Gateway;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::runtime::Handle;
use tokio::sync::{Semaphore, watch};
use tokio_rustls::TlsAcceptor;

use crate::app::App;
use crate::auth::Doorkeeper;
use crate::extra::ExtraRoute;
use crate::guard::Allowed;
use crate::lanes::Lanes;
use crate::options::ServerOptions;
use crate::tls;
use crate::upgrade::UpgradeSlot;
use crate::wire::{Phase, Wire, WireDeadlines};

/// What a server that is full says, before it says anything else.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\ncontent-length: 0\r\n\
    connection: close\r\n\r\n";

/// How many connections may wait to be accepted, as far as the system allows. Whoever finds no room there
/// tries again only after a second.
const WAITING: u32 = 4096;

/// How long a change of keys may take to count.
const KEYS_FOLLOWED: Duration = Duration::from_millis(500);

/// How long what is too old may still be there, unless it is kept for less.
const FORGOTTEN: Duration = Duration::from_secs(3_600);

/// A server that listens and does not serve yet.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    app: Arc<App>,
    lanes: Lanes,
    options: ServerOptions,
    tls: Option<TlsAcceptorDebug>,
}

/// An acceptor has nothing to show.
#[derive(Clone)]
struct TlsAcceptorDebug(TlsAcceptor);

impl std::fmt::Debug for TlsAcceptorDebug {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsAcceptor")
    }
}

impl Server {
    /// Begins to listen. `extras` are served besides the vendors' endpoints.
    ///
    /// # Errors
    /// Fails where others could reach the server and what they say could be read on the way, where
    /// the certificate cannot be used, and where the address cannot be had.
    pub async fn bind(
        gateway: Gateway,
        extras: Vec<ExtraRoute>,
        options: ServerOptions,
    ) -> Result<Self, AbpError> {
        let address = options.listen.ip();
        if !address.is_loopback() && options.tls.is_none() && !options.insecure_bind {
            let message = format!(
                "{address} can be reached from other machines and there is no certificate: set \
                 tls_cert and tls_key, listen on 127.0.0.1, or say --insecure-bind"
            );
            return Err(AbpError::new(ErrorCode::ConfigInvalid, message));
        }
        let tls = match &options.tls {
            Some((certificate, key)) => Some(TlsAcceptorDebug(tls::acceptor(certificate, key)?)),
            None => None,
        };
        let listener = listen(options.listen).map_err(|error| {
            let message = format!("cannot listen on {}: {error}", options.listen);
            AbpError::new(ErrorCode::ConfigInvalid, message)
        })?;
        let allowed = Allowed::new(&options.allowed_hosts, &options.allowed_origins, address);
        let app = App {
            gateway,
            extras,
            allowed,
            door: Doorkeeper::default(),
            max_body: options.max_body,
            body_deadline: options.body_timeout,
            on_loss: options.on_loss,
            is_local: address.is_loopback(),
            tasks: Handle::current(),
        };
        let lanes = Lanes::start().map_err(|error| {
            let message = "cannot start the threads that serve connections";
            AbpError::new(ErrorCode::Internal, message).with_source(error)
        })?;
        Ok(Self {
            listener,
            app: Arc::new(app),
            lanes,
            options,
            tls,
        })
    }

    /// Where it listens.
    ///
    /// # Errors
    /// Fails where the system does not say.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `shutdown` is done; then takes nothing new, and waits for what is under way as
    /// long as the options say. Every record is durable when this returns; the store stays open. `operator` is the hash of the operator's key. `close` ends what the extra
    /// routes began; it starts when nothing new is taken, and connections are waited for after it.
    pub async fn run(
        self,
        operator: [u8; 32],
        shutdown: impl Future<Output = ()>,
        close: impl Future<Output = ()>,
    ) {
        let keys = tokio::spawn(follow_keys(self.app.gateway.clone(), operator));
        let forgets = forget_old(self.app.gateway.clone(), self.options.keep);
        let forgets = tokio::spawn(forgets);
        let places = Arc::new(Semaphore::new(self.options.max_connections));
        let (ending, ends) = watch::channel(false);
        tokio::pin!(shutdown);
        loop {
            let accepted = tokio::select! {
                accepted = self.listener.accept() => accepted,
                () = &mut shutdown => break,
            };
            match accepted {
                Ok((stream, peer)) => self.take(stream, peer.ip(), &places, &ends),
                Err(error) => {
                    // Out of descriptors, most likely: what is open has to end first.
                    tracing::warn!(target: "abp.http", %error, "a connection was not accepted");
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            }
        }
        drop(self.listener);
        keys.abort();
        forgets.abort();
        drop(ends);
        // Nobody may be left to hear of it.
        let _ = ending.send(true);
        close.await;
        let all = u32::try_from(self.options.max_connections).unwrap_or(u32::MAX);
        let drained = places.acquire_many(all);
        if tokio::time::timeout(self.options.drain_timeout, drained)
            .await
            .is_err()
        {
            let open = self.options.max_connections - places.available_permits();
            tracing::warn!(target: "abp.http", open, "connections were cut off");
        }
        self.lanes.end().await;
        if let Err(error) = self.app.gateway.flush().await {
            tracing::error!(target: "abp.http", %error, "the last records were not written");
        }
    }

    fn take(
        &self,
        mut stream: TcpStream,
        peer: IpAddr,
        places: &Arc<Semaphore>,
        ends: &watch::Receiver<bool>,
    ) {
        let Ok(place) = Arc::clone(places).try_acquire_owned() else {
            tokio::spawn(async move {
                // A peer that does not take it is not waited for.
                let refusal = stream.write_all(FULL);
                drop(tokio::time::timeout(Duration::from_millis(100), refusal).await);
            });
            return;
        };
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(target: "abp.http", %error, "a connection waits for full packets");
        }
        let app = Arc::clone(&self.app);
        let deadlines = WireDeadlines {
            head: self.options.header_timeout,
            idle: self.options.idle_timeout,
        };
        let ends = ends.clone();
        let tls = self.tls.clone();
        // It leaves the runtime of the listener and enters that of its thread.
        let Ok(stream) = stream.into_std() else {
            return;
        };
        self.lanes.spawn(async move {
            let Ok(stream) = TcpStream::from_std(stream) else {
                return;
            };
            match tls {
                None => connection(stream, app, peer, deadlines, ends).await,
                Some(TlsAcceptorDebug(acceptor)) => {
                    let handshake = tokio::time::timeout(deadlines.head, acceptor.accept(stream));
                    if let Ok(Ok(stream)) = handshake.await {
                        // Connections without TLS, most of them, need not have room for it.
                        Box::pin(connection(stream, app, peer, deadlines, ends)).await;
                    }
                }
            }
            drop(place);
        });
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(WAITING)
}

/// Forgets what was kept for later turns that did not come.
async fn forget_old(gateway: Gateway, keep: Duration) {
    loop {
        match gateway.forget_older_than(keep).await {
            Ok(0) => {}
            Ok(count) => tracing::info!(target: "abp.http", count, "old answers were forgotten"),
            Err(error) => {
                tracing::error!(target: "abp.http", %error, "old answers were not forgotten");
            }
        }
        tokio::time::sleep(keep.min(FORGOTTEN)).await;
    }
}

/// Takes over keys that another process made or revoked.
async fn follow_keys(gateway: Gateway, operator: [u8; 32]) {
    let mut known = None;
    loop {
        match gateway.store().keys_version().await {
            Ok(version) if known == Some(version) => {}
            Ok(version) => match gateway.reload_keys(Some(operator)).await {
                Ok(()) => known = Some(version),
                Err(error) => tracing::error!(target: "abp.http", %error, "keys were not read"),
            },
            Err(error) => tracing::error!(target: "abp.http", %error, "keys were not read"),
        }
        tokio::time::sleep(KEYS_FOLLOWED).await;
    }
}

async fn connection<I>(
    stream: I,
    app: Arc<App>,
    peer: IpAddr,
    deadlines: WireDeadlines,
    mut ends: watch::Receiver<bool>,
) where
    I: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let phase = Arc::new(Phase::default());
    let wire = Wire::new(stream, Arc::clone(&phase), deadlines);
    let upgrade = Arc::new(UpgradeSlot::default());
    let slot = Arc::clone(&upgrade);
    let service = service_fn(move |request| {
        let (app, phase, slot) = (Arc::clone(&app), Arc::clone(&phase), Arc::clone(&slot));
        // Boxed, so that a connection whose answer is a long stream does not hold the room of its handler.
        async move { Ok::<_, Infallible>(Box::pin(app.serve(request, peer, phase, &slot)).await) }
    });
    let serving = http1::Builder::new()
        .max_buf_size(64 * 1024)
        .serve_connection(TokioIo::new(wire), service)
        .with_upgrades();
    tokio::pin!(serving);
    let ended = tokio::select! {
        ended = &mut serving => ended,
        _ = ends.changed() => {
            serving.as_mut().graceful_shutdown();
            serving.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(target: "abp.http", %error, "a connection ended early");
    }
    upgrade.run().await;
}
