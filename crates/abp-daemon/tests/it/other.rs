//! The rest of the vendors' APIs, passed on as it is.

use abp_core::{MicroUsd, ModelPrice};
use abp_dialect::Dialect;
use abp_store::NewApiKey;
use abp_testkit::{FakeVendor, Reply as Vendor, Script, VendorRequest};
use serde_json::json;

use crate::lab::{Lab, Reply, VENDOR_KEY, sha256, upstream};
use crate::limits::{add, key};

const EMBEDDED: &str = r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.1]}],"model":"text-embedding-3-small","usage":{"prompt_tokens":8,"total_tokens":8}}"#;
const EMBED: &str = r#"{ "model":"text-embedding-3-small", "input":"The food was delicious" }"#;

/// What a vendor answers at its addresses; what it was sent comes back where it is no document.
fn answer(asked: &VendorRequest) -> Vendor {
    match (asked.method.as_str(), asked.path.as_str()) {
        (_, "/v1/embeddings") => Vendor::json(EMBEDDED),
        ("POST", "/v1/files") => Vendor::json(r#"{"id":"file-1","object":"file"}"#),
        ("POST", "/v1/batches") => Vendor::json(r#"{"id":"batch-1","object":"batch"}"#),
        (_, "/v1/batches/batch-1") => {
            Vendor::json(r#"{"id":"batch-1","object":"batch","output_file_id":"file-2"}"#)
        }
        (_, "/v1/files/file-2/content") => {
            Vendor::new("application/octet-stream", b"\x00\xff".to_vec())
                .header("content-disposition", "attachment")
        }
        (_, "/v1/audio/speech") => Vendor::new("audio/mpeg", b"ID3\x00".to_vec()),
        (_, "/v1/moderations") => Vendor::json(r#"{"error":{"message":"bad"}}"#).status(400),
        _ => Vendor::new("application/octet-stream", asked.body.clone()),
    }
}

fn lab(dialect: Dialect, passed: &[&str]) -> (Lab, FakeVendor) {
    let vendor = FakeVendor::start(Script::By(Box::new(answer))).expect("a vendor");
    let mut up = upstream(dialect, &vendor);
    up.pass_through = passed.iter().map(ToString::to_string).collect();
    up.prices = Some("table".to_owned());
    let price = ModelPrice {
        input_usd_per_mtok: 1.0,
        output_usd_per_mtok: 1.0,
        ..ModelPrice::default()
    };
    let lab = Lab::start_with(&[("up", up)], |config, _| {
        let table = [("*".to_owned(), price)].into();
        config.prices = [("table".to_owned(), table)].into();
    });
    add(&lab, key("one"));
    add(&lab, key("two"));
    (lab, vendor)
}

fn send(lab: &Lab, key: &str, line: &str, headers: &str, body: &[u8]) -> Reply {
    let mut raw = format!(
        "{line} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\
         {headers}content-length: {}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    raw.extend_from_slice(body);
    lab.raw(&raw)
}

const JSON: &str = "content-type: application/json\r\n";
const FORM: &str = "content-type: multipart/form-data; boundary=x\r\n";

/// Bodies, types, queries and statuses pass as they are, with the vendor's key, and are recorded.
#[test]
fn what_is_not_translated_passes_byte_for_byte() {
    let (lab, vendor) = lab(Dialect::OpenAi, &["*"]);
    let form = b"--x\r\ncontent-disposition: form-data; name=\"file\"\r\n\r\n\x00\xfe\r\n--x--\r\n";
    let cases: &[(&str, &str, &[u8], u16)] = &[
        ("POST /v1/embeddings", JSON, EMBED.as_bytes(), 200),
        ("POST /openai/v1/embeddings", JSON, EMBED.as_bytes(), 200),
        ("POST /v1/files", FORM, form, 200),
        ("POST /v1/audio/transcriptions?x=1", FORM, form, 200),
        ("POST /v1/audio/speech", JSON, b"{\"model\":\"tts\"}", 200),
        ("POST /v1/moderations", JSON, b"{\"input\":\"x\"}", 400),
        ("GET /v1/files", "", b"", 200),
        ("DELETE /v1/files/file-9", "", b"", 200),
        (
            "POST /v1/images/generations",
            JSON,
            b"{\"model\":\"i\"}",
            200,
        ),
    ];
    for (line, headers, body, status) in cases {
        let before = vendor.requests().len();
        let reply = send(&lab, crate::lab::KEY, line, headers, body);
        assert_eq!(reply.status, *status, "{line}: {}", reply.text());
        let sent = vendor.requests().remove(before);
        assert_eq!(sent.body, *body, "{line}");
        let (method, address) = line.split_once(' ').expect("a line");
        let address = address.trim_start_matches("/openai");
        let (path, query) = match address.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (address, None),
        };
        let found = (
            sent.method.as_str(),
            sent.path.as_str(),
            sent.query.as_deref(),
        );
        assert_eq!(found, (method, path, query), "{line}");
        let key = format!("Bearer {VENDOR_KEY}");
        assert_eq!(sent.header("authorization"), Some(key.as_str()), "{line}");
        let kind = headers.trim_end().strip_prefix("content-type: ");
        assert_eq!(sent.header("content-type"), kind, "{line}");
        let exchange = &lab.receipt(&reply)["exchange"];
        assert_eq!(exchange["request_sha256"], sha256(body), "{exchange}");
        assert_eq!(
            exchange["received_sha256"],
            sha256(&reply.body),
            "{exchange}"
        );
        assert_eq!(exchange["status"], *status, "{exchange}");
    }
}

/// Only what the operator opened is passed on, and addresses that lead elsewhere are none.
#[test]
fn what_the_operator_did_not_open_is_refused() {
    let (lab, vendor) = lab(Dialect::OpenAi, &["embeddings"]);
    for (line, status) in [
        ("POST /v1/embeddings", 200),
        ("POST /v1/moderations", 422),
        ("GET /v1/files", 422),
        ("GET /v1/files/../embeddings", 404),
        ("GET /v1/files/%2e%2e/x", 404),
        ("GET /v1/secrets", 404),
        ("POST /anthropic/v1/messages/batches", 422),
        ("POST /v1beta/models/x:predict", 422),
    ] {
        let reply = send(&lab, crate::lab::KEY, line, JSON, EMBED.as_bytes());
        assert_eq!(reply.status, status, "{line}: {}", reply.text());
        if status == 422 {
            let code = reply.header("x-abp-error");
            assert_eq!(code, Some("CAPABILITY_UNSUPPORTED"), "{line}");
            assert!(reply.text().contains("pass_through"), "{}", reply.text());
        }
    }
    assert_eq!(vendor.requests().len(), 1);
}

/// A9: what one key made at a vendor is nothing to another.
#[test]
fn a9_files_and_batches_are_of_the_key_that_made_them() {
    let (lab, vendor) = lab(Dialect::OpenAi, &["*"]);
    let batch = r#"{"input_file_id":"file-1","endpoint":"/v1/chat/completions"}"#;
    // In this order: what is made first is used later.
    let cases = [
        ("one", "GET /v1/files/file-1", "", 404),
        ("two", "POST /v1/batches", batch, 404),
        ("one", "POST /v1/files", "{}", 200),
        ("two", "GET /v1/files/file-1", "", 404),
        ("two", "DELETE /v1/files/file-1", "", 404),
        ("two", "POST /v1/batches", batch, 404),
        ("one", "GET /v1/files/file-1", "", 200),
        ("one", "POST /v1/batches", batch, 200),
        ("two", "GET /v1/batches/batch-1", "", 404),
        ("two", "POST /v1/batches/batch-1/cancel", "", 404),
        ("one", "GET /v1/files/file-2/content", "", 404),
        ("one", "GET /v1/batches/batch-1", "", 200),
        ("one", "GET /v1/files/file-2/content", "", 200),
        ("two", "GET /v1/files/file-2/content", "", 404),
        ("one", "GET /v1/files", "", 403),
        ("one", "POST /v1/fine_tuning/jobs", "{}", 404),
    ];
    for (name, line, body, status) in cases {
        let before = vendor.requests().len();
        let reply = send(&lab, name, line, JSON, body.as_bytes());
        assert_eq!(reply.status, status, "{name} {line}: {}", reply.text());
        let asked = vendor.requests().len() - before;
        assert_eq!(asked, usize::from(status == 200), "{name} {line}");
    }
}

/// B24: limits of a key hold for what is passed on.
#[test]
fn b24_keys_with_limits_are_held_to_them() {
    let (lab, vendor) = lab(Dialect::OpenAi, &["*"]);
    add(
        &lab,
        NewApiKey {
            models: vec!["text-*".to_owned()],
            ..key("some-models")
        },
    );
    add(
        &lab,
        NewApiKey {
            budget: Some(MicroUsd::from_micros(2_000)),
            ..key("poor")
        },
    );
    let other = EMBED.replace("text-embedding-3-small", "dear");
    let long = EMBED.replace("delicious", &"x".repeat(3_000));
    let image = r#"{"model":"text-i","prompt":"x"}"#;
    let cases = [
        ("some-models", "POST /v1/embeddings", EMBED, 200),
        ("some-models", "POST /v1/embeddings", other.as_str(), 403),
        ("some-models", "POST /v1/files", "{}", 403),
        (
            "some-models",
            "POST /v1/embeddings",
            r#"{"model":"text-a","model":"dear"}"#,
            400,
        ),
        ("poor", "POST /v1/embeddings", EMBED, 200),
        ("poor", "POST /v1/embeddings", long.as_str(), 402),
        ("poor", "POST /v1/images/generations", image, 402),
        ("poor", "POST /v1/batches", "{}", 403),
    ];
    for (name, line, body, status) in cases {
        let reply = send(&lab, name, line, JSON, body.as_bytes());
        assert_eq!(
            reply.status,
            status,
            "{name} {line} {body}: {}",
            reply.text()
        );
    }
    assert_eq!(vendor.requests().len(), 2);
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
    loop {
        let state = lab.block_on(lab.gateway.store().budget("poor"));
        let state = state.expect("readable").expect("a budget");
        if state.reserved_tokens == 0 && state.spent_tokens == 8 {
            break;
        }
        assert!(std::time::Instant::now() < deadline, "{state:?}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// Kimi and Copilot have addresses of their own, where their traffic passes as it is.
#[test]
fn kimi_and_copilot_pass_under_their_prefixes() {
    for (dialect, prefix) in [(Dialect::Kimi, "/kimi"), (Dialect::Copilot, "/copilot")] {
        let answer = json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "m",
            "choices": [{
                "index": 0, "finish_reason": "stop",
                "message": { "role": "assistant", "content": "hi", "own": 1 },
            }],
            "usage": { "prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2 },
        });
        let vendor = FakeVendor::start(Vendor::json(answer.to_string())).expect("a vendor");
        let lab = Lab::start(&[("up", upstream(dialect, &vendor))]);
        let body = r#"{ "model":"m", "own": true, "messages":[{"role":"user","content":"x"}] }"#;
        for version in ["", "/v1"] {
            let reply = lab.post(&format!("{prefix}{version}/chat/completions"), body);
            assert_eq!(reply.status, 200, "{dialect}: {}", reply.text());
            assert_eq!(reply.header("x-abp-mode"), Some("passthrough"), "{dialect}");
            assert_eq!(reply.text(), answer.to_string(), "{dialect}");
            let sent = vendor.requests().pop().expect("a request");
            assert_eq!(sent.body, body.as_bytes(), "{dialect}");
        }
        // Under OpenAI's address the same vendor is asked in a translation.
        let reply = lab.post("/v1/chat/completions", body);
        assert_eq!(reply.header("x-abp-mode"), Some("mapped"), "{dialect}");
    }
}

/// Embeddings reach an upstream of the other form, and their answers come back in the caller's.
#[test]
fn embeddings_are_translated_between_openai_and_gemini() {
    let gemini =
        r#"{"embeddings":[{"values":[0.5,-0.25]}],"usageMetadata":{"promptTokenCount":3}}"#;
    let one = r#"{"content":{"parts":[{"text":"hi"}]},"taskType":"CLUSTERING"}"#;
    let cases = [
        (
            Dialect::Gemini,
            gemini,
            "POST /v1/embeddings",
            r#"{"model":"e","input":"hi"}"#,
            "/v1beta/models/e:batchEmbedContents",
            "lossless",
            r#"{"object":"list","data":[{"object":"embedding","index":0,"embedding":[0.5,-0.25]}],"model":"e","usage":{"prompt_tokens":3,"total_tokens":3}}"#,
        ),
        (
            Dialect::OpenAi,
            EMBEDDED,
            "POST /v1beta/models/e:embedContent",
            one,
            "/v1/embeddings",
            "lossy;n=1;meaning=1",
            r#"{"embedding":{"values":[0.1]},"usageMetadata":{"promptTokenCount":8}}"#,
        ),
    ];
    for (dialect, answer, line, body, path, fidelity, expected) in cases {
        let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
        let mut up = upstream(dialect, &vendor);
        up.pass_through = vec!["embeddings".to_owned()];
        let lab = Lab::start(&[("up", up)]);
        let reply = send(&lab, crate::lab::KEY, line, JSON, body.as_bytes());
        assert_eq!(
            (reply.status, reply.text().as_str()),
            (200, expected),
            "{line}"
        );
        assert_eq!(reply.header("x-abp-mode"), Some("mapped"), "{line}");
        assert_eq!(reply.header("x-abp-fidelity"), Some(fidelity), "{line}");
        let sent = vendor.requests().remove(0);
        assert_eq!(sent.path, path, "{line}");
        let receipt = lab.receipt(&reply);
        let exchange = &receipt["exchange"];
        assert_eq!(exchange["sent_sha256"], sha256(&sent.body), "{exchange}");
        assert_eq!(
            exchange["delivered_sha256"],
            sha256(&reply.body),
            "{exchange}"
        );
        let lossy = fidelity != "lossless";
        let ledger = exchange["ledger"].to_string();
        assert_eq!(ledger.contains("embedding_task"), lossy, "{ledger}");
        let strict = format!("{JSON}x-abp-on-loss: reject\r\n");
        let rejected = send(&lab, crate::lab::KEY, line, &strict, body.as_bytes());
        assert_eq!(
            rejected.status == 200,
            !lossy,
            "{line}: {}",
            rejected.text()
        );
        let tokens = br#"{"model":"e","input":[1,2]}"#;
        if dialect == Dialect::Gemini {
            assert_eq!(send(&lab, crate::lab::KEY, line, JSON, tokens).status, 400);
        }
    }
}
