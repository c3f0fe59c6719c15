//! Keys of the gateway's callers, and the models they can ask for.

use std::path::Path;

use serde_json::{Value, json};

use crate::desk::Desk;
use crate::served::{Served, get, post, within_a_second};

/// Makes a key and returns its id and the key itself.
pub(crate) fn create(desk: &Desk, more: &[&str]) -> (String, String) {
    let (status, made) = desk.json(&[&["keys", "create", "--name", "test"], more].concat());
    assert_eq!(status, 0, "{made:#}");
    let text = |name: &str| made[name].as_str().unwrap().to_owned();
    (text("id"), text("key"))
}

pub(crate) fn listed(desk: &Desk, id: &str) -> Value {
    let (_, list) = desk.json(&["keys", "list", "--all"]);
    let mut keys = list["keys"].as_array().unwrap().iter();
    keys.find(|key| key["id"] == id).unwrap().clone()
}

/// Whether any file below a directory holds these bytes.
fn holds(directory: &Path, wanted: &[u8]) -> bool {
    std::fs::read_dir(directory).unwrap().any(|entry| {
        let path = entry.unwrap().path();
        if path.is_dir() {
            return holds(&path, wanted);
        }
        let content = std::fs::read(&path).unwrap_or_default();
        content.windows(wanted.len()).any(|part| part == wanted)
    })
}

#[test]
fn a_key_is_shown_once_works_while_the_gateway_runs_and_ends_when_revoked() {
    let desk = Desk::new();
    let served = Served::start(&desk, &[]);
    let (id, key) = create(&desk, &["--budget-usd", "5", "--token-budget", "100000"]);
    let answer = within_a_second(|| match served.say(&key, "hello") {
        (401, _) => None,
        (status, answer) => Some((status, answer)),
    });
    assert_eq!(answer.0, 200, "{:#}", answer.1);
    let content = &answer.1["choices"][0]["message"]["content"];
    assert_eq!(content, "You said: hello");
    let used = answer.1["usage"]["total_tokens"].as_u64().unwrap();
    let account = within_a_second(|| {
        let listed = listed(&desk, &id);
        (listed["reserved_tokens"] == 0 && listed["requests"] == 1).then_some(listed)
    });
    assert_eq!(account["spent_tokens"], used);
    assert_eq!(account["left_tokens"], 100_000 - used);
    // The price that `abp models` tells is the one that is charged.
    let (_, models) = desk.json(&["models"]);
    let rate = models["models"][0]["price"]["input_usd_per_mtok"].as_f64();
    let micros = |name: &str| (account[name].as_f64().unwrap() * 1e6).round();
    #[expect(clippy::cast_precision_loss, reason = "a handful of tokens")]
    let cost = rate.unwrap() * used as f64;
    assert!((micros("spent_usd") - cost).abs() < 2.0, "{account:#}");
    assert!((micros("left_usd") + micros("spent_usd") - 5e6).abs() < 1.0);
    let text = desk.abp(&["keys", "list"]).stdout;
    assert!(text.contains(&id) && !text.contains(&key), "{text}");
    assert!(!holds(&desk.state(""), key.as_bytes()));

    assert_eq!(desk.abp(&["keys", "revoke", &id]).status, 0);
    within_a_second(|| (served.say(&key, "hello").0 == 401).then_some(()));
    assert_eq!(listed(&desk, &id)["state"], "revoked");
    let again = desk.abp(&["keys", "revoke", &id]);
    assert_eq!((again.status, again.stdout.contains("before")), (0, true));
}

#[test]
fn every_limit_of_a_key_is_kept() {
    let desk = Desk::new();
    let asking = |model: &str, extra: Value| {
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": "hi"}]});
        body.as_object_mut()
            .unwrap()
            .extend(extra.as_object().unwrap().clone());
        body
    };
    // What the key is limited to, what is asked, and the answer to the first and the second request.
    let cases: [(&[&str], Value, [u16; 2]); 6] = [
        (
            &["--models", "mock-?", "--models", "m*k"],
            asking("mock", json!({})),
            [200, 200],
        ),
        (
            &["--models", "mock-*"],
            asking("mock", json!({})),
            [403, 403],
        ),
        (&["--rpm", "1"], asking("mock", json!({})), [200, 429]),
        (
            &["--token-budget", "50"],
            asking("mock", json!({"max_tokens": 5_000})),
            [402, 402],
        ),
        (
            &["--budget-usd", "0.000050"],
            asking("mock", json!({"max_tokens": 5_000})),
            [402, 402],
        ),
        (
            &["--max-output-tokens", "10"],
            asking("mock", json!({"max_tokens": 11})),
            [400, 400],
        ),
    ];
    let keys = cases.each_ref().map(|(limits, ..)| create(&desk, limits).1);
    let served = Served::start(&desk, &[]);
    for ((limits, body, expected), key) in cases.iter().zip(&keys) {
        let statuses = [(); 2].map(|()| post(&served.base, key, body).0);
        assert_eq!(statuses, *expected, "{limits:?}");
    }
}

#[test]
fn an_expired_key_is_told_from_the_others() {
    let desk = Desk::new();
    let (id, _) = create(&desk, &["--expires", "0.001"]);
    let (day, _) = create(&desk, &["--expires", "30d"]);
    within_a_second(|| (listed(&desk, &id)["state"] == "expired").then_some(()));
    assert_eq!(listed(&desk, &day)["state"], "active");
    let good = desk.abp(&["keys", "list"]).stdout;
    assert!(good.contains(&day) && !good.contains(&id), "{good}");
    assert!(good.contains("1 revoked or expired"), "{good}");
}

#[test]
fn what_cannot_be_a_key_is_refused() {
    let desk = Desk::new();
    let create = |more: &[&'static str]| [&["keys", "create"], more].concat();
    for arguments in [
        create(&[]),
        create(&["--name", ""]),
        create(&["--name", "a\nb"]),
        create(&["--name", "n", "--models", "["]),
        create(&["--name", "n", "--rpm", "0"]),
        create(&["--name", "n", "--budget-usd", "-1"]),
        create(&["--name", "n", "--budget-usd", "NaN"]),
        create(&["--name", "n", "--budget-usd", "0.0000001"]),
        create(&["--name", "n", "--expires", "0d"]),
        create(&["--name", "n", "--expires", "soon"]),
        vec!["keys", "revoke", "key_of_nobody"],
    ] {
        let ran = desk.abp(&arguments);
        assert_eq!(ran.status, 2, "{arguments:?}: {}{}", ran.stdout, ran.stderr);
    }
    let (_, list) = desk.json(&["keys", "list", "--all"]);
    assert_eq!(list["keys"], json!([]), "none was made");
}

#[test]
fn models_are_listed_as_the_gateway_serves_them() {
    let desk = Desk::new();
    desk.write(
        "gateway.toml",
        r#"
        [upstreams.a]
        dialect = "openai"
        base_url = "http://127.0.0.1:9/v1"
        models = ["big", "big-*"]
        prices = "list"
        [upstreams.a.aliases]
        small = "small-2026"
        [upstreams.b]
        dialect = "claude"
        base_url = "http://127.0.0.1:9"
        models = ["other"]
        [prices.list.small-2026]
        input_usd_per_mtok = 0.5
        output_usd_per_mtok = 2.0
        "#,
    );
    let config = ["--config", "gateway.toml"];
    let (status, listed) = desk.json(&[&["models"], &config[..]].concat());
    assert_eq!(status, 0);
    let rows = listed["models"].as_array().unwrap();
    let row = |model: &Value| {
        let text = |name: &str| model[name].as_str().unwrap_or("-").to_owned();
        [text("name"), text("upstream"), text("vendor_name")].join(" ")
    };
    let expected = [
        "big a -",
        "big-* a -",
        "small a small-2026",
        "other b -",
        "mock mock -",
        "mock-* mock -",
    ];
    assert_eq!(rows.iter().map(row).collect::<Vec<_>>(), expected);
    assert_eq!(rows[2]["price"]["output_usd_per_mtok"], 2.0);
    assert_eq!(rows[0].get("price"), None, "the table has no price for it");
    let text = desk.abp(&[&["models"], &config[..]].concat()).stdout;
    assert!(text.contains("as small-2026  $0.5 in, $2 out"), "{text}");

    let served = Served::start(&desk, &config);
    let (_, models) = get(&served.base, &served.key, "/v1/models");
    for model in models["data"].as_array().unwrap() {
        let named = rows.iter().any(|row| row["name"] == model["id"]);
        assert!(named, "{} is served and not listed", model["id"]);
    }
}
