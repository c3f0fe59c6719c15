//! Limits: each one stops a run at the right place, or is refused.

use std::time::{Duration, Instant};

use abp_core::{AgentEvent, AgentEventKind, CancelReason, Outcome};
use abp_error::ErrorCode;
use abp_runtime::RunOptions;
use serde_json::{Value, json};

use crate::bench::{Bench, said};

fn usage(output_tokens: u64) -> Value {
    json!({"do": "usage", "usage": {"output_tokens": output_tokens}})
}

/// At 10 dollars for a million tokens, 100 tokens are the whole budget and 101 are too many.
#[tokio::test]
async fn a_priced_script_is_stopped_at_the_first_event_over_the_budget() {
    let bench = Bench::scripted(&json!([
        usage(100),
        {"do": "say", "text": "within"},
        usage(101),
        {"do": "say", "text": "never"},
    ]));
    let (receipt, events) = bench
        .run(json!({"config": {"model": "priced", "max_budget_usd": 0.001}}))
        .await;
    assert_eq!(
        (receipt.outcome, receipt.cancel_reason),
        (Outcome::Partial, Some(CancelReason::Budget))
    );
    assert_eq!(receipt.error.unwrap().code, ErrorCode::BudgetExceeded);
    assert_eq!(receipt.usage.estimated_cost_usd, Some(0.001_01));
    assert_eq!(said(&events), ["within"]);
    let after: Vec<_> = events
        .iter()
        .map(|event| event.kind.name())
        .rev()
        .take(3)
        .collect();
    assert_eq!(
        after,
        ["run_completed", "error", "usage_updated"],
        "nothing but the end follows"
    );
}

#[tokio::test]
async fn a_budget_that_cannot_be_held_is_refused() {
    let bench = Bench::scripted(&json!([]));
    for config in [
        json!({"max_budget_usd": 1}),
        json!({"max_budget_usd": 1, "model": "unpriced"}),
    ] {
        let error = bench
            .runtime
            .run_streaming("mock", bench.order(json!({"config": config})))
            .await
            .unwrap_err();
        assert_eq!(error.code(), ErrorCode::ConfigInvalid, "{error}");
    }
}

#[tokio::test]
async fn turns() {
    let steps =
        json!([{"do": "say", "text": "1"}, {"do": "say", "text": "2"}, {"do": "say", "text": "3"}]);
    for (max, expected) in [(2, Some(ErrorCode::TurnLimitExceeded)), (3, None)] {
        let bench = Bench::scripted(&steps);
        let (receipt, _) = bench.run(json!({"config": {"max_turns": max}})).await;
        assert_eq!(
            receipt.error.map(|error| error.code),
            expected,
            "{max} turns"
        );
    }
}

/// The limit covers the whole run, its staging included: on a slow machine the first limits may
/// pass before the backend said a word, and the next one is longer.
#[tokio::test]
async fn time() {
    let script = json!([{"do": "say", "text": "before"}, {"do": "sleep", "ms": 600_000}]);
    for limit in [50, 1_000, 20_000].map(Duration::from_millis) {
        let bench = Bench::scripted(&script);
        let options = RunOptions {
            timeout: Some(limit),
            ..RunOptions::default()
        };
        let started = Instant::now();
        let (receipt, events) = bench.run_with(bench.order(json!({})), options).await;
        assert!(
            started.elapsed() < Duration::from_secs(300),
            "the script was not waited for"
        );
        assert_eq!(
            (receipt.outcome, receipt.cancel_reason),
            (Outcome::Partial, Some(CancelReason::Timeout))
        );
        assert_eq!(receipt.error.unwrap().code, ErrorCode::BackendTimeout);
        let told = |event: &AgentEvent| matches!(event.kind, AgentEventKind::Error { .. });
        assert!(events.iter().any(told));
        if said(&events) == ["before"] {
            return;
        }
    }
    panic!("what was said before the limit is kept");
}
