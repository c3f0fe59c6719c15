//! Answers that are cut at a stop sequence, because their vendor has none: the caller is told where and
//! why it ended, and the ledger says that something was left out, whole and streamed alike.

use abp_dialect::{Dialect, Exchange};
use abp_translate::{
    Action, FidelityLevel, Ledger, Options, StreamTranslator, UNEXPLAINED, translate_response,
};
use serde_json::{Value, json};

/// What the vendor says, in pieces, and what the caller gets of it; nothing where it is not cut.
type Case = (&'static [&'static str], Option<&'static str>);

const CASES: &[Case] = &[
    (&["one STOP two"], Some("one ")),
    (&["one ", "STOP", " two"], Some("one ")),
    (&["one S", "TO", "P two"], Some("one ")),
    (&["one STOP"], Some("one ")),
    (&["one S", "TOP"], Some("one ")),
    (&["STOP"], Some("")),
    (&["STOP and more", " and more"], Some("")),
    (&["one END two STOP three"], Some("one ")),
    (&["one two"], None),
    (&["one STO", " two"], None),
    (&["one STO"], None),
];

fn exchange() -> Exchange {
    Exchange {
        stop_at: vec!["STOP".to_owned(), "END".to_owned()],
        ..Exchange::default()
    }
}

/// The vendor without stop sequences; its callers speak every other dialect.
const FROM: Dialect = Dialect::Codex;

fn answer(text: &str) -> Value {
    let text = json!({ "type": "output_text", "text": text, "annotations": [] });
    json!({
        "id": "a", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": [{ "type": "message", "id": "b", "status": "completed", "role": "assistant",
            "content": [text] }],
    })
}

fn events(pieces: &[&str]) -> Vec<Value> {
    let mut events = vec![
        json!({ "type": "response.created", "response":
            { "id": "a", "object": "response", "created_at": 1, "model": "m",
              "status": "in_progress", "output": [] } }),
        json!({ "type": "response.output_item.added", "output_index": 0, "item":
            { "type": "message", "id": "b", "role": "assistant", "content": [] } }),
    ];
    events.extend(pieces.iter().map(|piece| {
        json!({ "type": "response.output_text.delta", "output_index": 0, "content_index": 0,
            "item_id": "b", "delta": piece })
    }));
    let done = answer(&pieces.concat());
    events.extend([
        json!({ "type": "response.output_item.done", "output_index": 0, "item": done["output"][0] }),
        json!({ "type": "response.completed", "response": done }),
    ]);
    events
}

#[track_caller]
fn check_ledger(ledger: &Ledger, is_cut: bool, context: &str) {
    let labelled = |label: &str| {
        let entries = ledger.entries().iter();
        entries
            .filter(|entry| entry.label.as_deref() == Some(label))
            .collect::<Vec<_>>()
    };
    assert_eq!(labelled(UNEXPLAINED), [] as [&_; 0], "{context}");
    let cut = labelled("stop_sequences");
    assert_eq!(
        !cut.is_empty(),
        is_cut,
        "{context}: {:#?}",
        ledger.entries()
    );
    for entry in cut {
        assert_eq!(entry.action, Action::Emulated, "{context}");
        assert!(entry.is_loss(), "{context}");
        assert!(entry.source.is_some(), "{context}: {entry:?}");
    }
    if is_cut {
        assert_eq!(ledger.fidelity(), FidelityLevel::LossyLabeled, "{context}");
    }
}

/// All text that the caller gets, wherever its dialect puts it.
fn said(value: &Value, found: &mut String) {
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                match (key.as_str(), member) {
                    ("text" | "content", Value::String(text)) => found.push_str(text),
                    _ => said(member, found),
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| said(item, found)),
        _ => {}
    }
}

#[test]
fn a_cut_answer_says_so() {
    for to in Dialect::ALL.into_iter().filter(|to| *to != FROM) {
        for (pieces, expected) in CASES {
            let whole = pieces.concat();
            let context = format!("{to}: {whole:?}");
            let source = answer(&whole).to_string();
            let done = translate_response(
                source.as_bytes(),
                FROM,
                to,
                &exchange(),
                &Options::default(),
            )
            .unwrap();
            let mut found = String::new();
            said(&serde_json::from_str(&done.output).unwrap(), &mut found);
            assert_eq!(found, expected.unwrap_or(&whole), "{context}");
            check_ledger(&done.ledger, expected.is_some(), &context);
            if to == Dialect::Claude && expected.is_some() {
                let output: Value = serde_json::from_str(&done.output).unwrap();
                assert_eq!(output["stop_reason"], "stop_sequence", "{context}");
                let met = if whole.contains("END") { "END" } else { "STOP" };
                assert_eq!(output["stop_sequence"], met, "{context}");
            }
        }
    }
}

#[test]
fn a_cut_stream_says_so() {
    for to in Dialect::ALL.into_iter().filter(|to| *to != FROM) {
        for (pieces, expected) in CASES {
            let context = format!("{to}: {pieces:?}");
            let options = Options::default();
            let mut stream = StreamTranslator::new(FROM, to, &exchange(), &options).unwrap();
            let mut written = Vec::new();
            for event in events(pieces) {
                written.extend(stream.event(event["type"].as_str(), &event.to_string()));
            }
            written.extend(stream.end());
            let mut found = String::new();
            let mut stop = None;
            for event in &written {
                let Ok(value) = serde_json::from_str::<Value>(&event.data) else {
                    continue;
                };
                said(&value, &mut found);
                let delta = &value["delta"];
                stop = delta["stop_sequence"].as_str().map(str::to_owned).or(stop);
            }
            assert_eq!(found, expected.unwrap_or(&pieces.concat()), "{context}");
            check_ledger(&stream.ledger(), expected.is_some(), &context);
            if to == Dialect::Claude {
                assert_eq!(stop.is_some(), expected.is_some(), "{context}");
            }
        }
    }
}

/// Every choice of an answer is cut by itself, and what came after the cut is left out by name.
#[test]
fn what_follows_a_cut_is_left_out_by_name() {
    let source = json!({
        "id": "a", "object": "response", "created_at": 1, "model": "m", "status": "completed",
        "output": [
            { "type": "message", "id": "b", "status": "completed", "role": "assistant", "content": [
                { "type": "output_text", "text": "one STOP two", "annotations": [] },
                { "type": "output_text", "text": "three", "annotations": [] },
            ] },
            { "type": "function_call", "id": "c", "call_id": "d", "name": "f", "arguments": "{}",
              "status": "completed" },
        ],
    });
    for to in Dialect::ALL.into_iter().filter(|to| *to != FROM) {
        let source = source.to_string();
        let options = Options::default();
        let done = translate_response(source.as_bytes(), FROM, to, &exchange(), &options).unwrap();
        assert!(
            !done.output.contains("three") && !done.output.contains("\"f\""),
            "{to}"
        );
        check_ledger(&done.ledger, true, to.as_str());
        let left: Vec<_> = done
            .ledger
            .entries()
            .iter()
            .filter(|entry| entry.label.as_deref() == Some("after_stop_sequence"))
            .filter_map(|entry| entry.source.as_deref())
            .collect();
        assert!(
            left.iter()
                .any(|place| place.starts_with("/output/0/content/1"))
                && left.iter().any(|place| place.starts_with("/output/1")),
            "{to}: {left:?}"
        );
    }
}
