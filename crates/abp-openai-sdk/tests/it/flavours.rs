//! What a member of the family can have that OpenAI has not.

use abp_dialect::{Codec, Dialect, Exchange, Fate, Lowering, Reader, TargetProfile};
use abp_openai_sdk::{ChatCodec, Flavour, OPENAI, ReasoningForm};

use crate::support::parse;

const RELATIVE: Flavour = Flavour {
    dialect: Dialect::Kimi,
    message_members: &["name", "partial"],
    server_tools: &["builtin_function"],
    reasoning: ReasoningForm::Thinking,
    replays_reasoning: true,
    several_answers: false,
    video: true,
    ..OPENAI
};

/// Translates a request between two members; returns the text and the labels of what is left out.
fn request(source: &str, from: &'static Flavour, to: &'static Flavour) -> (String, Vec<String>) {
    let tape = parse(source);
    let reader = Reader::new(&tape);
    let profile = TargetProfile::default();
    let conversation = ChatCodec { flavour: from }.read_request(reader.root());
    let mut out = Lowering::new(Some((from.dialect, &reader)), to.dialect, &profile);
    ChatCodec { flavour: to }.write_request(&conversation.expect("a request"), &mut out);
    let (text, _, notes) = out.finish();
    let left_out = notes.into_iter().filter_map(|note| match note.fate {
        Fate::Dropped { label, .. } | Fate::Unsupported { label, .. } => Some(label.into_owned()),
        Fate::Carried(_) => None,
    });
    (text, left_out.collect())
}

const RELATIVES_OWN: &str = r#"{"model": "k", "n": 2, "thinking": {"type": "disabled"},
    "tools": [{"type": "builtin_function", "function": {"name": "$web_search"}}],
    "messages": [
        {"role": "user", "content": [{"type": "video_url", "video_url": {"url": "ms://1"}}]},
        {"role": "assistant", "content": "b", "reasoning_content": "", "partial": true}]}"#;

#[test]
fn a_flavour_decides_what_is_written() {
    let (text, left_out) = request(RELATIVES_OWN, &RELATIVE, &OPENAI);
    assert_eq!(left_out, ["server_tool", "video", "thinking"]);
    let written = parse(&text);
    let effort = written.resolve("/reasoning_effort").expect("an effort");
    assert_eq!(effort.raw(), r#""none""#);
    assert!(
        !text.contains("partial") && !text.contains("builtin_function"),
        "{text}"
    );

    const COUSIN: Flavour = Flavour {
        dialect: Dialect::Copilot,
        ..RELATIVE
    };
    let (text, left_out) = request(RELATIVES_OWN, &RELATIVE, &COUSIN);
    assert_eq!(left_out, ["several_answers"]);
    let written = parse(&text);
    for kept in [
        "/tools/0/function/name",
        "/messages/0/content/0/video_url/url",
        "/messages/1/reasoning_content",
        "/messages/1/partial",
        "/thinking/type",
    ] {
        assert!(written.resolve(kept).is_some(), "{kept} in {text}");
    }
}

/// Copilot answers with the text in one choice and the calls in another.
#[test]
fn choices_of_one_number_are_one_answer() {
    let source = r#"{"model": "m", "choices": [
        {"message": {"content": "Let me look."}, "finish_reason": "stop"},
        {"message": {"content": null, "tool_calls": [{"id": "1", "type": "function",
            "function": {"name": "f", "arguments": "{}"}}]}, "finish_reason": "tool_calls"}]}"#;
    let text = response(source, &Exchange::default());
    let written = parse(&text);
    assert_eq!(
        written.resolve("/choices").expect("choices").len(),
        1,
        "{text}"
    );
    for (place, value) in [
        ("/choices/0/message/content", r#""Let me look.""#),
        ("/choices/0/message/tool_calls/0/id", r#""1""#),
        ("/choices/0/finish_reason", r#""tool_calls""#),
    ] {
        assert_eq!(written.resolve(place).expect(place).raw(), value, "{text}");
    }
}

/// Whoever asked with functions, which predate tools, expects one in the answer.
#[test]
fn functions_are_answered_as_functions() {
    let source = r#"{"id": "r", "model": "m", "choices": [{"index": 0, "finish_reason": "tool_calls",
        "message": {"content": null, "tool_calls": [
            {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}},
            {"id": "2", "type": "function", "function": {"name": "g", "arguments": "{}"}}]}}]}"#;
    let legacy = Exchange {
        legacy_functions: true,
        ..Exchange::default()
    };
    let text = response(source, &legacy);
    let written = parse(&text);
    for (place, value) in [
        (
            "/choices/0/message/function_call",
            r#"{"name":"f","arguments":"{}"}"#,
        ),
        ("/choices/0/finish_reason", r#""function_call""#),
    ] {
        assert_eq!(written.resolve(place).expect(place).raw(), value, "{text}");
    }
    assert!(!text.contains("tool_calls"), "{text}");
}

/// Answers a caller of OpenAI with what a relative said.
fn response(source: &str, exchange: &Exchange) -> String {
    let tape = parse(source);
    let reader = Reader::new(&tape);
    let profile = TargetProfile::default();
    let codec = ChatCodec { flavour: &OPENAI };
    let response = codec.read_response(reader.root()).expect("an answer");
    let mut out = Lowering::new(Some((Dialect::Copilot, &reader)), Dialect::OpenAi, &profile);
    codec.write_response(&response, exchange, &mut out);
    out.finish().0
}
