//! Serving a script.

use std::error::Error as _;
use std::future;
use std::net::TcpListener;
use std::sync::Arc;

use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use super::Script;
use super::log::{ExchangeEnd, Log, VendorRequest};
use super::reply::{Cut, CutOff, Reply, ReplyBody};

/// What the connections of a vendor share.
pub(super) struct Served {
    pub(super) script: Script,
    pub(super) log: Arc<Log>,
}

/// Accepts connections until it is told to stop. Connections that are open then are dropped.
pub(super) async fn serve(
    listener: TcpListener,
    served: Served,
    mut stopped: oneshot::Receiver<()>,
) {
    let Ok(listener) = tokio::net::TcpListener::from_std(listener) else {
        return;
    };
    let served = Arc::new(served);
    loop {
        tokio::select! {
            _ = &mut stopped => return,
            accepted = listener.accept() => {
                if let Ok((stream, _)) = accepted {
                    tokio::spawn(connection(stream, Arc::clone(&served)));
                }
            }
        }
    }
}

async fn connection(stream: TcpStream, served: Arc<Served>) {
    // Chunks must leave as the script says, not when there are enough of them.
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let number = served.log.connect();
    let service = service_fn(|request| answer(request, number, Arc::clone(&served)));
    let mut connection = http1::Builder::new().serve_connection(TokioIo::new(stream), service);
    let Err(error) = (&mut connection).await else {
        return;
    };
    let cut = error.source().and_then(|cause| cause.downcast_ref());
    if let Some(CutOff(Cut::Reset)) = cut {
        // Closing without lingering is what resets.
        drop(connection.into_parts().io.into_inner().set_zero_linger());
    }
}

async fn answer(
    request: Request<Incoming>,
    connection: usize,
    served: Arc<Served>,
) -> Result<Response<ReplyBody>, hyper::Error> {
    let (head, body) = request.into_parts();
    let request = VendorRequest {
        method: head.method.to_string(),
        path: head.uri.path().to_owned(),
        query: head.uri.query().map(str::to_owned),
        headers: head.headers,
        body: body.collect().await?.to_bytes(),
        connection,
        end: ExchangeEnd::Open,
    };
    let (earlier, exchange) = served.log.begin(request.clone());
    let reply = served.script.reply(&request, earlier);
    if reply.silent {
        // The exchange is dropped, and so told of, when the peer goes away.
        let _exchange = exchange;
        return future::pending().await;
    }
    Ok(respond(reply, exchange))
}

fn respond(reply: Reply, exchange: super::log::OpenExchange) -> Response<ReplyBody> {
    let status = StatusCode::from_u16(reply.status).unwrap_or(StatusCode::IM_A_TEAPOT);
    let headers = reply.headers.clone();
    let mut response = Response::new(reply.into_body(exchange));
    *response.status_mut() = status;
    for (name, value) in headers {
        let name = HeaderName::try_from(name);
        let value = HeaderValue::try_from(value);
        if let (Ok(name), Ok(value)) = (name, value) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
