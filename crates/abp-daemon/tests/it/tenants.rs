//! Keys that cannot hurt each other.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use abp_dialect::Dialect;
use abp_store::NewApiKey;
use abp_testkit::{ExchangeEnd, FakeVendor, Reply as Vendor, Script, VendorRequest, fixture};
use serde_json::json;

use crate::lab::{Lab, Reply, path, request, upstream};
use crate::limits::{add, key};

const MEGABYTE: usize = 1 << 20;

fn well() -> Vendor {
    Vendor::json(fixture("openai/response_text.json").expect("a fixture"))
}

fn lab_of(script: impl Into<Script>) -> (Lab, FakeVendor) {
    let vendor = FakeVendor::start(script).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    add(&lab, key("good"));
    (lab, vendor)
}

fn ask_as(lab: &Lab, key: &str, model: &str) -> Reply {
    let body = request(Dialect::OpenAi, model, false);
    lab.post_as(key, &path(Dialect::OpenAi, model, false), &body, "")
}

/// Sends a head, and of its body this much.
pub(crate) fn begin(lab: &Lab, key: &str, framing: &str, part: &[u8]) -> TcpStream {
    let mut connection = lab.connect();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
         content-type: application/json\r\n{framing}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).expect("a head");
    // A server that refuses early may have stopped reading.
    drop(connection.write_all(part));
    connection
}

fn status_of(mut connection: TcpStream) -> u16 {
    let mut read = Vec::new();
    drop(connection.read_to_end(&mut read));
    Reply::parse(&read).status
}

/// Whether the server has answered, without waiting for longer than that.
fn answered(connection: &mut TcpStream) -> bool {
    let patience = Some(Duration::from_millis(200));
    connection.set_read_timeout(patience).expect("a timeout");
    connection.read(&mut [0; 16]).is_ok_and(|count| count > 0)
}

/// B24: a rate counts whatever is asked for, and is looked at before a body is.
#[test]
fn b24_a_rate_is_of_every_route() {
    let (lab, _vendor) = lab_of(well());
    let routes = [
        ("GET", "/v1/models"),
        ("GET", "/v1/models/gpt-4o"),
        ("GET", "/v1beta/models"),
        ("GET", "/v1/responses/resp_1"),
        ("DELETE", "/v1/responses/resp_1"),
        ("GET", "/v1/responses/resp_1/input_items"),
        ("GET", "/v1/receipts/x"),
        ("GET", "/protocol"),
        ("POST", "/v1/translate"),
        ("POST", "/v1/assist"),
        ("POST", "/mcp"),
        ("POST", "/mcp/gateway"),
        ("GET", "/mcp/gateway"),
        ("DELETE", "/mcp/gateway"),
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/chat/completions"),
        ("POST", "/v1/responses"),
        ("POST", "/v1/responses/input_tokens"),
        ("POST", "/v1/messages"),
        ("POST", "/v1beta/models/m:generateContent"),
    ];
    for (number, (method, path)) in routes.into_iter().enumerate() {
        let name = format!("slow{number}");
        add(
            &lab,
            NewApiKey {
                requests_per_minute: Some(1),
                ..key(&name)
            },
        );
        let head = |body: &str| {
            format!(
                "{method} {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {name}\r\n\
                 content-type: application/json\r\nconnection: close\r\n{body}\r\n"
            )
        };
        let first = lab.raw(format!("{}{{}}", head("content-length: 2\r\n")).as_bytes());
        assert_ne!(first.status, 429, "{method} {path}: {}", first.text());
        assert_ne!(first.status, 0, "{method} {path}");
        // Nothing of this body ever comes.
        let began = Instant::now();
        let second = lab.raw(head("content-length: 1000000\r\n").as_bytes());
        assert_eq!(second.status, 429, "{method} {path}: {}", second.text());
        assert!(second.header("retry-after").is_some(), "{method} {path}");
        assert!(began.elapsed() < Duration::from_millis(600), "{path}");
    }
}

/// B3: bodies that do not end take their key's share of memory and nobody else's.
fn check_unfinished_bodies(framing: &str) {
    let vendor = FakeVendor::start(well()).expect("a vendor");
    let lab = Lab::start_with(
        &[("up", upstream(Dialect::OpenAi, &vendor))],
        |_, options| options.body_timeout = Duration::from_secs(20),
    );
    add(&lab, key("good"));
    add(&lab, key("bad"));
    let mut part = Vec::new();
    if framing.starts_with("transfer") {
        part.extend_from_slice(format!("{:x}\r\n", 32 * MEGABYTE).as_bytes());
    }
    part.resize(part.len() + 31 * MEGABYTE, b' ');
    let before = resident();
    let mut open: Vec<_> = std::thread::scope(|scope| {
        let (lab, part) = (&lab, &part);
        let begun = (0..25).map(|_| scope.spawn(move || begin(lab, "bad", framing, part)));
        let begun: Vec<_> = begun.collect();
        begun
            .into_iter()
            .map(|one| one.join().expect("a connection"))
            .collect()
    });
    let held = open
        .iter_mut()
        .filter_map(|one| (!answered(one)).then_some(()));
    let held = held.count();
    assert!((1..=2).contains(&held), "{framing}: {held} are read");
    let grown = resident().saturating_sub(before);
    assert!(grown < 100, "{framing}: {grown} MB");
    // Others have room, also for something large.
    assert_eq!(ask_as(&lab, "good", "m").status, 200);
    let long = "x".repeat(20 * MEGABYTE);
    let body = json!({ "model": "m", "messages": [{ "role": "user", "content": long }] });
    let reply = lab.post_as("good", "/v1/chat/completions", &body.to_string(), "");
    assert_eq!(reply.status, 200, "{}", reply.text());
    // What is given up is free again.
    drop(open);
    let deadline = Instant::now() + Duration::from_secs(5);
    while lab
        .post_as("bad", "/v1/chat/completions", &body.to_string(), "")
        .status
        != 200
    {
        assert!(Instant::now() < deadline, "{framing}: it stays held");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn b3_unfinished_bodies_of_known_length_hold_a_bounded_part_of_memory() {
    check_unfinished_bodies(&format!("content-length: {}", 32 * MEGABYTE));
}

#[test]
fn b3_unfinished_bodies_of_unknown_length_hold_a_bounded_part_of_memory() {
    check_unfinished_bodies("transfer-encoding: chunked");
}

/// The memory of this process, in megabytes.
pub(crate) fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with("VmRSS:"));
    let count = line.and_then(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    count.unwrap_or_default() / 1024
}

/// G6: a key has as many requests as it may, and never all places of an upstream.
#[test]
fn g6_streams_that_do_not_end_leave_places_for_others() {
    let stream = fixture("openai/stream_text.sse").expect("a fixture");
    let script = Script::By(Box::new(move |asked| {
        let body = String::from_utf8_lossy(&asked.body);
        match body.contains("\"stream\":true") {
            true => Vendor::events(stream.clone()).stall_at(200),
            false => well(),
        }
    }));
    let vendor = FakeVendor::start(script).expect("a vendor");
    let mut up = upstream(Dialect::OpenAi, &vendor);
    up.max_concurrent = 8;
    up.idle_timeout_secs = 20;
    let lab = Lab::start(&[("up", up)]);
    add(&lab, key("good"));
    add(&lab, key("bad"));
    add(
        &lab,
        NewApiKey {
            max_concurrent: Some(2),
            ..key("narrow")
        },
    );
    let open = |name: &str, count: usize| -> Vec<TcpStream> {
        let one = |_| {
            let mut connection = lab.open(name, Dialect::OpenAi, true);
            assert!(connection.read(&mut [0; 12]).expect("an answer") > 0);
            connection
        };
        (0..count).map(one).collect()
    };
    let narrow = open("narrow", 2);
    let refused = ask_as(&lab, "narrow", "m");
    assert_eq!(refused.status, 429, "{}", refused.text());
    // Any other route is a request as well.
    let models = "GET /v1/models HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer narrow\r\n\
                  connection: close\r\n\r\n";
    assert_eq!(lab.raw(models.as_bytes()).status, 429);
    drop(narrow);
    let ended = |one: &&VendorRequest| one.end != ExchangeEnd::Open;
    assert!(vendor.wait_until(|asked| asked.iter().filter(ended).count() >= 2));
    let bad = open("bad", 4);
    let refused = ask_as(&lab, "bad", "m");
    assert_eq!(refused.status, 429, "{}", refused.text());
    assert!(refused.text().contains("upstream up"), "{}", refused.text());
    assert_eq!(ask_as(&lab, "good", "m").status, 200);
    drop(bad);
}

/// G6: failures count for the key and the model that had them.
#[test]
fn g6_a_key_that_fails_closes_nothing_for_others() {
    let script = Script::By(Box::new(|asked| {
        let body = String::from_utf8_lossy(&asked.body);
        match body.contains("broken") {
            true => Vendor::json(r#"{"error":{"message":"no"}}"#).status(500),
            false => well(),
        }
    }));
    let (lab, vendor) = lab_of(script);
    add(&lab, key("bad"));
    let fail = |model: &str| {
        let body =
            format!(r#"{{"model":"{model}","messages":[{{"role":"user","content":"broken"}}]}}"#);
        lab.post_as("bad", "/v1/chat/completions", &body, "")
    };
    let statuses: Vec<u16> = (0..12).map(|_| fail("m").status).collect();
    assert_eq!(statuses[0], 500);
    assert_eq!(statuses[11], 503, "its own breaker opens: {statuses:?}");
    let asked = vendor.requests().len();
    assert_eq!(
        fail("m").header("x-abp-error"),
        Some("CIRCUIT_BREAKER_OPEN")
    );
    assert_eq!(vendor.requests().len(), asked);
    for (name, model) in [("good", "m"), ("bad", "other"), ("good", "other")] {
        assert_eq!(ask_as(&lab, name, model).status, 200, "{name} {model}");
    }
}

/// A vendor's limit is told as one, also while it is waited for, and only to the key that met it.
#[test]
fn a_429_stays_a_429() {
    for wait in [None, Some("30")] {
        let script = Script::By(Box::new(move |asked| {
            let limited = Vendor::json(r#"{"error":{"message":"slow down"}}"#).status(429);
            match String::from_utf8_lossy(&asked.body).contains("\"m\"") {
                false => well(),
                true => match wait {
                    Some(wait) => limited.header("retry-after", wait),
                    None => limited,
                },
            }
        }));
        let (lab, vendor) = lab_of(script);
        add(&lab, key("bad"));
        let statuses: Vec<u16> = (0..12).map(|_| ask_as(&lab, "bad", "m").status).collect();
        assert_eq!(statuses, [429; 12], "{wait:?}");
        let sent = vendor.requests().len();
        assert_eq!(sent, if wait.is_some() { 1 } else { 12 }, "{wait:?}");
        if wait.is_some() {
            let told = ask_as(&lab, "bad", "m");
            assert_eq!(told.header("x-abp-error"), Some("BACKEND_RATE_LIMITED"));
            assert!(told.header("retry-after").is_some());
        }
        assert_eq!(ask_as(&lab, "good", "n").status, 200);
    }
}

pub(crate) fn initialize(lab: &Lab, key: &str) -> Reply {
    let params = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": { "name": "test", "version": "1" },
    });
    let body = json!({ "jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params });
    let accept = "accept: application/json, text/event-stream\r\n";
    lab.post_as(key, "/mcp/gateway", &body.to_string(), accept)
}

/// MCP sessions are limited per key, by default and as the key says.
#[test]
fn mcp_sessions_are_of_the_key_that_opens_them() {
    let away = "url = \"http://127.0.0.1:9/mcp\"\nopen_timeout_secs = 1";
    let away = toml::from_str(away).expect("a server");
    let lab = Lab::start_with(&[], |config, _| {
        config.mcp.servers.insert("away".to_owned(), away);
    });
    add(&lab, key("good"));
    add(&lab, key("bad"));
    add(
        &lab,
        NewApiKey {
            max_sessions: Some(3),
            scopes: abp_store::KeyScope::USUAL.to_vec(),
            ..key("narrow")
        },
    );
    for (name, most) in [("narrow", 3), ("bad", 64)] {
        for _ in 0..most {
            assert_eq!(initialize(&lab, name).status, 200, "{name}");
        }
        let refused = initialize(&lab, name);
        assert_eq!(refused.status, 429, "{name}: {}", refused.text());
        assert!(
            refused.text().contains("MCP sessions"),
            "{}",
            refused.text()
        );
    }
    let opened = initialize(&lab, "good");
    assert_eq!(opened.status, 200);
    // Ending one makes room.
    let opened = initialize(&lab, "good");
    let session = opened.header("mcp-session-id").expect("a session");
    let end = format!(
        "DELETE /mcp/gateway HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer good\r\n\
         mcp-session-id: {session}\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(lab.raw(end.as_bytes()).status, 204);
    assert_eq!(
        status_of(begin(&lab, "nobody", "content-length: 2", b"{}")),
        401
    );
}
