//! Events: what they may hold, and how fast they may come.

use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{Backend, RunEnd};
use abp_core::{AgentEvent, AgentEventKind, EventDigest, Outcome};
use serde_json::json;

use crate::bench::{Bench, Probe};

/// A reader that does not read stops the backend, and loses nothing when it reads again.
#[tokio::test]
async fn a_slow_reader_slows_the_run_down() {
    const EVENTS: usize = 100;
    let bench = Bench::new([Arc::new(Probe::new(|context| async move {
        for _ in 0..EVENTS {
            let text = "x".repeat(100_000);
            context
                .emit(AgentEventKind::AssistantDelta { text })
                .await
                .unwrap();
        }
        RunEnd::completed()
    })) as Arc<dyn Backend>]);
    let mut handle = bench
        .runtime
        .run_streaming("mock", bench.order(json!({})))
        .await
        .unwrap();
    let ended = tokio::time::timeout(Duration::from_millis(300), &mut handle.receipt).await;
    assert!(ended.is_err(), "the run must wait for its reader");
    let mut seen = 0;
    while let Some(event) = handle.events.next().await {
        seen += usize::from(matches!(event.kind, AgentEventKind::AssistantDelta { .. }));
    }
    assert_eq!(seen, EVENTS);

    // Ten megabytes are too much to embed: the receipt has the digest, the store has the events.
    let receipt = handle.receipt.await.unwrap();
    let digest = receipt.trace_digest.unwrap();
    assert!(receipt.trace.is_empty() && !digest.embedded);
    let store = bench.runtime.store().await.unwrap();
    let mut recomputed = EventDigest::default();
    loop {
        let run_id = receipt.meta.run_id;
        let page = store
            .events(run_id, recomputed.count(), 1000)
            .await
            .unwrap();
        if page.is_empty() {
            break;
        }
        for record in page {
            let event: AgentEvent = serde_json::from_str(&record.json).unwrap();
            recomputed.push(&event).unwrap();
        }
    }
    assert_eq!(recomputed.finish(false), digest);
}

/// No receipt fails because of what a tool said; what had to be changed is labelled.
#[tokio::test]
async fn foreign_json_is_admitted() {
    let bench = Bench::scripted(&json!([
        {"do": "emit", "event": {"type": "tool_result", "tool_name": "t", "output": {"n": 9_007_199_254_740_993_u64}}},
        {"do": "usage", "usage": {"input_tokens": u64::MAX}},
    ]));
    let (receipt, events) = bench.run(json!({})).await;
    let result = events
        .iter()
        .find(|event| event.kind.name() == "tool_result")
        .unwrap();
    let AgentEventKind::ToolResult { output, .. } = &result.kind else {
        unreachable!()
    };
    assert_eq!(output, &json!({"n": "9007199254740993"}));
    let label = &result.ext.as_ref().unwrap()["abp_admitted"];
    assert_eq!(label[0]["pointer"], "/output/n");
    assert!(
        events.iter().any(|event| event.kind.name() == "warning"),
        "a count that cannot be recorded is told of"
    );
    assert_eq!(receipt.outcome, Outcome::Complete);
}

/// B13: a secret of the environment is in no event and no receipt.
#[tokio::test]
async fn secrets_are_redacted() {
    let secret = "sk-canary-0123456789";
    let bench = Bench::scripted(&json!([
        {"do": "say", "text": format!("the key is {secret}")},
        {"do": "emit", "event": {"type": "tool_result", "tool_name": "t", "output": {"deep": [secret]}}},
        {"do": "fail", "code": "BACKEND_AUTH_FAILED", "message": format!("refused {secret}")},
    ]));
    let (receipt, events) = bench
        .run(json!({"config": {"env": {"VENDOR_API_KEY": secret, "MODE": "fast-mode"}}}))
        .await;
    assert!(!serde_json::to_string(&receipt).unwrap().contains(secret));
    assert!(!serde_json::to_string(&events).unwrap().contains(secret));
    assert!(
        serde_json::to_string(&events)
            .unwrap()
            .contains("[redacted]")
    );
}
