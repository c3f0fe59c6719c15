//! A vendor's errors in our own terms.

use std::time::{Duration, SystemTime};

use abp_backend_core::retry_after;
use abp_core::ir::{IrError, IrErrorKind};
use abp_dialect::{Dialect, Reader};
use abp_error::{AbpError, ErrorCode};
use abp_json::{Limits, Tape};
use abp_translate::codec;
use http::{HeaderMap, StatusCode};

use super::broken;

/// The longest body of an error that is read, and the longest message that is repeated.
pub(super) const MAX_ERROR_BODY: usize = 256 << 10;
const MAX_MESSAGE: usize = 500;

/// Words by which vendors tell, among requests that are wrong, those that are too long or forbidden.
const TOO_LONG: [&str; 4] = [
    "context_length_exceeded",
    "maximum context length",
    "prompt is too long",
    "exceeds the maximum number of tokens",
];
const FILTERED: [&str; 2] = ["content_filter", "content_policy_violation"];

/// The error that an answer other than a success means. A body that did not arrive is empty: an error
/// that cannot be read is still an error.
pub(super) fn of_reply(
    dialect: Dialect,
    status: StatusCode,
    headers: &HeaderMap,
    body: &[u8],
) -> AbpError {
    if !status.is_client_error() && !status.is_server_error() {
        return broken(format!("the vendor answers {status}, which is no answer"));
    }
    let wait = retry_after(headers, SystemTime::now());
    let told = read(dialect, body, Some(status));
    failure(
        IrErrorKind::of_status(status.as_u16()),
        told.as_ref(),
        Some(status),
        wait,
    )
}

/// The error that a stream, or an answer of status 200, tells of.
pub(super) fn of_error(error: &IrError) -> AbpError {
    failure(error.kind, Some(error), None, None)
}

/// An error's body, where it is one of the dialect.
pub(super) fn read(dialect: Dialect, body: &[u8], status: Option<StatusCode>) -> Option<IrError> {
    let tape = Tape::parse(body, &Limits::default()).ok()?;
    let reader = Reader::new(&tape);
    codec(dialect)?
        .read_error(reader.root(), status.map(|status| status.as_u16()))
        .ok()
}

fn failure(
    kind: IrErrorKind,
    told: Option<&IrError>,
    status: Option<StatusCode>,
    wait: Option<Duration>,
) -> AbpError {
    let code = code(kind, told);
    let answers = status.map_or_else(
        || "the vendor answers with an error".to_owned(),
        |status| format!("the vendor answers {}", status.as_u16()),
    );
    // Some servers repeat the key that they refuse.
    let message = told.filter(|_| code != ErrorCode::BackendAuthFailed);
    let mut error = AbpError::new(
        code,
        match message {
            Some(told) => format!("{answers}: {}", shortened(&told.message)),
            None => answers,
        },
    );
    if let Some(status) = status {
        error = error.with_context("status", status.as_u16());
    }
    if let Some(wait) = wait {
        let milliseconds = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        error = error.with_context("retry_after_ms", milliseconds);
    }
    error
}

fn code(kind: IrErrorKind, told: Option<&IrError>) -> ErrorCode {
    match kind {
        IrErrorKind::InvalidRequest => {
            let says = |words: &[&str]| told.is_some_and(|told| mentions(told, words));
            if says(&TOO_LONG) {
                ErrorCode::BackendContextLength
            } else if says(&FILTERED) {
                ErrorCode::BackendContentFiltered
            } else {
                ErrorCode::ValidationFailed
            }
        }
        IrErrorKind::Authentication | IrErrorKind::Permission => ErrorCode::BackendAuthFailed,
        IrErrorKind::NotFound => ErrorCode::BackendModelNotFound,
        IrErrorKind::TooLarge => ErrorCode::BackendContextLength,
        IrErrorKind::RateLimit => ErrorCode::BackendRateLimited,
        IrErrorKind::Timeout => ErrorCode::BackendTimeout,
        _ => ErrorCode::BackendUnavailable,
    }
}

fn mentions(error: &IrError, words: &[&str]) -> bool {
    let code = error.code.as_ref().map(|code| code.text());
    let native = error.native.as_ref().map(|native| native.as_str());
    [Some(error.message.as_str()), code, native]
        .into_iter()
        .flatten()
        .any(|text| words.iter().any(|word| text.contains(word)))
}

fn shortened(message: &str) -> &str {
    message
        .get(..message.floor_char_boundary(MAX_MESSAGE))
        .unwrap_or(message)
}
