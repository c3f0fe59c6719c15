//! A newcomer's first minutes.

use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::desk::{Desk, Ran, text};

#[test]
fn a_run_shows_events_diff_and_receipt() {
    let desk = Desk::new();
    let ran = desk.abp(&["run", "--task", "say hello"]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert_eq!(ran.stderr, "", "nothing but results");
    let receipt = desk.receipts().pop().unwrap();
    let expected = [
        "▸ run ",
        "  Read readme.txt",
        "  ± abp-hello.md created",
        "You asked: say hello",
        "+++ b/abp-hello.md",
        "outcome    complete",
        text(&receipt),
    ];
    for part in expected {
        assert!(
            ran.stdout.contains(part),
            "{part:?} is not in:\n{}",
            ran.stdout
        );
    }
    assert!(
        !ran.stdout.contains('\u{1b}'),
        "no colours without a terminal"
    );
    assert!(
        !desk.path("abp-hello.md").exists(),
        "the source is not changed"
    );
}

#[test]
fn json_is_one_object_and_jsonl_ends_with_it() {
    let desk = Desk::new();
    let (status, summary) = desk.json(&[
        "run",
        "--task",
        "say hello",
        "--require",
        "extended_thinking",
    ]);
    assert_eq!(status, 0);
    let receipt: Value =
        serde_json::from_slice(&std::fs::read(&desk.receipts()[0]).unwrap()).unwrap();
    assert_eq!(summary["run_id"], receipt["meta"]["run_id"]);
    assert_eq!(summary["receipt_sha256"], receipt["receipt_sha256"]);
    assert_eq!(summary["outcome"], "complete");
    assert_eq!(summary["backend"], "mock");
    assert_eq!(
        summary["diff"],
        json!({"files_changed": 1, "insertions": 3, "deletions": 0})
    );
    assert_eq!(summary["emulated"], json!(["extended_thinking"]));
    assert!(desk.path(summary["receipt"].as_str().unwrap()).exists());

    let ran = desk.abp(&["run", "--task", "say hello", "--jsonl"]);
    let mut lines: Vec<Value> = ran
        .stdout
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.pop().unwrap()["type"], "run_summary");
    for event in &lines {
        let _event: abp_core::AgentEvent = serde_json::from_value(event.clone()).unwrap();
    }
    assert_eq!(lines.first().unwrap()["type"], "run_started");
    assert_eq!(lines.last().unwrap()["type"], "run_completed");
}

/// E1: the receipt verifies, and no changed byte goes unnoticed.
#[test]
fn a_changed_receipt_is_refused() {
    let desk = Desk::new();
    let path = desk.receipt();
    assert_eq!(desk.abp(&["receipt", "verify", text(&path)]).status, 0);
    let original = std::fs::read(&path).unwrap();
    let content = String::from_utf8(original.clone()).unwrap();
    let edits: [(&str, &str, &str); 4] = [
        (
            "\"outcome\":\"complete\"",
            "\"outcome\":\"failed\"",
            "changed: outcome",
        ),
        (
            "You asked: ",
            "You asken: ",
            "trace_digest does not match the trace",
        ),
        (
            "\"receipt_sha256\":\"",
            "\"receipt_sha256\":\"0",
            "changed: receipt_sha256",
        ),
        ("{", "", "not valid JSON at line"),
    ];
    for (from, to, expected) in edits {
        assert!(content.contains(from), "{from}");
        desk.write("edited.json", content.replacen(from, to, 1));
        let ran = desk.abp(&["receipt", "verify", "edited.json"]);
        assert_eq!(ran.status, 7);
        assert!(
            ran.stdout.contains(expected),
            "{expected:?} is not in:\n{}",
            ran.stdout
        );
    }
    for position in (0..original.len()).step_by(97) {
        let mut edited = original.clone();
        edited[position] ^= 1;
        desk.write("edited.json", &edited);
        let ran = desk.abp(&["receipt", "verify", "edited.json"]);
        assert_eq!(ran.status, 7, "byte {position}: {}", ran.stdout);
    }
    let (status, verdict) = desk.json(&["receipt", "verify", text(&path), "edited.json"]);
    assert_eq!((status, &verdict["verdict"]), (7, &json!("wrong")));
    assert_eq!(
        verdict["receipts"][0]["verdict"], "proven",
        "each file has its own verdict"
    );
}

#[test]
fn an_unknown_field_that_was_hashed_verifies() {
    let desk = Desk::new();
    let mut receipt: Value =
        serde_json::from_slice(&std::fs::read(desk.receipt()).unwrap()).unwrap();
    receipt["from_the_future"] = json!({"n": 1});
    desk.write("newer.json", receipt.to_string());
    assert_eq!(desk.abp(&["receipt", "verify", "newer.json"]).status, 7);
    receipt["receipt_sha256"] =
        json!(abp_core::document_hash(receipt.to_string().as_bytes()).unwrap());
    desk.write("newer.json", receipt.to_string());
    // The log has another receipt of the run; elsewhere nothing is known of it.
    assert_eq!(desk.abp(&["receipt", "verify", "newer.json"]).status, 7);
    let elsewhere = Desk::new();
    elsewhere.write("newer.json", receipt.to_string());
    let ran = elsewhere.abp(&["receipt", "verify", "newer.json"]);
    assert_eq!(ran.status, 9, "{}", ran.stdout);
}

#[test]
fn the_proposed_diff_can_be_applied() {
    let desk = Desk::new();
    let path = desk.receipt();
    let diff = desk.abp(&["inspect", text(&path), "--diff"]);
    desk.write("change.patch", &diff.stdout);
    let git = Command::new("git")
        .args(["apply", "change.patch"])
        .current_dir(desk.path(""))
        .output()
        .unwrap();
    assert!(
        git.status.success(),
        "{}",
        String::from_utf8_lossy(&git.stderr)
    );
    assert!(
        std::fs::read_to_string(desk.path("abp-hello.md"))
            .unwrap()
            .contains("say hello")
    );
}

#[test]
fn receipts_can_be_looked_at() {
    let desk = Desk::new();
    let path = desk.receipt();
    let whole = desk.abp(&["inspect", text(&path)]);
    assert!(
        whole.stdout.contains("integrity  consistent with itself"),
        "{}",
        whole.stdout
    );
    assert!(
        whole.stdout.contains("chosen because it can do"),
        "{}",
        whole.stdout
    );
    let tools = desk.abp(&["inspect", text(&path), "--only", "tool_call"]);
    assert_eq!(
        tools.stdout,
        "  Glob **\n  Read readme.txt\n  Write abp-hello.md\n"
    );
    assert_eq!(
        desk.abp(&["inspect", text(&path), "--only", "problem"])
            .stdout,
        ""
    );
    let (_, inspected) = desk.json(&["inspect", text(&path)]);
    assert_eq!(
        (&inspected["consistent"], &inspected["receipt"]["outcome"]),
        (&json!(true), &json!("complete"))
    );
}

#[test]
fn lists_and_explanations() {
    let desk = Desk::new();
    let (_, backends) = desk.json(&["backends"]);
    assert_eq!(
        backends["backends"][0],
        json!({
            "name": "mock",
            "capabilities": {"streaming": "native", "tool_read": "emulated"},
            "policy_enforced_by": {
                "tools": {"level": "host", "by": "tool proxy"},
                "approvals": {"level": "host", "by": "tool proxy"},
                "reads": {"level": "host", "by": "tool proxy"},
                "writes": {"level": "host", "by": "tool proxy"},
                "network": {"level": "none", "by": ""},
            },
            "priority": 0,
        })
    );
    assert!(desk.abp(&["backends"]).stdout.contains("streaming  native"));
    let (_, schema) = desk.json(&["schema", "work-order"]);
    assert_eq!(schema["title"], "WorkOrder");
    assert!(
        desk.abp(&["schema"])
            .stdout
            .lines()
            .any(|name| name == "receipt")
    );
    let (_, code) = desk.json(&["explain", "budget_exceeded"]);
    assert_eq!(
        (&code["code"], &code["exit_code"]),
        (&json!("BUDGET_EXCEEDED"), &json!(5))
    );
    assert!(desk.abp(&["explain"]).stdout.lines().count() > 40);
}

#[test]
fn the_machine_is_examined() {
    let desk = Desk::new();
    let (status, report) = desk.json(&["doctor"]);
    assert_eq!((status, &report["ok"]), (0, &json!(true)), "{report}");
    assert!(!desk.state("").exists(), "looking changes nothing");
    let (status, report) = desk.json(&["doctor", "--state-dir", "/proc/abp"]);
    assert_eq!(
        (status, &report["checks"][0]["status"]),
        (1, &json!("failed")),
        "{report}"
    );
}

#[test]
fn shells_and_manuals() {
    let desk = Desk::new();
    for shell in ["bash", "zsh", "fish"] {
        let script = desk.abp(&["completion", shell]).stdout;
        assert!(script.contains("dry-run"), "{shell}");
    }
    let page = desk.abp(&["man", "receipt", "verify"]).stdout;
    assert!(page.contains("abp receipt verify"), "{page}");
    assert_eq!(desk.abp(&["man", "fly"]).status, 2);
}

/// Every command shows how it is used, and what it shows works.
#[test]
fn every_example_of_every_help_runs() {
    let commands = [
        "",
        "run",
        "acp",
        "backends",
        "runs list",
        "runs show",
        "diff",
        "apply",
        "discard",
        "import",
        "validate",
        "sandbox run",
        "sandbox explain",
        "sidecar check",
        "sidecar init",
        "schema",
        "inspect",
        "receipt verify",
        "receipt list",
        "receipt diff",
        "receipt export",
        "receipt key",
        "receipt checkpoint",
        "receipt verifier",
        "config check",
        "config show",
        "init",
        "explain",
        "doctor",
        "completion",
        "man",
    ];
    let path = Path::new(env!("CARGO_BIN_EXE_abp")).parent().unwrap();
    let path = format!("{}:{}", path.display(), std::env::var("PATH").unwrap());
    for command in commands {
        let desk = Desk::new();
        let arguments: Vec<_> = command.split_whitespace().chain(["--help"]).collect();
        let help = desk.abp(&arguments).stdout;
        let examples: Vec<_> = help
            .lines()
            .filter_map(|line| line.strip_prefix("  abp "))
            .collect();
        let shown = examples.iter().any(|example| example.starts_with(command));
        assert!(
            shown,
            "abp {command} --help shows no example of itself:\n{help}"
        );
        for example in examples
            .iter()
            .filter(|example| example.starts_with(command))
        {
            desk.write("order.json", r#"{"task": "say hello"}"#);
            desk.write("policy.json", r#"{"deny_read": [".env"]}"#);
            desk.write(
                "session.jsonl",
                "{\"t\":\"hello\",\"contract_version\":\"abp/v0.1\",\"backend\":{\"id\":\"x\"}}\n",
            );
            desk.write(
                "sidecar.py",
                include_str!("../../src/cmd/sidecar/starter.py"),
            );
            desk.receipt();
            drop(std::fs::create_dir(desk.path(".agent-backplane")));
            desk.write(
                "kept-elsewhere.txt",
                desk.abp(&["receipt", "checkpoint"]).stdout,
            );
            let receipt = desk.receipts().pop().unwrap();
            let line = ["RECEIPT", "OLD", "NEW"]
                .iter()
                .fold(format!("set -e; abp {example}"), |line, name| {
                    line.replace(name, text(&receipt))
                });
            let ran = Command::new("bash")
                .args(["-o", "pipefail", "-c", &line])
                .current_dir(desk.path(""))
                .env("PATH", &path)
                .env("HOME", desk.home())
                .env_remove("XDG_CONFIG_HOME")
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&ran.stderr);
            assert!(ran.status.success(), "abp {example}: {} {said}", ran.status);
            for made in ["backplane.toml", "abp-hello.md"] {
                drop(std::fs::remove_file(desk.path(made)));
            }
        }
    }
}

/// A15: what an agent says cannot drive the terminal.
#[test]
fn control_characters_are_not_printed() {
    let desk = Desk::new();
    let steps = json!([
        {"do": "say", "text": "red \u{1b}[31m bell \u{7} back\r over \u{202e}"},
        {"do": "write", "path": "a\u{1b}[2Jb", "content": "\u{1b}]0;title\u{7}"},
    ]);
    desk.write(
        "s.json",
        json!({"name": "rude", "steps": steps}).to_string(),
    );
    let ran = desk.abp(&[
        "run",
        "--task",
        "t",
        "--backend",
        "rude",
        "--mock-script",
        "s.json",
    ]);
    assert_eq!(ran.status, 0, "{}", ran.stderr);
    assert!(
        !ran.stdout.contains(['\u{1b}', '\u{7}', '\r', '\u{202e}']),
        "{:?}",
        ran.stdout
    );
}

#[test]
fn a_closed_pipe_is_no_crash() {
    let desk = Desk::new();
    let mut child = desk
        .command(&["explain"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let ran = Ran::new(child.wait_with_output().unwrap());
    assert!(!ran.stderr.contains("panicked"), "{}", ran.stderr);
}

#[test]
fn debug_shows_what_happens_inside() {
    let desk = Desk::new();
    let ran = desk.abp(&["run", "--task", "t", "--debug"]);
    assert!(
        ran.stderr.contains("abp.runtime") && ran.stderr.contains("abp.workspace"),
        "{}",
        ran.stderr
    );
}
