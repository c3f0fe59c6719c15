//! A small editor: a client of the Agent Client Protocol.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};

use serde_json::{Value, json};

use crate::desk::Desk;

pub(super) struct Editor {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    last_id: u64,
    /// The updates so far, as they came.
    pub(super) updates: Vec<Value>,
    /// The permission requests so far.
    pub(super) questions: Vec<Value>,
    /// The kinds of options that are chosen, in order; then `allow_once`.
    pub(super) choices: Vec<&'static str>,
    /// Happens before a question is answered.
    pub(super) on_question: Option<Box<dyn FnMut()>>,
}

impl Editor {
    /// Starts `abp acp` with these arguments and shakes hands.
    pub(super) fn start(desk: &Desk, arguments: &[&str]) -> Self {
        let mut child = desk
            .command(&[&["acp"], arguments].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .unwrap();
        let mut editor = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            last_id: 0,
            updates: Vec::new(),
            questions: Vec::new(),
            choices: Vec::new(),
            on_question: None,
        };
        let hello = json!({ "protocolVersion": 1, "clientCapabilities": {} });
        let answer = editor.ask("initialize", &hello);
        assert_eq!(answer["result"]["protocolVersion"], 1, "{answer:#}");
        editor
    }

    pub(super) fn new_session(&mut self, desk: &Desk) -> String {
        let root = desk.path("").canonicalize().unwrap();
        let opened = self.ask("session/new", &json!({ "cwd": root, "mcpServers": [] }));
        let id = opened["result"]["sessionId"].as_str();
        id.unwrap_or_else(|| panic!("{opened:#}")).to_owned()
    }

    pub(super) fn send_line(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().unwrap(), "{line}").unwrap();
    }

    /// Sends the beginning of a line; an agent that hung up does not read it to its end.
    pub(super) fn send_endless_line(&mut self, bytes: usize) {
        let line = format!("{{\"x\": \"{}", "y".repeat(bytes));
        drop(self.stdin.as_mut().unwrap().write_all(line.as_bytes()));
    }

    fn send(&mut self, method: &str, params: &Value) -> u64 {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.send_line(&message.to_string());
        id
    }

    pub(super) fn notify(&mut self, method: &str, params: &Value) {
        let message = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.send_line(&message.to_string());
    }

    pub(super) fn ask(&mut self, method: &str, params: &Value) -> Value {
        let id = self.send(method, params);
        self.answer_to(id)
    }

    pub(super) fn send_prompt(&mut self, session: &str, prompt: &Value) -> u64 {
        self.send(
            "session/prompt",
            &json!({ "sessionId": session, "prompt": prompt }),
        )
    }

    pub(super) fn prompt(&mut self, session: &str, prompt: &Value) -> Value {
        let id = self.send_prompt(session, prompt);
        self.answer_to(id)
    }

    /// The answer to a request; everything that comes before it is kept, and questions are answered.
    pub(super) fn answer_to(&mut self, id: u64) -> Value {
        loop {
            if let Some(answer) = self.take_message()
                && answer["id"] == id
            {
                return answer;
            }
        }
    }

    /// The next answer, to whatever it is.
    pub(super) fn next_answer(&mut self) -> Value {
        loop {
            if let Some(answer) = self.take_message() {
                return answer;
            }
        }
    }

    /// Reads until an update of this form came.
    pub(super) fn wait_for(&mut self, is_meant: impl Fn(&Value) -> bool) {
        while !self.updates.iter().any(&is_meant) {
            self.take_message();
        }
    }

    /// Reads one message; the answer, where it is one.
    fn take_message(&mut self) -> Option<Value> {
        let mut line = String::new();
        self.stdout.read_line(&mut line).unwrap();
        assert!(!line.is_empty(), "the agent ended");
        let message: Value = serde_json::from_str(&line).unwrap();
        match message["method"].as_str() {
            None => return Some(message),
            Some("session/update") => self.updates.push(message["params"].clone()),
            Some("session/request_permission") => self.answer_question(&message),
            Some(other) => panic!("{other} was asked"),
        }
        None
    }

    fn answer_question(&mut self, message: &Value) {
        if let Some(hook) = &mut self.on_question {
            hook();
        }
        let params = &message["params"];
        let kind = match self.choices.is_empty() {
            true => "allow_once",
            false => self.choices.remove(0),
        };
        let options = params["options"].as_array().unwrap();
        let chosen = options
            .iter()
            .find(|option| option["kind"] == kind)
            .unwrap();
        let outcome = json!({ "outcome": "selected", "optionId": chosen["optionId"] });
        let result = json!({ "outcome": outcome });
        let answer = json!({ "jsonrpc": "2.0", "id": message["id"], "result": result });
        self.questions.push(params.clone());
        self.send_line(&answer.to_string());
    }

    /// The kinds of the updates, each once in a row.
    pub(super) fn update_kinds(&self) -> Vec<&str> {
        let kinds = self.updates.iter();
        let kinds = kinds.map(|update| update["update"]["sessionUpdate"].as_str().unwrap());
        let mut kinds: Vec<&str> = kinds.collect();
        kinds.dedup();
        kinds
    }

    /// Everything that was said or thought.
    pub(super) fn said(&self) -> String {
        let texts = self.updates.iter();
        let texts = texts.filter_map(|update| update["update"]["content"]["text"].as_str());
        texts.collect()
    }

    /// The statuses that a call had.
    pub(super) fn statuses(&self, id: &Value) -> Vec<&str> {
        let updates = self.updates.iter().map(|update| &update["update"]);
        let updates = updates.filter(|update| update["toolCallId"] == *id);
        updates
            .filter_map(|update| update["status"].as_str())
            .collect()
    }

    /// Closes the connection and waits for the end; the exit status.
    pub(super) fn close(&mut self) -> i32 {
        drop(self.stdin.take());
        self.child.wait().unwrap().code().unwrap_or(-1)
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        drop(self.stdin.take());
        self.child.wait().unwrap();
    }
}

pub(super) fn text_prompt(text: &str) -> Value {
    json!([{ "type": "text", "text": text }])
}

/// The number of the event that an update comes from.
pub(super) fn event_number(update: &Value) -> Option<u64> {
    update["_meta"]["abp"]["seq"].as_u64()
}
