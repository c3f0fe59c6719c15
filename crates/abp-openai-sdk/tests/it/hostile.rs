//! Documents that nobody should send: a typed error or an answer, never a panic.

use std::fs;

use abp_dialect::{Dialect, DialectError};
use abp_json::{Limits, Tape};
use proptest::prelude::{Strategy, any, prop_assert};
use proptest::{proptest, test_runner::Config};

use crate::support::{again, decode, fixtures};

#[test]
fn wrong_kinds_are_named_by_their_place() {
    let cases = [
        ("request", r"[]", ""),
        ("request", r"{}", "/messages"),
        ("request", r#"{"messages": 1}"#, "/messages"),
        (
            "request",
            r#"{"messages": [{"content": "x"}]}"#,
            "/messages/0/role",
        ),
        (
            "request",
            r#"{"messages": [{"role": "user", "content": 1}]}"#,
            "/messages/0/content",
        ),
        (
            "request",
            r#"{"messages": [], "temperature": "hot"}"#,
            "/temperature",
        ),
        ("request", r#"{"messages": [], "stop": [1]}"#, "/stop/0"),
        (
            "request",
            r#"{"messages": [], "tools": [{"type": "function"}]}"#,
            "/tools/0/function",
        ),
        ("response", r#"{"choices": [{}]}"#, "/choices/0/message"),
        (
            "response",
            r#"{"choices": [], "usage": {"prompt_tokens": -1}}"#,
            "/usage/prompt_tokens",
        ),
    ];
    for (kind, text, place) in cases {
        let error = again(text, Dialect::OpenAi, kind).expect_err(text);
        match error {
            DialectError::Shape { pointer, .. } | DialectError::Missing { pointer } => {
                assert_eq!(pointer, place, "{text}");
            }
            other => panic!("{text}: {other}"),
        }
    }
}

#[test]
fn what_is_unknown_is_no_error() {
    let text = r#"{"model": "m", "new": {"deep": [1]}, "tool_choice": "sometimes",
        "response_format": {"type": "regex", "regex": "a+"},
        "tools": [{"type": "teleport", "name": "t"}],
        "messages": [{"role": "critic", "content": [{"type": "smell", "smell": "rose"}]}]}"#;
    again(text, Dialect::OpenAi, "request").expect("tolerated");
    let text = r#"{"choices": [{"message": {"content": null}, "finish_reason": "tired"}]}"#;
    again(text, Dialect::Copilot, "response").expect("tolerated");
}

#[test]
fn arguments_of_any_depth_are_kept_as_text() {
    let deep = format!("{}{}", "[".repeat(5_000), "]".repeat(5_000));
    let text = format!(
        r#"{{"messages": [{{"role": "assistant", "tool_calls": [
            {{"id": "1", "type": "function", "function": {{"name": "f", "arguments": "{deep}"}}}}]}}]}}"#
    );
    let written = again(&text, Dialect::Kimi, "request").expect("readable");
    assert!(written.contains(&deep));
}

/// Replaces one byte range of a document by something else that may stand there.
fn mutated() -> impl Strategy<Value = (usize, usize, &'static str)> {
    let swaps = [
        "null", "1", "\"\"", "[]", "{}", "true", "-1.5e9", "", "\"type\"", "[[{}]]",
    ];
    (
        any::<usize>(),
        any::<usize>(),
        proptest::sample::select(swaps.to_vec()),
    )
}

/// The document with the value of its n-th node replaced.
fn replace(text: &str, file: usize, (_, node, swap): (usize, usize, &str)) -> Option<String> {
    let tape = Tape::parse_str(text, &Limits::default()).ok()?;
    let values: Vec<_> = tape.nodes().filter(|view| !view.is_key()).collect();
    let span = values.get((node ^ file) % values.len())?.span();
    let mut changed = text.to_owned();
    changed.replace_range(span, swap);
    Some(changed)
}

proptest! {
    #![proptest_config(Config::with_cases(256))]
    #[test]
    fn changed_documents_never_panic(change in mutated()) {
        for kind in ["request", "response"] {
            let paths = fixtures(kind);
            let file = change.0 % paths.len();
            let text = fs::read_to_string(&paths[file]).expect("readable");
            if let Some(changed) = replace(&text, file, change) {
                for source in [Dialect::OpenAi, Dialect::Copilot] {
                    if let Ok(written) = again(&changed, source, kind) {
                        prop_assert!(Tape::parse_str(&written, &Limits::default()).is_ok(), "{written}");
                    }
                }
                // A document is no chunk, but has most of a chunk's members.
                drop(decode(&[(None, changed)]));
            }
        }
    }
}
