//! A scripted agent of the tests: speaks the Agent Client Protocol, and behaves as its argument says.
//!
//! The prompt says what to do in words `KEY=VALUE`; see `Behaviour`.

#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value does not have is null"
)]

use std::io::{self, BufRead as _, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use serde_json::{Value, json};

const SESSION: &str = "session-1";

/// The agent's peculiarity.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Behaviour {
    /// Asks, writes the file, answers.
    Good,
    /// Does not ask.
    Silent,
    /// Asks and writes whatever the answer is.
    Stubborn,
    /// Writes through the host.
    ThroughHost,
    /// Does nothing and says that it is done.
    Idle,
    /// Never answers `initialize`.
    Mute,
    /// Speaks another version of the protocol.
    Foreign,
    /// Ends in the middle of its turn.
    Dies,
    /// Never ends its turn, and does not listen to a cancellation.
    Hangs,
    /// Asks after it was cancelled.
    AsksLate,
    /// Says more than anybody reads.
    Floods,
    /// Writes a line that never ends.
    Endless,
    /// Writes text and unknown messages between its messages.
    Noisy,
    /// Refuses every session.
    LoggedOut,
}

impl Behaviour {
    fn of(name: &str) -> Option<Self> {
        Some(match name {
            "good" => Self::Good,
            "silent" => Self::Silent,
            "stubborn" => Self::Stubborn,
            "through-host" => Self::ThroughHost,
            "idle" => Self::Idle,
            "mute" => Self::Mute,
            "foreign" => Self::Foreign,
            "dies" => Self::Dies,
            "hangs" => Self::Hangs,
            "asks-late" => Self::AsksLate,
            "floods" => Self::Floods,
            "endless" => Self::Endless,
            "noisy" => Self::Noisy,
            "logged-out" => Self::LoggedOut,
            _ => return None,
        })
    }
}

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    let Some(behaviour) = Behaviour::of(&name) else {
        return ExitCode::from(64);
    };
    match (Agent { behaviour }).serve() {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(7),
    }
}

struct Agent {
    behaviour: Behaviour,
}

impl Agent {
    fn serve(&self) -> io::Result<()> {
        while let Some(message) = read()? {
            let id = message["id"].clone();
            match message["method"].as_str().unwrap_or_default() {
                "initialize" if self.behaviour == Behaviour::Mute => {}
                "initialize" => self.initialize(&id)?,
                "session/new" if self.behaviour == Behaviour::LoggedOut => {
                    let error = json!({ "code": -32000, "message": "log in first" });
                    send(&json!({ "jsonrpc": "2.0", "id": id, "error": error }))?;
                }
                "session/new" | "session/fork" => answer(&id, &json!({ "sessionId": SESSION }))?,
                "session/load" => {
                    update(&json!({
                        "sessionUpdate": "agent_message_chunk",
                        "content": { "type": "text", "text": "of an earlier run" },
                    }))?;
                    answer(&id, &json!({}))?;
                }
                "session/set_mode" => answer(&id, &json!({}))?,
                "session/prompt" => self.prompt(&id, &message["params"])?,
                _ => {}
            }
        }
        Ok(())
    }

    fn initialize(&self, id: &Value) -> io::Result<()> {
        let version = if self.behaviour == Behaviour::Foreign {
            2
        } else {
            1
        };
        answer(
            id,
            &json!({
                "protocolVersion": version,
                "agentInfo": { "name": "scripted", "version": "1.0.0" },
                "agentCapabilities": { "loadSession": true },
            }),
        )
    }

    fn prompt(&self, id: &Value, params: &Value) -> io::Result<()> {
        let text = params["prompt"][0]["text"].as_str().unwrap_or_default();
        let word = |key: &str| {
            let mut words = text.split_whitespace();
            let found = words.find_map(|word| word.strip_prefix(key)?.strip_prefix('='));
            found.unwrap_or("file.txt").to_owned()
        };
        match self.behaviour {
            Behaviour::Idle => return answer(id, &json!({ "stopReason": "end_turn" })),
            Behaviour::Dies => {
                eprint("it broke")?;
                std::process::exit(3);
            }
            Behaviour::Hangs | Behaviour::AsksLate => return self.never_end(),
            Behaviour::Floods => return flood(id),
            Behaviour::Endless => return endless(),
            Behaviour::Noisy => {
                print("this is no message\n")?;
                update(&json!({ "sessionUpdate": "from_the_future", "x": 1 }))?;
                send(&json!({ "jsonrpc": "2.0", "method": "future/thing", "params": {} }))?;
                send(
                    &json!({ "jsonrpc": "2.0", "id": 900, "method": "terminal/create", "params": {} }),
                )?;
            }
            _ => {}
        }
        self.write_file(&word("FILE"))?;
        update(&json!({
            "sessionUpdate": "agent_message_chunk",
            "content": { "type": "text", "text": "done" },
        }))?;
        let usage = json!({ "totalTokens": 7, "inputTokens": 3, "outputTokens": 4 });
        answer(id, &json!({ "stopReason": "end_turn", "usage": usage }))
    }

    /// Announces a write, asks where it is one that asks, and tells what came of it.
    fn write_file(&self, file: &str) -> io::Result<()> {
        let path = std::env::current_dir()?.join(file);
        let path = path.to_string_lossy().into_owned();
        let diff = json!({ "type": "diff", "path": path, "oldText": null, "newText": "written\n" });
        let call = json!({
            "toolCallId": "call-1", "title": "Write", "kind": "edit", "status": "pending",
            "rawInput": { "file_path": path }, "locations": [{ "path": path }], "content": [diff],
        });
        let mut announced = call.clone();
        announced["sessionUpdate"] = json!("tool_call");
        update(&announced)?;
        let is_allowed = match self.behaviour {
            Behaviour::Silent | Behaviour::ThroughHost => true,
            _ => ask(&call)? || self.behaviour == Behaviour::Stubborn,
        };
        let done = match self.behaviour {
            Behaviour::ThroughHost => {
                let params = json!({ "sessionId": SESSION, "path": path, "content": "written\n" });
                let answer = request(77, "fs/write_text_file", &params)?;
                answer.get("result").is_some()
            }
            _ if is_allowed => std::fs::write(&path, "written\n").is_ok(),
            _ => false,
        };
        let status = if done { "completed" } else { "failed" };
        update(&json!({
            "sessionUpdate": "tool_call_update", "toolCallId": "call-1", "status": status,
        }))
    }

    /// Waits for the end of its process; one that asks late does so once it was cancelled.
    fn never_end(&self) -> io::Result<()> {
        update(&json!({
            "sessionUpdate": "agent_message_chunk",
            "content": { "type": "text", "text": "working" },
        }))?;
        while let Some(message) = read()? {
            if message["method"] == "session/cancel" && self.behaviour == Behaviour::AsksLate {
                let path = std::env::current_dir()?.join("late.txt");
                let allowed =
                    ask(&json!({ "toolCallId": "late", "title": "Write", "kind": "edit" }))?;
                if allowed {
                    std::fs::write(path, "late\n")?;
                }
            }
        }
        std::thread::sleep(Duration::from_secs(3_600));
        Ok(())
    }
}

fn ask(call: &Value) -> io::Result<bool> {
    let params = json!({
        "sessionId": SESSION,
        "toolCall": call,
        "options": [
            { "optionId": "always", "name": "Always", "kind": "allow_always" },
            { "optionId": "yes", "name": "Yes", "kind": "allow_once" },
            { "optionId": "no", "name": "No", "kind": "reject_once" },
        ],
    });
    let answer = request(76, "session/request_permission", &params)?;
    Ok(answer["result"]["outcome"]["optionId"] == "yes")
}

fn request(id: u64, method: &str, params: &Value) -> io::Result<Value> {
    send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }))?;
    loop {
        match read()? {
            Some(message) if message["id"] == id && message.get("method").is_none() => {
                return Ok(message);
            }
            Some(_) => {}
            None => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

fn flood(id: &Value) -> io::Result<()> {
    let text = "x".repeat(1_000);
    for _ in 0..20_000 {
        update(&json!({
            "sessionUpdate": "agent_thought_chunk",
            "content": { "type": "text", "text": text },
        }))?;
    }
    answer(id, &json!({ "stopReason": "end_turn" }))
}

fn endless() -> io::Result<()> {
    loop {
        print(&"{".repeat(1 << 20))?;
    }
}

fn update(update: &Value) -> io::Result<()> {
    let params = json!({ "sessionId": SESSION, "update": update });
    send(&json!({ "jsonrpc": "2.0", "method": "session/update", "params": params }))
}

fn answer(id: &Value, result: &Value) -> io::Result<()> {
    send(&json!({ "jsonrpc": "2.0", "id": id, "result": result }))
}

fn send(message: &Value) -> io::Result<()> {
    print(&format!("{message}\n"))
}

fn print(text: &str) -> io::Result<()> {
    let mut output = io::stdout().lock();
    output.write_all(text.as_bytes())?;
    output.flush()
}

fn eprint(text: &str) -> io::Result<()> {
    io::stderr().lock().write_all(text.as_bytes())
}

fn read() -> io::Result<Option<Value>> {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}
