//! `abp translate` and `abp matrix`.

use std::io::Write as _;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::desk::{Desk, Ran};

fn chat() -> Value {
    json!({
        "model": "gpt-4.1",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        "max_tokens": 64,
        "logit_bias": {"1": 1}
    })
}

#[test]
fn the_document_alone_or_with_its_ledger() {
    let desk = Desk::new();
    desk.write("request.json", chat().to_string());
    let plain = desk.abp(&["translate", "--to", "claude", "request.json"]);
    assert_eq!(plain.status, 0, "{}", plain.stderr);
    let output: Value = serde_json::from_str(&plain.stdout).unwrap();
    assert_eq!(output["system"], "Be brief.");
    let summary = "lossy_labeled: 1 of meaning (logit_bias), 0 of bookkeeping";
    assert!(plain.stderr.contains(summary), "{}", plain.stderr);

    let report = desk.abp(&[
        "translate",
        "--to",
        "claude",
        "--report",
        "json",
        "request.json",
    ]);
    let report: Value = serde_json::from_str(&report.stdout).unwrap();
    assert_eq!(report["output"], output);
    assert_eq!(report["fidelity"], "lossy_labeled");
    let ledger = report["ledger"].as_array().unwrap();
    let dropped = ledger.iter().find(|entry| entry["source"] == "/logit_bias");
    assert_eq!(dropped.unwrap()["action"], "dropped", "{ledger:?}");

    let table = desk.abp(&[
        "translate",
        "--to",
        "claude",
        "--report",
        "table",
        "request.json",
    ]);
    assert!(
        table.stdout.contains("dropped     /logit_bias"),
        "{}",
        table.stdout
    );
}

#[test]
fn losses_can_be_refused() {
    let desk = Desk::new();
    desk.write("request.json", chat().to_string());
    let refused = desk.abp(&[
        "translate",
        "--to",
        "claude",
        "--on-loss",
        "reject",
        "request.json",
    ]);
    assert_eq!(refused.status, 3);
    assert!(refused.stdout.is_empty());
    assert!(refused.stderr.contains("/logit_bias"), "{}", refused.stderr);
}

#[test]
fn what_is_no_vendors_document_is_a_clear_error() {
    let desk = Desk::new();
    for (content, status, says) in [
        ("{", 1, "not readable as JSON"),
        ("{\"hello\": 1}", 2, "--from"),
        ("[]", 2, "--from"),
    ] {
        desk.write("request.json", content);
        let ran = desk.abp(&["translate", "--to", "claude", "request.json"]);
        assert_eq!(ran.status, status, "{content}: {}", ran.stderr);
        assert!(ran.stderr.contains(says), "{content}: {}", ran.stderr);
    }
}

/// The vendor would refuse it; the translation is given, and the reason told.
#[test]
fn defects_of_the_source_are_told() {
    let desk = Desk::new();
    let mut request = chat();
    request["messages"] = json!([]);
    desk.write("request.json", request.to_string());
    let arguments = [
        "translate",
        "--from",
        "openai",
        "--to",
        "claude",
        "request.json",
    ];
    let ran = desk.abp(&arguments);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("warning: /messages"), "{}", ran.stderr);
    desk.write("request.json", chat().to_string());
    let told = desk.abp(&arguments).stderr;
    assert!(!told.contains("warning"), "{told}");
}

/// A stream is translated while it comes, and one that breaks off does not end like a whole one.
#[test]
fn a_stream_from_standard_input() {
    let desk = Desk::new();
    let chunk = |delta: Value, finish: Value| {
        let choice = json!({"index": 0, "delta": delta, "finish_reason": finish});
        let chunk = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "choices": [choice]});
        format!("data: {chunk}\n\n")
    };
    let begun = chunk(json!({"role": "assistant", "content": "Hel"}), Value::Null);
    let ended = chunk(json!({}), json!("stop")) + "data: [DONE]\n\n";
    for (source, last) in [
        (begun.clone() + &ended, "\"stop_reason\":\"end_turn\""),
        (begun, "broke off"),
    ] {
        let arguments = [
            "translate",
            "--from",
            "openai",
            "--to",
            "claude",
            "--kind",
            "stream",
        ];
        let mut child = desk
            .command(&arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(source.as_bytes())
            .unwrap();
        let ran = Ran::new(child.wait_with_output().unwrap());
        assert_eq!(ran.status, 0, "{}", ran.stderr);
        assert!(
            ran.stdout.starts_with("event: message_start\n"),
            "{}",
            ran.stdout
        );
        assert!(ran.stdout.contains("\"Hel\""), "{}", ran.stdout);
        assert!(ran.stdout.contains(last), "{last}: {}", ran.stdout);
        let is_whole = ran.stdout.contains("message_stop");
        assert_eq!(is_whole, last != "broke off", "{}", ran.stdout);
    }
}

#[test]
fn the_matrix_gives_its_reasons() {
    let desk = Desk::new();
    let ran = desk.abp(&["matrix", "--from", "openai", "--to", "codex"]);
    assert!(ran.stdout.contains("x stop_sequences"), "{}", ran.stdout);
    let (status, rules) = desk.json(&["matrix"]);
    assert_eq!(status, 0);
    assert!(rules["rules"].as_array().unwrap().len() > 300);
}

/// A summary says what is meaning; a refusal speaks only of what the source had.
#[test]
fn a_summary_tells_meaning_from_bookkeeping() {
    let desk = Desk::new();
    let answer = json!({
        "id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m",
        "system_fingerprint": "fp_1",
        "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}],
    });
    desk.write("answer.json", answer.to_string());
    let told = |arguments: &[&str]| desk.abp(&[&["translate"], arguments].concat()).stderr;
    let summary = told(&["--to", "claude", "answer.json"]);
    let expected = "lossy_labeled: 0 of meaning, 2 of bookkeeping";
    assert!(summary.contains(expected), "{summary}");

    // Claude needs a limit that this request does not have, which is nothing of the request's.
    let request = json!({"model": "m", "messages": [{"role": "user", "content": "Hi"}]});
    desk.write("request.json", request.to_string());
    let reject = [
        "--to",
        "claude",
        "--from",
        "openai",
        "--on-loss",
        "reject",
        "request.json",
    ];
    let ran = desk.abp(&[&["translate"], &reject[..]].concat());
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(ran.stderr.contains("max_tokens_default"), "{}", ran.stderr);
    assert!(told(&["--from", "openai", "--to", "kimi", "request.json"]).contains("lossless"));
}

/// The way back shows what did not come back, in words and for programs.
#[test]
fn a_round_trip_names_what_did_not_come_back() {
    let desk = Desk::new();
    desk.write("request.json", chat().to_string());
    let trip = [
        "translate",
        "--to",
        "claude",
        "--round-trip",
        "request.json",
    ];
    let ran = desk.abp(&trip);
    assert!(ran.stderr.contains("gone /logit_bias"), "{}", ran.stderr);
    let (_, report) = desk.json(&trip);
    let missing = &report["round_trip"]["not_restored"];
    let gone = json!({"pointer": "/logit_bias", "change": "gone"});
    assert!(missing.as_array().unwrap().contains(&gone), "{missing:#}");
    let mut lossless = chat();
    for name in ["logit_bias", "max_tokens"] {
        lossless.as_object_mut().unwrap().remove(name);
    }
    desk.write("request.json", lossless.to_string());
    let ran = desk.abp(&["translate", "--to", "kimi", "--round-trip", "request.json"]);
    assert!(
        ran.stderr.contains("everything came back"),
        "{}",
        ran.stderr
    );
}
