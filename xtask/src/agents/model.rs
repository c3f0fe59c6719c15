//! A scripted model: speaks OpenAI's Chat Completions, and does what the task says.
//!
//! A task holds words `KEY=VALUE`: `FILE` and `CONTENT` ask for a file, `VIA=shell` for a command that writes
//! it, `WAIT` for an answer that takes half a minute. The first answer is a call of one of the tools that the
//! agent declares; once its result is there the answer is `DONE`.

#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value does not have is null"
)]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// How long an answer takes that is waited for.
const SLOW: Duration = Duration::from_secs(30);
/// Tools that write a file, by their names in lower case without underscores.
const WRITING: [&str; 4] = ["write", "writefile", "create", "edit"];
/// Tools that run a command.
const SHELLS: [&str; 6] = [
    "bash",
    "shell",
    "execcommand",
    "runshellcommand",
    "runcommand",
    "terminal",
];

/// A model that listens.
pub(super) struct ScriptedModel {
    pub(super) address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ScriptedModel {
    pub(super) fn start() -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0))?;
        let address = listener.local_addr()?;
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&asked);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // A caller that goes away is no failure of the model.
                std::thread::spawn(move || serve(stream, &kept));
            }
        });
        Ok(Self { address, asked })
    }

    /// The requests since the last call.
    pub(super) fn take_requests(&self) -> Vec<String> {
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *asked)
    }

    /// How many requests came since the last look.
    pub(super) fn count(&self) -> usize {
        let asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.len()
    }
}

fn serve(mut stream: TcpStream, asked: &Mutex<Vec<String>>) -> Result<()> {
    let body = read_body(&stream)?;
    let request: Value = serde_json::from_str(&body)?;
    {
        let mut asked = asked.lock().unwrap_or_else(PoisonError::into_inner);
        asked.push(body);
    }
    let task = Task::of(&request);
    if task.is_slow {
        std::thread::sleep(SLOW);
    }
    let answer = task.answer(&request);
    let is_streamed = request["stream"] == true;
    let (kind, text) = match is_streamed {
        true => ("text/event-stream", streamed(&answer)),
        false => ("application/json", whole(&answer)),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )?;
    Ok(())
}

fn read_body(stream: &TcpStream) -> Result<String> {
    let mut reader = BufReader::new(stream);
    let mut length = 0;
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some((name, value)) = line.split_once(':')
            && name.eq_ignore_ascii_case("content-length")
        {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    String::from_utf8(body).context("the request is no text")
}

/// The newest task of a conversation, and whether its tool was used already.
struct Task {
    file: Option<String>,
    content: String,
    via_shell: bool,
    is_slow: bool,
    is_done: bool,
}

impl Task {
    fn of(request: &Value) -> Self {
        let empty = Vec::new();
        let messages = request["messages"].as_array().unwrap_or(&empty);
        let text = |message: &Value| match &message["content"] {
            Value::String(text) => text.clone(),
            Value::Array(parts) => {
                let parts = parts.iter().filter_map(|part| part["text"].as_str());
                parts.collect::<Vec<_>>().join("\n")
            }
            _ => String::new(),
        };
        let is_task = |message: &&Value| {
            message["role"] == "user"
                && (text(message).contains("FILE=") || text(message).contains("WAIT"))
        };
        let at = messages.iter().rposition(|message| is_task(&message));
        let asked = at
            .and_then(|at| messages.get(at))
            .map(text)
            .unwrap_or_default();
        let later = at.and_then(|at| messages.get(at..)).unwrap_or_default();
        let word = |key: &str| {
            let mut words = asked.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.map(|word| word.trim_matches(|c: char| "<>\"'`".contains(c)).to_owned())
        };
        Self {
            file: word("FILE"),
            content: word("CONTENT").unwrap_or_default(),
            via_shell: word("VIA").as_deref() == Some("shell"),
            is_slow: asked.contains("WAIT"),
            is_done: later.iter().any(|message| message["role"] == "tool"),
        }
    }

    fn answer(&self, request: &Value) -> Value {
        let call = match (&self.file, self.is_done) {
            (Some(file), false) => self.call(file, request),
            _ => None,
        };
        match call {
            Some((name, input)) => json!({
                "role": "assistant", "content": null,
                "tool_calls": [{
                    "index": 0, "id": next_id(), "type": "function",
                    "function": { "name": name, "arguments": input.to_string() },
                }],
            }),
            None => json!({ "role": "assistant", "content": "DONE: the file is there now" }),
        }
    }

    /// A call of a tool that the agent declares: one that writes files, or a shell.
    fn call(&self, file: &str, request: &Value) -> Option<(String, Value)> {
        let tools = request["tools"].as_array()?;
        let simple = |tool: &Value| {
            let name = tool["function"]["name"].as_str().unwrap_or_default();
            name.to_ascii_lowercase().replace('_', "")
        };
        let find = |known: &[&str]| {
            let mut known = known.iter();
            known.find_map(|known| tools.iter().find(|tool| simple(tool) == **known))
        };
        let writing = find(&WRITING).filter(|_| !self.via_shell);
        let tool = writing.or_else(|| find(&SHELLS))?;
        let name = tool["function"]["name"].as_str()?.to_owned();
        let schema = &tool["function"]["parameters"];
        let command = format!("printf '%s\\n' '{}' > '{file}'", self.content);
        let mut input = json!({});
        let properties = schema["properties"].as_object()?;
        for (key, property) in properties {
            let simple = key.to_ascii_lowercase().replace('_', "");
            let value = match simple.as_str() {
                "path" | "filepath" | "absolutepath" => json!(file),
                "content" | "contents" | "filetext" | "newstring" => {
                    json!(format!("{}\n", self.content))
                }
                "oldstring" => json!(""),
                "command" | "cmd" if property["type"] == "array" => json!(["bash", "-lc", command]),
                "command" | "cmd" if writing.is_none() => json!(command),
                "command" => json!("create"),
                "description" => json!("write a file"),
                _ => continue,
            };
            if let Some(members) = input.as_object_mut() {
                members.insert(key.clone(), value);
            }
        }
        Some((name, input))
    }
}

/// An id that no earlier call had: a session that goes on knows the earlier ones.
fn next_id() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    format!("call_{}", CALLS.fetch_add(1, Ordering::Relaxed))
}

fn usage() -> Value {
    json!({ "prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120 })
}

fn finish(message: &Value) -> &'static str {
    match message.get("tool_calls") {
        Some(_) => "tool_calls",
        None => "stop",
    }
}

fn whole(message: &Value) -> String {
    json!({
        "id": "chat-1", "object": "chat.completion", "created": 1, "model": "scripted",
        "choices": [{ "index": 0, "message": message, "finish_reason": finish(message) }],
        "usage": usage(),
    })
    .to_string()
}

fn streamed(message: &Value) -> String {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let end = json!([{ "index": 0, "delta": {}, "finish_reason": finish(message) }]);
    [
        chunk(
            json!([{ "index": 0, "delta": message, "finish_reason": null }]),
            Value::Null,
        ),
        chunk(end, Value::Null),
        chunk(json!([]), usage()),
        "data: [DONE]\n\n".to_owned(),
    ]
    .concat()
}
