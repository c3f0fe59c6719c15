//! Routes: credentials that never reach the sandbox.

use std::sync::Arc;

use abp_egress::{
    EgressEvent, EgressKind, EgressOptions, EgressOutcome, EgressRules, EgressVerdict, Route,
    RouteCredential,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use crate::support::{Proxy, Server, ok, options, read_head};
use crate::tls::Authority;

const SECRET: &str = "sk-live-0123456789";

fn credential() -> Option<RouteCredential> {
    Some(RouteCredential::bearer(SECRET.into()).unwrap())
}

fn with_route(route: Route) -> EgressOptions {
    EgressOptions {
        routes: vec![route],
        ..EgressOptions::new(EgressRules::deny_all())
    }
}

/// Sends a request to the proxy itself; the answer and the event.
async fn ask(proxy: &mut Proxy, line: &str, headers: &str) -> (String, EgressEvent) {
    let own = proxy.addr;
    let request = format!("{line} HTTP/1.1\r\nHost: {own}\r\nConnection: close\r\n{headers}\r\n");
    let answer = proxy.send(request.as_bytes()).await;
    let event = proxy.next_event().await;
    (answer, event)
}

#[tokio::test]
async fn the_credential_is_put_in_for_the_target_alone() {
    let server =
        Server::start(|request| ok(&request.lines().next().unwrap_or_default().repeat(2))).await;
    let base = format!("http://{}/api/v2/", server.addr);
    let mut proxy = Proxy::start(with_route(Route::new("api", &base, credential()).unwrap()));
    let own = proxy.addr;
    let headers = "Authorization: Bearer mine\r\nX-Api-Key: mine\r\nX-Other: yes\r\n\
                   Connection: authorization\r\n";
    let (answer, event) = ask(&mut proxy, "GET /api/things?q=%2e%2e", headers).await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert!(!answer.contains(SECRET));
    assert_eq!(
        (event.kind, event.verdict),
        (EgressKind::Route, EgressVerdict::Allowed)
    );
    assert_eq!(event.rule.to_string(), "route \"api\"");
    assert_eq!(
        (&event.host[..], event.port),
        ("127.0.0.1", Some(server.port()))
    );
    assert!(!format!("{event:?}").contains(SECRET));
    // A client that sends everything through its proxy uses the absolute form.
    let absolute = format!("GET http://{own}/api");
    let (answer, _) = ask(&mut proxy, &absolute, "").await;
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    let sent = server.requests();
    let first = &sent[0].to_ascii_lowercase();
    assert!(
        first.starts_with("get /api/v2/things?q=%2e%2e http/1.1\r\n"),
        "{first}"
    );
    assert!(
        first.contains(&format!("host: {}\r\n", server.addr)),
        "{first}"
    );
    assert!(
        first.contains(&format!("authorization: bearer {SECRET}\r\n")),
        "{first}"
    );
    assert!(first.contains("x-other: yes"), "{first}");
    assert!(!first.contains("mine"), "{first}");
    assert!(
        sent[1].starts_with("GET /api/v2 HTTP/1.1\r\n"),
        "{}",
        sent[1]
    );
}

#[tokio::test]
async fn paths_do_not_leave_the_base() {
    let server = Server::named("inside").await;
    let base = format!("http://{}/base", server.addr);
    let mut proxy = Proxy::start(with_route(Route::new("api", &base, credential()).unwrap()));
    for path in [
        "/api/..",
        "/api/../admin",
        "/api/%2e%2e/admin",
        "/api/%252e%252e%252fadmin",
        "/api/a/..%2f..%2fadmin",
        "/api/..;/admin",
        "/api/..%5cadmin",
        "/api/a%00b",
        "/api/a%0d%0aHost:%20x",
        "/%61pi/x",
        "//api/x",
        "/API/x",
        "/apix",
    ] {
        let (answer, event) = ask(&mut proxy, &format!("GET {path}"), "").await;
        assert!(answer.starts_with("HTTP/1.1 40"), "{path} {answer}");
        assert_eq!(event.verdict, EgressVerdict::Denied, "{path}");
    }
    assert_eq!(server.requests(), Vec::<String>::new());
    for (path, sent) in [
        ("/api/@scope%2fname", "/base/@scope%2fname"),
        ("/api//x", "/base//x"),
        ("/api/?..", "/base/?.."),
    ] {
        let before = server.requests().len();
        ask(&mut proxy, &format!("GET {path}"), "").await;
        let line = format!("GET {sent} HTTP/1.1");
        assert_eq!(server.requests()[before].lines().next(), Some(&line[..]));
    }
}

#[tokio::test]
async fn a_target_that_sends_the_credential_back_is_cut_off() {
    let server =
        Server::start(|request| {
            let path = request.split(' ').nth(1).unwrap_or_default();
            match path {
            "/headers" => format!(
                "HTTP/1.1 200 OK\r\nAuthorization: in another form\r\nX-Debug: got {SECRET}.\r\n\
                 X-Fine: yes\r\nContent-Length: 2\r\n\r\nok"
            )
            .into_bytes(),
            "/body" => ok(&format!("before {} after", request.replace(['\r', '\n'], " "))),
            "/chunks" => {
                let (one, two) = SECRET.split_at(7);
                let (a, b) = (one.len() + 4, two.len() + 4);
                format!(
                    "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n{a:x}\r\npre-{one}\r\n\
                     {b:x}\r\n{two}-end\r\n0\r\n\r\n"
                )
                .into_bytes()
            }
            _ => ok(&format!("almost: {}", &SECRET[..SECRET.len() - 1])),
        }
        })
        .await;
    let base = format!("http://{}", server.addr);
    let mut proxy = Proxy::start(with_route(Route::new("api", &base, credential()).unwrap()));
    let (answer, event) = ask(&mut proxy, "GET /api/headers", "").await;
    assert!(
        answer.contains("x-fine: yes") && answer.ends_with("\r\n\r\nok"),
        "{answer}"
    );
    assert!(
        !answer.contains(SECRET) && !answer.contains("x-debug") && !answer.contains("another"),
        "{answer}"
    );
    assert_eq!(event.outcome, EgressOutcome::Complete);
    for path in ["/body", "/chunks"] {
        let (answer, event) = ask(&mut proxy, &format!("GET /api{path}"), "").await;
        assert!(!answer.contains(&SECRET[..7]), "{answer}");
        assert_eq!(event.outcome, EgressOutcome::Withheld, "{path}");
    }
    let (answer, event) = ask(&mut proxy, "GET /api/almost", "").await;
    assert!(answer.ends_with(&SECRET[..SECRET.len() - 1]), "{answer}");
    assert_eq!(event.outcome, EgressOutcome::Complete);
}

#[tokio::test]
async fn redirections_are_passed_on_and_not_followed() {
    let elsewhere = Server::named("elsewhere").await;
    let location = format!("http://{}/", elsewhere.addr);
    let target = location.clone();
    let server = Server::start(move |_| {
        let head = "HTTP/1.1 307 Temporary Redirect\r\nContent-Length: 0\r\nLocation: ";
        format!("{head}{target}\r\n\r\n").into_bytes()
    })
    .await;
    let base = format!("http://{}", server.addr);
    let mut proxy = Proxy::start(EgressOptions {
        routes: vec![Route::new("api", &base, credential()).unwrap()],
        ..options(elsewhere.port())
    });
    let (answer, _) = ask(&mut proxy, "POST /api/x", "Content-Length: 0\r\n").await;
    assert!(
        answer.contains(&format!("location: {location}\r\n")),
        "{answer}"
    );
    assert_eq!(elsewhere.requests(), Vec::<String>::new());
    // The agent may follow it if the policy allows that; the credential stays behind.
    let host = elsewhere.addr;
    let request =
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
    let answer = proxy.send(request.as_bytes()).await;
    assert!(answer.ends_with("elsewhere"), "{answer}");
    assert!(!elsewhere.requests().concat().contains(SECRET));
}

/// The model gateway listens in the host's own process; answers stream while they are made.
#[tokio::test]
async fn a_local_route_streams() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let gateway = listener.local_addr().unwrap();
    let key = RouteCredential::new("x-api-key", "", "key-of-the-run".into()).unwrap();
    let route = Route::local("gateway", gateway, Some(key)).unwrap();
    let mut proxy = Proxy::start(with_route(route));
    let own = proxy.addr;
    let mut client = proxy.connect().await;
    let request = format!(
        "POST /gateway/v1/messages HTTP/1.1\r\nHost: localhost:{}\r\nContent-Length: 2\r\n\r\n{{}}",
        own.port()
    );
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let head = read_head(&mut server).await;
    assert!(head.starts_with("POST /v1/messages HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("x-api-key: key-of-the-run\r\n"), "{head}");
    server
        .write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        .await
        .unwrap();
    let head = read_head(&mut client).await;
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    for part in ["data: 1\n\n", "data: 2\n\n"] {
        let chunk = format!("{:x}\r\n{part}\r\n", part.len());
        server.write_all(chunk.as_bytes()).await.unwrap();
        let mut read = vec![0; chunk.len()];
        client.read_exact(&mut read).await.unwrap();
        assert_eq!(String::from_utf8(read).unwrap().to_lowercase(), chunk);
    }
    server.write_all(b"0\r\n\r\n").await.unwrap();
    let event = proxy.next_event().await;
    assert_eq!((event.bytes_up, event.bytes_down), (2, 18));
    assert_eq!(event.outcome, EgressOutcome::Complete);
}

/// A client that goes away ends the request to the target as well.
#[tokio::test]
async fn a_client_that_leaves_ends_its_request() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let route = Route::local("gateway", listener.local_addr().unwrap(), None).unwrap();
    let mut proxy = Proxy::start(with_route(route));
    let mut client = proxy.connect().await;
    let request = format!("GET /gateway/ HTTP/1.1\r\nHost: {}\r\n\r\n", proxy.addr);
    client.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    read_head(&mut server).await;
    drop(client);
    assert_eq!(server.read(&mut [0; 8]).await.unwrap_or(0), 0);
    assert_eq!(proxy.next_event().await.outcome, EgressOutcome::Aborted);
}

#[tokio::test]
async fn a_route_believes_only_the_certificates_it_trusts() {
    let (ours, theirs) = (Authority::new(), Authority::new());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let acceptor = TlsAcceptor::from(ours.server(&["127.0.0.1"]));
    let heads = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = vec![0; 4096];
            let length = tls.read(&mut head).await.unwrap();
            seen.lock()
                .unwrap()
                .push(String::from_utf8_lossy(&head[..length]).into_owned());
            tls.write_all(&ok("secret place")).await.unwrap();
            tls.shutdown().await.unwrap();
        }
    });
    for (roots, answered, outcome) in [
        (theirs.roots(), "HTTP/1.1 502 ", EgressOutcome::Unreachable),
        (ours.roots(), "HTTP/1.1 200 ", EgressOutcome::Complete),
    ] {
        let route = Route::new("api", &format!("https://{addr}/"), credential()).unwrap();
        let mut proxy = Proxy::start(EgressOptions {
            route_roots: Some(roots),
            ..with_route(route)
        });
        let (answer, event) = ask(&mut proxy, "GET /api/", "").await;
        assert!(answer.starts_with(answered), "{answer}");
        assert_eq!(event.outcome, outcome);
    }
    let heads = heads.lock().unwrap();
    assert_eq!(heads.len(), 1);
    assert!(heads[0].contains(SECRET));
}

#[tokio::test]
async fn routes_that_would_leak_cannot_be_made() {
    for (name, base) in [
        ("", "https://a.example"),
        ("a/b", "https://a.example"),
        ("..", "https://a.example"),
        ("a", "http://a.example"),
        ("a", "http://10.0.0.1"),
        ("a", "http://localhost:1"),
        ("a", "ftp://a.example"),
        ("a", "https://user@a.example"),
        ("a", "https://a.example/?q"),
        ("a", "a.example"),
    ] {
        let made = Route::new(name, base, credential());
        assert!(made.is_err(), "{name} {base}");
    }
    assert!(RouteCredential::new("a b", "", SECRET.into()).is_err());
    assert!(RouteCredential::bearer("a\r\nb".into()).is_err());
    let shown = format!(
        "{:?}",
        Route::new("a", "https://a.example", credential()).unwrap()
    );
    assert!(!shown.contains(SECRET), "{shown}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let twice = EgressOptions {
        routes: ["a", "a"]
            .map(|name| Route::new(name, "http://127.0.0.1:1", None).unwrap())
            .into(),
        ..EgressOptions::new(EgressRules::deny_all())
    };
    assert!(abp_egress::EgressProxy::start(listener, twice).is_err());
}
