//! The error that crosses crate boundaries, and its wire form.

use std::collections::BTreeMap;
use std::error::Error as StdError;
use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ErrorCode;

/// An error with a code, a message, structured context and, where there is one, its cause.
#[derive(Debug)]
pub struct AbpError {
    code: ErrorCode,
    message: String,
    context: BTreeMap<String, Value>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

impl AbpError {
    /// Makes an error from its code and a message (a lowercase fragment, without the cause).
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            context: BTreeMap::new(),
            source: None,
        }
    }

    /// Adds a named piece of context.
    #[must_use]
    pub fn with_context(mut self, key: impl Into<String>, value: impl Into<Value>) -> Self {
        self.context.insert(key.into(), value.into());
        self
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says which part of a request the error is about: a JSON pointer, or the name of a parameter.
    #[must_use]
    pub fn with_place(self, place: impl Into<String>) -> Self {
        self.with_context(PLACE, place.into())
    }

    /// The code.
    #[must_use]
    pub fn code(&self) -> ErrorCode {
        self.code
    }

    /// The message, without code and cause.
    #[must_use]
    pub fn message(&self) -> &str {
        &self.message
    }

    /// The structured context.
    #[must_use]
    pub fn context(&self) -> &BTreeMap<String, Value> {
        &self.context
    }

    /// The causes below this error, outermost first, as `a: b: c`; `None` where there is none.
    #[must_use]
    pub fn cause_chain(&self) -> Option<String> {
        let mut next = self.source.as_deref().map(|source| source as &dyn StdError);
        let mut chain = Vec::new();
        while let Some(cause) = next {
            chain.push(cause.to_string());
            next = cause.source();
        }
        (!chain.is_empty()).then(|| chain.join(": "))
    }

    /// The wire form.
    #[must_use]
    pub fn to_dto(&self) -> AbpErrorDto {
        AbpErrorDto {
            code: self.code,
            message: self.message.clone(),
            context: self.context.clone(),
            source_message: self.cause_chain(),
        }
    }
}

impl fmt::Display for AbpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl StdError for AbpError {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &dyn StdError)
    }
}

/// The form in which an error travels: in receipts, HTTP answers and `--json` output.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct AbpErrorDto {
    /// The machine-readable code.
    pub code: ErrorCode,
    /// What went wrong.
    pub message: String,
    /// Where and with what.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
    /// The chain of causes, outermost first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_message: Option<String>,
}

/// The key of the context that says which part of a request an error is about.
const PLACE: &str = "place";

/// The body of an HTTP answer that reports an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorBody {
    /// The error.
    pub error: ErrorDetail,
}

/// An error as HTTP answers carry it: with what to do about it, and which part of the request it is about.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ErrorDetail {
    /// The machine-readable code.
    pub code: ErrorCode,
    /// What went wrong.
    pub message: String,
    /// What to do about it.
    pub hint: String,
    /// The part of the request that is wrong: a JSON pointer into the body, or the name of a parameter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub place: Option<String>,
    /// Further details.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub context: BTreeMap<String, Value>,
    /// The chain of causes, outermost first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source_message: Option<String>,
}

impl From<&AbpError> for ErrorBody {
    fn from(error: &AbpError) -> Self {
        let dto = error.to_dto();
        let mut context = dto.context;
        let place = context.remove(PLACE);
        Self {
            error: ErrorDetail {
                code: dto.code,
                message: dto.message,
                hint: dto.code.remedy().to_owned(),
                place: place.and_then(|place| place.as_str().map(str::to_owned)),
                context,
                source_message: dto.source_message,
            },
        }
    }
}

impl From<ErrorBody> for AbpError {
    fn from(body: ErrorBody) -> Self {
        let detail = body.error;
        let mut error = Self {
            code: detail.code,
            message: detail.message,
            context: detail.context,
            source: detail.source_message.map(Into::into),
        };
        if let Some(place) = detail.place {
            error.context.insert(PLACE.to_owned(), Value::from(place));
        }
        error
    }
}

impl From<&AbpError> for AbpErrorDto {
    fn from(error: &AbpError) -> Self {
        error.to_dto()
    }
}

impl From<AbpErrorDto> for AbpError {
    fn from(dto: AbpErrorDto) -> Self {
        Self {
            code: dto.code,
            message: dto.message,
            context: dto.context,
            source: dto.source_message.map(Into::into),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn codes_are_read_in_both_spellings_and_written_in_one() {
        for code in ErrorCode::ALL {
            let wire = code.as_str();
            for spelling in [wire.to_owned(), wire.to_lowercase()] {
                let read: ErrorCode = serde_json::from_value(json!(spelling)).unwrap();
                assert_eq!(serde_json::to_value(read).unwrap(), json!(wire));
            }
            let duplicates = ErrorCode::ALL.iter().filter(|other| other.as_str() == wire);
            assert_eq!(duplicates.count(), 1, "{wire} is listed twice");
        }
        assert!("NO_SUCH_CODE".parse::<ErrorCode>().is_err());
    }

    #[test]
    fn an_error_survives_the_wire_with_its_chain() {
        let io = std::io::Error::other("disk on fire");
        let inner =
            AbpError::new(ErrorCode::WorkspaceStagingFailed, "cannot copy a.txt").with_source(io);
        let outer = AbpError::new(
            ErrorCode::WorkspaceInitFailed,
            "cannot prepare the workspace",
        )
        .with_context("root", "/src")
        .with_source(inner);
        let dto = outer.to_dto();
        assert_eq!(
            serde_json::to_value(&dto).unwrap(),
            json!({
                "code": "WORKSPACE_INIT_FAILED",
                "message": "cannot prepare the workspace",
                "context": {"root": "/src"},
                "source_message": "cannot copy a.txt: disk on fire",
            })
        );
        assert_eq!(AbpError::from(dto.clone()).to_dto(), dto);
    }
}
