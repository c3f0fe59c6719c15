//! One connection from the sandbox: its requests, and the tunnel it may become.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_TYPE, HeaderValue};
use http::{Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use abp_policy::NetworkTarget;

use crate::classify::{OwnAuthority, RequestForm, classify, describe};
use crate::dial::{DialError, Dialer};
use crate::event::{EgressOutcome, EgressRule, EventDraft, EventSink};
use crate::forward::forward;
use crate::head_scan::{HeadWatch, ScannedStream};
use crate::limits::EgressLimits;
use crate::route::{RouteRequest, Routes};
use crate::rules::Grant;
use crate::tunnel::Tunnel;

/// A connection that ends while the client still sends is reset, and the client may lose the answer.
/// So much is therefore read and thrown away first, for so long.
const LINGER_BYTES: u64 = 64 * 1024;
const LINGER_TIME: Duration = Duration::from_millis(250);

/// The body of every response.
pub(crate) type ProxyBody = UnsyncBoxBody<Bytes, io::Error>;

/// The reason for an answer of the proxy's own.
#[derive(Debug)]
pub(crate) enum Failure {
    Denied(EgressRule),
    Ended(EgressOutcome),
}

impl From<DialError> for Failure {
    fn from(error: DialError) -> Self {
        match error {
            DialError::Denied(rule) => Self::Denied(rule),
            DialError::Failed(outcome) => Self::Ended(outcome),
        }
    }
}

/// The parts that all connections of a proxy share.
#[derive(Debug)]
pub(crate) struct ProxyState {
    pub(crate) dialer: Dialer,
    pub(crate) routes: Routes,
    pub(crate) limits: EgressLimits,
    pub(crate) events: EventSink,
    pub(crate) own: OwnAuthority,
}

/// The state of one connection, shared between its task and its requests.
#[derive(Debug)]
struct Connection {
    shared: Arc<ProxyState>,
    watch: Arc<HeadWatch>,
    /// The event of the connection, until a request takes it over.
    unread: Mutex<Option<EventDraft>>,
    /// The tunnel that the connection becomes.
    tunnel: Mutex<Option<Tunnel>>,
}

/// Serves a connection until it ends.
pub(crate) async fn serve(stream: TcpStream, shared: Arc<ProxyState>) {
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!(target: "abp.egress", %error, "nodelay is not set");
    }
    let limits = shared.limits;
    let connection = Arc::new(Connection {
        watch: Arc::default(),
        unread: Mutex::new(Some(shared.events.draft())),
        tunnel: Mutex::default(),
        shared,
    });
    let scanned = ScannedStream::new(stream, Arc::clone(&connection.watch), limits.idle_time);
    let service = service_fn(|request| Box::pin(answer(Arc::clone(&connection), request)));
    let mut http = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_header_size(limits.head_bytes)
        .max_buf_size(limits.buffer_bytes())
        .serve_connection(TokioIo::new(scanned), service);
    let served = poll_fn(|context| http.poll_without_shutdown(context)).await;
    let parts = http.into_parts();
    let client = parts.io.into_inner().into_inner();
    let tunnel = take(&connection.tunnel);
    match (served, tunnel) {
        (Ok(()), Some(tunnel)) => tunnel.run(client, &parts.read_buf, &limits).await,
        (served, _) => {
            connection.report_unread(served.err().as_ref());
            linger(client).await;
        }
    }
}

impl Connection {
    /// Reports a head that never became a request.
    fn report_unread(&self, error: Option<&hyper::Error>) {
        let problem = self.watch.problem();
        let rule = match (problem, error) {
            (Some(problem), _) => EgressRule::Framing { why: problem.why() },
            (None, Some(error)) if error.is_timeout() => EgressRule::Head {
                why: "the request head did not come in time",
            },
            (None, Some(error)) if error.is_parse_too_large() => EgressRule::Head {
                why: "the request head is too large",
            },
            (None, Some(error)) if error.is_parse() => EgressRule::Request {
                why: "the request head is not valid HTTP/1",
            },
            (None, _) => EgressRule::Head {
                why: "the connection ended without a request",
            },
        };
        // A connection that ends between two requests has reported all of them.
        let is_malformed = problem.is_some() || error.is_some_and(hyper::Error::is_parse);
        let further = || self.shared.events.draft();
        let unread = take(&self.unread).or_else(|| is_malformed.then(further));
        if let Some(mut draft) = unread {
            draft.deny(rule);
        }
    }
}

async fn answer(
    connection: Arc<Connection>,
    request: Request<Incoming>,
) -> Result<Response<ProxyBody>, Infallible> {
    let is_scanned = connection.watch.claim_head();
    let unread = take(&connection.unread);
    let mut draft = match unread {
        Some(unread) => unread,
        None => connection.shared.events.draft(),
    };
    draft.restart();
    let (head, body) = request.into_parts();
    let (kind, host, port) = describe(&head);
    draft.set_kind(kind);
    draft.set_target(&host, port);
    let form = if is_scanned {
        classify(&head, connection.shared.own)
    } else {
        Err(EgressRule::Framing {
            why: "a request was sent before the one ahead of it was answered",
        })
    };
    let request = Request::from_parts(head, body);
    let answered = match form {
        Err(rule) => Err((Failure::Denied(rule), draft)),
        Ok(RequestForm::Tunnel(target, port)) => connection.tunnel(target, port, draft).await,
        Ok(RequestForm::Forward(target, port)) => {
            connection.forward(&target, port, request, draft).await
        }
        Ok(RequestForm::Route { name, path, query }) => {
            let request = RouteRequest {
                path,
                query,
                request,
            };
            let shared = &connection.shared;
            let watch = Arc::clone(&connection.watch);
            let routes = &shared.routes;
            routes
                .serve(&name, request, draft, watch, &shared.limits)
                .await
        }
    };
    Ok(answered.unwrap_or_else(|(failure, draft)| refuse(failure, draft)))
}

impl Connection {
    /// Judges and dials; the caller goes on with the connected target.
    async fn reach(
        &self,
        target: &NetworkTarget,
        port: u16,
        draft: &mut EventDraft,
    ) -> Result<(TcpStream, Grant), Failure> {
        let dialer = &self.shared.dialer;
        draft.set_target(target.host(), Some(port));
        let grant = dialer.rules().judge_target(target, port);
        let grant = grant.map_err(Failure::Denied)?;
        draft.allow(EgressRule::Policy {
            policy: grant.rule.clone(),
        });
        let (stream, address) = dialer.dial(target, port).await?;
        draft.set_address(address.ip());
        Ok((stream, grant))
    }

    async fn tunnel(
        &self,
        target: NetworkTarget,
        port: u16,
        mut draft: EventDraft,
    ) -> Result<Response<ProxyBody>, (Failure, EventDraft)> {
        let (server, grant) = match self.reach(&target, port, &mut draft).await {
            Ok(reached) => reached,
            Err(failure) => return Err((failure, draft)),
        };
        let tunnel = Tunnel {
            server,
            target,
            allows_plain: grant.allows_plain_tunnel,
            draft,
        };
        *lock(&self.tunnel) = Some(tunnel);
        Ok(Response::new(boxed(Empty::new().map_err(never))))
    }

    async fn forward(
        &self,
        target: &NetworkTarget,
        port: u16,
        request: Request<Incoming>,
        mut draft: EventDraft,
    ) -> Result<Response<ProxyBody>, (Failure, EventDraft)> {
        let server = match self.reach(target, port, &mut draft).await {
            Ok((server, _)) => server,
            Err(failure) => return Err((failure, draft)),
        };
        let watch = Arc::clone(&self.watch);
        forward(server, target, request, draft, watch, &self.shared.limits).await
    }
}

/// An answer of the proxy's own. The connection ends with it.
fn refuse(failure: Failure, mut draft: EventDraft) -> Response<ProxyBody> {
    let (status, text) = match failure {
        Failure::Denied(rule) => {
            let status = match rule {
                EgressRule::Framing { .. } | EgressRule::Request { .. } => StatusCode::BAD_REQUEST,
                EgressRule::NoRoute => StatusCode::NOT_FOUND,
                _ => StatusCode::FORBIDDEN,
            };
            let text = format!("denied by the sandbox's network rules: {rule}\n");
            draft.deny(rule);
            (status, text)
        }
        Failure::Ended(outcome) => {
            draft.end(outcome);
            let (status, why) = match outcome {
                EgressOutcome::TimedOut => (StatusCode::GATEWAY_TIMEOUT, "did not answer in time"),
                EgressOutcome::Unreachable => (StatusCode::BAD_GATEWAY, "cannot be reached"),
                _ => (StatusCode::BAD_GATEWAY, "broke the connection off"),
            };
            (status, format!("the target {why}\n"))
        }
    };
    let mut response = Response::new(boxed(Full::from(text).map_err(never)));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("close"));
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    headers.insert(CONTENT_TYPE, plain);
    response
}

pub(crate) fn boxed<B>(body: B) -> ProxyBody
where
    B: Body<Data = Bytes, Error = io::Error> + Send + 'static,
{
    body.boxed_unsync()
}

fn never(error: Infallible) -> io::Error {
    match error {}
}

fn lock<T>(slot: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner)
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    lock(slot).take()
}

async fn linger(mut client: TcpStream) {
    let ended = timeout(LINGER_TIME, async {
        client.shutdown().await?;
        let mut rest = client.take(LINGER_BYTES);
        tokio::io::copy(&mut rest, &mut tokio::io::sink()).await
    });
    if let Ok(Err(error)) = ended.await {
        tracing::debug!(target: "abp.egress", %error, "a connection did not end well");
    }
}
