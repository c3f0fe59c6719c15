//! A summary in the text form that Prometheus reads.
//!
//! Written by hand: a client library counts behind a lock and a hash of owned labels for every
//! observation, and all that it would save is this file.

use std::fmt::{Arguments, Display, Write};

use abp_core::ExecutionMode;

use crate::{BreakerLevel, DurationSummary, MetricsSummary, TelemetryExporter, TokenCounts};

/// The text form that Prometheus reads, version 0.0.4.
#[derive(Debug, Clone, Copy, Default)]
pub struct PrometheusExporter;

impl TelemetryExporter for PrometheusExporter {
    fn content_type(&self) -> &'static str {
        "text/plain; version=0.0.4; charset=utf-8"
    }

    fn export(&self, summary: &MetricsSummary) -> String {
        let mut out = Exposition(String::new());
        runs(summary, &mut out);
        upstreams(summary, &mut out);
        models(summary, &mut out);
        let gauges = [
            (
                "abp_ring_used_bytes",
                "Room that unwritten records take.",
                summary.ring.used_bytes,
            ),
            (
                "abp_ring_capacity_bytes",
                "Room for records.",
                summary.ring.capacity_bytes,
            ),
        ];
        for (name, help, value) in gauges {
            out.family(name, "gauge", help);
            out.sample(name, &[], value);
        }
        control(summary, &mut out);
        out.0
    }
}

/// What an autoscaler needs.
fn control(summary: &MetricsSummary, out: &mut Exposition) {
    let control = &summary.control;
    let gauges = [
        (
            "abp_queue_depth",
            "Runs that wait to be carried out.",
            control.queue_depth as f64,
        ),
        (
            "abp_queue_oldest_wait_seconds",
            "How long the oldest of them has waited.",
            control.oldest_wait_ms as f64 / 1e3,
        ),
        (
            "abp_runs_running",
            "Runs that this process carries out.",
            control.running as f64,
        ),
        (
            "abp_followers",
            "Readers that follow runs.",
            control.followers as f64,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(name, "gauge", help);
        out.sample(name, &[], value);
    }
    let counters = [
        (
            "abp_lease_losses_total",
            "Runs that this process lost to another.",
            control.lease_losses,
        ),
        (
            "abp_spans_dropped_total",
            "Spans that could not be sent.",
            control.spans_dropped,
        ),
    ];
    for (name, help, value) in counters {
        out.family(name, "counter", help);
        out.sample(name, &[], value);
    }
}

fn runs(summary: &MetricsSummary, out: &mut Exposition) {
    out.family("abp_runs_total", "counter", "Runs by backend and outcome.");
    for (backend, run) in &summary.runs {
        let outcomes = [
            ("complete", run.complete),
            ("partial", run.partial),
            ("failed", run.failed),
            ("cancelled", run.cancelled),
        ];
        for (outcome, count) in outcomes {
            let labels = [("backend", backend.as_str()), ("outcome", outcome)];
            out.sample("abp_runs_total", &labels, count);
        }
    }
    let durations = summary.runs.iter().map(|(name, run)| (name, &run.duration));
    out.durations(
        "abp_run_duration_seconds",
        "How long runs took.",
        "backend",
        durations,
    );
    let used = summary
        .runs
        .iter()
        .map(|(name, run)| (name, run.tokens, run.cost_usd));
    out.used("abp_run", "backend", used);
}

fn upstreams(summary: &MetricsSummary, out: &mut Exposition) {
    let all = || summary.upstreams.iter();
    let name = "abp_requests_total";
    out.family(
        name,
        "counter",
        "Requests by route, upstream, mode and status.",
    );
    for (upstream, one) in all() {
        for request in &one.requests {
            let mode = match request.mode {
                ExecutionMode::Passthrough => "passthrough",
                ExecutionMode::Mapped => "mapped",
            };
            let labels = [
                ("route", request.route.as_str()),
                ("upstream", upstream),
                ("mode", mode),
                ("status", request.status.as_str()),
            ];
            out.sample(name, &labels, request.count);
        }
    }
    let durations = all().map(|(name, one)| (name, &one.duration));
    let help = "How long requests took.";
    out.durations("abp_request_duration_seconds", help, "upstream", durations);
    let first_bytes = all().map(|(name, one)| (name, &one.first_byte));
    let help = "How long it took until an answer began.";
    out.durations("abp_first_byte_seconds", help, "upstream", first_bytes);
    out.family("abp_requests_in_flight", "gauge", "Requests going on.");
    for (upstream, one) in all() {
        out.sample(
            "abp_requests_in_flight",
            &[("upstream", upstream)],
            one.in_flight,
        );
    }
    out.family("abp_stream_chunks_total", "counter", "Pieces of streams.");
    for (upstream, one) in all() {
        out.sample(
            "abp_stream_chunks_total",
            &[("upstream", upstream)],
            one.chunks,
        );
    }
    out.family(
        "abp_retries_total",
        "counter",
        "Requests that were sent again.",
    );
    for (upstream, one) in all() {
        out.sample("abp_retries_total", &[("upstream", upstream)], one.retries);
    }
    let help = "Whether an upstream is asked: one of the states is 1.";
    out.family("abp_breaker_state", "gauge", help);
    for (upstream, one) in all() {
        for level in BreakerLevel::ALL {
            let labels = [("upstream", upstream.as_str()), ("state", level.as_str())];
            out.sample(
                "abp_breaker_state",
                &labels,
                u8::from(*level == one.breaker),
            );
        }
    }
}

fn models(summary: &MetricsSummary, out: &mut Exposition) {
    let used = summary
        .models
        .iter()
        .map(|(name, model)| (name, model.tokens, model.cost_usd));
    out.used("abp", "model", used);
}

struct Exposition(String);

impl Exposition {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        self.line(format_args!("# HELP {name} {help}"));
        self.line(format_args!("# TYPE {name} {kind}"));
    }

    fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        self.0.push_str(name);
        let mut before = '{';
        for (label, value) in labels {
            self.0.push(before);
            self.0.push_str(label);
            self.0.push_str("=\"");
            push_escaped(value, &mut self.0);
            self.0.push('"');
            before = ',';
        }
        let after = if labels.is_empty() { "" } else { "}" };
        self.line(format_args!("{after} {value}"));
    }

    fn durations<'s>(
        &mut self,
        name: &str,
        help: &str,
        label: &str,
        series: impl Iterator<Item = (&'s String, &'s DurationSummary)>,
    ) {
        self.family(name, "histogram", help);
        let bucket = format!("{name}_bucket");
        for (value, summary) in series {
            for (bound, count) in &summary.below {
                let bound = bound.as_secs_f64().to_string();
                self.sample(&bucket, &[(label, value), ("le", &bound)], count);
            }
            self.sample(&bucket, &[(label, value), ("le", "+Inf")], summary.count);
            let sum = summary.sum.as_secs_f64();
            self.sample(&format!("{name}_sum"), &[(label, value)], sum);
            self.sample(&format!("{name}_count"), &[(label, value)], summary.count);
        }
    }

    fn used<'s>(
        &mut self,
        prefix: &str,
        label: &str,
        series: impl Iterator<Item = (&'s String, TokenCounts, f64)>,
    ) {
        let (tokens, cost) = (
            format!("{prefix}_tokens_total"),
            format!("{prefix}_cost_dollars_total"),
        );
        let series: Vec<_> = series.collect();
        self.family(&tokens, "counter", "Tokens by kind.");
        for (value, counts, _) in &series {
            let kinds = [
                ("input", counts.input),
                ("output", counts.output),
                ("cache_read", counts.cache_read),
                ("cache_write", counts.cache_write),
            ];
            for (kind, count) in kinds {
                self.sample(&tokens, &[(label, value), ("kind", kind)], count);
            }
        }
        self.family(&cost, "counter", "Cost by the configured prices.");
        for (value, _, dollars) in &series {
            self.sample(&cost, &[(label, value)], dollars);
        }
    }

    fn line(&mut self, line: Arguments<'_>) {
        // Writing to a string does not fail.
        let _ = writeln!(self.0, "{line}");
    }
}

/// Appends a label's value, which may hold anything, for use within quotes.
fn push_escaped(value: &str, out: &mut String) {
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            plain => out.push(plain),
        }
    }
}
