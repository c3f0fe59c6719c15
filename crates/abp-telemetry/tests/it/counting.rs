//! What is counted, under which names, and at which price.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use abp_core::{ExecutionMode, MicroUsd, Outcome};
use abp_telemetry::{
    BreakerLevel, ExchangeMetrics, MAX_NAMES, MetricsCollector, OTHER, RouteFamily, RunMetrics,
    StatusClass, TokenCounts,
};

pub(crate) const EXCHANGE: ExchangeMetrics<'static> = ExchangeMetrics {
    route: RouteFamily::Messages,
    upstream: "house",
    model: "claude-opus-4-8",
    mode: ExecutionMode::Mapped,
    status: StatusClass::Success,
    duration: Duration::from_millis(100),
    first_byte: Some(Duration::from_millis(20)),
    tokens: TokenCounts {
        input: 10,
        output: 5,
        cache_read: 4,
        cache_write: 0,
    },
    cost: MicroUsd::from_micros(250),
    chunks: 7,
    retries: 1,
};

pub(crate) const RUN: RunMetrics<'static> = RunMetrics {
    backend: "mock",
    outcome: Outcome::Complete,
    duration: Duration::from_secs(2),
    events: 12,
    tokens: EXCHANGE.tokens,
    cost: EXCHANGE.cost,
};

fn counted(collector: &MetricsCollector, upstream: &str) -> u64 {
    let summary = collector.summary();
    let requests = summary
        .upstreams
        .get(upstream)
        .map(|one| one.requests.clone());
    requests
        .into_iter()
        .flatten()
        .map(|request| request.count)
        .sum()
}

#[test]
fn every_end_is_counted_where_it_belongs() {
    let collector = Arc::new(MetricsCollector::new(["house", "idle"]));
    for outcome in [
        Outcome::Complete,
        Outcome::Partial,
        Outcome::Failed,
        Outcome::Cancelled,
    ] {
        collector.record(&RunMetrics { outcome, ..RUN });
    }
    collector.record(&RUN);
    for status in [200, 204, 302, 404, 529] {
        let status = StatusClass::of(status);
        collector.record_exchange(&ExchangeMetrics { status, ..EXCHANGE });
    }
    let mode = ExecutionMode::Passthrough;
    collector.record_exchange(&ExchangeMetrics { mode, ..EXCHANGE });
    let going_on = collector.enter("house");
    collector.set_breaker("house", BreakerLevel::HalfOpen);
    collector.set_ring(10, 100);
    let summary = collector.summary();
    let run = &summary.runs["mock"];
    let ends = (
        run.count,
        run.complete,
        run.partial,
        run.failed,
        run.cancelled,
    );
    assert_eq!(ends, (5, 2, 1, 1, 1));
    assert_eq!((run.events, run.tokens.input), (60, 50));
    assert!((run.cost_usd - 0.001_25).abs() < 1e-12);
    assert!(run.duration.p99 >= RUN.duration && run.duration.sum == 5 * RUN.duration);
    let house = &summary.upstreams["house"];
    let told: Vec<_> = house
        .requests
        .iter()
        .map(|one| (one.mode, one.status.as_str(), one.count))
        .collect();
    let expected = [
        (ExecutionMode::Passthrough, "2xx", 1),
        (ExecutionMode::Mapped, "2xx", 2),
        (ExecutionMode::Mapped, "3xx", 1),
        (ExecutionMode::Mapped, "4xx", 1),
        (ExecutionMode::Mapped, "5xx", 1),
    ];
    assert_eq!(told, expected);
    assert_eq!((house.chunks, house.retries, house.in_flight), (42, 6, 1));
    assert_eq!(house.breaker, BreakerLevel::HalfOpen);
    assert_eq!((house.duration.count, house.first_byte.count), (6, 6));
    assert_eq!(summary.models["claude-opus-4-8"].tokens.output, 30);
    assert_eq!(
        (summary.ring.used_bytes, summary.ring.capacity_bytes),
        (10, 100)
    );
    assert!(
        summary.upstreams["idle"].requests.is_empty(),
        "it is known all the same"
    );
    drop(going_on);
    assert_eq!(collector.summary().upstreams["house"].in_flight, 0);
}

#[test]
fn a16_names_of_callers_stay_few() {
    let collector = MetricsCollector::new(["house"]);
    // Nobody answered for these: they must not take the room of those that exist.
    for number in 0..10_000 {
        let exchange = ExchangeMetrics {
            model: &format!("made-up-{number}"),
            upstream: &format!("nobody-{number}"),
            status: StatusClass::ClientError,
            ..EXCHANGE
        };
        collector.record_exchange(&exchange);
    }
    collector.record_exchange(&EXCHANGE);
    let summary = collector.summary();
    let names: Vec<_> = summary.models.keys().map(String::as_str).collect();
    assert_eq!(names, ["claude-opus-4-8", OTHER]);
    let names: Vec<_> = summary.upstreams.keys().map(String::as_str).collect();
    assert_eq!(names, ["house", OTHER]);
    assert_eq!(counted(&collector, OTHER), 10_000);

    for number in 0..10_000 {
        let (model, backend) = (format!("model-{number}"), format!("backend-{number}"));
        collector.record_exchange(&ExchangeMetrics {
            model: &model,
            ..EXCHANGE
        });
        collector.record(&RunMetrics {
            backend: &backend,
            ..RUN
        });
    }
    let long = "x".repeat(1_000);
    collector.record_exchange(&ExchangeMetrics {
        model: &long,
        ..EXCHANGE
    });
    let summary = collector.summary();
    assert_eq!(summary.models.len(), MAX_NAMES + 1);
    assert_eq!(summary.runs.len(), MAX_NAMES + 1);
    assert!(!summary.models.contains_key(&long));
    let runs: u64 = summary.runs.values().map(|run| run.count).sum();
    assert_eq!(runs, 10_000, "nothing is lost");
    let output: u64 = summary
        .models
        .values()
        .map(|model| model.tokens.output)
        .sum();
    assert_eq!(output, 20_002 * EXCHANGE.tokens.output, "nothing is lost");
}

#[test]
fn threads_that_meet_lose_nothing() {
    let collector = Arc::new(MetricsCollector::new([]));
    let names: Vec<_> = (0..300).map(|number| format!("backend-{number}")).collect();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for backend in &names {
                    collector.record(&RunMetrics { backend, ..RUN });
                }
            });
        }
    });
    let summary = collector.summary();
    assert_eq!(
        summary.runs.len(),
        MAX_NAMES + 1,
        "every place is used, and only once"
    );
    assert_eq!(
        summary.runs.values().map(|run| run.count).sum::<u64>(),
        1_200
    );
    let own = summary.runs.iter().filter(|(name, _)| *name != OTHER);
    assert!(own.into_iter().all(|(_, run)| run.count <= 4));
}

#[test]
fn counting_what_is_known_allocates_nothing() {
    let collector = Arc::new(MetricsCollector::new(["house"]));
    let count = || {
        let _going_on = collector.enter("house");
        collector.record_exchange(&EXCHANGE);
        collector.record(&RUN);
        collector.set_breaker("house", BreakerLevel::Open);
    };
    count();
    assert_eq!(allocation_counter::measure(count).count_total, 0);
}
