//! The bare proxy, a process of its own: hyper in front, hyper-util's client behind, nothing between.

use std::convert::Infallible;
use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use http::header::HOST;
use http::uri::{Authority, Scheme};
use http::{Request, Response, StatusCode, Uri};
use http_body_util::{Either, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioIo};

use super::role;

/// As many as `abp serve` has.
const WORKERS: usize = 2;

type Answer = Response<Either<Incoming, Empty<Bytes>>>;

/// Serves until the process ends.
pub(super) fn serve(upstream: SocketAddr) -> Result<()> {
    let upstream: Authority = upstream.to_string().parse().context("no authority")?;
    let mut connector = HttpConnector::new();
    connector.set_nodelay(true);
    let client = Client::builder(TokioExecutor::new()).build(connector);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(WORKERS)
        .enable_all()
        .build()?;
    runtime.block_on(role::accept(move |stream| {
        let (client, upstream) = (client.clone(), upstream.clone());
        async move {
            let service = service_fn(|request| forward(&client, &upstream, request));
            // A peer that goes away ends its streams this way.
            drop(
                http1::Builder::new()
                    .serve_connection(TokioIo::new(stream), service)
                    .await,
            );
        }
    }))
}

async fn forward(
    client: &Client<HttpConnector, Incoming>,
    upstream: &Authority,
    mut request: Request<Incoming>,
) -> Result<Answer, Infallible> {
    let mut parts = std::mem::take(request.uri_mut()).into_parts();
    parts.scheme = Some(Scheme::HTTP);
    parts.authority = Some(upstream.clone());
    *request.uri_mut() = Uri::from_parts(parts).unwrap_or_default();
    request.headers_mut().remove(HOST);
    Ok(client
        .request(request)
        .await
        .map_or_else(|_| bad_gateway(), |answer| answer.map(Either::Left)))
}

fn bad_gateway() -> Answer {
    let mut answer = Response::new(Either::Right(Empty::new()));
    *answer.status_mut() = StatusCode::BAD_GATEWAY;
    answer
}
