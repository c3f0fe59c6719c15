//! The tools and resources of the backplane as an MCP server, as a client uses them.

use std::sync::Arc;
use std::time::Duration;

use abp_control::{ABP_INSTRUCTIONS, AbpServer, mcp_offer};
use abp_mcp::{ConnectionOptions, McpConnection, McpSession, Profile, StateKey, serve_lines};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, DuplexStream};

use crate::lab::Lab;

/// A client at one end of a pipe.
struct Client {
    stream: BufReader<DuplexStream>,
    last_id: u64,
    notices: Vec<Value>,
}

impl Client {
    async fn connect(server: &Arc<AbpServer>) -> Self {
        let (near, far) = tokio::io::duplex(1 << 20);
        let session = Arc::clone(server) as Arc<dyn McpSession>;
        let options = ConnectionOptions {
            principal: String::new(),
            state_key: StateKey::random().unwrap(),
            request_timeout: Duration::from_secs(60),
            max_requests: 8,
        };
        let offer = mcp_offer(Profile::Strict, ABP_INSTRUCTIONS);
        let connection = McpConnection::new(session, offer, options);
        let (reader, writer) = tokio::io::split(far);
        tokio::spawn(serve_lines(connection, reader, writer));
        let mut client = Self {
            stream: BufReader::new(near),
            last_id: 0,
            notices: Vec::new(),
        };
        let params = json!({
            "protocolVersion": "2025-11-25", "capabilities": {},
            "clientInfo": {"name": "test", "version": "1"},
        });
        client.ask("initialize", params).await;
        client
            .send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
            .await;
        client
    }

    async fn send(&mut self, message: &Value) {
        let line = format!("{message}\n");
        self.stream.write_all(line.as_bytes()).await.unwrap();
    }

    async fn ask(&mut self, method: &str, params: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&message).await;
        loop {
            let mut line = String::new();
            self.stream.read_line(&mut line).await.unwrap();
            let message: Value = serde_json::from_str(&line).unwrap();
            if message["id"] == id {
                return message;
            }
            self.notices.push(message);
        }
    }

    /// Calls a tool: what it gave, and whether that is an error.
    async fn call(&mut self, name: &str, arguments: Value) -> (Value, bool) {
        let params = json!({
            "name": name, "arguments": arguments, "_meta": {"progressToken": "p"},
        });
        let answer = self.ask("tools/call", params).await;
        let result = &answer["result"];
        let is_error = result["isError"].as_bool();
        let text = result["content"][0]["text"].as_str().unwrap_or("null");
        let text: Value = serde_json::from_str(text).unwrap();
        assert_eq!(text, result["structuredContent"], "both forms say the same");
        (
            result["structuredContent"].clone(),
            is_error.unwrap_or_else(|| panic!("{answer}")),
        )
    }
}

async fn ended(client: &mut Client) -> Value {
    let arguments = json!({"task": "write", "backend": "writer", "wait": true});
    let (ran, is_error) = client.call("abp_run", arguments).await;
    assert!(!is_error, "{ran}");
    ran
}

#[tokio::test]
async fn runs_are_started_followed_and_verified() {
    let lab = Lab::new(&["a.txt"], json!({}));
    let server = AbpServer::new(lab.plane.clone(), &[lab.source()]).unwrap();
    let mut client = Client::connect(&server).await;
    let ran = ended(&mut client).await;
    assert_eq!(
        (&ran["status"], &ran["outcome"]),
        (&json!("ended"), &json!("complete"))
    );
    assert_eq!(ran["receipt_sha256"].as_str().map(str::len), Some(64));
    let progress = |notice: &&Value| notice["method"] == "notifications/progress";
    let told = client.notices.iter().find(progress).expect("progress");
    assert_eq!(told["params"]["progressToken"], "p");
    assert!(told["params"]["progress"].as_u64() > Some(0), "{told}");

    let run_id = &ran["run_id"];
    let (status, _) = client.call("abp_status", json!({"run_id": run_id})).await;
    assert_eq!(
        (&status["status"], &status["backend"]),
        (&json!("ended"), &json!("writer"))
    );
    assert!(
        status["ended_at"].is_string() && status["outcome"] == "complete",
        "{status}"
    );
    let (cancelled, _) = client.call("abp_cancel", json!({"run_id": run_id})).await;
    assert_eq!(cancelled["cancelled"], false);
    let (receipt, _) = client.call("abp_receipt", json!({"run_id": run_id})).await;
    assert_eq!(receipt["meta"]["run_id"], *run_id);
    let (verdict, _) = client.call("abp_verify", json!({"run_id": run_id})).await;
    assert_eq!(verdict["verdict"], "proven");
    assert_eq!(verdict["problems"], json!([]));
    let forged = receipt.to_string().replacen("writer", "forger", 1);
    let (verdict, _) = client.call("abp_verify", json!({"receipt": forged})).await;
    assert_eq!(verdict["verdict"], "wrong");
    assert_ne!(verdict["problems"], json!([]));
    let (listed, _) = client.call("abp_backends", json!({})).await;
    let names: Vec<_> = listed["backends"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| &one["name"])
        .collect();
    assert!(
        names.contains(&&json!("writer")) && names.contains(&&json!("mock")),
        "{names:?}"
    );

    let resources = client.ask("resources/list", json!({})).await;
    let resources = resources["result"]["resources"].as_array().unwrap().clone();
    let kinds: Vec<_> = resources
        .iter()
        .map(|one| one["mimeType"].as_str().unwrap())
        .collect();
    assert_eq!(
        kinds,
        ["application/x-ndjson", "text/x-diff", "application/json"]
    );
    let mut texts = Vec::new();
    for resource in &resources {
        let read = client
            .ask("resources/read", json!({"uri": resource["uri"]}))
            .await;
        let content = &read["result"]["contents"][0];
        assert_eq!(content["mimeType"], resource["mimeType"]);
        texts.push(content["text"].as_str().unwrap().to_owned());
    }
    let events: Vec<Value> = texts[0]
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(events.first().unwrap()["type"], "run_started");
    assert_eq!(events.last().unwrap()["type"], "run_completed");
    assert!(texts[1].contains("+++ b/a.txt"));
    assert_eq!(serde_json::from_str::<Value>(&texts[2]).unwrap(), receipt);
    let templates = client.ask("resources/templates/list", json!({})).await;
    let templates = templates["result"]["resourceTemplates"].as_array().unwrap();
    assert_eq!(templates[1]["uriTemplate"], "abp://runs/{run_id}/diff");
    server.finish().await;
}

/// What a client gets wrong is told, and nothing is started by it.
#[tokio::test]
async fn what_is_not_understood_is_refused() {
    let lab = Lab::new(&["a.txt"], json!({}));
    std::fs::write(lab.source().join("file"), "").unwrap();
    std::fs::create_dir(lab.home.path().join("other")).unwrap();
    let server = AbpServer::new(lab.plane.clone(), &[lab.source()]).unwrap();
    assert!(AbpServer::new(lab.plane.clone(), &[lab.home.path().join("none")]).is_err());
    let mut client = Client::connect(&server).await;
    let unknown_run = "0190a5c8-0000-7000-8000-000000000000";
    let refused = [
        ("abp_run", json!({}), "task is missing"),
        ("abp_run", json!({"task": ""}), "task is missing"),
        ("abp_run", json!({"task": "t", "taks": 1}), "takes no"),
        (
            "abp_run",
            json!({"task": "t", "wait": "yes"}),
            "wait is no boolean",
        ),
        (
            "abp_run",
            json!({"task": "t", "timeout_secs": 0}),
            "timeout_secs",
        ),
        (
            "abp_run",
            json!({"task": "t", "timeout_secs": 86_401}),
            "timeout_secs",
        ),
        (
            "abp_run",
            json!({"task": "t", "root": ".."}),
            "no directory below",
        ),
        (
            "abp_run",
            json!({"task": "t", "root": "file"}),
            "no directory below",
        ),
        (
            "abp_run",
            json!({"task": "t", "root": "../other"}),
            "no directory below",
        ),
        (
            "abp_run",
            json!({"task": "t", "policy": "none"}),
            "no policy is named",
        ),
        (
            "abp_run",
            json!({"task": "t", "backend": "none"}),
            "no backend is named",
        ),
        ("abp_status", json!({"run_id": unknown_run}), "no run is"),
        ("abp_receipt", json!({"run_id": unknown_run}), "no run is"),
        ("abp_cancel", json!({"run_id": unknown_run}), "no run is"),
        ("abp_verify", json!({}), "either run_id or receipt"),
        (
            "abp_verify",
            json!({"run_id": "a", "receipt": "b"}),
            "either run_id or receipt",
        ),
        (
            "abp_translate",
            json!({"from": "x", "to": "openai", "document": "{}"}),
            "no dialect",
        ),
        (
            "abp_translate",
            json!({"from": "claude", "to": "openai", "document": "{}", "kind": "k"}),
            "kind is one of",
        ),
    ];
    for (tool, arguments, expected) in refused {
        let (given, is_error) = client.call(tool, arguments.clone()).await;
        assert!(is_error, "{tool} {arguments}: {given}");
        let message = given["error"]["message"].as_str().unwrap();
        assert!(message.contains(expected), "{tool} {arguments}: {message}");
    }
    let store = lab.plane.store().await.unwrap();
    let runs = store
        .runs(&abp_store::RunFilter::default(), 10)
        .await
        .unwrap();
    assert!(runs.is_empty(), "{runs:?}");
}

/// Requests that are no call of a tool at all are errors of the protocol.
#[tokio::test]
async fn malformed_requests_are_errors_of_the_protocol() {
    let lab = Lab::new(&[], json!({}));
    let server = AbpServer::new(lab.plane.clone(), &[lab.source()]).unwrap();
    let mut client = Client::connect(&server).await;
    let unknown_run = "0190a5c8-0000-7000-8000-000000000000";
    for (method, params) in [
        ("tools/call", json!({"name": "abp_none"})),
        ("tools/call", json!({})),
        (
            "tools/call",
            json!({"name": "abp_backends", "arguments": []}),
        ),
        ("tools/list", json!({"cursor": "c"})),
        ("resources/read", json!({})),
        ("resources/read", json!({"uri": "abp://runs/x/events"})),
        (
            "resources/read",
            json!({"uri": format!("abp://runs/{unknown_run}/events")}),
        ),
        (
            "resources/read",
            json!({"uri": format!("abp://runs/{unknown_run}/other")}),
        ),
    ] {
        let answer = client.ask(method, params.clone()).await;
        assert!(
            answer["error"]["code"].is_i64(),
            "{method} {params}: {answer}"
        );
    }
    let tools = client.ask("tools/list", json!({})).await;
    assert_eq!(tools["result"]["tools"].as_array().map(Vec::len), Some(7));
}

#[tokio::test]
async fn documents_are_translated() {
    let lab = Lab::new(&[], json!({}));
    let server = AbpServer::new(lab.plane.clone(), &[lab.source()]).unwrap();
    let mut client = Client::connect(&server).await;
    let request =
        json!({"model": "m", "max_tokens": 5, "messages": [{"role": "user", "content": "Hi"}]});
    let answer = json!({
        "id": "a", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
        "content": [{"type": "text", "text": "Hello"}], "usage": {"input_tokens": 1, "output_tokens": 1},
    });
    let error = json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow"}});
    for (kind, document, expected) in [
        (None, &request, "\"Hi\""),
        (Some("request"), &request, "\"Hi\""),
        (Some("response"), &answer, "choices"),
        (Some("error"), &error, "slow"),
    ] {
        let mut arguments =
            json!({"from": "claude", "to": "openai", "document": document.to_string()});
        if let Some(kind) = kind {
            arguments["kind"] = json!(kind);
        }
        let (given, is_error) = client.call("abp_translate", arguments).await;
        assert!(!is_error, "{given}");
        assert!(
            given["output"].as_str().unwrap().contains(expected),
            "{kind:?}: {given}"
        );
        assert!(
            given["ledger"].is_array() && !given["fidelity"].is_null(),
            "{given}"
        );
    }
}
