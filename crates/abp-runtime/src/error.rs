//! Why a run is not accepted, or has no receipt.

use abp_error::{AbpError, ErrorCode};
use abp_plan::PlanError;
use abp_policy::PolicyError;
use abp_store::StoreError;

/// Why a run is not accepted, or has no receipt.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RuntimeError {
    /// No backend of that name is registered.
    #[error("no backend is named {name:?}; registered: {}", known.join(", "))]
    UnknownBackend {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The run cannot be planned.
    #[error(transparent)]
    PlanFailed(#[from] PlanError),
    /// The policy cannot be compiled.
    #[error(transparent)]
    PolicyFailed(#[from] PolicyError),
    /// A budget is set that nothing can hold the run to.
    #[error(
        "max_budget_usd is set, but there is no price for {model}; configure one, or drop the budget"
    )]
    NoPrice {
        /// The model, in words.
        model: String,
    },
    /// A budget is set on a backend whose usage is only what it says itself.
    #[error(
        "max_budget_usd is set, but the usage of backend {backend:?} is only its own claim; choose a backend \
         whose model traffic passes through ABP, or drop the budget"
    )]
    UnmeasuredBudget {
        /// The backend.
        backend: String,
    },
    /// As many runs go on as may.
    #[error("{limit} runs are going on, which is the limit; try again when one has ended")]
    Busy {
        /// The limit.
        limit: usize,
    },
    /// The order asks for an MCP server that is not configured.
    #[error("no MCP server is named {name:?}; configured: {}", known.join(", "))]
    UnknownMcpServer {
        /// The name asked for.
        name: String,
        /// The names there are.
        known: Vec<String>,
    },
    /// The order asks for MCP servers and there are none.
    #[error("the order asks for MCP servers and none is configured")]
    NoMcpServers,
    /// The MCP servers asked for cannot be had.
    #[error("{0}")]
    McpUnavailable(AbpError),
    /// An interrupted application of a run's changes could not be brought to its end.
    #[error(
        "the application of run {run_id} was interrupted and cannot be brought to its end: {source}; the \
         source may hold some of its changes"
    )]
    Recovery {
        /// The run.
        run_id: uuid::Uuid,
        /// Why.
        source: AbpError,
    },
    /// The store of runs, events and receipts failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The run ended, its receipt is in the store, and the copy for people could not be written.
    #[error("cannot store the receipt in {path}")]
    StoreFailed {
        /// Where.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// This process had to stop, and the run is queued for another attempt.
    #[error("run {0} was given back to the queue")]
    GivenBack(uuid::Uuid),
    /// A defect: the supervisor did not deliver a receipt.
    #[error("the run ended without a receipt: {0}")]
    Lost(String),
}

impl RuntimeError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::UnknownBackend { .. } => ErrorCode::BackendNotFound,
            Self::PlanFailed(error) => error.code(),
            Self::PolicyFailed(_) => ErrorCode::PolicyInvalid,
            Self::NoPrice { .. } | Self::UnmeasuredBudget { .. } => ErrorCode::ConfigInvalid,
            Self::Busy { .. } => ErrorCode::Overloaded,
            Self::UnknownMcpServer { .. } | Self::NoMcpServers => ErrorCode::McpServerNotFound,
            Self::McpUnavailable(error) => error.code(),
            Self::Recovery { source, .. } => source.code(),
            Self::Store(error) => error.code(),
            Self::StoreFailed { .. } => ErrorCode::ReceiptStoreFailed,
            Self::GivenBack(_) => ErrorCode::RunInterrupted,
            Self::Lost(_) => ErrorCode::Internal,
        }
    }
}

impl From<RuntimeError> for AbpError {
    fn from(error: RuntimeError) -> Self {
        use std::error::Error as _;
        let error = match error {
            RuntimeError::PlanFailed(error) => return error.into(),
            RuntimeError::McpUnavailable(error) => return error,
            other => other,
        };
        let mut result = Self::new(error.code(), error.to_string());
        if let RuntimeError::StoreFailed { path, .. } = &error {
            result = result.with_context("path", path.clone());
        }
        match error.source() {
            Some(source) => result.with_source(source.to_string()),
            None => result,
        }
    }
}
