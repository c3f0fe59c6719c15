//! Spans and metrics as OTLP in JSON: <https://opentelemetry.io/docs/specs/otlp/>, version 1.
//!
//! Written by hand: the OpenTelemetry crates would add more than fifty packages for two documents. Numbers of
//! 64 bits are strings and ids are hexadecimal, as the protocol's own JSON mapping wants.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use crate::trace::hex;
use crate::{DurationSummary, FinishedSpan, MetricsSummary, SpanKind, SpanValue};

const SCOPE: &str = "agent-backplane";
/// Counters grow from the start of the process on: `AGGREGATION_TEMPORALITY_CUMULATIVE`.
const CUMULATIVE: u32 = 2;
const STATUS_ERROR: u32 = 2;

/// A request with spans, for `/v1/traces`.
#[must_use]
pub fn encode_spans(spans: &[FinishedSpan]) -> String {
    let spans: Vec<Value> = spans.iter().map(span).collect();
    json!({
        "resourceSpans": [{
            "resource": resource(),
            "scopeSpans": [{ "scope": scope(), "spans": spans }],
        }]
    })
    .to_string()
}

/// A request with everything that was counted since `start`, for `/v1/metrics`.
#[must_use]
pub fn encode_metrics(summary: &MetricsSummary, start: SystemTime, now: SystemTime) -> String {
    let mut metrics = Metrics {
        start: nanos(start),
        now: nanos(now),
        all: Vec::new(),
    };
    let control = &summary.control;
    metrics.gauge("abp.queue.depth", "{run}", control.queue_depth);
    metrics.gauge("abp.queue.oldest_wait", "ms", control.oldest_wait_ms);
    metrics.gauge("abp.runs.running", "{run}", control.running);
    metrics.gauge("abp.followers", "{follower}", control.followers);
    metrics.sum("abp.lease.losses", "{lease}", control.lease_losses);
    metrics.sum("abp.spans.dropped", "{span}", control.spans_dropped);
    metrics.runs(summary);
    metrics.exchanges(summary);
    json!({
        "resourceMetrics": [{
            "resource": resource(),
            "scopeMetrics": [{ "scope": scope(), "metrics": metrics.all }],
        }]
    })
    .to_string()
}

/// Metrics on their way into a request.
struct Metrics {
    start: String,
    now: String,
    all: Vec<Value>,
}

impl Metrics {
    fn gauge(&mut self, name: &str, unit: &str, value: u64) {
        let points = [json!({ "timeUnixNano": self.now, "asInt": value.to_string() })];
        self.all
            .push(json!({ "name": name, "unit": unit, "gauge": { "dataPoints": points } }));
    }

    fn sum(&mut self, name: &str, unit: &str, value: u64) {
        let point = self.counted(value, &[]);
        self.sums(name, unit, &[point]);
    }

    fn sums(&mut self, name: &str, unit: &str, points: &[Value]) {
        self.all.push(json!({
            "name": name,
            "unit": unit,
            "sum": {
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": true,
                "dataPoints": points,
            },
        }));
    }

    fn counted(&self, value: u64, labels: &[(&str, &str)]) -> Value {
        json!({
            "startTimeUnixNano": self.start,
            "timeUnixNano": self.now,
            "attributes": texts(labels),
            "asInt": value.to_string(),
        })
    }

    fn runs(&mut self, summary: &MetricsSummary) {
        let mut points = Vec::new();
        for (backend, run) in &summary.runs {
            for (outcome, count) in [
                ("complete", run.complete),
                ("partial", run.partial),
                ("failed", run.failed),
                ("cancelled", run.cancelled),
            ] {
                let labels = [
                    ("gen_ai.agent.name", backend.as_str()),
                    ("abp.outcome", outcome),
                ];
                points.push(self.counted(count, &labels));
            }
        }
        self.sums("abp.runs", "{run}", &points);
        let runs = summary.runs.iter();
        let durations = runs.map(|(name, run)| (name, &run.duration));
        let points = self.histograms("gen_ai.agent.name", durations);
        self.histogram("abp.run.duration", &points);
    }

    fn exchanges(&mut self, summary: &MetricsSummary) {
        let upstreams = summary.upstreams.iter();
        let durations = upstreams.map(|(name, one)| (name, &one.duration));
        let points = self.histograms("abp.upstream", durations);
        self.histogram("gen_ai.client.operation.duration", &points);
        let mut points = Vec::new();
        for (model, one) in &summary.models {
            for (kind, count) in [("input", one.tokens.input), ("output", one.tokens.output)] {
                let labels = [
                    ("gen_ai.request.model", model.as_str()),
                    ("gen_ai.token.type", kind),
                ];
                points.push(self.counted(count, &labels));
            }
        }
        self.sums("abp.tokens", "{token}", &points);
    }

    fn histogram(&mut self, name: &str, points: &[Value]) {
        self.all.push(json!({
            "name": name,
            "unit": "s",
            "histogram": { "aggregationTemporality": CUMULATIVE, "dataPoints": points },
        }));
    }

    fn histograms<'s>(
        &self,
        label: &str,
        series: impl Iterator<Item = (&'s String, &'s DurationSummary)>,
    ) -> Vec<Value> {
        series
            .map(|(name, durations)| {
                let (bounds, counts) = buckets(durations);
                json!({
                    "startTimeUnixNano": self.start,
                    "timeUnixNano": self.now,
                    "attributes": texts(&[(label, name.as_str())]),
                    "count": durations.count.to_string(),
                    "sum": durations.sum.as_secs_f64(),
                    "explicitBounds": bounds,
                    "bucketCounts": counts,
                })
            })
            .collect()
    }
}

/// The upper bounds, and the counts between them with the one above the last.
fn buckets(durations: &DurationSummary) -> (Vec<f64>, Vec<String>) {
    let mut below = 0;
    let (mut bounds, mut counts) = (Vec::new(), Vec::new());
    for (bound, up_to) in &durations.below {
        bounds.push(bound.as_secs_f64());
        counts.push(up_to.saturating_sub(below).to_string());
        below = *up_to;
    }
    counts.push(durations.count.saturating_sub(below).to_string());
    (bounds, counts)
}

fn span(span: &FinishedSpan) -> Value {
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    let attributes: Vec<Value> = span
        .attributes
        .iter()
        .map(|(key, value)| json!({ "key": key, "value": any_value(value) }))
        .collect();
    let status = match &span.error {
        Some(error) => json!({ "code": STATUS_ERROR, "message": error }),
        None => json!({}),
    };
    let mut written = json!({
        "traceId": hex(&span.context.trace_id),
        "spanId": hex(&span.context.span_id),
        "name": span.name,
        "kind": kind,
        "startTimeUnixNano": nanos(span.started_at),
        "endTimeUnixNano": nanos(span.ended_at),
        "attributes": attributes,
        "status": status,
    });
    if let (Some(parent), Some(members)) = (span.parent, written.as_object_mut()) {
        members.insert("parentSpanId".to_owned(), json!(hex(&parent)));
    }
    written
}

fn any_value(value: &SpanValue) -> Value {
    match value {
        SpanValue::Text(text) => json!({ "stringValue": text }),
        SpanValue::Number(number) => json!({ "intValue": number.to_string() }),
        SpanValue::Float(number) => json!({ "doubleValue": number }),
    }
}

fn texts(labels: &[(&str, &str)]) -> Vec<Value> {
    let text =
        |(key, value): &(&str, &str)| json!({ "key": key, "value": { "stringValue": value } });
    labels.iter().map(text).collect()
}

fn resource() -> Value {
    let attributes = texts(&[
        ("service.name", "abp"),
        ("service.version", env!("CARGO_PKG_VERSION")),
    ]);
    json!({ "attributes": attributes })
}

fn scope() -> Value {
    json!({ "name": SCOPE, "version": env!("CARGO_PKG_VERSION") })
}

fn nanos(time: SystemTime) -> String {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    since.as_nanos().to_string()
}
