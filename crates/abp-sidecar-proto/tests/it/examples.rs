//! Whole conversations, line by line.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use serde_json::{Value, json};
use tempfile::TempDir;

const RUN: &str = "0190b3c1-0000-7000-8000-000000000001";

struct Sidecar {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<Value>,
    desk: TempDir,
}

impl Sidecar {
    fn start(example: &str) -> Self {
        // Beside the directory of the test programs.
        let programs = std::env::current_exe().unwrap();
        let programs = programs.ancestors().nth(2).unwrap().join("examples");
        let desk = TempDir::new().unwrap();
        let mut child = Command::new(programs.join(example))
            .current_dir(desk.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = mpsc::channel();
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let line = line.unwrap();
                sender.send(serde_json::from_str(&line).unwrap()).unwrap();
            }
        });
        Self {
            stdin: child.stdin.take(),
            child,
            lines,
            desk,
        }
    }

    fn say(&mut self, message: &Value) {
        writeln!(self.stdin.as_ref().unwrap(), "{message}").unwrap();
    }

    fn next(&self) -> Value {
        self.lines.recv_timeout(Duration::from_secs(10)).unwrap()
    }

    /// The messages up to and including the one of that kind.
    fn until(&self, kind: &str) -> Vec<Value> {
        let mut messages = vec![self.next()];
        while messages.last().unwrap()["t"] != kind {
            messages.push(self.next());
        }
        messages
    }

    fn run(&mut self, order: &Value) {
        self.say(&json!({ "t": "run", "id": RUN, "work_order": order }));
    }

    /// Closes the input; the process ends by itself.
    fn exit_code(mut self) -> Option<i32> {
        drop(self.stdin.take());
        self.child.wait().unwrap().code()
    }
}

#[test]
fn both_examples_keep_the_protocol() {
    for example in ["agent", "starter"] {
        let mut sidecar = Sidecar::start(example);
        assert_eq!(sidecar.next()["t"], "hello", "{example}");
        sidecar.say(&json!({ "t": "x_later", "n": 1 }));
        sidecar.say(&json!({ "t": "ping", "seq": 3 }));
        assert_eq!(
            sidecar.next(),
            json!({ "t": "pong", "seq": 3 }),
            "{example}"
        );
        // One process, one run after the other.
        for _ in 0..2 {
            sidecar.run(&json!({ "id": RUN, "task": "say hello", "x_later": true }));
            let messages = sidecar.until("final");
            assert!(messages.len() > 1, "{example}");
            for message in &messages {
                assert_eq!(message["ref_id"], RUN, "{example}: {message}");
            }
            let receipt = &messages.last().unwrap()["receipt"];
            let read: abp_core::Receipt = serde_json::from_value(receipt.clone()).unwrap();
            assert_eq!(read.outcome, abp_core::Outcome::Complete, "{example}");
            assert_eq!(read.usage.input_tokens, Some(2), "{example}");
        }
        assert_eq!(sidecar.exit_code(), Some(0), "{example}");
    }
}

#[test]
fn the_agent_writes_under_policy_and_says_so() {
    let mut sidecar = Sidecar::start("agent");
    sidecar.next();
    sidecar.run(&json!({ "task": "remember me" }));
    let kinds: Vec<_> = sidecar
        .until("final")
        .iter()
        .map(|message| {
            message["event"]["type"]
                .as_str()
                .unwrap_or("final")
                .to_owned()
        })
        .collect();
    let expected = [
        "assistant_delta",
        "tool_call",
        "tool_result",
        "file_changed",
        "usage_updated",
    ];
    assert_eq!(kinds[..5], expected);
    let notes = |desk: &Path| std::fs::read_to_string(desk.join("NOTES.md"));
    assert!(notes(sidecar.desk.path()).unwrap().contains("remember me"));

    sidecar.run(&json!({ "task": "forget me", "policy": { "deny_write": ["*.md"] } }));
    let fatal = sidecar.until("fatal").pop().unwrap();
    assert_eq!(fatal["error_code"], "POLICY_DENIED");
    assert!(!notes(sidecar.desk.path()).unwrap().contains("forget me"));

    sidecar.run(&json!({ "no_task": 1 }));
    let fatal = sidecar.until("fatal").pop().unwrap();
    assert_eq!(fatal["error_code"], "PROTOCOL_INVALID_ENVELOPE");
    assert_eq!(sidecar.exit_code(), Some(0));
}
