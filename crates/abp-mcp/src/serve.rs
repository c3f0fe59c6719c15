//! Serving clients: what a server of ours has to do, and the connections that ask it.
//!
//! A [`McpSession`] answers the requests of one connection. [`McpConnection`] is what stands between it and
//! the client, whatever carries the messages: it keeps the lifecycle, so that a session only ever sees
//! requests that may be asked and can only send what was agreed on.

mod client;
mod connection;
mod http;
mod http_body;
mod lines;
mod local;
mod sessions;

use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::broadcast;

pub(crate) use client::WeakClient;
pub use client::{ClientHandle, NoAnswer};
pub(crate) use connection::lock;
pub use connection::{ConnectionOptions, McpConnection};
pub use http::{HttpOptions, McpCaller, McpHttp};
pub use http_body::McpBody;
pub use lines::serve_lines;
pub use local::LocalEndpoint;

use crate::capabilities::{ClientCapabilities, ServerCapabilities};
use crate::lifecycle::{Agreement, CallAnswer};
use crate::message::RequestId;
use crate::meta::LoggingLevel;
use crate::method::Method;
use crate::param_headers::SaidParams;
use crate::refusal::RpcRefusal;
use crate::subscription::SubscriptionFilter;
use crate::version::ProtocolVersion;

/// A future that may be sent to another thread.
pub type McpFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What answers one client's connection.
pub trait McpSession: Send + Sync + 'static {
    /// What is offered to a client that declares this. Asked for `initialize`, and since 2026-07-28
    /// for every request.
    fn capabilities<'a>(
        &'a self,
        client: &'a ClientCapabilities,
        version: Option<ProtocolVersion>,
    ) -> McpFuture<'a, ServerCapabilities>;

    /// Serves a request. Dropped when the client cancels it.
    fn serve(&self, call: ServedCall, client: ClientHandle) -> McpFuture<'_, McpAnswer>;

    /// Changes that clients may be told of.
    fn changes(&self) -> broadcast::Receiver<Change>;

    /// The client tells something that no request is about.
    fn told(&self, method: Method, client: ClientHandle);

    /// The client wants to be told of these changes, since 2026-07-28, for as long as what this gives
    /// is kept.
    fn watch(&self, client: &Arc<Agreement>, filter: &SubscriptionFilter) -> Watch;
}

/// Keeps something going until it is dropped.
pub type Watch = Option<Box<dyn Send + Sync>>;

/// A request to be served, by itself.
#[derive(Clone, Debug)]
pub struct ServedCall {
    /// Its id.
    pub id: RequestId,
    /// Its method.
    pub method: Method,
    /// Its parameters, a JSON object.
    pub params: Option<String>,
    /// What was agreed on with whoever sent it.
    pub agreement: Arc<Agreement>,
    /// The log messages its sender wants, since 2026-07-28.
    pub log_level: Option<LoggingLevel>,
    /// What was sealed in the round before, since 2026-07-28.
    pub state: Option<String>,
    /// The headers that repeat parameters, where it came over HTTP since 2026-07-28. Whoever knows the
    /// tool holds them against the arguments.
    pub said_params: Option<SaidParams>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum McpAnswer {
    /// A result, a JSON object.
    Result(String),
    /// A refusal.
    Refused(RpcRefusal),
    /// The error of somebody else.
    Error(ForeignError),
}

/// An error that a peer answered with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message} ({code})")]
pub struct ForeignError {
    /// Its code.
    pub code: i64,
    /// Its words.
    pub message: String,
    /// What else it says, as JSON.
    pub data: Option<String>,
}

/// Something changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The list of tools.
    Tools,
    /// The list of prompts.
    Prompts,
    /// The list of resources.
    Resources,
    /// A resource.
    Resource {
        /// Its address.
        uri: String,
    },
}

/// A message to a client, and the status of the HTTP response that it would begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outgoing {
    pub(crate) text: String,
    pub(crate) status: u16,
    /// Whether it answers the request that it is sent for.
    pub(crate) is_answer: bool,
}

impl McpAnswer {
    /// A refusal of parameters.
    #[must_use]
    pub fn invalid(what: impl Into<String>) -> Self {
        Self::Refused(RpcRefusal::InvalidParams { what: what.into() })
    }

    /// A failure of this end.
    #[must_use]
    pub fn internal(what: impl Into<String>) -> Self {
        Self::Refused(RpcRefusal::Internal { what: what.into() })
    }

    pub(crate) fn as_call_answer(&self) -> CallAnswer<'_> {
        match self {
            Self::Result(result) => CallAnswer::Result(result),
            Self::Refused(refusal) => CallAnswer::Refused(refusal),
            Self::Error(error) => CallAnswer::Error {
                code: error.code,
                message: &error.message,
                data: error.data.as_deref(),
            },
        }
    }
}

impl Change {
    pub(crate) const fn method(&self) -> Method {
        match self {
            Self::Tools => Method::ToolsListChanged,
            Self::Prompts => Method::PromptsListChanged,
            Self::Resources => Method::ResourcesListChanged,
            Self::Resource { .. } => Method::ResourceUpdated,
        }
    }

    pub(crate) fn params(&self) -> Option<String> {
        let Self::Resource { uri } = self else {
            return None;
        };
        let mut out = abp_json::Writer::default();
        out.begin_object();
        out.key("uri");
        out.string(uri);
        out.end_object();
        Some(out.into_text())
    }
}

/// The time, counted from the Unix epoch.
pub(crate) fn now() -> Duration {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
}
