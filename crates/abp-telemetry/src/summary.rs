//! What was counted, at one moment.

use std::collections::BTreeMap;
use std::time::Duration;

use abp_core::ExecutionMode;
use serde::{Serialize, Serializer};

use crate::{BreakerLevel, OTHER, RouteFamily, StatusClass, TokenCounts};

/// Everything that was counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct MetricsSummary {
    /// Runs by backend.
    pub runs: BTreeMap<String, RunSummary>,
    /// Exchanges by upstream.
    pub upstreams: BTreeMap<String, UpstreamSummary>,
    /// What exchanges used, by model.
    pub models: BTreeMap<String, ModelSummary>,
    /// The room that records of exchanges take.
    pub ring: RingSummary,
    /// The queue of runs, and who follows them.
    pub control: ControlSummary,
}

/// The queue of runs, and who follows them: what a process knows of it at the moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct ControlSummary {
    /// Runs that wait to be carried out, by any process.
    pub queue_depth: u64,
    /// How long the oldest of them has waited, in milliseconds.
    pub oldest_wait_ms: u64,
    /// Runs that this process carries out.
    pub running: u64,
    /// Readers that follow runs in this process.
    pub followers: u64,
    /// Runs that this process lost to another.
    pub lease_losses: u64,
    /// Spans that could not be sent, or for which there was no room.
    pub spans_dropped: u64,
}

/// The runs on a backend.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunSummary {
    /// How many there were.
    pub count: u64,
    /// How many did their work.
    pub complete: u64,
    /// How many were stopped by a limit.
    pub partial: u64,
    /// How many failed.
    pub failed: u64,
    /// How many were stopped by somebody.
    pub cancelled: u64,
    /// How long they took.
    pub duration: DurationSummary,
    /// How many events they had.
    pub events: u64,
    /// The tokens they used.
    pub tokens: TokenCounts,
    /// What they cost, in dollars.
    pub cost_usd: f64,
}

/// The exchanges with an upstream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct UpstreamSummary {
    /// How many there were, by what they were and how they ended.
    pub requests: Vec<RequestCount>,
    /// How long they took.
    pub duration: DurationSummary,
    /// How long they took until the answer began.
    pub first_byte: DurationSummary,
    /// How many are going on.
    pub in_flight: u64,
    /// The pieces of their streams.
    pub chunks: u64,
    /// How often requests were sent again.
    pub retries: u64,
    /// Whether it is asked.
    pub breaker: BreakerLevel,
}

impl UpstreamSummary {
    /// The others are only told of where there were any.
    pub(crate) fn is_told(&self, name: &str) -> bool {
        name != OTHER || !self.requests.is_empty() || self.in_flight > 0
    }
}

/// How many exchanges of a kind there were.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct RequestCount {
    /// The kind of route.
    pub route: RouteFamily,
    /// Whether requests were carried as they were or translated.
    pub mode: ExecutionMode,
    /// What callers got.
    pub status: StatusClass,
    /// How many.
    pub count: u64,
}

/// What the exchanges with a model used.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct ModelSummary {
    /// Tokens.
    pub tokens: TokenCounts,
    /// Dollars.
    pub cost_usd: f64,
}

/// The room that records of exchanges take before they are written.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct RingSummary {
    /// In use.
    pub used_bytes: u64,
    /// In all.
    pub capacity_bytes: u64,
}

/// How long things took. A percentile is at most an eighth too high. On the wire: seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct DurationSummary {
    /// How many there were.
    pub count: u64,
    /// All of them together.
    #[serde(serialize_with = "seconds")]
    pub sum: Duration,
    /// Half of them took no longer.
    #[serde(serialize_with = "seconds")]
    pub p50: Duration,
    /// Nineteen of twenty took no longer.
    #[serde(serialize_with = "seconds")]
    pub p95: Duration,
    /// Ninety-nine of a hundred took no longer.
    #[serde(serialize_with = "seconds")]
    pub p99: Duration,
    /// How many took less than each of these.
    #[serde(skip)]
    pub below: Vec<(Duration, u64)>,
}

fn seconds<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(duration.as_secs_f64())
}
