//! What callers pay for, and what they do not.

use std::io::Read as _;
use std::time::{Duration, Instant};

use abp_core::{MicroUsd, ModelPrice};
use abp_dialect::Dialect;
use abp_store::NewApiKey;
use abp_testkit::{Cut, ExchangeEnd, FakeVendor, Reply as Vendor, Script, VendorRequest, fixture};

use crate::lab::{Lab, Reply, path, request, upstream};
use crate::limits::{add, key};

/// A dollar for a million tokens: a token is a millionth of a dollar.
fn price() -> ModelPrice {
    ModelPrice {
        input_usd_per_mtok: 1.0,
        output_usd_per_mtok: 1.0,
        ..ModelPrice::default()
    }
}

fn lab(dialect: Dialect, vendor: &FakeVendor, price: ModelPrice) -> Lab {
    let mut up = upstream(dialect, vendor);
    up.prices = Some("table".to_owned());
    up.idle_timeout_secs = 60;
    let lab = Lab::start_with(&[("up", up)], |config, _| {
        let table = [("*".to_owned(), price)].into();
        config.prices = [("table".to_owned(), table)].into();
    });
    let budget = Some(MicroUsd::from_micros(1_000_000));
    add(&lab, NewApiKey { budget, ..key("k") });
    add(&lab, key("free"));
    lab
}

/// What the key has spent, in tokens and millionths of a dollar, once nothing is reserved.
fn spent(lab: &Lab) -> (u64, u64) {
    spent_by(lab, "k")
}

fn spent_by(lab: &Lab, key: &str) -> (u64, u64) {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let state = lab.block_on(lab.gateway.store().budget(key));
        let state = state.expect("readable").expect("a budget");
        if state.reserved_tokens == 0 {
            return (state.spent_tokens, state.spent.micros());
        }
        assert!(Instant::now() < deadline, "it stays reserved");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn ask(lab: &Lab, dialect: Dialect, stream: bool) -> Reply {
    ask_as(lab, "k", dialect, stream)
}

fn ask_as(lab: &Lab, key: &str, dialect: Dialect, stream: bool) -> Reply {
    let body = request(dialect, "m", stream);
    lab.post_as(key, &path(dialect, "m", stream), &body, "")
}

/// The most that a request of a key with a budget may use, in tokens, where it names no limit.
fn most(dialect: Dialect, stream: bool) -> u64 {
    request(dialect, "m", stream).len() as u64 + 1_024 + 8_192
}

/// Nothing was generated, so nothing is paid for.
#[test]
fn errors_and_counts_cost_nothing() {
    let error = r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#;
    for caller in [Dialect::Claude, Dialect::OpenAi] {
        for status in [400, 401, 413, 429, 500] {
            let vendor = FakeVendor::start(Vendor::json(error).status(status)).expect("a vendor");
            let lab = lab(Dialect::Claude, &vendor, price());
            assert_eq!(ask(&lab, caller, false).status, status);
            assert_eq!(spent(&lab), (0, 0), "{caller}, {status}");
        }
    }
    let vendor = FakeVendor::start(Vendor::json(r#"{"input_tokens":9}"#)).expect("a vendor");
    let lab = lab(Dialect::Claude, &vendor, price());
    let body = request(Dialect::Claude, "m", false);
    let counted = lab.post_as("k", "/v1/messages/count_tokens", &body, "");
    assert_eq!(counted.status, 200, "{}", counted.text());
    assert_eq!(spent(&lab), (0, 0));
}

/// What one request costs whatever it says is paid once for each answer.
#[test]
fn a_price_per_request_is_paid() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let per_request = ModelPrice {
        request_usd: 0.000_7,
        ..ModelPrice::default()
    };
    let lab = lab(Dialect::OpenAi, &vendor, per_request);
    for asked in 1..=2_u64 {
        assert_eq!(ask(&lab, Dialect::OpenAi, false).status, 200);
        assert_eq!(spent(&lab).1, 700 * asked);
    }
}

/// A vendor that does not count is estimated by what it said, not by how it wrapped it. A budget is not paid
/// from by estimates: there it costs what was reserved.
#[test]
fn a_stream_nobody_counts_costs_about_its_tokens_or_what_was_reserved() {
    let chunk = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","system_fingerprint":"fp_0123456789abcdef","choices":[{"index":0,"delta":{"content":"x"},"finish_reason":null}]}"#;
    let end = r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}"#;
    let stream = format!(
        "{}{end}\n\ndata: [DONE]\n\n",
        format!("{chunk}\n\n").repeat(100)
    );
    let vendor = FakeVendor::start(Vendor::events(stream)).expect("a vendor");
    let lab = lab(Dialect::OpenAi, &vendor, price());
    let reply = ask_as(&lab, "free", Dialect::OpenAi, true);
    assert!(reply.text().ends_with("data: [DONE]\n\n"));
    let input = request(Dialect::OpenAi, "m", true).len() as u64 / 4;
    // Without a reservation, nothing tells when it is written down.
    let deadline = Instant::now() + Duration::from_secs(5);
    while spent_by(&lab, "free").0 == 0 && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (tokens, _) = spent_by(&lab, "free");
    assert!((100 + input..=104 + input).contains(&tokens), "{tokens}");
    let receipt = lab.receipt(&reply);
    assert_eq!(receipt["exchange"]["usage_is_estimate"], true, "{receipt}");
    let reply = ask(&lab, Dialect::OpenAi, true);
    assert!(reply.text().contains("data: [DONE]\n\n"));
    let most = most(Dialect::OpenAi, true);
    assert_eq!(spent(&lab), (most, most));
    let receipt = lab.receipt(&reply);
    assert_eq!(receipt["exchange"]["usage_is_estimate"], true, "{receipt}");
}

/// The chunks of a vendor of OpenAI's dialect that counts where it is asked to.
fn counting(asked: &VendorRequest) -> Vendor {
    let asked: serde_json::Value = serde_json::from_slice(&asked.body).expect("JSON");
    let usage = asked["stream_options"]["include_usage"] == true;
    let chunk = |choices: &str, rest: &str| {
        format!(
            "data: {{\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"created\":1,\"model\":\"m\",\
             \"choices\":[{choices}]{rest}}}\n\n"
        )
    };
    let null = if usage { ",\"usage\":null" } else { "" };
    let word = r#"{"index":0,"delta":{"content":"word "},"finish_reason":null}"#;
    let stop = r#"{"index":0,"delta":{},"finish_reason":"stop"}"#;
    let counted = r#","usage":{"prompt_tokens":11,"completion_tokens":30,"total_tokens":41}"#;
    let mut stream = chunk(word, null).repeat(30) + &chunk(stop, null);
    if usage {
        stream += &chunk("", counted);
    }
    Vendor::events(stream + "data: [DONE]\n\n")
}

/// B24: under a budget a stream is asked for its count, which a caller sees only if it asked as well.
#[test]
fn b24_streams_are_counted_for_budgets_and_not_for_callers_that_did_not_ask() {
    let limited = r#""max_tokens":64,"#;
    let cases = [
        ("", false),
        (r#""stream_options":{"include_usage":false},"#, false),
        (r#""stream_options":{},"#, false),
        (r#""stream_options":{"include_usage":true},"#, true),
    ];
    for limit in ["", limited] {
        for (options, sees) in cases {
            let vendor = FakeVendor::start(Script::By(Box::new(counting))).expect("a vendor");
            let lab = lab(Dialect::OpenAi, &vendor, price());
            let body = format!(
                r#"{{"model":"m","stream":true,{limit}{options}"messages":[{{"role":"user","content":"x"}}]}}"#
            );
            let reply = lab.post_as("k", "/v1/chat/completions", &body, "");
            let place = format!("{body}: {}", reply.text());
            assert_eq!(reply.status, 200, "{place}");
            assert_eq!(reply.text().matches("word ").count(), 30, "{place}");
            assert!(reply.text().contains("[DONE]"), "{place}");
            assert_eq!(reply.text().contains("usage"), sees, "{place}");
            assert_eq!(spent(&lab), (41, 41), "{place}");
            let receipt = lab.receipt(&reply);
            assert_eq!(receipt["exchange"]["usage_is_estimate"], false, "{receipt}");
            let ledger = receipt["exchange"]["ledger"].to_string();
            assert_eq!(ledger.contains("stream_usage"), !sees, "{body}: {ledger}");
            let native = sees && !limit.is_empty();
            let mode = if native { "passthrough" } else { "mapped" };
            assert_eq!(reply.header("x-abp-mode"), Some(mode), "{place}");
            // Who has no budget is not meddled with.
            let before = vendor.requests().len();
            let reply = lab.post_as("free", "/v1/chat/completions", &body, "");
            assert_eq!(reply.header("x-abp-mode"), Some("passthrough"), "{place}");
            let sent = &vendor.requests()[before].body;
            assert_eq!(*sent, body.as_bytes(), "{place}");
        }
    }
}

/// B15, B24: who leaves a stream under a budget pays what the vendor counts at its end, where that comes soon.
#[test]
fn b24_the_rest_of_a_stream_is_read_for_its_count() {
    for caller in [Dialect::OpenAi, Dialect::Claude] {
        let slowly = |asked: &VendorRequest| {
            counting(asked)
                .in_chunks(400)
                .every(Duration::from_millis(20))
        };
        let vendor = FakeVendor::start(Script::By(Box::new(slowly))).expect("a vendor");
        let lab = lab(Dialect::OpenAi, &vendor, price());
        let run = leave(&lab, caller, None);
        let receipt = lab.receipt(&run);
        assert_eq!(spent(&lab), (41, 41), "{caller}");
        assert_eq!(receipt["outcome"], "cancelled", "{caller}: {receipt}");
        assert_eq!(receipt["exchange"]["usage_is_estimate"], false, "{caller}");
    }
}

/// B24: what a vendor did with a request that it got and did not answer is not known, so it is not asked
/// again at the cost of the same reservation, which is spent.
#[test]
fn b24_a_request_that_may_have_been_answered_is_paid_and_not_sent_again() {
    for silent in [true, false] {
        let fault = match silent {
            true => Vendor::silence(),
            false => Vendor::json("{\"id\":").cut_at(5, Cut::Reset),
        };
        let vendor = FakeVendor::start(fault).expect("a vendor");
        let mut up = upstream(Dialect::OpenAi, &vendor);
        up.prices = Some("table".to_owned());
        let lab = Lab::start_with(&[("up", up)], |config, _| {
            config.server.max_attempts = 3;
            let table = [("*".to_owned(), price())].into();
            config.prices = [("table".to_owned(), table)].into();
        });
        let budget = Some(MicroUsd::from_micros(1_000_000));
        add(&lab, NewApiKey { budget, ..key("k") });
        assert!(ask(&lab, Dialect::OpenAi, false).status >= 500);
        assert_eq!(vendor.requests().len(), 1, "{silent}");
        let most = most(Dialect::OpenAi, false);
        assert_eq!(spent(&lab), (most, most), "{silent}");
    }
}

/// A refusal says what the request may cost and what there is for it.
#[test]
fn a_refusal_says_what_is_needed_and_what_is_left() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let lab = lab(Dialect::OpenAi, &vendor, price());
    let (budget, token_budget) = (Some(MicroUsd::from_micros(5_000)), Some(6_000));
    add(
        &lab,
        NewApiKey {
            budget,
            token_budget,
            ..key("poor")
        },
    );
    let reply = ask_as(&lab, "poor", Dialect::OpenAi, false);
    assert_eq!(reply.status, 402);
    let most = most(Dialect::OpenAi, false);
    let cost = MicroUsd::from_micros(most);
    let left = MicroUsd::from_micros(5_000);
    let told = reply.json()["error"]["message"].to_string();
    for part in [
        format!("may cost {cost}, and {left} of {left} are left"),
        format!("may use {most} tokens, and 6000 of 6000 are left"),
    ] {
        assert!(told.contains(&part), "{told}: {part}");
    }
    assert!(vendor.requests().is_empty());
}

/// B15: what the vendor counted before the caller left is what is paid for.
#[test]
fn b15_what_was_counted_until_the_caller_left_is_kept() {
    for caller in [Dialect::Claude, Dialect::OpenAi] {
        let whole = fixture("claude/stream_text.sse").expect("a fixture");
        let text = String::from_utf8(whole.clone()).expect("text");
        let start = text.lines().find(|line| line.contains("message_start"));
        let data = text.lines().find_map(|line| line.strip_prefix("data: "));
        let started: serde_json::Value =
            serde_json::from_str(data.expect("data")).expect("an event");
        assert!(start.is_some());
        let usage = &started["message"]["usage"];
        let at = text.find("content_block_stop").expect("a stop");
        let vendor = FakeVendor::start(Vendor::events(whole).stall_at(at)).expect("a vendor");
        let lab = lab(Dialect::Claude, &vendor, price());
        let run = leave_as(&lab, "free", caller, None);
        let ended = vendor.wait_until(|requests| {
            let aborted = |end: &ExchangeEnd| matches!(end, ExchangeEnd::Aborted { .. });
            requests.iter().any(|request| aborted(&request.end))
        });
        assert!(ended, "{caller}: the vendor goes on");
        let receipt = lab.receipt(&run);
        let paid = &receipt["usage"];
        for (ours, theirs) in [
            ("input_tokens", "input_tokens"),
            ("cache_read_tokens", "cache_read_input_tokens"),
        ] {
            assert_eq!(paid[ours], usage[theirs], "{caller}: {paid} of {usage}");
        }
        let output = paid["output_tokens"].as_u64().expect("a count");
        assert!((1..64).contains(&output), "{caller}: {paid}");
    }
}

/// A caller that does not wait for an answer has had its request read.
#[test]
fn who_leaves_before_the_answer_pays_for_the_question() {
    let vendor = FakeVendor::start(Vendor::silence()).expect("a vendor");
    let lab = lab(Dialect::OpenAi, &vendor, price());
    leave_as(&lab, "free", Dialect::OpenAi, Some(&vendor));
    leave(&lab, Dialect::OpenAi, Some(&vendor));
    let question = request(Dialect::OpenAi, "m", false).len() as u64 / 4;
    let expected = [("free", question), ("k", most(Dialect::OpenAi, false))];
    let deadline = Instant::now() + Duration::from_secs(5);
    for (key, tokens) in expected {
        while spent_by(&lab, key).0 != tokens {
            assert!(Instant::now() < deadline, "{:?}", spent_by(&lab, key));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Asks, and leaves: as soon as a vendor that says nothing has the question, or when a stream has begun.
fn leave(lab: &Lab, caller: Dialect, silent: Option<&FakeVendor>) -> Reply {
    leave_as(lab, "k", caller, silent)
}

fn leave_as(lab: &Lab, key: &str, caller: Dialect, silent: Option<&FakeVendor>) -> Reply {
    let before = silent.map_or(0, |vendor| vendor.requests().len());
    let mut connection = lab.open(key, caller, silent.is_none());
    let mut first = [0_u8; 4096];
    let read = match silent {
        Some(vendor) => {
            assert!(vendor.wait_until(|requests| requests.len() > before));
            0
        }
        None => connection.read(&mut first).expect("an answer"),
    };
    drop(connection);
    Reply {
        status: 200,
        head: String::from_utf8_lossy(&first[..read]).into_owned(),
        body: Vec::new(),
        whole: true,
    }
}

/// B24: a key's limit holds for requests that name none, and a budget pays nobody without a price.
#[test]
fn b24_limits_hold_for_requests_that_name_none() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let mut priced = upstream(Dialect::OpenAi, &vendor);
    priced.prices = Some("table".to_owned());
    priced.fallback = vec!["unpriced".to_owned()];
    priced.base_url = "http://127.0.0.1:1/v1".to_owned();
    let mut free = upstream(Dialect::OpenAi, &vendor);
    (free.prices, free.models) = (Some("free".to_owned()), vec!["free".to_owned()]);
    let mut unpriced = upstream(Dialect::OpenAi, &vendor);
    unpriced.weight = 0;
    let upstreams = [("up", priced), ("free", free), ("unpriced", unpriced)];
    let lab = Lab::start_with(&upstreams, |config, _| {
        config.server.max_attempts = 3;
        let table = |price: ModelPrice| [("*".to_owned(), price)].into();
        config.prices = [
            ("table".to_owned(), table(price())),
            ("free".to_owned(), table(ModelPrice::default())),
        ]
        .into();
    });
    let budget = Some(MicroUsd::from_micros(1_000_000));
    add(&lab, NewApiKey { budget, ..key("k") });
    let max_output_tokens = Some(100);
    let short = NewApiKey {
        max_output_tokens,
        ..key("short")
    };
    add(&lab, short);
    let reply = ask(&lab, Dialect::OpenAi, false);
    assert_ne!(reply.status, 200, "{}", reply.text());
    assert!(
        vendor.requests().is_empty(),
        "somebody without a price was asked"
    );
    let asks = [
        (
            "/v1/chat/completions",
            r#"{"model":"free","max_tokens":-1,"messages":[]}"#,
            400,
        ),
        (
            "/v1/chat/completions",
            r#"{"model":"free","max_tokens":100,"messages":[{"role":"user","content":"x"}]}"#,
            200,
        ),
        (
            "/v1/chat/completions",
            r#"{"model":"free","max_tokens":1e3,"messages":[{"role":"user","content":"x"}]}"#,
            400,
        ),
        (
            "/v1/messages",
            r#"{"model":"free","max_completion_tokens":1,"max_tokens":64000,"messages":[]}"#,
            400,
        ),
        (
            "/v1beta/models/free:generateContent",
            r#"{"contents":[],"generationConfig":{"max_output_tokens":65536}}"#,
            400,
        ),
    ];
    for (path, body, status) in asks {
        let reply = lab.post_as("short", path, body, "");
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
    }
    let free = r#"{"model":"free","messages":[{"role":"user","content":"x"}]}"#;
    let reply = lab.post_as("k", "/v1/chat/completions", free, "");
    assert_eq!(
        reply.status,
        200,
        "no price is not a price of nothing: {}",
        reply.text()
    );
}

/// B24: a request that names no limit gets the key's, in the words of whoever is asked, and its ledger says so.
#[test]
fn b24_a_request_without_a_limit_gets_the_keys() {
    let targets = [
        (Dialect::OpenAi, "/max_tokens"),
        (Dialect::Codex, "/max_output_tokens"),
        (Dialect::Claude, "/max_tokens"),
        (Dialect::Gemini, "/generationConfig/maxOutputTokens"),
    ];
    for (target, place) in targets {
        for caller in [Dialect::OpenAi, Dialect::Codex, Dialect::Gemini] {
            let answer = Vendor::fixture(&format!("{target}/response_text.json"));
            let vendor = FakeVendor::start(answer.expect("a fixture")).expect("a vendor");
            let lab = Lab::start(&[("up", upstream(target, &vendor))]);
            let max_output_tokens = Some(100);
            add(
                &lab,
                NewApiKey {
                    max_output_tokens,
                    ..key("k")
                },
            );
            let reply = ask(&lab, caller, false);
            let place_of = format!("{caller} to {target}: {}", reply.text());
            assert_eq!(reply.status, 200, "{place_of}");
            assert_eq!(reply.header("x-abp-mode"), Some("mapped"), "{place_of}");
            let sent = vendor.requests().remove(0).body;
            let sent: serde_json::Value = serde_json::from_slice(&sent).expect("JSON");
            let limit = sent.pointer(place);
            assert_eq!(limit, Some(&100.into()), "{place_of}: {sent}");
            let ledger = lab.receipt(&reply)["exchange"]["ledger"].to_string();
            assert!(ledger.contains("output_limit"), "{place_of}: {ledger}");
        }
    }
}

/// A caller may leave while room is made for its request: nothing stays reserved for it.
#[test]
fn who_leaves_before_anything_is_sent_reserves_nothing() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let lab = lab(Dialect::OpenAi, &vendor, price());
    let principal = lab.gateway.keys().find(b"k", abp_gateway::current_time());
    let principal = principal.expect("the key");
    for _ in 0..20 {
        let ask = abp_gateway::Ask {
            admitted: std::sync::Arc::new(lab.gateway.admit(&principal).expect("room")),
            dialect: Dialect::OpenAi,
            operation: abp_backend_core::ModelOperation::Generate { stream: false },
            model: None,
            query: None,
            headers: http::HeaderMap::new(),
            body: request(Dialect::OpenAi, "m", false).into(),
            on_loss: abp_plan::OnLoss::Default,
        };
        // Asked once, and never again.
        lab.block_on(async {
            let asked = lab.gateway.exchange(ask);
            drop(tokio::time::timeout(Duration::ZERO, asked).await);
        });
    }
    let before = spent(&lab);
    assert_eq!(ask(&lab, Dialect::OpenAi, false).status, 200);
    // Whatever was granted meanwhile was given back.
    assert!(spent(&lab) > before);
}

/// Whoever has the end of an answer has the answer, though its vendor has not hung up.
#[test]
fn who_leaves_after_the_end_has_not_left_early() {
    for caller in [Dialect::OpenAi, Dialect::Claude] {
        let whole = fixture("openai/stream_text.sse").expect("a fixture");
        let length = whole.len();
        let vendor = FakeVendor::start(Vendor::events(whole).stall_at(length)).expect("a vendor");
        let lab = lab(Dialect::OpenAi, &vendor, price());
        let mut connection = lab.open("k", caller, true);
        let (mut read, mut part) = (Vec::new(), [0_u8; 4096]);
        let end = match caller {
            Dialect::Claude => "message_stop",
            _ => "[DONE]",
        };
        while !String::from_utf8_lossy(&read).contains(end) {
            let count = connection.read(&mut part).expect("more");
            assert_ne!(count, 0, "{caller}");
            read.extend_from_slice(&part[..count]);
        }
        drop(connection);
        let receipt = lab.receipt(&Reply::parse(&read));
        assert_eq!(receipt["outcome"], "complete", "{caller}");
        assert_eq!(receipt["exchange"]["usage_is_estimate"], false, "{caller}");
    }
}
