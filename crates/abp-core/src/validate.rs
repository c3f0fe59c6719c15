//! Checks beyond the shape of a document. All problems are reported, not only the first.

use abp_error::ErrorCode;

use crate::hash::{TraceCheck, check_trace};
use crate::{
    CONTRACT_VERSION, ContractError, ExecutionMode, MicroUsd, Receipt, RuntimeConfig, WorkOrder,
    receipt_hash,
};

/// The longest task accepted, in characters.
const MAX_TASK_CHARS: usize = 100_000;

/// One thing that is wrong with a document.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ValidationError {
    /// The document cannot be read or hashed.
    #[error(transparent)]
    Document(#[from] ContractError),
    /// A value is not acceptable.
    #[error("{pointer}: {problem}")]
    Field {
        /// Where.
        pointer: String,
        /// What is wrong with it.
        problem: String,
    },
    /// The receipt is of another contract version.
    #[error("contract_version is {found:?}, expected {CONTRACT_VERSION:?}")]
    ContractVersion {
        /// The version found.
        found: String,
    },
    /// The run ends before it starts.
    #[error("finished_at is before started_at")]
    ClockInversion,
    /// The receipt carries no hash.
    #[error("receipt_sha256 is missing")]
    HashMissing,
    /// The receipt was changed after it was hashed.
    #[error(
        "receipt_sha256 does not match: recorded {recorded}, computed {computed}; {}",
        describe_changed(changed)
    )]
    HashMismatch {
        /// The hash in the receipt.
        recorded: String,
        /// The hash of the document as it is.
        computed: String,
        /// The members whose own hash differs; empty where that cannot be told.
        changed: Vec<String>,
    },
    /// The embedded trace is not the one that was digested.
    #[error("trace_digest does not match the trace: {problem}")]
    Trace {
        /// How they differ.
        problem: String,
    },
}

impl ValidationError {
    /// The error's code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        match self {
            Self::Document(error) => error.code(),
            Self::Field { .. } => ErrorCode::ValidationFailed,
            Self::ContractVersion { .. } => ErrorCode::ContractVersionMismatch,
            Self::ClockInversion | Self::HashMissing => ErrorCode::ContractInvalidReceipt,
            Self::HashMismatch { .. } | Self::Trace { .. } => ErrorCode::ReceiptHashMismatch,
        }
    }

    fn field(pointer: impl Into<String>, problem: impl Into<String>) -> Self {
        Self::Field {
            pointer: pointer.into(),
            problem: problem.into(),
        }
    }
}

/// Checks a receipt that was built or read as a value.
///
/// A receipt read from a file is better checked with [`crate::verify_receipt_document`], which also
/// covers fields this version does not know.
///
/// # Errors
/// Every problem found.
pub fn validate_receipt(receipt: &Receipt) -> Result<(), Vec<ValidationError>> {
    let mut errors = receipt_problems(receipt);
    match (&receipt.receipt_sha256, receipt_hash(receipt)) {
        (None, _) => errors.push(ValidationError::HashMissing),
        (Some(_), Err(error)) => errors.push(ValidationError::Document(error)),
        (Some(recorded), Ok(computed)) if *recorded != computed => {
            errors.push(ValidationError::HashMismatch {
                recorded: recorded.clone(),
                computed,
                changed: Vec::new(),
            });
        }
        (Some(_), Ok(_)) => {}
    }
    if let TraceCheck::Differs(problem) = check_trace(receipt) {
        errors.push(ValidationError::Trace { problem });
    }
    into_result(errors)
}

/// Everything about a receipt that is wrong whatever its hashes say.
pub(crate) fn receipt_problems(receipt: &Receipt) -> Vec<ValidationError> {
    let mut errors = Vec::new();
    if receipt.backend.id.trim().is_empty() {
        errors.push(ValidationError::field("/backend/id", "must not be empty"));
    }
    if receipt.meta.contract_version != CONTRACT_VERSION {
        errors.push(ValidationError::ContractVersion {
            found: receipt.meta.contract_version.clone(),
        });
    }
    if receipt.meta.finished_at < receipt.meta.started_at {
        errors.push(ValidationError::ClockInversion);
    }
    errors
}

/// Checks a work order beyond its shape.
///
/// # Errors
/// Every problem found.
pub fn validate_work_order(order: &WorkOrder) -> Result<(), Vec<ValidationError>> {
    let mut errors = Vec::new();
    if order.task.trim().is_empty() {
        errors.push(ValidationError::field("/task", "must not be empty"));
    }
    if order.task.chars().count() > MAX_TASK_CHARS {
        errors.push(ValidationError::field(
            "/task",
            format!("must have at most {MAX_TASK_CHARS} characters"),
        ));
    }
    if order.workspace.root.is_empty() || order.workspace.root.contains('\0') {
        errors.push(ValidationError::field("/workspace/root", "must be a path"));
    }
    check_config(&order.config, &mut errors);
    into_result(errors)
}

fn check_config(config: &RuntimeConfig, errors: &mut Vec<ValidationError>) {
    if let Some(budget) = config.max_budget_usd
        && MicroUsd::from_dollars(budget).is_none()
    {
        errors.push(ValidationError::field(
            "/config/max_budget_usd",
            "must be a number of dollars, zero or more",
        ));
    }
    if config.max_turns == Some(0) {
        errors.push(ValidationError::field(
            "/config/max_turns",
            "must be at least 1",
        ));
    }
    for (name, value) in &config.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            errors.push(ValidationError::field(
                format!("/config/env/{}", abp_json::pointer::escape(name)),
                "is not a valid environment variable",
            ));
        }
    }
    errors.extend(config.execution_mode().err());
    errors.extend(config.mcp_ask().err());
}

impl RuntimeConfig {
    /// The execution mode asked for by `vendor.abp.mode`; mapped when omitted.
    ///
    /// # Errors
    /// Fails where the setting is neither `passthrough` nor `mapped`.
    pub fn execution_mode(&self) -> Result<ExecutionMode, ValidationError> {
        let Some(mode) = self.abp_setting("mode") else {
            return Ok(ExecutionMode::default());
        };
        serde_json::from_value(mode.clone()).map_err(|_| {
            ValidationError::field(
                "/config/vendor/abp/mode",
                format!("is {mode}, expected \"passthrough\" or \"mapped\""),
            )
        })
    }
}

fn into_result(errors: Vec<ValidationError>) -> Result<(), Vec<ValidationError>> {
    if errors.is_empty() {
        Ok(())
    } else {
        Err(errors)
    }
}

fn describe_changed(changed: &[String]) -> String {
    if changed.is_empty() {
        "which part was changed cannot be told".to_owned()
    } else {
        format!("changed: {}", changed.join(", "))
    }
}
