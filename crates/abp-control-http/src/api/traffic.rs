//! Traffic through the gateway: exchanges, what they used and cost over time, and what translation lost.

use abp_core::{ExecutionMode, Outcome, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use uuid::Uuid;

/// Which exchanges to list, newest first.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ExchangesQuery {
    /// How many.
    #[serde(default)]
    #[schemars(range(min = 1, max = 1000))]
    pub limit: Option<u32>,
    /// The `next` of the page before.
    #[serde(default)]
    pub cursor: Option<String>,
    /// Only those of this key.
    #[serde(default)]
    pub principal: Option<String>,
    /// Only those that this upstream answered.
    #[serde(default)]
    pub upstream: Option<String>,
    /// Only those that asked for this model.
    #[serde(default)]
    pub model: Option<String>,
    /// Only those whose caller spoke this dialect.
    #[serde(default)]
    pub dialect: Option<String>,
    /// Only those that succeeded, or only those that did not.
    #[serde(default)]
    pub succeeded: Option<bool>,
    /// Only those in which translation lost something, or only those in which it lost nothing.
    #[serde(default)]
    pub lossy: Option<bool>,
    /// Only those that began at most so many hours ago.
    #[serde(default)]
    #[schemars(range(min = 1, max = 87_600))]
    pub hours: Option<u32>,
}

/// A page of exchanges.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ExchangePage {
    /// The exchanges, newest first.
    pub exchanges: Vec<ExchangeView>,
    /// The cursor of the next page; absent on the last one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// One request through the gateway.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct ExchangeView {
    /// Its id; its receipt is at `/receipts/{id}`.
    pub id: Uuid,
    /// The key that made it.
    pub principal: String,
    /// When the request came.
    pub started_at: Timestamp,
    /// How long it took, in microseconds.
    pub duration_us: u64,
    /// How long the first byte of the answer took, in microseconds.
    #[serde(default)]
    pub first_byte_us: Option<u64>,
    /// The dialect of the caller.
    pub dialect: String,
    /// The upstream that answered.
    pub upstream: String,
    /// The dialect of the upstream.
    #[serde(default)]
    pub upstream_dialect: String,
    /// The model the caller named.
    pub model: String,
    /// The model the upstream was asked for.
    #[serde(default)]
    pub model_sent: String,
    /// Whether the request was carried as it is or translated.
    #[serde(default)]
    pub mode: ExecutionMode,
    /// Whether the answer came as a stream.
    #[serde(default)]
    pub is_streamed: bool,
    /// How many entries of the ledger tell of a loss.
    #[serde(default)]
    pub losses: u64,
    /// The HTTP status of the answer; 0 where there was none.
    pub status: u16,
    /// How it ended.
    pub outcome: Outcome,
    /// Why it failed.
    pub error_code: Option<String>,
    /// Tokens read.
    #[serde(default)]
    pub input_tokens: Option<u64>,
    /// Tokens written.
    #[serde(default)]
    pub output_tokens: Option<u64>,
    /// What it cost, in dollars.
    pub cost_usd: Option<f64>,
}

/// What to draw a series for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SeriesBy {
    /// One series for each key.
    Key,
    /// One series for each model.
    Model,
    /// One series for each upstream.
    Upstream,
    /// One series for everything.
    #[default]
    Total,
}

/// Which usage to report over time.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct SeriesQuery {
    /// What a series is of.
    #[serde(default)]
    pub by: Option<SeriesBy>,
    /// How many hours back; 24 where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 8_760))]
    pub hours: Option<u32>,
    /// Into how many equal times they are divided; 48 where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 500))]
    pub points: Option<u32>,
}

/// Usage over time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UsageSeriesReport {
    /// When the first point begins.
    pub since: Timestamp,
    /// The time of a point, in seconds.
    pub point_secs: u64,
    /// The series, the one with the most requests first.
    pub series: Vec<UsageSeries>,
    /// How many exchanges were counted.
    pub counted: u64,
    /// Whether every exchange of the time was counted. Only the newest are, where there are very many.
    pub is_complete: bool,
}

/// The usage of one key, model or upstream over time.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UsageSeries {
    /// The key, model or upstream; `total` for everything.
    pub name: String,
    /// All points together.
    pub total: UsagePoint,
    /// The points, oldest first, those without exchanges included.
    pub points: Vec<UsagePoint>,
}

/// What was used in one time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct UsagePoint {
    /// Exchanges that began.
    pub requests: u64,
    /// Those of them that did not succeed.
    pub failed: u64,
    /// Tokens read.
    pub input_tokens: u64,
    /// Tokens written.
    pub output_tokens: u64,
    /// What they cost, in dollars.
    pub cost_usd: f64,
    /// The duration that half of them kept below, in microseconds.
    pub p50_us: Option<u64>,
    /// The duration that 95 of 100 kept below, in microseconds.
    pub p95_us: Option<u64>,
}

/// Over which time to count losses.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LossesQuery {
    /// How many hours back; 24 where nothing is said.
    #[serde(default)]
    #[schemars(range(min = 1, max = 8_760))]
    pub hours: Option<u32>,
}

/// What translation lost, by field and pair of dialects.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct LossReport {
    /// The losses, the most frequent first, at most 500.
    pub losses: Vec<FieldLoss>,
    /// How many exchanges were looked at.
    pub counted: u64,
    /// Whether every exchange of the time was.
    pub is_complete: bool,
}

/// What became of one field between two dialects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldLoss {
    /// The dialect of the caller.
    pub from: String,
    /// The dialect of the upstream.
    pub to: String,
    /// The field, as a JSON pointer that begins with `/request` or `/answer`; positions in lists are `*`.
    pub field: String,
    /// What happened: `dropped`, `degraded`, `emulated`, …
    pub action: String,
    /// Why.
    pub reason: Option<String>,
    /// In how many exchanges.
    pub exchanges: u64,
}

/// The upstreams.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamPage {
    /// The upstreams, in the order of the configuration.
    pub upstreams: Vec<UpstreamView>,
}

/// A model API behind the gateway.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
pub struct UpstreamView {
    /// Its name.
    pub name: String,
    /// The dialects it speaks.
    pub dialects: Vec<String>,
    /// The models it serves, as configured; none means all.
    pub models: Vec<String>,
    /// The state of its circuit breaker: `closed` where it is used, `open` in cooldown, `half_open`.
    pub circuit: String,
    /// How long the cooldown lasts, in milliseconds.
    pub retry_in_ms: Option<u64>,
}
