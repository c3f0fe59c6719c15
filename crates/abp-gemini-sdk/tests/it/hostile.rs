//! What nobody should send: a typed error or a result, never a panic.

use abp_dialect::DialectError;
use abp_json::{Kind, Limits, Tape, View};
use proptest::prelude::*;
use proptest::sample::Index;

use crate::support::{Document, Writing, decode, encode, events_of, fixtures, round_trip};

#[test]
fn wrong_documents_are_named() {
    let shape = |pointer: &str, expected| {
        let pointer = pointer.to_owned();
        Err(DialectError::Shape { pointer, expected })
    };
    let missing = |pointer: &str| {
        let pointer = pointer.to_owned();
        Err(DialectError::Missing { pointer })
    };
    let cases = [
        ("[]", shape("", "an object")),
        (r#"{"contents":[1]}"#, shape("/contents/0", "an object")),
        (
            r#"{"contents":[{"parts":[{"text":1}]}]}"#,
            shape("/contents/0/parts/0/text", "a string"),
        ),
        (
            r#"{"contents":[{"parts":[{"functionCall":{"args":{}}}]}]}"#,
            missing("/contents/0/parts/0/functionCall/name"),
        ),
        (
            r#"{"contents":[{"parts":[{"function_call":{"name":"f","args":"{}"}}]}]}"#,
            shape("/contents/0/parts/0/function_call/args", "an object"),
        ),
        (
            r#"{"contents":[],"generationConfig":{"temperature":"hot"}}"#,
            shape("/generationConfig/temperature", "a number"),
        ),
        (
            r#"{"contents":[],"tools":[{"functionDeclarations":[{}]}]}"#,
            missing("/tools/0/functionDeclarations/0/name"),
        ),
    ];
    for (source, expected) in cases {
        let read = round_trip(source, Document::Request, Writing::Copied).map(drop);
        assert_eq!(read, expected, "{source}");
    }
    for (source, document) in [
        (
            r#"{"content":{"parts":[{"text":"embed me"}]}}"#,
            Document::Request,
        ),
        (
            r#"{"requests":[{"request":{"contents":[]}}]}"#,
            Document::Request,
        ),
        (r#"{"totalTokens":3}"#, Document::Response),
        (
            r#"{"error":{"code":400,"message":"no"}}"#,
            Document::Response,
        ),
    ] {
        let read = round_trip(source, document, Writing::Copied);
        assert!(
            matches!(read, Err(DialectError::NotThis { .. })),
            "{source}"
        );
    }
}

#[test]
fn deep_schemas_and_arguments_are_bounded() {
    let deep = format!(
        "{}{}",
        r#"{"type":"ARRAY","items":"#.repeat(110),
        "{}".to_owned()
    );
    let deep = format!("{deep}{}", "}".repeat(110));
    let source = format!(
        r#"{{"contents":[],"tools":[{{"functionDeclarations":[{{"name":"f","parameters":{deep}}}]}}]}}"#
    );
    round_trip(&source, Document::Request, Writing::Anew).expect("within the limit");
}

/// The document with one of its values replaced by another.
fn mutated(view: View<'_>, target: usize, with: &str) -> String {
    if view.id().index() == target {
        return with.to_owned();
    }
    match view.kind() {
        Kind::Object => {
            let members = view
                .entries()
                .map(|(key, value)| format!("{}:{}", key.raw(), mutated(value, target, with)));
            format!("{{{}}}", members.collect::<Vec<_>>().join(","))
        }
        Kind::Array => {
            let items = view.items().map(|item| mutated(item, target, with));
            format!("[{}]", items.collect::<Vec<_>>().join(","))
        }
        _ => view.raw().to_owned(),
    }
}

fn mutate(source: &str, place: Index, with: &str) -> String {
    let tape = Tape::parse_str(source, &Limits::default()).expect("JSON");
    let values: Vec<_> = tape.nodes().filter(|view| !view.is_key()).collect();
    mutated(tape.root(), place.get(&values).id().index(), with)
}

fn anything() -> impl Strategy<Value = &'static str> {
    prop_oneof![
        Just("null"),
        Just("true"),
        Just("-1"),
        Just("1e400"),
        Just("\"\""),
        Just("\"\\ud800\""),
        Just("\"STOP\""),
        Just("[]"),
        Just("[[]]"),
        Just("{}"),
        Just("[{}]"),
        Just(r#"{"text":"x","thought":true}"#),
        Just(r#"{"error":{}}"#),
    ]
}

proptest! {
    #[test]
    fn mutated_documents_never_panic(file in any::<Index>(), place in any::<Index>(), with in anything()) {
        for (prefix, document) in [("request_", Document::Request), ("response_", Document::Response)] {
            let files = fixtures(prefix);
            let source = mutate(&file.get(&files).1, place, with);
            for writing in [Writing::Copied, Writing::Anew] {
                if let Ok((_, written)) = round_trip(&source, document, writing) {
                    prop_assert!(Tape::parse_str(&written, &Limits::default()).is_ok(), "{}", written);
                }
            }
            drop(round_trip(&source, Document::Error, Writing::Anew));
        }
    }

    #[test]
    fn mutated_streams_never_panic(file in any::<Index>(), event in any::<Index>(), place in any::<Index>(), with in anything()) {
        let files = fixtures("stream_");
        let mut events = events_of(&file.get(&files).1);
        let number = event.index(events.len());
        events[number] = mutate(&events[number], place, with);
        if decode(&events).is_ok() {
            encode(&events);
        }
    }
}
