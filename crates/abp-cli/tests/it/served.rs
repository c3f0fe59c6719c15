//! A gateway that runs, as `abp serve` starts it.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use serde::Deserialize as _;
use serde_json::{Value, json};

use crate::desk::Desk;

pub(crate) struct Served {
    child: Child,
    pub(crate) base: String,
    /// The operator's key.
    pub(crate) key: String,
}

impl Served {
    /// Serves the desk's state directory on a free port.
    pub(crate) fn start(desk: &Desk, more: &[&str]) -> Self {
        let serve = ["serve", "--listen", "127.0.0.1:0", "--json"];
        Self::spawn(&mut desk.command(&[&serve, more].concat()))
    }

    /// Starts a command that serves and tells where as JSON.
    pub(crate) fn spawn(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut told = serde_json::Deserializer::from_reader(child.stdout.take().unwrap());
        let told = Value::deserialize(&mut told).unwrap();
        let text = |name: &str| told[name].as_str().unwrap().to_owned();
        Self {
            child,
            base: text("listening"),
            key: text("key"),
        }
    }

    /// The process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Asks it to stop.
    pub(crate) fn terminate(&self) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    }

    /// Waits until it stopped by itself.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().unwrap()
    }

    pub(crate) fn address(&self) -> &str {
        self.base.strip_prefix("http://").unwrap()
    }

    /// Asks the embedded model to repeat something.
    pub(crate) fn say(&self, key: &str, words: &str) -> (u16, Value) {
        say(&self.base, key, words)
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Asks the embedded model of a gateway to repeat something.
pub(crate) fn say(base: &str, key: &str, words: &str) -> (u16, Value) {
    let body = json!({"model": "mock", "messages": [{"role": "user", "content": words}]});
    post(base, key, &body)
}

/// Sends a chat completion to a gateway.
pub(crate) fn post(base: &str, key: &str, body: &Value) -> (u16, Value) {
    let body = body.to_string();
    let length = body.len();
    let head = format!("POST /v1/chat/completions HTTP/1.1\r\ncontent-length: {length}\r\n");
    exchange(
        base,
        key,
        &format!("{head}content-type: application/json\r\n"),
        &body,
    )
}

/// Gets a page of a gateway.
pub(crate) fn get(base: &str, key: &str, path: &str) -> (u16, Value) {
    exchange(base, key, &format!("GET {path} HTTP/1.1\r\n"), "")
}

pub(crate) fn exchange(base: &str, key: &str, head: &str, body: &str) -> (u16, Value) {
    let address = base.strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    let rest =
        format!("host: {address}\r\nauthorization: Bearer {key}\r\nconnection: close\r\n\r\n");
    write!(stream, "{head}{rest}{body}").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    (
        status,
        serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}")),
    )
}

/// Waits until something holds, at most as long as a gateway takes to follow a change of its keys.
pub(crate) fn within_a_second<T>(mut found: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = found() {
            return found;
        }
        // The promise is a second; the rest is for a busy machine.
        assert!(start.elapsed() < Duration::from_secs(3), "it never came");
        std::thread::sleep(Duration::from_millis(100));
    }
}
