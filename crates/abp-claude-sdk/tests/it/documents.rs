//! Requests, answers and errors.

use abp_claude_sdk::ClaudeCodec;
use abp_core::ir::{IrConversation, IrErrorKind, IrRole, Origin};
use abp_dialect::{Codec, Dialect, Exchange, Lowering, Reader, TargetProfile};
use abp_json::View;
use serde_json::{Value, json};

use crate::samples::{Sample, parse, same, samples};

const PROFILE: TargetProfile = TargetProfile {
    model: None,
    wire_version: None,
    plain_text_only: false,
    max_output: None,
    stream_usage: false,
};

/// What a change of the representation does to the document.
type Change = fn(&mut Value);

/// Reads a document and writes it again, as the hub does between a dialect and itself.
fn again(text: &str, rewrite: bool, write: impl Fn(&Reader<'_>, &mut Lowering<'_>)) -> String {
    let tape = parse(text);
    let reader = Reader::new(&tape);
    let mut out = Lowering::new(Some((Dialect::Claude, &reader)), Dialect::Claude, &PROFILE);
    if rewrite {
        out.rewrite();
    }
    write(&reader, &mut out);
    out.finish().0
}

fn request(reader: &Reader<'_>, out: &mut Lowering<'_>) {
    let conversation = ClaudeCodec.read_request(reader.root()).unwrap();
    ClaudeCodec.write_request(&conversation, out);
}

/// The recorded answers hold errors as well.
fn response(reader: &Reader<'_>, out: &mut Lowering<'_>) {
    if reader.root().get("error").is_some() {
        let error = ClaudeCodec.read_error(reader.root(), None).unwrap();
        ClaudeCodec.write_error(&error, out);
    } else {
        let response = ClaudeCodec.read_response(reader.root()).unwrap();
        ClaudeCodec.write_response(&response, &Exchange::default(), out);
    }
}

#[test]
fn what_is_read_and_written_unchanged_is_the_same() {
    for (name, text) in samples(Sample::Request) {
        let written = again(&text, false, request);
        assert!(
            same(parse(&text).root(), parse(&written).root()),
            "{name}: {written}"
        );
    }
    for (name, text) in samples(Sample::Response) {
        let written = again(&text, false, response);
        assert!(
            same(parse(&text).root(), parse(&written).root()),
            "{name}: {written}"
        );
    }
}

/// Written from the representation alone, nothing that is in it is missing. As JSON it has no
/// origins, which differ.
#[test]
fn what_is_written_anew_reads_the_same() {
    let conversation = |text: &str| {
        let tape = parse(text);
        let conversation = ClaudeCodec.read_request(Reader::new(&tape).root()).unwrap();
        serde_json::to_value(conversation).unwrap()
    };
    for (name, text) in samples(Sample::Request) {
        let written = again(&text, true, request);
        let mut first = conversation(&text);
        let second = conversation(&written);
        if first["settings"].get("max_tokens").is_none() {
            first["settings"]["max_tokens"] = second["settings"]["max_tokens"].clone();
        }
        assert_eq!(first, second, "{name}: {written}");
    }
    let answer = |text: &str| {
        let tape = parse(text);
        let response = ClaudeCodec
            .read_response(Reader::new(&tape).root())
            .unwrap();
        serde_json::to_value(response).unwrap()
    };
    for (name, text) in samples(Sample::Response) {
        if parse(&text).root().get("content").is_some() {
            let written = again(&text, true, response);
            assert_eq!(answer(&text), answer(&written), "{name}: {written}");
        }
    }
}

/// Everything known is taken: only members that the vendor added since are left unread.
#[test]
fn nothing_known_is_left_unread() {
    fn unread<'t>(view: View<'t>, reader: &Reader<'_>, found: &mut Vec<String>) {
        let seen = reader.seen(view.id());
        if view.is_empty() && seen == abp_dialect::Seen::Unread {
            found.push(view.pointer());
        }
        for (_, value) in view.entries() {
            unread(value, reader, found);
        }
        for item in view.items() {
            unread(item, reader, found);
        }
    }
    for (name, text) in samples(Sample::Request) {
        let tape = parse(&text);
        let reader = Reader::new(&tape);
        ClaudeCodec.read_request(reader.root()).unwrap();
        let mut found = Vec::new();
        unread(tape.root(), &reader, &mut found);
        assert_eq!(found, Vec::<String>::new(), "{name}");
    }
    for (name, text) in samples(Sample::Response) {
        let tape = parse(&text);
        let reader = Reader::new(&tape);
        if reader.root().get("error").is_some() {
            ClaudeCodec.read_error(reader.root(), None).unwrap();
        } else {
            ClaudeCodec.read_response(reader.root()).unwrap();
        }
        let mut found = Vec::new();
        unread(tape.root(), &reader, &mut found);
        assert_eq!(found, Vec::<String>::new(), "{name}");
    }
}

/// Messages that are changed are written anew, and only they.
#[test]
fn a_changed_message_is_written_anew() {
    let source = json!({
        "model": "claude-opus-4-8", "max_tokens": 64, "future": 1.0,
        "system": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        "messages": [
            {"role": "user", "content": "one", "future": true},
            {"role": "assistant", "content": [
                {"type": "tool_use", "id": "t", "name": "f", "input": {}, "future": 1}
            ]},
            {"role": "user", "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "r"},
                {"type": "text", "text": "two"}
            ]}
        ]
    })
    .to_string();
    let change = |at: usize| {
        again(&source, false, |reader, out| {
            let mut conversation: IrConversation = ClaudeCodec.read_request(reader.root()).unwrap();
            let message = &mut conversation.messages[at];
            message.content.truncate(1);
            message.origin = Origin::Host;
            ClaudeCodec.write_request(&conversation, out);
        })
    };
    let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
    let expect = |change: Change| {
        let mut expected = value(&source);
        change(&mut expected);
        expected
    };
    // An instruction; the first message; a call; the user's words after an answer.
    let cases: [(usize, Change); 4] = [
        (1, |_| {}),
        (2, |request| {
            request["messages"][0]
                .as_object_mut()
                .unwrap()
                .remove("future");
        }),
        (3, |request| {
            request["messages"][1]["content"][0]
                .as_object_mut()
                .unwrap()
                .remove("future");
        }),
        (5, |_| {}),
    ];
    for (at, changed) in cases {
        assert_eq!(value(&change(at)), expect(changed), "{at}");
    }
}

#[test]
fn answers_to_calls_are_split_from_what_else_the_user_says() {
    let text = r#"{"messages":[{"role":"user","content":[
        {"type":"tool_result","tool_use_id":"a","content":"1"},
        {"type":"tool_result","tool_use_id":"b","content":[]},
        {"type":"text","text":"go on"}]}]}"#;
    let tape = parse(text);
    let conversation = ClaudeCodec.read_request(Reader::new(&tape).root()).unwrap();
    let shape: Vec<_> = conversation
        .messages
        .iter()
        .map(|message| (message.role, message.content.len()))
        .collect();
    assert_eq!(shape, [(IrRole::Tool, 2), (IrRole::User, 1)]);
    assert_eq!(
        conversation.messages[0].origin,
        conversation.messages[1].origin
    );
}

#[test]
fn kinds_of_errors_follow_the_word_before_the_status() {
    let cases = [
        (
            "invalid_request_error",
            None,
            IrErrorKind::InvalidRequest,
            400,
        ),
        (
            "invalid_request_error",
            Some(409),
            IrErrorKind::Conflict,
            409,
        ),
        ("request_too_large", Some(413), IrErrorKind::TooLarge, 413),
        ("overloaded_error", None, IrErrorKind::Overloaded, 529),
        ("overloaded_error", Some(500), IrErrorKind::Overloaded, 500),
        ("timeout_error", Some(504), IrErrorKind::Timeout, 504),
        ("brand_new_error", Some(429), IrErrorKind::RateLimit, 429),
        ("brand_new_error", Some(418), IrErrorKind::Other, 418),
    ];
    for (word, status, kind, written) in cases {
        let text = json!({"type": "error", "error": {"type": word, "message": "no"}}).to_string();
        let tape = parse(&text);
        let reader = Reader::new(&tape);
        let error = ClaudeCodec.read_error(reader.root(), status).unwrap();
        assert_eq!(error.kind, kind, "{word} {status:?}");
        let source = Some((Dialect::Claude, &reader));
        let mut out = Lowering::new(source, Dialect::Claude, &PROFILE);
        assert_eq!(
            ClaudeCodec.write_error(&error, &mut out),
            written,
            "{word} {status:?}"
        );
    }
}
