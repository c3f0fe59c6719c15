//! Tests of addresses.

use bytes::Bytes;
use http::HeaderMap;
use proptest::prelude::*;

use super::*;

fn call(dialect: Dialect, operation: ModelOperation, model: &str) -> ModelCall {
    ModelCall {
        dialect,
        operation,
        model: model.to_owned(),
        query: None,
        headers: HeaderMap::new(),
        body: Bytes::new(),
    }
}

const WHOLE: ModelOperation = ModelOperation::Generate { stream: false };
const STREAM: ModelOperation = ModelOperation::Generate { stream: true };

/// Dialect, operation, base URL, and where the vendor's own client would go.
const ROUTES: &str = "
openai   stream  https://api.openai.com/v1  POST https://api.openai.com/v1/chat/completions
kimi     whole   http://h:1/v1/             POST http://h:1/v1/chat/completions
copilot  whole   https://h                  POST https://h/chat/completions
codex    whole   https://h/v1               POST https://h/v1/responses
codex    count   https://h/v1               POST https://h/v1/responses/input_tokens
codex    get     https://h/v1               GET https://h/v1/responses/resp%2F..%2F1
codex    delete  https://h/v1               DELETE https://h/v1/responses/resp%2F..%2F1
codex    cancel  https://h/v1               POST https://h/v1/responses/resp%2F..%2F1/cancel
codex    items   https://h/v1               GET https://h/v1/responses/resp%2F..%2F1/input_items
claude   stream  https://h                  POST https://h/v1/messages
claude   whole   https://h/                 POST https://h/v1/messages
claude   whole   https://h/v1/              POST https://h/v1/messages
claude   count   https://h/v1               POST https://h/v1/messages/count_tokens
claude   whole   http://h:443/a/b/v1        POST http://h:443/a/b/v1/messages
gemini   whole   https://h                  POST https://h/v1beta/models/m-1:generateContent
gemini   stream  https://h/v1beta           POST https://h/v1beta/models/m-1:streamGenerateContent
gemini   count   https://h/v1/              POST https://h/v1beta/models/m-1:countTokens
gemini   stream  https://h/v1/projects/p/locations/l/publishers/google  POST https://h/v1/projects/p/locations/l/publishers/google/models/m-1:streamGenerateContent
openai   count   https://h                  refused
openai   get     https://h                  refused
claude   get     https://h                  refused
gemini   get     https://h                  refused
";

#[test]
fn every_operation_has_the_address_of_the_vendors_own_client() {
    let stored = |action| {
        let id = "resp/../1".to_owned();
        ModelOperation::Stored { id, action }
    };
    for line in ROUTES.trim().lines() {
        let words: Vec<_> = line.split_whitespace().collect();
        let operation = match words[1] {
            "whole" => WHOLE,
            "stream" => STREAM,
            "count" => ModelOperation::CountTokens,
            "get" => stored(StoredAction::Get),
            "delete" => stored(StoredAction::Delete),
            "cancel" => stored(StoredAction::Cancel),
            "items" => stored(StoredAction::InputItems),
            other => panic!("{other}"),
        };
        let dialect = words[0].parse().unwrap();
        let address = Address::parse(words[2]).unwrap();
        let routed = match address.route(&call(dialect, operation, "m-1"), None) {
            Ok((method, path)) => format!("{method} {}{path}", address.origin()),
            Err(UpstreamError::Unaskable(_)) => "refused".to_owned(),
            Err(other) => other.to_string(),
        };
        assert_eq!(routed, words[3..].join(" "), "{line}");
    }
}

#[test]
fn a_model_stays_where_models_are() {
    let address = Address::parse("https://h").unwrap();
    let path = |model: &str| {
        let routed = address.route(&call(Dialect::Gemini, WHOLE, model), None);
        routed.ok().map(|(_, uri)| uri.path().to_owned())
    };
    let check = |model: &str, expected: &str| {
        let expected = format!("/v1beta/{expected}:generateContent");
        assert_eq!(path(model), Some(expected), "{model}");
    };
    check("models/m", "models/m");
    check("publishers/x/models/y", "publishers/x/models/y");
    check("m?key=1#x", "models/m%3Fkey%3D1%23x");
    check("m:countTokens", "models/m%3AcountTokens");
    check("a b\r\nHost: x", "models/a%20b%0D%0AHost%3A%20x");
    check("%2e%2e", "models/%252e%252e");
    check("日", "models/%E6%97%A5");
    for refused in ["", "..", "../x", "a/../b", "a//b", "/a", "a/", "a/."] {
        assert_eq!(path(refused), None, "{refused}");
    }
}

#[test]
fn the_query_of_the_caller_goes_along() {
    let address = Address::parse("https://h").unwrap();
    let call = ModelCall {
        query: Some("alt=sse".to_owned()),
        ..call(Dialect::Gemini, STREAM, "m")
    };
    let (_, uri) = address.route(&call, call.query.as_deref()).unwrap();
    assert_eq!(uri.query(), Some("alt=sse"));
}

#[test]
fn b12_a_base_url_is_read_once_and_means_one_host() {
    let origin = |base: &str| Address::parse(base).map(|address| address.origin());
    for (base, expected) in [
        ("https://API.Example.COM:443/v1", "https://api.example.com"),
        ("http://127.1:8080", "http://127.0.0.1:8080"),
        ("http://0x7f000001", "http://127.0.0.1"),
        ("http://[::ffff:127.0.0.1]", "http://[::ffff:7f00:1]"),
        ("https://bücher.example", "https://xn--bcher-kva.example"),
        ("https://ex%61mple.com", "https://example.com"),
        ("https://example.com.", "https://example.com."),
    ] {
        assert_eq!(origin(base).as_deref(), Ok(expected), "{base}");
    }
    for refused in [
        "",
        "api.example.com",
        "ftp://h",
        "file:///etc/passwd",
        "https://",
        "https:///v1",
        "https:h",
        "https://user@h",
        "https://user:secret@h",
        "https://:secret@h",
        "https://h?key=secret",
        "https://h/v1#x",
        "https://a.example\\@b.example",
        "https://a.example\0.b.example",
        "https://a.exa\tmple",
        " https://h",
        "https://h\n",
        "https://h h",
        "https://a%00b",
        "https://h:99999",
        "https://[::1",
        "https://a.example%2f@b.example",
    ] {
        let problem = origin(refused);
        assert!(problem.is_err(), "{refused:?}: {problem:?}");
        assert!(!problem.unwrap_err().contains("secret"));
    }
}

proptest! {
    /// What the address names as its host is the host that another parser finds in what it writes.
    #[test]
    fn b12_the_host_that_is_called_is_the_host_that_was_read(
        base in "https?://[a-zA-Z0-9.:@/\\\\%?#\\[\\]_~ -]{0,40}",
    ) {
        if let Ok(address) = Address::parse(&base) {
            let (_, path) = address.route(&call(Dialect::Claude, WHOLE, "m"), None).unwrap();
            let uri: Uri = format!("{}{path}", address.origin()).parse().unwrap();
            let read = Url::parse(&base).unwrap();
            let written = Url::parse(&uri.to_string()).unwrap();
            prop_assert_eq!(written.host(), read.host());
            prop_assert_eq!(written.port_or_known_default(), read.port_or_known_default());
            prop_assert_eq!(uri.host(), read.host_str());
            let host = address.host().unwrap();
            prop_assert_eq!(Some(host.to_str().unwrap()), uri.authority().map(Authority::as_str));
        }
    }
}
