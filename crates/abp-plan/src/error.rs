//! Why a run cannot be planned.

use abp_core::{ContractError, ValidationError};
use abp_emulation::PostError;
use abp_error::{AbpError, ErrorCode};
use abp_projection::ProjectionError;

/// Why a run cannot be planned. Nothing has happened yet when this is returned.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The work order itself is not valid.
    #[error("the work order is not valid: {}", join(.0))]
    Invalid(Vec<ValidationError>),
    /// A setting under `config.vendor.abp` is not valid.
    #[error("/config/vendor/abp/{key}: {problem}")]
    Setting {
        /// The setting.
        key: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// No backend can do the work.
    #[error(transparent)]
    Projection(#[from] ProjectionError),
    /// The opened backend cannot do what its declaration promised.
    #[error("backend {backend} cannot do everything that is required: {}", refusals.join("; "))]
    NotConfirmed {
        /// The backend.
        backend: String,
        /// What stands in the way.
        refusals: Vec<String>,
    },
    /// The model's dialect cannot carry what the order holds.
    #[error("backend {backend}: {problem}")]
    Lossy {
        /// The backend.
        backend: String,
        /// What would be lost.
        problem: String,
        /// How grave it is.
        code: ErrorCode,
    },
    /// The output schema of the order is not valid.
    #[error(transparent)]
    OutputSchema(#[from] PostError),
    /// The order cannot be hashed or written.
    #[error(transparent)]
    Contract(#[from] ContractError),
}

impl PlanError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Invalid(_) | Self::Setting { .. } | Self::OutputSchema(_) => {
                ErrorCode::ValidationFailed
            }
            Self::Lossy { code, .. } => *code,
            Self::Projection(error) => error.code(),
            Self::NotConfirmed { .. } => ErrorCode::CapabilityUnsupported,
            Self::Contract(error) => error.code(),
        }
    }
}

impl From<PlanError> for AbpError {
    fn from(error: PlanError) -> Self {
        let result = Self::new(error.code(), error.to_string());
        match error {
            PlanError::Projection(ProjectionError::NoSuitableBackend { candidates, .. }) => {
                match serde_json::to_value(candidates) {
                    Ok(candidates) => result.with_context("candidates", candidates),
                    Err(_) => result,
                }
            }
            PlanError::Lossy { backend, .. } => result.with_context("backend", backend),
            PlanError::NotConfirmed { backend, refusals } => result
                .with_context("backend", backend)
                .with_context("refusals", refusals),
            PlanError::Invalid(_)
            | PlanError::Setting { .. }
            | PlanError::Projection(_)
            | PlanError::OutputSchema(_)
            | PlanError::Contract(_) => result,
        }
    }
}

fn join(errors: &[ValidationError]) -> String {
    errors
        .iter()
        .map(ToString::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}
