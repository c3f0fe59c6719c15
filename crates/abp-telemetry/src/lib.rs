//! What runs and exchanges cost and how long they take, counted while they happen.
//!
//! [`MetricsCollector`] counts; its [`MetricsSummary`] is what [`TelemetryExporter`]s write, as
//! JSON or for Prometheus. [`TelemetrySpan`] tells the log of one piece of work; a [`SpanQueue`] holds those
//! that go to a collector, in the form of [`encode_spans`]. [`redact`] and
//! [`escape_for_log`] make foreign text fit for a log.
//!
//! Counting takes no lock and allocates nothing once a name is known. Names that callers choose are
//! few: of more than [`MAX_NAMES`], and of those that nobody ever answered for, all share the name
//! [`OTHER`]. No prompt, key or address is ever a label.

mod collector;
mod export;
mod histogram;
mod measure;
mod names;
mod otlp;
mod prometheus;
mod redact;
mod span;
mod spans;
mod summary;
mod trace;

pub use collector::{Following, InFlight, MetricsCollector};
pub use export::{JsonExporter, TelemetryExporter};
pub use measure::{
    BreakerLevel, ExchangeMetrics, RouteFamily, RunMetrics, StatusClass, TokenCounts,
};
pub use names::{MAX_NAMES, OTHER};
pub use otlp::{encode_metrics, encode_spans};
pub use prometheus::PrometheusExporter;
pub use redact::{escape_for_log, redact};
pub use span::TelemetrySpan;
pub use spans::{FinishedSpan, SpanKind, SpanQueue, SpanValue};
pub use summary::{
    ControlSummary, DurationSummary, MetricsSummary, ModelSummary, RequestCount, RingSummary,
    RunSummary, UpstreamSummary,
};
pub use trace::TraceContext;
