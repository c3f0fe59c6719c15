//! A store on Postgres: runs, receipts and exchanges from two places that share nothing else.

use std::time::{Duration, Instant};

use abp_testkit::{PrivatePostgres, skip};
use serde_json::{Value, json};

use crate::desk::Desk;
use crate::keys::{create, listed};
use crate::served::{Served, within_a_second};

/// A desk whose store is on that server, with these keys.
fn desk_on(server: &PrivatePostgres, keys: &str) -> Desk {
    let desk = Desk::new();
    let store = format!("[store]\nurl = {:?}\nkeys = {keys:?}\n", server.url());
    let file = desk.home().join(".config/abp/backplane.toml");
    std::fs::create_dir_all(file.parent().unwrap()).unwrap();
    std::fs::write(file, store).unwrap();
    desk
}

fn told(desk: &Desk, arguments: &[&str], status: i32) -> Value {
    let (ended, told) = desk.json(arguments);
    assert_eq!(ended, status, "{arguments:?}: {told:#}");
    told
}

/// The tokens of the processes that count as alive.
fn alive(desk: &Desk) -> Vec<String> {
    let nodes = told(desk, &["nodes"], 0);
    let nodes = nodes["nodes"].as_array().unwrap().iter();
    let alive = nodes.filter(|node| node["alive"] == json!(true));
    alive.map(|node| node["token"].to_string()).collect()
}

/// A run and an exchange of one desk are seen, and proven, at the other.
#[test]
fn two_places_share_one_store() {
    let server = match PrivatePostgres::start() {
        Ok(server) => server,
        Err(why) => return skip("abp: a store on Postgres", &why),
    };
    let keys = Desk::new();
    let keys = keys.home().join("store-keys");
    let keys = keys.to_str().unwrap();
    let (one, other) = (desk_on(&server, keys), desk_on(&server, keys));
    let refused = one.abp(&["run", "--task", "say hello"]);
    assert!(refused.stderr.contains("abp migrate"), "{}", refused.stderr);
    assert_eq!(told(&one, &["migrate", "--check"], 2)["found"], 0);
    assert_eq!(told(&one, &["migrate"], 0)["current"], true);
    assert_eq!(told(&other, &["migrate", "--check"], 0)["current"], true);
    let shown = one.abp(&["config", "show"]).stdout;
    assert!(
        shown.contains("[store]") && !shown.contains("host="),
        "{shown}"
    );

    let run = told(
        &one,
        &["run", "--task", "say hello", "--backend", "mock"],
        0,
    );
    let receipt = one.receipts().pop().unwrap();
    let receipt = receipt.to_str().unwrap();
    for desk in [&one, &other] {
        let runs = told(desk, &["runs", "list", "--all"], 0);
        assert_eq!(runs["runs"].as_array().unwrap().len(), 1, "{run:#}");
        assert_eq!(runs["runs"][0]["outcome"], "complete", "{runs:#}");
        let verdict = told(desk, &["receipt", "verify", receipt], 0);
        assert_eq!(verdict["verdict"], "proven", "{verdict:#}");
        told(desk, &["receipt", "verify", "--log"], 0);
    }
    assert!(!one.state("store.db").exists());

    // One serves; the other makes the key and reads the account.
    let served = Served::start(&one, &[]);
    let (id, key) = create(&other, &["--token-budget", "100000"]);
    let answer = within_a_second(|| match served.say(&key, "hello") {
        (401, _) => None,
        answered => Some(answered),
    });
    assert_eq!(answer.0, 200, "{:#}", answer.1);
    let used = &answer.1["usage"]["total_tokens"];
    let account = within_a_second(|| {
        let account = listed(&other, &id);
        (account["reserved_tokens"] == 0 && account["requests"] == 1).then_some(account)
    });
    assert_eq!(&account["spent_tokens"], used);
    let before = alive(&other);
    assert!(!before.is_empty());
    drop(served);
    // A server that was killed counts as gone after a while.
    let deadline = Instant::now() + Duration::from_secs(60);
    while !alive(&other).is_empty() {
        assert!(Instant::now() < deadline, "{before:?}");
        std::thread::sleep(Duration::from_millis(500));
    }
    told(&other, &["receipt", "verify", "--log"], 0);
}
