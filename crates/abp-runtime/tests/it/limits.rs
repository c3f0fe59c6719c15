//! Limits: each one stops a run at the right place, or is refused.

use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_backend_core::{Backend, Emission, RunEnd};
use abp_core::{AgentEvent, AgentEventKind, CancelReason, ModelPrice, Outcome, UsageNormalized};
use abp_error::ErrorCode;
use abp_runtime::{PriceTable, RunOptions};
use serde_json::{Value, json};

use crate::bench::{Bench, Probe, said};

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

/// A turn that is told in pieces counts like one that is told whole, and one told both ways counts once.
#[tokio::test]
async fn turns_told_in_pieces_count() {
    let piece = || json!({"do": "emit", "event": {"type": "assistant_delta", "text": "p"}});
    let whole = || json!({"do": "emit", "event": {"type": "assistant_message", "text": "pp"}});
    let result =
        || json!({"do": "emit", "event": {"type": "tool_result", "tool_name": "T", "output": "o"}});
    let command = || json!({"do": "emit", "event": {"type": "command_executed", "command": "ls"}});
    let changed =
        || json!({"do": "emit", "event": {"type": "file_changed", "path": "a", "summary": "s"}});
    let call =
        || json!({"do": "emit", "event": {"type": "tool_call", "tool_name": "T", "input": {}}});
    let cases = [
        (json!([piece(), piece(), piece()]), 1),
        (json!([piece(), result(), piece(), piece()]), 2),
        (json!([piece(), command(), piece(), changed(), piece()]), 3),
        (json!([piece(), piece(), whole()]), 1),
        (json!([piece(), call(), whole()]), 1),
        (json!([piece(), whole(), piece(), whole(), whole()]), 3),
        (json!([result(), call()]), 0),
    ];
    for (steps, turns) in cases {
        for (max, is_over) in [(turns, false), (turns - 1, true)] {
            if max < 1 {
                continue;
            }
            let bench = Bench::scripted(&steps);
            let (receipt, _) = bench.run(json!({"config": {"max_turns": max}})).await;
            let code = receipt.error.map(|error| error.code);
            let expected = is_over.then_some(ErrorCode::TurnLimitExceeded);
            assert_eq!(code, expected, "at most {max}: {steps}");
        }
    }
}

/// The total of input tokens so far, as measured in an answer of a model.
fn measured(input_tokens: u64, model: Option<&str>) -> Emission {
    let usage = UsageNormalized {
        input_tokens: Some(input_tokens),
        ..UsageNormalized::default()
    };
    let kind = AgentEventKind::UsageUpdated { usage };
    let ext = model.map(|model| [("model".to_owned(), json!(model))].into());
    Emission { kind, ext }
}

/// Usage costs what the models that answered cost. The price of the model asked for is that of a model
/// without a price of its own, and of usage of which no model is known.
#[tokio::test]
async fn the_model_that_answered_is_the_one_that_is_paid() {
    type Told = (u64, Option<&'static str>);
    // Per million tokens: asked 1, dear 100, cheap 0.
    let cases: [(&[Told], Option<&str>, f64); 8] = [
        (&[(100, None)], None, 0.000_1),
        (&[(100, Some("asked"))], None, 0.000_1),
        (&[(100, Some("asked-2026-01-01"))], None, 0.000_1),
        (&[(100, Some("dear"))], None, 0.01),
        (&[(100, Some("cheap"))], None, 0.0),
        (&[(40, Some("dear")), (100, Some("dear"))], None, 0.01),
        (&[(60, Some("cheap")), (100, Some("dear"))], None, 0.004),
        // The model is only known at the end.
        (&[(100, None)], Some("dear"), 0.01),
    ];
    for (told, at_the_end, cost) in cases {
        let told: Vec<_> = told
            .iter()
            .map(|(tokens, model)| measured(*tokens, *model))
            .collect();
        let place = format!("{told:?} {at_the_end:?}");
        let model = at_the_end.map(str::to_owned);
        let bench = Bench::new([Arc::new(Probe::new(move |context| {
            let (told, model) = (told.clone(), model.clone());
            async move {
                // An event over the budget ends the run.
                let _ = context.emit_all(told).await;
                RunEnd {
                    model,
                    ..RunEnd::completed()
                }
            }
        })) as Arc<dyn Backend>]);
        let mut prices = PriceTable::default();
        for (model, rate) in [("asked", 1.0), ("dear", 100.0), ("cheap", 0.0)] {
            let price = ModelPrice {
                input_usd_per_mtok: rate,
                ..ModelPrice::default()
            };
            prices.set(model, price);
        }
        let options = RunOptions {
            prices: prices.into(),
            ..RunOptions::default()
        };
        let order = bench.order(json!({"config": {"model": "asked", "max_budget_usd": 0.005}}));
        let (receipt, _) = bench.run_with(order, options).await;
        assert_eq!(receipt.usage.estimated_cost_usd, Some(cost), "{place}");
        // What is known only at the end stops nothing any more.
        let is_over = cost > 0.005 && at_the_end.is_none();
        let code = receipt.error.map(|error| error.code);
        assert_eq!(
            code,
            is_over.then_some(ErrorCode::BudgetExceeded),
            "{place}"
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
