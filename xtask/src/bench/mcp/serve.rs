//! A server with one tool, and the gateway in front of it, each with threads of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use abp_glob::GlobList;
use abp_mcp::{
    Agreement, Change, ClientCapabilities, ClientHandle, ClientTimeouts, GatewayServer,
    HttpOptions, HttpServer, Implementation, McpAnswer, McpFuture, McpGateway, McpHttp, McpSession,
    Method, Offer, Profile, ProtocolVersion, ServedCall, ServerAddress, ServerCapabilities,
    ServerFlag, StateKey, SubscriptionFilter, Watch,
};
use anyhow::Result;
use http_body_util::BodyExt as _;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::broadcast;

/// More than any benchmark here opens.
const MAX_SESSIONS: usize = 4_096;

/// One tool, which repeats what it is given.
struct Echo {
    changes: broadcast::Sender<Change>,
}

impl McpSession for Echo {
    fn capabilities<'a>(
        &'a self,
        _client: &'a ClientCapabilities,
        _version: Option<ProtocolVersion>,
    ) -> McpFuture<'a, ServerCapabilities> {
        Box::pin(async { ServerCapabilities::of([ServerFlag::ToolsListChanged]) })
    }

    fn serve(&self, call: ServedCall, _client: ClientHandle) -> McpFuture<'_, McpAnswer> {
        let answer = match call.method {
            Method::ToolsList => {
                r#"{"tools":[{"name":"echo","description":"Repeats.","inputSchema":{"type":"object"}}]}"#
            }
            _ => r#"{"content":[{"type":"text","text":"hello"}]}"#,
        };
        Box::pin(async move { McpAnswer::Result(answer.to_owned()) })
    }

    fn changes(&self) -> broadcast::Receiver<Change> {
        self.changes.subscribe()
    }

    fn told(&self, _method: Method, _client: ClientHandle) {}

    fn watch(&self, _client: &Arc<Agreement>, _filter: &SubscriptionFilter) -> Watch {
        None
    }
}

/// Starts the server.
pub(super) fn server() -> Result<SocketAddr> {
    let echo = Arc::new(Echo {
        changes: broadcast::channel(16).0,
    });
    listen(move |_| Arc::clone(&echo) as _)
}

/// Starts the gateway in front of a server.
pub(super) fn gateway(server: SocketAddr) -> Result<SocketAddr> {
    let server = GatewayServer {
        name: "echo".to_owned(),
        address: ServerAddress::Http(HttpServer {
            url: format!("http://{server}/mcp"),
            bearer: None,
        }),
        versions: ProtocolVersion::ALL.to_vec(),
        timeouts: ClientTimeouts::USUAL,
        open_timeout: Duration::from_secs(10),
        allow_tools: GlobList::new(&["*".to_owned()])?,
        deny_tools: GlobList::new(&[])?,
    };
    let gateway = McpGateway::new(vec![server], Implementation::new("bench", "1"));
    listen(move |principal| gateway.session(principal))
}

/// Serves sessions on threads that end with the process.
fn listen(
    open: impl Fn(&str) -> Arc<dyn McpSession> + Send + Sync + 'static,
) -> Result<SocketAddr> {
    let offer = Offer {
        versions: ProtocolVersion::ALL.to_vec(),
        capabilities: ServerCapabilities::none(),
        info: Implementation::new("bench", "1"),
        instructions: None,
        profile: Profile::Strict,
    };
    let options = HttpOptions {
        max_sessions: MAX_SESSIONS,
        ..HttpOptions::new(StateKey::random()?)
    };
    let endpoint = Arc::new(McpHttp::new(offer, options, open));
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || runtime.block_on(accept(&listener, &endpoint)));
    Ok(address)
}

async fn accept(listener: &TcpListener, endpoint: &Arc<McpHttp>) {
    while let Ok((stream, _)) = listener.accept().await {
        // A connection that waits for full packets is only slower.
        drop(stream.set_nodelay(true));
        let endpoint = Arc::clone(endpoint);
        let service = service_fn(move |request: http::Request<hyper::body::Incoming>| {
            let endpoint = Arc::clone(&endpoint);
            async move {
                let (parts, body) = request.into_parts();
                let body = body.collect().await?.to_bytes();
                Ok::<_, hyper::Error>(endpoint.handle(parts, body, "").await)
            }
        });
        let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::spawn(async move { drop(connection.await) });
    }
}
