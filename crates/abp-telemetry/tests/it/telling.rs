//! What exporters and spans write.

use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use abp_telemetry::{
    ExchangeMetrics, JsonExporter, MetricsCollector, PrometheusExporter, TelemetryExporter,
    TelemetrySpan,
};
use serde_json::{Value, json};

use crate::counting::{EXCHANGE, RUN};

fn collector() -> MetricsCollector {
    let collector = MetricsCollector::new(["house"]);
    collector.record(&RUN);
    collector.record_exchange(&EXCHANGE);
    let model = "a\"b\\c\nd";
    collector.record_exchange(&ExchangeMetrics { model, ..EXCHANGE });
    collector
}

#[test]
fn json_says_seconds_and_dollars() {
    let text = JsonExporter.export(&collector().summary());
    let told: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(told["runs"]["mock"]["duration"]["sum"], 2.0);
    assert_eq!(told["runs"]["mock"]["cost_usd"], 0.000_25);
    assert_eq!(told["upstreams"]["house"]["breaker"], "closed");
    let request = json!({"route": "messages", "mode": "mapped", "status": "2xx", "count": 2});
    assert_eq!(told["upstreams"]["house"]["requests"], json!([request]));
    assert_eq!(told["models"]["a\"b\\c\nd"]["tokens"]["input"], 10);
}

#[test]
fn prometheus_gets_its_form() {
    let text = PrometheusExporter.export(&collector().summary());
    for line in [
        "# TYPE abp_requests_total counter",
        r#"abp_requests_total{route="messages",upstream="house",mode="mapped",status="2xx"} 2"#,
        r#"abp_runs_total{backend="mock",outcome="complete"} 1"#,
        r#"abp_runs_total{backend="mock",outcome="failed"} 0"#,
        r#"abp_request_duration_seconds_bucket{upstream="house",le="0.065536"} 0"#,
        r#"abp_request_duration_seconds_bucket{upstream="house",le="0.131072"} 2"#,
        r#"abp_request_duration_seconds_bucket{upstream="house",le="+Inf"} 2"#,
        r#"abp_request_duration_seconds_sum{upstream="house"} 0.2"#,
        r#"abp_request_duration_seconds_count{upstream="house"} 2"#,
        r#"abp_first_byte_seconds_count{upstream="house"} 2"#,
        r#"abp_requests_in_flight{upstream="house"} 0"#,
        r#"abp_stream_chunks_total{upstream="house"} 14"#,
        r#"abp_retries_total{upstream="house"} 2"#,
        r#"abp_breaker_state{upstream="house",state="closed"} 1"#,
        r#"abp_breaker_state{upstream="house",state="open"} 0"#,
        r#"abp_tokens_total{model="claude-opus-4-8",kind="cache_read"} 4"#,
        r#"abp_tokens_total{model="a\"b\\c\nd",kind="input"} 10"#,
        r#"abp_cost_dollars_total{model="claude-opus-4-8"} 0.00025"#,
        "abp_ring_used_bytes 0",
    ] {
        assert!(
            text.lines().any(|one| one == line),
            "{line} is not in\n{text}"
        );
    }
    let mut described = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let name = rest.split(' ').next().unwrap();
            assert!(described.insert(name), "{name} is described twice");
        } else if !line.starts_with('#') {
            let name = line.split(['{', ' ']).next().unwrap();
            let base = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| name.strip_suffix(end));
            let known =
                described.contains(name) || base.is_some_and(|base| described.contains(base));
            assert!(known, "{name} is not described before it is told");
            line.rsplit(' ')
                .next()
                .unwrap()
                .parse::<f64>()
                .expect("a number");
        }
    }
}

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[test]
fn a15_a_span_is_one_line_whatever_it_holds() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_writer(move || writer.clone())
        .finish();
    tracing::subscriber::with_default(subscriber, || {
        let mut span = TelemetrySpan::start("exchange");
        span.set("model", "a\r\n\u{1b}[31m\u{202e}b");
        span.set("status", 200);
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(!text.contains(['\u{1b}', '\r', '\u{202e}']), "{text:?}");
    for part in [
        "abp.span",
        "name=\"exchange\"",
        "duration_us=",
        "\"status\":200",
        "\\u{202e}b",
    ] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
}
