//! The server of the suite at an address of this machine.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::sync::Arc;

use abp_mcp::{
    HttpOptions, Implementation, McpBody, McpHttp, Offer, Profile, ProtocolVersion,
    ServerCapabilities, StateKey,
};
use bytes::Bytes;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Either, Empty};
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;

use crate::Outcome;
use crate::fixture::Fixture;

/// Names under which this machine is reached by itself.
const LOCAL: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

type Body = Either<McpBody, Empty<Bytes>>;

/// Serves until the process is ended.
pub(crate) async fn serve(versions: Vec<ProtocolVersion>) -> Outcome<()> {
    let fixture = Arc::new(Fixture::load()?);
    let offer = Offer {
        versions,
        // The session says what it has when a client asks.
        capabilities: ServerCapabilities::none(),
        info: Implementation::new("abp-conformance", env!("CARGO_PKG_VERSION")),
        instructions: None,
        profile: Profile::Strict,
    };
    let options = HttpOptions::new(StateKey::random()?);
    let endpoint = McpHttp::new(offer, options, move |_| Arc::clone(&fixture) as _);
    let endpoint = Arc::new(endpoint);
    let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
    writeln!(io::stdout(), "http://{}/mcp", listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        let endpoint = Arc::clone(&endpoint);
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(Arc::clone(&endpoint), request));
            let connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
            // A client that goes away is no concern of the others.
            drop(connection.await);
        });
    }
}

async fn answer(
    endpoint: Arc<McpHttp>,
    request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    if !is_local(&parts.headers) {
        return Ok(refused(StatusCode::FORBIDDEN));
    }
    let Ok(body) = body.collect().await else {
        return Ok(refused(StatusCode::BAD_REQUEST));
    };
    let response = endpoint.handle(parts, body.to_bytes(), "").await;
    Ok(response.map(Either::Left))
}

/// Whether a request is for this machine, and not from a page of another.
fn is_local(headers: &HeaderMap) -> bool {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok());
    let is_name = |host: &str| {
        let name = host.rsplit_once(':').map_or(host, |(name, _)| name);
        LOCAL.contains(&name)
    };
    let origin = text(ORIGIN).map(|origin| origin.trim_start_matches("http://"));
    text(HOST).is_some_and(is_name) && origin.is_none_or(is_name)
}

fn refused(status: StatusCode) -> Response<Body> {
    let mut response = Response::new(Either::Right(Empty::new()));
    *response.status_mut() = status;
    response
}
