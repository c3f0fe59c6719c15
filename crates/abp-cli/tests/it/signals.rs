//! Interrupted runs.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use abp_core::{CancelReason, Outcome, verify_receipt_document};
use serde_json::json;

use crate::desk::Desk;

/// Ctrl-C and a request to terminate both end in a receipt that says so.
#[test]
fn a_signal_gives_a_cancelled_receipt() {
    for (signal, reason) in [
        ("INT", CancelReason::User),
        ("TERM", CancelReason::Shutdown),
    ] {
        let desk = Desk::new();
        let steps = json!([{"do": "say", "text": "started"}, {"do": "sleep", "ms": 600_000}]);
        desk.write(
            "s.json",
            json!({"name": "slow", "steps": steps}).to_string(),
        );
        let mut child = desk
            .command(&[
                "run",
                "--task",
                "t",
                "--backend",
                "slow",
                "--mock-script",
                "s.json",
                "--jsonl",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        // The handler is in place once the agent talks.
        assert!(
            lines
                .by_ref()
                .any(|line| line.unwrap().contains("assistant_message"))
        );
        let sent = Command::new("kill")
            .args(["-s", signal, &child.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
        let rest: Vec<_> = lines.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(130), "{rest:?}");
        let [path] = desk.receipts().try_into().unwrap();
        let receipt = verify_receipt_document(&std::fs::read(path).unwrap()).unwrap();
        assert_eq!(
            (receipt.outcome, receipt.cancel_reason),
            (Outcome::Cancelled, Some(reason))
        );
    }
}
