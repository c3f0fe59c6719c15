//! Answers and errors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{IrMessage, IrUsage, IrVendorField, Leaf, Origin, RawJson};

/// A model's answer.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct IrResponse {
    /// The answer's id.
    pub id: Option<Leaf<String>>,
    /// The model that gave it.
    pub model: Option<Leaf<String>>,
    /// When, as seconds since 1970.
    pub created: Option<Leaf<RawJson>>,
    /// The answers; one unless more were asked for.
    pub choices: Vec<IrChoice>,
    /// What they used.
    pub usage: Option<IrUsage>,
    /// What only the source's dialect knows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
}

/// One of the answers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrChoice {
    /// Its number.
    pub index: u32,
    /// What was said.
    pub message: IrMessage,
    /// Why it ended; `None` where it did not, or nobody says.
    pub finish: Option<IrFinish>,
    /// What only the source's dialect knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
    /// The answer in the source.
    #[serde(skip)]
    pub origin: Origin,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrFinish {
    /// The reason.
    pub reason: IrFinishReason,
    /// The source's word for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Leaf<String>>,
    /// The stop sequence that was met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_sequence: Option<Leaf<String>>,
    /// More about it, in the source's form.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub details: Option<Leaf<RawJson>>,
}

impl IrFinish {
    /// A reason that the source gave in its own word.
    #[must_use]
    pub fn new(reason: IrFinishReason, native: Option<Leaf<String>>) -> Self {
        Self {
            reason,
            native,
            stop_sequence: None,
            details: None,
        }
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrFinishReason {
    /// The model was done.
    Stop,
    /// A stop sequence was met.
    StopSequence,
    /// A limit of tokens was met.
    Length,
    /// A tool is to be called.
    ToolUse,
    /// The vendor's filter stepped in.
    ContentFilter,
    /// The model declined.
    Refusal,
    /// The vendor paused a long turn; it wants to be asked again.
    Pause,
    /// The answer is not usable: a malformed call, a failure.
    Error,
    /// The answer broke off; nobody knows why.
    Incomplete,
    /// A reason that exists in one dialect only.
    Other,
}

/// A vendor's error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct IrError {
    /// What kind of error it is.
    pub kind: IrErrorKind,
    /// The HTTP status, where it is known.
    pub status: Option<u16>,
    /// What the vendor says.
    pub message: Leaf<String>,
    /// The vendor's word for the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub native: Option<Leaf<String>>,
    /// The vendor's code, where it has one besides the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Leaf<RawJson>>,
    /// The parameter that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<Leaf<String>>,
    /// The vendor's id of the request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<Leaf<String>>,
    /// What only the source's dialect knows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub vendor: Vec<IrVendorField>,
}

/// What kind of error it is; each has one HTTP status in each dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IrErrorKind {
    /// 400: the request is wrong.
    InvalidRequest,
    /// 401: nobody we know.
    Authentication,
    /// 402: the bill.
    Billing,
    /// 403: not allowed.
    Permission,
    /// 404: not there.
    NotFound,
    /// 409: in the way of something else.
    Conflict,
    /// 413: too large.
    TooLarge,
    /// 429: too often.
    RateLimit,
    /// 500: the vendor's fault.
    Server,
    /// 503 or 529: too many at once.
    Overloaded,
    /// 504: too slow.
    Timeout,
    /// Anything else.
    Other,
}

impl IrErrorKind {
    /// What an HTTP status says of an error, where no word of its vendor says more.
    #[must_use]
    pub fn of_status(status: u16) -> Self {
        match status {
            401 => Self::Authentication,
            402 => Self::Billing,
            403 => Self::Permission,
            404 => Self::NotFound,
            409 => Self::Conflict,
            413 => Self::TooLarge,
            429 => Self::RateLimit,
            503 | 529 => Self::Overloaded,
            408 | 504 => Self::Timeout,
            400..=499 => Self::InvalidRequest,
            500..=599 => Self::Server,
            _ => Self::Other,
        }
    }
}
