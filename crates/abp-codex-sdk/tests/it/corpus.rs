//! Recorded traffic: all of it reads, and what is written back is what was read.

use std::fs;
use std::path::Path;

use abp_codex_sdk::CodexCodec;
use abp_core::ir::{IrBlockStart, IrErrorKind};
use abp_dialect::{Codec, DialectError, Reader};
use abp_json::{Limits, Tape};
use serde_json::Value;

use crate::same::{
    Answer, Writing, assert_same, events, recode, representation, rewrite_request, rewrite_response,
};

/// Calls `check` with the name and the text of every recorded file of a kind; returns how many.
fn for_each(dir: &Path, kind: &str, mut check: impl FnMut(&str, &str)) -> usize {
    let dir = dir.join("corpus/openai-responses").join(kind);
    let mut files: Vec<_> = fs::read_dir(dir)
        .expect("the corpus has this kind")
        .map(|entry| entry.expect("a file").path())
        .collect();
    files.sort();
    for file in &files {
        let text = fs::read_to_string(file).expect("text");
        check(&file.display().to_string(), &text);
    }
    files.len()
}

#[test]
fn every_recorded_request_comes_back_the_same() {
    let Some(shared) = abp_testkit::shared_dir() else {
        return abp_testkit::skip("recorded Responses requests", "no shared directory");
    };
    let count = for_each(&shared, "request", |name, source| {
        let write = |writing| {
            rewrite_request(source, writing).unwrap_or_else(|error| panic!("{name}: {error}"))
        };
        assert_same(name, source, &write(Writing::Copied));
        let read = |text: &str| representation(text, |root| CodexCodec.read_request(root));
        assert_eq!(read(source), read(&write(Writing::Anew)), "{name}");
    });
    assert!(count > 0, "no requests");
}

#[test]
fn every_recorded_response_comes_back_the_same() {
    let Some(shared) = abp_testkit::shared_dir() else {
        return abp_testkit::skip("recorded Responses answers", "no shared directory");
    };
    let mut answers = 0;
    for_each(&shared, "response", |name, source| {
        let tape = Tape::parse_str(source, &Limits::default()).expect("JSON");
        let (root, reader) = (tape.root(), Reader::new(&tape));
        let is = |key: &str| root.get(key).is_some_and(|member| !member.is_null());
        if is("error") && !is("output") {
            let error = CodexCodec.read_error(reader.root(), None).expect(name);
            assert_ne!(error.kind, IrErrorKind::Other, "{name}");
        } else if is("output") {
            let write = |writing| {
                rewrite_response(source, writing).unwrap_or_else(|error| panic!("{name}: {error}"))
            };
            assert_same(name, source, &write(Writing::Copied));
            let read = |text: &str| representation(text, |root| CodexCodec.read_response(root));
            assert_eq!(read(source), read(&write(Writing::Anew)), "{name}");
            answers += 1;
        } else {
            // A count of tokens, or an answer of another dialect among the recordings.
            let refused = CodexCodec.read_response(reader.root());
            assert!(
                matches!(refused, Err(DialectError::NotThis { .. })),
                "{name}"
            );
        }
    });
    assert!(answers > 0, "no answers");
}

#[test]
fn every_recorded_stream_says_the_same_when_encoded_again() {
    let Some(shared) = abp_testkit::shared_dir() else {
        return abp_testkit::skip("recorded Responses streams", "no shared directory");
    };
    let mut streams = 0;
    for_each(&shared, "stream", |name, source| {
        let source = events(source);
        if !source
            .iter()
            .any(|(_, data)| data.contains("\"response.created\""))
        {
            let refused = recode(&source);
            assert!(
                matches!(refused, Err(DialectError::NotThis { .. })),
                "{name}"
            );
            return;
        }
        let (answer, written) = recode(&source).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (again, _) = recode(&written).unwrap_or_else(|error| panic!("{name} again: {error}"));
        assert_eq!(answer, again, "{name}");
        assert_eq!(answer.text(), told_text(&source), "{name}");
        streams += 1;
    });
    assert!(streams > 0, "no streams");
}

impl Answer {
    fn text(&self) -> String {
        let texts = self
            .blocks
            .iter()
            .filter(|(start, _)| *start == IrBlockStart::Text);
        texts.map(|(_, text)| text.as_str()).collect()
    }
}

/// The text of a stream: its pieces one after the other, or that of its items where there are none.
fn told_text(stream: &[(Option<String>, String)]) -> String {
    let events = stream
        .iter()
        .map(|(_, data)| -> Value { serde_json::from_str(data).expect("JSON") });
    let (mut pieces, mut items) = (String::new(), String::new());
    for event in events {
        match event["type"].as_str() {
            Some("response.output_text.delta") => {
                pieces.push_str(event["delta"].as_str().expect("text"));
            }
            Some("response.output_item.done") => {
                let parts = event["item"]["content"].as_array().into_iter().flatten();
                let texts = parts.filter(|part| part["type"] == "output_text");
                items.extend(texts.filter_map(|part| part["text"].as_str()));
            }
            _ => {}
        }
    }
    if pieces.is_empty() { items } else { pieces }
}
