//! Traces and metrics reach a collector over HTTP, in the form that the protocol prescribes, and never hold
//! anything back.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::desk::{Desk, Ran};
use crate::served::Served;

const CALLER: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The documents of OTLP, as strict as its JSON mapping: nothing unknown, 64 bits as strings, ids as hex.
mod otlp {
    use serde::Deserialize;

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Traces {
        pub(super) resource_spans: Vec<ResourceSpans>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct ResourceSpans {
        pub(super) resource: Resource,
        pub(super) scope_spans: Vec<ScopeSpans>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Resource {
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct ScopeSpans {
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) scope: Scope,
        pub(super) spans: Vec<Span>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    #[expect(dead_code, reason = "only its form matters")]
    pub(super) struct Scope {
        pub(super) name: String,
        pub(super) version: String,
    }

    #[derive(Deserialize, Clone, Debug)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Span {
        pub(super) trace_id: String,
        pub(super) span_id: String,
        pub(super) parent_span_id: Option<String>,
        pub(super) name: String,
        pub(super) kind: u8,
        pub(super) start_time_unix_nano: String,
        pub(super) end_time_unix_nano: String,
        pub(super) attributes: Vec<KeyValue>,
        pub(super) status: Status,
    }

    #[derive(Deserialize, Clone, Debug)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Status {
        pub(super) code: Option<u8>,
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) message: Option<String>,
    }

    #[derive(Deserialize, Clone, Debug)]
    #[serde(deny_unknown_fields)]
    pub(super) struct KeyValue {
        pub(super) key: String,
        pub(super) value: AnyValue,
    }

    #[derive(Deserialize, Clone, Debug, PartialEq)]
    #[serde(deny_unknown_fields)]
    pub(super) enum AnyValue {
        #[serde(rename = "stringValue")]
        Text(String),
        #[serde(rename = "intValue")]
        Int(String),
        #[serde(rename = "doubleValue")]
        Double(f64),
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Metrics {
        pub(super) resource_metrics: Vec<ResourceMetrics>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct ResourceMetrics {
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) resource: Resource,
        pub(super) scope_metrics: Vec<ScopeMetrics>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct ScopeMetrics {
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) scope: Scope,
        pub(super) metrics: Vec<Metric>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields)]
    pub(super) struct Metric {
        pub(super) name: String,
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) unit: String,
        pub(super) gauge: Option<Points<NumberPoint>>,
        pub(super) sum: Option<Points<NumberPoint>>,
        pub(super) histogram: Option<Points<HistogramPoint>>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct Points<P> {
        pub(super) data_points: Vec<P>,
        pub(super) aggregation_temporality: Option<u8>,
        pub(super) is_monotonic: Option<bool>,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct NumberPoint {
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) start_time_unix_nano: Option<String>,
        pub(super) time_unix_nano: String,
        #[serde(default)]
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) attributes: Vec<KeyValue>,
        pub(super) as_int: String,
    }

    #[derive(Deserialize)]
    #[serde(deny_unknown_fields, rename_all = "camelCase")]
    pub(super) struct HistogramPoint {
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) start_time_unix_nano: String,
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) time_unix_nano: String,
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) attributes: Vec<KeyValue>,
        pub(super) count: String,
        #[expect(dead_code, reason = "only its form matters")]
        pub(super) sum: f64,
        pub(super) explicit_bounds: Vec<f64>,
        pub(super) bucket_counts: Vec<String>,
    }
}

/// A request that the collector got: its path, its head and its body.
struct Posted {
    path: String,
    head: String,
    body: Value,
}

/// A collector on a port of its own, which answers every document with success.
struct Collector {
    address: String,
    posted: Receiver<Posted>,
}

impl Collector {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let (sender, posted) = channel();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let sender = sender.clone();
                std::thread::spawn(move || serve(&stream, &sender));
            }
        });
        Self { address, posted }
    }

    /// What comes to a path until the condition holds.
    fn until<T>(&self, path: &str, mut found: impl FnMut(&Posted) -> Option<T>) -> T {
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let posted = self.posted.recv_timeout(left).expect("a document in time");
            if posted.path == path
                && let Some(found) = found(&posted)
            {
                return found;
            }
        }
    }

    /// The first span with that beginning of a name.
    fn span(&self, name: &str) -> otlp::Span {
        self.until("/otlp/v1/traces", |posted| {
            let traces = otlp::Traces::deserialize(&posted.body).unwrap();
            let [resource] = traces.resource_spans.as_slice() else {
                panic!("one resource")
            };
            assert_eq!(resource.resource.attributes[0].key, "service.name");
            let spans = resource.scope_spans.iter().flat_map(|scope| &scope.spans);
            let mut spans = spans.filter(|span| span.name.starts_with(name));
            spans.next().cloned()
        })
    }
}

fn serve(stream: &TcpStream, sender: &Sender<Posted>) {
    let mut reader = BufReader::new(stream);
    loop {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if reader.read_line(&mut head).unwrap_or(0) == 0 {
                return;
            }
        }
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().unwrap())
        });
        let mut body = vec![0; length.unwrap()];
        reader.read_exact(&mut body).unwrap();
        let path = head.split(' ').nth(1).unwrap().to_owned();
        let body = serde_json::from_slice(&body).unwrap();
        drop(sender.send(Posted { path, head, body }));
        let answer =
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
        let mut writer = stream;
        if writer.write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

fn config(desk: &Desk, address: &str) {
    let text = format!(
        "[telemetry]\nendpoint = \"http://{address}/otlp\"\ninterval_secs = 1\nheaders = {{ x-team = \"secret-of-team\" }}\n"
    );
    desk.write("t.toml", text);
}

fn attribute<'s>(span: &'s otlp::Span, key: &str) -> Option<&'s otlp::AnyValue> {
    let found = span
        .attributes
        .iter()
        .find(|attribute| attribute.key == key);
    found.map(|attribute| &attribute.value)
}

fn text(value: &str) -> Option<otlp::AnyValue> {
    Some(otlp::AnyValue::Text(value.to_owned()))
}

/// A run is a span in the trace of whatever started it, and tells its agent so.
#[test]
fn a_run_is_a_span_of_its_callers_trace() {
    let collector = Collector::start();
    let desk = Desk::new();
    config(&desk, &collector.address);
    let mut command = desk.command(&["run", "--task", "say hello", "--config", "t.toml", "--json"]);
    let ran = Ran::new(command.env("TRACEPARENT", CALLER).output().unwrap());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    let told: Value = serde_json::from_str(&ran.stdout).unwrap();
    let span = collector.span("invoke_agent");
    assert_eq!(span.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span.parent_span_id.as_deref(), Some("00f067aa0ba902b7"));
    assert_eq!((span.kind, span.status.code), (1, None));
    assert_eq!(span.span_id.len(), 16);
    let nanos = |time: &str| time.parse::<u64>().unwrap();
    assert!(nanos(&span.start_time_unix_nano) <= nanos(&span.end_time_unix_nano));
    let run_id = told["run_id"].as_str().unwrap();
    assert_eq!(attribute(&span, "abp.run_id").cloned(), text(run_id));
    let operation = attribute(&span, "gen_ai.operation.name").cloned();
    assert_eq!(operation, text("invoke_agent"));
    let shown = desk.abp(&["config", "show", "--config", "t.toml"]);
    assert!(!shown.stdout.contains("secret-of-team"), "{}", shown.stdout);
}

/// An exchange is a span as well, the upstream is told its place, and the metrics name the queue.
#[test]
fn an_exchange_is_a_span_and_the_queue_is_a_metric() {
    let collector = Collector::start();
    let upstream = Collector::start();
    let desk = Desk::new();
    config(&desk, &collector.address);
    let more = format!(
        "{}[upstreams.vendor]\ndialect = \"openai\"\nbase_url = \"http://{}/v1\"\nmodels = [\"asked\"]\n",
        std::fs::read_to_string(desk.path("t.toml")).unwrap(),
        upstream.address
    );
    desk.write("t.toml", more);
    let served = Served::start(&desk, &["--config", "t.toml"]);
    let body = json!({"model": "asked", "messages": [{"role": "user", "content": "hi"}]});
    let body = body.to_string();
    let mut stream = TcpStream::connect(served.address()).unwrap();
    let request = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\ntraceparent: {CALLER}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
        served.address(),
        served.key,
        body.len()
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let span = collector.span("chat asked");
    assert_eq!(span.trace_id, "4bf92f3577b34da6a3ce929d0e0e4736");
    assert_eq!(span.parent_span_id.as_deref(), Some("00f067aa0ba902b7"));
    assert_eq!(span.kind, 3);
    assert_eq!(
        attribute(&span, "gen_ai.provider.name").cloned(),
        text("openai")
    );
    let head = upstream.until("/v1/chat/completions", |posted| Some(posted.head.clone()));
    let place = format!("traceparent: 00-{}-{}-01", span.trace_id, span.span_id);
    assert!(
        head.to_ascii_lowercase().contains(&place),
        "{head}\n{place}"
    );
    let names = collector.until("/otlp/v1/metrics", |posted| {
        assert!(
            posted.head.contains("x-team: secret-of-team"),
            "{}",
            posted.head
        );
        let metrics = otlp::Metrics::deserialize(&posted.body).unwrap();
        let metrics = metrics.resource_metrics.into_iter();
        let metrics = metrics.flat_map(|resource| resource.scope_metrics);
        let mut names = Vec::new();
        for metric in metrics.flat_map(|scope| scope.metrics) {
            let forms = [
                metric.gauge.is_some(),
                metric.sum.is_some(),
                metric.histogram.is_some(),
            ];
            assert_eq!(forms.iter().filter(|is| **is).count(), 1, "{}", metric.name);
            if let Some(sum) = &metric.sum {
                assert_eq!(
                    (sum.aggregation_temporality, sum.is_monotonic),
                    (Some(2), Some(true))
                );
            }
            for point in metric.histogram.iter().flat_map(|one| &one.data_points) {
                assert_eq!(point.bucket_counts.len(), point.explicit_bounds.len() + 1);
                let counts = point
                    .bucket_counts
                    .iter()
                    .map(|count| count.parse::<u64>().unwrap());
                assert_eq!(counts.sum::<u64>().to_string(), point.count);
            }
            for point in metric.gauge.iter().flat_map(|one| &one.data_points) {
                point.as_int.parse::<u64>().unwrap();
                point.time_unix_nano.parse::<u64>().unwrap();
            }
            names.push(metric.name);
        }
        Some(names)
    });
    for name in [
        "abp.queue.depth",
        "abp.queue.oldest_wait",
        "abp.runs.running",
        "abp.followers",
        "abp.lease.losses",
        "abp.spans.dropped",
        "gen_ai.client.operation.duration",
    ] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
}

/// A collector that takes a connection and never answers holds no run back.
#[test]
fn a_collector_that_never_answers_holds_nothing_back() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let desk = Desk::new();
    config(&desk, &silent.local_addr().unwrap().to_string());
    let started = Instant::now();
    let ran = desk.abp(&["run", "--task", "say hello", "--config", "t.toml"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("the collector does not answer"),
        "{}",
        ran.stderr
    );
    assert!(started.elapsed() < Duration::from_secs(10));
}

/// A sidecar finds the place of its run in its environment, and an upstream in a header.
#[test]
fn sidecars_and_upstreams_are_told_the_place_of_their_run() {
    let script = "hello; run; event \"\\\"type\\\":\\\"assistant_message\\\",\\\"text\\\":\\\"$TRACEPARENT\\\"\"; final '{}'";
    let desk = crate::sidecar::desk(script, "");
    // Nobody traces it: there is nothing to be told.
    let (_, receipt) = crate::sidecar::run(&desk, &[]);
    let said = |receipt: &Value| {
        let trace = receipt["trace"].as_array().unwrap().clone();
        let said = trace
            .iter()
            .find(|event| event["type"] == "assistant_message");
        said.map(|event| event["text"].as_str().unwrap().to_owned())
    };
    assert_eq!(said(&receipt), Some(String::new()), "{receipt:#}");
    let (collector, upstream) = (Collector::start(), Collector::start());
    let mut config = std::fs::read_to_string(desk.path("operator.toml")).unwrap();
    config.push_str(&format!(
        "[telemetry]\nendpoint = \"http://{}/otlp\"\n[upstreams.vendor]\ndialect = \"openai\"\nbase_url = \"http://{}/v1\"\nmodels = [\"asked\"]\n",
        collector.address, upstream.address
    ));
    desk.write("operator.toml", config);
    let (_, receipt) = crate::sidecar::run(&desk, &[]);
    let span = collector.span("invoke_agent");
    let place = format!("00-{}-{}-01", span.trace_id, span.span_id);
    assert_eq!(said(&receipt), Some(place));
    // The answer is none, so the run fails; what was sent is what counts.
    let run = [
        "run",
        "--task",
        "t",
        "--backend",
        "upstream:vendor",
        "--model",
        "asked",
    ];
    desk.abp(&[&run[..], &["--config", "operator.toml"]].concat());
    let head = upstream.until("/v1/chat/completions", |posted| Some(posted.head.clone()));
    let span = collector.span("invoke_agent");
    assert_eq!(span.status.code, Some(2));
    let place = format!("traceparent: 00-{}-{}-01", span.trace_id, span.span_id);
    assert!(
        head.to_ascii_lowercase().contains(&place),
        "{head}\n{place}"
    );
}
