//! What is made up for, and how the caller hears of it.

use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply as Vendor, Script};

use crate::lab::{KEY, Lab, path, upstream};

const ASKED: &str = r#"{"model":"moonshot-v1-8k","max_tokens":64,"messages":[{"role":"user","content":"Where?"}],
    "response_format":{"type":"json_schema","json_schema":{"name":"place","strict":true,"schema":
    {"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}}"#;

fn answer(text: &str) -> Vendor {
    let text = serde_json::Value::from(text);
    Vendor::json(format!(
        r#"{{"id":"c","object":"chat.completion","created":1,"model":"m","choices":[{{"index":0,"message":{{"role":"assistant","content":{text}}},"finish_reason":"stop"}}],"usage":{{"prompt_tokens":5,"completion_tokens":3,"total_tokens":8}}}}"#
    ))
}

/// A model without structured output is told the schema, its answer is checked, and it is asked once more
/// where the answer does not hold.
#[test]
fn an_answer_of_another_shape_is_repaired_once() {
    let cases = [
        (vec![r#"{"city":"Rome"}"#], 200, 1),
        (vec!["Rome", r#"{"city":"Rome"}"#], 200, 2),
        (vec!["Rome", "Rome!"], 502, 2),
    ];
    for (answers, status, asked) in cases {
        let script = Script::InOrder(answers.iter().map(|text| answer(text)).collect());
        let vendor = FakeVendor::start(script).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(Dialect::Kimi, &vendor))]);
        let reply = lab.post("/v1/chat/completions", ASKED);
        let place = format!("{answers:?}: {} {}", reply.head, reply.text());
        assert_eq!(reply.status, status, "{place}");
        let requests = vendor.requests();
        assert_eq!(requests.len(), asked, "{place}");
        let first = String::from_utf8_lossy(&requests[0].body).into_owned();
        assert!(first.contains("follows this JSON schema"), "{first}");
        if status != 200 {
            assert_eq!(
                reply.header("x-abp-error"),
                Some("CAPABILITY_EMULATION_FAILED"),
                "{place}"
            );
            continue;
        }
        let emulated = reply
            .header("x-abp-emulated")
            .unwrap_or_default()
            .to_owned();
        assert!(
            emulated.contains("structured_output_json_schema"),
            "{place}"
        );
        assert_eq!(emulated.contains("repaired_answer"), asked == 2, "{place}");
        let receipt = lab.receipt(&reply);
        assert_eq!(receipt["usage"]["output_tokens"], 3 * asked, "{place}");
        if asked == 2 {
            let second = String::from_utf8_lossy(&requests[1].body).into_owned();
            assert!(second.contains("This cannot be used"), "{second}");
        }
    }
}

/// Responses has no stop sequences: the answer is cut where one occurs, however it comes, and every
/// caller hears of it in its own words.
#[test]
fn an_answer_is_cut_at_a_stop_sequence() {
    let whole = Vendor::fixture("codex/response_text.json").expect("a fixture");
    let stream = Vendor::fixture("codex/stream_text.sse").expect("a fixture");
    // The texts of the answers are "The Tiber, …", of which a source is named, and "Hel" with "lo".
    let chat = |stop: &str, stream: bool| {
        format!(
            r#"{{"model":"m","stream":{stream},"stop":{stop},"messages":[{{"role":"user","content":"Hi"}}]}}"#
        )
    };
    let messages = |stop: &str, stream: bool| {
        format!(
            r#"{{"model":"m","max_tokens":9,"stream":{stream},"stop_sequences":{stop},"messages":[{{"role":"user","content":"Hi"}}]}}"#
        )
    };
    let cases = [
        (
            Dialect::OpenAi,
            chat(r#""ber""#, false),
            r#""content":"The Ti""#,
        ),
        (
            Dialect::OpenAi,
            chat(r#"["x","ll"]"#, true),
            r#""finish_reason":"stop""#,
        ),
        (
            Dialect::Claude,
            messages(r#"["ber"]"#, false),
            r#""stop_sequence":"ber""#,
        ),
        (
            Dialect::Claude,
            messages(r#"["ll"]"#, true),
            r#""stop_sequence":"ll""#,
        ),
        (
            Dialect::Claude,
            messages(r#"["absent"]"#, true),
            r#""stop_reason":"end_turn""#,
        ),
    ];
    for (caller, body, expected) in cases {
        let streams = body.contains(r#""stream":true"#);
        let answer = if streams { &stream } else { &whole };
        let vendor = FakeVendor::start(answer.clone()).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(Dialect::Codex, &vendor))]);
        let reply = lab.post(&path(caller, "m", streams), &body);
        let text = reply.text();
        assert_eq!(reply.status, 200, "{body}: {text}");
        assert_eq!(
            reply.header("x-abp-emulated"),
            Some("stop_sequences"),
            "{body}"
        );
        assert!(text.contains(expected), "{body}: {text}");
        for after in ["lo\"", "example.com"] {
            let absent = body.contains("absent");
            assert_eq!(text.contains(after), absent, "{after}: {body}: {text}");
        }
        let sent = String::from_utf8_lossy(&vendor.requests()[0].body).into_owned();
        assert!(!sent.contains("stop"), "{sent}");
    }
    // Whoever wants nothing made up for is refused before anything is sent.
    let vendor = FakeVendor::start(whole).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::Codex, &vendor))]);
    let strict = "x-abp-on-loss: reject\r\n";
    let refused = lab.post_as(KEY, "/v1/chat/completions", &chat(r#""ll""#, false), strict);
    assert_eq!(refused.status, 422, "{}", refused.text());
    assert!(vendor.requests().is_empty());
}

/// What is streamed cannot be taken back: an answer of another shape ends in an error, never in its
/// own end.
#[test]
fn a_streamed_answer_of_another_shape_ends_in_an_error() {
    let stream = |text: &str| {
        let text = serde_json::Value::from(text);
        let chunk = |delta: String, finish: &str| {
            format!(
                r#"data: {{"id":"c","object":"chat.completion.chunk","created":1,"model":"m","choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}"#
            )
        };
        let said = chunk(
            format!(r#"{{"role":"assistant","content":{text}}}"#),
            "null",
        );
        let end = chunk("{}".to_owned(), r#""stop""#);
        Vendor::events(format!("{said}\n\n{end}\n\ndata: [DONE]\n\n"))
    };
    for (text, holds) in [(r#"{"city":"Rome"}"#, true), ("Rome", false)] {
        let vendor = FakeVendor::start(stream(text)).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(Dialect::Kimi, &vendor))]);
        let asked = ASKED.replacen('{', r#"{"stream":true,"#, 1);
        let reply = lab.post("/v1/chat/completions", &asked);
        let given = reply.text();
        assert!(given.contains("Rome"), "{given}");
        assert_eq!(given.contains("[DONE]"), holds, "{given}");
        assert_eq!(given.contains("finish_reason\":\"stop"), holds, "{given}");
        assert_eq!(given.contains("\"error\""), !holds, "{given}");
        let outcome = if holds { "complete" } else { "failed" };
        let receipt = lab.receipt(&reply);
        assert_eq!(receipt["outcome"], outcome, "{receipt:#}");
        if !holds {
            assert_eq!(receipt["error"]["code"], "CAPABILITY_EMULATION_FAILED");
        }
    }
}
