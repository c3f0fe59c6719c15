//! Events: what they may hold, and how fast they may come.

use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{Backend, RunEnd};
use abp_core::{AgentEvent, AgentEventKind, EventDigest, Outcome};
use serde_json::json;

use crate::bench::{Bench, Probe};

/// A reader that does not read holds nothing back, costs no memory, and loses nothing when it reads again.
#[tokio::test]
async fn a_slow_reader_neither_holds_the_run_back_nor_loses_an_event() {
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
    let first = handle.events.next().await.unwrap().unwrap();
    assert_eq!(first.seq, 0);
    let ended = tokio::time::timeout(Duration::from_secs(30), &mut handle.receipt).await;
    let receipt = ended.expect("the run waits for no reader").unwrap();
    let mut others = bench.runtime.follow(receipt.meta.run_id, 1).await.unwrap();
    let mut seen = 0;
    while let Some(followed) = handle.events.next().await.unwrap() {
        let other = others.next().await.unwrap().unwrap();
        assert_eq!((other.seq, &other.json), (followed.seq, &followed.json));
        let kind = &followed.event.kind;
        seen += usize::from(matches!(kind, AgentEventKind::AssistantDelta { .. }));
    }
    assert_eq!(seen, EVENTS);
    assert!(others.next().await.unwrap().is_none());

    // Ten megabytes are too much to embed: the receipt has the digest, the store has the events.
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

/// A secret that is split between pieces of a text is taken out, wherever it is split and whatever comes
/// between the pieces; nothing else of the text is lost.
#[tokio::test]
async fn a_split_secret_is_no_less_secret() {
    const SECRET: &str = "canary-0123456789";
    let piece = |text: &str, is_thought: bool| {
        let text = text.to_owned();
        match is_thought {
            true => AgentEventKind::ThinkingDelta { text },
            false => AgentEventKind::AssistantDelta { text },
        }
    };
    let text = format!("a can of {SECRET} and a canary");
    let usage = AgentEventKind::UsageUpdated {
        usage: abp_core::UsageNormalized::default(),
    };
    let call = AgentEventKind::ToolResult {
        tool_name: "T".to_owned(),
        tool_use_id: None,
        output: json!("o"),
        is_error: false,
    };
    for is_thought in [false, true] {
        for (size, between) in [
            (1, Some(usage.clone())),
            (2, None),
            (5, Some(usage.clone())),
            (7, None),
            (100, None),
            // What is held back comes before the next thing that happens.
            (100, Some(call.clone())),
        ] {
            let mut kinds = Vec::new();
            for part in text.as_bytes().chunks(size) {
                kinds.push(piece(std::str::from_utf8(part).unwrap(), is_thought));
                kinds.extend(between.clone());
            }
            let place = format!("{size}, {between:?}, {is_thought}");
            let bench = Bench::new([Arc::new(Probe::new(move |context| {
                let kinds = kinds.clone();
                async move {
                    for kind in kinds {
                        context.emit(kind).await.unwrap();
                    }
                    RunEnd::completed()
                }
            })) as Arc<dyn Backend>]);
            let order = json!({"config": {"env": {"A_TOKEN": SECRET}}});
            let (receipt, events) = bench.run(order).await;
            assert_eq!(receipt.outcome, Outcome::Complete, "{place}");
            let told = events.iter().filter_map(|event| match &event.kind {
                AgentEventKind::AssistantDelta { text } if !is_thought => Some(text.as_str()),
                AgentEventKind::ThinkingDelta { text } if is_thought => Some(text.as_str()),
                _ => None,
            });
            let told: String = told.collect();
            assert_eq!(told, "a can of [redacted] and a canary", "{place}");
            let last = events.iter().rposition(|event| {
                matches!(
                    event.kind,
                    AgentEventKind::AssistantDelta { .. } | AgentEventKind::ThinkingDelta { .. }
                )
            });
            let happened = events
                .iter()
                .position(|event| matches!(event.kind, AgentEventKind::ToolResult { .. }));
            if let Some(happened) = happened {
                assert!(last < Some(happened), "{place}");
            }
        }
    }
}

/// An answer that is told in pieces is checked to its last piece, also the one that was held back.
#[tokio::test]
async fn an_answer_in_pieces_is_checked_whole() {
    let bench = Bench::new([Arc::new(Probe::new(|context| async move {
        for text in ["{\"city\": \"Rome\"", "}"] {
            let text = text.to_owned();
            context
                .emit(AgentEventKind::AssistantDelta { text })
                .await
                .unwrap();
        }
        RunEnd::completed()
    })) as Arc<dyn Backend>]);
    // The secret begins with the end of the answer.
    let order = json!({"config": {
        "env": {"A_TOKEN": "}-secret-value"},
        "vendor": {"abp": {"output_schema": {"type": "object", "required": ["city"]}}},
    }});
    let (receipt, _) = bench.run(order).await;
    assert_eq!(receipt.outcome, Outcome::Complete, "{:?}", receipt.error);
}
