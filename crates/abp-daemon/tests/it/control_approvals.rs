//! Questions of runs: asked with nobody there, answered once, over HTTP or a WebSocket.

use std::time::{Duration, Instant};

use abp_store::KeyScope;
use serde_json::{Value, json};

use crate::lab::{KEY, Lab, Reply};

const JSON: &str = "content-type: application/json\r\n";
/// An order whose agent has to ask before it writes.
const ASKS: &str =
    r#"{"order":{"task":"write a file","policy":{"require_approval_for":["Write"]}}}"#;

/// The open question of a run, once it is asked.
fn question(lab: &Lab, key: &str, run: &str) -> Value {
    let deadline = Instant::now() + Duration::from_secs(30);
    loop {
        let path = format!("/v1/approvals?run_id={run}&open=true");
        let page = lab.call("GET", key, &path, "", b"").json();
        if let Some(first) = page["approvals"].as_array().and_then(|list| list.first()) {
            return first.clone();
        }
        assert!(Instant::now() < deadline, "no question: {page}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn answer(lab: &Lab, key: &str, id: &str, approve: bool) -> Reply {
    let body = json!({ "approve": approve, "reason": "seen by a person" }).to_string();
    lab.call(
        "POST",
        key,
        &format!("/v1/approvals/{id}"),
        JSON,
        body.as_bytes(),
    )
}

#[test]
fn a_run_waits_for_one_answer_and_the_receipt_says_whose() {
    let lab = Lab::start(&[]);
    let scopes = [KeyScope::RunsRead, KeyScope::RunsWrite, KeyScope::Approve];
    let owner = lab.key("owner", &scopes);
    let other = lab.key("other", &scopes);
    let watcher = lab.key("watcher", &[KeyScope::RunsRead]);
    for approve in [true, false] {
        let run = lab.submit(&owner, ASKS);
        let asked = question(&lab, &owner, &run);
        let id = asked["id"].as_str().expect("an id");
        assert_eq!(
            (&asked["tool"], &asked["state"]),
            (&json!("Write"), &json!("open"))
        );
        let view = lab
            .call("GET", &owner, &format!("/v1/runs/{run}"), "", b"")
            .json();
        assert_eq!(view["state"], "awaiting_approval");
        // Nobody else sees it or answers it.
        let seen = lab.call("GET", &other, "/v1/approvals", "", b"").json();
        assert_eq!(seen["approvals"], json!([]));
        assert_eq!(answer(&lab, &other, id, true).status, 404);
        assert_eq!(answer(&lab, &watcher, id, true).status, 403);
        let answered = answer(&lab, &owner, id, approve);
        assert_eq!(answered.status, 200, "{}", answered.text());
        assert_eq!(
            answered.json()["state"],
            if approve { "approved" } else { "denied" }
        );
        assert_eq!(answered.json()["answered_by"], "owner");
        // The first answer counts, also after the end.
        for _ in 0..2 {
            let late = answer(&lab, &owner, id, !approve);
            assert_eq!(late.status, 409, "{}", late.text());
            assert_eq!(late.json()["error"]["code"], "APPROVAL_ANSWERED");
            lab.wait_for_end(&owner, &run);
        }
        let diff = lab
            .call("GET", &owner, &format!("/v1/runs/{run}/diff"), "", b"")
            .json();
        assert_eq!(
            !diff["paths"].as_array().expect("paths").is_empty(),
            approve,
            "{diff}"
        );
        let receipt = lab.call("GET", &owner, &format!("/v1/runs/{run}/receipt"), "", b"");
        assert!(
            receipt.text().contains("seen by a person"),
            "{}",
            receipt.text()
        );
    }
}

/// A question that ended with its run takes no answer any more.
#[test]
fn an_answer_to_a_cancelled_run_is_refused() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, ASKS);
    let asked = question(&lab, KEY, &run);
    let cancel = lab.call(
        "POST",
        KEY,
        &format!("/v1/runs/{run}/cancel"),
        JSON,
        br#"{"reason":"enough"}"#,
    );
    assert_eq!(cancel.status, 200, "{}", cancel.text());
    lab.wait_for_end(KEY, &run);
    let view = lab
        .call("GET", KEY, &format!("/v1/runs/{run}"), "", b"")
        .json();
    assert_eq!(view["state"], "cancelled");
    let late = answer(&lab, KEY, asked["id"].as_str().expect("an id"), true);
    assert_eq!(late.status, 409, "{}", late.text());
}
