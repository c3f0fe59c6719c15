//! A scripted model: speaks OpenAI's Chat Completions on the loopback interface, and does what the task says.
//!
//! The last user message with the word `ABP-TASK` is the task. Its words `KEY=VALUE` are steps, each of which is a call
//! of one of the tools that the agent declares, in this order:
//!
//! ```text
//! READ=path                     a file is read
//! FILE=path CONTENT=word        a file is written; by a command with VIA=shell
//! EDIT=path OLD=word NEW=word   a word of a file is replaced
//! GLOB=pattern                  files are searched by name
//! GREP=word                     files are searched by content
//! WAIT                          the answer takes half a minute
//! ```
//!
//! A step follows once the results of the earlier ones are there; after the last, or where the agent has no tool
//! for a step, the answer is a text in several pieces. So a real agent can be driven through a task without a
//! vendor, and what it really did is seen in its workspace and in what it sends next.

#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value does not have is null"
)]

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use serde_json::{Map, Value, json};

/// The time that an answer takes where the task says `WAIT`.
const SLOW: Duration = Duration::from_secs(30);
/// The pieces of the last answer.
const DONE: [&str; 3] = ["DONE: ", "every step ", "was taken"];
/// Marks the message that is the task; agents add messages of their own.
const MARK: &str = "ABP-TASK";
/// The tool that takes a patch as plain text.
const PATCH: &str = "apply_patch";
/// The longest request that is read.
const MAX_REQUEST: usize = 16 << 20;

/// A model that listens until the process ends.
#[derive(Debug)]
pub struct ScriptedModel {
    address: SocketAddr,
    requests: Arc<Mutex<Vec<String>>>,
}

impl ScriptedModel {
    /// Starts a model on a free port.
    ///
    /// # Errors
    /// Fails where it cannot listen.
    pub fn start() -> io::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let requests: Arc<Mutex<Vec<String>>> = Arc::default();
        let kept = Arc::clone(&requests);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let kept = Arc::clone(&kept);
                // A caller that goes away is no failure of the model.
                std::thread::spawn(move || drop(serve(stream, &kept)));
            }
        });
        Ok(Self { address, requests })
    }

    /// The base address of its API.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// The requests since the last call.
    #[must_use]
    pub fn take_requests(&self) -> Vec<String> {
        let mut requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *requests)
    }

    /// The number of requests since they were last taken.
    #[must_use]
    pub fn count(&self) -> usize {
        let requests = self.requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.len()
    }
}

fn serve(mut stream: TcpStream, requests: &Mutex<Vec<String>>) -> io::Result<()> {
    let body = read_body(&stream)?;
    let request: Value = serde_json::from_str(&body)?;
    let usage = usage(&body);
    {
        let mut requests = requests.lock().unwrap_or_else(PoisonError::into_inner);
        requests.push(body);
    }
    let task = Task::of(&request);
    if task.is_slow {
        std::thread::sleep(SLOW);
    }
    let call = task.next_call(&request);
    let (kind, text) = match request["stream"] == true {
        true => ("text/event-stream", streamed(call.as_ref(), &usage)),
        false => ("application/json", whole(call.as_ref(), &usage)),
    };
    write!(
        stream,
        "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{text}",
        text.len()
    )
}

fn read_body(stream: &TcpStream) -> io::Result<String> {
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
            length = value.trim().parse().unwrap_or(0);
        }
    }
    if length > MAX_REQUEST {
        return Err(io::Error::other("the request is too long"));
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    String::from_utf8(body).map_err(io::Error::other)
}

/// One use of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Step {
    Read {
        file: String,
    },
    Write {
        file: String,
        content: String,
    },
    Shell {
        command: String,
    },
    Edit {
        file: String,
        old: String,
        new: String,
    },
    Glob {
        pattern: String,
    },
    Grep {
        word: String,
    },
}

/// A call that the model asks for.
#[derive(Debug, PartialEq)]
enum ToolCall {
    /// Of a tool whose input is JSON.
    Function(String, Value),
    /// Of the tool that takes a patch as plain text.
    Patch(String),
}

impl ToolCall {
    fn of(tool: &Value, step: &Step) -> Option<Self> {
        let name = tool["name"].as_str()?.to_owned();
        Some(Self::Function(name, step.input(tool)))
    }
}

/// The newest task of a conversation, and how far it is.
#[derive(Debug)]
struct Task {
    steps: Vec<Step>,
    is_slow: bool,
    /// The number of tool results since the task was given.
    results: usize,
}

impl Task {
    fn of(request: &Value) -> Self {
        let empty = Vec::new();
        let messages = request["messages"].as_array().unwrap_or(&empty);
        let is_task = |message: &Value| message["role"] == "user" && text(message).contains(MARK);
        let at = messages.iter().rposition(is_task);
        let asked = at.and_then(|at| messages.get(at)).map(text);
        let later = at.and_then(|at| messages.get(at..)).unwrap_or_default();
        let results = later.iter().filter(|message| message["role"] == "tool");
        let asked = asked.unwrap_or_default();
        Self {
            steps: steps(&asked),
            is_slow: asked.contains("WAIT"),
            results: results.count(),
        }
    }

    /// The next call; `None` where all was done, or the agent has no tool for it.
    fn next_call(&self, request: &Value) -> Option<ToolCall> {
        let step = self.steps.get(self.results)?;
        let tools = request["tools"].as_array()?;
        let find = |names: &[&str]| {
            let mut names = names.iter();
            names.find_map(|name| {
                let mut tools = tools.iter().map(|tool| &tool["function"]);
                tools.find(|tool| simple(tool["name"].as_str().unwrap_or_default()) == **name)
            })
        };
        if let Some(tool) = find(step.tool_names()) {
            return ToolCall::of(tool, step);
        }
        let is_patch = |tool: &&Value| tool["custom"]["name"] == PATCH;
        if let (Some(_), Some(patch)) = (tools.iter().find(is_patch), step.as_patch()) {
            return Some(ToolCall::Patch(patch));
        }
        // An agent without a tool for files has a shell for them.
        let command = step.as_command()?;
        let shell = Step::Shell { command };
        ToolCall::of(find(shell.tool_names())?, &shell)
    }
}

fn text(message: &Value) -> String {
    match &message["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => {
            let parts = parts.iter().filter_map(|part| part["text"].as_str());
            parts.collect::<Vec<_>>().join("\n")
        }
        _ => String::new(),
    }
}

/// A name in lower case, without what separates its words.
fn simple(name: &str) -> String {
    name.to_ascii_lowercase().replace(['_', '-'], "")
}

fn steps(asked: &str) -> Vec<Step> {
    let word = |key: &str| {
        let mut words = asked.split_whitespace();
        let found = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
        found.map(|word| word.trim_matches(|c: char| "<>\"'`".contains(c)).to_owned())
    };
    let content = word("CONTENT").unwrap_or_default();
    let write = word("FILE").map(|file| match word("VIA").as_deref() {
        Some("shell") => Step::Shell {
            command: format!("printf '%s\\n' '{content}' > '{file}'"),
        },
        _ => Step::Write { file, content },
    });
    let edit = word("EDIT").map(|file| Step::Edit {
        file,
        old: word("OLD").unwrap_or_default(),
        new: word("NEW").unwrap_or_default(),
    });
    let all = [
        word("READ").map(|file| Step::Read { file }),
        write,
        edit,
        word("GLOB").map(|pattern| Step::Glob { pattern }),
        word("GREP").map(|word| Step::Grep { word }),
    ];
    all.into_iter().flatten().collect()
}

impl Step {
    /// The names that agents give the tool, simplified, the usual one first.
    fn tool_names(&self) -> &'static [&'static str] {
        match self {
            Self::Read { .. } => &["read", "readfile", "view", "viewfile"],
            Self::Write { .. } => &["write", "writefile", "create", "applypatch"],
            Self::Shell { .. } => &[
                "bash",
                "shell",
                "execcommand",
                "runshellcommand",
                "runcommand",
                "terminal",
            ],
            Self::Edit { .. } => &[
                "edit",
                "replace",
                "searchreplace",
                "editfile",
                "strreplace",
                "applypatch",
            ],
            Self::Glob { .. } => &["glob", "findfiles", "filesearch"],
            Self::Grep { .. } => &["grep", "grepsearch", "searchfilecontent", "rg"],
        }
    }

    /// The command that writes a file where there is no tool for it.
    fn as_command(&self) -> Option<String> {
        match self {
            Self::Write { file, content } => Some(format!("printf '%s\\n' '{content}' > '{file}'")),
            Self::Read { .. }
            | Self::Shell { .. }
            | Self::Edit { .. }
            | Self::Glob { .. }
            | Self::Grep { .. } => None,
        }
    }

    /// The patch that does it, in the form that Codex's tool takes.
    fn as_patch(&self) -> Option<String> {
        let body = match self {
            Self::Write { file, content } => format!("*** Add File: {file}\n+{content}\n"),
            Self::Edit { file, old, new } => {
                format!("*** Update File: {file}\n@@\n-{old}\n+{new}\n")
            }
            Self::Read { .. } | Self::Shell { .. } | Self::Glob { .. } | Self::Grep { .. } => {
                return None;
            }
        };
        Some(format!("*** Begin Patch\n{body}*** End Patch\n"))
    }

    /// The input of a tool: what the step says, and a plain value for whatever else is required.
    fn input(&self, tool: &Value) -> Value {
        let schema = &tool["parameters"];
        let required: Vec<&str> = schema["required"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(Value::as_str)
            .collect();
        let mut input = Map::new();
        let properties = schema["properties"].as_object();
        for (key, property) in properties.into_iter().flatten() {
            let value = self.property(&simple(key), property).or_else(|| {
                let is_required = required.contains(&key.as_str());
                is_required.then(|| plain_value(property))
            });
            if let Some(value) = value {
                input.insert(key.clone(), value);
            }
        }
        Value::Object(input)
    }

    fn property(&self, key: &str, schema: &Value) -> Option<Value> {
        if matches!(key, "input" | "patch" | "patchtext") {
            return self.as_patch().map(Value::String);
        }
        let is_path = matches!(key, "path" | "filepath" | "absolutepath" | "targetfile");
        let text = match self {
            Self::Read { file } | Self::Write { file, .. } | Self::Edit { file, .. } if is_path => {
                file.clone()
            }
            Self::Read { .. } => return (key == "command").then(|| json!("view")),
            Self::Write { content, .. } => match key {
                "content" | "contents" | "filetext" | "newstring" => format!("{content}\n"),
                "oldstring" => String::new(),
                "command" => "create".to_owned(),
                _ => return None,
            },
            Self::Edit { old, new, .. } => match key {
                "oldstring" | "oldstr" | "oldtext" | "search" => old.clone(),
                "newstring" | "newstr" | "newtext" | "replace" => new.clone(),
                "content" => format!("<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE"),
                _ => return None,
            },
            Self::Shell { command } => match key {
                "command" | "cmd" if schema["type"] == "array" => {
                    return Some(json!(["bash", "-lc", command]));
                }
                "command" | "cmd" => command.clone(),
                _ => return None,
            },
            Self::Glob { pattern } => match key {
                "pattern" | "glob" | "globpattern" => pattern.clone(),
                _ => return None,
            },
            Self::Grep { word } => match key {
                "pattern" | "query" | "regex" => word.clone(),
                _ => return None,
            },
        };
        Some(json!(text))
    }
}

fn plain_value(schema: &Value) -> Value {
    match schema["type"].as_str() {
        Some("boolean") => json!(false),
        Some("number" | "integer") => json!(1),
        Some("array") => json!([]),
        Some("object") => json!({}),
        _ => match schema["enum"].get(0) {
            Some(first) => first.clone(),
            None => json!("a step of the task"),
        },
    }
}

/// An id that no earlier call had: a session that goes on knows the earlier ones.
fn next_id() -> String {
    static CALLS: AtomicU64 = AtomicU64::new(1);
    format!("call_{}", CALLS.fetch_add(1, Ordering::Relaxed))
}

fn tool_call(call: &ToolCall) -> Value {
    let call = match call {
        ToolCall::Function(name, input) => json!({
            "index": 0, "id": next_id(), "type": "function",
            "function": { "name": name, "arguments": input.to_string() },
        }),
        ToolCall::Patch(input) => json!({
            "index": 0, "id": next_id(), "type": "custom",
            "custom": { "name": PATCH, "input": input },
        }),
    };
    json!({ "role": "assistant", "content": null, "tool_calls": [call] })
}

/// The usage of an answer: about a token for four bytes of the request, as models have it.
fn usage(request: &str) -> Value {
    let (asked, answered) = (request.len() / 4, 20);
    json!({ "prompt_tokens": asked, "completion_tokens": answered, "total_tokens": asked + answered })
}

fn finish_reason(call: Option<&ToolCall>) -> &'static str {
    match call {
        Some(_) => "tool_calls",
        None => "stop",
    }
}

fn whole(call: Option<&ToolCall>, usage: &Value) -> String {
    let said = || json!({ "role": "assistant", "content": DONE.concat() });
    let message = call.map_or_else(said, tool_call);
    let reason = finish_reason(call);
    json!({
        "id": "chat-1", "object": "chat.completion", "created": 1, "model": "scripted",
        "choices": [{ "index": 0, "message": message, "finish_reason": reason }],
        "usage": usage,
    })
    .to_string()
}

fn streamed(call: Option<&ToolCall>, usage: &Value) -> String {
    let chunk = |choices: Value, usage: Value| {
        let chunk = json!({
            "id": "chat-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted",
            "choices": choices, "usage": usage,
        });
        format!("data: {chunk}\n\n")
    };
    let deltas = match call {
        Some(call) => vec![tool_call(call)],
        None => {
            let pieces = DONE.iter();
            let pieces = pieces.map(|piece| json!({ "role": "assistant", "content": piece }));
            pieces.collect()
        }
    };
    let deltas = deltas.into_iter().map(|delta| {
        let choice = json!([{ "index": 0, "delta": delta, "finish_reason": null }]);
        chunk(choice, Value::Null)
    });
    let end = json!([{ "index": 0, "delta": {}, "finish_reason": finish_reason(call) }]);
    deltas
        .chain([
            chunk(end, Value::Null),
            chunk(json!([]), usage.clone()),
            "data: [DONE]\n\n".to_owned(),
        ])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(task: &str, results: usize, tools: &Value) -> Value {
        let mut messages = vec![json!({"role": "user", "content": task})];
        messages.extend((0..results).map(|_| json!({"role": "tool", "content": "ok"})));
        json!({"messages": messages, "tools": tools})
    }

    fn tool(name: &str, properties: &Value, required: &[&str]) -> Value {
        let parameters = json!({"properties": properties, "required": required});
        json!({"type": "function", "function": {"name": name, "parameters": parameters}})
    }

    #[test]
    fn each_step_is_a_call_of_the_tool_that_the_agent_has_for_it() {
        let path = json!({"file_path": {"type": "string"}, "limit": {"type": "number"}});
        let edit =
            json!({"path": {}, "old_string": {}, "new_string": {}, "all": {"type": "boolean"}});
        let tools = json!([
            tool("Read", &path, &["file_path"]),
            tool("replace", &edit, &["path", "all"]),
            tool("Bash", &json!({"command": {"type": "array"}}), &["command"]),
        ]);
        let asked = "ABP-TASK READ=a.txt EDIT=a.txt OLD=one NEW=two FILE=b.txt CONTENT=three";
        let cases = [
            (0, Some(("Read", json!({"file_path": "a.txt"})))),
            (
                1,
                Some((
                    "Bash",
                    json!({"command": ["bash", "-lc", "printf '%s\\n' 'three' > 'b.txt'"]}),
                )),
            ),
            (
                2,
                Some((
                    "replace",
                    json!({"path": "a.txt", "old_string": "one", "new_string": "two", "all": false}),
                )),
            ),
            (3, None),
        ];
        for (results, expected) in cases {
            let request = request(asked, results, &tools);
            let call = Task::of(&request).next_call(&request);
            let expected = expected.map(|(name, input)| ToolCall::Function(name.to_owned(), input));
            assert_eq!(call, expected, "after {results} results");
        }
        let patching = json!([{"type": "custom", "custom": {"name": "apply_patch"}}]);
        let edit = request("ABP-TASK EDIT=a.txt OLD=one NEW=two", 0, &patching);
        let patch = "*** Begin Patch\n*** Update File: a.txt\n@@\n-one\n+two\n*** End Patch\n";
        let expected = Some(ToolCall::Patch(patch.to_owned()));
        assert_eq!(Task::of(&edit).next_call(&edit), expected);
        let request = request("ABP-TASK GLOB=*.txt", 0, &tools);
        assert_eq!(
            Task::of(&request).next_call(&request),
            None,
            "it has no glob"
        );
    }

    #[test]
    fn only_the_newest_task_counts_and_results_before_it_do_not() {
        let messages = json!([
            {"role": "user", "content": "ABP-TASK FILE=old.txt CONTENT=x"},
            {"role": "tool", "content": "ok"},
            {"role": "assistant", "content": "DONE"},
            {"role": "user", "content": [{"type": "text", "text": "ABP-TASK WAIT READ=`new.txt`"}]},
            {"role": "user", "content": "a reminder of the agent's own"},
        ]);
        let task = Task::of(&json!({ "messages": messages }));
        let file = "new.txt".to_owned();
        assert_eq!(task.steps, [Step::Read { file }]);
        assert_eq!((task.results, task.is_slow), (0, true));
    }
}
