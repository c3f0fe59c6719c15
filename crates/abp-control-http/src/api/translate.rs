//! Translation of one document to every dialect at once.

use abp_dialect::Dialect;
use abp_translate::{FidelityLevel, LedgerEntry};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// A document to be translated to every other dialect, without being sent anywhere.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TranslateAllRequest {
    /// The dialect of the document.
    #[schemars(with = "String")]
    pub from: Dialect,
    /// What the document is; a request where nothing is said.
    #[serde(default)]
    pub kind: TranslationInput,
    /// Whether a translation that loses something is refused.
    #[serde(default)]
    pub reject_losses: bool,
    /// The document.
    #[schemars(with = "serde_json::Map<String, serde_json::Value>")]
    pub document: Box<RawValue>,
}

/// What a document is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TranslationInput {
    /// A request to a model.
    #[default]
    Request,
    /// The answer of a model, in one piece.
    Response,
    /// An error of a vendor.
    Error,
}

/// A document in every other dialect.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TranslationReport {
    /// The dialect it was in.
    pub from: String,
    /// One result for each other dialect.
    pub results: Vec<TranslationResult>,
}

/// A document in another dialect, or why it cannot be.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TranslationResult {
    /// The dialect.
    pub to: String,
    /// How true the translation is; absent where there is none.
    pub fidelity: Option<FidelityLevel>,
    /// The document; absent where there is none.
    #[schemars(with = "Option<serde_json::Value>")]
    pub output: Option<Box<RawValue>>,
    /// What became of each part of the source.
    pub ledger: Vec<LedgerEntry>,
    /// Why there is no translation.
    pub failure: Option<TranslationFailure>,
}

/// Why a document cannot be translated.
#[derive(Debug, Serialize, JsonSchema)]
pub struct TranslationFailure {
    /// The machine-readable code.
    pub code: abp_error::ErrorCode,
    /// What is wrong.
    pub message: String,
}
