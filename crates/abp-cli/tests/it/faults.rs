//! Requests that are sent twice, and machines that run out of something.

use std::process::Stdio;

use abp_core::{AgentEvent, verify_receipt_document};
use abp_error::ErrorCode;
use serde_json::{Value, json};

use crate::desk::{Desk, Ran};

/// F3: a request under one key is one run: after its end, after a crash in the midst of it, and when
/// several send it at once.
#[test]
fn f3_a_request_that_is_sent_again_is_the_same_run() {
    let desk = Desk::new();
    let request = |key| ["run", "--task", "t", "--idempotency-key", key];
    let (status, first) = desk.json(&request("done"));
    let (again, second) = desk.json(&request("done"));
    assert_eq!((status, again), (0, 0));
    assert_eq!(first, second, "the summary of one run, printed twice");
    let events = desk.abp(&["runs", "show", "last", "--events", "--json"]);
    let replayed = desk.abp(&[&request("done")[..], &["--jsonl"]].concat());
    assert!(
        replayed.stdout.starts_with(&events.stdout),
        "{}",
        replayed.stdout
    );

    let other = ["run", "--task", "another", "--idempotency-key", "done"];
    let elsewhere = [&request("done")[..], &["--backend", "auto"]].concat();
    for different in [&other[..], &elsewhere] {
        let (status, refused) = desk.json(different);
        let code = &refused["error"]["code"];
        assert_eq!((status, code), (2, &json!("IDEMPOTENCY_KEY_REUSED")));
    }

    let died = desk
        .command(&request("crashed"))
        .env("ABP_TEST_DIE_AT", "engaged")
        .output()
        .unwrap();
    assert_eq!(died.status.code(), None, "the process should have died");
    let (status, recovered) = desk.json(&request("crashed"));
    let code = &recovered["error"]["code"];
    assert_eq!(
        (status, code),
        (1, &json!("RUN_INTERRUPTED")),
        "{recovered}"
    );

    let racing: Vec<_> = (0..4)
        .map(|_| {
            let mut command = desk.command(&[&request("raced")[..], &["--json"]].concat());
            command.stdout(Stdio::piped()).stderr(Stdio::null());
            command.spawn().unwrap()
        })
        .collect();
    let mut ids: Vec<Value> = racing
        .into_iter()
        .map(|child| Ran::new(child.wait_with_output().unwrap()))
        .map(|ran| serde_json::from_str::<Value>(&ran.stdout).unwrap()["run_id"].clone())
        .collect();
    ids.dedup();
    assert_eq!(ids.len(), 1, "{ids:?}");
    let (_, listed) = desk.json(&["runs", "list"]);
    assert_eq!(listed["runs"].as_array().unwrap().len(), 3, "{listed}");
}

/// The commands that are proposed after a run are about that run, also when it is an older one.
#[test]
fn a_replayed_request_proposes_to_decide_about_its_own_run() {
    let desk = Desk::new();
    let request = ["run", "--task", "first", "--idempotency-key", "k"];
    let (_, first) = desk.json(&request);
    assert_eq!(desk.abp(&["run", "--task", "second"]).status, 0);
    let replayed = desk.abp(&request);
    let next = replayed
        .stdout
        .lines()
        .find(|line| line.starts_with("next"));
    let words: Vec<_> = next.unwrap().split_whitespace().collect();
    let ["next", "abp", "apply", named, "or", "abp", "discard", again] = words[..] else {
        panic!("{words:?}");
    };
    assert_eq!(named, format!("{again},"));
    let (status, discarded) = desk.json(&["discard", again]);
    assert_eq!(status, 0, "{discarded}");
    assert_eq!(discarded["run_id"], first["run_id"], "{discarded}");
    assert_eq!(discarded["decision"], "discarded");
}

/// F7: however few files may be open, a run is refused before it begins or has one receipt, which
/// holds everything that was shown; afterwards all goes on.
#[test]
fn f7_too_few_open_files_lose_nothing() {
    let desk = Desk::new();
    // Deep enough for staging to need more handles than some limits leave.
    let deep = desk.path(&vec!["d"; 30].join("/"));
    std::fs::create_dir_all(&deep).unwrap();
    std::fs::write(deep.join("file"), "content").unwrap();
    let (mut refused, mut shown) = (0, Vec::new());
    for most in (4..=116).step_by(4) {
        let mut command = desk.with_open_files(most, &["run", "--task", "t", "--jsonl"]);
        let ran = Ran::new(command.output().unwrap());
        assert!(
            !ran.stderr.contains("panicked") && ran.status >= 0,
            "{most}: {} {}",
            ran.status,
            ran.stderr
        );
        let events: Vec<AgentEvent> = ran
            .stdout
            .lines()
            .map_while(|line| serde_json::from_str(line).ok())
            .filter(|event: &AgentEvent| event.kind.name() != "run_summary")
            .collect();
        if events.is_empty() {
            let why = "Too many open files";
            assert!(ran.stderr.contains(why), "{most}: {}", ran.stderr);
            refused += 1;
        } else {
            shown.push((most, events));
        }
    }
    let (_, listed) = desk.json(&["runs", "list", "--limit", "100"]);
    let runs = listed["runs"].as_array().unwrap();
    let receipts: Vec<_> = runs
        .iter()
        .map(|run| {
            let name = format!("{}.json", run["run_id"].as_str().unwrap());
            let copy = std::fs::read(desk.state("receipts").join(name));
            verify_receipt_document(&copy.unwrap()).unwrap()
        })
        .collect();
    for (most, events) in &shown {
        let recorded = |trace: &[AgentEvent]| trace.starts_with(events);
        assert!(
            receipts.iter().any(|receipt| recorded(&receipt.trace)),
            "{most}"
        );
    }
    let failed_staging = |code| code == ErrorCode::WorkspaceStagingFailed;
    let codes = || {
        receipts
            .iter()
            .map(|receipt| receipt.error.as_ref().map(|error| error.code))
    };
    assert!(refused > 0, "some limits are too low for the store");
    assert!(
        codes().flatten().any(failed_staging),
        "some are too low for staging"
    );
    assert!(codes().any(|code| code.is_none()), "some are enough");
    assert_eq!(desk.abp(&["receipt", "verify", "--log"]).status, 0);
}
