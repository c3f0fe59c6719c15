//! `abp mcp`, as an MCP client uses it: its own tools, and other servers behind it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::desk::Desk;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/server.py");
const META: &str = "io.modelcontextprotocol";

/// The two ways in which clients speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Era {
    Legacy,
    Modern,
}

/// A client that can be asked for a colour.
struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    era: Era,
    last_id: u64,
    notices: Vec<Value>,
}

impl Client {
    fn start(mut command: Command, era: Era) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut client = Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            child,
            era,
            last_id: 0,
            notices: Vec::new(),
        };
        if era == Era::Legacy {
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": { "elicitation": {} },
                "clientInfo": { "name": "test", "version": "1" },
            });
            client.ask("initialize", params);
            client.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        }
        client
    }

    fn send(&mut self, message: &Value) {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{message}").unwrap();
    }

    /// Sends a request and returns its answer; what the server asks meanwhile is answered.
    fn ask(&mut self, method: &str, mut params: Value) -> Value {
        if self.era == Era::Modern {
            let meta = params["_meta"].take();
            params["_meta"] = json!({
                format!("{META}/protocolVersion"): "2026-07-28",
                format!("{META}/clientCapabilities"): { "elicitation": {} },
                format!("{META}/clientInfo"): { "name": "test", "version": "1" },
            });
            for (key, value) in meta.as_object().into_iter().flatten() {
                params["_meta"][key] = value.clone();
            }
        }
        self.last_id += 1;
        let id = self.last_id;
        self.send(&json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            self.stdout.read_line(&mut line).unwrap();
            assert!(!line.is_empty(), "no answer to {method}");
            let message: Value = serde_json::from_str(&line).unwrap();
            match (message.get("method"), message.get("id")) {
                (None, Some(answered)) if *answered == id => return message,
                (Some(asked), Some(asked_id)) => {
                    assert_eq!(
                        (asked, self.era),
                        (&json!("elicitation/create"), Era::Legacy)
                    );
                    let result = json!({ "action": "accept", "content": { "colour": "green" } });
                    let answer = json!({ "jsonrpc": "2.0", "id": asked_id, "result": result });
                    self.send(&answer);
                }
                _ => self.notices.push(message),
            }
        }
    }

    fn call(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        let answer = self.ask("tools/call", params.clone());
        let result = &answer["result"];
        if result["resultType"] != "input_required" {
            return answer;
        }
        // Without a handshake the client comes back with what was asked for.
        assert_eq!(self.era, Era::Modern);
        let mut again = params;
        again["requestState"] = result["requestState"].clone();
        for (key, request) in result["inputRequests"].as_object().unwrap() {
            assert_eq!(request["method"], "elicitation/create");
            let given = json!({ "action": "accept", "content": { "colour": "green" } });
            again["inputResponses"][key] = given;
        }
        self.ask("tools/call", again)
    }

    fn tools(&mut self) -> Vec<String> {
        let answer = self.ask("tools/list", json!({}));
        let tools = answer["result"]["tools"].as_array();
        let tools = tools.unwrap_or_else(|| panic!("{answer}"));
        let name = |tool: &Value| tool["name"].as_str().unwrap().to_owned();
        tools.iter().map(name).collect()
    }

    /// Closes its end and waits for the server to end by itself.
    fn finish(mut self) {
        drop(self.stdin.take());
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                assert!(status.success(), "{status}");
                return;
            }
            assert!(Instant::now() < deadline, "the server does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn text(answer: &Value) -> &str {
    let text = answer["result"]["content"][0]["text"].as_str();
    text.unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn runs_are_tools_in_both_eras() {
    for era in [Era::Legacy, Era::Modern] {
        let desk = Desk::new();
        let mut client = Client::start(desk.command(&["mcp"]), era);
        let tools = client.tools();
        assert_eq!(tools.len(), 7, "{tools:?}");

        let params = json!({
            "name": "abp_run",
            "arguments": { "task": "say hello", "wait": true },
            "_meta": { "progressToken": "p" },
        });
        let ran = client.ask("tools/call", params);
        let ran = &ran["result"]["structuredContent"];
        assert_eq!(ran["outcome"], "complete", "{era:?}: {ran}");
        let progress = client
            .notices
            .iter()
            .filter(|one| one["params"]["progressToken"] == "p");
        assert!(progress.count() > 0, "{:?}", client.notices);

        let run_id = ran["run_id"].as_str().unwrap().to_owned();
        let status = client.call("abp_status", &json!({ "run_id": run_id }));
        assert_eq!(status["result"]["structuredContent"]["status"], "ended");
        let verified = client.call("abp_verify", &json!({ "run_id": run_id }));
        assert_eq!(verified["result"]["structuredContent"]["verdict"], "proven");
        let uri = format!("abp://runs/{run_id}/receipt");
        let read = client.ask("resources/read", json!({ "uri": uri }));
        let document = read["result"]["contents"][0]["text"].as_str().unwrap();
        assert!(document.contains(&run_id));
        let forged = document.replace("\"complete\"", "\"failed\"");
        let verified = client.call("abp_verify", &json!({ "receipt": forged }));
        assert_eq!(verified["result"]["structuredContent"]["verdict"], "wrong");
        let listed = client.ask("resources/list", json!({}));
        assert!(listed["result"]["resources"].to_string().contains(&uri));

        let started = client.call("abp_run", &json!({ "task": "say hello" }));
        assert_eq!(started["result"]["structuredContent"]["status"], "running");
        client.finish();
        // Nothing that was started is left without its end.
        assert_eq!(desk.receipts().len(), 2);
    }
}

#[test]
fn what_may_not_be_asked_is_refused() {
    let desk = Desk::new();
    let mut client = Client::start(desk.command(&["mcp", "--strict"]), Era::Legacy);
    let unknown = json!({ "name": "nothing", "arguments": {} });
    assert_eq!(client.ask("tools/call", unknown)["error"]["code"], -32602);
    assert_eq!(
        client.ask("prompts/list", json!({}))["error"]["code"],
        -32601
    );
    let uri = json!({ "uri": "abp://runs/7/receipt" });
    assert_eq!(client.ask("resources/read", uri)["error"]["code"], -32002);
    for arguments in [
        json!({ "task": "x", "root": "/" }),
        json!({ "task": "x", "tsak": "y" }),
        json!({ "task": "x", "policy": "/etc/passwd" }),
        json!({ "task": "" }),
    ] {
        let answer = client.call("abp_run", &arguments);
        assert_eq!(answer["result"]["isError"], true, "{arguments}: {answer}");
    }
    client.finish();
    assert!(desk.receipts().is_empty());
}

/// A gateway in front of these servers: name, era, misbehaviour, further settings.
fn gateway(desk: &Desk, era: Era, servers: &[(&str, &str, &str, &str)]) -> Client {
    let mut config = String::new();
    for (name, era, misbehaviour, more) in servers {
        config += &format!(
            "[mcp.servers.{name}]\ncommand = \"python3\"\n\
             args = [{SERVER:?}, {name:?}, {era:?}, {misbehaviour:?}]\n\
             timeout_secs = 2\nopen_timeout_secs = 4\n{more}\n"
        );
    }
    desk.write("abp.toml", config);
    let command = desk.command(&["mcp", "--gateway", "--config", "abp.toml"]);
    Client::start(command, era)
}

fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        abp_testkit::skip("MCP servers behind the gateway", "there is no python3");
    }
    found
}

#[test]
fn servers_of_both_eras_are_one_for_clients_of_both() {
    if !has_python() {
        return;
    }
    for era in [Era::Legacy, Era::Modern] {
        let desk = Desk::new();
        let servers = [
            ("old", "legacy", "", ""),
            ("new", "modern", "", "deny_tools = [\"slow\"]"),
        ];
        let mut client = gateway(&desk, era, &servers);
        let mut tools = client.tools();
        tools.sort();
        let expected = [
            "new__ask",
            "new__echo",
            "new_only",
            "old__ask",
            "old__echo",
            "old_only",
            "slow",
        ];
        assert_eq!(tools, expected, "{era:?}");
        for server in ["old", "new"] {
            let echo = client.call(&format!("{server}__echo"), &json!({ "words": "hi" }));
            assert_eq!(text(&echo), format!("{server} echo: hi"), "{era:?}");
            let asked = client.call(&format!("{server}__ask"), &json!({}));
            assert_eq!(text(&asked), format!("{server} heard green"), "{era:?}");
        }
        let params = json!({ "name": "slow", "_meta": { "progressToken": "mine" } });
        let slow = client.ask("tools/call", params);
        assert_eq!(text(&slow), "done");
        let progress = client
            .notices
            .iter()
            .filter(|one| one["params"]["progressToken"] == "mine");
        assert_eq!(progress.count(), 1, "{:?}", client.notices);
        // What a policy denies does not exist, by whatever name.
        let denied = client.call("new__slow", &json!({}));
        assert_eq!(denied["error"]["code"], -32602);
        client.finish();
    }
}

#[test]
fn a_server_that_misbehaves_harms_nobody_else() {
    if !has_python() {
        return;
    }
    for misbehaviour in ["silent", "dies", "hangs", "lies", "loops", "floods"] {
        let desk = Desk::new();
        let servers = [
            ("good", "legacy", "", ""),
            ("bad", "legacy", misbehaviour, ""),
        ];
        let started = Instant::now();
        let mut client = gateway(&desk, Era::Legacy, &servers);
        let tools = client.tools();
        assert!(
            tools.contains(&"good_only".to_owned()),
            "{misbehaviour}: {tools:?}"
        );
        if matches!(misbehaviour, "dies" | "hangs") {
            let failed = client.call("bad__echo", &json!({}));
            assert_eq!(failed["error"]["code"], -32603, "{misbehaviour}: {failed}");
        }
        let fine = client.call("good_only", &json!({ "words": "still" }));
        assert_eq!(text(&fine), "good good_only: still", "{misbehaviour}");
        client.finish();
        let took = started.elapsed();
        assert!(
            took < Duration::from_secs(25),
            "{misbehaviour} took {took:?}"
        );
    }
}

/// A server samples from the embedded model, paid by a key, because its client has no model.
#[test]
fn what_is_configured_is_filled_in() {
    if !has_python() {
        return;
    }
    let desk = Desk::new();
    let budget = ["keys", "create", "--name", "mcp", "--budget-usd", "1"];
    let (_, made) = desk.json(&budget);
    let config = format!(
        "[mcp.emulate.sampling]\nkey = {}\nmodels = [\"mock\"]\n\
         [mcp.servers.old]\ncommand = \"python3\"\nargs = [{SERVER:?}, \"old\", \"legacy\"]\n",
        made["id"]
    );
    desk.write("abp.toml", config);
    let question = json!({
        "messages": [{ "role": "user", "content": { "type": "text", "text": "hello" } }],
        "maxTokens": 100,
    });
    let question = json!({ "method": "sampling/createMessage", "params": question });
    for era in [Era::Legacy, Era::Modern] {
        let command = desk.command(&["mcp", "--gateway", "--config", "abp.toml"]);
        let mut client = Client::start(command, era);
        let asked = client.call("ask", &json!({ "questions": [question] }));
        let sample = &asked["result"]["structuredContent"]["q0"];
        assert_eq!(sample["content"]["text"], "You said: hello", "{asked}");
        let label = &asked["result"]["_meta"]["dev.abp/emulated"];
        assert_eq!(*label, json!(["sampling"]), "{era:?}");
        client.finish();
    }
    let (_, listed) = desk.json(&["keys", "list"]);
    assert_eq!(listed["keys"][0]["requests"], 2, "{listed}");
}

#[test]
fn a_negotiation_says_what_is_filled_in() {
    let desk = Desk::new();
    let client = json!({ "protocolVersion": "2025-11-25", "capabilities": {} });
    let files = json!({ "protocolVersion": "2025-11-25", "capabilities": { "tools": {} } });
    desk.write("client.json", client.to_string())
        .write("files.json", files.to_string())
        .write(
            "abp.toml",
            "[mcp.emulate]\nlist_changed_secs = 30\nroots = [\"/srv\"]\n",
        );
    let arguments = [
        "mcp",
        "negotiate",
        "--config",
        "abp.toml",
        "--client",
        "client.json",
        "--servers",
        "files.json",
    ];
    let (status, told) = desk.json(&arguments);
    assert_eq!(status, 0);
    assert_eq!(
        told["advertised"],
        json!({ "tools": { "listChanged": true } })
    );
    assert_eq!(told["declared"]["files"], json!({ "roots": {} }));
    let shown = desk.abp(&arguments).stdout;
    let line = shown
        .lines()
        .find(|line| line.starts_with("server.tools.listChanged"));
    let line = line.unwrap_or_else(|| panic!("{shown}"));
    let words = "found by listing again: every 30 s while somebody listens";
    assert!(
        line.contains("emulated") && line.contains("for files"),
        "{line}"
    );
    assert!(line.ends_with(words), "{line}");
}

#[test]
fn a_negotiation_is_told_flag_by_flag() {
    let desk = Desk::new();
    let client = json!({ "protocolVersion": "2025-06-18", "capabilities": { "sampling": {} } });
    let files = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": { "tools": { "listChanged": true }, "tasks": {} },
    });
    desk.write("client.json", client.to_string())
        .write("files.json", files.to_string());
    let arguments = [
        "mcp",
        "negotiate",
        "--client",
        "client.json",
        "--servers",
        "files.json",
    ];
    let (status, told) = desk.json(&arguments);
    assert_eq!(status, 3);
    let flag = |name: &str| {
        let flags = told["flags"].as_array().unwrap();
        flags
            .iter()
            .find(|one| one["flag"] == name)
            .unwrap()
            .clone()
    };
    assert_eq!(flag("server.tools.listChanged")["level"], "native");
    assert_eq!(flag("server.tasks")["reason"], "client_version");
    assert_eq!(
        told["advertised"],
        json!({ "tools": { "listChanged": true } })
    );
    assert_eq!(told["declared"]["files"], json!({ "sampling": {} }));
    let shown = desk.abp(&arguments).stdout;
    assert!(shown.contains("server.tasks"), "{shown}");
    assert!(shown.contains("unsupported"), "{shown}");
}
