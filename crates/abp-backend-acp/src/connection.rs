//! The connection to a peer: the adapter around the crate `agent-client-protocol`, for both sides of it.
//!
//! The crate's dispatch loop hands every message of the peer to one handler, in order, and waits for it. The
//! handler puts it into a bounded queue, so the order is kept and a peer is not read faster than it is
//! served.

use std::sync::Arc;
use std::time::Duration;

use abp_error::{AbpError, ErrorCode};
use agent_client_protocol as acp;
use agent_client_protocol::role::HasPeer;
use agent_client_protocol::v1::{Builder, ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent, Client, JsonRpcNotification, JsonRpcRequest, Lines, Role};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::transport::{Backlog, Noise, Outbox, read_lines, write_lines};

/// Messages that may wait to be served.
const QUEUE: usize = 64;

/// A message of the peer's own accord.
#[derive(Debug)]
pub enum AcpMessage {
    /// A message that is not answered.
    Notification {
        /// The method.
        method: String,
        /// Its parameters.
        params: Value,
    },
    /// A message that waits for an answer.
    Request {
        /// The method.
        method: String,
        /// Its parameters.
        params: Value,
        /// Takes the answer. In a box: it is much larger than the rest.
        responder: Box<Responder<Value>>,
    },
}

/// Sends messages to a peer, from any task.
#[derive(Debug, Clone)]
pub struct AcpSender<Peer: Role> {
    link: ConnectionTo<Peer>,
    outbox: Arc<Outbox>,
}

/// A connection to a peer: [`Agent`] where ABP is the client, [`Client`] where it is the agent. Dropping it
/// ends the connection.
#[derive(Debug)]
pub struct AcpConnection<Peer: Role> {
    sender: AcpSender<Peer>,
    incoming: mpsc::Receiver<AcpMessage>,
    backlog: Arc<Backlog>,
    /// Ends the connection when it is dropped.
    close: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl AcpConnection<Agent> {
    /// Connects to an agent over its standard streams.
    ///
    /// # Errors
    /// Fails where the connection ends at once.
    pub(crate) async fn open<R, W>(stdout: R, stdin: W, max_line: usize) -> Result<Self, AbpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::connect(Client.v1(), stdout, stdin, max_line, Noise::Skipped).await
    }

    /// The error of a request that was not answered with a result.
    pub(crate) fn failure(&self, what: &str, error: &acp::Error) -> AbpError {
        if let Some(problem) = self.backlog.problem() {
            let message = format!("the agent broke the protocol: {problem}");
            return AbpError::new(ErrorCode::ProtocolInvalidEnvelope, message);
        }
        if self.sender.link.is_incoming_closed() || acp::is_connection_terminated(error) {
            let message = format!("the agent ended before it answered {what}");
            return AbpError::new(ErrorCode::BackendCrashed, message);
        }
        let code = if error.code == acp::ErrorCode::AUTH_REQUIRED {
            ErrorCode::BackendAuthFailed
        } else if error.code == acp::ErrorCode::METHOD_NOT_FOUND {
            ErrorCode::CapabilityUnsupported
        } else {
            ErrorCode::BackendCrashed
        };
        let message = format!("the agent refused {what}: {}", error.message);
        let refused = AbpError::new(code, message).with_context("acp_code", i32::from(error.code));
        match &error.data {
            Some(data) => refused.with_context("acp_data", data.clone()),
            None => refused,
        }
    }
}

impl AcpConnection<Client> {
    /// Serves a client over the standard streams of this process. Lines that are no messages are answered with
    /// an error.
    ///
    /// # Errors
    /// Fails where the connection ends at once.
    pub async fn serve<R, W>(stdin: R, stdout: W, max_line: usize) -> Result<Self, AbpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        Self::connect(Agent.v1(), stdin, stdout, max_line, Noise::Answered).await
    }

    /// The next message of the client's own accord; `None` once the client closed its end.
    pub async fn next_request(&mut self) -> Option<AcpMessage> {
        tokio::select! {
            biased;
            incoming = self.incoming.recv() => incoming,
            () = self.sender.link.incoming_closed() => self.incoming.try_recv().ok(),
        }
    }

    /// The reason why the client cannot be read any more, where it broke the protocol.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        self.backlog.problem().map(|problem| problem.to_string())
    }
}

impl<Peer: Role> AcpSender<Peer>
where
    Peer: HasPeer<Peer>,
{
    /// Sends a request; the future is its answer.
    pub fn request<Q: JsonRpcRequest>(
        &self,
        request: Q,
    ) -> impl Future<Output = Result<Q::Response, acp::Error>> + use<Q, Peer> {
        self.outbox.queued();
        self.link.send_request(request).block_task()
    }

    /// Answers a request. A peer that is gone does not hear it.
    pub fn respond(&self, responder: Responder<Value>, answer: Result<Value, acp::Error>) {
        self.outbox.queued();
        if let Err(error) = responder.respond_with_result(answer) {
            tracing::debug!(target: "abp.acp", %error, "an answer was not sent");
        }
    }

    /// Waits while the peer does not read what it was sent.
    pub async fn room(&self) {
        self.outbox.room().await;
    }

    /// Sends a notification. A peer that is gone does not hear it.
    pub fn notify<N: JsonRpcNotification>(&self, notification: N) {
        self.outbox.queued();
        if let Err(error) = self.link.send_notification(notification) {
            tracing::debug!(target: "abp.acp", %error, "a notification was not sent");
        }
    }
}

impl<Peer> AcpConnection<Peer>
where
    Peer: Role + HasPeer<Peer>,
{
    async fn connect<R, W>(
        builder: Builder<Peer::Counterpart>,
        read: R,
        write: W,
        max_line: usize,
        noise: Noise,
    ) -> Result<Self, AbpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let backlog = Backlog::new();
        let (sender, incoming) = mpsc::channel(QUEUE);
        let (ready, link) = oneshot::channel();
        let (close, closed) = oneshot::channel::<()>();
        let outbox = Arc::new(Outbox::default());
        let transport = Lines::new(
            write_lines(write, Arc::clone(&outbox)),
            Box::pin(read_lines(read, max_line, noise, Arc::clone(&backlog))),
        );
        let handled = Arc::clone(&backlog);
        let serving = tokio::spawn(async move {
            let served = builder
                .name("abp")
                .on_receive_dispatch(
                    async move |message: Dispatch, _link| {
                        take(message, &sender).await?;
                        handled.handled();
                        Ok(())
                    },
                    acp::on_receive_dispatch!(),
                )
                .connect_with(transport, async move |link: ConnectionTo<Peer>| {
                    // The other side waits for it, or is gone.
                    drop(ready.send(link));
                    drop(closed.await);
                    Ok(())
                })
                .await;
            if let Err(error) = served {
                tracing::debug!(target: "abp.acp", %error, "the connection ended");
            }
        });
        let link = link.await.map_err(|_| {
            let message = "the connection to the peer could not be made";
            AbpError::new(ErrorCode::ProtocolHandshakeFailed, message)
        })?;
        Ok(Self {
            sender: AcpSender { link, outbox },
            incoming,
            backlog,
            close: Some(close),
            serving,
        })
    }

    /// Sends messages from other tasks.
    #[must_use]
    pub fn sender(&self) -> AcpSender<Peer> {
        self.sender.clone()
    }

    /// Sends a request; the future is its answer.
    pub(crate) fn request<Q: JsonRpcRequest>(
        &self,
        request: Q,
    ) -> impl Future<Output = Result<Q::Response, acp::Error>> + use<Q, Peer> {
        self.sender.request(request)
    }

    /// Sends a notification. A peer that is gone does not hear it.
    pub(crate) fn notify<N: JsonRpcNotification>(&self, notification: N) {
        self.sender.notify(notification);
    }

    /// The next message of the peer's own accord; `None` once the connection ended.
    pub(crate) async fn next(&mut self) -> Option<AcpMessage> {
        self.incoming.recv().await
    }

    /// The next message that waits already.
    pub(crate) fn try_next(&mut self) -> Option<AcpMessage> {
        self.incoming.try_recv().ok()
    }

    /// The number of lines of the peer that were no messages.
    pub(crate) fn noise(&self) -> u64 {
        self.backlog.noise()
    }

    /// Closes the connection, and waits a moment until what was sent is gone.
    pub async fn close(&mut self) {
        drop(self.close.take());
        let patience = Duration::from_millis(200);
        if tokio::time::timeout(patience, &mut self.serving)
            .await
            .is_err()
        {
            self.serving.abort();
        }
    }
}

impl<Peer: Role> Drop for AcpConnection<Peer> {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(message: Dispatch, queue: &mpsc::Sender<AcpMessage>) -> Result<(), acp::Error> {
    let incoming = match message {
        Dispatch::Notification(message) => {
            let (method, params) = message.into_parts();
            AcpMessage::Notification { method, params }
        }
        Dispatch::Request(message, responder) => {
            let (method, params) = message.into_parts();
            AcpMessage::Request {
                method,
                params,
                responder: Box::new(responder),
            }
        }
        Dispatch::Response(result, router) => return router.route_with_result(result),
    };
    // Where the queue is gone nothing is served any more; a dropped responder answers with an error.
    drop(queue.send(incoming).await);
    Ok(())
}
