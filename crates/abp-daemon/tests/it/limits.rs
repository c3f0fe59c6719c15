//! Keys, rates and budgets.

use std::time::Duration;

use abp_core::MicroUsd;
use abp_dialect::Dialect;
use abp_gateway::key_hash;
use abp_store::NewApiKey;
use abp_testkit::{FakeVendor, Reply as Vendor, fixture};

use crate::lab::{Lab, path, request, upstream};

pub(crate) fn key(id: &str) -> NewApiKey {
    NewApiKey {
        id: id.to_owned(),
        name: id.to_owned(),
        sha256: key_hash(id.as_bytes()),
        models: Vec::new(),
        requests_per_minute: None,
        tokens_per_minute: None,
        budget: None,
        token_budget: None,
        max_output_tokens: None,
        max_concurrent: None,
        max_sessions: None,
        scopes: abp_store::KeyScope::USUAL.to_vec(),
        expires_at: None,
    }
}

fn priced_lab(vendor: &FakeVendor) -> Lab {
    let mut up = upstream(Dialect::OpenAi, vendor);
    up.prices = Some("table".to_owned());
    let price = abp_core::ModelPrice {
        input_usd_per_mtok: 1.0,
        output_usd_per_mtok: 1.0,
        ..abp_core::ModelPrice::default()
    };
    Lab::start_with(&[("up", up)], |config, _| {
        let table = [("*".to_owned(), price)].into();
        config.prices = [("table".to_owned(), table)].into();
    })
}

pub(crate) fn add(lab: &Lab, key: NewApiKey) {
    let added = lab.block_on(lab.gateway.store().add_key(key));
    added.expect("a key");
    let read = lab.block_on(
        lab.gateway
            .reload_keys(Some(key_hash(crate::lab::KEY.as_bytes()))),
    );
    read.expect("keys");
}

fn ask_as(lab: &Lab, key: &str, model: &str) -> crate::lab::Reply {
    let body = request(Dialect::OpenAi, model, false);
    lab.post_as(key, &path(Dialect::OpenAi, model, false), &body, "")
}

/// B24: two hundred requests at once on a budget for one send one.
#[test]
fn b24_a_budget_for_one_request_sends_one() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let slow = Vendor::json(answer)
        .in_chunks(64)
        .every(Duration::from_millis(20));
    let vendor = FakeVendor::start(slow).expect("a vendor");
    let lab = priced_lab(&vendor);
    // The most that the request can use is reserved: what it may write, and what it may read.
    let body = request(Dialect::OpenAi, "m", false);
    let reserved = 8_192 + body.len() as u64 + 1_024;
    let budget = Some(MicroUsd::from_micros(reserved));
    add(
        &lab,
        NewApiKey {
            budget,
            ..key("poor")
        },
    );
    let replies: Vec<u16> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..200)
            .map(|_| scope.spawn(|| ask_as(&lab, "poor", "m").status))
            .collect();
        asking
            .into_iter()
            .map(|asked| asked.join().expect("an answer"))
            .collect()
    });
    let count = |status| replies.iter().filter(|found| **found == status).count();
    assert_eq!((count(200), count(402)), (1, 199), "{replies:?}");
    assert_eq!(vendor.requests().len(), 1);
    let deadline = std::time::Instant::now() + Duration::from_secs(5);
    let settled = loop {
        let state = lab.block_on(lab.gateway.store().budget("poor"));
        let state = state.expect("readable").expect("a budget");
        if state.reserved == MicroUsd::default() {
            break state.spent;
        }
        assert!(std::time::Instant::now() < deadline, "it stays reserved");
        std::thread::sleep(Duration::from_millis(20));
    };
    assert!(settled > MicroUsd::default() && settled < MicroUsd::from_micros(reserved));
}

/// What a key may use, how often, and until when.
#[test]
fn keys_are_limited_as_they_say() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let lab = priced_lab(&vendor);
    let models = vec!["gpt-*".to_owned()];
    add(
        &lab,
        NewApiKey {
            models,
            ..key("some-models")
        },
    );
    add(
        &lab,
        NewApiKey {
            requests_per_minute: Some(2),
            ..key("slow")
        },
    );
    add(
        &lab,
        NewApiKey {
            tokens_per_minute: Some(10),
            ..key("few-tokens")
        },
    );
    let long_ago = Some(abp_core::Timestamp::from_unix_millis(1));
    add(
        &lab,
        NewApiKey {
            expires_at: long_ago,
            ..key("expired")
        },
    );
    add(
        &lab,
        NewApiKey {
            max_output_tokens: Some(10),
            ..key("short")
        },
    );

    assert_eq!(ask_as(&lab, "some-models", "gpt-4o").status, 200);
    let denied = ask_as(&lab, "some-models", "claude-x");
    assert_eq!(
        (denied.status, denied.header("x-abp-error")),
        (403, Some("MODEL_NOT_ALLOWED"))
    );

    let statuses: Vec<u16> = (0..3).map(|_| ask_as(&lab, "slow", "m").status).collect();
    assert_eq!(statuses, [200, 200, 429]);
    let waiting = ask_as(&lab, "slow", "m");
    assert!(waiting.header("retry-after").is_some(), "{}", waiting.head);

    let statuses: Vec<u16> = (0..2)
        .map(|_| ask_as(&lab, "few-tokens", "m").status)
        .collect();
    assert_eq!(
        statuses,
        [200, 429],
        "the first used more than a minute's worth"
    );

    assert_eq!(ask_as(&lab, "expired", "m").status, 401);
    assert_eq!(ask_as(&lab, "unknown", "m").status, 401);
    let body = r#"{"model":"m","max_tokens":11,"messages":[{"role":"user","content":"x"}]}"#;
    assert_eq!(
        lab.post_as("short", "/v1/chat/completions", body, "")
            .status,
        400
    );

    let revoked = lab.block_on(lab.gateway.store().revoke_key("some-models"));
    assert!(revoked.expect("revoked"));
    let deadline = std::time::Instant::now() + Duration::from_secs(3);
    while ask_as(&lab, "some-models", "gpt-4o").status != 401 {
        assert!(
            std::time::Instant::now() < deadline,
            "a revoked key still works"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A9: an exchange, an answer and a receipt belong to the key that made them.
#[test]
fn a9_nobody_sees_what_another_key_made() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let lab = priced_lab(&vendor);
    add(&lab, key("one"));
    add(&lab, key("two"));
    let body = request(Dialect::Codex, "m", false);
    let made = lab.post_as("one", "/v1/responses", &body, "");
    assert_eq!(made.status, 200, "{}", made.text());
    let id = made.json()["id"].as_str().expect("an id").to_owned();
    let run = made.header("x-abp-run-id").expect("a run").to_owned();
    let get = |key: &str, path: String| {
        let raw = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nx-api-key: {key}\r\nconnection: close\r\n\r\n"
        );
        lab.raw(raw.as_bytes()).status
    };
    for path in [
        format!("/v1/responses/{id}"),
        format!("/v1/responses/{id}/input_items"),
        format!("/v1/receipts/{run}"),
    ] {
        assert_eq!(get("two", path.clone()), 404, "{path}");
        assert_eq!(get("one", path.clone()), 200, "{path}");
    }
    let next = format!(r#"{{"model":"m","input":"more","previous_response_id":"{id}"}}"#);
    assert_eq!(lab.post_as("two", "/v1/responses", &next, "").status, 404);
    let before = vendor.requests().len();
    assert_eq!(lab.post_as("one", "/v1/responses", &next, "").status, 200);
    let sent: serde_json::Value =
        serde_json::from_slice(&vendor.requests()[before].body).expect("JSON");
    assert_eq!(sent["messages"].as_array().map(Vec::len), Some(3), "{sent}");
}
