//! The error taxonomy: stable machine-readable codes, and the error and wire form that carry them.
//!
//! Every error that reaches a user has an [`ErrorCode`]. The code decides the category, the HTTP
//! status and the process exit code, and carries an explanation and a remedy; all of that is one
//! table in `code.rs`, from which `docs/error_codes.md` and `abp explain` are made.
//!
//! Crates define their own error enums and map each variant to a code; [`AbpError`] is the common
//! form in which errors of different crates meet at the edges.

mod code;
mod error;

pub use code::{ErrorCategory, ErrorCode, ExitStatus, UnknownErrorCode};
pub use error::{AbpError, AbpErrorDto, ErrorBody, ErrorDetail};
