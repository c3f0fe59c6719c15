//! Why an answer ended, from every dialect's every word to every dialect, whole and streamed.
//!
//! `fixtures/endings.txt` holds the words that come out, and the label where the meaning changes.
//! `UPDATE_FIXTURES=1 cargo test -p abp-translate` writes it anew; read the diff.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use abp_dialect::{Dialect, Exchange, WireFamily};
use abp_translate::{Ledger, Options, StreamTranslator, UNEXPLAINED, translate_response};
use serde_json::{Value, json};

/// Every word that a vendor ends an answer with, and one that no vendor uses. The word of the old
/// functions is missing: it goes with their calls.
fn words(dialect: Dialect) -> &'static [&'static str] {
    match dialect.family() {
        WireFamily::Messages => &[
            "end_turn",
            "max_tokens",
            "model_context_window_exceeded",
            "stop_sequence",
            "tool_use",
            "pause_turn",
            "compaction",
            "refusal",
            "a_new_word",
        ],
        WireFamily::GenerateContent => &[
            "STOP",
            "MAX_TOKENS",
            "SAFETY",
            "RECITATION",
            "LANGUAGE",
            "BLOCKLIST",
            "PROHIBITED_CONTENT",
            "SPII",
            "MALFORMED_FUNCTION_CALL",
            "OTHER",
            "A_NEW_WORD",
        ],
        WireFamily::Responses => &[
            "completed",
            "incomplete max_output_tokens",
            "incomplete content_filter",
            "incomplete a_new_word",
        ],
        _ => &[
            "stop",
            "length",
            "tool_calls",
            "content_filter",
            "a_new_word",
        ],
    }
}

fn whole(dialect: Dialect, word: &str) -> Value {
    match dialect.family() {
        WireFamily::Messages => json!({
            "id": "a", "type": "message", "role": "assistant", "model": "m",
            "content": [{ "type": "text", "text": "hi" }],
            "stop_reason": word, "stop_sequence": null,
            "usage": { "input_tokens": 1, "output_tokens": 1 },
        }),
        WireFamily::GenerateContent => json!({
            "candidates": [{
                "content": { "role": "model", "parts": [{ "text": "hi" }] },
                "finishReason": word, "index": 0,
            }],
            "responseId": "a", "modelVersion": "m",
        }),
        WireFamily::Responses => response(word),
        _ => json!({
            "id": "a", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{
                "index": 0, "message": { "role": "assistant", "content": "hi" },
                "finish_reason": word,
            }],
        }),
    }
}

fn response(word: &str) -> Value {
    let (status, details) = match word.split_once(' ') {
        Some((status, reason)) => (status, json!({ "reason": reason })),
        None => (word, Value::Null),
    };
    let text = json!({ "type": "output_text", "text": "hi", "annotations": [] });
    json!({
        "id": "a", "object": "response", "created_at": 1, "model": "m", "status": status,
        "incomplete_details": details, "error": null,
        "output": [{
            "type": "message", "id": "b", "status": status, "role": "assistant", "content": [text],
        }],
    })
}

/// The events of the same answer.
fn streamed(dialect: Dialect, word: &str) -> Vec<Value> {
    match dialect.family() {
        WireFamily::Messages => {
            let mut start = whole(dialect, word);
            start["content"] = json!([]);
            start["stop_reason"] = Value::Null;
            vec![
                json!({ "type": "message_start", "message": start }),
                json!({ "type": "content_block_start", "index": 0,
                    "content_block": { "type": "text", "text": "" } }),
                json!({ "type": "content_block_delta", "index": 0,
                    "delta": { "type": "text_delta", "text": "hi" } }),
                json!({ "type": "content_block_stop", "index": 0 }),
                json!({ "type": "message_delta",
                    "delta": { "stop_reason": word, "stop_sequence": null },
                    "usage": { "output_tokens": 1 } }),
                json!({ "type": "message_stop" }),
            ]
        }
        WireFamily::GenerateContent => vec![whole(dialect, word)],
        WireFamily::Responses => {
            let done = response(word);
            let kind = match done["status"].as_str() {
                Some("completed") => "response.completed",
                _ => "response.incomplete",
            };
            vec![
                json!({ "type": "response.created", "response":
                    { "id": "a", "object": "response", "created_at": 1, "model": "m",
                      "status": "in_progress", "output": [] } }),
                json!({ "type": "response.output_item.added", "output_index": 0, "item":
                    { "type": "message", "id": "b", "role": "assistant", "content": [] } }),
                json!({ "type": "response.output_text.delta", "output_index": 0,
                    "content_index": 0, "item_id": "b", "delta": "hi" }),
                json!({ "type": "response.output_item.done", "output_index": 0,
                    "item": done["output"][0] }),
                json!({ "type": kind, "response": done }),
            ]
        }
        _ => {
            let chunk = |delta: Value, reason: Value| {
                json!({ "id": "a", "object": "chat.completion.chunk", "created": 1, "model": "m",
                    "choices": [{ "index": 0, "delta": delta, "finish_reason": reason }] })
            };
            vec![
                chunk(json!({ "role": "assistant", "content": "hi" }), Value::Null),
                chunk(json!({}), json!(word)),
                json!("[DONE]"),
            ]
        }
    }
}

/// The word in a document or an event of a dialect, where it has one.
fn word_in(dialect: Dialect, value: &Value) -> Option<String> {
    let text = |pointer: &str| Some(value.pointer(pointer)?.as_str()?.to_owned());
    match dialect.family() {
        WireFamily::Messages => text("/stop_reason").or_else(|| text("/delta/stop_reason")),
        WireFamily::GenerateContent => text("/candidates/0/finishReason"),
        WireFamily::Responses => {
            let of = |at: &str| {
                let status = text(&format!("{at}/status")).filter(|word| word != "in_progress")?;
                let reason = text(&format!("{at}/incomplete_details/reason"));
                Some(reason.map_or(status.clone(), |reason| format!("{status} {reason}")))
            };
            match value["type"].as_str() {
                Some(kind) if kind.starts_with("response.") => of("/response"),
                _ => of(""),
            }
        }
        _ => text("/choices/0/finish_reason"),
    }
}

/// Labels of what these documents lose besides, wherever the target has no place for it.
const OTHERS: [&str; 3] = ["created", "id", "status"];

/// The labels of losses that the ending has.
fn labels(ledger: &Ledger) -> String {
    let entries = ledger.entries().iter();
    assert!(
        ledger
            .entries()
            .iter()
            .all(|entry| entry.label.as_deref() != Some(UNEXPLAINED)),
        "{:?}",
        ledger.entries()
    );
    let mut labels: Vec<_> = entries
        .filter(|entry| entry.is_loss())
        .filter_map(|entry| entry.label.as_deref())
        .filter(|label| !OTHERS.contains(label))
        .collect();
    labels.sort_unstable();
    labels.dedup();
    labels.iter().map(|label| format!(" ({label})")).collect()
}

fn translate_whole(from: Dialect, to: Dialect, word: &str) -> (Option<String>, String) {
    let source = whole(from, word).to_string();
    let (exchange, options) = (Exchange::default(), Options::default());
    let done = translate_response(source.as_bytes(), from, to, &exchange, &options).unwrap();
    let output = serde_json::from_str(&done.output).unwrap();
    (word_in(to, &output), labels(&done.ledger))
}

fn translate_streamed(from: Dialect, to: Dialect, word: &str) -> (Option<String>, String) {
    // Something to undo, so that the same dialect is written anew as well.
    let exchange = Exchange {
        tool_names: [("x".to_owned(), "y".to_owned())].into(),
        ..Exchange::default()
    };
    let mut stream = StreamTranslator::new(from, to, &exchange, &Options::default()).unwrap();
    let mut written = Vec::new();
    for event in streamed(from, word) {
        let name = event["type"].as_str().map(str::to_owned);
        let data = event
            .as_str()
            .map_or_else(|| event.to_string(), str::to_owned);
        written.extend(stream.event(name.as_deref(), &data));
    }
    written.extend(stream.end());
    assert!(stream.summary().complete, "{from} to {to}: {word}");
    let mut found = written
        .iter()
        .filter_map(|event| word_in(to, &serde_json::from_str(&event.data).ok()?));
    (found.next_back(), labels(&stream.ledger()))
}

#[test]
fn every_ending_in_every_direction() {
    let mut text = String::new();
    for from in Dialect::ALL {
        for word in words(from) {
            writeln!(text, "== {from} {word}").unwrap();
            for to in Dialect::ALL {
                let show = |(found, labels): (Option<String>, String)| match found {
                    Some(found) => format!("{found}{labels}"),
                    None => panic!("{from} to {to}: {word}: no ending"),
                };
                let whole = show(translate_whole(from, to, word));
                let streamed = show(translate_streamed(from, to, word));
                if from == to {
                    assert_eq!(whole, *word, "{to} keeps its words");
                }
                let line = match whole == streamed {
                    true => format!("{to}: {whole}"),
                    false => format!("{to}: {whole}, streamed {streamed}"),
                };
                writeln!(text, "{line}").unwrap();
            }
        }
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fixtures/endings.txt");
    if std::env::var_os("UPDATE_FIXTURES").is_some() {
        fs::write(&path, &text).unwrap();
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    let different: Vec<_> = text
        .lines()
        .zip(expected.lines().chain(std::iter::repeat("")))
        .filter(|(found, expected)| found != expected)
        .collect();
    assert!(different.is_empty(), "{different:#?}");
    assert_eq!(text, expected);
}
