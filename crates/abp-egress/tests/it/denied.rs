//! Tricks: everything that must not get out, with the rule that stops it.

use std::sync::atomic::Ordering;

use abp_egress::{EgressOptions, EgressOutcome, EgressReport, EgressVerdict};

use crate::support::{Proxy, Server, options, resolver, rules};

const SPELLING: &str = "target_spelling";
const HOST: &str = "host_header";
const UNLISTED: &str = "<not listed>";
const PORT: &str = "port 25 is refused";
const NUMBER: &str = "the host is a number but not an IPv4 address";
const USER: &str = "user information";
const NOT_HTTP: &str = "the request head is not valid HTTP/1";
const TWICE: &str = "given more than once";
const LINE_FEED: &str = "bare line feed";
const FOLDED: &str = "folded";

/// Request lines and headers, without the empty line that ends the head; `PORT` stands for the port of
/// a server that `good.example` may be reached on.
const TARGETS: &[(&str, &str)] = &[
    // Hosts that are not listed, and spellings that might pass for one that is.
    ("CONNECT evil.example:PORT HTTP/1.1", UNLISTED),
    ("CONNECT good.example.evil.example:PORT HTTP/1.1", UNLISTED),
    ("CONNECT evil-good.example:PORT HTTP/1.1", UNLISTED),
    ("CONNECT xn--good-example-.example:PORT HTTP/1.1", UNLISTED),
    ("CONNECT localhost:PORT HTTP/1.1", UNLISTED),
    ("CONNECT good.example:1 HTTP/1.1", UNLISTED),
    ("CONNECT anything.wild.example:25 HTTP/1.1", PORT),
    ("CONNECT good.example HTTP/1.1", "CONNECT needs a port"),
    ("CONNECT good.example: HTTP/1.1", SPELLING),
    ("CONNECT good.example:0 HTTP/1.1", SPELLING),
    ("CONNECT good.example:0PORT HTTP/1.1", SPELLING),
    ("CONNECT good.example:99999 HTTP/1.1", SPELLING),
    ("CONNECT good.example:+80 HTTP/1.1", SPELLING),
    ("CONNECT good..example:PORT HTTP/1.1", SPELLING),
    ("CONNECT .good.example:PORT HTTP/1.1", SPELLING),
    ("CONNECT user@good.example:PORT HTTP/1.1", USER),
    (
        "CONNECT good.example:PORT@evil.example:PORT HTTP/1.1",
        SPELLING,
    ),
    (
        "CONNECT good.example%00.evil.example:PORT HTTP/1.1",
        NOT_HTTP,
    ),
    ("CONNECT good%2eexample:PORT HTTP/1.1", NOT_HTTP),
    (
        "CONNECT http://good.example:PORT HTTP/1.1",
        "CONNECT needs host:port",
    ),
    (
        "CONNECT http://good.example:PORT/ HTTP/1.1",
        "CONNECT needs host:port",
    ),
    ("CONNECT / HTTP/1.1", "CONNECT needs host:port"),
    ("CONNECT good.example:PORT/x HTTP/1.1", NOT_HTTP),
    ("CONNECT good.example:PORT?x HTTP/1.1", NOT_HTTP),
    ("CONNECT g\u{f6}\u{f6}d.example:PORT HTTP/1.1", NOT_HTTP),
    ("CONNECT good.example\0:PORT HTTP/1.1", NOT_HTTP),
    // Addresses in every spelling.
    ("CONNECT 8.8.8.8:443 HTTP/1.1", UNLISTED),
    ("CONNECT 127.0.0.1:443 HTTP/1.1", UNLISTED),
    ("CONNECT 127.0.0.2:PORT HTTP/1.1", UNLISTED),
    ("CONNECT 169.254.169.254:80 HTTP/1.1", UNLISTED),
    ("CONNECT 2130706433:PORT HTTP/1.1", NUMBER),
    ("CONNECT 0x7f000001:PORT HTTP/1.1", NUMBER),
    ("CONNECT 0x7f.0.0.1:PORT HTTP/1.1", NUMBER),
    ("CONNECT 0177.0.0.1:PORT HTTP/1.1", NUMBER),
    ("CONNECT 127.1:PORT HTTP/1.1", NUMBER),
    ("CONNECT 127.0.0.1.:PORT HTTP/1.1", UNLISTED),
    ("CONNECT [::1]:PORT HTTP/1.1", UNLISTED),
    ("CONNECT ::1:PORT HTTP/1.1", NOT_HTTP),
    ("CONNECT [::ffff:127.0.0.2]:PORT HTTP/1.1", UNLISTED),
    ("CONNECT [::ffff:7f00:2]:PORT HTTP/1.1", UNLISTED),
    ("CONNECT [fe80::1%25eth0]:PORT HTTP/1.1", SPELLING),
    ("CONNECT [64:ff9b::7f00:1]:443 HTTP/1.1", UNLISTED),
    ("CONNECT [::1]x:PORT HTTP/1.1", SPELLING),
    ("CONNECT [good.example]:PORT HTTP/1.1", SPELLING),
    // Requests in absolute form.
    (
        "GET http://evil.example:PORT/ HTTP/1.1\r\nHost: evil.example:PORT",
        UNLISTED,
    ),
    (
        "GET http://good.example:PORT/ HTTP/1.1\r\nHost: evil.example:PORT",
        HOST,
    ),
    (
        "GET http://good.example:PORT/ HTTP/1.1\r\nHost: good.example",
        HOST,
    ),
    ("GET http://good.example:PORT/ HTTP/1.1", HOST),
    ("GET http://good.example:PORT/ HTTP/1.0", HOST),
    (
        "GET http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nHost: evil.example",
        HOST,
    ),
    (
        "GET http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT, evil.example",
        HOST,
    ),
    (
        "GET http://evil.example@good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT",
        USER,
    ),
    (
        "GET http://good.example:PORT@evil.example/ HTTP/1.1\r\nHost: evil.example",
        SPELLING,
    ),
    (
        "GET http://good.example:PORT\\@evil.example/ HTTP/1.1\r\nHost: evil.example",
        NOT_HTTP,
    ),
    (
        "GET http://2130706433:PORT/ HTTP/1.1\r\nHost: 2130706433:PORT",
        NUMBER,
    ),
    (
        "GET https://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT",
        "https needs",
    ),
    (
        "GET ftp://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT",
        "only http",
    ),
    (
        "GET //good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT",
        HOST,
    ),
    ("GET / HTTP/1.1\r\nHost: good.example:PORT", HOST),
    (
        "GET good.example:PORT HTTP/1.1\r\nHost: good.example:PORT",
        "only http",
    ),
    ("OPTIONS * HTTP/1.1\r\nHost: PROXY", "no path"),
    (
        "TRACE http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT",
        "TRACE",
    ),
    ("TRACE /route/ HTTP/1.1\r\nHost: PROXY", "TRACE"),
    (
        "GET /nowhere/ HTTP/1.1\r\nHost: PROXY",
        "no route has this name",
    ),
    ("GET /route/ HTTP/1.1\r\nHost: evil.example", HOST),
    // The Host header of a tunnel.
    (
        "CONNECT good.example:PORT HTTP/1.1\r\nHost: evil.example:PORT",
        HOST,
    ),
    (
        "CONNECT good.example:PORT HTTP/1.1\r\nHost: good.example:1",
        HOST,
    ),
    (
        "CONNECT good.example:PORT HTTP/1.1\r\nContent-Length: 0",
        "no body",
    ),
    (
        "CONNECT good.example:PORT HTTP/1.1\r\nTransfer-Encoding: chunked",
        "no body",
    ),
    // Heads that two readers could end at different places.
    (
        "GET http://good.example:PORT/ HTTP/1.1\nHost: good.example:PORT",
        LINE_FEED,
    ),
    (
        "GET http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nA: b\n c: d",
        LINE_FEED,
    ),
    (
        "GET http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nA: b\r\n c",
        FOLDED,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nContent-Length: 4\r\nTransfer-Encoding: chunked",
        TWICE,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nTransfer-Encoding: chunked\r\nContent-Length: 4",
        TWICE,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nContent-Length: 4\r\nContent-Length: 4",
        TWICE,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nContent-Length: 4\r\nContent-Length: 5",
        TWICE,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nTransfer-Encoding : chunked",
        NOT_HTTP,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nTransfer-Encoding: xchunked",
        NOT_HTTP,
    ),
    (
        "POST http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT\r\nContent-Length: +4",
        NOT_HTTP,
    ),
    (
        "GET http://good.example:PORT/ HTTP/2.0\r\nHost: good.example:PORT",
        NOT_HTTP,
    ),
    ("PRI * HTTP/2.0", NOT_HTTP),
    (
        "GET  http://good.example:PORT/ HTTP/1.1\r\nHost: good.example:PORT",
        NOT_HTTP,
    ),
    ("\x16\x03\x01\x02\x00\x01\x00\x01\u{fc}\x03\x03", NOT_HTTP),
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tricks_are_denied_with_their_rule() {
    let server = Server::named("good").await;
    let port = server.port().to_string();
    let mut proxy = Proxy::start(EgressOptions {
        rules: rules(
            &[format!("good.example:{port}"), "*.wild.example".to_owned()],
            &[],
        ),
        resolver: resolver(&[("good.example", "127.0.0.1"), ("evil.example", "127.0.0.1")]),
        ..options(server.port())
    });
    assert!(TARGETS.len() >= 60);
    let mut wrong = Vec::new();
    for (head, rule) in TARGETS {
        let own = proxy.addr.to_string();
        let head = head.replace("PORT", &port).replace("PROXY", &own);
        let request: Vec<u8> = head.chars().map(|c| u8::try_from(c).unwrap()).collect();
        let answer = proxy.send(&[&request[..], b"\r\n\r\n"].concat()).await;
        let event = proxy.next_event().await;
        let code = serde_json::to_value(&event.rule).unwrap();
        let told = format!("{} {}", code["rule"], event.rule);
        let is_refused = event.verdict == EgressVerdict::Denied
            && event.outcome == EgressOutcome::Refused
            && event.bytes_up == 0
            && !answer.contains("200 OK");
        if !is_refused || !told.contains(rule) {
            wrong.push(format!("{head:?}: {event:?}\n{answer}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
    assert_eq!(server.connections.load(Ordering::SeqCst), 0);
    assert_eq!(proxy.close().await, Vec::<EgressReport>::new());
}
