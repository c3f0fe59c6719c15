//! What compatible servers do in streams, and what becomes of it.

use abp_core::ir::IrDelta;
use abp_dialect::Exchange;

use crate::support::{Event, decode, encode, parse, summary};

/// A stream of chunks with these choices, and `[DONE]`.
fn chunks(choices: &[&str]) -> Vec<Event> {
    let chunk = |choice: &&str| {
        (
            None,
            format!(r#"{{"id":"c","model":"m","choices":[{choice}]}}"#),
        )
    };
    let done = (None, "[DONE]".to_owned());
    choices.iter().map(chunk).chain([done]).collect()
}

fn call(call: &str) -> String {
    format!(r#"{{"index":0,"delta":{{"tool_calls":[{call}]}}}}"#)
}

fn check(choices: &[&str], expected: &[&str]) {
    let deltas = decode(&chunks(choices)).expect("a stream");
    assert_eq!(summary(&deltas), expected, "{choices:?}");
}

const STOP: &str = r#"{"index":0,"delta":{},"finish_reason":"stop"}"#;
const CALLED: &str = r#"{"index":0,"delta":{},"finish_reason":"tool_calls"}"#;

#[test]
fn calls_are_told_apart_however_they_are_numbered() {
    let begins = r#"{"index":0,"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#;
    let cases: [&[&str]; 5] = [
        // Interleaved by number, ids once.
        &[
            begins,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}"#,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
        ],
        // The same number for both, told apart by their ids.
        &[
            begins,
            r#"{"index":0,"function":{"arguments":"1}"}}"#,
            r#"{"index":0,"id":"b","function":{"name":"g","arguments":"{}"}}"#,
        ],
        // No numbers, ids in every piece.
        &[
            r#"{"id":"a","function":{"name":"f","arguments":"{\"x\":"}}"#,
            r#"{"id":"b","function":{"name":"g","arguments":"{}"}}"#,
            r#"{"id":"a","function":{"arguments":"1}"}}"#,
        ],
        // Ids and names repeated.
        &[
            begins,
            r#"{"index":0,"id":"a","function":{"name":"f","arguments":"1}"}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":{}}}"#,
        ],
        // The name comes after the id and the first arguments.
        &[
            r#"{"index":0,"id":"a","function":{"arguments":"{\"x\":"}}"#,
            r#"{"index":0,"function":{"name":"f","arguments":"1}"}}"#,
            r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}"#,
        ],
    ];
    for pieces in cases {
        let mut choices: Vec<_> = pieces.iter().map(|piece| call(piece)).collect();
        choices.push(CALLED.to_owned());
        let choices: Vec<_> = choices.iter().map(String::as_str).collect();
        let first = r#"(0, 0) call Some("a") f false: {"x":1}"#;
        let second = r#"(0, 1) call Some("b") g false: {}"#;
        check(&choices, &[first, second, "0: ToolUse"]);
    }
}

#[test]
fn what_servers_repeat_or_leave_out_changes_nothing() {
    let said = ["(0, 0) Text: ab", "0: Stop"];
    let a = r#"{"index":0,"delta":{"role":"assistant","content":"a"}}"#;
    let cases: [&[&str]; 4] = [
        &[
            a,
            r#"{"delta":{"role":"assistant","content":"b"},"finish_reason":"stop"}"#,
        ],
        &[a, r#"{"index":0,"delta":{"content":"b"}}"#, STOP, STOP],
        &[
            r#"{"index":0,"message":{"content":"a"},"delta":{"content":"a"}}"#,
            r#"{"index":0,"message":{"content":"ab"},"delta":{"content":"b"}}"#,
            STOP,
        ],
        &[r#"{"index":0,"message":{"content":"ab"},"finish_reason":"stop"}"#],
    ];
    for choices in cases {
        check(choices, &said);
    }
}

#[test]
fn reasoning_text_and_refusal_are_blocks_of_their_own() {
    let choices = [
        r#"{"index":0,"delta":{"reasoning":"hm","reasoning_content":"hm"}}"#,
        r#"{"index":0,"delta":{"content":"yes"}}"#,
        r#"{"index":0,"delta":{"reasoning_content":"or"}}"#,
        r#"{"index":0,"delta":{"refusal":"no"}}"#,
        r#"{"index":1,"delta":{"content":"2"},"finish_reason":"length"}"#,
        r#"{"index":0,"delta":{},"finish_reason":"content_filter"}"#,
    ];
    let expected = [
        "(0, 0) Thinking: hm",
        "(0, 1) Text: yes",
        "(0, 2) Thinking: or",
        "(0, 3) Refusal: no",
        "(1, 0) Text: 2",
        "1: Length",
        "0: ContentFilter",
    ];
    check(&choices, &expected);
}

#[test]
fn an_answer_without_an_end_broke_off() {
    let said = r#"{"index":0,"delta":{"content":"a"}}"#;
    check(&[said], &["(0, 0) Text: a", "0: Incomplete"]);
    check(&[], &["0: Incomplete"]);
    // Written, it is no clean end either.
    let written = encode(
        &decode(&chunks(&[said])).expect("a stream"),
        &Exchange::default(),
    );
    assert!(
        written
            .iter()
            .any(|(_, data)| data.contains(r#""finish_reason":"length""#))
    );
}

#[test]
fn an_error_ends_a_stream_without_its_terminator() {
    let mut events = chunks(&[r#"{"index":0,"delta":{"content":"a"}}"#]);
    let error = r#"{"choices":[],"error":{"message":"no","code":429}}"#;
    events.insert(1, (None, error.to_owned()));
    let deltas = decode(&events).expect("a stream");
    assert_eq!(summary(&deltas), ["(0, 0) Text: a", "RateLimit: no"]);
    let written = encode(&deltas, &Exchange::default());
    let (_, last) = written.last().expect("an event");
    let last = parse(last);
    assert!(last.resolve("/error/message").is_some(), "{last:?}");
}

#[test]
fn the_encoder_answers_as_the_caller_asked() {
    let pieces = [
        call(r#"{"index":0,"id":"a","function":{"name":"f"}}"#),
        call(r#"{"index":1,"id":"b","function":{"name":"g","arguments":"{}"}}"#),
    ];
    let mut events = chunks(&[&pieces[0], &pieces[1], CALLED]);
    events.insert(
        3,
        (
            None,
            r#"{"choices":[],"usage":{"prompt_tokens":3}}"#.to_owned(),
        ),
    );
    let deltas = decode(&events).expect("a stream");
    let legacy = Exchange {
        legacy_functions: true,
        include_usage: Some(false),
        model: Some("alias".to_owned()),
        ..Exchange::default()
    };
    let written = encode(&deltas, &legacy);
    let all: String = written.iter().map(|(_, data)| data.as_str()).collect();
    assert!(all.contains(r#""finish_reason":"function_call""#), "{all}");
    assert!(
        all.contains(r#""function_call":{"arguments":"{}"}"#),
        "no arguments are an object"
    );
    assert!(
        !all.contains("tool_calls") && !all.contains("usage"),
        "{all}"
    );
    assert!(
        written
            .iter()
            .all(|(_, data)| data == "[DONE]" || data.contains(r#""model":"alias""#))
    );
    let asked = encode(&deltas, &Exchange::default());
    assert!(
        asked
            .iter()
            .any(|(_, data)| data.contains(r#""usage":{"prompt_tokens":3}"#))
    );
    assert!(matches!(deltas.last(), Some(IrDelta::End)));
}
