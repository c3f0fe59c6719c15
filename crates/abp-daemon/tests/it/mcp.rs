//! MCP over HTTP, as clients of both eras and strangers meet it.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use abp_config::McpServerConfig;
use abp_store::KeyScope;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::{KEY, Lab, Reply};
use crate::limits;

const META: &str = "io.modelcontextprotocol";
const OWN: &str = "/mcp";
const GATEWAY: &str = "/mcp/gateway";

/// A daemon with a directory to work on, and a server behind it that nobody can reach.
fn stage() -> (Lab, TempDir) {
    let work = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(work.path().join("project")).expect("a directory");
    let roots = vec![work.path().to_owned()];
    let away: McpServerConfig =
        toml::from_str("url = \"http://127.0.0.1:9/mcp\"\nopen_timeout_secs = 1")
            .expect("a server");
    let lab = Lab::start_with(&[], |config, _| {
        config.mcp.roots = roots;
        config.mcp.servers.insert("away".to_owned(), away);
    });
    limits::add(&lab, limits::key("somebody"));
    (lab, work)
}

fn send(lab: &Lab, key: &str, path: &str, body: &Value, headers: &[(&str, &str)]) -> Reply {
    let mut lines = "accept: application/json, text/event-stream\r\n".to_owned();
    for (name, value) in headers {
        write!(lines, "{name}: {value}\r\n").expect("text");
    }
    lab.post_as(key, path, &body.to_string(), &lines)
}

fn initialize(lab: &Lab, key: &str, path: &str) -> (Value, String) {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let reply = send(lab, key, path, &body, &[]);
    assert_eq!(reply.status, 200, "{}", reply.text());
    let session = reply.header("mcp-session-id").expect("a session");
    (reply.json(), session.to_owned())
}

/// A client of one of the eras.
enum Client {
    Legacy { session: String },
    Modern { key: String },
}

impl Client {
    fn ask(&self, lab: &Lab, method: &str, mut params: Value) -> Value {
        let name = params["name"].as_str().unwrap_or_default().to_owned();
        let mut headers = Vec::new();
        match self {
            Self::Legacy { session } => {
                headers.push(("mcp-session-id", session.as_str()));
                headers.push(("mcp-protocol-version", "2025-11-25"));
            }
            Self::Modern { .. } => {
                params["_meta"] = json!({
                    format!("{META}/protocolVersion"): "2026-07-28",
                    format!("{META}/clientCapabilities"): {},
                });
                headers.push(("mcp-protocol-version", "2026-07-28"));
                headers.push(("mcp-method", method));
                headers.push(("mcp-name", &name));
            }
        }
        headers.retain(|(_, value)| !value.is_empty());
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": method, "params": params });
        let key = match self {
            Self::Legacy { .. } => KEY,
            Self::Modern { key } => key,
        };
        let reply = send(lab, key, OWN, &body, &headers);
        assert_eq!(reply.status, 200, "{method}: {}", reply.text());
        reply.json()["result"].clone()
    }
}

#[test]
fn strangers_are_refused_before_mcp() {
    let (lab, _work) = stage();
    let local = "host: localhost\r\n";
    let key = format!("authorization: Bearer {KEY}\r\n");
    let somebody = "authorization: Bearer somebody\r\n".to_owned();
    let json = "content-type: application/json\r\n";
    let cases = [
        ("POST", OWN, format!("{local}{json}"), 401),
        (
            "POST",
            OWN,
            format!("{local}{json}authorization: Bearer wrong\r\n"),
            401,
        ),
        (
            "POST",
            OWN,
            format!("host: evil.example\r\n{json}{key}"),
            403,
        ),
        (
            "POST",
            OWN,
            format!("{local}origin: http://evil.example\r\n{json}{key}"),
            403,
        ),
        (
            "POST",
            GATEWAY,
            format!("{local}origin: null\r\n{json}{key}"),
            403,
        ),
        (
            "POST",
            OWN,
            format!("{local}content-type: text/plain\r\n{key}"),
            415,
        ),
        ("POST", OWN, format!("{local}{json}{somebody}"), 403),
        ("GET", OWN, format!("{local}{key}"), 400),
        ("DELETE", GATEWAY, format!("{local}{somebody}"), 400),
        ("PUT", OWN, format!("{local}{json}{key}"), 405),
    ];
    for (method, path, head, status) in cases {
        let raw = format!(
            "{method} {path} HTTP/1.1\r\n{head}connection: close\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        let reply = lab.raw(raw.as_bytes());
        assert_eq!(
            reply.status,
            status,
            "{method} {path} {head}: {}",
            reply.text()
        );
    }
    let raw = format!(
        "POST {OWN} HTTP/1.1\r\n{local}{json}{key}connection: close\r\ncontent-length: {}\r\n\r\n",
        (16 << 20) + 1
    );
    assert_eq!(lab.raw(raw.as_bytes()).status, 413);
}

#[test]
fn a_session_is_of_one_key() {
    let (lab, _work) = stage();
    let (_, session) = initialize(&lab, KEY, GATEWAY);
    let ping = json!({ "jsonrpc": "2.0", "id": 1, "method": "ping" });
    let headers = [("mcp-session-id", session.as_str())];
    let status = |key| send(&lab, key, GATEWAY, &ping, &headers).status;
    assert_eq!(status("somebody"), 404);
    assert_eq!(status(KEY), 200);
    // The other server knows nothing of it either.
    assert_eq!(send(&lab, KEY, OWN, &ping, &headers).status, 404);
}

#[test]
fn runs_are_started_in_both_eras_and_only_below_the_roots() {
    let (lab, work) = stage();
    let (answer, session) = initialize(&lab, KEY, OWN);
    assert_eq!(answer["result"]["serverInfo"]["name"], "abp");
    let outside = lab.dir.path().to_str().expect("a path").to_owned();
    let inside = work.path().join("project");
    let inside = inside.to_str().expect("a path");
    let key = KEY.to_owned();
    for client in [Client::Legacy { session }, Client::Modern { key }] {
        let call = |arguments: Value| {
            let params = json!({ "name": "abp_run", "arguments": arguments });
            client.ask(&lab, "tools/call", params)
        };
        let run = |root: &str| call(json!({ "task": "hello", "root": root, "wait": true }));
        let listed = client.ask(&lab, "tools/list", json!({}));
        assert_eq!(listed["tools"].as_array().map(Vec::len), Some(7));
        for root in ["project", inside] {
            let ended = run(root);
            assert_eq!(
                ended["structuredContent"]["outcome"], "complete",
                "{ended:#}"
            );
        }
        for root in [outside.as_str(), "..", "project/../..", "missing", "/"] {
            let refused = run(root);
            assert_eq!(refused["isError"], true, "{root}: {refused:#}");
        }
        // There is no word for a program, an address or a setting.
        for word in ["command", "base_url", "env", "workspace_mode"] {
            let refused = call(json!({ "task": "hello", word: "x" }));
            assert_eq!(refused["isError"], true, "{word}: {refused:#}");
        }
    }
}

/// A run that a client started is its key's: it is queued, goes on without the client, and no other key can
/// look at it or cancel it.
#[test]
fn runs_belong_to_the_key_of_their_client() {
    let (lab, _work) = stage();
    let scopes = [KeyScope::RunsRead, KeyScope::RunsWrite];
    let client = |name: &str, scopes: &[KeyScope]| {
        let key = lab.key(name, scopes);
        Client::Modern { key }
    };
    let (own, other) = (client("own", &scopes), client("other", &scopes));
    let reader = client("reader", &[KeyScope::RunsRead]);
    let call = |client: &Client, name: &str, arguments: Value| {
        let params = json!({ "name": name, "arguments": arguments });
        client.ask(&lab, "tools/call", params)
    };
    let started = call(&own, "abp_run", json!({ "task": "hello" }));
    let started = &started["structuredContent"];
    assert_eq!(started["status"], "queued", "{started:#}");
    let run = json!({ "run_id": started["run_id"] });
    let deadline = Instant::now() + Duration::from_secs(30);
    while call(&own, "abp_status", run.clone())["structuredContent"]["status"] != "ended" {
        assert!(Instant::now() < deadline, "the run did not end");
        std::thread::sleep(Duration::from_millis(20));
    }
    for tool in ["abp_status", "abp_cancel", "abp_receipt", "abp_verify"] {
        let refused = call(&other, tool, run.clone());
        assert_eq!(refused["isError"], true, "{tool}: {refused:#}");
        assert_eq!(call(&own, tool, run.clone())["isError"], false, "{tool}");
    }
    let listed = |client: &Client| {
        let listed = client.ask(&lab, "resources/list", json!({}));
        listed["resources"].as_array().map(Vec::len)
    };
    assert_eq!((listed(&own), listed(&other)), (Some(3), Some(0)));
    assert_eq!(
        call(&reader, "abp_run", json!({ "task": "hello" }))["isError"],
        true
    );
}
