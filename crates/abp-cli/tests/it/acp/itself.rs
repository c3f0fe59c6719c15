//! ABP driving ABP: our own ACP backend is the client of `abp acp`.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::editor::{Editor, text_prompt};
use crate::desk::{Desk, text};

/// A desk whose backend `inner` is `abp acp` with a scripted backend of its own.
fn nested(steps: &Value, more: &[&str]) -> Desk {
    let desk = Desk::new();
    let script = json!({ "name": "scripted", "steps": steps });
    std::fs::write(desk.home().join("inner.json"), script.to_string()).unwrap();
    let policy = r#"{"require_approval_for": ["Write"]}"#;
    std::fs::write(desk.home().join("inner-policy.json"), policy).unwrap();
    let script = desk.home().join("inner.json");
    let home = desk.home();
    let more = more.iter().map(|word| word.replace("{home}", text(&home)));
    let arguments = [
        "acp",
        "--backend",
        "scripted",
        "--mock-script",
        text(&script),
    ];
    let arguments: Vec<String> = arguments
        .iter()
        .map(ToString::to_string)
        .chain(more)
        .collect();
    let config = format!(
        "state_dir = {state:?}\n[sandbox]\nengine = \"none\"\n[backends.inner]\ntype = \"acp\"\n\
command = {program:?}\nargs = {arguments:?}\nmodels = \"own\"\n",
        state = desk.state(""),
        program = env!("CARGO_BIN_EXE_abp"),
    );
    desk.write("operator.toml", config);
    desk
}

fn run(desk: &Desk, more: &[&str]) -> (i32, Vec<Value>) {
    let run = [
        "run",
        "--config",
        "operator.toml",
        "--jsonl",
        "--task",
        "do it",
    ];
    let ran = desk.abp(&[&run, more].concat());
    let lines = ran.stdout.lines();
    let events = lines.map(|line| serde_json::from_str(line).unwrap());
    (ran.status, events.collect())
}

fn kinds(events: &[Value]) -> Vec<&str> {
    let mut kinds: Vec<&str> = events
        .iter()
        .map(|event| event["type"].as_str().unwrap())
        .collect();
    kinds.dedup();
    kinds
}

/// The outer run has the inner run's events, in order, and its changes: the inner question about them was one of
/// the outer gate.
#[test]
fn the_outer_run_tells_what_the_inner_one_did() {
    let steps = json!([
        {"do": "think", "text": "hm"},
        {"do": "write", "path": "new.txt", "content": "written\n"},
        {"do": "say", "text": "done"},
    ]);
    let desk = nested(&steps, &[]);
    let (status, events) = run(&desk, &["--backend", "inner"]);
    assert_eq!(status, 0, "{events:#?}");
    let expected = [
        "run_started",
        "warning",
        "session_started",
        "thinking_delta",
        "tool_call",
        "tool_result",
        "assistant_delta",
        "tool_call",
        "tool_result",
        "file_changed",
        "run_completed",
        "run_summary",
    ];
    assert_eq!(kinds(&events), expected, "{events:#?}");
    let summary = events.last().unwrap();
    assert_eq!(summary["outcome"], "complete");
    assert!(!desk.path("new.txt").exists());
    let applied = desk.abp(&["apply", "last", "--config", "operator.toml"]);
    assert_eq!(applied.status, 0, "{}", applied.stderr);
    assert_eq!(
        std::fs::read_to_string(desk.path("new.txt")).unwrap(),
        "written\n"
    );

    // The agent's session is the inner ABP's, which finds it in the store that the run kept for it.
    let (status, events) = run(&desk, &["--continue", "last"]);
    assert_eq!(status, 0, "{events:#?}");
    assert_eq!(events.last().unwrap()["outcome"], "complete");
    let (_, first) = desk.json(&["runs", "list", "--config", "operator.toml"]);
    assert_eq!(first["runs"].as_array().unwrap().len(), 2, "{first:#}");
}

/// A question of the inner gate goes through the outer one: what the outer policy denies is not written inside.
#[test]
fn a_question_goes_through_both_gates() {
    for (approve, is_written) in [(&["--approve", "Write"][..], true), (&[], false)] {
        let steps = json!([{"do": "write", "path": "new.txt", "content": "written\n"}, {"do": "say", "text": "done"}]);
        let desk = nested(&steps, &["--policy", "{home}/inner-policy.json"]);
        desk.write("outer.json", r#"{"require_approval_for": ["Write"]}"#);
        let more = [&["--backend", "inner", "--policy", "outer.json"], approve].concat();
        let (_, events) = run(&desk, &more);
        let resolved = events
            .iter()
            .find(|event| event["type"] == "permission_resolved");
        let outcome = &resolved.unwrap_or_else(|| panic!("{events:#?}"))["outcome"];
        assert_eq!(outcome, if is_written { "approved" } else { "denied" });
        let (_, changes) = desk.json(&["diff", "last", "--config", "operator.toml"]);
        let has_file = changes.to_string().contains("new.txt");
        assert_eq!(has_file, is_written, "{events:#?}");
    }
}

/// Cancelling the outer run cancels the inner one, and both end with a receipt.
#[test]
fn cancelling_the_outer_run_cancels_the_inner_one() {
    let steps = json!([{"do": "say", "text": "working"}, {"do": "sleep", "ms": 600_000}]);
    let desk = nested(&steps, &[]);
    let run = [
        "run",
        "--config",
        "operator.toml",
        "--jsonl",
        "--task",
        "do it",
        "--backend",
        "inner",
    ];
    let mut child = desk.command(&run).stdout(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("working")));
    let asked = Instant::now();
    let pid = child.id().to_string();
    desk.program("kill", &["-INT", &pid]).status().unwrap();
    let status = child.wait().unwrap();
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "{:?}",
        asked.elapsed()
    );
    assert_eq!(status.code(), Some(130));
    let outcomes: Vec<Value> = receipts_below(&desk.home());
    assert_eq!(outcomes, ["cancelled", "cancelled"]);
}

/// The outcomes of all receipts below a directory: those of the desk, and those in the homes of agents.
fn receipts_below(directory: &Path) -> Vec<Value> {
    let mut outcomes = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap().flatten() {
        let path = entry.path();
        if entry.file_type().unwrap().is_dir() {
            outcomes.extend(receipts_below(&path));
        } else if path
            .parent()
            .is_some_and(|parent| parent.ends_with("receipts"))
        {
            let receipt: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
            outcomes.push(receipt["outcome"].clone());
        }
    }
    outcomes
}

/// The second prompt of a session goes on with the agent's own session, where the agent has one.
#[test]
fn the_second_prompt_goes_on_with_the_agents_session() {
    let desk = nested(&json!([{"do": "say", "text": "done"}]), &[]);
    let mut editor = Editor::start(&desk, &["--backend", "inner", "--config", "operator.toml"]);
    let session = editor.new_session(&desk);
    let mut runs = Vec::new();
    for task in ["first", "second"] {
        let answer = editor.prompt(&session, &text_prompt(task));
        assert_eq!(answer["result"]["stopReason"], "end_turn", "{answer:#}");
        let run = &answer["result"]["_meta"]["abp"]["run_id"];
        runs.push(run.as_str().unwrap().to_owned());
    }
    editor.close();
    let logs = desk
        .abp(&["logs", &runs[1], "--config", "operator.toml", "--json"])
        .stdout;
    let told = format!("continues the session of run {}", runs[0]);
    assert!(logs.lines().next().unwrap().contains(&told), "{logs}");
}
