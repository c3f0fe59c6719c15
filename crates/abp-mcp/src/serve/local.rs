//! An endpoint at a port of this machine, for the one caller that has its key.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{AUTHORIZATION, HOST, ORIGIN, WWW_AUTHENTICATE};
use http::request::Parts;
use http::{HeaderValue, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

use super::{McpBody, McpHttp};
use crate::message::MESSAGE_LIMITS;

/// The only address there is.
const PATH: &str = "/mcp";
/// Whoever has the key.
const CALLER: &str = "caller";
const MAX_CONNECTIONS: usize = 64;
/// How long a head, and then a body, may take.
const HEAD: Duration = Duration::from_secs(10);
const BODY: Duration = Duration::from_secs(60);
/// How long to wait where no connection can be taken: descriptors have to be given back first.
const PAUSE: Duration = Duration::from_millis(20);

/// An [`McpHttp`] at a port of this machine that nobody knows beforehand. It is gone when this is
/// dropped, and with it every connection.
pub struct LocalEndpoint {
    http: Arc<McpHttp>,
    address: SocketAddr,
    key: SecretString,
    accepting: JoinHandle<()>,
}

/// Decides who is let in.
struct Door {
    http: Arc<McpHttp>,
    hosts: [String; 2],
    /// The digest of the key: comparing digests tells nothing about it.
    key: [u8; 32],
}

impl std::fmt::Debug for LocalEndpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LocalEndpoint")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl LocalEndpoint {
    /// Begins to listen, with a new key.
    ///
    /// # Errors
    /// Fails where there is no port, or no randomness.
    pub async fn open(http: McpHttp) -> io::Result<Self> {
        let mut random = [0_u8; 24];
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        let key: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
        let key = format!("abp_run_{key}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let http = Arc::new(http);
        let door = Door {
            http: Arc::clone(&http),
            hosts: [address.to_string(), format!("localhost:{}", address.port())],
            key: Sha256::digest(&key).into(),
        };
        Ok(Self {
            http,
            address,
            key: SecretString::from(key),
            accepting: tokio::spawn(accept(listener, Arc::new(door))),
        })
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}{PATH}", self.address)
    }

    /// The bearer token that it wants.
    #[must_use]
    pub fn key(&self) -> &SecretString {
        &self.key
    }

    /// Ends every session and connection; afterwards nothing listens at the port.
    pub async fn close(mut self) {
        self.accepting.abort();
        // It ends by being aborted.
        drop((&mut self.accepting).await);
        self.http.close();
    }
}

impl Drop for LocalEndpoint {
    fn drop(&mut self) {
        self.accepting.abort();
        self.http.close();
    }
}

/// Takes connections until it is dropped, and they with it.
async fn accept(listener: TcpListener, door: Arc<Door>) {
    let mut connections = JoinSet::new();
    loop {
        let accepted = listener.accept().await;
        while connections.try_join_next().is_some() {}
        match accepted {
            Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                connections.spawn(serve(stream, Arc::clone(&door)));
            }
            Ok(_) => {}
            Err(error) => {
                tracing::warn!(target: "abp.mcp", %error, "a connection was not accepted");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, door: Arc<Door>) {
    let service = service_fn(move |request| {
        let door = Arc::clone(&door);
        async move { Ok::<_, Infallible>(door.answer(request).await) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD)
        .serve_connection(TokioIo::new(stream), service)
        .await;
    if let Err(error) = served {
        tracing::debug!(target: "abp.mcp", %error, "a connection ended early");
    }
}

impl Door {
    async fn answer(&self, request: Request<Incoming>) -> Response<McpBody> {
        let (parts, body) = request.into_parts();
        let taken = match self.check(&parts) {
            Ok(()) => take(body).await,
            Err(status) => Err(status),
        };
        match taken {
            Ok(body) => self.http.handle(parts, body, CALLER).await,
            Err(status) => refused(status),
        }
    }

    /// No page may use it, whatever it knows; and nobody without the key.
    fn check(&self, parts: &Parts) -> Result<(), StatusCode> {
        let mut hosts = parts.headers.get_all(HOST).iter();
        let is_known = |host: &str| self.hosts.iter().any(|one| host.eq_ignore_ascii_case(one));
        let named = hosts.next().and_then(|host| host.to_str().ok());
        let asked = parts.uri.authority().map(http::uri::Authority::as_str);
        let is_meant = named.is_some_and(is_known) && asked.is_none_or(is_known);
        if !is_meant || hosts.next().is_some() || parts.headers.contains_key(ORIGIN) {
            return Err(StatusCode::FORBIDDEN);
        }
        if parts.uri.path() != PATH {
            return Err(StatusCode::NOT_FOUND);
        }
        let said = parts.headers.get(AUTHORIZATION);
        let said = said.and_then(|said| said.to_str().ok()?.split_once(' '));
        let digest: Option<[u8; 32]> = said
            .filter(|(scheme, _)| scheme.eq_ignore_ascii_case("bearer"))
            .map(|(_, key)| Sha256::digest(key.trim()).into());
        match digest == Some(self.key) {
            true => Ok(()),
            false => Err(StatusCode::UNAUTHORIZED),
        }
    }
}

async fn take(body: Incoming) -> Result<Bytes, StatusCode> {
    let limited = Limited::new(body, MESSAGE_LIMITS.max_bytes).collect();
    match tokio::time::timeout(BODY, limited).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(_)) => Err(StatusCode::PAYLOAD_TOO_LARGE),
        Err(_) => Err(StatusCode::REQUEST_TIMEOUT),
    }
}

fn refused(status: StatusCode) -> Response<McpBody> {
    let mut response = Response::new(McpBody::empty());
    *response.status_mut() = status;
    if status == StatusCode::UNAUTHORIZED {
        let headers = response.headers_mut();
        headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}
