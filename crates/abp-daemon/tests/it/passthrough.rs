//! Same dialect on both sides: bytes pass as they are, and nothing else does.

use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply as Vendor, Script, fixture};

use crate::lab::{KEY, Lab, VENDOR_KEY, path, request, sha256, upstream};

const NATIVE: [Dialect; 4] = [
    Dialect::OpenAi,
    Dialect::Claude,
    Dialect::Gemini,
    Dialect::Codex,
];

/// Bytes are the same on both sides, for answers in one piece and for streams, whatever the chunks.
#[test]
fn bytes_are_identical_in_both_directions() {
    for dialect in NATIVE {
        for stream in [false, true] {
            let kind = if stream {
                "stream_text.sse"
            } else {
                "response_text.json"
            };
            let answer = fixture(&format!("{dialect}/{kind}")).expect("a fixture");
            for chunk in [1, 7, 4096] {
                let reply = if stream {
                    Vendor::events(answer.clone())
                } else {
                    Vendor::json(answer.clone())
                };
                let vendor = FakeVendor::start(reply.in_chunks(chunk)).expect("a vendor");
                let lab = Lab::start(&[("up", upstream(dialect, &vendor))]);
                // Odd spacing, order and number forms, which any rewriting would change.
                let body =
                    request(dialect, "m", stream).replacen('{', "{ \"x_number\" : 1.50e+2,\n", 1);
                let reply = lab.post(&path(dialect, "m", stream), &body);
                let place = format!("{dialect}, stream {stream}, chunks of {chunk}");
                assert_eq!(reply.status, 200, "{place}: {}", reply.text());
                assert!(reply.whole, "{place}");
                assert_eq!(reply.body, answer, "{place}");
                assert_eq!(reply.header("x-abp-mode"), Some("passthrough"), "{place}");
                let sent = &vendor.requests()[0];
                assert_eq!(sent.body, body.as_bytes(), "{place}");
                let receipt = lab.receipt(&reply);
                let exchange = &receipt["exchange"];
                let hashes = [
                    ("request_sha256", sha256(body.as_bytes())),
                    ("sent_sha256", sha256(&sent.body)),
                    ("received_sha256", sha256(&answer)),
                    ("delivered_sha256", sha256(&reply.body)),
                ];
                for (name, expected) in hashes {
                    assert_eq!(exchange[name], expected.as_str(), "{place}: {name}");
                }
                assert_eq!(receipt["outcome"], "complete", "{place}");
                assert!(
                    receipt["usage"]["output_tokens"].is_u64(),
                    "{place}: {receipt}"
                );
            }
        }
    }
}

/// B7, B14: what goes to a vendor is on a list; keys of callers and of other vendors are not.
#[test]
fn b7_only_listed_headers_go_upstream() {
    let answer = fixture("claude/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::Claude, &vendor))]);
    let headers = "anthropic-version: 2026-10-21\r\nanthropic-beta: one,two\r\nx-api-key: stolen\r\n\
        cookie: a=b\r\nx-forwarded-for: 1.2.3.4\r\nx-evil: 1\r\nconnection: x-evil\r\n\
        openai-organization: org\r\nproxy-authorization: Basic x\r\ntraceparent: 00-a-b-01\r\n";
    let body = request(Dialect::Claude, "m", false);
    let reply = lab.post_as(KEY, "/v1/messages?beta=true", &body, headers);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let sent = &vendor.requests()[0];
    assert_eq!(sent.header("x-api-key"), Some(VENDOR_KEY));
    assert_eq!(sent.header("anthropic-version"), Some("2026-10-21"));
    assert_eq!(sent.header("anthropic-beta"), Some("one,two"));
    assert_eq!(sent.header("traceparent"), Some("00-a-b-01"));
    assert_eq!(sent.query.as_deref(), Some("beta=true"));
    let allowed = [
        "host",
        "content-type",
        "content-length",
        "accept",
        "accept-encoding",
        "user-agent",
        "x-api-key",
        "anthropic-version",
        "anthropic-beta",
        "traceparent",
    ];
    for name in sent.headers.keys() {
        assert!(allowed.contains(&name.as_str()), "{name} went upstream");
    }
}

/// A model that is asked for by another name is a translation with that one entry.
#[test]
fn an_alias_makes_a_mapped_exchange_with_one_entry() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let mut up = upstream(Dialect::OpenAi, &vendor);
    up.aliases = [("mine".to_owned(), "theirs".to_owned())].into();
    let lab = Lab::start(&[("up", up)]);
    let reply = lab.ask(Dialect::OpenAi, "mine", false);
    assert_eq!(
        reply.header("x-abp-mode"),
        Some("mapped"),
        "{}",
        reply.text()
    );
    assert_eq!(reply.header("x-abp-fidelity"), Some("lossless"));
    let sent: serde_json::Value = serde_json::from_slice(&vendor.requests()[0].body).expect("JSON");
    assert_eq!(sent["model"], "theirs");
    assert_eq!(reply.json()["model"], "mine");
    let receipt = lab.receipt(&reply);
    let of_request: Vec<_> = receipt["exchange"]["ledger"]
        .as_array()
        .expect("a ledger")
        .iter()
        .filter(|entry| {
            let at = |key: &str| entry[key].as_str().unwrap_or_default().to_owned();
            at("source").starts_with("/request") || at("target").starts_with("/request")
        })
        .collect();
    assert!(
        of_request.iter().all(|entry| entry["target"] == "/request/model" || entry["source"] == "/request/model"),
        "{of_request:?}"
    );
    assert!(!of_request.is_empty());
}

/// Gemini's address names the model and asks for a stream; other vendors read both in the body.
#[test]
fn what_an_address_says_is_said_to_vendors_that_read_the_body() {
    for target in [Dialect::OpenAi, Dialect::Codex, Dialect::Claude] {
        let stream = Vendor::fixture(&format!("{target}/stream_text.sse")).expect("a stream");
        let vendor = FakeVendor::start(stream).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(target, &vendor))]);
        let reply = lab.ask(Dialect::Gemini, "m", true);
        assert_eq!(reply.status, 200, "{target}: {}", reply.text());
        let sent = &vendor.requests()[0].body;
        let sent: serde_json::Value = serde_json::from_slice(sent).expect("JSON");
        assert_eq!(
            (&sent["model"], &sent["stream"]),
            (&"m".into(), &true.into()),
            "{sent}"
        );
    }
}

/// B10, B11: nothing that a request names is fetched, and no redirection is followed.
#[test]
fn b10_b11_nothing_else_is_contacted() {
    let elsewhere = FakeVendor::start(Vendor::json("{}")).expect("a vendor");
    let moved = Vendor::redirect(&elsewhere.url("/v1/chat/completions")).status(307);
    let vendor = FakeVendor::start(Script::InOrder(vec![moved])).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let image = format!(
        r#"{{"model":"m","messages":[{{"role":"user","content":[{{"type":"image_url","image_url":{{"url":"{}"}}}}]}}]}}"#,
        elsewhere.url("/image.png")
    );
    let reply = lab.post("/v1/chat/completions", &image);
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert_eq!(vendor.requests().len(), 1);
    assert!(
        elsewhere.requests().is_empty(),
        "{:?}",
        elsewhere.requests()
    );
}
