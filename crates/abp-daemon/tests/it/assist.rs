//! One run, as its senders get it.

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use abp_config::{BackendConfig, Config};
use abp_core::{CancelReason, MicroUsd, Outcome, PacketOp, Receipt, StreamPacket};
use abp_dialect::Dialect;
use abp_store::{KeyScope, NewApiKey};
use abp_testkit::{FakeVendor, Reply as Vendor};
use serde_json::{Value, json};
use tempfile::TempDir;
use uuid::Uuid;

use crate::lab::{KEY, Lab, Reply, upstream};
use crate::limits;

const CITATIONS: &str = "CITATION_BLOCK";

/// A daemon whose usual backend plays these steps.
pub(crate) fn stage(steps: &Value) -> (Lab, TempDir) {
    stage_with(steps, |_| {})
}

/// The same with other settings.
pub(crate) fn stage_with(steps: &Value, change: impl FnOnce(&mut Config)) -> (Lab, TempDir) {
    let dir = tempfile::tempdir().expect("a directory");
    let script = dir.path().join("script.json");
    let content = json!({ "name": "story", "steps": steps }).to_string();
    std::fs::write(&script, content).expect("a script");
    let lab = Lab::start_with(&[], |config, _| {
        let story = BackendConfig::Mock {
            script: Some(script),
            priority: None,
        };
        config.backends.insert("story".to_owned(), story);
        config.default_backend = Some("story".to_owned());
        config.server.keepalive_secs = 1;
        config.control.assist_reattach_secs = 1;
        change(config);
    });
    (lab, dir)
}

/// Some of everything that clients differ in.
fn story() -> Value {
    let block = |block_type: &str, data: Value| json!({ "do": "emit", "event": { "type": "content_block", "block_type": block_type, "data": data } });
    let source = json!({ "source_id": "s", "uri": "https://example.org/s", "title": "Sales" });
    let half = json!({ "label": "Reading", "status": "running", "progress_percent": 0.5 });
    json!([
        { "do": "think", "text": "The figures first." },
        block("PROGRESS_INDICATOR", half),
        { "do": "write", "path": "notes.md", "content": "north\n" },
        { "do": "say", "text": "Sales **grew**, see [the report](https://example.org/r)." },
        block("citation_block", json!({ "citations": [source] })),
    ])
}

fn request(more: &Value) -> String {
    let mut request =
        json!({ "session_id": Uuid::nil(), "payload": { "input": "how are sales?" } });
    for (name, value) in more.as_object().into_iter().flatten() {
        request[name] = value.clone();
    }
    request.to_string()
}

fn assist(lab: &Lab, headers: &str, body: &str) -> Reply {
    lab.post_as(KEY, "/v1/assist", body, headers)
}

/// The packets of a stream, which are what they say they are.
fn packets(reply: &Reply) -> Vec<StreamPacket> {
    assert_eq!(reply.status, 200, "{}", reply.text());
    assert_eq!(reply.header("content-type"), Some("text/event-stream"));
    let id = reply.header("x-abp-run-id").expect("a run id");
    let text = reply.text();
    let frames = text
        .split_terminator("\n\n")
        .filter(|frame| !frame.starts_with(':'));
    let packets: Vec<StreamPacket> = frames
        .map(|frame| {
            let head = format!("event: stream.packet\nid: {id}\ndata: ");
            let data = frame
                .strip_prefix(&head)
                .unwrap_or_else(|| panic!("{frame}"));
            serde_json::from_str(data).expect("a packet")
        })
        .collect();
    check_order(&packets);
    packets
}

fn check_order(packets: &[StreamPacket]) {
    let mut before = None;
    for packet in packets {
        packet.check(before).expect("in order");
        before = Some(packet);
    }
    assert_eq!(before.map(|last| last.op), Some(PacketOp::Close));
}

fn words(packets: &[StreamPacket]) -> String {
    let deltas = packets.iter().filter(|packet| packet.op == PacketOp::Delta);
    deltas.filter_map(|packet| packet.p.as_str()).collect()
}

fn types(packets: &[StreamPacket]) -> Vec<&str> {
    let types = packets
        .iter()
        .filter_map(|packet| packet.p["type"].as_str());
    types.collect()
}

/// Each client gets what it can take, and the receipt has what was changed for it.
#[test]
fn one_run_as_each_client_can_take_it() {
    let (lab, _dir) = stage(&story());
    let web = json!({ "supported_events": [CITATIONS, "PROGRESS_INDICATOR", "THOUGHT_TRACE"] });
    let cli = json!({ "supported_events": ["PROGRESS_INDICATOR"] });
    let voice = json!({ "supported_events": [], "prefers_markdown": false });
    let markdown = "Sales **grew**, see [the report](https://example.org/r).";
    let plain = "Sales grew, see the report (https://example.org/r).";
    // What it says, what it hears, its blocks, and whether it hears thoughts.
    let cases = [
        (
            Value::Null,
            markdown,
            vec!["PROGRESS_INDICATOR", CITATIONS],
            true,
        ),
        (web, markdown, vec!["PROGRESS_INDICATOR", CITATIONS], true),
        (cli, markdown, vec!["PROGRESS_INDICATOR"], false),
        (voice, plain, vec![], false),
    ];
    for (capabilities, text, blocks, hears_thoughts) in cases {
        let reply = assist(&lab, "", &request(&json!({ "capabilities": capabilities })));
        let packets = packets(&reply);
        assert_eq!(words(&packets), text, "{capabilities}");
        let told = types(&packets);
        let is_block = |kind: &&str| kind.chars().all(|c| c.is_uppercase() || c == '_');
        let shown: Vec<_> = told.iter().copied().filter(is_block).collect();
        assert_eq!(shown, blocks, "{capabilities}");
        assert_eq!(
            told.contains(&"thinking_delta"),
            hears_thoughts,
            "{capabilities}"
        );
        assert_eq!(told.last(), Some(&"receipt"));

        let receipt: Receipt = serde_json::from_value(lab.receipt(&reply)).expect("a receipt");
        let adapted: Vec<_> = packets
            .iter()
            .filter(|packet| packet.p["type"] == "adapted")
            .map(|packet| packet.p["adaptation"].clone())
            .collect();
        assert_eq!(json!(receipt.adaptations), json!(adapted), "{capabilities}");
        assert_eq!(adapted.is_empty(), blocks.len() == 2, "{capabilities}");
        // The agent began with nothing, and nothing of it is left here.
        let workspace = receipt.workspace.expect("a workspace");
        assert_eq!(
            (
                workspace.files,
                workspace.changes.map(|one| one.files_changed)
            ),
            (Some(0), Some(1))
        );
        let stages = lab.dir.path().join("state/stages");
        let left = || std::fs::read_dir(&stages).map_or(0, Iterator::count);
        let deadline = Instant::now() + Duration::from_secs(5);
        while left() > 0 {
            assert!(Instant::now() < deadline, "a workspace is left");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// Body over header over `Accept`, field by field; who said it is in the first event.
#[test]
fn the_best_source_counts_for_each_field() {
    let (lab, _dir) = stage(&json!([{ "do": "say", "text": "**hi**" }]));
    let said = "x-abp-client-capabilities: {\"image_resolution\": \"low\", \"prefers_markdown\": false, \"later\": 1}\r\n";
    let plain = "accept: text/event-stream, text/plain;q=0.5\r\n";
    let origins = |events: &str, markdown: &str, images: &str| json!({ "supported_events": events, "prefers_markdown": markdown, "image_resolution": images });
    let cases = [
        (String::new(), Value::Null, None, "**hi**"),
        (
            plain.to_owned(),
            Value::Null,
            Some(origins("accept", "accept", "default")),
            "hi",
        ),
        (
            said.to_owned(),
            Value::Null,
            Some(origins("default", "header", "header")),
            "hi",
        ),
        (
            format!("{said}{plain}"),
            json!({ "prefers_markdown": true, "haptics": {} }),
            Some(origins("accept", "body", "header")),
            "**hi**",
        ),
    ];
    for (headers, capabilities, origins, text) in cases {
        let body = request(&json!({ "capabilities": capabilities, "newer": [1] }));
        let packets = packets(&assist(&lab, &headers, &body));
        let client = &packets[0].p["ext"]["client"]["origins"];
        assert_eq!(client, &json!(origins), "{headers}");
        assert_eq!(words(&packets), text, "{headers}");
    }
}

/// The place of a request among others is in the receipt, with everything the client attached; what of
/// its payload nothing is made from is said.
#[test]
fn the_lineage_of_a_request_is_kept() {
    let (lab, _dir) = stage(&json!([{ "do": "say", "text": "Fine." }]));
    let ids = [1, 2, 3, 4].map(Uuid::from_u128);
    let whole = json!({
        "request_id": ids[0], "session_id": ids[1], "root_request_id": ids[2],
        "parent_request_id": ids[3], "timestamp": "2026-02-03T04:05:06.789Z",
        "metadata": { "tenant": "north", "attempt": 2, "large": 9_007_199_254_740_993_u64 },
    });
    let body = request(&json!({
        "request_id": ids[0], "session_id": ids[1], "root_request_id": ids[2],
        "parent_request_id": ids[3], "timestamp": whole["timestamp"],
        "metadata": whole["metadata"],
        "payload": { "input": "how are sales?", "mood": "curious" },
    }));
    let reply = assist(&lab, "", &body);
    let packets = packets(&reply);
    let warned = packets.iter().any(|packet| {
        let message = packet.p["message"].as_str().unwrap_or_default();
        message.contains("not given to the agent: mood")
    });
    assert!(warned, "{packets:?}");
    let receipt = lab.receipt(&reply);
    let mut expected = whole;
    // Canonical JSON has no such number.
    expected["metadata"]["large"] = json!("9007199254740993");
    assert_eq!(receipt["meta"]["lineage"], expected);
    let own = request(&json!({ "request_id": ids[0] }));
    let receipt = lab.receipt(&assist(&lab, "", &own));
    assert_eq!(receipt["meta"]["lineage"]["root_request_id"], json!(ids[0]));
    assert_eq!(receipt["meta"]["lineage"]["parent_request_id"], Value::Null);
}

/// What is wrong is said with its place, before anything is run.
#[test]
fn what_cannot_be_run_is_refused() {
    let (lab, _dir) = stage(&json!([]));
    let capabilities = |wrong: Value| request(&json!({ "capabilities": wrong }));
    let payload = |payload: Value| request(&json!({ "payload": payload }));
    let markdown = capabilities(json!({ "prefers_markdown": "yes" }));
    let events = capabilities(json!({ "supported_events": ["A", 2] }));
    let orphan = request(&json!({ "parent_request_id": Uuid::nil() }));
    let good = request(&Value::Null);
    let header = "x-abp-client-capabilities: {\"prefers_markdown\": 1}\r\n";
    let agui = json!({ "threadId": "t", "runId": "r", "messages": [{ "role": "system", "content": "be brief" }] });
    let cases = [
        ("", "{", 400, "not valid JSON"),
        (
            "",
            markdown.as_str(),
            400,
            "at /capabilities/prefers_markdown",
        ),
        (
            "",
            events.as_str(),
            400,
            "at /capabilities/supported_events/1",
        ),
        ("", orphan.as_str(), 400, "root_request_id"),
        (
            "",
            &payload(json!({ "input": " " })),
            400,
            "/payload/input is empty",
        ),
        (
            "",
            &payload(json!({ "input": 7 })),
            400,
            "at /payload/input",
        ),
        (
            "",
            &payload(json!({ "input": "a", "backend": "sh -c id" })),
            404,
            "sh -c id",
        ),
        (
            "",
            &agui.to_string(),
            400,
            "/messages has no text of the user",
        ),
        (
            header,
            good.as_str(),
            400,
            "X-ABP-Client-Capabilities: at /prefers_markdown",
        ),
    ];
    for (headers, body, status, says) in cases {
        let reply = assist(&lab, headers, body);
        assert_eq!(reply.status, status, "{body}: {}", reply.text());
        let error = &reply.json()["error"];
        let message = error["message"].as_str().expect("a message");
        assert!(message.contains(says), "{body}: {message}");
        assert!(error["code"].is_string());
    }
    assert_eq!(lab.post_as("nobody", "/v1/assist", &good, "").status, 401);
}

/// Nothing but what the operator serves; and a key that may, unless it has a budget that would not count.
#[test]
fn models_are_the_operators_and_keys_need_the_scope() {
    let vendor = FakeVendor::start(Vendor::json("{}")).expect("a vendor");
    let mut up = upstream(Dialect::OpenAi, &vendor);
    up.models = vec!["served-*".to_owned()];
    let lab = Lab::start(&[("up", up)]);
    for (model, status) in [("served-1", 200), ("mock", 200), ("other", 404)] {
        let payload = json!({ "input": "hi", "model": model, "workspace": { "root": "/etc" } });
        let reply = assist(&lab, "", &request(&json!({ "payload": payload })));
        assert_eq!(reply.status, status, "{model}: {}", reply.text());
    }
    let with = |id: &str, scopes: &[KeyScope], budget: Option<MicroUsd>| {
        let scopes = scopes.to_vec();
        limits::add(
            &lab,
            NewApiKey {
                scopes,
                budget,
                ..limits::key(id)
            },
        );
    };
    let budget = Some(MicroUsd::from_micros(1));
    with("guest", &KeyScope::USUAL, None);
    with("asker", &[KeyScope::Models], None);
    with("spender", &KeyScope::USUAL, budget);
    with("trusted", &[KeyScope::Assist, KeyScope::RunsWrite], budget);
    for (key, status) in [
        ("guest", 200),
        ("asker", 403),
        ("spender", 403),
        ("trusted", 200),
    ] {
        let reply = lab.post_as(key, "/v1/assist", &request(&Value::Null), "");
        assert_eq!(reply.status, status, "{key}: {}", reply.text());
    }
}

/// A run is its key's: it is queued as any other, shown to no other key, and its request sent again gets
/// the same answer from the start.
#[test]
fn a_request_that_is_sent_again_gets_its_run() {
    let (lab, _dir) = stage(&story());
    let own = lab.key("own", &[KeyScope::Assist, KeyScope::RunsRead]);
    let other = lab.key("other", &[KeyScope::Assist, KeyScope::RunsRead]);
    let body = request(&Value::Null);
    let agui = json!({ "threadId": "t", "runId": "r", "messages": [{ "role": "user", "content": "hi" }],
                       "forwardedProps": { "backend": "story" } });
    for (name, body) in [("packets", body), ("agui", agui.to_string())] {
        let headers = format!("idempotency-key: {name}\r\n");
        let first = lab.post_as(&own, "/v1/assist", &body, &headers);
        assert_eq!(first.status, 200, "{}", first.text());
        let again = lab.post_as(&own, "/v1/assist", &body, &headers);
        assert_eq!(again.text(), first.text(), "{name}");
        let run = first.header("x-abp-run-id").expect("a run").to_owned();
        assert_eq!(again.header("x-abp-run-id"), Some(run.as_str()));
        let look = |key| lab.call("GET", key, &format!("/v1/runs/{run}"), "", b"");
        assert_eq!(look(&own).json()["state"], "complete");
        assert_eq!(look(&other).status, 404);
        let others = lab.post_as(&other, "/v1/assist", &body, &headers);
        assert_ne!(others.header("x-abp-run-id"), Some(run.as_str()), "{name}");
    }
}

/// A sender that comes back in time finds its run going on, and the run ends as if nothing had happened.
#[test]
fn a_sender_that_comes_back_finds_its_run() {
    let steps = json!([
        { "do": "say", "text": "hi" }, { "do": "sleep", "ms": 1_500 }, { "do": "say", "text": " there" }
    ]);
    let (lab, _dir) = stage(&steps);
    let body = request(&Value::Null);
    let mut stream = lab.connect();
    stream
        .write_all(request_head("text/event-stream", "idempotency-key: back\r\n", &body).as_bytes())
        .expect("a request");
    let mut begin = [0; 512];
    assert!(stream.read(&mut begin).expect("a beginning") > 0);
    drop(stream);
    let again = assist(&lab, "idempotency-key: back\r\n", &body);
    assert_eq!(words(&packets(&again)), "hi there");
    assert_eq!(receipt_of_run(&lab, 1).outcome, Outcome::Complete);
}

fn request_head(accept: &str, headers: &str, body: &str) -> String {
    format!(
        "POST /v1/assist HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\naccept: {accept}\r\n{headers}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// Where the operator says nothing, an agent may work in its directory and do nothing else.
#[test]
fn an_agent_may_not_do_what_nobody_allowed() {
    let call = json!({ "type": "tool_call", "tool_name": "Bash", "input": { "command": "id" } });
    let (lab, _dir) = stage(&json!([{ "do": "emit", "event": call }]));
    let packets = packets(&assist(&lab, "", &request(&Value::Null)));
    let fatal = packets
        .iter()
        .find(|packet| packet.p["severity"] == "fatal");
    assert_eq!(fatal.expect("an error").p["code"], "POLICY_DENIED");
}

/// In one piece, as words, and with a sign of life while nothing happens.
#[test]
fn the_same_run_in_other_forms() {
    let steps = json!([
        { "do": "say", "text": "**hi** there" },
        { "do": "sleep", "ms": 700 },
        { "do": "emit", "event": { "type": "thinking_delta", "text": "hm" } },
        { "do": "sleep", "ms": 700 },
        { "do": "fail", "code": "BACKEND_UNAVAILABLE", "message": "gone" },
    ]);
    let (lab, _dir) = stage(&steps);
    let body = request(&Value::Null);
    // Thoughts that it does not hear are no sign of life.
    let deaf = request(&json!({ "capabilities": {} }));
    let streamed = assist(&lab, "", &deaf);
    assert!(
        streamed.text().contains("\n\n: keep-alive\n\n"),
        "{}",
        streamed.text()
    );
    let streamed = packets(&streamed);
    let last: Vec<_> = streamed.iter().rev().take(2).collect();
    assert_eq!(
        (last[1].op, &last[1].p["severity"]),
        (PacketOp::Error, &json!("fatal"))
    );
    assert_eq!(last[1].p["code"], "BACKEND_UNAVAILABLE");

    let collected = assist(&lab, "accept: application/json\r\n", &deaf).json();
    let collected: Vec<StreamPacket> =
        serde_json::from_value(collected["packets"].clone()).expect("packets");
    check_order(&collected);
    let ops = |packets: &[StreamPacket]| packets.iter().map(|one| one.op).collect::<Vec<_>>();
    assert_eq!(ops(&collected), ops(&streamed));

    let plain = assist(&lab, "accept: text/plain\r\n", &body);
    assert_eq!(plain.text(), "hi there\nError: gone\n");
    let markdown = assist(&lab, "accept: text/markdown\r\n", &body);
    assert_eq!(markdown.text(), "**hi** there\nError: gone\n");
    assert_eq!(
        markdown.header("content-type"),
        Some("text/markdown; charset=utf-8")
    );
}

/// A sender that leaves and does not come back ends the run.
#[test]
fn a_sender_that_leaves_cancels_the_run() {
    let steps = json!([{ "do": "say", "text": "hi" }, { "do": "sleep", "ms": 60_000 }]);
    let (lab, _dir) = stage(&steps);
    for (number, accept) in [(1, "text/event-stream"), (2, "application/json")] {
        let body = request(&Value::Null);
        let mut stream = lab.connect();
        let head = request_head(accept, "", &body);
        stream.write_all(head.as_bytes()).expect("a request");
        if accept == "text/event-stream" {
            let mut begin = [0; 512];
            assert!(stream.read(&mut begin).expect("a beginning") > 0);
        } else {
            std::thread::sleep(Duration::from_millis(500));
        }
        drop(stream);
        let receipt = receipt_of_run(&lab, number);
        assert_eq!(receipt.outcome, Outcome::Cancelled, "{accept}");
        assert_eq!(
            receipt.cancel_reason,
            Some(CancelReason::Disconnect),
            "{accept}"
        );
    }
}

/// The receipt of the last of so many runs.
fn receipt_of_run(lab: &Lab, number: usize) -> Receipt {
    let store = lab.gateway.store();
    let deadline = Instant::now() + Duration::from_secs(10);
    loop {
        let receipts = lab.block_on(store.receipts(None, 10)).expect("receipts");
        if receipts.len() == number {
            let newest = lab
                .block_on(store.receipt(receipts[0].run_id))
                .expect("a receipt");
            return serde_json::from_slice(&newest.expect("a receipt").document)
                .expect("a receipt");
        }
        assert!(Instant::now() < deadline, "there is no receipt");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// An AG-UI client's input, and events in the order that its protocol demands.
#[test]
fn agui_events_open_and_close() {
    let (lab, _dir) = stage(&story());
    let input = json!({
        "threadId": "thread", "runId": "run", "tools": [{ "name": "confirm" }], "state": {},
        "messages": [
            { "id": "1", "role": "user", "content": "hello" },
            { "id": "2", "role": "assistant", "content": "hi" },
            { "id": "3", "role": "user", "content": [{ "type": "text", "text": "how are sales?" }] },
        ],
        "context": [{ "description": "place", "value": "north" }],
        "forwardedProps": { "capabilities": { "supported_events": ["THOUGHT_TRACE"] } },
    });
    let reply = assist(&lab, "accept: application/json\r\n", &input.to_string()).json();
    assert_eq!(reply["client"]["origins"]["supported_events"], "body");
    let events = reply["events"].as_array().expect("events");
    let names: Vec<_> = events
        .iter()
        .map(|event| {
            event["name"]
                .as_str()
                .or(event["type"].as_str())
                .expect("a name")
        })
        .filter(|name| !name.ends_with("_CONTENT"))
        .collect();
    let expected = [
        "RUN_STARTED",
        "abp.run",
        "abp.warning",
        "REASONING_START",
        "REASONING_MESSAGE_START",
        "REASONING_MESSAGE_END",
        "REASONING_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "TOOL_CALL_START",
        "TOOL_CALL_ARGS",
        "TOOL_CALL_END",
        "ACTIVITY_SNAPSHOT",
        "TOOL_CALL_RESULT",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "TEXT_MESSAGE_START",
        "TEXT_MESSAGE_END",
        "abp.adapted",
        "abp.adapted",
        "abp.receipt",
        "RUN_FINISHED",
    ];
    assert_eq!(names, expected);
    assert_eq!(
        (&events[0]["threadId"], &events[0]["runId"]),
        (&json!("thread"), &json!("run"))
    );

    // An agent request in the words of AG-UI, which is what it asks for.
    let accept = "accept: text/event-stream; profile=ag-ui\r\n";
    let reply = assist(&lab, accept, &request(&Value::Null)).text();
    let first = reply
        .strip_prefix("data: ")
        .and_then(|rest| rest.split_once("\n\n"));
    let first: Value = serde_json::from_str(first.expect("an event").0).expect("an event");
    assert_eq!(
        (&first["type"], &first["threadId"]),
        (&json!("RUN_STARTED"), &json!(Uuid::nil()))
    );
}

/// Runs are counted beside exchanges, for machines of either kind.
#[test]
fn runs_are_counted() {
    let (lab, _dir) = stage(&story());
    let before = lab.get("/metrics").text();
    assert!(!before.contains("backend=\"story\""), "{before}");
    assert_eq!(assist(&lab, "", &request(&json!({}))).status, 200);
    let text = lab.get("/metrics").text();
    let line = r#"abp_runs_total{backend="story",outcome="complete"} 1"#;
    assert!(text.lines().any(|told| told == line), "{text}");
    let raw = "GET /metrics HTTP/1.1\r\nhost: localhost\r\naccept: application/json\r\n\
               connection: close\r\n\r\n";
    let reply = lab.raw(raw.as_bytes());
    assert_eq!(reply.header("content-type"), Some("application/json"));
    let told = reply.json().to_string();
    assert!(told.contains("\"story\""), "{told}");
}
