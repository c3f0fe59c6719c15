//! Bounds: time, connections, memory, events.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use abp_egress::{
    EgressKind, EgressLimits, EgressOptions, EgressOutcome, EgressReport, EgressVerdict,
};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::support::{LONG, Proxy, Server, options, read_head, read_to_end};

const SHORT: Duration = Duration::from_millis(300);

fn limited(port: u16, limits: EgressLimits) -> EgressOptions {
    EgressOptions {
        limits,
        ..options(port)
    }
}

/// A server that does the same with every connection.
async fn serve<F, A>(handle: F) -> u16
where
    F: Fn(TcpStream) -> A + Send + 'static,
    A: Future<Output = ()> + Send + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(handle(stream));
        }
    });
    port
}

async fn hold(stream: TcpStream) {
    std::future::pending::<()>().await;
    drop(stream);
}

#[tokio::test]
async fn a_head_that_drips_is_cut_off() {
    let limits = EgressLimits {
        head_time: SHORT,
        ..EgressLimits::default()
    };
    let mut proxy = Proxy::start(limited(1, limits));
    let started = Instant::now();
    let mut dripping = proxy.connect().await;
    let silent = proxy.connect().await;
    while started.elapsed() < LONG {
        if dripping.write_all(b"G").await.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert!(started.elapsed() < LONG / 2);
    for _ in 0..2 {
        let event = proxy.next_event().await;
        assert_eq!(event.kind, EgressKind::Unread);
        let rule = event.rule.to_string();
        assert_eq!(rule, "the request head did not come in time");
    }
    drop(silent);
}

#[tokio::test]
async fn heads_and_headers_are_bounded() {
    let server = Server::named("good").await;
    let mut proxy = Proxy::start(options(server.port()));
    let host = format!("good.example:{}", server.port());
    let first = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n");
    let long = "a".repeat(70_000);
    let many = "a: b\r\n".repeat(200);
    for head in [
        format!("{first}a: {long}\r\n\r\n"),
        format!("GET http://{host}/{long} HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("{first}{many}\r\n"),
    ] {
        let answer = proxy.send(head.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 4"), "{answer}");
        let event = proxy.next_event().await;
        assert_eq!(event.rule.to_string(), "the request head is too large");
        assert_eq!(event.verdict, EgressVerdict::Denied);
    }
    assert_eq!(server.requests(), Vec::<String>::new());
}

/// A thousand connections at once: never more are open towards targets than allowed, all are served, and
/// every one is told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_connections_are_served_within_the_bound() {
    const CLIENTS: usize = 1_000;
    const AT_ONCE: usize = 40;
    let (open, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let counters = (Arc::clone(&open), Arc::clone(&most));
    let port = serve(move |mut stream| {
        let (open, most) = (Arc::clone(&counters.0), Arc::clone(&counters.1));
        async move {
            let now = open.fetch_add(1, Ordering::SeqCst) + 1;
            most.fetch_max(now, Ordering::SeqCst);
            let mut byte = [0];
            stream.read_exact(&mut byte).await.unwrap();
            tokio::time::sleep(Duration::from_millis(5)).await;
            open.fetch_sub(1, Ordering::SeqCst);
            stream.write_all(b"done").await.unwrap();
        }
    })
    .await;
    let limits = EgressLimits {
        connections: AT_ONCE,
        ..EgressLimits::default()
    };
    let proxy = Arc::new(Proxy::start(limited(port, limits)));
    let mut clients = JoinSet::new();
    for _ in 0..CLIENTS {
        let proxy = Arc::clone(&proxy);
        clients.spawn(async move {
            let (mut stream, line) = proxy.tunnel(&format!("good.example:{port}")).await;
            assert_eq!(line, "HTTP/1.1 200 OK");
            stream.write_all(b"x").await.unwrap();
            read_to_end(&mut stream).await
        });
    }
    while let Some(answer) = clients.join_next().await {
        assert_eq!(answer.unwrap(), "done");
    }
    let most = most.load(Ordering::SeqCst);
    assert!(most <= AT_ONCE && most > AT_ONCE / 4, "{most}");
    let reports = Arc::into_inner(proxy).unwrap().close().await;
    let complete = |report: &&EgressReport| match report {
        EgressReport::Event(event) => {
            event.outcome == EgressOutcome::Complete && (event.bytes_up, event.bytes_down) == (1, 4)
        }
        EgressReport::Lost(_) => false,
    };
    assert_eq!(reports.iter().filter(complete).count(), CLIENTS);
    assert_eq!(reports.len(), CLIENTS);
}

#[tokio::test]
async fn a_half_closed_tunnel_still_gets_its_answer() {
    let port = serve(|mut stream| async move {
        let mut asked = Vec::new();
        stream.read_to_end(&mut asked).await.unwrap();
        let answer = asked.repeat(100_000);
        stream.write_all(&answer).await.unwrap();
    })
    .await;
    let mut proxy = Proxy::start(options(port));
    let (mut stream, _) = proxy.tunnel(&format!("good.example:{port}")).await;
    stream.write_all(b"question").await.unwrap();
    stream.shutdown().await.unwrap();
    assert_eq!(read_to_end(&mut stream).await.len(), 800_000);
    let event = proxy.next_event().await;
    assert_eq!((event.bytes_up, event.bytes_down), (8, 800_000));
    assert_eq!(event.outcome, EgressOutcome::Complete);
}

#[tokio::test]
async fn silence_ends_tunnels_requests_and_bodies() {
    let port = serve(|mut stream| async move {
        let head = read_head(&mut stream).await;
        if head.contains("/half") {
            let half = b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf";
            stream.write_all(half).await.unwrap();
        }
        std::future::pending::<()>().await;
    })
    .await;
    let limits = EgressLimits {
        idle_time: SHORT,
        response_time: SHORT,
        head_time: SHORT,
        ..EgressLimits::default()
    };
    let mut proxy = Proxy::start(limited(port, limits));
    let host = format!("good.example:{port}");
    let get = |path: &str| format!("GET http://{host}{path} HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let post =
        format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: 9\r\n\r\nhalf");
    for (request, answer, up, down) in [
        (get("/"), "504 Gateway Timeout", 0, 0),
        (get("/half"), "half", 0, 4),
        (post, "50", 4, 0),
        (format!("CONNECT {host} HTTP/1.1\r\n\r\n"), "200 OK", 0, 0),
        (
            format!("CONNECT {host} HTTP/1.1\r\n\r\nsilence"),
            "200 OK",
            7,
            0,
        ),
    ] {
        let started = Instant::now();
        let answered = proxy.send(request.as_bytes()).await;
        assert!(answered.contains(answer), "{request}: {answered}");
        let event = proxy.next_event().await;
        assert!(started.elapsed() < LONG / 4, "{request}");
        let told = (event.verdict, event.bytes_up, event.bytes_down);
        assert_eq!(told, (EgressVerdict::Allowed, up, down), "{request}");
        let is_cut_off = matches!(
            event.outcome,
            EgressOutcome::TimedOut | EgressOutcome::Broken
        );
        assert!(is_cut_off, "{request} {event:?}");
    }
}

/// A client that takes nothing does not keep its connection, nor what it asked for.
#[tokio::test]
async fn a_client_that_does_not_read_is_cut_off() {
    let port = serve(|mut stream| async move {
        let head = read_head(&mut stream).await;
        if head.starts_with("GET") {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await);
        }
        while stream.write_all(&[0; 65_536]).await.is_ok() {}
    })
    .await;
    let limits = EgressLimits {
        idle_time: SHORT,
        ..EgressLimits::default()
    };
    let mut proxy = Proxy::start(limited(port, limits));
    let host = format!("good.example:{port}");
    for request in [
        format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n"),
        format!("CONNECT {host} HTTP/1.1\r\n\r\nPUT / HTTP/1.1\r\n\r\n"),
    ] {
        let mut stream = proxy.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        let event = proxy.next_event().await;
        assert_ne!(event.outcome, EgressOutcome::Complete, "{event:?}");
        assert!(event.bytes_down > 0);
        drop(stream);
    }
}

/// The most memory that this process ever had, in bytes.
fn peak_memory() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.unwrap().trim().strip_suffix(" kB").unwrap();
    kib.parse::<u64>().unwrap() * 1024
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn big_bodies_pass_in_little_memory() {
    const SIZE: usize = 128 << 20;
    const PIECE: usize = 64 << 10;
    async fn write_all(stream: &mut TcpStream) {
        for _ in 0..SIZE / PIECE {
            stream.write_all(&[b'x'; PIECE]).await.unwrap();
        }
    }
    async fn read_all(stream: &mut TcpStream) {
        let mut piece = vec![0; PIECE];
        let mut left = SIZE;
        while left > 0 {
            left -= stream.read(&mut piece).await.unwrap();
        }
    }
    let port = serve(|mut stream| async move {
        let head = read_head(&mut stream).await;
        let answer = format!("HTTP/1.1 200 OK\r\nContent-Length: {SIZE}\r\n\r\n");
        if !head.starts_with("GET") {
            read_all(&mut stream).await;
        }
        stream.write_all(answer.as_bytes()).await.unwrap();
        write_all(&mut stream).await;
    })
    .await;
    let mut proxy = Proxy::start(options(port));
    let host = format!("good.example:{port}");
    let before = peak_memory();
    let upload =
        format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\nContent-Length: {SIZE}\r\n\r\n");
    let download = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    let tunnel = format!("CONNECT {host} HTTP/1.1\r\n\r\n");
    for (request, up) in [(upload, SIZE), (download, 0), (tunnel, 18)] {
        let mut stream = proxy.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        if up == SIZE {
            write_all(&mut stream).await;
        }
        let mut head = read_head(&mut stream).await;
        if up == 18 {
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            head = read_head(&mut stream).await;
        }
        assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
        read_all(&mut stream).await;
        drop(stream);
        let event = proxy.next_event().await;
        assert_eq!(event.bytes_up, up as u64);
        assert!(event.bytes_down >= SIZE as u64, "{event:?}");
        assert_eq!(event.outcome, EgressOutcome::Complete);
    }
    let grown = peak_memory() - before;
    assert!(grown < 16 << 20, "{grown} bytes");
}

#[tokio::test]
async fn closing_ends_everything_and_tells_it() {
    let port = serve(hold).await;
    let proxy = Proxy::start(options(port));
    let addr = proxy.addr;
    let host = format!("good.example:{port}");
    let (mut tunnel, _) = proxy.tunnel(&host).await;
    tunnel.write_all(b"open").await.unwrap();
    let mut waiting = proxy.connect().await;
    let request = format!("GET http://{host}/ HTTP/1.1\r\nHost: {host}\r\n\r\n");
    waiting.write_all(request.as_bytes()).await.unwrap();
    let unread = proxy.connect().await;
    tokio::time::sleep(SHORT).await;
    let started = Instant::now();
    let reports = proxy.close().await;
    assert!(started.elapsed() < Duration::from_secs(3));
    let mut told: Vec<_> = reports
        .iter()
        .map(|report| match report {
            EgressReport::Event(event) => (format!("{:?}", event.kind), event.outcome),
            EgressReport::Lost(_) => panic!("{report:?}"),
        })
        .collect();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let aborted = |kind: &str| (kind.to_owned(), EgressOutcome::Aborted);
    let expected = [aborted("Http"), aborted("PlainTunnel"), aborted("Unread")];
    assert_eq!(told, expected);
    assert_eq!(read_to_end(&mut tunnel).await, "");
    assert!(TcpStream::connect(addr).await.is_err());
    drop(unread);
}

#[tokio::test]
async fn dropping_the_proxy_ends_it_too() {
    let port = serve(hold).await;
    let proxy = Proxy::start(options(port));
    let (mut tunnel, _) = proxy.tunnel(&format!("good.example:{port}")).await;
    drop(proxy);
    assert_eq!(read_to_end(&mut tunnel).await, "");
}

#[tokio::test]
async fn events_that_are_not_read_are_counted() {
    let limits = EgressLimits {
        events: 3,
        ..EgressLimits::default()
    };
    let proxy = Proxy::start(limited(1, limits));
    for _ in 0..10 {
        let answer = proxy
            .send(b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            .await;
        assert!(answer.starts_with("HTTP/1.1 403"), "{answer}");
    }
    let reports = proxy.close().await;
    assert_eq!(reports.len(), 4);
    assert_eq!(reports.first(), Some(&EgressReport::Lost(7)));
}
