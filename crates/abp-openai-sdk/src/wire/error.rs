//! What the vendor says of errors and of models.

use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::Extra;

/// The body of an error.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ErrorResponse {
    /// The error.
    pub error: ErrorObject,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// An error.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ErrorObject {
    /// What is wrong, for people.
    pub message: String,
    /// What kind of error it is.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// The member of the request that is wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub param: Option<String>,
    /// What is wrong, for programs: a word, or a number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<Value>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

impl fmt::Display for ErrorResponse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.error.kind {
            Some(kind) => write!(f, "{kind}: {}", self.error.message),
            None => f.write_str(&self.error.message),
        }
    }
}

/// A model that is served.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Model {
    /// Its name.
    pub id: String,
    /// When it was made, in seconds since 1970.
    #[serde(default)]
    pub created: u64,
    /// Whose it is.
    #[serde(default)]
    pub owned_by: String,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}

/// The models that are served.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ModelList {
    /// The models.
    pub data: Vec<Model>,
    /// Everything else.
    #[serde(flatten)]
    pub extra: Extra,
}
