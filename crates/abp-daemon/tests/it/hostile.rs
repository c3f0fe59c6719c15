//! What is sent by those who are not callers at all.

use std::io::{Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt as _;
use std::time::{Duration, Instant};

use abp_config::Config;
use abp_control::{ControlPlane, operator_key};
use abp_dialect::Dialect;
use abp_gateway_http::{Server, ServerOptions};
use abp_testkit::{ExchangeEnd, FakeVendor, Reply as Vendor, fixture};
use secrecy::ExposeSecret as _;

use crate::lab::{KEY, Lab, VENDOR_KEY, path, request, sha256, upstream};

fn echo() -> (FakeVendor, Lab) {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    (vendor, lab)
}

/// A1, A6: the key is made for its owner alone, is needed for everything that does something, and is not
/// taken from a query except where a vendor's clients put it.
#[test]
fn a1_a6_nothing_is_done_without_the_key() {
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("state/gateway.key");
    let made = operator_key(&file).expect("a key");
    assert_eq!(
        std::fs::metadata(&file).expect("a file").mode() & 0o777,
        0o600
    );
    let again = operator_key(&file).expect("the key");
    assert_eq!(made.expose_secret(), again.expose_secret());
    let (vendor, lab) = echo();
    let routes = [
        "POST /v1/chat/completions",
        "POST /v1/responses",
        "POST /v1/messages",
        "POST /v1/messages/count_tokens",
        "POST /v1beta/models/m:generateContent",
        "POST /v1/translate",
        "POST /v1/embeddings",
        "GET /v1/models",
        "GET /v1beta/models",
        "GET /protocol",
        "GET /v1/receipts/00000000-0000-0000-0000-000000000000",
        "GET /v1/responses/resp_1",
        "DELETE /v1/responses/resp_1",
    ];
    for route in routes {
        let query = if route.contains("v1beta") {
            ""
        } else {
            "?key=abp_canary_operator_key"
        };
        let raw = format!(
            "{route}{query} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
             connection: close\r\ncontent-length: 2\r\n\r\n{{}}"
        );
        assert_eq!(lab.raw(raw.as_bytes()).status, 401, "{route}");
    }
    assert!(vendor.requests().is_empty());
    for route in ["/healthz", "/readyz", "/metrics", "/version"] {
        let raw = format!("GET {route} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
        assert_eq!(lab.raw(raw.as_bytes()).status, 200, "{route}");
    }
    let body = r#"{"contents":[{"parts":[{"text":"x"}]}]}"#;
    let gemini = format!(
        "POST /v1beta/models/m:generateContent?key={KEY} HTTP/1.1\r\nhost: localhost\r\n\
         content-type: application/json\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    assert_eq!(lab.raw(gemini.as_bytes()).status, 200);
    assert!(!format!("{:?}", vendor.requests()).contains(KEY));
}

/// A2, A4: requests for other hosts, from other pages and in forms a page can send unasked.
#[test]
fn a2_a4_other_hosts_and_pages_are_refused() {
    let (vendor, lab) = echo();
    let body = request(Dialect::OpenAi, "m", false);
    let send = |host: &str, extra: &str, kind: &str, target: &str| {
        let raw = format!(
            "POST {target} HTTP/1.1\r\n{host}authorization: Bearer {KEY}\r\n{extra}\
             content-type: {kind}\r\nconnection: close\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        lab.raw(raw.as_bytes()).status
    };
    let target = "/v1/chat/completions";
    let json = "application/json";
    let local = "host: localhost\r\n";
    let cases = [
        (send("host: evil.example\r\n", "", json, target), 403),
        (send("", "", json, target), 403),
        (
            send(
                "host: localhost\r\nhost: evil.example\r\n",
                "",
                json,
                target,
            ),
            403,
        ),
        (
            send(local, "", json, "http://evil.example/v1/chat/completions"),
            403,
        ),
        (
            send(local, "origin: https://evil.example\r\n", json, target),
            403,
        ),
        (send(local, "", "text/plain", target), 415),
        (
            send(local, "", "application/x-www-form-urlencoded", target),
            415,
        ),
        (send(local, "content-encoding: gzip\r\n", json, target), 415),
    ];
    for (at, (found, expected)) in cases.into_iter().enumerate() {
        assert_eq!(found, expected, "case {at}");
    }
    assert!(vendor.requests().is_empty());
    assert_eq!(
        send(local, "origin: http://localhost\r\n", json, target),
        200
    );
}

/// A5: others can only reach a server that encrypts.
#[test]
fn a5_other_machines_need_a_certificate() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config {
        state_dir: dir.path().join("state"),
        ..Config::default()
    };
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    let refused = runtime.block_on(async {
        let plane = ControlPlane::open(config, &[]).expect("a control plane");
        let gateway = plane.gateway().await.expect("a gateway");
        let options = ServerOptions {
            listen: SocketAddr::from(([0, 0, 0, 0], 0)),
            ..ServerOptions::default()
        };
        Server::bind(gateway, Vec::new(), options)
            .await
            .expect_err("refused")
    });
    assert_eq!(refused.code().as_str(), "CONFIG_INVALID", "{refused}");
}

/// A8: whatever is sent as a key, nothing is written and nothing of it is told.
#[test]
fn a8_wrong_keys_reach_nothing() {
    let (vendor, lab) = echo();
    let kept = || {
        let mut files = walk(lab.dir.path().join("state"));
        files.sort();
        let bytes = files
            .iter()
            .map(|file| std::fs::read(file).expect("a file"));
        sha256(&bytes.collect::<Vec<_>>().concat())
    };
    let before = kept();
    let long = "x".repeat(8000);
    let keys = [
        "' OR 1=1 --",
        "\"; DROP TABLE runs",
        "..%2f..",
        "\u{1b}[31m",
        long.as_str(),
        "é",
    ];
    let body = request(Dialect::OpenAi, "m", false);
    // Any visible characters, the same in every run.
    let mut state = 1_u64;
    let mut made_up = || -> String {
        let mut next = || {
            state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            usize::try_from(state >> 40).unwrap_or_default()
        };
        let length = 10 + next() % 60;
        (0..length)
            .map(|_| char::from(b'!' + u8::try_from(next() % 94).unwrap_or_default()))
            .collect()
    };
    let keys = keys.map(str::to_owned).into_iter();
    for key in keys.chain((0..1000).map(|_| made_up())) {
        let reply = lab.post_as(&key, "/v1/chat/completions", &body, "");
        let refused = matches!(reply.status, 400 | 401 | 429);
        assert!(refused, "{key}: {}", reply.head);
        let shown = key
            .get(..10)
            .is_some_and(|part| reply.text().contains(part));
        assert!(!shown, "{}", reply.text());
    }
    assert!(vendor.requests().is_empty());
    assert_eq!(kept(), before);
}

/// A client that is refused before it has sent its body does not use the connection again.
#[test]
fn a_refusal_that_leaves_the_body_unread_says_that_the_connection_ends() {
    let (_vendor, lab) = echo();
    let head = |length: usize| {
        format!(
            "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n\
             authorization: Bearer wrong\r\ncontent-type: application/json\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let refused = lab.raw(head(10).as_bytes());
    let found = (refused.status, refused.header("connection"));
    assert_eq!(found, (401, Some("close")), "{}", refused.head);
    let nothing_left = lab.raw(head(0).as_bytes());
    let found = (nothing_left.status, nothing_left.header("connection"));
    assert_eq!(found, (401, None), "{}", nothing_left.head);
}

/// B1, B2: heads, bodies and connections that take too long are ended, and others are served meanwhile.
#[test]
fn b1_b2_slow_peers_are_ended() {
    let (_vendor, lab) = echo();
    let endless: [&[u8]; 3] = [
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\n",
        b"",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer \
          abp_canary_operator_key\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{",
    ];
    for (start, drips) in endless
        .into_iter()
        .flat_map(|start| [(start, false), (start, true)])
    {
        let mut stream = lab.connect();
        stream.write_all(start).expect("sent");
        let begun = Instant::now();
        // A byte now and then is no progress.
        while drips && begun.elapsed() < Duration::from_secs(4) {
            std::thread::sleep(Duration::from_millis(100));
            if stream.write_all(b"x").is_err() {
                break;
            }
        }
        let mut rest = Vec::new();
        drop(stream.read_to_end(&mut rest));
        let text = start.escape_ascii();
        if start.ends_with(b"{") && !drips {
            assert_eq!(crate::lab::Reply::parse(&rest).status, 408, "{text}");
        }
        assert!(
            begun.elapsed() < Duration::from_secs(4),
            "{text}: {:?}",
            begun.elapsed()
        );
        let served = lab.get("/healthz");
        assert_eq!(served.status, 200);
    }
    // Idle after an answer: allowed for longer, and then ended.
    let mut stream = lab.connect();
    let get = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    stream.write_all(get).expect("sent");
    std::thread::sleep(Duration::from_millis(1000));
    stream.write_all(get).expect("sent");
    let begun = Instant::now();
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest));
    let text = String::from_utf8_lossy(&rest).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 2, "{text}");
    assert!(begun.elapsed() < Duration::from_secs(4));
}

/// B2: more connections than are taken are refused, and told when to come again.
#[test]
fn b2_connections_are_bounded() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let up = upstream(Dialect::OpenAi, &vendor);
    let lab = Lab::start_with(&[("up", up)], |_, options| options.max_connections = 3);
    let open: Vec<_> = (0..3).map(|_| lab.connect()).collect();
    std::thread::sleep(Duration::from_millis(100));
    let begun = Instant::now();
    let refused = lab.get("/healthz");
    assert_eq!(refused.status, 503, "{}", refused.head);
    assert_eq!(refused.header("retry-after"), Some("1"));
    assert!(begun.elapsed() < Duration::from_millis(500));
    drop(open);
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(lab.get("/healthz").status, 200);
}

/// B3: bodies are bounded whether or not they say how long they are.
#[test]
fn b3_large_bodies_are_refused_before_they_are_read() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let vendor = FakeVendor::start(Vendor::json(answer)).expect("a vendor");
    let up = upstream(Dialect::OpenAi, &vendor);
    let lab = Lab::start_with(&[("up", up)], |_, options| options.max_body = 64 << 10);
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\n"
    );
    let announced = format!("{head}content-length: 1073741824\r\n\r\n{{");
    assert_eq!(lab.raw(announced.as_bytes()).status, 413);
    let mut stream = lab.connect();
    stream
        .write_all(format!("{head}transfer-encoding: chunked\r\n\r\n").as_bytes())
        .expect("sent");
    let chunk = [b"4000\r\n".as_slice(), &[b' '; 0x4000], b"\r\n"].concat();
    let mut sent = 0;
    while sent < 1 << 30 && stream.write_all(&chunk).is_ok() {
        sent += chunk.len();
    }
    assert!(sent < 64 << 20, "{sent} bytes were taken");
    assert!(vendor.requests().is_empty());
}

/// B6: requests of which it could be argued where they end are refused, and the connection with them.
#[test]
fn b6_smuggled_requests_go_nowhere() {
    let (vendor, lab) = echo();
    let body = request(Dialect::OpenAi, "m", false);
    let length = body.len();
    let start = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
         content-type: application/json\r\n"
    );
    let chunked = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let second = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let cases = [
        (
            "CL.TE",
            format!(
                "{start}content-length: {length}\r\ntransfer-encoding: chunked\r\n\r\n{chunked}"
            ),
        ),
        (
            "TE.CL",
            format!("{start}transfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n{chunked}"),
        ),
        (
            "two lengths",
            format!("{start}content-length: {length}\r\ncontent-length: 0\r\n\r\n{body}"),
        ),
        (
            "lengths in one",
            format!("{start}content-length: {length}, 0\r\n\r\n{body}"),
        ),
        (
            "two codings",
            format!(
                "{start}transfer-encoding: chunked\r\ntransfer-encoding: identity\r\n\r\n{chunked}"
            ),
        ),
        (
            "unknown coding",
            format!("{start}transfer-encoding: xchunked\r\n\r\n{chunked}"),
        ),
        (
            "space before colon",
            format!("{start}content-length : {length}\r\n\r\n{body}"),
        ),
        (
            "folded header",
            format!("{start}x-a: b\r\n c\r\ncontent-length: {length}\r\n\r\n{body}"),
        ),
        (
            "bare LF",
            format!("{start}content-length: {length}\n\r\n{body}"),
        ),
        (
            "LF only",
            start.replace("\r\n", "\n") + "content-length: 0\n\n",
        ),
        (
            "negative",
            format!("{start}content-length: -1\r\n\r\n{body}"),
        ),
        ("hex", format!("{start}content-length: 0x10\r\n\r\n{body}")),
    ];
    for (name, raw) in cases {
        let reply = lab.raw(raw.as_bytes());
        assert_eq!(reply.status, 400, "{name}: {}", reply.head);
    }
    // One request after another without waiting: the first is answered, and nothing after it.
    let pipelined = format!("{second}{second}");
    let mut stream = lab.connect();
    stream.write_all(pipelined.as_bytes()).expect("sent");
    let mut rest = Vec::new();
    drop(stream.read_to_end(&mut rest));
    let text = String::from_utf8_lossy(&rest).into_owned();
    assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
    assert!(vendor.requests().len() <= 1, "{:?}", vendor.requests());
}

/// B13, A15: no secret and no control character in anything that is said or kept.
#[test]
fn b13_a15_secrets_stay_where_they_are() {
    let vendor = FakeVendor::start(
        Vendor::json(r#"{"error":{"message":"no","type":"x","param":null,"code":null}}"#)
            .status(401),
    )
    .expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let mut said = String::new();
    for dialect in [
        Dialect::OpenAi,
        Dialect::Claude,
        Dialect::Gemini,
        Dialect::Codex,
    ] {
        let reply = lab.post(
            &path(dialect, "m%0d%0aevil", false),
            &request(dialect, "m\\u001b[31m\\r\\nevil", false),
        );
        assert!(!reply.head.contains("evil"), "{}", reply.head);
        said.push_str(&reply.head);
        said.push_str(&reply.text());
        if reply.header("x-abp-run-id").is_some() {
            said.push_str(&lab.receipt(&reply).to_string());
        }
    }
    said.push_str(&lab.get("/metrics").text());
    said.push_str(&lab.get("/protocol").text());
    said.push_str(&format!("{:?}", lab.gateway));
    for entry in walk(lab.dir.path().join("state")) {
        said.push_str(&String::from_utf8_lossy(
            &std::fs::read(entry).expect("a file"),
        ));
    }
    assert!(!said.contains(VENDOR_KEY), "the vendor's key");
    assert!(!said.contains(KEY), "the operator's key");
}

fn walk(dir: std::path::PathBuf) -> Vec<std::path::PathBuf> {
    let mut files = Vec::new();
    for entry in std::fs::read_dir(dir).expect("a directory") {
        let path = entry.expect("an entry").path();
        match path.is_dir() {
            true => files.extend(walk(path)),
            false => files.push(path),
        }
    }
    files
}

/// B16: a caller that reads slowly holds the vendor back instead of filling memory, and misses nothing.
#[test]
fn b16_a_slow_reader_gets_everything() {
    let event = format!(
        "data: {{\"choices\":[{{\"index\":0,\"delta\":{{\"content\":\"{}\"}}}}]}}\n\n",
        "x".repeat(4000)
    );
    let mut stream = event.repeat(5000);
    stream.push_str("data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n");
    let vendor =
        FakeVendor::start(Vendor::events(stream.clone()).in_chunks(16384)).expect("a vendor");
    let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
    let before = resident();
    let mut connection = lab.open(KEY, Dialect::OpenAi, true);
    std::thread::sleep(Duration::from_millis(600));
    let grown = resident().saturating_sub(before);
    assert!(grown < 15 << 10, "{grown} KB for one slow reader");
    let mut all = Vec::new();
    connection.read_to_end(&mut all).expect("everything");
    assert!(crate::lab::Reply::parse(&all).text() == stream);
}

/// B16: a caller that stops reading does not keep the vendor, its place and its budget for ever.
#[test]
fn b16_a_reader_that_stops_is_ended() {
    let event = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"x\"}}]}\n\n";
    let vendor = Vendor::events(event.repeat(1 << 20)).in_chunks(65536);
    let vendor = FakeVendor::start(vendor).expect("a vendor");
    for caller in [Dialect::OpenAi, Dialect::Claude] {
        let lab = Lab::start(&[("up", upstream(Dialect::OpenAi, &vendor))]);
        let before = vendor.requests().len();
        let connection = lab.open(KEY, caller, true);
        let ended = vendor.wait_until(|requests| {
            let mut new = requests.iter().skip(before);
            new.any(|request| matches!(request.end, ExchangeEnd::Aborted { .. }))
        });
        assert!(ended, "{caller}: the vendor goes on");
        drop(connection);
        let records = lab.end();
        let record = records.first().expect("a record");
        assert!(record.client_closed, "{caller}: {record:?}");
    }
}

/// Whoever takes a long answer slowly, but takes it, gets all of it.
#[test]
fn a_slow_reader_of_a_whole_answer_is_not_idle() {
    let answer = fixture("openai/response_text.json").expect("a fixture");
    let padding = " ".repeat(24 << 20);
    let answer = [answer, padding.into_bytes()].concat();
    let vendor = FakeVendor::start(Vendor::json(answer.clone())).expect("a vendor");
    let up = upstream(Dialect::OpenAi, &vendor);
    let idle = Duration::from_secs(3);
    let lab = Lab::start_with(&[("up", up)], |_, options| options.idle_timeout = idle);
    let mut connection = lab.open(KEY, Dialect::OpenAi, false);
    let mut all = Vec::new();
    let mut part = vec![0_u8; 1 << 20];
    let begun = Instant::now();
    loop {
        let read = connection.read(&mut part).expect("more");
        if read == 0 {
            break;
        }
        all.extend_from_slice(&part[..read]);
        // As slow as takes twice the time that an idle connection has.
        let due = 2 * idle * u32::try_from(all.len() >> 20).unwrap_or(u32::MAX) / 24;
        std::thread::sleep(due.saturating_sub(begun.elapsed()));
    }
    let reply = crate::lab::Reply::parse(&all);
    assert_eq!(reply.body.len(), answer.len());
}

/// The memory of this process, in kilobytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("a status");
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS"))
        .expect("VmRSS");
    line.split_whitespace()
        .nth(1)
        .and_then(|text| text.parse().ok())
        .expect("a number")
}

/// B20: a vendor in trouble does not get its traffic several times over.
#[test]
fn b20_retries_are_paid_for() {
    let vendor = FakeVendor::start(Vendor::json(r#"{"error":{"message":"no"}}"#).status(503))
        .expect("a vendor");
    let up = upstream(Dialect::OpenAi, &vendor);
    let lab = Lab::start_with(&[("up", up)], |config, _| config.server.max_attempts = 3);
    for _ in 0..60 {
        let reply = lab.ask(Dialect::OpenAi, "m", false);
        assert_eq!(reply.status, 503, "{}", reply.text());
    }
    let sent = vendor.requests().len();
    assert!(sent <= 60 + 6 + 10, "{sent} requests were sent for 60");
    assert!(sent < 60, "the circuit opens: {sent}");
}
