//! Documents that are wrong: an error or something sensible, never a panic.

use abp_claude_sdk::ClaudeCodec;
use abp_core::ir::IrDelta;
use abp_dialect::{
    Codec, Dialect, DialectError, EventSink, Exchange, Lowering, Reader, TargetProfile,
};
use abp_json::{Limits, Tape};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::samples::{Sample, samples};

/// Reads a text in every way, and writes what could be read, for several targets.
fn survive(text: &str) {
    let Ok(tape) = Tape::parse_str(text, &Limits::default()) else {
        return;
    };
    let profiles = [
        ("claude-opus-4-8", "2026-10-21"),
        ("claude-3-haiku", "2023-06-01"),
    ]
    .map(|(model, version)| TargetProfile {
        model: Some(model.to_owned()),
        wire_version: Some(version.to_owned()),
        ..TargetProfile::default()
    });
    for profile in &profiles {
        for source in [Dialect::Claude, Dialect::OpenAi] {
            let reader = Reader::new(&tape);
            let fresh = || Lowering::new(Some((source, &reader)), Dialect::Claude, profile);
            if let Ok(conversation) = ClaudeCodec.read_request(reader.root()) {
                let mut out = fresh();
                ClaudeCodec.write_request(&conversation, &mut out);
                valid(&out.finish().0);
            }
            if let Ok(response) = ClaudeCodec.read_response(reader.root()) {
                let mut out = fresh();
                ClaudeCodec.write_response(&response, &Exchange::default(), &mut out);
                valid(&out.finish().0);
            }
            if let Ok(error) = ClaudeCodec.read_error(reader.root(), None) {
                let mut out = fresh();
                ClaudeCodec.write_error(&error, &mut out);
                valid(&out.finish().0);
            }
        }
    }
}

fn valid(text: &str) {
    let limits = Limits {
        max_depth: 512,
        ..Limits::default()
    };
    Tape::parse_str(text, &limits).unwrap_or_else(|error| panic!("{error}: {text}"));
}

#[test]
fn wrong_kinds_are_errors_with_their_place() {
    let cases = [
        (json!([]), ""),
        (json!({}), "/messages"),
        (json!({"messages": {}}), "/messages"),
        (json!({"messages": [1]}), "/messages/0"),
        (
            json!({"messages": [{"role": "user"}]}),
            "/messages/0/content",
        ),
        (
            json!({"messages": [{"role": 1, "content": ""}]}),
            "/messages/0/role",
        ),
        (
            json!({"messages": [{"role": "user", "content": 1}]}),
            "/messages/0/content",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{}]}]}),
            "/messages/0/content/0/type",
        ),
        (
            json!({"messages": [{"role": "user", "content": [{"type": "text", "text": 1}]}]}),
            "/messages/0/content/0/text",
        ),
        (
            json!({"messages": [{"role": "assistant", "content": [
                {"type": "tool_use", "id": "a", "name": "f", "input": "{}"}]}]}),
            "/messages/0/content/0/input",
        ),
        (json!({"messages": [], "max_tokens": "1"}), "/max_tokens"),
        (json!({"messages": [], "tools": [{}]}), "/tools/0/name"),
        (json!({"messages": [], "thinking": {}}), "/thinking/type"),
    ];
    for (document, place) in cases {
        let text = document.to_string();
        let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
        match ClaudeCodec.read_request(Reader::new(&tape).root()) {
            Err(DialectError::Shape { pointer, .. } | DialectError::Missing { pointer }) => {
                assert_eq!(pointer, place, "{text}");
            }
            other => panic!("{text}: {other:?}"),
        }
    }
}

#[test]
fn words_that_nobody_knows_are_read() {
    let document = json!({
        "model": "m", "max_tokens": 1, "new": {"a": [1]},
        "system": [{"type": "new"}],
        "messages": [{"role": "narrator", "content": [{"type": "new", "x": 1}]}],
        "tools": [{"type": "new_20300101"}],
        "tool_choice": {"type": "new"},
        "thinking": {"type": "new", "display": "new"},
        "output_config": {"effort": "new", "format": {"type": "new"}}
    });
    survive(&document.to_string());
    let text = document.to_string();
    let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
    assert!(ClaudeCodec.read_request(Reader::new(&tape).root()).is_ok());
}

#[test]
fn deep_nesting_is_survived() {
    let mut content = json!([{"type": "text", "text": "deep"}]);
    for _ in 0..20 {
        content = json!([{"type": "tool_result", "tool_use_id": "a", "content": content}]);
        content = json!([{"type": "document", "source": {"type": "content", "content": content}}]);
    }
    survive(&json!({"messages": [{"role": "user", "content": content}]}).to_string());
}

/// Every place of a document replaced in turn by something else.
fn mutate(document: &mut Value, at: &mut usize, with: &Value) -> bool {
    if *at == 0 {
        *document = with.clone();
        return true;
    }
    *at -= 1;
    match document {
        Value::Array(items) => items.iter_mut().any(|item| mutate(item, at, with)),
        Value::Object(members) => members.values_mut().any(|item| mutate(item, at, with)),
        _ => false,
    }
}

fn replacement() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        Just(json!("")),
        Just(json!("tool_use")),
        Just(json!(-1.5e300)),
        Just(json!(true)),
        Just(json!([])),
        Just(json!({})),
        Just(json!([{"type": "tool_result"}])),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn mutated_documents_are_survived(
        kind in prop_oneof![Just(Sample::Request), Just(Sample::Response)],
        which in any::<prop::sample::Index>(),
        place in 0_usize..120,
        with in replacement(),
    ) {
        let samples = samples(kind);
        let (_, text) = which.get(&samples);
        let mut document: Value = serde_json::from_str(text).unwrap();
        mutate(&mut document, &mut place.clone(), &with);
        survive(&document.to_string());
    }

    /// Events in any order, with anything in them, keep to the contract of deltas.
    #[test]
    fn mutated_events_are_survived(
        events in prop::collection::vec((0_usize..10, 0_usize..12, replacement()), 0..16),
    ) {
        let mut decoder = ClaudeCodec.stream_decoder();
        let mut encoder = ClaudeCodec.stream_encoder(&Exchange::default());
        let profile = TargetProfile::default();
        let mut checker = crate::streams::Checker::default();
        let mut run = |deltas: Vec<IrDelta>| {
            let mut sink = EventSink::new(None, Dialect::Claude, &profile);
            for delta in &deltas {
                checker.check(delta);
                encoder.delta(delta, &mut sink);
            }
            for event in sink.finish().0 {
                valid(&event.data);
            }
        };
        for (which, place, with) in events {
            let mut data = crate::streams::event_samples()[which].clone();
            mutate(&mut data, &mut place.clone(), &with);
            let text = data.to_string();
            let tape = Tape::parse_str(&text, &Limits::default()).unwrap();
            let reader = Reader::new(&tape);
            let mut deltas = Vec::new();
            let failed = decoder.event(None, reader.root(), &mut deltas).is_err();
            run(deltas);
            if failed {
                return Ok(());
            }
        }
        let mut deltas = Vec::new();
        decoder.end(&mut deltas);
        run(deltas);
    }
}
