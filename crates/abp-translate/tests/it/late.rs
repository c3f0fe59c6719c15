//! Streams whose parts come later than their vendor promises.

use abp_dialect::{Dialect, Exchange};
use abp_translate::{Options, UNEXPLAINED, translate_stream};
use serde_json::{Value, json};

fn translated(from: Dialect, to: Dialect, events: &[Value]) -> (Vec<Value>, Vec<String>) {
    let lines = events.iter().map(|event| format!("data: {event}\n\n"));
    let text: String = lines.collect();
    let none = Exchange::default();
    let (events, ledger) =
        translate_stream(text.as_bytes(), from, to, &none, &Options::default()).unwrap();
    let parsed = events
        .iter()
        .filter_map(|event| serde_json::from_str(&event.data).ok());
    let labels = ledger.losses().filter_map(|entry| entry.label.as_deref());
    (parsed.collect(), labels.map(str::to_owned).collect())
}

/// Text after the reason why an answer ended is part of it, and the last chunk still says the reason.
#[test]
fn text_after_the_end_is_kept_and_the_end_is_told_again() {
    let event = |text: &str, reason: Option<&str>| {
        let mut candidate =
            json!({"content": {"parts": [{"text": text}], "role": "model"}, "index": 0});
        if let Some(reason) = reason {
            candidate["finishReason"] = json!(reason);
        }
        json!({"candidates": [candidate], "modelVersion": "g", "responseId": "r"})
    };
    let events = [
        event("Hello", None),
        event(" world", Some("MAX_TOKENS")),
        event(" and more", None),
    ];
    for to in [Dialect::OpenAi, Dialect::Kimi, Dialect::Copilot] {
        let (chunks, lost) = translated(Dialect::Gemini, to, &events);
        let choice = |chunk: &Value| chunk["choices"][0].clone();
        let text: String = chunks
            .iter()
            .filter_map(|chunk| {
                choice(chunk)["delta"]["content"]
                    .as_str()
                    .map(str::to_owned)
            })
            .collect();
        assert_eq!(text, "Hello world and more", "{to}");
        let mut choices = chunks.iter().map(choice).filter(|choice| !choice.is_null());
        let last = choices.next_back().unwrap();
        assert_eq!(last["finish_reason"], "length", "{to}: {last}");
        assert!(lost.is_empty(), "{to}: {lost:?}");
    }
}

/// A start that comes late is named in the ledger; counts of every message_delta are taken, the last reason
/// is the one that counts.
#[test]
fn a_late_start_is_explained_and_a_doubled_end_is_one() {
    let delta = |reason: &str, tokens: u32| {
        json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
            "usage": {"output_tokens": tokens}})
    };
    let events = [
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}}),
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message", "role": "assistant",
            "model": "c", "content": [], "stop_reason": null, "stop_sequence": null,
            "usage": {"input_tokens": 5, "output_tokens": 1}}}),
        json!({"type": "content_block_stop", "index": 0}),
        delta("end_turn", 2),
        delta("max_tokens", 9),
        json!({"type": "message_stop"}),
    ];
    for to in [Dialect::OpenAi, Dialect::Codex, Dialect::Gemini] {
        let (written, lost) = translated(Dialect::Claude, to, &events);
        assert!(
            !lost.iter().any(|label| label == UNEXPLAINED),
            "{to}: {lost:?}"
        );
        assert!(
            lost.iter().all(|label| label == "late_start"),
            "{to}: {lost:?}"
        );
        let text = Value::from(written).to_string();
        let (reason, tokens) = match to {
            Dialect::OpenAi => ("\"finish_reason\":\"length\"", "\"completion_tokens\":9"),
            Dialect::Codex => ("\"reason\":\"max_output_tokens\"", "\"output_tokens\":9"),
            _ => (
                "\"finishReason\":\"MAX_TOKENS\"",
                "\"candidatesTokenCount\":9",
            ),
        };
        assert!(
            text.contains(reason) && text.contains(tokens),
            "{to}: {text}"
        );
    }
}
