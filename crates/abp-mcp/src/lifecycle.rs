//! Connections without any I/O: what may come when, what is answered, and until when.
//!
//! [`ServerLifecycle`] is this end of a connection with a client, [`ClientLifecycle`] with a server.
//! Both speak both eras. The caller hands in what came and the time, and does what it is told; what
//! it wants to send goes through the same machine, and so through the [`Gate`].

mod client;
mod offer;
mod server;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use abp_json::{Kind, Tape, View, Writer};

pub use client::{ClientLifecycle, ClientTimeouts};
pub use offer::{ClientOffer, Offer, Profile};
pub use server::{Arrival, Recipient, ServerLifecycle};

use crate::capabilities::{ClientCapabilities, ServerCapabilities};
use crate::gate::{Closed, Gate};
use crate::message::{self, MESSAGE_LIMITS, RequestId, Response, RpcError};
use crate::meta::{Implementation, LoggingLevel};
use crate::method::Method;
use crate::refusal::{RpcRefusal, code_in};
use crate::subscription::SubscriptionFilter;
use crate::version::{Era, ProtocolVersion};

/// What is to be done.
#[derive(Debug)]
#[non_exhaustive]
pub enum Next<'t> {
    /// Nothing.
    Nothing,
    /// Send this.
    Send(String),
    /// Refuse a request.
    Refuse(Refused),
    /// Serve a request, and answer it.
    Serve(Call<'t>),
    /// Send this, and tell what the filter asks for until the request is answered or cancelled.
    Listen {
        /// The request.
        id: RequestId,
        /// The part of what it asks for that is told.
        filter: SubscriptionFilter,
        /// What says so.
        send: String,
    },
    /// Stop serving a request; nobody waits for its answer.
    Cancel {
        /// The request.
        id: RequestId,
    },
    /// Take note.
    Deliver {
        /// Of what.
        method: Method,
        /// With what.
        params: Option<View<'t>>,
    },
    /// A request of ours is answered.
    Settle(Settled<'t>),
    /// A request of ours was not answered in time. Send this, and wait no longer.
    Lapse {
        /// The request.
        id: RequestId,
        /// Its method.
        method: Method,
        /// What says that nobody waits.
        send: String,
    },
    /// The connection is open. Send this first.
    Open {
        /// What, where the version has it.
        send: Option<String>,
    },
    /// Nothing can be agreed on: close the connection.
    Close(Breach),
}

/// What two sides agreed on, for a connection or for one request.
#[derive(Clone, Debug)]
pub struct Agreement {
    /// The version they speak.
    pub version: ProtocolVersion,
    /// What the client declared.
    pub client: ClientCapabilities,
    /// What the server declared.
    pub server: ServerCapabilities,
    /// Who the peer says it is.
    pub peer: Option<Implementation>,
    /// How a peer that is a server says a model uses it best.
    pub instructions: Option<String>,
    gate: Gate,
}

/// A request to be served.
#[derive(Clone, Debug)]
pub struct Call<'t> {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
    /// Its parameters.
    pub params: Option<View<'t>>,
    /// What was agreed on with whoever sent it.
    pub agreement: Arc<Agreement>,
    /// The log messages its sender wants, since 2026-07-28.
    pub log_level: Option<LoggingLevel>,
    /// What was sealed in the round before, since 2026-07-28.
    pub state: Option<String>,
}

/// A request that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The request.
    pub id: RequestId,
    /// Why.
    pub refusal: RpcRefusal,
    /// The era it is refused in.
    pub era: Era,
}

/// A request of ours and its answer.
#[derive(Clone, Debug)]
pub struct Settled<'t> {
    /// The request.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
    /// The result, or why there is none.
    pub outcome: Result<View<'t>, NoResult<'t>>,
}

/// Why a request of ours has no result.
#[derive(Clone, Debug)]
pub enum NoResult<'t> {
    /// The peer answered with an error.
    Error(RpcError<'t>),
    /// The result is not one that the peer may give.
    Invalid(Closed),
}

/// The answer to a request that was served.
#[derive(Clone, Copy, Debug)]
pub enum CallAnswer<'a> {
    /// A result, a JSON object.
    Result(&'a str),
    /// A refusal.
    Refused(&'a RpcRefusal),
    /// The error of somebody else; told by a code that the version has.
    Error {
        /// Its code.
        code: i64,
        /// Its words.
        message: &'a str,
        /// What else it says, as JSON.
        data: Option<&'a str>,
    },
}

/// Why a connection cannot be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Breach {
    /// No version is spoken by both.
    #[error("no common version; the server speaks {theirs:?}")]
    NoCommonVersion {
        /// What the server speaks.
        theirs: Vec<String>,
    },
    /// The server speaks only versions with a handshake, and that is not wanted.
    #[error("the server speaks no version without a handshake")]
    NotModern,
    /// The server does not want to speak.
    #[error("the server refused {method}: {message} ({code})")]
    Refused {
        /// What was asked.
        method: Method,
        /// Its code.
        code: i64,
        /// Its words.
        message: String,
    },
    /// The server's answer is not what the method gives.
    #[error("the answer to {method} is invalid: {what}")]
    Invalid {
        /// What was asked.
        method: Method,
        /// What is wrong.
        what: &'static str,
    },
    /// The server did not answer in time.
    #[error("no answer to {method} in time")]
    Timeout {
        /// What was asked.
        method: Method,
    },
}

/// The requests that wait for an answer.
#[derive(Debug, Default)]
struct Asked {
    last_id: u64,
    waiting: BTreeMap<RequestId, (Method, Duration)>,
}

impl Agreement {
    fn new(
        version: ProtocolVersion,
        client: ClientCapabilities,
        server: ServerCapabilities,
        peer: Option<Implementation>,
    ) -> Self {
        Self {
            gate: Gate::new(version, &client, &server),
            version,
            client,
            server,
            peer,
            instructions: None,
        }
    }

    /// The gate between the two.
    #[must_use]
    pub fn gate(&self) -> &Gate {
        &self.gate
    }
}

impl Refused {
    /// The message that says so.
    #[must_use]
    pub fn to_json(&self) -> String {
        let data = self.refusal.data();
        let (code, words) = (self.refusal.code(self.era), self.refusal.to_string());
        message::error(Some(&self.id), None, code, &words, data.as_deref())
    }

    /// The status of the HTTP response that carries it.
    #[must_use]
    pub fn http_status(&self) -> u16 {
        self.refusal.http_status(self.era)
    }
}

impl<'a> CallAnswer<'a> {
    /// The result, or the message of an error in the code that a version has for it.
    fn split(self, id: &RequestId, version: ProtocolVersion) -> Result<&'a str, String> {
        let error = |code, words: &str, data: Option<&str>| {
            let code = code_in(version, code);
            Err(message::error(Some(id), Some(version), code, words, data))
        };
        match self {
            Self::Result(result) => Ok(result),
            Self::Refused(refusal) => {
                let code = refusal.code(version.era());
                error(code, &refusal.to_string(), refusal.data().as_deref())
            }
            Self::Error {
                code,
                message,
                data,
            } => error(code, message, data),
        }
    }
}

impl Asked {
    fn next_id(&mut self) -> RequestId {
        self.last_id += 1;
        RequestId::from(self.last_id)
    }

    fn add(&mut self, method: Method, until: Duration) -> RequestId {
        let id = self.next_id();
        self.waiting.insert(id.clone(), (method, until));
        id
    }

    /// The request that an answer belongs to; late and foreign answers belong to none.
    fn settle<'t>(&mut self, response: &Response<'t>) -> Option<Settled<'t>> {
        let id = response.id.clone()?;
        let (method, _) = self.waiting.remove(&id)?;
        Some(Settled {
            id,
            method,
            outcome: response.outcome.clone().map_err(NoResult::Error),
        })
    }

    fn lapse(&mut self, now: Duration) -> Option<Next<'static>> {
        let mut waiting = self.waiting.iter();
        let (id, _) = waiting.find(|(_, (_, until))| now >= *until)?;
        let id = id.clone();
        let (method, _) = self.waiting.remove(&id)?;
        let send = cancelled(&id, "no answer in time");
        Some(Next::Lapse { id, method, send })
    }

    fn next_due(&self) -> Option<Duration> {
        self.waiting.values().map(|(_, until)| *until).min()
    }
}

fn cancelled(id: &RequestId, reason: &str) -> String {
    let mut params = Writer::default();
    params.begin_object();
    params.key("requestId");
    params.raw(&id.to_json());
    params.key("reason");
    params.string(reason);
    params.end_object();
    message::notification(Method::Cancelled.as_str(), Some(params.text()))
}

/// The request that a `notifications/cancelled` names.
fn cancelled_id(params: Option<View<'_>>) -> Option<RequestId> {
    params?.get("requestId").and_then(RequestId::read)
}

fn refuse<'t>(id: &RequestId, refusal: RpcRefusal, era: Era) -> Next<'t> {
    Next::Refuse(Refused {
        id: id.clone(),
        refusal,
        era,
    })
}

/// Parses what the caller wants to send: a JSON object or nothing.
fn object(text: Option<&str>) -> Result<Option<Tape<'_>>, Closed> {
    let tape = text.map(|text| Tape::parse_str(text, &MESSAGE_LIMITS));
    match tape.transpose() {
        Ok(Some(tape)) if tape.root().kind() != Kind::Object => Err(Closed::NotAnObject),
        Ok(tape) => Ok(tape),
        Err(_) => Err(Closed::NotAnObject),
    }
}
