//! What a backend is: the traits an agent adapter implements, and what the host gives it.
//!
//! A [`Backend`] is opened into a [`Session`], the session says what it can really do, and then runs
//! once. Everything it does to the outside goes through its [`RunContext`]: events, files, tools. The
//! context can only be made from a confirmed plan, and every request of the backend is answered by
//! the host, which asks the policy first.
//!
//! An [`Upstream`] is something else: a model's API, which takes a vendor's bytes and gives bytes back.
//! [`CircuitBreaker`], [`RetryBudget`] and [`Backoff`] decide when it is asked again; they are values
//! without a clock.

mod backend;
mod breaker;
mod cancel;
mod context;
mod models;
mod retry;
mod upstream;

pub use backend::{
    AgentSession, Backend, BackendDescriptor, BoxFuture, Completion, OpenSpec, RunEnd, Session,
    SessionUse, is_asked,
};
pub use breaker::{BreakerSettings, CircuitBreaker, CircuitState, LONGEST_REST};
pub use cancel::{CancelHandle, CancelSignal, cancellation};
pub use context::{
    Emission, EmitError, HostRequest, McpAccess, ObservedConnection, PermissionQuestion,
    RunContext, ToolError, ToolInvocation, ToolOutput,
};
pub use models::{MeasuredExchange, MeasuredModels, ModelGateway, ModelGrant, RunModels};
pub use retry::{Backoff, RetryBudget, is_retryable, retry_after};
pub use upstream::{
    ModelBody, ModelCall, ModelOperation, ModelReply, OtherCall, StoredAction, Upstream,
    UpstreamDescriptor, UpstreamError,
};
