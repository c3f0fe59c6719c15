//! What only an exchange with a model's API has.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One request to a model's API through the gateway, and its answer.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeReport {
    /// Whose key it was.
    pub principal: String,
    /// What was asked for: `generate` or `count_tokens`.
    pub operation: String,
    /// The dialect the caller spoke.
    pub caller_dialect: String,
    /// The dialect the upstream was asked in.
    pub upstream_dialect: String,
    /// The model, as the caller named it.
    pub model_asked: String,
    /// The model, as the upstream was asked for it.
    pub model_sent: String,
    /// Whether the answer was a stream.
    pub streamed: bool,
    /// The HTTP status of the upstream; 0 where it gave none.
    pub status: u16,
    /// How often the request was sent.
    pub attempts: u8,
    /// When the answer began, in microseconds after the request came.
    pub first_byte_us: Option<u64>,
    /// The hash of the request as it came.
    pub request_sha256: String,
    /// The hash of the request as it was sent; the same where nothing was changed.
    pub sent_sha256: String,
    /// The hash of the answer as it came.
    pub received_sha256: String,
    /// The hash of the answer as it was given on; the same where nothing was changed.
    pub delivered_sha256: String,
    /// The bytes of the request.
    pub request_bytes: u64,
    /// The bytes that were given on.
    pub response_bytes: u64,
    /// Nobody counted the tokens; the usage is an estimate.
    pub usage_is_estimate: bool,
    /// The caller went away before the end.
    pub client_closed: bool,
    /// What ABP made up for.
    #[serde(default)]
    pub emulated: Vec<String>,
    /// The hash of the ledger.
    #[serde(default)]
    pub ledger_sha256: Option<String>,
    /// What did not simply arrive, of request and answer, with its fate.
    #[serde(default)]
    pub ledger: Value,
}
