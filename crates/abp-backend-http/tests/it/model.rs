//! Work orders on a model: requests, events, failures.

use std::sync::Arc;
use std::time::Duration;

use abp_backend_core::{Backend as _, Upstream, UpstreamError};
use abp_core::{AgentEventKind, CancelReason, Capability, SupportLevel};
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_testkit::{ExchangeEnd, FakeVendor, Reply, Script, fixture};
use serde_json::{Value, json};

use crate::harness::{Canned, Ran, answered, backend, confirmed, run, run_plan};
use crate::support::{KEY, until, upstream};

#[tokio::test]
async fn a_stream_is_told_in_pieces_and_then_once_as_a_whole() {
    let cases = [
        (Dialect::OpenAi, "openai/stream_tools.sse"),
        (Dialect::Claude, "claude/stream_thinking_tools.sse"),
        (Dialect::Gemini, "gemini/stream_thinking.sse"),
        (Dialect::Codex, "codex/stream_text.sse"),
        (Dialect::Kimi, "kimi/stream_reasoning_calls.sse"),
        (Dialect::Kimi, "kimi/stream_text.sse"),
        (Dialect::Copilot, "copilot/stream_text.sse"),
    ];
    let mut told = Vec::new();
    for (dialect, answer) in cases {
        let whole = answered(dialect, Reply::fixture(answer).unwrap()).await;
        let reply = Reply::fixture(answer).unwrap().in_chunks(5);
        let split = answered(dialect, reply).await;
        assert_eq!(split.events, whole.events, "{dialect}");
        assert!(split.end.result.is_ok(), "{dialect}: {:?}", split.end);
        let messages = split.whole();
        let messages = messages
            .iter()
            .filter(|event| event["type"] == "assistant_message");
        let messages: Vec<_> = messages
            .filter_map(|event| event["text"].as_str())
            .collect();
        assert!(messages.len() <= 1, "{dialect}");
        assert_eq!(messages.concat(), split.said_in_pieces(), "{dialect}");
        told.push(json!({
            "dialect": dialect,
            "thought": split.thought(),
            "whole": split.whole(),
            "usage_raw": split.end.usage_raw,
        }));
    }
    let expected: Value = serde_json::from_str(include_str!("model_runs.json")).unwrap();
    assert_eq!(Value::Array(told), expected);
}

#[tokio::test]
async fn an_answer_in_one_piece_is_told_too() {
    let ran = answered(
        Dialect::Claude,
        Reply::fixture("claude/response_text.json").unwrap(),
    )
    .await;
    assert!(ran.end.result.is_ok());
    assert_eq!(
        ran.end.usage_raw,
        json!({"input_tokens": 10, "output_tokens": 5})
    );
    let types: Vec<_> = ran
        .whole()
        .iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(types, ["assistant_message", "usage_updated"]);
}

#[tokio::test]
async fn the_plan_is_sent_as_a_request_for_a_stream_and_a_vendors_own_request_as_it_is() {
    let replies = ["openai/stream_text.sse", "openai/response_text.json"];
    let replies = replies.map(|path| Reply::fixture(path).unwrap());
    let vendor = FakeVendor::start(Script::InOrder(replies.to_vec())).unwrap();
    let upstream: Arc<dyn Upstream> = Arc::new(upstream(&vendor, Dialect::OpenAi));
    run(Arc::clone(&upstream), json!({})).await;
    let request = "{\"model\": \"m\",  \"temperature\": 1e0, \"messages\": []}";
    let abp = json!({"mode": "passthrough", "request": request});
    let ran = run(upstream, abp).await;
    assert!(ran.end.result.is_ok(), "{:?}", ran.end);
    let seen = vendor.requests();
    let planned: Value = serde_json::from_slice(&seen[0].body).unwrap();
    let expected = json!({
        "model": "some-model",
        "messages": [{"role": "user", "content": "Say hello."}],
        "stream": true,
        "stream_options": {"include_usage": true},
    });
    assert_eq!(planned, expected);
    assert_eq!(seen[1].body, request);
}

/// What the plan did to a request is undone in what the run tells: the answer ends where the caller
/// wanted, although the vendor knows no stop sequences, and the plan says so.
#[tokio::test]
async fn an_answer_is_cut_at_a_stop_sequence_that_the_vendor_does_not_know() {
    let replies = ["codex/stream_text.sse", "codex/response_text.json"];
    // The streamed text is "Hel" and "lo", the whole one "The Tiber, …".
    for (reply, stop, expected) in [
        (replies[0], "ll", "He"),
        (replies[0], "absent", "Hello"),
        (replies[1], "ber", "The Ti"),
    ] {
        let vendor = FakeVendor::start(Reply::fixture(reply).unwrap()).unwrap();
        let backend = backend(Arc::new(upstream(&vendor, Dialect::Codex)));
        let request = json!({
            "model": "m", "stop": [stop], "messages": [{"role": "user", "content": "Hi"}],
        });
        let abp = json!({"dialect": "openai", "request": request});
        let plan = confirmed(&backend, &abp);
        let emulated = &plan.report().emulation.applied;
        assert!(
            emulated
                .iter()
                .any(|entry| entry.capability == Capability::StopSequences),
            "{emulated:?}"
        );
        let ran = run_plan(&backend, plan, drop).await;
        assert!(ran.end.result.is_ok(), "{:?}", ran.end);
        let message = ran.texts(|kind| match kind {
            AgentEventKind::AssistantMessage { text } => Some(text),
            _ => None,
        });
        assert_eq!(message, expected, "{reply} {stop}");
        let sent = String::from_utf8_lossy(&vendor.requests()[0].body).into_owned();
        assert!(!sent.contains(stop), "{sent}");
    }
}

#[tokio::test]
async fn a_model_says_what_it_lacks() {
    let backend = backend(Arc::new(Canned::new(Dialect::Claude, Vec::new())));
    let descriptor = backend.descriptor();
    assert_eq!(descriptor.name, "upstream:canned");
    let manifest = descriptor.manifest.as_ref().unwrap();
    assert_eq!(manifest[&Capability::Streaming], SupportLevel::Native);
    assert_eq!(manifest[&Capability::ToolUse], SupportLevel::Native);
    assert_eq!(manifest[&Capability::ToolBash], SupportLevel::Unsupported);
}

#[tokio::test]
async fn a_vendors_error_has_its_own_code() {
    let told = |message: &str, code: &str| {
        json!({"error": {"message": message, "type": "x", "param": null, "code": code}}).to_string()
    };
    let echo = told(
        &format!("Incorrect API key provided: {KEY}"),
        "invalid_api_key",
    );
    let long = told("too long", "context_length_exceeded");
    let cases = [
        (Reply::json(echo).status(401), ErrorCode::BackendAuthFailed),
        (Reply::json("{}").status(403), ErrorCode::BackendAuthFailed),
        (
            Reply::json("{}").status(404),
            ErrorCode::BackendModelNotFound,
        ),
        (Reply::html().status(404), ErrorCode::BackendModelNotFound),
        (
            Reply::json(long).status(400),
            ErrorCode::BackendContextLength,
        ),
        (
            Reply::json(told("no", "content_filter")).status(400),
            ErrorCode::BackendContentFiltered,
        ),
        (
            Reply::json(told("no", "x")).status(400),
            ErrorCode::ValidationFailed,
        ),
        (Reply::json("{}").status(422), ErrorCode::ValidationFailed),
        (
            Reply::json("{}").status(413),
            ErrorCode::BackendContextLength,
        ),
        (Reply::json("{}").status(408), ErrorCode::BackendTimeout),
        (Reply::html().status(502), ErrorCode::BackendUnavailable),
        (Reply::json("{}").status(529), ErrorCode::BackendUnavailable),
        (
            Reply::json("{}").status(304),
            ErrorCode::BackendBrokenAnswer,
        ),
        (Reply::redirect("http://h/"), ErrorCode::BackendBrokenAnswer),
        (
            Reply::fixture("openai/stream_error.sse").unwrap(),
            ErrorCode::BackendUnavailable,
        ),
    ];
    for (reply, code) in cases {
        let shown = format!("{reply:?}");
        let ran = answered(Dialect::OpenAi, reply).await;
        assert_eq!(ran.code(), Some(code), "{shown}: {:?}", ran.end);
        assert!(
            !format!("{:?}", ran.end).contains("canary"),
            "{:?}",
            ran.end
        );
    }
    let limited = Reply::fixture("openai/error_rate_limit.json").unwrap();
    let ran = answered(
        Dialect::OpenAi,
        limited.status(429).header("retry-after", "3"),
    )
    .await;
    let error = ran.end.result.unwrap_err();
    assert_eq!(error.code(), ErrorCode::BackendRateLimited);
    assert_eq!(
        error.message(),
        "the vendor answers 429: Rate limit reached."
    );
    assert_eq!(error.context()["retry_after_ms"], 3000);
    let gone = Arc::new(Canned::failing(UpstreamError::Stalled { limit_ms: 1 }));
    assert_eq!(
        run(gone, json!({})).await.code(),
        Some(ErrorCode::BackendStalled)
    );
}

#[tokio::test]
async fn b19_what_is_no_answer_is_not_taken_for_one() {
    let stream = String::from_utf8(fixture("openai/stream_text.sse").unwrap()).unwrap();
    let cases = [
        (
            "a page",
            Reply::html(),
            Some(ErrorCode::BackendBrokenAnswer),
        ),
        (
            "nothing",
            Reply::no_content(),
            Some(ErrorCode::BackendBrokenAnswer),
        ),
        (
            "no JSON",
            Reply::json("<html>"),
            Some(ErrorCode::BackendBrokenAnswer),
        ),
        (
            "no answer",
            Reply::json("{}"),
            Some(ErrorCode::BackendBrokenAnswer),
        ),
        (
            "an empty stream",
            Reply::events(""),
            Some(ErrorCode::BackendBrokenAnswer),
        ),
        (
            "an error in a success",
            Reply::json(r#"{"error": {"message": "no", "type": "rate_limit_error"}}"#),
            Some(ErrorCode::BackendRateLimited),
        ),
        (
            "a line without end",
            Reply::events(format!("data: {}", "x".repeat(17 << 20))),
            Some(ErrorCode::BackendBrokenAnswer),
        ),
        (
            "broken events between good ones",
            Reply::events(format!("data: {{\n\ndata: \u{0}\n\n{stream}")),
            None,
        ),
        (
            "bytes that are no text",
            Reply::events([b"data: \xff\n\n", stream.as_bytes()].concat()),
            None,
        ),
    ];
    for (name, reply, code) in cases {
        let ran = answered(Dialect::OpenAi, reply).await;
        assert_eq!(ran.code(), code, "{name}: {:?}", ran.end);
        let warned = ran.whole().iter().any(|event| event["type"] == "warning");
        assert_eq!(warned, code.is_none(), "{name}");
        let finished = ran
            .whole()
            .iter()
            .any(|event| event["type"] == "assistant_message");
        assert_eq!(finished, code.is_none(), "{name}");
    }
}

/// However and wherever a stream ends too early: a run that completes has told the whole message and
/// every call.
#[tokio::test]
async fn b17_a_truncated_stream_never_completes_a_run() {
    let essential = |ran: &Ran| -> Vec<Value> {
        let told = ran.whole().into_iter();
        told.filter(|event| event["type"] == "assistant_message" || event["type"] == "tool_call")
            .collect()
    };
    for (dialect, answer) in [
        (Dialect::OpenAi, "openai/stream_tools.sse"),
        (Dialect::Claude, "claude/stream_text.sse"),
        (Dialect::Gemini, "gemini/stream_tool_calls.sse"),
        (Dialect::Codex, "codex/stream_calls.sse"),
    ] {
        let stream = fixture(answer).unwrap();
        let upstream = Arc::new(Canned::new(dialect, stream.clone()));
        let backend = backend(upstream.clone());
        let plan = confirmed(&backend, &json!({}));
        let whole = run_plan(&backend, plan.clone(), drop).await;
        assert!(whole.end.result.is_ok(), "{dialect}: {:?}", whole.end);
        let mut completed = 0;
        for at in 0..stream.len() {
            upstream.set(stream[..at].to_vec());
            let ran = run_plan(&backend, plan.clone(), drop).await;
            match ran.code() {
                Some(code) => assert_eq!(code, ErrorCode::BackendBrokenAnswer, "{dialect} at {at}"),
                None => {
                    assert_eq!(essential(&ran), essential(&whole), "{dialect} at {at}");
                    completed += 1;
                }
            }
        }
        assert!(completed < stream.len() / 3, "{dialect}: {completed}");
    }
    let cut = Reply::fixture("openai/stream_text.sse").unwrap();
    let cut = cut.cut_at(600, abp_testkit::Cut::Reset);
    let ran = answered(Dialect::OpenAi, cut).await;
    assert_eq!(ran.code(), Some(ErrorCode::BackendBrokenAnswer));
    assert_eq!(ran.said_in_pieces(), "Hel");
}

#[tokio::test]
async fn b15_a_cancelled_run_lets_go_of_the_vendor() {
    let stream = Reply::fixture("claude/stream_text.sse").unwrap();
    for (reply, used) in [
        (Reply::silence(), Value::Null),
        (stream.stall_at(600), json!({"input_tokens": 12})),
    ] {
        let vendor = Arc::new(FakeVendor::start(reply).unwrap());
        let backend = backend(Arc::new(upstream(&vendor, Dialect::Claude)));
        let plan = confirmed(&backend, &json!({}));
        let ran = run_plan(&backend, plan, |cancel| {
            let vendor = Arc::clone(&vendor);
            tokio::spawn(async move {
                assert!(until(&vendor, |seen| !seen.is_empty()).await);
                tokio::time::sleep(Duration::from_millis(200)).await;
                cancel.cancel(CancelReason::User);
            });
        });
        let ran = ran.await;
        assert!(ran.end.result.is_ok(), "the host knows why it ended");
        assert_eq!(
            ran.end.usage_raw.get("input_tokens"),
            used.get("input_tokens")
        );
        assert!(
            until(&vendor, |seen| matches!(
                seen[0].end,
                ExchangeEnd::Aborted { .. }
            ))
            .await
        );
    }
}
