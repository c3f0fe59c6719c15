//! Our own refusals and failures, in the words of whoever asked.

use std::time::Duration;

use abp_core::ir::{IrError, IrErrorKind, RawJson};
use abp_dialect::{Dialect, Lowering, TargetProfile};
use abp_error::{AbpError, ErrorBody, ErrorCode};
use abp_translate::codec;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use uuid::Uuid;

use crate::ask::{Answer, AnswerBody};
use crate::headers;

/// Why a caller does not get what it asked for.
#[derive(Debug)]
pub struct Refusal {
    /// What is wrong.
    pub error: AbpError,
    /// When to come again.
    pub retry_after: Option<Duration>,
    /// The exchange it ended.
    pub run_id: Option<Uuid>,
}

impl<E: Into<AbpError>> From<E> for Refusal {
    fn from(error: E) -> Self {
        Self {
            error: error.into(),
            retry_after: None,
            run_id: None,
        }
    }
}

impl Refusal {
    /// A problem of our own.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self::from(AbpError::new(code, message))
    }

    /// That may be gone after a while.
    #[must_use]
    pub fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait);
        self
    }

    /// That ended an exchange.
    pub(crate) fn of_run(mut self, run_id: Uuid) -> Self {
        self.run_id = Some(run_id);
        self
    }

    /// The answer of a vendor's own server in this case.
    #[must_use]
    pub fn answer(&self, dialect: Dialect) -> Answer {
        self.with_body(body(&self.error, dialect))
    }

    /// The answer in our own words.
    #[must_use]
    pub fn plain_answer(&self) -> Answer {
        let body = serde_json::to_string(&ErrorBody::from(&self.error));
        self.with_body(body.unwrap_or_default())
    }

    /// Says which part of the request is wrong.
    #[must_use]
    pub fn at(mut self, place: impl Into<String>) -> Self {
        self.error = self.error.with_place(place);
        self
    }

    fn with_body(&self, body: String) -> Answer {
        let status = StatusCode::from_u16(self.error.code().http_status())
            .unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers::insert(&mut headers, headers::ERROR, self.error.code().as_str());
        if let Some(run_id) = self.run_id {
            headers::insert(&mut headers, headers::RUN_ID, &run_id.to_string());
        }
        if let Some(wait) = self.retry_after {
            headers::retry_after(&mut headers, wait);
        }
        Answer {
            status,
            headers,
            body: AnswerBody::Whole(Bytes::from(body)),
        }
    }
}

fn body(error: &AbpError, dialect: Dialect) -> String {
    let profile = TargetProfile::default();
    let mut out = Lowering::new(None, dialect, &profile);
    match codec(dialect) {
        Some(codec) => {
            codec.write_error(&ir(error), &mut out);
            out.finish().0
        }
        None => serde_json::json!({ "error": error.to_dto() }).to_string(),
    }
}

/// An error of ours as a vendor's.
pub(crate) fn ir(error: &AbpError) -> IrError {
    let status = error.code().http_status();
    let code = serde_json::Value::from(error.code().as_str()).to_string();
    IrError {
        kind: kind(status),
        status: Some(status),
        message: error.message().to_owned().into(),
        native: None,
        code: Some(RawJson::trusted(code).into()),
        param: None,
        request_id: None,
        vendor: Vec::new(),
    }
}

fn kind(status: u16) -> IrErrorKind {
    match status {
        400 | 405 | 408 | 415 | 422 => IrErrorKind::InvalidRequest,
        401 => IrErrorKind::Authentication,
        402 => IrErrorKind::Billing,
        403 => IrErrorKind::Permission,
        404 => IrErrorKind::NotFound,
        409 => IrErrorKind::Conflict,
        413 => IrErrorKind::TooLarge,
        429 => IrErrorKind::RateLimit,
        503 | 529 => IrErrorKind::Overloaded,
        504 => IrErrorKind::Timeout,
        _ => IrErrorKind::Server,
    }
}
