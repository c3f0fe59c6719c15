//! Errors as the protocol carries them.

use abp_backend_acp::protocol::Error;
use abp_core::Receipt;
use abp_error::{AbpError, ErrorCode, ExitStatus};
use serde_json::{Value, json};

const INVALID_REQUEST: i32 = -32600;
const INVALID_PARAMS: i32 = -32602;
const INTERNAL: i32 = -32603;
const NOT_FOUND: i32 = -32002;

/// An error with its message, its code and its context.
pub(crate) fn of_error(error: &AbpError) -> Error {
    let code = match error.code() {
        ErrorCode::NotFound => NOT_FOUND,
        code if code.exit_status() == ExitStatus::Usage => INVALID_PARAMS,
        _ => INTERNAL,
    };
    Error::new(code, error.message()).data(json!(error.to_dto()))
}

/// A parameter that cannot be used.
pub(crate) fn invalid(message: impl Into<String>) -> Error {
    Error::new(INVALID_PARAMS, message)
}

/// A request that does not fit the state of the session.
pub(crate) fn untimely(message: impl Into<String>) -> Error {
    Error::new(INVALID_REQUEST, message)
}

/// A session that is neither open nor in the store.
pub(crate) fn unknown_session(id: &str) -> Error {
    let message = format!("there is no session {id:?}; session/list names those of the store");
    Error::new(NOT_FOUND, message)
}

/// The error of a prompt whose run failed.
pub(crate) fn of_receipt(receipt: &Receipt, report: &Value) -> Error {
    let message = match &receipt.error {
        Some(error) => error.message.clone(),
        None => format!("the run ended as {:?}", receipt.outcome).to_lowercase(),
    };
    let code = receipt.error.as_ref().map(|error| error.code.as_str());
    let data = json!({ "code": code, "abp": report });
    Error::new(INTERNAL, message).data(data)
}
