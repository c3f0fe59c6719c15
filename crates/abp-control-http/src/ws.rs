//! WebSockets: events of one or several runs, and commands on the same connection.
//!
//! A session has one task per followed run, which puts messages into a queue that is bounded by bytes, and
//! one task that owns the socket: it reads commands and writes the queue. A client that does not read fills
//! the queue, which stops its followers, and is disconnected after [`WRITE_TIMEOUT`]. No run is held back:
//! followers read the journal.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use abp_control::CancelRequest;
use abp_error::{AbpError, ErrorBody, ErrorCode};
use abp_gateway::Refusal;
use abp_gateway_http::HttpReply;
use abp_store::KeyScope;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures_util::{SinkExt as _, StreamExt as _};
use http::header::{
    CONNECTION, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_KEY, SEC_WEBSOCKET_PROTOCOL,
    SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use hyper::upgrade::Upgraded;
use hyper_util::rt::TokioIo;
use serde_json::Value;
use sha1::{Digest as _, Sha1};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::AbortHandle;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role, WebSocketConfig};
use uuid::Uuid;

use crate::api::{SocketCommand, SocketMessage};
use crate::approvals;
use crate::call::{Call, read_json};
use crate::caller::Caller;
use crate::events::bounded;
use crate::face::Face;
use crate::query::NoQuery;
use crate::table::{RequestDoc, RouteRow};

/// The subprotocol that the server speaks.
const PROTOCOL: &str = "abp.v1";
/// The fixed text of the handshake (RFC 6455, section 1.3).
const HANDSHAKE: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";
/// The longest message of a client.
const MAX_MESSAGE: usize = 64 << 10;
/// The size of the buffer that a client is read into.
const READ_BUFFER: usize = 2 << 10;
/// How many bytes may wait for a client that reads slowly. A longer message waits alone.
const MAX_WAITING: usize = 1 << 20;
/// How long a client may take nothing before it is disconnected.
const WRITE_TIMEOUT: Duration = Duration::from_secs(20);
/// The most runs that one connection follows at once.
const MAX_FOLLOWED: usize = 64;

pub(crate) fn rows() -> Vec<RouteRow> {
    let row = |path, id, summary| {
        let handshake = |call: Call| async move { open(&call).await };
        RouteRow::raw(
            Method::GET,
            path,
            KeyScope::RunsRead,
            id,
            summary,
            handshake,
        )
        .takes(RequestDoc::Upgrade)
        .answers_nothing(StatusCode::SWITCHING_PROTOCOLS, "a WebSocket")
    };
    vec![
        row(
            "/runs/{run_id}/ws",
            "follow_run",
            "Opens a WebSocket for one run: send {\"after_seq\": n} to follow it, or commands.",
        ),
        row(
            "/ws",
            "follow_runs",
            "Opens a WebSocket for several runs: send a follow command for each.",
        ),
    ]
}

async fn open(call: &Call) -> Result<HttpReply, Refusal> {
    call.query::<NoQuery>()?;
    let run_id = match call.params.get("run_id") {
        "" => None,
        _ => Some(call.face.run_of(&call.caller, call.run_id()?).await?.run_id),
    };
    let headers = handshake(&call.headers)?;
    let (face, caller) = (Arc::clone(&call.face), call.caller.clone());
    Ok(HttpReply::upgrade(
        headers,
        Box::new(move |upgraded| Box::pin(serve(face, caller, run_id, upgraded))),
    ))
}

/// The headers that agree to a WebSocket.
fn handshake(asked: &HeaderMap) -> Result<HeaderMap, Refusal> {
    let has = |name: http::HeaderName, token: &str| {
        let values = asked.get_all(name).iter();
        let values = values.filter_map(|value| value.to_str().ok());
        let mut tokens = values.flat_map(|value| value.split(','));
        tokens.any(|value| value.trim().eq_ignore_ascii_case(token))
    };
    let refused = |message: &str| Refusal::new(ErrorCode::ValidationFailed, message);
    if !has(UPGRADE, "websocket") || !has(CONNECTION, "upgrade") {
        return Err(refused("this address takes the handshake of a WebSocket"));
    }
    if !has(SEC_WEBSOCKET_VERSION, "13") {
        return Err(refused(
            "the version of the WebSocket protocol has to be 13",
        ));
    }
    let key = asked.get(SEC_WEBSOCKET_KEY).map(HeaderValue::as_bytes);
    let key = key.filter(|key| STANDARD.decode(key).is_ok_and(|bytes| bytes.len() == 16));
    let key = key.ok_or_else(|| refused("the handshake has no valid Sec-WebSocket-Key"))?;
    let mut hash = Sha1::new();
    hash.update(key);
    hash.update(HANDSHAKE);
    let accept = STANDARD.encode(hash.finalize());
    let accept = HeaderValue::try_from(accept)
        .map_err(|error| AbpError::new(ErrorCode::Internal, error.to_string()))?;
    let mut headers = HeaderMap::new();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    if has(SEC_WEBSOCKET_PROTOCOL, PROTOCOL) {
        // The key among the offered protocols is never repeated.
        headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(PROTOCOL));
    }
    Ok(headers)
}

/// A message that waits for the client, and the part of the bound that it takes.
struct Waiting {
    text: String,
    _room: OwnedSemaphorePermit,
}

/// Puts messages into the queue of a session.
#[derive(Clone)]
struct Outbox {
    queue: mpsc::UnboundedSender<Waiting>,
    room: Arc<Semaphore>,
}

impl Outbox {
    /// An empty queue, and its end.
    fn new() -> (Self, mpsc::UnboundedReceiver<Waiting>) {
        let (queue, waiting) = mpsc::unbounded_channel();
        let room = Arc::new(Semaphore::new(MAX_WAITING));
        (Self { queue, room }, waiting)
    }

    /// Waits for room; fails once the session is over.
    async fn put(&self, message: &SocketMessage) -> Result<(), SessionOver> {
        let text = serde_json::to_string(message).map_err(|_| SessionOver)?;
        let size = text.len().clamp(1, MAX_WAITING);
        let size = u32::try_from(size).map_err(|_| SessionOver)?;
        let room = Arc::clone(&self.room).acquire_many_owned(size).await;
        let waiting = Waiting {
            text,
            _room: room.map_err(|_| SessionOver)?,
        };
        self.queue.send(waiting).map_err(|_| SessionOver)
    }
}

/// Nobody takes messages any more.
struct SessionOver;

struct Session {
    face: Arc<Face>,
    caller: Caller,
    /// The run of the address.
    run_id: Option<Uuid>,
    outbox: Outbox,
    followed: HashMap<Uuid, AbortHandle>,
}

async fn serve(face: Arc<Face>, caller: Caller, run_id: Option<Uuid>, upgraded: Upgraded) {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE))
        // Clients send short commands, and the library's 128 KiB would be most of what a follower takes.
        .read_buffer_size(READ_BUFFER)
        .write_buffer_size(0)
        .max_write_buffer_size(usize::MAX);
    let io = TokioIo::new(upgraded);
    let mut socket = WebSocketStream::from_raw_socket(io, Role::Server, Some(config)).await;
    let (outbox, mut waiting) = Outbox::new();
    let mut closing = face.closing();
    let keep_alive = Duration::from_secs(face.config().server.keepalive_secs.max(1).into());
    let mut session = Session {
        face,
        caller,
        run_id,
        outbox,
        followed: HashMap::new(),
    };
    let code = loop {
        let message = tokio::select! {
            () = closing.wait() => break CloseCode::Away,
            next = waiting.recv() => match next {
                Some(waiting) => Message::text(waiting.text),
                None => break CloseCode::Error,
            },
            heard = socket.next() => match heard {
                Some(Ok(Message::Text(text))) => {
                    // Boxed, so that a session that only follows does not hold the room for it.
                    Box::pin(session.obey(text.as_bytes())).await;
                    continue;
                }
                Some(Ok(Message::Binary(_))) => break CloseCode::Unsupported,
                // The library answers pings and closing by itself.
                Some(Ok(_)) => continue,
                Some(Err(_)) | None => break CloseCode::Normal,
            },
            () = tokio::time::sleep(keep_alive) => Message::Ping(bytes::Bytes::new()),
        };
        match tokio::time::timeout(WRITE_TIMEOUT, socket.send(message)).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) => break CloseCode::Normal,
            Err(_) => break CloseCode::Policy,
        }
    };
    for follower in session.followed.values() {
        follower.abort();
    }
    let frame = CloseFrame {
        code,
        reason: "".into(),
    };
    // A client that does not read is not waited for.
    drop(tokio::time::timeout(Duration::from_secs(1), socket.close(Some(frame))).await);
}

impl Session {
    /// Carries out a command; whatever is wrong with it is told and ends nothing.
    async fn obey(&mut self, text: &[u8]) {
        let done = match command(text) {
            Ok(command) => self.carry_out(command).await,
            Err(problem) => Err(problem),
        };
        let answer = done.unwrap_or_else(|problem| SocketMessage::Error {
            error: ErrorBody::from(&problem.error).error,
        });
        // A full queue must not keep commands from being read: cancelling has to work then, too.
        let outbox = self.outbox.clone();
        tokio::spawn(async move { drop(outbox.put(&answer).await) });
    }

    async fn carry_out(&mut self, command: SocketCommand) -> Result<SocketMessage, Refusal> {
        let mut approval = None;
        let name = match command {
            SocketCommand::Follow { run_id, after_seq } => {
                self.follow(self.run(run_id)?, after_seq).await?;
                "follow"
            }
            SocketCommand::Cancel { run_id, reason } => {
                self.caller.require(KeyScope::RunsWrite)?;
                let run_id = self.run(run_id)?;
                self.face.run_of(&self.caller, run_id).await?;
                let request = CancelRequest { reason };
                let plane = self.face.plane();
                plane
                    .cancel(self.caller.principal(), run_id, request)
                    .await?;
                "cancel"
            }
            SocketCommand::Answer {
                approval_id,
                approve,
                reason,
            } => {
                self.caller.require(KeyScope::Approve)?;
                let answered =
                    approvals::answer(&self.face, &self.caller, approval_id, approve, reason);
                approval = Some(Box::new(answered.await?));
                "answer"
            }
        };
        Ok(SocketMessage::Done {
            command: name.to_owned(),
            approval,
        })
    }

    /// The run that a command is about.
    fn run(&self, asked: Option<Uuid>) -> Result<Uuid, Refusal> {
        match (self.run_id, asked) {
            (Some(own), None) => Ok(own),
            (Some(own), Some(asked)) if own == asked => Ok(own),
            (Some(_), Some(_)) => {
                let message = "this connection is for the run of its address";
                Err(Refusal::new(ErrorCode::ValidationFailed, message).at("/run_id"))
            }
            (None, Some(asked)) => Ok(asked),
            (None, None) => {
                let message = "the command names no run";
                Err(Refusal::new(ErrorCode::ValidationFailed, message).at("/run_id"))
            }
        }
    }

    async fn follow(&mut self, run_id: Uuid, after_seq: Option<u64>) -> Result<(), Refusal> {
        self.followed.retain(|_, follower| !follower.is_finished());
        if let Some(old) = self.followed.remove(&run_id) {
            old.abort();
        }
        if self.followed.len() >= MAX_FOLLOWED {
            let message = format!("a connection follows at most {MAX_FOLLOWED} runs at once");
            return Err(Refusal::new(ErrorCode::RateLimitExceeded, message));
        }
        self.face.run_of(&self.caller, run_id).await?;
        let plane = self.face.plane().clone();
        let principal = self.caller.principal().clone();
        let mut events = plane.follow(&principal, run_id, bounded(after_seq)).await?;
        let outbox = self.outbox.clone();
        let follower = tokio::spawn(async move {
            loop {
                let message = match events.next().await {
                    Ok(Some(followed)) => SocketMessage::Event {
                        run_id,
                        seq: followed.seq,
                        event: serde_json::from_str(&followed.json).unwrap_or_default(),
                    },
                    Ok(None) => {
                        if let Ok(run) = plane.run(&principal, run_id).await {
                            let state = run.state.into();
                            drop(outbox.put(&SocketMessage::End { run_id, state }).await);
                        }
                        return;
                    }
                    Err(error) => {
                        let error = ErrorBody::from(&AbpError::from(error)).error;
                        drop(outbox.put(&SocketMessage::Error { error }).await);
                        return;
                    }
                };
                if outbox.put(&message).await.is_err() {
                    return;
                }
            }
        });
        self.followed.insert(run_id, follower.abort_handle());
        Ok(())
    }
}

/// Reads a command. `{"after_seq": n}` alone is a follow.
fn command(text: &[u8]) -> Result<SocketCommand, Refusal> {
    let mut value: Value = read_json(text)?;
    if let Some(object) = value.as_object_mut()
        && !object.contains_key("type")
    {
        object.insert("type".to_owned(), Value::from("follow"));
    }
    read_json(value.to_string().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts messages of that size until none is taken any more; how many were.
    async fn fill(outbox: &Outbox, size: usize) -> usize {
        let message = SocketMessage::Event {
            run_id: Uuid::nil(),
            seq: 0,
            event: Value::from("x".repeat(size)),
        };
        let mut taken = 0;
        while taken < 100 {
            let put = outbox.put(&message);
            match tokio::time::timeout(Duration::from_millis(100), put).await {
                Ok(put) => assert!(put.is_ok()),
                Err(_) => break,
            }
            taken += 1;
        }
        taken
    }

    /// B16: what waits for a client that does not read is bounded by bytes, however long the messages are;
    /// a client that reads again gets more.
    #[tokio::test]
    async fn b16_what_waits_for_a_client_is_bounded_by_bytes() {
        for (size, taken) in [(300 << 10, 3), (MAX_WAITING * 2, 1)] {
            let (outbox, mut waiting) = Outbox::new();
            assert_eq!(fill(&outbox, size).await, taken, "messages of {size} bytes");
            drop(waiting.recv().await);
            assert_eq!(fill(&outbox, size).await, 1, "messages of {size} bytes");
        }
    }
}
