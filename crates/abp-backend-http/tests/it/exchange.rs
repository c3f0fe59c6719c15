//! Requests and answers, byte by byte.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_backend_core::{ModelCall, ModelReply, Upstream as _, UpstreamError};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec};
use abp_dialect::Dialect;
use abp_error::ErrorCode;
use abp_testkit::{Cut, ExchangeEnd, FakeVendor, Reply, Script, VendorRequest, fixture};
use bytes::Bytes;
use http::{HeaderMap, HeaderName};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

use crate::support::{KEY, call, spec, until, upstream};

fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
    let pairs = pairs
        .iter()
        .map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap()));
    pairs.collect()
}

/// One request to a vendor that speaks its dialect.
async fn ask(vendor: &FakeVendor, call: ModelCall) -> Result<ModelReply, UpstreamError> {
    upstream(vendor, call.dialect).send(call).await
}

#[tokio::test]
async fn bytes_pass_unchanged_both_ways_however_they_are_split() {
    let cases = [
        (
            Dialect::OpenAi,
            "openai/request_tools.json",
            "openai/stream_tools.sse",
            "/v1/chat/completions",
        ),
        (
            Dialect::Claude,
            "claude/request_tools.json",
            "claude/stream_thinking_tools.sse",
            "/v1/messages",
        ),
        (
            Dialect::Gemini,
            "gemini/request_tools.json",
            "gemini/stream_tool_calls.sse",
            "/v1beta/models/some-model:streamGenerateContent",
        ),
        (
            Dialect::Codex,
            "codex/request_tool_round.json",
            "codex/stream_calls.sse",
            "/v1/responses",
        ),
        (
            Dialect::Kimi,
            "kimi/request_media.json",
            "kimi/response_calls.json",
            "/v1/chat/completions",
        ),
        (
            Dialect::Copilot,
            "copilot/request_plain.json",
            "copilot/response_text.json",
            "/v1/chat/completions",
        ),
    ];
    for (dialect, request, answer, path) in cases {
        for chunk in [None, Some(1), Some(7), Some(1000)] {
            let reply = Reply::fixture(answer).unwrap();
            let reply = chunk.map_or(reply.clone(), |bytes| reply.in_chunks(bytes));
            let vendor = FakeVendor::start(reply).unwrap();
            let request = Bytes::from(fixture(request).unwrap());
            let reply = ask(&vendor, call(dialect, request.clone())).await.unwrap();
            let body = reply.body.collect(1 << 20).await.unwrap();
            assert_eq!(
                body,
                fixture(answer).unwrap(),
                "{dialect} in chunks of {chunk:?}"
            );
            let seen = vendor.requests();
            assert_eq!(
                (seen[0].method.as_str(), seen[0].path.as_str()),
                ("POST", path)
            );
            assert_eq!(seen[0].body, request);
        }
    }
}

#[tokio::test]
async fn connections_are_used_again_but_not_after_an_abort() {
    let whole = Reply::json("{}");
    let endless = Reply::events(vec![b'x'; 1 << 20])
        .in_chunks(10)
        .every(Duration::from_millis(5));
    let script = Script::InOrder(vec![whole.clone(), whole.clone(), endless, whole]);
    let vendor = FakeVendor::start(script).unwrap();
    let upstream = upstream(&vendor, Dialect::OpenAi);
    for _ in 0..4 {
        let reply = upstream.send(call(Dialect::OpenAi, "{}")).await.unwrap();
        let mut body = reply.body;
        // All of the short ones; of the long one only the beginning.
        while let Some(part) = body.next().await {
            if part.unwrap().starts_with(b"x") {
                break;
            }
        }
    }
    let connections: Vec<_> = vendor
        .requests()
        .iter()
        .map(|seen| seen.connection)
        .collect();
    assert_eq!(connections, [0, 0, 0, 1]);
}

/// A vendor that closes every connection after its answer, without having said so; the channel says
/// when one is closed.
fn forgetful_vendor() -> (SocketAddr, UnboundedReceiver<()>) {
    let (closed, closes) = unbounded_channel();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let mut head = [0; 4096];
            let read = connection.read(&mut head).unwrap();
            assert!(
                head[..read].ends_with(b"{}"),
                "the request comes in one piece"
            );
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n[]";
            connection.write_all(answer).unwrap();
            drop(connection);
            closed.send(()).unwrap();
        }
    });
    (address, closes)
}

#[tokio::test]
async fn a_connection_that_the_vendor_closed_is_not_used_again() {
    let (address, mut closes) = forgetful_vendor();
    let upstream = HttpUpstream::new(spec(format!("http://{address}"))).unwrap();
    for closed_first in [true, false, true, false, true] {
        let reply = upstream.send(call(Dialect::OpenAi, "{}")).await.unwrap();
        if closed_first {
            closes.recv().await.unwrap();
        }
        let answer = tokio::spawn(reply.body.collect(1 << 20)).await.unwrap();
        assert_eq!(answer.unwrap(), "[]");
        if !closed_first {
            closes.recv().await.unwrap();
        }
    }
}

/// A vendor may refuse a request before it has read it, and never read it.
#[tokio::test]
async fn an_answer_before_the_end_of_the_request_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            connection.read_exact(&mut [0; 16]).unwrap();
            let answer = b"HTTP/1.1 413 Too Large\r\ncontent-length: 2\r\n\r\n{}";
            connection.write_all(answer).unwrap();
            open.push(connection);
        }
    });
    let upstream = HttpUpstream::new(spec(format!("http://{address}"))).unwrap();
    let long = format!("{{\"x\":\"{}\"}}", "y".repeat(16 << 20));
    // A second request on the same connection would be taken for the rest of the first one.
    for _ in 0..2 {
        let reply = upstream
            .send(call(Dialect::OpenAi, long.clone()))
            .await
            .unwrap();
        assert_eq!(reply.status, 413);
        assert_eq!(reply.body.collect(10).await.unwrap(), "{}");
    }
}

#[tokio::test]
async fn b5_a_compressed_answer_is_refused_not_unpacked() {
    let bomb = Reply::gzip_bomb(16 << 20).unwrap();
    let vendor = FakeVendor::start(bomb).unwrap();
    let refused = ask(&vendor, call(Dialect::Claude, "{}")).await;
    assert!(
        matches!(&refused, Err(UpstreamError::Broken(why)) if why.contains("compressed")),
        "{refused:?}"
    );
    assert_eq!(
        vendor.requests()[0].header("accept-encoding"),
        Some("identity")
    );
}

#[tokio::test]
async fn b5_an_answer_is_taken_to_its_limit_and_no_further() {
    let limit = 1 << 20;
    let check = |reply: Reply, at_once: bool| async move {
        let vendor = FakeVendor::start(reply).unwrap();
        let sent = ask(&vendor, call(Dialect::OpenAi, "{}")).await;
        let told = matches!(sent, Err(UpstreamError::TooLong { .. }));
        assert_eq!(told, at_once);
        match sent {
            Ok(reply) => reply.body.collect(usize::MAX).await.map(|body| body.len()),
            Err(error) => Err(error),
        }
    };
    let zeros = |length| vec![b'0'; length];
    let too_long = Err(UpstreamError::TooLong { limit });
    assert_eq!(check(Reply::json(zeros(limit)), false).await, Ok(limit));
    assert_eq!(check(Reply::json(zeros(limit + 1)), true).await, too_long);
    assert_eq!(
        check(Reply::json(zeros(limit)).in_chunks(10_000), false).await,
        Ok(limit)
    );
    assert_eq!(
        check(Reply::json(zeros(limit + 1)).in_chunks(10_000), false).await,
        too_long
    );
    // A stream is bounded by who reads it, event by event.
    assert_eq!(
        check(Reply::events(zeros(limit + 1)), false).await,
        Ok(limit + 1)
    );
}

#[tokio::test]
async fn b7_only_what_may_go_along_reaches_the_vendor() {
    let smuggled = headers(&[
        ("authorization", "Bearer caller"),
        ("proxy-authorization", "Basic caller"),
        ("x-api-key", "caller"),
        ("x-goog-api-key", "caller"),
        ("api-key", "caller"),
        ("cookie", "session=caller"),
        ("host", "evil.example"),
        ("connection", "close, X-Hop"),
        ("x-hop", "caller"),
        ("keep-alive", "timeout=5"),
        ("te", "trailers"),
        ("transfer-encoding", "chunked"),
        ("upgrade", "h2c"),
        ("content-length", "9999"),
        ("content-encoding", "gzip"),
        ("content-type", "text/plain"),
        ("accept-encoding", "gzip"),
        ("expect", "100-continue"),
        ("forwarded", "for=caller"),
        ("via", "1.1 caller"),
        ("x-forwarded-for", "10.0.0.1"),
        ("x-forwarded-host", "evil.example"),
        ("anthropic-beta", "feature-1"),
        ("user-agent", "their-client/1"),
    ]);
    let bearer = format!("Bearer {KEY}");
    for (dialect, credential) in [
        (Dialect::OpenAi, vec![("authorization", bearer.as_str())]),
        (Dialect::Copilot, vec![("authorization", &bearer)]),
        (Dialect::Gemini, vec![("x-goog-api-key", KEY)]),
        (
            Dialect::Claude,
            vec![("x-api-key", KEY), ("anthropic-version", "2023-06-01")],
        ),
    ] {
        let vendor = FakeVendor::start(Reply::json("{}")).unwrap();
        let mut call = call(dialect, "{}");
        call.headers = smuggled.clone();
        ask(&vendor, call).await.unwrap();
        let request = &vendor.requests()[0];
        let seen = request.headers.iter();
        let seen: BTreeMap<_, _> = seen
            .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
            .collect();
        let host = vendor.addr().to_string();
        let mut expected = BTreeMap::from([
            ("accept-encoding", "identity"),
            ("anthropic-beta", "feature-1"),
            ("content-length", "2"),
            ("content-type", "application/json"),
            ("host", host.as_str()),
            ("user-agent", "their-client/1"),
        ]);
        expected.extend(credential);
        assert_eq!(seen, expected, "{dialect}");
    }
}

#[tokio::test]
async fn b7_what_belongs_to_the_connection_does_not_come_back() {
    let reply = Reply::json("{}")
        .header("connection", "x-hop")
        .header("x-hop", "1")
        .header("keep-alive", "timeout=5")
        .header("proxy-authenticate", "Basic")
        .header("x-request-id", "req_1")
        .header("set-cookie", "a=1")
        .header("set-cookie", "b=2")
        .status(400);
    let vendor = FakeVendor::start(reply).unwrap();
    let reply = ask(&vendor, call(Dialect::OpenAi, "{}")).await.unwrap();
    assert_eq!(reply.status, 400);
    let mut names: Vec<_> = reply
        .headers
        .iter()
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    let expected = [
        "content-length",
        "content-type",
        "date",
        "set-cookie",
        "set-cookie",
        "x-request-id",
    ];
    assert_eq!(names, expected);
}

#[tokio::test]
async fn the_callers_version_of_the_wire_wins_over_the_configured_one() {
    let vendor = FakeVendor::start(Reply::json("{}")).unwrap();
    let configured = HttpUpstream::new(HttpUpstreamSpec {
        wire_version: Some("2026-10-21".to_owned()),
        key: None,
        ..spec(vendor.url(""))
    })
    .unwrap();
    configured.send(call(Dialect::Claude, "{}")).await.unwrap();
    let mut named = call(Dialect::Claude, "{}");
    named.headers = headers(&[("anthropic-version", "2023-06-01")]);
    configured.send(named).await.unwrap();
    let seen = vendor.requests();
    let versions: Vec<_> = seen
        .iter()
        .map(|seen| seen.header("anthropic-version"))
        .collect();
    assert_eq!(versions, [Some("2026-10-21"), Some("2023-06-01")]);
    assert_eq!(seen[0].header("x-api-key"), None);
}

#[tokio::test]
async fn b11_a_redirection_is_not_followed() {
    let elsewhere = FakeVendor::start(Reply::json("{}")).unwrap();
    let vendor = FakeVendor::start(Reply::redirect(&elsewhere.url("/v1/messages"))).unwrap();
    let refused = ask(&vendor, call(Dialect::Claude, "{}")).await;
    assert_eq!(refused.unwrap_err(), UpstreamError::Redirected);
    assert_eq!((vendor.requests().len(), elsewhere.connections()), (1, 0));
}

#[tokio::test]
async fn b15_dropping_the_answer_ends_the_exchange_at_the_vendor() {
    let endless = Reply::events(vec![b'x'; 1 << 20])
        .in_chunks(10)
        .every(Duration::from_millis(5));
    for (reply, name) in [
        (endless.clone(), "while it comes"),
        (endless.stall_at(100), "while it stalls"),
        (Reply::silence(), "before it begins"),
    ] {
        let vendor = Arc::new(FakeVendor::start(reply).unwrap());
        let upstream = upstream(&vendor, Dialect::OpenAi);
        let exchange = async {
            let reply = upstream.send(call(Dialect::OpenAi, "{}")).await.unwrap();
            let mut body = reply.body;
            while let Some(part) = body.next().await {
                part.unwrap();
            }
        };
        let mid_way = async {
            assert!(until(&vendor, |seen| !seen.is_empty()).await, "{name}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        };
        tokio::select! {
            () = exchange => panic!("{name}: it ended"),
            () = mid_way => {}
        }
        let dropped = Instant::now();
        let aborted = |seen: &[VendorRequest]| matches!(seen[0].end, ExchangeEnd::Aborted { .. });
        assert!(until(&vendor, aborted).await, "{name}");
        let ExchangeEnd::Aborted { at } = vendor.requests()[0].end else {
            unreachable!()
        };
        assert!(
            at.duration_since(dropped) < Duration::from_secs(1),
            "{name}"
        );
    }
}

#[tokio::test]
async fn b17_an_answer_that_is_cut_is_never_taken_for_a_whole_one() {
    let text = "event: a\ndata: {\"n\":1}\n\ndata: [DONE]\n\n";
    let cuts = [Cut::Eof, Cut::Reset]
        .into_iter()
        .flat_map(|how| (0..=text.len()).map(move |at| (at, how)));
    let replies = cuts
        .clone()
        .map(|(at, how)| Reply::events(text).cut_at(at, how));
    let vendor = FakeVendor::start(Script::InOrder(replies.collect())).unwrap();
    let upstream = upstream(&vendor, Dialect::OpenAi);
    for (at, how) in cuts {
        let mut seen = Vec::new();
        let mut body = match upstream.send(call(Dialect::OpenAi, "{}")).await {
            Ok(reply) => reply.body,
            // Cut before its first byte, an answer may not even have a head.
            Err(UpstreamError::Broken(_)) if at == 0 => continue,
            Err(other) => panic!("{how:?} at {at}: {other}"),
        };
        let end = loop {
            match body.next().await {
                Some(Ok(part)) => seen.extend_from_slice(&part),
                Some(Err(error)) => break Some(error),
                None => break None,
            }
        };
        assert!(
            matches!(end, Some(UpstreamError::Broken(_))),
            "{how:?} at {at}: {end:?}"
        );
        assert_eq!(seen, &text.as_bytes()[..at], "{how:?}");
        assert!(body.next().await.is_none(), "nothing comes after the end");
    }
}

#[tokio::test]
async fn b13_nothing_shows_the_key() {
    let with_password = spec(format!("https://user:{KEY}@h"));
    let vendor = FakeVendor::start(Reply::json("{}")).unwrap();
    let upstream = upstream(&vendor, Dialect::Claude);
    let shown = [
        format!("{with_password:?}"),
        format!("{upstream:?}"),
        format!("{:?}", HttpUpstream::new(with_password)),
        format!(
            "{:?}",
            HttpUpstream::new(HttpUpstreamSpec {
                key: Some(format!("{KEY}\n").into()),
                ..spec("https://h")
            })
        ),
        format!(
            "{:?}",
            HttpUpstream::new(spec(format!("https://h?key={KEY}")))
        ),
        format!("{:?}", upstream.send(call(Dialect::Claude, "{}")).await),
    ];
    for text in shown {
        assert!(!text.contains("canary"), "{text}");
    }
}

#[tokio::test]
async fn what_cannot_work_is_refused_by_name() {
    let check = |spec: HttpUpstreamSpec, words: &str| {
        let error = HttpUpstream::new(spec).unwrap_err();
        assert_eq!(error.code(), ErrorCode::ConfigInvalid);
        assert!(error.message().contains(words), "{error}");
    };
    check(
        HttpUpstreamSpec {
            dialects: Vec::new(),
            ..spec("https://h")
        },
        "no dialect",
    );
    check(spec("ftp://h"), "base_url must begin");
    check(
        HttpUpstreamSpec {
            key: Some("".into()),
            ..spec("https://h")
        },
        "key is empty",
    );
    check(
        HttpUpstreamSpec {
            key: Some("a\nb".into()),
            ..spec("https://h")
        },
        "key holds",
    );
    check(
        HttpUpstreamSpec {
            wire_version: Some("\0".to_owned()),
            ..spec("https://h")
        },
        "wire_version",
    );
    check(
        HttpUpstreamSpec {
            ca_file: Some("no/such/file".into()),
            ..spec("https://h")
        },
        "ca_file no/such/file",
    );

    let vendor = FakeVendor::start(Reply::json("{}")).unwrap();
    let claude = upstream(&vendor, Dialect::Claude);
    let other = claude.send(call(Dialect::OpenAi, "{}")).await;
    assert!(matches!(other, Err(UpstreamError::NotConfigured(_))));
    assert_eq!(vendor.connections(), 0);
    let url = vendor.url("");
    drop(vendor);
    let gone = HttpUpstream::new(spec(url)).unwrap();
    let error = gone.send(call(Dialect::Claude, "{}")).await.unwrap_err();
    assert!(
        matches!(&error, UpstreamError::Unreachable(why) if why.contains("refused")),
        "{error}"
    );
}
