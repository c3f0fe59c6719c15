//! Runs over HTTP: submitted, followed, taken up again, decided and proven.

use abp_receipt::{Hash, SignedCheckpoint, verify_consistency, verify_inclusion};
use abp_store::{KeyScope, VerifyOptions};
use serde_json::{Value, json};

use crate::assist::{stage, stage_with};
use crate::lab::{KEY, Lab, Reply};

const JSON: &str = "content-type: application/json\r\n";

fn get(lab: &Lab, path: &str) -> Value {
    let reply = lab.call("GET", KEY, path, "", b"");
    assert_eq!(reply.status, 200, "{path}: {}", reply.text());
    reply.json()
}

/// The numbers and the last name of a stream of server-sent events.
fn sse(reply: &Reply) -> (Vec<u64>, Option<String>) {
    let text = reply.text();
    let ids = text.lines().filter_map(|line| line.strip_prefix("id: "));
    let mut names = text.lines().filter_map(|line| line.strip_prefix("event: "));
    (
        ids.map(|id| id.parse().expect("a number")).collect(),
        names.next_back().map(str::to_owned),
    )
}

#[test]
fn a_program_submits_goes_away_and_finds_everything_later() {
    let lab = Lab::start(&[]);
    let reply = lab.call("POST", KEY, "/v1/runs", JSON, br#"{"task":"say hello"}"#);
    assert_eq!(reply.status, 202, "{}", reply.text());
    let run = reply.json()["run_id"].as_str().expect("a run").to_owned();
    assert_eq!(
        reply.header("location"),
        Some(format!("/v1/runs/{run}").as_str())
    );
    lab.wait_for_end(KEY, &run);
    let view = get(&lab, &format!("/v1/runs/{run}"));
    assert_eq!(
        (&view["state"], &view["task"]),
        (&json!("complete"), &json!("say hello"))
    );

    let page = get(&lab, &format!("/v1/runs/{run}/events"));
    let seqs = |page: &Value| -> Vec<u64> {
        let events = page["events"].as_array().expect("events").iter();
        events
            .map(|event| event["seq"].as_u64().expect("a number"))
            .collect()
    };
    let all = seqs(&page);
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(page["is_end"], true);
    // Page by page is the same.
    let mut paged = Vec::new();
    let mut after = String::new();
    loop {
        let page = get(&lab, &format!("/v1/runs/{run}/events?limit=2{after}"));
        paged.extend(seqs(&page));
        if page["is_end"] == true {
            break;
        }
        after = format!("&after_seq={}", page["next_after_seq"]);
    }
    assert_eq!(paged, all);

    let receipt = get(&lab, &format!("/v1/runs/{run}/receipt"));
    assert_eq!(receipt["outcome"], "complete");
    assert_eq!(get(&lab, &format!("/v1/receipts/{run}")), receipt);
    let listed = get(&lab, "/v1/receipts");
    assert_eq!(listed["receipts"][0]["run_id"], run.as_str());
}

/// F4: a stream is taken up after any event, without a gap and without a repetition, and numbers that
/// nobody was given do no harm.
#[test]
fn f4_a_stream_is_resumed_at_any_event() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    let path = format!("/v1/runs/{run}/events");
    let stream = |headers: &str| {
        let headers = format!("accept: text/event-stream\r\n{headers}");
        lab.call("GET", KEY, &path, &headers, b"")
    };
    // Followed from the start, while it goes on.
    let (all, last) = sse(&stream(""));
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    assert_eq!(last.as_deref(), Some("end"));
    for (index, seq) in all.iter().enumerate() {
        let (rest, last) = sse(&stream(&format!("last-event-id: {seq}\r\n")));
        assert_eq!(rest, all[index + 1..], "after {seq}");
        assert_eq!(last.as_deref(), Some("end"));
    }
    for forged in ["99999", "18446744073709551615"] {
        let (rest, last) = sse(&stream(&format!("last-event-id: {forged}\r\n")));
        assert_eq!(
            (rest, last.as_deref()),
            (Vec::new(), Some("end")),
            "{forged}"
        );
    }
    assert_eq!(stream("last-event-id: -1\r\n").status, 400);
    assert_eq!(stream("last-event-id: x\r\n").status, 400);
    for client in ["web", "cli", "voice"] {
        let adapted = format!("{path}?as={client}");
        let reply = lab.call("GET", KEY, &adapted, "accept: text/event-stream\r\n", b"");
        assert_eq!(sse(&reply).1.as_deref(), Some("end"), "{client}");
    }
}

/// F3: the same request is the same run; another body under the same key is refused; keys of principals
/// are apart.
#[test]
fn f3_an_idempotency_key_names_one_request_of_one_principal() {
    let lab = Lab::start(&[]);
    let other = lab.key("other", &[KeyScope::RunsWrite, KeyScope::RunsRead]);
    let submit = |key: &str, body: &str| {
        let headers = format!("{JSON}idempotency-key: nightly\r\n");
        lab.call("POST", key, "/v1/runs", &headers, body.as_bytes())
    };
    let first = submit(KEY, r#"{"task":"say hello"}"#);
    assert_eq!(first.status, 202, "{}", first.text());
    assert_eq!(first.json()["is_replay"], false);
    let again = submit(KEY, r#"{"task":"say hello"}"#);
    assert_eq!(again.status, 202, "{}", again.text());
    assert_eq!(again.json()["run_id"], first.json()["run_id"]);
    assert_eq!(again.json()["is_replay"], true);
    let changed = submit(KEY, r#"{"task":"say goodbye"}"#);
    assert_eq!(changed.status, 409, "{}", changed.text());
    assert_eq!(changed.json()["error"]["code"], "IDEMPOTENCY_KEY_REUSED");
    let foreign = submit(&other, r#"{"task":"say goodbye"}"#);
    assert_eq!(foreign.status, 202, "{}", foreign.text());
    assert_ne!(foreign.json()["run_id"], first.json()["run_id"]);
    let long = format!("{JSON}idempotency-key: {}\r\n", "x".repeat(256));
    let reply = lab.call("POST", KEY, "/v1/runs", &long, br#"{"task":"x"}"#);
    assert_eq!(reply.status, 400);
}

#[test]
fn a_caller_may_wait_for_the_receipt() {
    let lab = Lab::start(&[]);
    let reply = lab.call(
        "POST",
        KEY,
        "/v1/runs?wait=30",
        JSON,
        br#"{"task":"say hello"}"#,
    );
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.json()["state"], "complete");
    assert_eq!(reply.json()["receipt"]["outcome"], "complete");
}

/// E1, E3, E4: what the server says about its log is checked with the client's own means.
#[test]
fn e3_proofs_of_the_log_are_checked_by_the_client() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    lab.wait_for_end(KEY, &run);
    let older = get(&lab, "/v1/log/checkpoint");
    let second = lab.submit(KEY, r#"{"task":"say more"}"#);
    lab.wait_for_end(KEY, &second);

    let hashes = |value: &Value| -> Vec<Hash> {
        let items = value.as_array().expect("hashes").iter();
        items
            .map(|hash| {
                hash.as_str()
                    .and_then(|hash| hash.parse().ok())
                    .expect("a hash")
            })
            .collect()
    };
    let proof = get(&lab, &format!("/v1/log/proof?run_id={run}"));
    let signed: SignedCheckpoint = proof["checkpoint"]
        .as_str()
        .expect("text")
        .parse()
        .expect("one");
    let entry = proof["entry"].as_str().expect("an entry");
    let leaf = abp_receipt::LogEntry::from_leaf_bytes(entry.as_bytes()).expect("an entry");
    let leaf = leaf.leaf_hash().expect("a hash");
    let (seq, size) = (
        proof["log_seq"].as_u64().unwrap(),
        proof["size"].as_u64().unwrap(),
    );
    let root = *signed.checkpoint().root();
    verify_inclusion(&leaf, seq, size, &hashes(&proof["path"]), &root).expect("it is in the log");

    let from = older["size"].as_u64().unwrap();
    let continues = get(&lab, &format!("/v1/log/consistency?from={from}"));
    let to = continues["to"].as_u64().unwrap();
    assert!(to > from);
    let newest: SignedCheckpoint = continues["checkpoint"]
        .as_str()
        .unwrap()
        .parse()
        .expect("one");
    let old_root: Hash = older["root"].as_str().unwrap().parse().expect("a hash");
    let path = hashes(&continues["path"]);
    verify_consistency(from, to, &path, &old_root, newest.checkpoint().root())
        .expect("it continues");

    let receipt = get(&lab, &format!("/v1/runs/{run}/receipt"));
    let verify = |document: &Value| {
        let body = document.to_string();
        let reply = lab.call("POST", KEY, "/v1/receipts/verify", JSON, body.as_bytes());
        assert_eq!(reply.status, 200, "{}", reply.text());
        reply.json()["verdict"].clone()
    };
    assert_eq!(verify(&receipt), "proven");
    let mut forged = receipt;
    forged["outcome"] = json!("failed");
    assert_eq!(verify(&forged), "wrong");
}

#[test]
fn runs_are_listed_in_pages_by_filters() {
    let lab = Lab::start(&[]);
    let runs: Vec<_> = (0..5)
        .map(|number| lab.submit(KEY, &json!({ "task": format!("say {number}") }).to_string()))
        .collect();
    for run in &runs {
        lab.wait_for_end(KEY, run);
    }
    let mut listed = Vec::new();
    let mut cursor = String::new();
    loop {
        let page = get(&lab, &format!("/v1/runs?limit=2&state=complete{cursor}"));
        let found = page["runs"].as_array().expect("runs");
        listed.extend(
            found
                .iter()
                .map(|run| run["run_id"].as_str().unwrap().to_owned()),
        );
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
        assert_eq!(found.len(), 2, "only the last page may be short");
    }
    listed.reverse();
    assert_eq!(listed, runs);
    // A last page that is full says so as well.
    let page = get(&lab, "/v1/runs?limit=5");
    assert!(page["next"].is_null(), "{page}");
    assert_eq!(get(&lab, "/v1/runs?backend=none")["runs"], json!([]));
    assert_eq!(get(&lab, "/v1/runs?ended=false")["runs"], json!([]));
}

#[test]
fn changes_are_looked_at_and_discarded_once() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"write a file"}"#);
    lab.wait_for_end(KEY, &run);
    let changes = get(&lab, &format!("/v1/runs/{run}/diff"));
    assert_eq!(changes["progress"]["state"], "undecided", "{changes}");
    let headers = "accept: text/x-diff\r\n";
    let patch = lab.call("GET", KEY, &format!("/v1/runs/{run}/diff"), headers, b"");
    assert_eq!(patch.text(), changes["diff"].as_str().expect("a patch"));
    // Every content is there by its hash, and nothing else.
    for path in changes["paths"].as_array().expect("paths") {
        let Some(sha256) = path["after"]["sha256"].as_str() else {
            continue;
        };
        let blob = lab.call(
            "GET",
            KEY,
            &format!("/v1/runs/{run}/blobs/{sha256}"),
            "",
            b"",
        );
        assert_eq!(blob.status, 200);
        assert_eq!(crate::lab::sha256(&blob.body), sha256);
    }
    let unknown = "0".repeat(64);
    let blob = lab.call(
        "GET",
        KEY,
        &format!("/v1/runs/{run}/blobs/{unknown}"),
        "",
        b"",
    );
    assert_eq!(blob.status, 404);
    let discard = || lab.call("POST", KEY, &format!("/v1/runs/{run}/discard"), JSON, b"{}");
    assert_eq!(discard().json()["is_changed"], true);
    assert_eq!(discard().json()["is_changed"], false);
    let apply = lab.call("POST", KEY, &format!("/v1/runs/{run}/apply"), JSON, b"{}");
    assert_eq!(apply.status, 409, "{}", apply.text());
}

/// A run that has ended stays as it ended; cancelling it changes nothing.
#[test]
fn cancelling_what_has_ended_changes_nothing() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    lab.wait_for_end(KEY, &run);
    let cancel = lab.call("POST", KEY, &format!("/v1/runs/{run}/cancel"), JSON, b"{}");
    assert_eq!(cancel.status, 200, "{}", cancel.text());
    assert_eq!(cancel.json()["state"], "complete");
    assert_eq!(cancel.json()["is_cancelling"], false);
}

/// A run that has ended can be deleted by its principal: everything but the receipt goes, once.
#[test]
fn a_deleted_run_leaves_its_receipt() {
    let lab = Lab::start(&[]);
    let scopes = [KeyScope::RunsRead, KeyScope::RunsWrite];
    let (own, other) = (lab.key("own", &scopes), lab.key("other", &scopes));
    let run = lab.submit(&own, r#"{"task":"write a secret file"}"#);
    lab.wait_for_end(&own, &run);
    let path = format!("/v1/runs/{run}");
    let call = |method: &str, key: &str, path: &str| lab.call(method, key, path, "", b"");
    let receipt = call("GET", &own, &format!("{path}/receipt")).text();
    assert_eq!(call("DELETE", &other, &path).status, 404);
    let deleted = call("DELETE", &own, &path);
    assert_eq!(
        (deleted.status, &deleted.json()["is_changed"]),
        (200, &json!(true))
    );
    assert_eq!(call("DELETE", &own, &path).json()["is_changed"], false);
    let left = call("GET", &own, &path).json();
    assert_eq!(
        (&left["is_deleted"], &left["task"]),
        (&json!(true), &json!(""))
    );
    for (accept, part) in [("*/*", "events"), ("text/event-stream", "events")] {
        let headers = format!("accept: {accept}\r\n");
        let gone = lab.call("GET", &own, &format!("{path}/{part}"), &headers, b"");
        assert_eq!(gone.status, 404, "{accept}: {}", gone.text());
    }
    let diff = call("GET", &own, &format!("{path}/diff")).json();
    assert_eq!(diff["progress"]["decision"], "discarded", "{diff}");
    assert_eq!(
        call("GET", &own, &format!("{path}/receipt")).text(),
        receipt
    );
    let stages = lab.dir.path().join("stages");
    let staged = std::fs::read_dir(&stages).map_or(0, Iterator::count);
    let named = std::fs::read_dir(&stages).into_iter().flatten().flatten();
    let named = named
        .filter(|one| one.file_name().to_string_lossy().contains(&run))
        .count();
    assert_eq!(named, 0, "of {staged}");
    let verified = lab.block_on(lab.gateway.store().verify(VerifyOptions::default()));
    assert!(verified.expect("readable").is_ok());
}

/// A run that goes on is not deleted.
#[test]
fn a_run_that_goes_on_is_not_deleted() {
    let (lab, _dir) = stage(&json!([{ "do": "sleep", "ms": 60_000 }]));
    let run = lab.submit(KEY, r#"{"task":"sleep"}"#);
    let path = format!("/v1/runs/{run}");
    let refused = lab.call("DELETE", KEY, &path, "", b"");
    assert_eq!(
        (refused.status, &refused.json()["error"]["code"]),
        (409, &json!("RUN_NOT_ENDED"))
    );
    let cancel = lab.call("POST", KEY, &format!("{path}/cancel"), JSON, b"{}");
    assert_eq!(cancel.status, 200, "{}", cancel.text());
    lab.wait_for_end(KEY, &run);
    assert_eq!(lab.call("DELETE", KEY, &path, "", b"").status, 200);
}

/// A run that anybody started is followed as events of AG-UI, from its start to its end.
#[test]
fn a_run_is_followed_by_clients_of_agui() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    let path = format!("/v1/runs/{run}/events?as=ag-ui");
    let headers = "accept: text/event-stream\r\nlast-event-id: 3\r\n";
    let reply = lab.call("GET", KEY, &path, headers, b"");
    assert_eq!(reply.status, 200, "{}", reply.text());
    let text = reply.text();
    let events: Vec<Value> = text
        .lines()
        .filter_map(|line| line.strip_prefix("data: "))
        .map(|data| serde_json::from_str(data).expect("an event"))
        .collect();
    let kinds: Vec<_> = events
        .iter()
        .map(|one| one["type"].as_str().unwrap())
        .collect();
    assert_eq!(
        (kinds[0], kinds[kinds.len() - 1]),
        ("RUN_STARTED", "RUN_FINISHED")
    );
    assert!(kinds.contains(&"TEXT_MESSAGE_CONTENT"), "{kinds:?}");
    assert_eq!(events[0]["runId"], json!(run));
    let nodes = get(&lab, "/v1/nodes");
    assert_eq!(nodes["nodes"][0]["max_running"], 32, "{nodes}");
}

/// What is over a limit is refused with the name of what is full.
#[test]
fn limits_are_named_where_they_are_reached() {
    let lab = Lab::start_with(&[], |config, _| {
        config.control.max_stored_mb_per_principal = Some(1);
    });
    let scopes = [KeyScope::RunsRead, KeyScope::RunsWrite];
    let (own, other) = (lab.key("own", &scopes), lab.key("other", &scopes));
    let submit = |key: &str, task: &str| {
        let body = json!({ "task": task }).to_string();
        lab.call("POST", key, "/v1/runs", JSON, body.as_bytes())
    };
    for _ in 0..12 {
        let first = submit(&own, &"x".repeat(95_000));
        assert_eq!(first.status, 202, "{}", first.text());
    }
    // The size was measured before the first run, and is believed for a while; deleting another run forgets it.
    let small = lab.submit(&other, r#"{"task":"small"}"#);
    lab.wait_for_end(&other, &small);
    let delete =
        |key: &str, run: &str| lab.call("DELETE", key, &format!("/v1/runs/{run}"), "", b"");
    assert_eq!(delete(&other, &small).status, 200);
    let refused = submit(&own, "more");
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(
        refused.text().contains("max_stored_mb_per_principal"),
        "{}",
        refused.text()
    );
    assert_eq!(submit(&other, "more").status, 202);
}

#[test]
fn a_full_queue_is_named() {
    let (steps, all) = (json!([{ "do": "sleep", "ms": 60_000 }]), 2_u32);
    let (lab, _dir) = stage_with(&steps, |config| {
        config.control.max_running = 1;
        config.control.max_queued = all;
        config.control.max_queued_per_principal = 1;
    });
    let scopes = [KeyScope::RunsRead, KeyScope::RunsWrite];
    let keys = ["a", "b", "c"].map(|name| lab.key(name, &scopes));
    let submit = |key: &str| lab.call("POST", key, "/v1/runs", JSON, br#"{"task":"t"}"#);
    let first = submit(&keys[0]).json()["run_id"]
        .as_str()
        .unwrap()
        .to_owned();
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while get(&lab, &format!("/v1/runs/{first}"))["state"] != "running" {
        assert!(
            std::time::Instant::now() < deadline,
            "the run does not begin"
        );
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    assert_eq!(submit(&keys[0]).status, 202);
    for (key, what) in [(&keys[0], "principal"), (&keys[2], "in all")] {
        if what == "in all" {
            assert_eq!(submit(&keys[1]).status, 202);
        }
        let full = submit(key);
        assert_eq!(full.status, 429, "{what}: {}", full.text());
        assert_eq!(full.json()["error"]["code"], "RUN_LIMIT_REACHED");
    }
}
