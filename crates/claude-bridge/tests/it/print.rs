//! Runs of the example against a host that stands in for Claude's.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::{Value, json};

/// Says what Claude's host says about a task of two turns, on the library of all hosts.
const STAND_IN: &str = r#"
import { hello } from 'LIBRARY/sidecar.js';
hello({ id: 'claude', backend_version: '0.0.1' }, { streaming: 'native' }).serve(async (order, ctx) => {
  await ctx.emit('session_started', { session_id: 's-1' });
  for (const name of ['Write', 'Bash']) {
    const { approved, reason } = await ctx.requestPermission(name, { task: ctx.task }, `call-${name}`);
    if (approved) await ctx.emit('tool_call', { tool_name: name, tool_use_id: `call-${name}`, parent_tool_use_id: null, input: { task: ctx.task } });
    await ctx.emit('assistant_message', { text: approved ? `${name} done` : reason });
  }
  await ctx.reportUsage({ input_tokens: 3, output_tokens: 4, cache_read_tokens: 0, cache_write_tokens: 0 });
});
"#;

fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap().to_owned()
}

/// Runs the example; its exit status and the messages it printed.
fn print(hosts: &Path, workspace: &Path, more: &[&str]) -> (bool, Vec<Value>, String) {
    let program = std::env::current_exe().unwrap();
    let example = program
        .ancestors()
        .nth(2)
        .unwrap()
        .join("examples/claude_print");
    let output = Command::new(example)
        .args([hosts, workspace])
        .args(more)
        .output()
        .unwrap();
    let lines = String::from_utf8(output.stdout).unwrap();
    let messages = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap());
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.success(), messages.collect(), stderr)
}

#[test]
fn a_run_is_told_in_the_words_of_claude_code() {
    let node = Command::new("node").arg("--version").output();
    if !node.is_ok_and(|output| output.status.success()) {
        return abp_testkit::skip("claude-bridge", "node is not installed");
    }
    let directory = tempfile::tempdir().unwrap();
    let hosts = directory.path().join("hosts");
    std::fs::create_dir_all(hosts.join("claude")).unwrap();
    let library = repository().join("hosts/lib");
    let script = STAND_IN.replace("LIBRARY", library.to_str().unwrap());
    std::fs::write(hosts.join("claude/host.js"), script).unwrap();
    std::fs::write(hosts.join("package.json"), r#"{"type": "module"}"#).unwrap();
    let workspace = directory.path().join("work");
    std::fs::create_dir(&workspace).unwrap();
    let (succeeded, messages, stderr) = print(&hosts, &workspace, &["Fix it.", "Write"]);
    assert!(succeeded, "{messages:#?}{stderr}");
    let session = |mut message: Value| {
        message["session_id"] = json!("s-1");
        message["parent_tool_use_id"] = Value::Null;
        message
    };
    let said = |text: &str| {
        session(
            json!({"type": "assistant", "message": {"role": "assistant", "content": [{"type": "text", "text": text}]}}),
        )
    };
    let asked = |number: u32, name: &str| {
        json!({"type": "control_request", "request_id": format!("permission-{number}"), "request": {
            "subtype": "can_use_tool", "tool_name": name, "input": {"task": "Fix it."}, "tool_use_id": format!("call-{name}")}})
    };
    let called = session(
        json!({"type": "assistant", "message": {"role": "assistant", "content": [
        {"type": "tool_use", "id": "call-Write", "name": "Write", "input": {"task": "Fix it."}}]}}),
    );
    let expected = [
        json!({"type": "system", "subtype": "init", "session_id": "s-1"}),
        asked(1, "Write"),
        called,
        said("Write done"),
        asked(2, "Bash"),
        said("Bash was not named on the command line"),
        json!({"type": "result", "subtype": "success", "is_error": false, "session_id": "s-1",
            "result": "Bash was not named on the command line", "usage": {"input_tokens": 3, "output_tokens": 4,
            "cache_read_input_tokens": 0, "cache_creation_input_tokens": 0}}),
    ];
    assert_eq!(messages, expected);
}

#[test]
fn a_host_that_is_not_there_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let (succeeded, messages, stderr) = print(directory.path(), directory.path(), &["x"]);
    assert!(!succeeded && messages.is_empty());
    assert!(stderr.contains("claude/host.js"), "{stderr}");
}
