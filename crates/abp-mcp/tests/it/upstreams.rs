//! Real servers behind a gateway, and clients of both eras in front of it.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use abp_glob::GlobList;
use abp_host::Launcher;
use abp_mcp::{
    ClientTimeouts, Emulations, Era, GatewayServer, HttpServer, Implementation, McpGateway,
    ProgramServer, ProtocolVersion, RunningPrograms, Sampler, ServerAddress,
};
use abp_policy::PolicyEngine;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::serve::Lines;

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/server.py");
pub(crate) const ERAS: [Era; 2] = [Era::Legacy, Era::Modern];
/// How servers are reached.
pub(crate) const WIRES: [&str; 2] = ["lines", "http"];

pub(crate) fn has_python() -> bool {
    let found = Command::new("python3").arg("--version").output().is_ok();
    if !found {
        abp_testkit::skip("real MCP servers behind the gateway", "there is no python3");
    }
    found
}

fn era_name(era: Era) -> &'static str {
    match era {
        Era::Legacy => "legacy",
        Era::Modern => "modern",
    }
}

/// Servers, and what they have at the moment.
pub(crate) struct Stage {
    dir: TempDir,
    servers: Vec<GatewayServer>,
    listening: Vec<Child>,
}

impl Drop for Stage {
    fn drop(&mut self) {
        for child in &mut self.listening {
            drop(child.kill());
            drop(child.wait());
        }
    }
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            servers: Vec::new(),
            listening: Vec::new(),
        }
    }

    fn control(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Says what a server has from now on; nothing makes it leave.
    pub(crate) fn set(&self, name: &str, has: &Value) {
        let (path, draft) = (self.control(name), self.control("draft"));
        if has.is_null() {
            return std::fs::remove_file(path).unwrap();
        }
        // A server reads either what was or what is.
        std::fs::write(&draft, has.to_string()).unwrap();
        std::fs::rename(draft, path).unwrap();
    }

    /// Adds a server that has tools.
    pub(crate) fn server(&mut self, name: &str, era: Era, wire: &str) -> &mut Self {
        self.server_with(
            name,
            era,
            wire,
            "",
            &json!({ "capabilities": { "tools": {} } }),
        )
    }

    pub(crate) fn server_with(
        &mut self,
        name: &str,
        era: Era,
        wire: &str,
        misbehaviour: &str,
        has: &Value,
    ) -> &mut Self {
        if !has.is_null() {
            self.set(name, has);
        }
        let control = self.control(name).display().to_string();
        let args = [SERVER, name, era_name(era), misbehaviour, &control, wire].map(str::to_owned);
        let address = match wire {
            "http" => self.listen(&args),
            _ => ServerAddress::Program(Box::new(ProgramServer {
                command: "python3".to_owned(),
                args: args.to_vec(),
                env: BTreeMap::new(),
                directory: self.dir.path().to_owned(),
                sandbox: None,
                network: PolicyEngine::default(),
                launcher: Launcher::at(env!("CARGO_BIN_EXE_mcp-launcher")),
                running: RunningPrograms::default(),
            })),
        };
        let versions = ProtocolVersion::ALL.into_iter();
        self.servers.push(GatewayServer {
            name: name.to_owned(),
            address,
            versions: versions.filter(|one| one.era() == era).collect(),
            timeouts: ClientTimeouts {
                request: Duration::from_secs(3),
                ..ClientTimeouts::USUAL
            },
            open_timeout: Duration::from_secs(if misbehaviour == "silent" { 2 } else { 20 }),
            allow_tools: GlobList::new(&["*".to_owned()]).unwrap(),
            deny_tools: GlobList::new(&[]).unwrap(),
        });
        self
    }

    fn listen(&mut self, args: &[String]) -> ServerAddress {
        let mut child = Command::new("python3")
            .args(args)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let stdout = child.stdout.take().unwrap();
        BufReader::new(stdout).read_line(&mut port).unwrap();
        self.listening.push(child);
        let url = format!("http://127.0.0.1:{}/mcp", port.trim());
        ServerAddress::Http(HttpServer { url, bearer: None })
    }

    pub(crate) fn gateway(&self) -> McpGateway {
        self.emulating(Emulations::default(), None)
    }

    pub(crate) fn emulating(&self, emulations: Emulations, sampler: Option<Sampler>) -> McpGateway {
        let info = Implementation::new("gateway", "1");
        McpGateway::emulating(self.servers.clone(), info, emulations, sampler)
    }
}

/// A client of a gateway.
pub(crate) struct Client {
    lines: Lines,
    era: Era,
    declares: Value,
    last_id: u64,
    pub(crate) notices: Vec<Value>,
    /// What it was asked.
    pub(crate) asked: Vec<Value>,
    /// The answer to its handshake.
    opened: Value,
}

impl Client {
    pub(crate) async fn open(gateway: &McpGateway, era: Era, declares: Value) -> Self {
        Self::of("", gateway, era, declares).await
    }

    pub(crate) async fn of(
        principal: &str,
        gateway: &McpGateway,
        era: Era,
        declares: Value,
    ) -> Self {
        let session = gateway.session(principal);
        Self::over(Lines::of(principal, session, 8), era, declares).await
    }

    pub(crate) async fn over(lines: Lines, era: Era, declares: Value) -> Self {
        let mut client = Self {
            lines,
            era,
            declares,
            last_id: 0,
            notices: Vec::new(),
            asked: Vec::new(),
            opened: Value::Null,
        };
        if era == Era::Legacy {
            let params = json!({
                "protocolVersion": "2025-11-25",
                "capabilities": client.declares,
                "clientInfo": { "name": "test", "version": "1" },
            });
            let opened = client.ask("initialize", params).await;
            client.opened = opened["result"].clone();
            assert!(client.opened.is_object(), "{opened}");
            let ready = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
            client.lines.send(&ready).await;
        }
        client
    }

    /// What it is told that it can use.
    pub(crate) async fn offered(&mut self) -> Value {
        let told = match self.era {
            Era::Legacy => self.opened.clone(),
            Era::Modern => self.ask("server/discover", json!({})).await["result"].clone(),
        };
        told["capabilities"].clone()
    }

    /// Sends a request, without waiting for what comes of it.
    pub(crate) async fn send(&mut self, method: &str, mut params: Value) -> u64 {
        if self.era == Era::Modern {
            params["_meta"] = json!({
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientCapabilities": self.declares,
            });
        }
        self.last_id += 1;
        let id = self.last_id;
        let request = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.lines.send(&request).await;
        id
    }

    /// Waits no longer for a request.
    pub(crate) async fn cancel(&mut self, id: u64) {
        let params = json!({ "requestId": id });
        let method = "notifications/cancelled";
        let cancel = json!({ "jsonrpc": "2.0", "method": method, "params": params });
        self.lines.send(&cancel).await;
    }

    /// Sends a request and returns the answer to it. What it is asked meanwhile, it answers.
    pub(crate) async fn ask(&mut self, method: &str, params: Value) -> Value {
        let id = self.send(method, params).await;
        loop {
            let message = self.lines.next().await;
            match (message.get("method"), message.get("id")) {
                (None, Some(answered)) if *answered == id => return message,
                (Some(asked), Some(asked_id)) => {
                    let result = own_answer(asked.as_str().unwrap());
                    let answer = json!({ "jsonrpc": "2.0", "id": asked_id, "result": result });
                    self.asked.push(asked.clone());
                    self.lines.send(&answer).await;
                }
                _ => self.notices.push(message),
            }
        }
    }

    /// Calls a tool, in as many rounds as it takes.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let mut params = json!({ "name": tool, "arguments": arguments });
        loop {
            let answer = self.ask("tools/call", params.clone()).await;
            let result = &answer["result"];
            if result["resultType"] != "input_required" {
                return answer;
            }
            assert_eq!(self.era, Era::Modern);
            params["requestState"] = result["requestState"].clone();
            params["inputResponses"] = json!({});
            for (key, request) in result["inputRequests"].as_object().unwrap() {
                self.asked.push(request["method"].clone());
                let method = request["method"].as_str().unwrap();
                params["inputResponses"][key] = own_answer(method);
            }
        }
    }

    /// Has a server ask something by one of its tools, and returns what it heard.
    pub(crate) async fn questioned(&mut self, tool: &str, questions: &[Value]) -> Value {
        let answer = self.call(tool, json!({ "questions": questions })).await;
        match answer.get("error") {
            Some(error) => error.clone(),
            None => answer["result"].clone(),
        }
    }

    pub(crate) async fn tools(&mut self) -> Vec<String> {
        let listed = self.ask("tools/list", json!({})).await;
        let tools = listed["result"]["tools"].as_array();
        let tools = tools.unwrap_or_else(|| panic!("{listed}"));
        let mut names: Vec<_> = tools
            .iter()
            .map(|tool| tool["name"].as_str().unwrap().to_owned())
            .collect();
        names.sort();
        names
    }

    /// What a server counted, by the name of its tool.
    pub(crate) async fn seen(&mut self, tool: &str) -> Map<String, Value> {
        let seen = self.call(tool, json!({})).await;
        let counted = seen["result"]["structuredContent"].as_object();
        counted.unwrap_or_else(|| panic!("{seen}")).clone()
    }

    /// Waits for a notification.
    pub(crate) async fn told(&mut self, method: &str) -> Value {
        let waiting = async {
            loop {
                let told = |one: &Value| one["method"] == method;
                if let Some(at) = self.notices.iter().position(told) {
                    return self.notices.remove(at);
                }
                let next = self.lines.next().await;
                self.notices.push(next);
            }
        };
        let told = tokio::time::timeout(Duration::from_secs(15), waiting).await;
        told.unwrap_or_else(|_| panic!("{method} is not told"))
    }

    /// Wants to be told of changes; a client with a handshake always does.
    pub(crate) async fn listen(&mut self, filter: Value) {
        match self.era {
            Era::Legacy => {
                for uri in filter["resourceSubscriptions"]
                    .as_array()
                    .into_iter()
                    .flatten()
                {
                    let params = json!({ "uri": uri });
                    let subscribed = self.ask("resources/subscribe", params).await;
                    assert!(subscribed["result"].is_object(), "{subscribed}");
                }
            }
            Era::Modern => {
                let params = json!({ "notifications": filter });
                self.send("subscriptions/listen", params).await;
                let acknowledged = "notifications/subscriptions/acknowledged";
                let told = self.told(acknowledged).await;
                assert_eq!(told["params"]["notifications"], filter, "{told}");
            }
        }
    }
}

/// What the clients of these tests answer by themselves.
fn own_answer(method: &str) -> Value {
    match method {
        "roots/list" => json!({ "roots": [{ "uri": "file:///own" }] }),
        "elicitation/create" => json!({ "action": "accept", "content": { "colour": "own" } }),
        "sampling/createMessage" => json!({
            "role": "assistant", "model": "own", "content": { "type": "text", "text": "own" },
        }),
        other => panic!("{other} was asked"),
    }
}
