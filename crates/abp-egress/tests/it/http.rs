//! Plain HTTP in absolute form.

use abp_egress::{EgressKind, EgressOutcome, EgressVerdict};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::support::{Proxy, Server, ok, options, read_head, read_to_end};

#[tokio::test]
async fn each_request_of_a_connection_is_judged_anew() {
    let server = Server::named("good").await;
    let mut proxy = Proxy::start(options(server.port()));
    let port = server.port();
    let mut stream = proxy.connect().await;
    for (host, path) in [("good.example", "/a?b=c"), ("OTHER.example", "")] {
        let request =
            format!("GET http://{host}:{port}{path} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let mut body = [0; 4];
        stream.read_exact(&mut body).await.unwrap();
        assert_eq!(&body, b"good");
    }
    let denied =
        format!("GET http://evil.example:{port}/ HTTP/1.1\r\nHost: evil.example:{port}\r\n\r\n");
    stream.write_all(denied.as_bytes()).await.unwrap();
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    let mut told = Vec::new();
    for _ in 0..3 {
        let event = proxy.next_event().await;
        told.push((event.host, event.verdict, event.outcome, event.bytes_down));
    }
    let complete = EgressOutcome::Complete;
    let expected = [
        (
            "good.example".to_owned(),
            EgressVerdict::Allowed,
            complete,
            4,
        ),
        (
            "other.example".to_owned(),
            EgressVerdict::Allowed,
            complete,
            4,
        ),
        (
            "evil.example".to_owned(),
            EgressVerdict::Denied,
            EgressOutcome::Refused,
            0,
        ),
    ];
    assert_eq!(told, expected);
    let lines: Vec<String> = server
        .requests()
        .iter()
        .map(|text| text.lines().next().unwrap().to_owned())
        .collect();
    assert_eq!(lines, ["GET /a?b=c HTTP/1.1", "GET / HTTP/1.1"]);
    assert_eq!(proxy.close().await, []);
}

#[tokio::test]
async fn headers_of_the_connection_stay_behind() {
    let answer = |_: &str| {
        let head = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nKeep-Alive: timeout=5\r\nX-Hop: 1\r\n";
        format!("{head}Connection: X-Hop\r\nProxy-Authenticate: Basic\r\nX-End: 1\r\n\r\nok")
            .into_bytes()
    };
    let server = Server::start(answer).await;
    let proxy = Proxy::start(options(server.port()));
    let host = format!("good.example:{}", server.port());
    let request = format!(
        "POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: Basic eA==\r\n\
         Proxy-Connection: keep-alive\r\nConnection: close, X-Hop\r\nX-Hop: 1\r\nX-End: 1\r\n\
         Upgrade: websocket\r\nTE: trailers\r\nContent-Length: 4\r\n\r\nbody"
    );
    let answer = proxy.send(request.as_bytes()).await.to_ascii_lowercase();
    let sent = server.requests().concat().to_ascii_lowercase();
    for text in [&answer, &sent] {
        assert!(text.contains("x-end: 1"), "{text}");
        for name in ["x-hop", "proxy-", "keep-alive", "upgrade", "\nte:"] {
            assert!(!text.contains(name), "{name} in {text}");
        }
    }
    assert!(sent.ends_with("\r\n\r\nbody"), "{sent}");
    assert!(sent.contains("content-length: 4"), "{sent}");
}

/// A second request that hides behind the first one, or in its body, never reaches the server.
#[tokio::test]
async fn requests_cannot_be_smuggled() {
    let server = Server::named("good").await;
    let host = format!("good.example:{}", server.port());
    let inner = "GET http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\n\r\n";
    let other = format!("other.example:{}", server.port());
    let next = format!("GET http://{other}/ HTTP/1.1\r\nHost: {other}\r\n\r\n");
    let first = format!("http://{host}/ HTTP/1.1\r\nHost: {host}\r\n");
    let length = inner.len();
    let sized = format!("POST {first}Content-Length: {length}\r\n\r\n{inner}");
    let chunked =
        format!("POST {first}Transfer-Encoding: chunked\r\n\r\n{length:x}\r\n{inner}\r\n0\r\n\r\n");
    let cases = [
        // In a body it is a body.
        (sized, 1, 200),
        (chunked, 1, 200),
        // Behind a request it is not looked at, although it is allowed, and the connection ends.
        (format!("GET {first}\r\n{next}"), 1, 200),
        (
            format!("POST {first}Content-Length: 0\r\n\r\n{next}"),
            1,
            200,
        ),
        (
            format!("POST {first}Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n{next}"),
            1,
            200,
        ),
        // Chunks whose size cannot be read.
        (
            format!("POST {first}Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n"),
            0,
            502,
        ),
    ];
    for (bytes, requests, status) in cases {
        let proxy = Proxy::start(options(server.port()));
        let before = server.requests().len();
        let mut stream = proxy.connect().await;
        stream.write_all(bytes.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")),
            "{bytes}: {head}"
        );
        stream.shutdown().await.unwrap();
        let rest = read_to_end(&mut stream).await;
        assert!(!rest.contains("200 OK"), "{bytes}: {rest}");
        let sent = server.requests().split_off(before);
        assert_eq!(sent.len(), requests, "{sent:?}");
        assert!(sent.iter().all(|text| text.contains(&host)), "{sent:?}");
    }
}

#[tokio::test]
async fn responses_without_a_body_are_complete() {
    let server = Server::start(|request| {
        if request.starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec()
        } else if request.starts_with("PUT") {
            b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()
        } else {
            ok("")
        }
    })
    .await;
    let mut proxy = Proxy::start(options(server.port()));
    let host = format!("good.example:{}", server.port());
    let mut stream = proxy.connect().await;
    for method in ["HEAD", "PUT", "GET", "HEAD"] {
        let request = format!("{method} http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        assert!(head.starts_with("HTTP/1.1 20"), "{method} {head}");
        let event = proxy.next_event().await;
        assert_eq!(event.outcome, EgressOutcome::Complete, "{method}");
        assert_eq!(event.kind, EgressKind::Http);
        assert_eq!(event.bytes_down, 0);
    }
}

#[tokio::test]
async fn a_target_that_breaks_off_is_told() {
    for (answer, outcome, told) in [
        (
            &b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"[..],
            EgressOutcome::Broken,
            "half",
        ),
        (b"not http at all\r\n\r\n", EgressOutcome::Broken, "502"),
        (
            b"HTTP/1.1 101 Switching\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n",
            EgressOutcome::Broken,
            "502",
        ),
    ] {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let mut proxy = Proxy::start(options(port));
        let server = tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            read_head(&mut stream).await;
            stream.write_all(answer).await.unwrap();
        });
        let host = format!("good.example:{port}");
        let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
        let answer = proxy.send(request.as_bytes()).await;
        assert!(answer.contains(told), "{answer}");
        assert_eq!(proxy.next_event().await.outcome, outcome);
        server.await.unwrap();
    }
}

/// A refusal comes while the client still sends its body, and must not be lost in a reset.
#[tokio::test]
async fn a_refused_upload_gets_its_answer() {
    let proxy = Proxy::start(options(1));
    let mut stream = proxy.connect().await;
    let head =
        "POST http://evil.example/ HTTP/1.1\r\nHost: evil.example\r\nContent-Length: 24000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    for _ in 0..6 {
        tokio::time::sleep(std::time::Duration::from_millis(15)).await;
        stream.write_all(&[b'x'; 4_000]).await.unwrap();
    }
    let answer = read_to_end(&mut stream).await;
    assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
}
