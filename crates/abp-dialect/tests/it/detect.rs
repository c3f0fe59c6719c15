//! Detection: by tables, and against recorded traffic with nothing but the body.

use abp_dialect::Dialect::{Claude, Codex, Copilot, Gemini, Kimi, OpenAi};
use abp_dialect::sse::{SseDecoder, SseEvent, SseLimits};
use abp_dialect::{Detection, Dialect, DialectDetector, DocumentKind, Signals, WireFamily};
use abp_json::{Limits, Tape};

use crate::corpus::{Recording, recordings};

fn by_body(body: &[u8]) -> (Option<Detection>, Tape<'_>) {
    let tape = Tape::parse(body, &Limits::default()).expect("JSON");
    let signals = Signals {
        body: Some(tape.root()),
        ..Signals::default()
    };
    (DialectDetector::detect(&signals), tape)
}

#[test]
fn routes_hosts_and_headers() {
    type Case<'c> = (&'c str, &'c str, &'c str, Option<Dialect>);
    let cases: [Case<'_>; 20] = [
        ("/v1/chat/completions", "", "", Some(OpenAi)),
        (
            "/openai/deployments/d/chat/completions?api-version=1",
            "",
            "",
            Some(OpenAi),
        ),
        (
            "/v1/chat/completions",
            "api.moonshot.cn:443",
            "",
            Some(Kimi),
        ),
        (
            "/chat/completions",
            "api.githubcopilot.com",
            "",
            Some(Copilot),
        ),
        (
            "/chat/completions",
            "",
            "Copilot-Integration-Id",
            Some(Copilot),
        ),
        ("/responses", "api.githubcopilot.com", "", Some(Codex)),
        ("/v1/responses/compact", "", "", Some(Codex)),
        ("/v1/responses/input_tokens", "", "", Some(Codex)),
        ("/v1/messages/", "", "", Some(Claude)),
        (
            "/messages/count_tokens?beta=true",
            "",
            "copilot-integration-id",
            Some(Claude),
        ),
        (
            "/v1beta/models/gemini-3:streamGenerateContent?alt=sse",
            "",
            "",
            Some(Gemini),
        ),
        ("/v1/models/m:generateContent", "", "", Some(Gemini)),
        ("/v1/models/m:countTokens", "", "", Some(Gemini)),
        ("/elsewhere", "API.Anthropic.com", "", Some(Claude)),
        (
            "",
            "us-central1-aiplatform.googleapis.com",
            "",
            Some(Gemini),
        ),
        ("", "api.openai.com", "", Some(OpenAi)),
        ("", "", "Anthropic-Version", Some(Claude)),
        ("", "", "x-goog-api-key", Some(Gemini)),
        ("", "api.moonshot.ai", "x-api-key", Some(Kimi)),
        ("/v1/models", "127.0.0.1", "authorization", None),
    ];
    for (route, host, header, expected) in cases {
        let headers = [(header, "value")];
        let signals = Signals {
            route: Some(route).filter(|route| !route.is_empty()),
            host: Some(host).filter(|host| !host.is_empty()),
            headers: &headers,
            body: None,
        };
        let dialect = DialectDetector::detect(&signals).map(|found| found.dialect);
        assert_eq!(dialect, expected, "{route} {host} {header}");
    }
}

#[test]
fn a_route_outweighs_the_body() {
    let body = br#"{"model":"claude-x","max_tokens":1,"system":"s","messages":[]}"#;
    let tape = Tape::parse(body, &Limits::default()).expect("JSON");
    let signals = Signals {
        route: Some("/v1/chat/completions"),
        body: Some(tape.root()),
        ..Signals::default()
    };
    let found = DialectDetector::detect(&signals).expect("a dialect");
    assert_eq!((found.dialect, found.confidence), (OpenAi, 1.0));
}

/// Bodies that no recording has, or whose markers matter one by one.
#[test]
fn bodies() {
    use DocumentKind::{Error, Request, Response, StreamEvent};
    let groups: [(Dialect, DocumentKind, &[&str]); 11] = [
        (
            OpenAi,
            Request,
            &[
                r#"{"model":"x","messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}],"max_tokens":9}"#,
                r#"{"model":"x","messages":[{"role":"user","content":[{"type":"text","text":"t"}]}],"max_tokens":9}"#,
                r#"{"model":"anthropic/claude-x","max_tokens":9,"messages":[{"role":"user","content":"t"}]}"#,
            ],
        ),
        (
            Claude,
            Request,
            &[
                r#"{"model":"x","max_tokens":9,"messages":[{"role":"user","content":[{"type":"image","source":{}}]}]}"#,
                r#"{"model":"claude-x","max_tokens":9,"messages":[{"role":"user","content":"t"}]}"#,
                r#"{"anthropic_version":"bedrock-2023-05-31","max_tokens":9,"messages":[{"role":"user","content":"t"}]}"#,
            ],
        ),
        (Codex, Request, &[r#"{"model":"x","input":"t"}"#]),
        (Gemini, Request, &[r#"{"contents":{"parts":{"text":"t"}}}"#]),
        (
            Kimi,
            Request,
            &[
                r#"{"model":"kimi-k2","messages":[{"role":"user","content":"t"}]}"#,
                r#"{"model":"x","messages":[{"role":"assistant","content":"t","partial":true}]}"#,
                r#"{"model":"x","messages":[],"tools":[{"type":"builtin_function","function":{"name":"$web_search"}}]}"#,
                r#"{"model":"x","messages":[],"thinking":{"type":"enabled","keep":"all"}}"#,
            ],
        ),
        (
            Copilot,
            Request,
            &[
                r#"{"model":"x","messages":[{"role":"user","content":"t","copilot_references":[]}]}"#,
            ],
        ),
        (
            Copilot,
            StreamEvent,
            &[r#"{"choices":[],"copilot_usage":{}}"#],
        ),
        (
            Claude,
            Error,
            &[r#"{"type":"error","error":{"type":"overloaded_error","message":"m"}}"#],
        ),
        (
            Codex,
            StreamEvent,
            &[
                r#"{"type":"error","code":"c","message":"m","sequence_number":3}"#,
                r#"{"type":"error","sequence_number":2,"error":{"type":"t","message":"m"}}"#,
                r#"{"type":"keepalive","sequence_number":3}"#,
            ],
        ),
        (
            Gemini,
            Error,
            &[r#"[{"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}]"#],
        ),
        (
            Gemini,
            Response,
            &[r#"{"promptFeedback":{"blockReason":"SAFETY"}}"#],
        ),
    ];
    for (dialect, kind, bodies) in groups {
        for body in bodies {
            let (found, tape) = by_body(body.as_bytes());
            let found = found.expect(body);
            assert_eq!(found.dialect, dialect, "{body}: {:?}", found.reasons);
            let found = DialectDetector::detect_kind(tape.root(), dialect);
            assert_eq!(found, kind, "{body}");
        }
    }
}

#[test]
fn confidence() {
    let (minimal, _tape) = by_body(br#"{"model":"x","messages":[{"role":"user","content":"hi"}]}"#);
    let minimal = minimal.expect("a dialect");
    assert_eq!(minimal.dialect, OpenAi);
    assert!(minimal.confidence < 0.6, "{minimal:?}");
    let (longer, _tape) = by_body(
        br#"{"model":"x","messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}]}"#,
    );
    assert_eq!(longer, Some(minimal), "a sign counts once");
    let (clear, _tape) = by_body(br#"{"object":"chat.completion","choices":[]}"#);
    let clear = clear.expect("a dialect");
    assert!(clear.confidence > 0.95, "{clear:?}");
    assert_eq!(clear.runner_up, None);
    let reasons: Vec<_> = clear.reasons.iter().map(ToString::to_string).collect();
    assert_eq!(
        reasons,
        [
            "the body has an object called chat.completion",
            "the body has choices"
        ],
    );
    let (torn, _tape) = by_body(br#"{"object":"chat.completion","candidates":[]}"#);
    let torn = torn.expect("a dialect");
    assert_eq!((torn.dialect, torn.runner_up), (OpenAi, Some(Gemini)));
    assert!(torn.confidence < 0.75, "{torn:?}");
    assert_eq!(by_body(b"{\"a\":1}").0, None);
}

/// Whether a dialect is the right one for a recording.
fn is_right(recording: &Recording, kind: DocumentKind, found: Option<Dialect>) -> bool {
    let expected = match recording.vendor.as_str() {
        "moonshot" => Kimi,
        _ => recording.dialect,
    };
    found.is_some_and(|found| {
        found == expected
            // What Copilot sends is often plain chat completions.
            || (expected == OpenAi && found.family() == WireFamily::Chat)
            // OpenAI answers both of its dialects with the same error.
            || (expected == Codex && kind == DocumentKind::Error && found == OpenAi)
    })
}

fn assert_accuracy(what: &str, wrong: &[String], total: usize) {
    let right = total - wrong.len();
    println!("{what}: {right} of {total}, but {wrong:#?}");
    assert!(
        wrong.len() * 100 <= total,
        "{what}: {right} of {total}, but {wrong:#?}"
    );
}

#[test]
fn recorded_bodies() {
    let mut recordings = recordings("detecting recorded bodies");
    recordings.retain(|recording| recording.part != "stream");
    let mut wrong = Vec::new();
    for recording in &recordings {
        let expected = match (recording.part.as_str(), recording.status) {
            ("request", _) => DocumentKind::Request,
            (_, 200) => DocumentKind::Response,
            _ => DocumentKind::Error,
        };
        let (found, tape) = by_body(&recording.bytes);
        let kind = DialectDetector::detect_kind(tape.root(), recording.dialect);
        let dialect = found.as_ref().map(|found| found.dialect);
        if !is_right(recording, expected, dialect) || kind != expected {
            wrong.push(format!("{} as {kind}: {found:?}", recording.file));
        }
    }
    assert_accuracy("bodies", &wrong, recordings.len());
}

#[test]
fn recorded_stream_events() {
    let mut wrong = Vec::new();
    let mut total = 0;
    let recordings = recordings("detecting recorded stream events");
    for recording in recordings
        .iter()
        .filter(|recording| recording.part == "stream")
    {
        let mut decoder = SseDecoder::new(SseLimits::default());
        let mut events = decoder.feed(&recording.bytes);
        while let Some(event) = events.next_event().expect("a stream") {
            let SseEvent::Message { data, .. } = event else {
                continue;
            };
            if data == "[DONE]" {
                continue;
            }
            let (found, tape) = by_body(data.as_bytes());
            let kind = DialectDetector::detect_kind(tape.root(), recording.dialect);
            let expected = match recording.dialect {
                Gemini => DocumentKind::Response,
                _ => DocumentKind::StreamEvent,
            };
            let dialect = found.as_ref().map(|found| found.dialect);
            total += 1;
            if !is_right(recording, expected, dialect) || kind != expected {
                wrong.push(format!(
                    "{} as {kind}: {dialect:?}: {data:.80}",
                    recording.file
                ));
            }
        }
    }
    assert_accuracy("stream events", &wrong, total);
}
