//! Plain HTTP requests in absolute form, each over a connection of its own.

use std::sync::Arc;

use abp_policy::NetworkTarget;
use http::header::{CONNECTION, HOST, HeaderValue};
use http::uri::PathAndQuery;
use http::{Request, Response, StatusCode, Uri};
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use crate::body::{AbortOnDrop, Download, DownloadBody, UploadBody};
use crate::connection::{Failure, ProxyBody, boxed};
use crate::event::{EgressOutcome, EventDraft};
use crate::head_scan::HeadWatch;
use crate::headers::remove_hop_by_hop;
use crate::limits::EgressLimits;
use crate::relay::until_silent;

/// Sends an allowed request over a new connection to its target.
pub(crate) async fn forward(
    server: TcpStream,
    target: &NetworkTarget,
    request: Request<Incoming>,
    draft: EventDraft,
    watch: Arc<HeadWatch>,
    limits: &EgressLimits,
) -> Result<Response<ProxyBody>, (Failure, EventDraft)> {
    let bytes = draft.bytes();
    let (mut head, body) = request.into_parts();
    let body = UploadBody::new(body, Arc::clone(&bytes), limits.idle_time);
    let upload_has_ended = body.has_ended();
    let broken = |draft| Err((Failure::Ended(EgressOutcome::Broken), draft));
    let Some((uri, host)) = outgoing_target(&head.uri, target) else {
        return broken(draft);
    };
    remove_hop_by_hop(&mut head.headers);
    head.headers.insert(HOST, host);
    let close = HeaderValue::from_static("close");
    head.headers.insert(CONNECTION, close);
    let mut outgoing = Request::new(body);
    *outgoing.method_mut() = head.method;
    *outgoing.uri_mut() = uri;
    *outgoing.headers_mut() = head.headers;
    let mut client = http1::Builder::new();
    client.max_buf_size(limits.buffer_bytes());
    let Ok((mut sender, connection)) = client.handshake(TokioIo::new(server)).await else {
        return broken(draft);
    };
    let driver = AbortOnDrop(tokio::spawn(async move {
        if let Err(error) = connection.await {
            tracing::debug!(target: "abp.egress", %error, "a target's connection failed");
        }
    }));
    let answered = tokio::select! {
        answered = sender.send_request(outgoing) => answered,
        () = until_silent(&bytes, limits.response_time) => {
            return Err((Failure::Ended(EgressOutcome::TimedOut), draft));
        }
    };
    let response = match answered {
        Ok(response) if response.status() != StatusCode::SWITCHING_PROTOCOLS => response,
        Ok(_) | Err(_) => return broken(draft),
    };
    let (mut head, body) = response.into_parts();
    remove_hop_by_hop(&mut head.headers);
    let download = Download {
        draft,
        watch,
        upload_has_ended,
        driver: Some(driver),
        filter: None,
        idle_time: limits.idle_time,
    };
    let body = boxed(DownloadBody::new(body, download));
    Ok(Response::from_parts(head, body))
}

/// The request target in origin form, and the Host header, both written anew.
fn outgoing_target(uri: &Uri, target: &NetworkTarget) -> Option<(Uri, HeaderValue)> {
    let path = uri.path_and_query().cloned();
    let path = path.unwrap_or_else(|| PathAndQuery::from_static("/"));
    let host = match target.host() {
        host if host.contains(':') => format!("[{host}]"),
        host => host.to_owned(),
    };
    let host = match target.port() {
        None | Some(80) => host,
        Some(port) => format!("{host}:{port}"),
    };
    Some((Uri::from(path), HeaderValue::try_from(host).ok()?))
}
