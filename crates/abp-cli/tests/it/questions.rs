//! Questions to the person at the terminal.

use std::process::Command;

use serde_json::{Value, json};

use crate::desk::Desk;

/// Runs the command on a terminal and answers its questions; `None` where there is no Python.
fn at_terminal(desk: &Desk, answers: &Value, arguments: &[&str]) -> Option<Value> {
    if Command::new("python3").arg("--version").output().is_err() {
        abp_testkit::skip("questions at a terminal", "python3 is not installed");
        return None;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/it/terminal.py");
    let answers = answers.to_string();
    let driver = [script, &answers, env!("CARGO_BIN_EXE_abp")];
    let ran = desk
        .program("python3", &[&driver[..], arguments].concat())
        .output()
        .unwrap();
    let errors = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success(), "{errors}");
    Some(serde_json::from_slice(&ran.stdout).unwrap())
}

/// An open question stays as it is until it is answered or its time is over, and an answer is for the
/// question that is open when it is given.
#[test]
fn a_question_is_not_written_over_and_gets_its_own_answer() {
    let desk = Desk::new();
    let write = |path: &str| json!({"do": "write", "path": path, "content": "c"});
    let steps = json!([
        {"do": "say", "text": "begins"}, write("late.txt"), write("denied.txt"), write("approved.txt"),
    ]);
    desk.write(
        "s.json",
        json!({"name": "asks", "steps": steps}).to_string(),
    );
    desk.write(
        "operator.toml",
        format!(
            "state_dir = {:?}\napproval_timeout_secs = 2\n",
            desk.state("")
        ),
    );
    let run = [
        "run",
        "--task",
        "t",
        "--backend",
        "asks",
        "--mock-script",
        "s.json",
        "--config",
        "operator.toml",
        "--workspace-mode",
        "pass-through",
    ];
    let Some(seen) = at_terminal(&desk, &json!([null, "n", "y"]), &run) else {
        return;
    };
    assert_eq!(seen["status"], 0, "{seen:#}");
    assert_eq!(seen["silences"], json!(["", "", ""]), "{seen:#}");
    let exists = ["late.txt", "denied.txt", "approved.txt"].map(|name| desk.path(name).exists());
    assert_eq!(exists, [false, false, true], "{seen:#}");
    let output = seen["output"].as_str().unwrap();
    let after_timeout = output.split("[y/N] ").nth(1).unwrap();
    assert!(after_timeout.starts_with("\r\n"), "{after_timeout:?}");
    assert!(
        after_timeout.contains("nobody answered within 2 s"),
        "{after_timeout:?}"
    );
}
