//! WebSockets: followed, commanded, and attacked.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use abp_store::KeyScope;
use serde_json::{Value, json};

use crate::lab::{KEY, Lab};

/// A connection that became a WebSocket, or the status of its refusal.
struct Socket {
    stream: TcpStream,
    status: u16,
    head: String,
}

impl Socket {
    fn open(lab: &Lab, path: &str, headers: &str) -> Self {
        let mut stream = lab.connect();
        let request = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nupgrade: websocket\r\nconnection: upgrade\r\n\
             sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{headers}\r\n"
        );
        stream.write_all(request.as_bytes()).expect("a request");
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let mut byte = [0];
            if stream.read(&mut byte).expect("a byte") == 0 {
                break;
            }
            head.push(byte[0]);
        }
        let head = String::from_utf8(head).expect("text");
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        Self {
            stream,
            status: status.unwrap_or(0),
            head,
        }
    }

    fn with_key(lab: &Lab, path: &str) -> Self {
        let socket = Self::open(lab, path, &format!("authorization: Bearer {KEY}\r\n"));
        assert_eq!(socket.status, 101, "{}", socket.head);
        socket
    }

    /// Sends a text, masked as clients have to.
    fn send(&mut self, message: &Value) {
        let text = message.to_string();
        let mut frame = vec![0x81];
        match text.len() {
            length @ 0..126 => frame.push(0x80 | u8::try_from(length).unwrap()),
            length => {
                frame.push(0x80 | 126);
                frame.extend_from_slice(&u16::try_from(length).unwrap().to_be_bytes());
            }
        }
        let mask = [1, 2, 3, 4];
        frame.extend_from_slice(&mask);
        frame.extend(
            text.bytes()
                .enumerate()
                .map(|(at, byte)| byte ^ mask[at % 4]),
        );
        self.stream.write_all(&frame).expect("a frame");
    }

    /// The next text; `None` where the server closed.
    fn next(&mut self) -> Option<Value> {
        loop {
            let mut head = [0; 2];
            self.stream.read_exact(&mut head).ok()?;
            let length = match head[1] & 0x7f {
                126 => {
                    let mut bytes = [0; 2];
                    self.stream.read_exact(&mut bytes).ok()?;
                    u64::from(u16::from_be_bytes(bytes))
                }
                127 => {
                    let mut bytes = [0; 8];
                    self.stream.read_exact(&mut bytes).ok()?;
                    u64::from_be_bytes(bytes)
                }
                length => u64::from(length),
            };
            let mut payload = vec![0; usize::try_from(length).unwrap()];
            self.stream.read_exact(&mut payload).ok()?;
            match head[0] & 0x0f {
                1 => return Some(serde_json::from_slice(&payload).expect("JSON")),
                8 => return None,
                _ => {}
            }
        }
    }

    /// Messages of one type until the end of the run.
    fn events_to_end(&mut self) -> Vec<u64> {
        let mut seqs = Vec::new();
        while let Some(message) = self.next() {
            match message["type"].as_str() {
                Some("event") => seqs.push(message["seq"].as_u64().expect("a number")),
                Some("end") => return seqs,
                Some("done") => {}
                other => panic!("{other:?}: {message}"),
            }
        }
        panic!("the server closed before the end: {seqs:?}");
    }
}

/// A3: a page of another origin gets no WebSocket, with or without a key; a refusal comes before the upgrade.
#[test]
fn a3_no_websocket_for_foreign_pages_or_strangers() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    let path = format!("/v1/runs/{run}/ws");
    let none = lab.key("none", &[]);
    let reader = lab.key("reader", &[KeyScope::RunsRead]);
    let bearer = |key: &str| format!("authorization: Bearer {key}\r\n");
    let protocol = |key: &str| format!("sec-websocket-protocol: abp.v1, abp.key.{key}\r\n");
    let evil = "origin: https://evil.example\r\n";
    for (path, headers, status) in [
        (path.as_str(), bearer(KEY), 101),
        (
            path.as_str(),
            format!("{}origin: http://localhost\r\n", bearer(KEY)),
            101,
        ),
        (path.as_str(), format!("{}{evil}", bearer(KEY)), 403),
        (path.as_str(), format!("{}{evil}", protocol(KEY)), 403),
        (
            path.as_str(),
            format!("{}origin: null\r\n", bearer(KEY)),
            403,
        ),
        (path.as_str(), String::new(), 401),
        (path.as_str(), bearer("abp_wrong"), 401),
        (path.as_str(), protocol("abp_wrong"), 401),
        (path.as_str(), bearer(&none), 403),
        (path.as_str(), bearer(&reader), 404),
        ("/v1/ws", bearer(&reader), 101),
        ("/v1/ws", protocol(KEY), 101),
        // Only a WebSocket takes a key as a protocol.
        ("/v1/runs", protocol(KEY), 401),
    ] {
        let socket = Socket::open(&lab, path, &headers);
        assert_eq!(socket.status, status, "{path} {headers}: {}", socket.head);
        assert!(!socket.head.contains("abp.key"), "{}", socket.head);
    }
    let plain = lab.call("GET", KEY, &path, "", b"");
    assert_eq!(plain.status, 400, "{}", plain.text());
    let accepted = Socket::with_key(&lab, &path).head.to_ascii_lowercase();
    // The example of RFC 6455.
    assert!(
        accepted.contains("s3pplmbitxaq9kygzzhzrbk+xoo="),
        "{accepted}"
    );
}

#[test]
fn a_run_is_followed_and_taken_up_again() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    let path = format!("/v1/runs/{run}/ws");
    let mut socket = Socket::with_key(&lab, &path);
    socket.send(&json!({}));
    let all = socket.events_to_end();
    assert_eq!(all, (0..all.len() as u64).collect::<Vec<_>>());
    for after in &all {
        let mut socket = Socket::with_key(&lab, &path);
        socket.send(&json!({ "after_seq": after }));
        let rest: Vec<u64> = all.iter().copied().filter(|seq| seq > after).collect();
        assert_eq!(socket.events_to_end(), rest);
    }
}

#[test]
fn several_runs_share_a_connection() {
    let lab = Lab::start(&[]);
    let runs =
        ["one", "two", "three"].map(|task| lab.submit(KEY, &json!({ "task": task }).to_string()));
    let mut socket = Socket::with_key(&lab, "/v1/ws");
    for run in &runs {
        socket.send(&json!({ "type": "follow", "run_id": run }));
    }
    let mut ended = std::collections::BTreeSet::new();
    let mut next = std::collections::BTreeMap::<String, u64>::new();
    while ended.len() < runs.len() {
        let message = socket.next().expect("a message");
        let run = message["run_id"].as_str().unwrap_or_default().to_owned();
        match message["type"].as_str() {
            Some("event") => {
                let expected = next.entry(run).or_default();
                assert_eq!(message["seq"], *expected);
                *expected += 1;
            }
            Some("end") => drop(ended.insert(run)),
            _ => {}
        }
    }
}

/// What is wrong with a message is told, and ends nothing.
#[test]
fn wrong_messages_are_told_and_end_nothing() {
    let lab = Lab::start(&[]);
    let run = lab.submit(KEY, r#"{"task":"say hello"}"#);
    lab.wait_for_end(KEY, &run);
    let reader = lab.key("reader", &[KeyScope::RunsRead]);
    let headers = format!("authorization: Bearer {reader}\r\n");
    let mut socket = Socket::open(&lab, "/v1/ws", &headers);
    let unknown = "00000000-0000-7000-8000-000000000000";
    for (message, code) in [
        (json!({ "type": "dance" }), "VALIDATION_FAILED"),
        (json!([1]), "VALIDATION_FAILED"),
        (json!({ "after_seq": 1 }), "VALIDATION_FAILED"),
        (
            json!({ "after_seq": -1, "run_id": unknown }),
            "VALIDATION_FAILED",
        ),
        (json!({ "type": "follow", "run_id": run }), "NOT_FOUND"),
        (json!({ "type": "cancel", "run_id": run }), "POLICY_DENIED"),
        (
            json!({ "type": "answer", "approval_id": unknown, "approve": true }),
            "POLICY_DENIED",
        ),
    ] {
        socket.send(&message);
        let answer = socket.next().expect("an answer");
        assert_eq!(answer["error"]["code"], code, "{message}: {answer}");
    }
    let mut own = Socket::with_key(&lab, "/v1/ws");
    own.send(&json!({ "type": "answer", "approval_id": unknown, "approve": true }));
    assert_eq!(own.next().expect("an answer")["error"]["code"], "NOT_FOUND");
    own.send(&json!({ "type": "cancel", "run_id": run }));
    assert_eq!(own.next().expect("an answer")["command"], "cancel");
}

/// B16: a client that stops reading is disconnected; the run and its other followers go on without waiting.
#[test]
fn b16_a_client_that_does_not_read_is_disconnected_and_holds_nothing_up() {
    const TEXT: usize = 256 << 10;
    const STEPS: usize = 60;
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("loud.json");
    let say = json!({ "do": "say", "text": "x".repeat(TEXT) });
    let script = json!({ "name": "loud", "steps": vec![say; STEPS] });
    std::fs::write(&file, script.to_string()).expect("a script");
    let backend =
        toml::from_str(&format!("type = \"mock\"\nscript = {file:?}")).expect("a backend");
    let lab = Lab::start_with(&[], |config, _| {
        config.backends.insert("loud".to_owned(), backend);
    });
    let run = lab.submit(KEY, r#"{"order":{"task":"shout"},"backend":"loud"}"#);
    let path = format!("/v1/runs/{run}/ws");
    let mut silent = Socket::with_key(&lab, &path);
    silent.send(&json!({}));
    let sse = lab.connect();
    let request = format!(
        "GET /v1/runs/{run}/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         accept: text/event-stream\r\nconnection: close\r\n\r\n"
    );
    (&sse).write_all(request.as_bytes()).expect("a request");
    lab.wait_for_end(KEY, &run);
    // One that reads gets everything.
    let mut reader = Socket::with_key(&lab, &path);
    reader.send(&json!({}));
    let seqs = reader.events_to_end();
    assert_eq!(seqs, (0..seqs.len() as u64).collect::<Vec<_>>());
    // The silent ones were cut off: what they can still read is what was under way, and no end of the run.
    std::thread::sleep(Duration::from_secs(4));
    for mut stream in [silent.stream, sse] {
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
        let all = TEXT * STEPS;
        assert!(
            rest.len() < all,
            "{} of {all} bytes were delivered",
            rest.len()
        );
    }
}

/// The addresses at which official clients try a WebSocket. Codex goes on with plain requests at once where it
/// hears 426, and only after several tries where it hears anything else; realtime clients have no other way,
/// and are told that there is none here.
#[test]
fn vendors_websockets_are_refused_in_the_way_that_clients_fall_back_from() {
    let lab = Lab::start(&[]);
    let live = "google.ai.generativelanguage.v1beta.GenerativeService.BidiGenerateContent";
    for (path, headers) in [
        (
            "/v1/responses".to_owned(),
            format!("authorization: Bearer {KEY}\r\n"),
        ),
        (
            "/responses".to_owned(),
            format!("authorization: Bearer {KEY}\r\n"),
        ),
        (
            "/openai/v1/responses".to_owned(),
            format!(
                "authorization: Bearer {KEY}\r\nopenai-beta: responses_websockets=2026-02-06\r\n"
            ),
        ),
        (
            "/v1/realtime?model=m".to_owned(),
            format!("authorization: Bearer {KEY}\r\n"),
        ),
        (format!("/ws/{live}"), format!("x-goog-api-key: {KEY}\r\n")),
        (format!("/ws/{live}?key={KEY}"), String::new()),
    ] {
        let socket = Socket::open(&lab, &path, &headers);
        assert_eq!(socket.status, 426, "{path}: {}", socket.head);
        assert!(!socket.head.contains("101"), "{}", socket.head);
    }
}
