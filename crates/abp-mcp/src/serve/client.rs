//! What a session can do with the client of a request while it serves it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use abp_json::Tape;
use tokio::sync::{mpsc, oneshot};

use super::connection::Shared;
use super::{ForeignError, Outgoing, now};
use crate::gate::Closed;
use crate::lifecycle::{Agreement, Next, Recipient};
use crate::message::{MESSAGE_LIMITS, RequestId};
use crate::method::Method;
use crate::state::Binding;
use crate::version::Era;

/// The client of one request, or of a connection with a handshake.
#[derive(Clone)]
pub struct ClientHandle {
    pub(super) shared: Arc<Shared>,
    pub(super) agreement: Arc<Agreement>,
    /// The request it is about.
    pub(super) request: Option<RequestId>,
    pub(super) outlet: mpsc::Sender<Outgoing>,
}

/// A client that may be gone.
pub(crate) struct WeakClient {
    shared: Weak<Shared>,
    agreement: Arc<Agreement>,
    outlet: mpsc::WeakSender<Outgoing>,
}

impl WeakClient {
    pub(crate) fn upgrade(&self) -> Option<ClientHandle> {
        Some(ClientHandle {
            shared: self.shared.upgrade()?,
            agreement: Arc::clone(&self.agreement),
            request: None,
            outlet: self.outlet.upgrade()?,
        })
    }
}

/// Why a client did not answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoAnswer {
    /// It may not be asked.
    #[error(transparent)]
    Closed(#[from] Closed),
    /// It answered with an error.
    #[error(transparent)]
    Error(#[from] ForeignError),
    /// It did not answer in time.
    #[error("the client did not answer in time")]
    Timeout,
    /// It is gone.
    #[error("the client is gone")]
    Gone,
}

impl std::fmt::Debug for ClientHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ClientHandle")
            .field("request", &self.request)
            .finish_non_exhaustive()
    }
}

impl ClientHandle {
    /// The client of the connection, without keeping it.
    pub(crate) fn downgrade(&self) -> WeakClient {
        WeakClient {
            shared: Arc::downgrade(&self.shared),
            agreement: Arc::clone(&self.agreement),
            outlet: self.outlet.downgrade(),
        }
    }

    /// What was agreed on with it.
    #[must_use]
    pub fn agreement(&self) -> &Arc<Agreement> {
        &self.agreement
    }

    /// The era it speaks.
    #[must_use]
    pub fn era(&self) -> Era {
        self.agreement.version.era()
    }

    /// Tells it something that may be lost where it reads too slowly: progress, log messages.
    ///
    /// # Errors
    /// Says why it may not be told.
    pub fn tell(&self, method: Method, params: &str) -> Result<(), Closed> {
        let recipient = self
            .request
            .as_ref()
            .map_or(Recipient::Connection, Recipient::Request);
        let text = self
            .shared
            .lifecycle()
            .notify(method, Some(params), recipient)?;
        // A client that does not read fast enough misses this; its answers are not lost.
        drop(self.outlet.try_send(Outgoing::told(text)));
        Ok(())
    }

    /// Asks it for something, up to 2025-11-25.
    ///
    /// # Errors
    /// Says why there is no answer.
    pub async fn ask(&self, method: Method, params: Option<&str>) -> Result<String, NoAnswer> {
        let (sender, answered) = oneshot::channel();
        let (id, text) = {
            let mut lifecycle = self.shared.lifecycle();
            let (id, text) = lifecycle.request(method, params, now())?;
            self.shared.await_answer(id.clone(), sender);
            (id, text)
        };
        let sent = self.outlet.send(Outgoing::told(text)).await;
        sent.map_err(|_| NoAnswer::Gone)?;
        let limit = self.shared.options.request_timeout;
        match tokio::time::timeout(limit, answered).await {
            Ok(Ok(answer)) => answer.map_err(NoAnswer::Error),
            Ok(Err(_)) => Err(NoAnswer::Gone),
            Err(_) => {
                self.give_up(&id).await;
                Err(NoAnswer::Timeout)
            }
        }
    }

    /// Seals a state for the next round of a request.
    #[must_use]
    pub fn seal(&self, method: Method, params: Option<&str>, state: &str, ttl: Duration) -> String {
        let text = params.unwrap_or("{}");
        let Ok(tape) = Tape::parse_str(text, &MESSAGE_LIMITS) else {
            return String::new();
        };
        let binding = Binding {
            principal: &self.shared.options.principal,
            method,
            params: tape.root(),
        };
        let key = &self.shared.options.state_key;
        key.seal(&binding, state, now() + ttl)
    }

    /// Tells the client that nobody waits any more.
    async fn give_up(&self, id: &RequestId) {
        self.shared.forget(id);
        // The deadline of the lifecycle is the same; a moment later it has passed.
        let late = now() + Duration::from_secs(1);
        let lapsed = self.shared.lifecycle().due(late);
        if let Some(Next::Lapse { send, .. }) = lapsed {
            drop(self.outlet.send(Outgoing::told(send)).await);
        }
    }
}
