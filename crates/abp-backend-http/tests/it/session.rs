//! What a model's session promises besides its events: schemas, context, exchanges, and the network.

use std::sync::Arc;

use abp_backend_core::{Backend as _, ToolError, Upstream};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, ModelBackend};
use abp_core::{
    AgentEventKind, Capability, CapabilityManifest, EnforcementLevel, PolicyProfile, SupportLevel,
};
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_policy::{PolicyEngine, PolicyList};
use abp_testkit::{Cut, FakeVendor, Reply, Script, fixture};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::harness::{
    Canned, Files, Ran, backend, confirmed, confirmed_order, run_plan, run_with_files,
    spec as open_spec,
};
use crate::support::{spec, upstream};

fn sha256(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// A whole answer of chat completions that says this, and used so much.
fn chat(text: &str, tokens: (u64, u64)) -> Reply {
    let (input, output) = tokens;
    Reply::json(
        json!({
            "id": "c", "object": "chat.completion", "created": 1, "model": "gpt-9-2026",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output},
        })
        .to_string(),
    )
}

fn schema() -> Value {
    json!({
        "type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"], "additionalProperties": false,
    })
}

fn messages(ran: &Ran) -> Vec<&str> {
    let said = ran.events.iter().filter_map(|event| match event {
        AgentEventKind::AssistantMessage { text } => Some(text.as_str()),
        _ => None,
    });
    said.collect()
}

fn warnings(ran: &Ran) -> Vec<&str> {
    let warnings = ran.events.iter().filter_map(|event| match event {
        AgentEventKind::Warning { message } => Some(message.as_str()),
        _ => None,
    });
    warnings.collect()
}

fn usages(ran: &Ran) -> Vec<(Option<u64>, Option<u64>)> {
    let usages = ran.events.iter().filter_map(|event| match event {
        AgentEventKind::UsageUpdated { usage } => Some((usage.input_tokens, usage.output_tokens)),
        _ => None,
    });
    usages.collect()
}

/// Runs an order with an emulated schema on a vendor that gives these answers, one after the other.
async fn with_schema(answers: &[&str], max_turns: Option<u32>) -> (Ran, FakeVendor) {
    let replies = answers.iter().zip(1..);
    let replies = replies.map(|(text, number)| chat(text, (10 * number, number)));
    let vendor = FakeVendor::start(Script::InOrder(replies.collect())).unwrap();
    let backend = backend(Arc::new(upstream(&vendor, Dialect::OpenAi)));
    let order = json!({
        "task": "Where?",
        "config": {
            "model": "some-model", "max_turns": max_turns,
            "vendor": {"abp": {"output_schema": schema()}},
        },
    });
    let plan = confirmed_order(&backend, order);
    let ran = run_plan(&backend, plan, drop).await;
    (ran, vendor)
}

#[tokio::test]
async fn an_emulated_schema_is_told_checked_and_repaired_once() {
    let good = r#"{"city": "Rome"}"#;
    let (ran, vendor) = with_schema(&[good], None).await;
    assert!(ran.end.result.is_ok(), "{:?}", ran.end);
    assert_eq!(vendor.requests().len(), 1);
    assert!(String::from_utf8_lossy(&vendor.requests()[0].body).contains("JSON schema"));

    let (ran, vendor) = with_schema(&["Rome, of course.", good], None).await;
    assert!(ran.end.result.is_ok(), "{:?}", ran.end);
    assert_eq!(messages(&ran), ["Rome, of course.", good]);
    assert!(warnings(&ran)[0].ends_with("; the model is asked once more"));
    let seen = vendor.requests();
    assert_eq!(seen.len(), 2);
    let again: Value = serde_json::from_slice(&seen[1].body).unwrap();
    let turns = again["messages"].as_array().unwrap();
    let last = &turns[turns.len() - 2..];
    assert_eq!(last[0]["content"], "Rome, of course.");
    assert!(
        last[1]["content"]
            .as_str()
            .unwrap()
            .starts_with("This cannot be used: the answer is not JSON"),
        "{last:?}"
    );
    // Both attempts count: as totals of the run, and each with its exchange.
    assert_eq!(usages(&ran), [(Some(10), Some(1)), (Some(30), Some(3))]);
    let sent: Vec<_> = seen.iter().map(|request| sha256(&request.body)).collect();
    let told: Vec<_> = ran
        .end
        .exchanges
        .iter()
        .map(|one| one.request_sha256.clone())
        .collect();
    assert_eq!(told, sent);
    assert_eq!(ran.end.usage_raw.as_array().map(Vec::len), Some(2));

    let (ran, vendor) = with_schema(&["Rome", r#"{"town": 1}"#, good], None).await;
    assert_eq!(ran.code(), Some(ErrorCode::CapabilityEmulationFailed));
    assert_eq!(vendor.requests().len(), 2, "it is asked again once");
    assert_eq!(ran.end.exchanges.len(), 2);

    let (ran, vendor) = with_schema(&["Rome", good], Some(1)).await;
    assert_eq!(ran.code(), Some(ErrorCode::CapabilityEmulationFailed));
    assert_eq!(vendor.requests().len(), 1, "there is no turn for another");
}

/// A vendor that is to hold the schema itself and does not is asked once more, as where ABP holds it,
/// and then the run fails.
#[tokio::test]
async fn a_native_schema_is_sent_checked_and_repaired_once() {
    const GOOD: &str = r#"{"city": "Rome"}"#;
    let broken = Some(ErrorCode::BackendBrokenAnswer);
    // The answers, the limit of turns, how often the vendor is asked, and the error.
    type Case = (
        &'static [&'static str],
        Option<u32>,
        usize,
        Option<ErrorCode>,
    );
    let cases: [Case; 4] = [
        (&[GOOD], None, 1, None),
        (&["Rome", GOOD], None, 2, None),
        (&["Rome", r#"{"town": 1}"#, GOOD], None, 2, broken),
        (&["Rome", GOOD], Some(1), 1, broken),
    ];
    for (answers, max_turns, asked, code) in cases {
        let replies = answers.iter().map(|text| chat(text, (1, 1)));
        let vendor = FakeVendor::start(Script::InOrder(replies.collect())).unwrap();
        let abilities = |_, _: Option<&str>| {
            let structured = Capability::StructuredOutputJsonSchema;
            CapabilityManifest::from([(structured, SupportLevel::Native)])
        };
        let upstream = Arc::new(upstream(&vendor, Dialect::OpenAi));
        let backend = ModelBackend::new(upstream, abilities, 0);
        let order = json!({
            "task": "Where?",
            "config": {
                "model": "some-model", "max_turns": max_turns,
                "vendor": {"abp": {"output_schema": schema()}},
            },
        });
        let ran = run_plan(&backend, confirmed_order(&backend, order), drop).await;
        assert_eq!(ran.code(), code, "{answers:?}");
        let seen = vendor.requests();
        assert_eq!(seen.len(), asked, "{answers:?}");
        for request in &seen {
            let sent: Value = serde_json::from_slice(&request.body).unwrap();
            assert_eq!(sent["response_format"]["json_schema"]["schema"], schema());
        }
        let warned = warnings(&ran);
        let of_schema = warned
            .iter()
            .any(|one| one.contains("output schema, and the answer is not JSON"));
        assert_eq!(of_schema, asked == 2, "{warned:?}");
    }
}

#[tokio::test]
async fn context_files_reach_the_model_as_far_as_they_may_and_can() {
    let vendor = FakeVendor::start(chat("Done.", (1, 1))).unwrap();
    let backend = backend(Arc::new(upstream(&vendor, Dialect::OpenAi)));
    let large = "x".repeat(257 << 10);
    let half = "y".repeat(250 << 10);
    let names = [
        "src/a.rs",
        "denied.key",
        "missing.rs",
        "logo.png",
        "large.txt",
        "nul.txt",
        "1",
        "2",
        "3",
        "4",
        "5",
    ];
    let files = Files::from([
        ("src/a.rs".to_owned(), Ok(b"fn a() {}\n".to_vec())),
        (
            "denied.key".to_owned(),
            Err(ToolError::Denied("deny_read[0] \"*.key\"".to_owned())),
        ),
        ("logo.png".to_owned(), Ok(b"\x89PNG\r\n\xff".to_vec())),
        ("large.txt".to_owned(), Ok(large.into_bytes())),
        ("nul.txt".to_owned(), Ok(b"a\0b".to_vec())),
        ("1".to_owned(), Ok(half.clone().into_bytes())),
        ("2".to_owned(), Ok(half.clone().into_bytes())),
        ("3".to_owned(), Ok(half.clone().into_bytes())),
        ("4".to_owned(), Ok(half.clone().into_bytes())),
        ("5".to_owned(), Ok(half.into_bytes())),
    ]);
    let order = json!({"task": "Read.", "context": {"files": names}, "config": {"model": "m"}});
    let plan = confirmed_order(&backend, order);
    let ran = run_with_files(&backend, plan, &files, drop).await;
    assert!(ran.end.result.is_ok(), "{:?}", ran.end);
    assert_eq!(ran.reads, names, "every read is the host's");
    let request = &vendor.requests()[0].body;
    let sent: Value = serde_json::from_slice(request).unwrap();
    let parts = sent["messages"][0]["content"].as_array().unwrap();
    let texts: Vec<_> = parts
        .iter()
        .map(|part| part["text"].as_str().unwrap())
        .collect();
    assert_eq!(texts[2], "File: src/a.rs\n\nfn a() {}\n");
    let heads: Vec<_> = texts[2..]
        .iter()
        .map(|text| text.lines().next().unwrap())
        .collect();
    assert_eq!(
        heads,
        ["File: src/a.rs", "File: 1", "File: 2", "File: 3", "File: 4"]
    );
    let expected = [
        ("denied.key", "denied: deny_read[0] \"*.key\""),
        ("missing.rs", "there is no such file"),
        ("logo.png", "it is no text"),
        ("large.txt", "it has 263168 bytes, more than 262144"),
        ("nul.txt", "it is no text"),
        (
            "5",
            "with it the files would have more than 1048576 bytes together",
        ),
    ];
    let expected = expected
        .map(|(path, why)| format!("the content of {path:?} was not sent to the model: {why}"));
    assert_eq!(warnings(&ran), expected);
    // What was sent is what the exchange names.
    assert_eq!(ran.end.exchanges[0].request_sha256, sha256(request));
}

#[tokio::test]
async fn exchanges_name_what_was_sent_and_what_came() {
    let whole = fixture("openai/response_text.json").unwrap();
    let stream = fixture("claude/stream_text.sse").unwrap();
    let limited = fixture("openai/error_rate_limit.json").unwrap();
    let cases = [
        (
            Dialect::OpenAi,
            Reply::json(whole.clone()),
            Some(&whole),
            Some(200),
            true,
        ),
        (
            Dialect::Claude,
            Reply::events(stream.clone()),
            Some(&stream),
            Some(200),
            true,
        ),
        (
            Dialect::Claude,
            Reply::events(stream.clone()).in_chunks(7),
            Some(&stream),
            Some(200),
            true,
        ),
        (
            Dialect::Claude,
            Reply::events(stream.clone()).cut_at(700, Cut::Reset),
            None,
            Some(200),
            true,
        ),
        (
            Dialect::OpenAi,
            Reply::json(limited.clone()).status(429),
            Some(&limited),
            Some(429),
            false,
        ),
    ];
    for (dialect, reply, body, status, has_model) in cases {
        let shown = format!("{dialect} {reply:?}");
        let vendor = FakeVendor::start(reply).unwrap();
        let backend = backend(Arc::new(upstream(&vendor, dialect)));
        let ran = run_plan(&backend, confirmed(&backend, &json!({})), drop).await;
        let [exchange] = ran.end.exchanges.as_slice() else {
            panic!("{shown}: {:?}", ran.end);
        };
        assert_eq!(exchange.upstream, "vendor");
        assert_eq!(exchange.id, None);
        assert_eq!(
            exchange.request_sha256,
            sha256(&vendor.requests()[0].body),
            "{shown}"
        );
        assert_eq!(
            exchange.response_sha256,
            body.map(|body| sha256(body)),
            "{shown}"
        );
        assert_eq!(exchange.status, status, "{shown}");
        assert_eq!(exchange.model.is_some(), has_model, "{shown}: {exchange:?}");
        assert_eq!(ran.end.model, exchange.model, "{shown}");
    }
    // The answer came to its end and its bytes did not: it is told, and no hash vouches for it.
    let longer = [stream.as_slice(), b": and more that does not come\n\n"].concat();
    for reply in [
        Reply::events(longer.clone()).cut_at(stream.len() + 5, Cut::Reset),
        Reply::events(longer).stall_at(stream.len() + 5),
    ] {
        let vendor = FakeVendor::start(reply).unwrap();
        let backend = backend(Arc::new(upstream(&vendor, Dialect::Claude)));
        let ran = run_plan(&backend, confirmed(&backend, &json!({})), drop).await;
        assert!(ran.end.result.is_ok(), "{:?}", ran.end);
        assert_eq!(ran.end.exchanges[0].response_sha256, None);
    }
    // No answer at all: what was sent is known, and nothing else.
    let gone = backend(Arc::new(Canned::failing(
        abp_backend_core::UpstreamError::Stalled { limit_ms: 1 },
    )));
    let ran = run_plan(&gone, confirmed(&gone, &json!({})), drop).await;
    let exchange = &ran.end.exchanges[0];
    assert_eq!((exchange.status, &exchange.response_sha256), (None, &None));
    assert_eq!(exchange.request_sha256.len(), 64);
}

/// The model is the one that the vendor names, whatever name was asked for.
#[tokio::test]
async fn the_answering_model_is_the_vendors_own_word() {
    let vendor = FakeVendor::start(chat("Hi.", (1, 1))).unwrap();
    let served = abp_plan::ServedModels {
        names: vec!["gpt-*".to_owned()],
        aliases: [("fast".to_owned(), "gpt-9".to_owned())].into(),
    };
    let backend = backend(Arc::new(upstream(&vendor, Dialect::OpenAi))).serving(served);
    let order = json!({"task": "Hi", "config": {"model": "fast"}});
    let ran = run_plan(&backend, confirmed_order(&backend, order), drop).await;
    let sent: Value = serde_json::from_slice(&vendor.requests()[0].body).unwrap();
    assert_eq!(sent["model"], "gpt-9");
    assert_eq!(ran.end.model.as_deref(), Some("gpt-9-2026"));
}

/// Rules about the network are judged on the address that is configured, before anything is sent.
#[tokio::test]
async fn the_upstreams_address_is_judged_by_the_policy() {
    let at = |base_url: &str| {
        let spec = HttpUpstreamSpec {
            dialects: vec![Dialect::OpenAi],
            ..spec(base_url)
        };
        backend(Arc::new(HttpUpstream::new(spec).unwrap()))
    };
    let open = |rules: Value, base_url: &str| {
        let profile: PolicyProfile = serde_json::from_value(rules).unwrap();
        let policy = PolicyEngine::new(&profile).unwrap();
        let backend = at(base_url);
        async move {
            backend
                .open(open_spec(policy))
                .await
                .map(|session| session.holders())
        }
    };
    let deny = |pattern: &str| json!({"deny_network": [pattern]});
    let allow = |pattern: &str| json!({"allow_network": [pattern]});
    let cases = [
        (json!({}), "https://api.example.com/v1", None),
        (
            deny("api.example.com"),
            "https://api.example.com/v1",
            Some("deny_network"),
        ),
        (
            deny("*.example.com"),
            "https://API.example.com/v1",
            Some("deny_network"),
        ),
        (
            deny("other.example.com"),
            "https://api.example.com/v1",
            None,
        ),
        (allow("api.example.com"), "https://api.example.com/v1", None),
        (
            allow("api.example.com"),
            "https://api.example.org/v1",
            Some("allow_network"),
        ),
        (
            allow("api.example.com:443"),
            "https://api.example.com/v1",
            None,
        ),
        (
            allow("api.example.com:443"),
            "https://api.example.com:8443/v1",
            Some("allow_network"),
        ),
        (
            allow("api.example.com:443"),
            "http://api.example.com/v1",
            Some("allow_network"),
        ),
        (
            deny("api.example.com:80"),
            "http://api.example.com/v1",
            Some("deny_network"),
        ),
        (
            deny("[::1]:8443"),
            "https://[::1]:8443/v1",
            Some("deny_network"),
        ),
        (deny("[::1]:8443"), "https://[::1]:9443/v1", None),
        (allow("[2001:db8::1]"), "https://[2001:db8:0::1]/v1", None),
        (
            deny("127.0.0.1"),
            "http://[::ffff:127.0.0.1]/v1",
            Some("deny_network"),
        ),
    ];
    for (rules, base_url, list) in cases {
        let opened = open(rules.clone(), base_url).await;
        match (opened, list) {
            (Ok(holders), None) => {
                let network = holders.of(PolicyList::DenyNetwork);
                assert_eq!(network.level, EnforcementLevel::Host);
                assert_eq!(network.by, "upstream address");
            }
            (Err(error), Some(list)) => {
                assert_eq!(error.code(), ErrorCode::PolicyDenied, "{rules} {base_url}");
                assert_eq!(error.context()["list"], list, "{rules} {base_url}");
                assert!(error.message().contains(list), "{error}");
            }
            (opened, _) => panic!("{rules} {base_url}: {:?}", opened.err()),
        }
    }
    // Nothing was sent.
    let vendor = FakeVendor::start(chat("Hi.", (1, 1))).unwrap();
    let address = format!("{}", vendor.addr());
    let base_url = vendor.url("/v1");
    assert!(open(deny(&address), &base_url).await.is_err());
    assert_eq!(vendor.connections(), 0);
}

/// A model that connects to nothing holds rules about the network by that.
#[tokio::test]
async fn a_model_without_a_connection_says_so() {
    let canned: Arc<dyn Upstream> = Arc::new(Canned::new(Dialect::OpenAi, Vec::new()));
    let backend = backend(canned);
    let everything = PolicyProfile {
        deny_network: vec!["*".to_owned()],
        ..PolicyProfile::default()
    };
    let policy = PolicyEngine::new(&everything).unwrap();
    let session = backend.open(open_spec(policy)).await.unwrap();
    assert_eq!(session.holders().network.by, "no connection");
    assert_eq!(session.holders(), backend.descriptor().holders);
}
