//! Runs of sidecars that are given the operator's MCP servers, with real servers and processes.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::desk::Desk;
use crate::served::Served;

const TESTS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp");
/// Every process that belongs to a stage has this variable.
const MARK: &str = "STAGE";

/// A desk with an agent, a server that is a program and one over HTTP.
struct Stage {
    desk: Desk,
    /// What the agent tells besides its run; not in its workspace.
    aside: TempDir,
    search: Child,
}

impl Stage {
    fn new() -> Self {
        Self::with_files("")
    }

    /// Its program behaves in this way. The agent tells things beside its workspace, which no sandbox
    /// would let it do.
    fn with_files(behaviour: &str) -> Self {
        Self::with_sandbox(behaviour, "engine = \"none\"")
    }

    /// Its agent is in a sandbox, and tells the way to the servers in its workspace.
    fn sandboxed() -> Self {
        Self::sandboxed_with("", "")
    }

    /// The same with a program that behaves in this way and has these settings for its sandbox.
    fn sandboxed_with(behaviour: &str, settings: &str) -> Self {
        let library = Path::new(TESTS).join("../../hosts/python");
        let library = library.canonicalize().unwrap();
        Self::with_sandbox(
            behaviour,
            &format!("read_only = [{library:?}]\n[mcp.servers.files.sandbox]\n{settings}"),
        )
    }

    fn with_sandbox(behaviour: &str, sandbox: &str) -> Self {
        let aside = tempfile::tempdir().unwrap();
        let mut search = Command::new("python3")
            .args([
                &format!("{TESTS}/server.py"),
                "search",
                "modern",
                "",
                "",
                "http",
            ])
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut port = String::new();
        let mut told = BufReader::new(search.stdout.take().unwrap());
        told.read_line(&mut port).unwrap();
        let desk = Desk::new();
        let config = format!(
            "state_dir = {state:?}\n\
             [backends.agent]\ntype = \"sidecar\"\ncommand = \"python3\"\nargs = [{agent:?}]\n\
             [backends.agent.env]\nACCESS = {access:?}\n{MARK} = {mark:?}\n\
             [sandbox]\n{sandbox}\n\
             [mcp]\nroots = [{root:?}]\n\
             [mcp.servers.files]\ncommand = \"python3\"\nargs = [\"{TESTS}/server.py\", \"files\", \"legacy\", {behaviour:?}]\n\
             [mcp.servers.files.env]\n{MARK} = {mark:?}\n\
             [mcp.servers.search]\nurl = \"http://127.0.0.1:{port}/mcp\"\n",
            state = desk.state(""),
            access = match sandbox.starts_with("engine") {
                true => aside.path().join("access.json"),
                false => "access.json".into(),
            },
            mark = aside.path(),
            // Without `..`, whose directories are not there in a sandbox.
            agent = Path::new(TESTS).join("agent.py").canonicalize().unwrap(),
            root = desk.path(""),
            port = port.trim(),
        );
        desk.write("operator.toml", config);
        Self {
            desk,
            aside,
            search,
        }
    }

    /// The flags of a run of the agent.
    fn run(&self, task: &str, servers: &str, policy: &Value) -> Vec<String> {
        let order = json!({ "task": task, "policy": policy });
        self.desk.write("order.json", order.to_string());
        let servers = format!("abp.mcp={servers}");
        let flags = ["run", "--config", "operator.toml", "--backend", "agent"];
        let more = ["--order", "order.json", "--param", &servers];
        let flags = flags.iter().chain(&more);
        flags.map(|flag| (*flag).to_owned()).collect()
    }

    fn access(&self) -> Option<Value> {
        let bytes = std::fs::read(self.aside.path().join("access.json")).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn receipt(&self) -> (PathBuf, Value) {
        let [path] = self.desk.receipts().try_into().unwrap();
        let receipt = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
        (path, receipt)
    }

    /// Nothing of a run is left: no process, and nobody at the port.
    fn assert_over(&self, within: Duration) {
        let access = self.access().unwrap();
        let url = access["url"].as_str().unwrap();
        let address = url.split('/').nth(2).unwrap();
        let mark = self.aside.path().to_str().unwrap();
        let left = || abp_sandbox::procfs::with_variable(MARK, mark);
        let since = Instant::now();
        while !left().is_empty() || TcpStream::connect(address).is_ok() {
            assert!(since.elapsed() < within, "{address} {:?}", left());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// The key of the last run is in no file of the state directory, nor in these texts.
    fn assert_secret(&self, texts: &[&str]) {
        let access = self.access().unwrap();
        let key = access["headers"]["authorization"].as_str().unwrap();
        let key = key.strip_prefix("Bearer ").unwrap();
        assert!(key.len() > 40, "{key}");
        for text in texts {
            assert!(!text.contains(key), "{text}");
        }
        let mut directories = vec![self.desk.state("")];
        let mut files = 0;
        while let Some(directory) = directories.pop() {
            for entry in std::fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if entry.file_type().unwrap().is_dir() {
                    directories.push(path);
                } else if let Ok(bytes) = std::fs::read(&path) {
                    files += 1;
                    let found = bytes.windows(key.len()).any(|part| part == key.as_bytes());
                    assert!(!found, "{}", path.display());
                }
            }
        }
        assert!(files > 3);
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        self.search.kill().unwrap();
        self.search.wait().unwrap();
    }
}

fn as_flags(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

/// The lines that the agent added to its notes.
fn notes(receipt: &Value) -> String {
    let diff = receipt["verification"]["git_diff"].as_str().unwrap();
    let added = diff.lines().filter_map(|line| line.strip_prefix('+'));
    added.skip(1).collect::<Vec<_>>().join("\n")
}

fn server<'r>(receipt: &'r Value, name: &str) -> &'r Value {
    let servers = receipt["mcp"]["servers"].as_array().unwrap();
    servers.iter().find(|one| one["name"] == name).unwrap()
}

#[test]
fn a_run_calls_tools_of_programs_and_addresses_and_its_receipt_says_what_was_agreed() {
    let stage = Stage::new();
    let task = "list legacy\nlegacy files_only one\nmodern search_only two\nmodern files__echo three\n\
                legacy files__ask four\nmodern search__slow five\nknock\nleak";
    let policy = json!({ "disallowed_tools": ["slow", "*__ask"] });
    let flags = [stage.run(task, "true", &policy), vec!["--debug".to_owned()]].concat();
    let ran = stage.desk.abp(&as_flags(&flags));
    let (path, receipt) = stage.receipt();
    assert_eq!(ran.status, 0, "{}\n{receipt:#}", ran.stderr);
    // A name that both have carries its server's; what the policy denies is not listed, and not called.
    let expected = r#"
list legacy: files__echo files_only search__echo search_only
legacy files_only one: files files_only: one
modern search_only two: search search_only: two
modern files__echo three: files echo: three
legacy files__ask four: error: tool "files__ask" is denied by disallowed_tools[3] "*__ask"
modern search__slow five: error: tool "slow" is denied by disallowed_tools[2] "slow"
knock: wrong=401 none=401 host=403 page=403 path=404 known=400
leak: said"#;
    assert_eq!(notes(&receipt), expected.trim_start());

    let (files, search) = (server(&receipt, "files"), server(&receipt, "search"));
    assert_eq!(files["protocol_version"], "2025-06-18");
    assert_eq!(files["era"], "legacy");
    assert_eq!(search["protocol_version"], "2026-07-28");
    assert_eq!(search["era"], "modern");
    let used = |name: &str| json!({ "name": name, "calls": 1, "failed": 0, "refused": 0 });
    let denied = |name: &str| json!({ "name": name, "calls": 0, "failed": 0, "refused": 1 });
    let expected = [denied("ask"), used("echo"), used("files_only")];
    assert_eq!(files["tools"], json!(expected));
    assert_eq!(
        search["tools"],
        json!([used("search_only"), denied("slow")])
    );
    let rules = receipt["enforcement"]["rules"].as_array().unwrap();
    for pattern in ["slow", "*__ask"] {
        let rule = rules.iter().find(|rule| rule["pattern"] == pattern);
        assert_eq!(rule.unwrap()["denied"], 1, "{pattern}");
    }
    let flags = receipt["mcp"]["negotiation"]["flags"].as_array().unwrap();
    let tools = flags
        .iter()
        .find(|one| one["flag"] == "server.tools")
        .unwrap();
    assert_eq!(tools["level"], "native");
    assert_eq!(tools["native"], json!(["files", "search"]));

    let receipt_file = path.to_str().unwrap();
    assert_eq!(
        stage.desk.abp(&["receipt", "verify", receipt_file]).status,
        0
    );
    let told = stage
        .desk
        .abp(&["runs", "show", "last", "--config", "operator.toml"]);
    for line in [
        "files (2025-06-18): ask × 1 (1 refused), echo × 1, files_only × 1",
        "native, 1 emulatable, 0 unsupported",
    ] {
        assert!(told.stdout.contains(line), "{}", told.stdout);
    }
    stage.assert_over(Duration::ZERO);
    stage.assert_secret(&[&ran.stdout, &ran.stderr, &told.stdout, &receipt.to_string()]);
    // A changed count is seen, and named.
    let mut forged = receipt;
    forged["mcp"]["servers"][0]["tools"][0]["calls"] = json!(9);
    stage.desk.write("forged.json", forged.to_string());
    let verdict = stage.desk.abp(&["receipt", "verify", "forged.json"]);
    assert_eq!(verdict.status, 7, "{}", verdict.stdout);
    assert!(
        verdict.stdout.contains("changed: mcp"),
        "{}",
        verdict.stdout
    );
}

/// In a sandbox the servers are reached through the only way out, each call is a connection that the host
/// saw, and nothing else is reached.
#[test]
fn a_run_in_a_sandbox_calls_tools_through_the_egress_proxy() {
    let stage = Stage::sandboxed();
    let flags = stage.run(
        "modern search_only two\nmodern files__echo three",
        "true",
        &json!({}),
    );
    let ran = stage.desk.abp(&as_flags(&flags));
    let (_, receipt) = stage.receipt();
    assert_eq!(ran.status, 0, "{}\n{receipt:#}", ran.stderr);
    let noted = notes(&receipt);
    assert!(noted.contains("search search_only: two"), "{noted}");
    assert!(noted.contains("files echo: three"), "{noted}");
    assert!(noted.contains("http://127.0.0.1:3128/mcp"), "{noted}");
    assert_eq!(receipt["enforcement"]["sandbox"]["engine"], "namespaces");
    assert_eq!(receipt["enforcement"]["sandbox"]["network"], "proxied");
    let trace = receipt["trace"].as_array().unwrap().iter();
    let connections: Vec<_> = trace
        .filter(|event| event["type"] == "network_connection")
        .collect();
    assert!(connections.len() >= 2, "{receipt:#}");
    for connection in connections {
        assert_eq!(
            (&connection["allowed"], &connection["origin"]),
            (&json!(true), &json!("host")),
            "{connection}"
        );
    }
}

/// A server does what an agent asks it for, so it is held to the rules of the run as the agent is: by mounts
/// for files, by a network namespace for hosts. Without its sandbox all of it succeeds, and the receipt claims
/// no mount.
#[test]
fn a_server_is_no_way_around_the_policy_of_a_run() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for client in listener.incoming() {
            drop(client);
        }
    });
    for (settings, is_confined) in [("", true), ("engine = \"none\"", false)] {
        let stage = Stage::sandboxed_with("tries", settings);
        std::fs::create_dir(stage.desk.path("protected")).unwrap();
        stage.desk.write("protected/kept.txt", "as it was");
        stage.desk.write("aside.txt", "beside every workspace");
        let source = stage.desk.path("aside.txt");
        let state = stage.desk.state("store.db");
        let attempts = [
            (json!({ "write": "made.txt" }), true),
            (json!({ "write": "protected/kept.txt" }), false),
            (json!({ "read": source }), false),
            (json!({ "read": state }), false),
            (json!({ "connect": address.to_string() }), false),
        ];
        let task: Vec<String> = attempts
            .iter()
            .map(|(attempt, _)| format!("legacy try {attempt}"))
            .collect();
        let policy = json!({ "deny_write": ["protected/**"] });
        let flags = stage.run(&task.join("\n"), "[\"files\"]", &policy);
        let ran = stage.desk.abp(&as_flags(&flags));
        let (_, receipt) = stage.receipt();
        let noted = notes(&receipt);
        let outcomes: Vec<&str> = noted
            .lines()
            .filter_map(|line| line.split_once("files try: "))
            .map(|(_, outcome)| outcome)
            .collect();
        assert_eq!(
            outcomes.len(),
            attempts.len(),
            "{noted}\n{}\n{receipt:#}",
            ran.stderr
        );
        for ((attempt, is_allowed), outcome) in attempts.iter().zip(outcomes) {
            let expected = *is_allowed || !is_confined;
            assert_eq!(
                outcome == "done",
                expected,
                "{settings}: {attempt}: {outcome}"
            );
        }
        let sandbox = &server(&receipt, "files")["sandbox"];
        let rules = receipt["enforcement"]["rules"].as_array().unwrap();
        let rule = rules.iter().find(|one| one["pattern"] == "protected/**");
        let level = &rule.unwrap()["enforced_by"];
        match is_confined {
            true => {
                assert_eq!((ran.status, &sandbox["engine"]), (0, &json!("namespaces")));
                assert_eq!(*level, "kernel");
            }
            false => {
                assert_eq!(sandbox["engine"], "none");
                assert_eq!(*level, "host");
                assert_eq!(receipt["error"]["code"], "POLICY_DENIED", "{receipt:#}");
            }
        }
        let kept = std::fs::read_to_string(stage.desk.path("protected/kept.txt")).unwrap();
        assert_eq!(kept, "as it was");
    }
}

/// The hosts of a server are those that the operator lists for it, less those that the run denies.
#[test]
fn a_server_reaches_the_hosts_that_are_listed_for_it() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // Whatever is asked for.
            drop(client.read(&mut [0; 1024]));
            drop(client.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"));
        }
    });
    let listed = format!("allow_network = [\"{address}\"]");
    for (settings, policy, is_reached) in [
        (listed.as_str(), json!({}), true),
        ("", json!({ "allow_network": [address.to_string()] }), false),
        (
            listed.as_str(),
            json!({ "deny_network": [address.to_string()] }),
            false,
        ),
    ] {
        let stage = Stage::sandboxed_with("tries", settings);
        let task = json!({ "fetch": format!("http://{address}/") });
        let flags = stage.run(&format!("legacy try {task}"), "[\"files\"]", &policy);
        let ran = stage.desk.abp(&as_flags(&flags));
        let (_, receipt) = stage.receipt();
        let noted = notes(&receipt);
        let is_done = noted.contains("files try: done");
        assert_eq!(
            is_done, is_reached,
            "{settings} {policy}: {noted}\n{}",
            ran.stderr
        );
        let refused = "the sandbox of an MCP server refused a connection";
        assert_eq!(ran.stderr.contains(refused), !is_reached, "{}", ran.stderr);
    }
}

#[test]
fn a_person_is_asked_and_a_refusal_is_counted() {
    let stage = Stage::new();
    let task = "modern echo one\nmodern slow two\n\
                legacy ask {\"questions\": [{\"method\": \"roots/list\"}]}";
    let policy = json!({ "require_approval_for": ["echo", "files__slow"] });
    let flags = stage.run(task, "[\"files\"]", &policy);
    let approved = ["--approve", "files__slow"].map(str::to_owned);
    let flags = [&flags[..], &approved].concat();
    let ran = stage.desk.abp(&as_flags(&flags));
    let (_, receipt) = stage.receipt();
    assert_eq!(ran.status, 0, "{}\n{receipt:#}", ran.stderr);
    let noted = notes(&receipt);
    assert!(
        noted.contains("modern echo one: error: tool \"echo\" needs approval"),
        "{noted}"
    );
    assert!(noted.contains("modern slow two: done"), "{noted}");
    // A server that asks is told of the workspace, although the agent has no roots to tell of.
    assert!(noted.contains("/abp/stages/"), "{noted}");
    let flags = receipt["mcp"]["negotiation"]["flags"].as_array().unwrap();
    let roots = flags
        .iter()
        .find(|one| one["flag"] == "client.roots")
        .unwrap();
    assert_eq!(
        (&roots["level"], &roots["by_client"]),
        (&json!("emulated"), &json!(false))
    );
    // Only the server that was named is there.
    let [files] = receipt["mcp"]["servers"].as_array().unwrap().as_slice() else {
        panic!("{receipt:#}");
    };
    let expected = json!([
        { "name": "ask", "calls": 1, "failed": 0, "refused": 0 },
        { "name": "echo", "calls": 0, "failed": 0, "refused": 1 },
        { "name": "slow", "calls": 1, "failed": 0, "refused": 0 },
    ]);
    assert_eq!(files["tools"], expected);
    let rules = receipt["enforcement"]["rules"].as_array().unwrap();
    let denied = rules.iter().filter(|rule| rule["denied"] != 0);
    let denied: Vec<_> = denied
        .map(|rule| (&rule["pattern"], &rule["denied"]))
        .collect();
    assert_eq!(denied, [(&json!("echo"), &json!(1))], "{rules:?}");
    let trace = receipt["trace"].to_string();
    assert!(trace.contains("permission_resolved"), "{trace}");
    stage.assert_over(Duration::ZERO);
}

#[test]
fn a_server_that_dies_fails_its_own_calls_and_stays_in_the_receipt() {
    let stage = Stage::with_files("dies");
    let task = "modern files__echo one\nmodern search__echo two";
    let ran = stage
        .desk
        .abp(&as_flags(&stage.run(task, "true", &json!({}))));
    let (_, receipt) = stage.receipt();
    assert_eq!(ran.status, 0, "{}\n{receipt:#}", ran.stderr);
    assert!(notes(&receipt).ends_with("modern search__echo two: search echo: two"));
    let counted = |calls: u64, failed: u64| json!([{ "name": "echo", "calls": calls, "failed": failed, "refused": 0 }]);
    let (files, search) = (server(&receipt, "files"), server(&receipt, "search"));
    assert_eq!(files["protocol_version"], "2025-06-18");
    assert_eq!(
        (&files["tools"], &search["tools"]),
        (&counted(1, 1), &counted(1, 0))
    );
    stage.assert_over(Duration::ZERO);
}

#[test]
fn a7_what_is_not_configured_is_refused_before_anything_is_started() {
    let stage = Stage::new();
    let described = r#"{"files": {"command": "sh"}}"#;
    let cases = [
        (
            "agent",
            "[\"files\", \"nobody\"]",
            2,
            "MCP_SERVER_NOT_FOUND",
        ),
        ("agent", described, 2, "VALIDATION_FAILED"),
        (
            "agent",
            r#"{"url":"http://127.0.0.1:9/mcp","headers":{}}"#,
            2,
            "VALIDATION_FAILED",
        ),
        ("mock", "true", 3, "CAPABILITY_UNSUPPORTED"),
    ];
    for (backend, servers, status, code) in cases {
        let mut flags = stage.run("list modern", servers, &json!({}));
        flags.extend(["--backend".to_owned(), backend.to_owned()]);
        flags.drain(3..5);
        let ran = stage.desk.abp(&as_flags(&flags));
        assert_eq!(ran.status, status, "{servers}: {}", ran.stderr);
        assert!(ran.stderr.contains(code), "{servers}: {}", ran.stderr);
    }
    let none = format!("state_dir = {:?}\n", stage.desk.state(""));
    stage.desk.write("none.toml", none);
    let flags = [
        "run",
        "--config",
        "none.toml",
        "--task",
        "x",
        "--param",
        "abp.mcp=true",
    ];
    let script = json!({ "name": "client", "manifest": { "mcp_client": "native" }, "steps": [] });
    stage.desk.write("client.json", script.to_string());
    let more = ["--backend", "client", "--mock-script", "client.json"];
    let ran = stage.desk.abp(&[&flags[..], &more].concat());
    assert_eq!(ran.status, 2, "{}", ran.stderr);
    assert!(
        ran.stderr.contains("MCP_SERVER_NOT_FOUND"),
        "{}",
        ran.stderr
    );
    assert!(stage.desk.receipts().is_empty() && stage.access().is_none());
}

#[test]
fn the_servers_of_a_run_end_with_it_however_it_ends() {
    // While nothing is under way, and in the middle of a call that takes a minute.
    for (signal, last) in [
        ("TERM", "wait"),
        ("TERM", "modern echo x"),
        ("KILL", "modern echo x"),
    ] {
        let stage = Stage::with_files("hangs");
        let task = format!("legacy files_only one\nmodern files_only two\n{last}");
        let flags = stage.run(&task, "[\"files\"]", &json!({}));
        let flags = [flags, vec!["--jsonl".to_owned()]].concat();
        let mut command = stage.desk.command(&as_flags(&flags));
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let now = format!("now: {last}");
        assert!(lines.any(|line| line.unwrap().contains(&now)));
        std::thread::sleep(Duration::from_millis(300));
        let mark = stage.aside.path().to_str().unwrap();
        assert!(abp_sandbox::procfs::with_variable(MARK, mark).len() > 2);
        let pid = child.id().to_string();
        let sent = Command::new("kill").args(["-s", signal, &pid]).status();
        assert!(sent.unwrap().success());
        child.wait().unwrap();
        if signal == "KILL" {
            stage.assert_over(Duration::from_secs(5));
        } else {
            stage.assert_over(Duration::ZERO);
            let (_, receipt) = stage.receipt();
            assert_eq!(receipt["outcome"], "cancelled");
            let tools = server(&receipt, "files")["tools"].as_array().unwrap();
            let calls = tools.iter().map(|tool| tool["calls"].as_u64().unwrap());
            let expected = if last == "wait" { 2 } else { 3 };
            assert_eq!(calls.sum::<u64>(), expected, "{tools:?}");
        }
        stage.assert_secret(&[]);
    }
}

#[test]
fn a_server_of_runs_gives_them_too() {
    let stage = Stage::new();
    let served = Served::start(&stage.desk, &["--config", "operator.toml"]);
    let call = |servers: Value| {
        let arguments = json!({
            "task": "modern search_only one", "backend": "agent", "wait": true, "mcp": servers,
        });
        ask(&served, "abp_run", &arguments)
    };
    for described in [
        json!(["nobody"]),
        json!([{ "command": "sh" }]),
        json!("files"),
    ] {
        let refused = call(described);
        assert_eq!(refused["isError"], true, "{refused:#}");
        assert!(stage.access().is_none());
    }
    let ended = call(json!(["search"]));
    let ended = &ended["structuredContent"];
    assert_eq!(ended["outcome"], "complete", "{ended:#}");
    let arguments = json!({ "run_id": ended["run_id"] });
    let receipt = &ask(&served, "abp_receipt", &arguments)["structuredContent"];
    assert_eq!(
        server(receipt, "search")["tools"][0]["calls"],
        1,
        "{receipt:#}"
    );
    stage.assert_over(Duration::ZERO);
    stage.assert_secret(&[&receipt.to_string()]);
}

/// Calls a tool of the daemon's own MCP server.
fn ask(served: &Served, tool: &str, arguments: &Value) -> Value {
    let meta = "io.modelcontextprotocol";
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": tool,
            "arguments": arguments,
            "_meta": {
                format!("{meta}/protocolVersion"): "2026-07-28",
                format!("{meta}/clientCapabilities"): {},
            },
        },
    });
    let body = body.to_string();
    let mut stream = TcpStream::connect(served.address()).unwrap();
    write!(
        stream,
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\nconnection: close\r\n\
         content-type: application/json\r\naccept: application/json, text/event-stream\r\n\
         mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: {tool}\r\n\
         content-length: {}\r\n\r\n{body}",
        served.key,
        body.len()
    )
    .unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let answer: Value = serde_json::from_str(body).unwrap_or_else(|_| panic!("{answer}"));
    answer["result"].clone()
}
