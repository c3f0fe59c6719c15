//! Documents that are none: a typed error or an answer, never a panic.

use abp_codex_sdk::CodexCodec;
use abp_dialect::{Codec, DialectError, Reader};
use abp_json::{Limits, Tape};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::same::{Writing, recode, rewrite_request, rewrite_response};

#[test]
fn what_is_of_the_wrong_kind_is_refused_with_its_place() {
    let cases = [
        (json!([]), ""),
        (json!({"input": 1}), "/input"),
        (json!({"input": [1]}), "/input/0"),
        (json!({"input": [{"role": "user"}]}), "/input/0/content"),
        (
            json!({"input": [{"role": "user", "content": [1]}]}),
            "/input/0/content/0",
        ),
        (
            json!({"input": [{"type": "function_call"}]}),
            "/input/0/name",
        ),
        (json!({"model": 5}), "/model"),
        (json!({"instructions": {}}), "/instructions"),
        (json!({"tools": {}}), "/tools"),
        (json!({"tools": [{"type": "function"}]}), "/tools/0/name"),
        (json!({"tool_choice": 1}), "/tool_choice"),
        (json!({"text": {"format": "json"}}), "/text/format"),
        (json!({"include": "all"}), "/include"),
        (json!({"temperature": "hot"}), "/temperature"),
    ];
    for (source, place) in cases {
        let problem =
            rewrite_request(&source.to_string(), Writing::Copied).expect_err("it is wrong");
        let (DialectError::Shape { pointer, .. } | DialectError::Missing { pointer }) = problem
        else {
            panic!("{source}: {problem}");
        };
        assert_eq!(pointer, place, "{source}");
    }
}

#[test]
fn what_is_unknown_is_no_error() {
    let source = json!({
        "model": "m",
        "input": [
            {"type": "telepathy_call", "id": "t"},
            {"type": "message", "role": "critic", "content": "no"},
            {"role": "user", "content": [{"type": "input_smell", "smell": "tar"}]},
            {"type": "telepathy_call_output", "id": "t"},
        ],
        "tools": [{"type": "telepathy"}],
        "tool_choice": "telepathy",
        "text": {"format": {"type": "haiku"}},
        "mood": "good",
    })
    .to_string();
    crate::same::assert_same(
        "unknown",
        &source,
        &rewrite_request(&source, Writing::Copied).expect("readable"),
    );
}

#[test]
fn nesting_is_bounded() {
    let deep = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"input": [{{"type": "x", "deep": {open}{close}}}]}}"#)
    };
    assert!(rewrite_request(&deep(120), Writing::Copied).is_ok());
    assert!(matches!(
        rewrite_request(&deep(200), Writing::Copied),
        Err(DialectError::Json(_))
    ));
}

/// A document with something of everything, to be damaged.
fn whole() -> Value {
    json!({
        "id": "r", "object": "response", "status": "incomplete", "model": "m", "created_at": 1,
        "incomplete_details": {"reason": "max_output_tokens"},
        "instructions": "be", "input": [{"role": "user", "content": [
            {"type": "input_text", "text": "a"},
            {"type": "input_image", "image_url": "data:image/png;base64,AA==", "detail": "low"},
            {"type": "input_file", "file_data": "AA==", "filename": "f"}]}],
        "output": [
            {"type": "reasoning", "id": "rs", "summary": [{"type": "summary_text", "text": "t"}]},
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a",
                "annotations": [{"type": "url_citation", "url": "u", "start_index": 0, "end_index": 1}]}]},
            {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{\"a\":1}"},
            {"type": "custom_tool_call", "call_id": "d", "name": "g", "input": "x"}],
        "tools": [{"type": "function", "name": "f", "parameters": {}}, {"type": "custom", "name": "g"}],
        "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
        "reasoning": {"effort": "low"}, "text": {"format": {"type": "json_schema", "name": "s"}},
        "include": ["message.output_text.logprobs"],
        "usage": {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}},
        "error": {"message": "m", "code": "c"},
    })
}

/// Replaces the `nth` value of a document, counted depth first.
fn damage(value: &mut Value, nth: &mut usize, with: &Value) {
    if *nth == 0 {
        *value = with.clone();
    }
    *nth = nth.wrapping_sub(1);
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| damage(item, nth, with)),
        Value::Object(members) => members
            .values_mut()
            .for_each(|item| damage(item, nth, with)),
        _ => {}
    }
}

proptest! {
    #[test]
    fn damaged_documents_do_not_panic(
        places in prop::collection::vec((0_usize..120, 0_usize..7), 1..4),
    ) {
        let wrong = [json!(null), json!(-1), json!("\u{1}"), json!([]), json!({}), json!([[]]), json!({"type": "x"})];
        let mut source = whole();
        for (place, kind) in places {
            damage(&mut source, &mut place.clone(), &wrong[kind]);
        }
        let text = source.to_string();
        let _request = rewrite_request(&text, Writing::Anew);
        let _response = rewrite_response(&text, Writing::Anew);
        let tape = Tape::parse_str(&text, &Limits::default()).expect("JSON");
        let reader = Reader::new(&tape);
        let _error = CodexCodec.read_error(reader.root(), Some(500));
        // As an item, as a part, and as a whole, in any order.
        let event = |kind: &str, member: &str, value: &Value| {
            (None, json!({"type": kind, "output_index": 0, member: value}).to_string())
        };
        let item = &source["output"][places_of(&source)];
        let stream = [
            event("response.created", "response", &source),
            event("response.output_item.added", "item", item),
            event("response.content_part.added", "part", &item["content"][0]),
            event("response.output_text.delta", "delta", &item["content"][0]["text"]),
            event("response.output_item.done", "item", item),
            event("response.completed", "response", &source),
        ];
        let _stream = recode(&stream);
    }
}

/// Some item of the output, chosen by what the damage left.
fn places_of(source: &Value) -> usize {
    source.to_string().len() % 4
}
