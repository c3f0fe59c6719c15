//! ABP driving ABP: our own ACP backend is the client of `abp acp`.

use serde_json::{Value, json};

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
