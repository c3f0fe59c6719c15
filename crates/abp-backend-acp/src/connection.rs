//! The connection to an agent: the adapter around the crate `agent-client-protocol`.
//!
//! The crate's dispatch loop hands every message of the agent to one handler, in order, and waits for it. The
//! handler puts it into a bounded queue, so the order is kept and an agent is not read faster than it is
//! served.

use std::sync::Arc;
use std::time::Duration;

use abp_error::{AbpError, ErrorCode};
use agent_client_protocol as acp;
use agent_client_protocol::v1::{ConnectionTo, Dispatch, Responder};
use agent_client_protocol::{Agent, Client, JsonRpcNotification, JsonRpcRequest, Lines};
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

use crate::transport::{Backlog, read_lines, write_lines};

/// Messages that may wait to be served.
const QUEUE: usize = 64;

/// A message of the agent's own accord.
#[derive(Debug)]
pub(crate) enum Incoming {
    Notification {
        method: String,
        params: Value,
    },
    Request {
        method: String,
        params: Value,
        /// In a box: it is much larger than the rest.
        responder: Box<Responder<Value>>,
    },
}

/// A connection to an agent. Dropping it ends the connection.
#[derive(Debug)]
pub(crate) struct AcpConnection {
    link: ConnectionTo<Agent>,
    incoming: mpsc::Receiver<Incoming>,
    backlog: Arc<Backlog>,
    /// Ends the connection when it is dropped.
    close: Option<oneshot::Sender<()>>,
    serving: JoinHandle<()>,
}

impl AcpConnection {
    /// Connects over the agent's standard streams.
    ///
    /// # Errors
    /// Fails where the connection ends at once.
    pub(crate) async fn open<R, W>(stdout: R, stdin: W, max_line: usize) -> Result<Self, AbpError>
    where
        R: AsyncRead + Send + Unpin + 'static,
        W: AsyncWrite + Send + Unpin + 'static,
    {
        let backlog = Backlog::new();
        let (sender, incoming) = mpsc::channel(QUEUE);
        let (ready, link) = oneshot::channel();
        let (close, closed) = oneshot::channel::<()>();
        let transport = Lines::new(
            write_lines(stdin),
            Box::pin(read_lines(stdout, max_line, Arc::clone(&backlog))),
        );
        let handled = Arc::clone(&backlog);
        let serving = tokio::spawn(async move {
            let served = Client
                .v1()
                .name("abp")
                .on_receive_dispatch(
                    async move |message: Dispatch, _link| {
                        take(message, &sender).await?;
                        handled.handled();
                        Ok(())
                    },
                    acp::on_receive_dispatch!(),
                )
                .connect_with(transport, async move |link: ConnectionTo<Agent>| {
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
            let message = "the connection to the agent could not be made";
            AbpError::new(ErrorCode::ProtocolHandshakeFailed, message)
        })?;
        Ok(Self {
            link,
            incoming,
            backlog,
            close: Some(close),
            serving,
        })
    }

    /// Sends a request; the future is its answer.
    pub(crate) fn request<Q: JsonRpcRequest>(
        &self,
        request: Q,
    ) -> impl Future<Output = Result<Q::Response, acp::Error>> + use<Q> {
        self.link.send_request(request).block_task()
    }

    /// Sends a notification. An agent that is gone does not hear it.
    pub(crate) fn notify<N: JsonRpcNotification>(&self, notification: N) {
        if let Err(error) = self.link.send_notification(notification) {
            tracing::debug!(target: "abp.acp", %error, "a notification was not sent");
        }
    }

    /// The next message of the agent's own accord; `None` once the connection ended.
    pub(crate) async fn next(&mut self) -> Option<Incoming> {
        self.incoming.recv().await
    }

    /// The next message that waits already.
    pub(crate) fn try_next(&mut self) -> Option<Incoming> {
        self.incoming.try_recv().ok()
    }

    /// The number of lines of the agent that were no messages.
    pub(crate) fn noise(&self) -> u64 {
        self.backlog.noise()
    }

    /// The error of a request that was not answered with a result.
    pub(crate) fn failure(&self, what: &str, error: &acp::Error) -> AbpError {
        if let Some(problem) = self.backlog.problem() {
            let message = format!("the agent broke the protocol: {problem}");
            return AbpError::new(ErrorCode::ProtocolInvalidEnvelope, message);
        }
        if self.link.is_incoming_closed() || acp::is_connection_terminated(error) {
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

    /// Closes the agent's standard input, and waits a moment until what was sent is gone.
    pub(crate) async fn close(&mut self) {
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

impl Drop for AcpConnection {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

async fn take(message: Dispatch, queue: &mpsc::Sender<Incoming>) -> Result<(), acp::Error> {
    let incoming = match message {
        Dispatch::Notification(message) => {
            let (method, params) = message.into_parts();
            Incoming::Notification { method, params }
        }
        Dispatch::Request(message, responder) => {
            let (method, params) = message.into_parts();
            Incoming::Request {
                method,
                params,
                responder: Box::new(responder),
            }
        }
        Dispatch::Response(result, router) => return router.route_with_result(result),
    };
    // Without the queue nothing is served any more; a dropped responder answers with an error.
    drop(queue.send(incoming).await);
    Ok(())
}
