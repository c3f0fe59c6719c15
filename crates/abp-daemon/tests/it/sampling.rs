//! MCP servers that sample from the daemon's models, because their client has none.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use abp_config::{McpSamplingConfig, McpServerConfig, UpstreamConfig};
use abp_core::MicroUsd;
use abp_dialect::Dialect;
use abp_store::NewApiKey;
use abp_testkit::{FakeVendor, Reply as Vendor, fixture};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::lab::{KEY, Lab, upstream};
use crate::limits::{add, key};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/mcp/server.py");
const META: &str = "io.modelcontextprotocol";
const EMULATED: &str = "dev.abp/emulated";
/// The longest answer that servers may have.
const MAX_TOKENS: u32 = 10_000;

/// A daemon with an MCP server behind it that asks whatever it is told to.
struct Stage {
    lab: Lab,
    server: Child,
    /// What the server has is in it.
    _dir: TempDir,
}

impl Drop for Stage {
    fn drop(&mut self) {
        drop(self.server.kill());
        drop(self.server.wait());
    }
}

impl Stage {
    /// `None` where there is no Python.
    fn start(payer: &str, upstreams: &[(&str, UpstreamConfig)]) -> Option<Self> {
        let dir = tempfile::tempdir().expect("a directory");
        let control = dir.path().join("control.json");
        let has = json!({ "capabilities": { "tools": {} } });
        std::fs::write(&control, has.to_string()).expect("a file");
        let server = Command::new("python3")
            .args([SERVER, "asks", "modern", ""])
            .arg(&control)
            .arg("http")
            .stdout(Stdio::piped())
            .spawn();
        let Ok(mut server) = server else {
            abp_testkit::skip("MCP servers that sample", "there is no python3");
            return None;
        };
        let mut port = String::new();
        let stdout = server.stdout.take().expect("its output");
        BufReader::new(stdout).read_line(&mut port).expect("a port");
        let address = format!("url = \"http://127.0.0.1:{}/mcp\"", port.trim());
        let address: McpServerConfig = toml::from_str(&address).expect("a server");
        let lab = Lab::start_with(upstreams, |config, _| {
            config.mcp.servers.insert("asks".to_owned(), address);
            config.mcp.emulate.sampling = Some(McpSamplingConfig {
                key: payer.to_owned(),
                models: vec!["mock".to_owned(), "priced".to_owned()],
                max_tokens: MAX_TOKENS,
                max_per_call: 1,
            });
            let price = abp_core::ModelPrice {
                input_usd_per_mtok: 1.0,
                output_usd_per_mtok: 1.0,
                ..abp_core::ModelPrice::default()
            };
            let table = [("*".to_owned(), price)].into();
            config.prices = [("table".to_owned(), table)].into();
        });
        Some(Self {
            lab,
            server,
            _dir: dir,
        })
    }

    /// What comes of a tool that asks a model.
    fn sample(&self, more: &Value) -> Value {
        let mut question = json!({
            "messages": [{ "role": "user", "content": { "type": "text", "text": "one two three" } }],
            "maxTokens": 1_000_000,
        });
        for (key, value) in more.as_object().expect("parameters") {
            question[key] = value.clone();
        }
        let question = json!({ "method": "sampling/createMessage", "params": question });
        let params = json!({
            "name": "ask",
            "arguments": { "questions": [question] },
            "_meta": {
                format!("{META}/protocolVersion"): "2026-07-28",
                format!("{META}/clientCapabilities"): {},
            },
        });
        let body = json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params });
        let headers = "accept: application/json, text/event-stream\r\n\
                       mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: ask\r\n";
        let reply = self
            .lab
            .post_as(KEY, "/mcp/gateway", &body.to_string(), headers);
        reply.json()
    }
}

fn with_budget(id: &str, micros: u64) -> NewApiKey {
    NewApiKey {
        budget: Some(MicroUsd::from_micros(micros)),
        ..key(id)
    }
}

#[test]
fn servers_sample_within_the_limits_of_a_key() {
    let Some(stage) = Stage::start("payer", &[]) else {
        return;
    };
    let refused = |more: &Value, why: &str| {
        let answer = stage.sample(more);
        let message = answer["error"]["message"].as_str();
        let message = message.unwrap_or_else(|| panic!("{answer}"));
        assert!(message.contains(why), "{message}");
    };
    refused(&json!({}), "the key payer is not valid");
    add(&stage.lab, with_budget("payer", 1_000_000));
    let cases = [
        (json!({}), "You said: one two three", "endTurn"),
        (json!({ "maxTokens": 3 }), "You said: one", "maxTokens"),
        (
            json!({ "stopSequences": [" two"] }),
            "You said: one",
            "stopSequence",
        ),
    ];
    for (more, words, stop) in cases {
        let answer = stage.sample(&more);
        assert_eq!(
            answer["result"]["_meta"][EMULATED],
            json!(["sampling"]),
            "{answer}"
        );
        let sample = &answer["result"]["structuredContent"]["q0"];
        assert_eq!(sample["content"]["text"], words);
        let record = sample["_meta"][EMULATED]["record"]
            .as_str()
            .expect("a record");
        let receipt = stage.lab.get(&format!("/v1/receipts/{record}"));
        assert_eq!(receipt.status, 200, "{}", receipt.text());
        assert_eq!(
            (&sample["model"], &sample["stopReason"]),
            (&json!("mock"), &json!(stop))
        );
    }
    // A name that is not among the models is a wish like any other.
    let hint = json!({ "modelPreferences": { "hints": [{ "name": "mock-error-429" }] } });
    assert_eq!(
        stage.sample(&hint)["result"]["structuredContent"]["q0"]["model"],
        "mock"
    );
    refused(
        &json!({ "temperature": "hot" }),
        "temperature is not a number",
    );
}

#[test]
fn a_key_without_a_budget_pays_nothing() {
    let Some(stage) = Stage::start("generous", &[]) else {
        return;
    };
    add(&stage.lab, key("generous"));
    let answer = stage.sample(&json!({}));
    let message = answer["error"]["message"].as_str().expect("a refusal");
    assert!(message.contains("has no budget"), "{message}");
}

/// A model is asked through another dialect, by as many servers at once as there is money for.
#[test]
fn servers_that_sample_at_once_cannot_overspend() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let slow = Vendor::json(answer)
        .in_chunks(64)
        .every(Duration::from_millis(100));
    let vendor = FakeVendor::start(slow).expect("a vendor");
    let mut up = upstream(Dialect::OpenAi, &vendor);
    up.prices = Some("table".to_owned());
    up.models = vec!["priced".to_owned()];
    let Some(stage) = Stage::start("poor", &[("up", up)]) else {
        return;
    };
    // One answer of the greatest length, and not two.
    let budget = u64::from(MAX_TOKENS) + u64::from(MAX_TOKENS) / 2;
    add(&stage.lab, with_budget("poor", budget));
    let wanted = json!({ "modelPreferences": { "hints": [{ "name": "priced" }] } });
    let answers: Vec<Value> = std::thread::scope(|scope| {
        let asking: Vec<_> = (0..12)
            .map(|_| scope.spawn(|| stage.sample(&wanted)))
            .collect();
        let answers = asking.into_iter().map(std::thread::ScopedJoinHandle::join);
        answers.map(|answer| answer.expect("an answer")).collect()
    });
    let sampled = answers.iter().filter(|answer| answer["result"].is_object());
    assert_eq!(sampled.count(), vendor.requests().len(), "{answers:?}");
    let without_room = answers.iter().filter(|answer| {
        let message = answer["error"]["message"].as_str();
        message.is_some_and(|message| message.contains("budget has no room"))
    });
    assert_eq!(
        without_room.count() + vendor.requests().len(),
        12,
        "{answers:?}"
    );
    assert!(vendor.requests().len() < 12);
    let state = stage.lab.block_on(stage.lab.gateway.store().budget("poor"));
    let state = state.expect("readable").expect("an account");
    assert!(
        state.spent + state.reserved <= MicroUsd::from_micros(budget),
        "{state:?}"
    );
}
