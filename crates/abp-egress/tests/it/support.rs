//! A proxy with a resolver of its own, and servers that record what reaches them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use abp_core::PolicyProfile;
use abp_egress::{
    EgressEvent, EgressEvents, EgressOptions, EgressProxy, EgressReport, EgressRules, Resolver,
};
use abp_policy::PolicyEngine;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// Longer than anything takes here.
pub(crate) const LONG: Duration = Duration::from_secs(20);

pub(crate) fn rules(allow: &[String], deny: &[String]) -> EgressRules {
    let profile = PolicyProfile {
        allow_network: allow.to_vec(),
        deny_network: deny.to_vec(),
        ..PolicyProfile::default()
    };
    EgressRules::new(PolicyEngine::new(&profile).unwrap())
}

/// Options under which `good.example` and `other.example` are this port of loopback, and may be reached.
pub(crate) fn options(port: u16) -> EgressOptions {
    let allow = [
        format!("good.example:{port}"),
        format!("other.example:{port}"),
        format!("127.0.0.1:{port}"),
    ];
    EgressOptions {
        resolver: resolver(&[
            ("good.example", "127.0.0.1"),
            ("other.example", "127.0.0.1"),
            ("evil.example", "127.0.0.1"),
        ]),
        ..EgressOptions::new(rules(&allow, &[]))
    }
}

pub(crate) fn resolver(names: &[(&str, &str)]) -> Resolver {
    let mut table: BTreeMap<String, Vec<IpAddr>> = BTreeMap::new();
    for (name, address) in names {
        let addresses = table.entry((*name).to_owned()).or_default();
        addresses.push(address.parse().unwrap());
    }
    Resolver::new(move |host, port| {
        let found = table.get(&host).cloned();
        async move {
            let found = found.ok_or(std::io::ErrorKind::NotFound)?;
            let sockets = found.into_iter().map(|ip| SocketAddr::new(ip, port));
            Ok(sockets.collect())
        }
    })
}

/// A proxy under test.
pub(crate) struct Proxy {
    pub(crate) addr: SocketAddr,
    pub(crate) events: EgressEvents,
    proxy: EgressProxy,
}

impl Proxy {
    pub(crate) fn start(options: EgressOptions) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let (proxy, events) = EgressProxy::start(listener, options).unwrap();
        Self {
            addr,
            events,
            proxy,
        }
    }

    pub(crate) async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.addr).await.unwrap()
    }

    /// Sends bytes over a new connection and reads until it ends.
    pub(crate) async fn send(&self, bytes: &[u8]) -> String {
        let mut stream = self.connect().await;
        // A refusal may come before everything was written.
        drop(stream.write_all(bytes).await);
        read_to_end(&mut stream).await
    }

    /// Opens a tunnel and returns it together with the answer's first line.
    pub(crate) async fn tunnel(&self, target: &str) -> (TcpStream, String) {
        let mut stream = self.connect().await;
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let head = read_head(&mut stream).await;
        let line = head.lines().next().unwrap_or_default().to_owned();
        (stream, line)
    }

    pub(crate) async fn next_event(&mut self) -> EgressEvent {
        match timeout(LONG, self.events.next()).await.unwrap() {
            Some(EgressReport::Event(event)) => event,
            report => panic!("{report:?}"),
        }
    }

    /// Closes the proxy and returns every event that was not read yet.
    pub(crate) async fn close(mut self) -> Vec<EgressReport> {
        self.proxy.close().await;
        let mut reports = Vec::new();
        while let Some(report) = timeout(LONG, self.events.next()).await.unwrap() {
            reports.push(report);
        }
        reports
    }
}

pub(crate) async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let ended = timeout(LONG, stream.read_to_end(&mut bytes)).await;
    drop(ended.expect("the connection ends"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads a message head, and nothing more.
pub(crate) async fn read_head(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        match timeout(LONG, stream.read_u8()).await.unwrap() {
            Ok(byte) => head.push(byte),
            Err(_) => break,
        }
    }
    String::from_utf8(head).unwrap()
}

/// A server that records the requests it gets and answers all of them alike.
pub(crate) struct Server {
    pub(crate) addr: SocketAddr,
    pub(crate) connections: Arc<AtomicUsize>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Server {
    pub(crate) async fn start(answer: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            addr: listener.local_addr().unwrap(),
            connections: Arc::default(),
            requests: Arc::default(),
        };
        let answer = Arc::new(answer);
        let (connections, requests) = (
            Arc::clone(&server.connections),
            Arc::clone(&server.requests),
        );
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (answer, requests) = (Arc::clone(&answer), Arc::clone(&requests));
                tokio::spawn(async move {
                    loop {
                        let request = read_request(&mut stream).await;
                        if request.is_empty() {
                            return;
                        }
                        let bytes = answer(&request);
                        requests.lock().unwrap().push(request);
                        stream.write_all(&bytes).await.unwrap();
                    }
                });
            }
        });
        server
    }

    /// A server that answers with its own name.
    pub(crate) async fn named(name: &'static str) -> Self {
        Self::start(move |_| ok(name)).await
    }

    pub(crate) fn port(&self) -> u16 {
        self.addr.port()
    }

    pub(crate) fn requests(&self) -> Vec<String> {
        self.requests.lock().unwrap().clone()
    }
}

pub(crate) fn ok(body: &str) -> Vec<u8> {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n{body}").into_bytes()
}

/// Reads a request with its body, which has a content length or is chunked.
async fn read_request(stream: &mut TcpStream) -> String {
    let mut request = Vec::new();
    let length = |head: &str| {
        let mut lines = head.lines();
        let found = lines.find_map(|line| line.strip_prefix("content-length: "));
        found.map_or(0, |text| text.parse::<usize>().unwrap())
    };
    loop {
        let text = String::from_utf8_lossy(&request).to_ascii_lowercase();
        if let Some(end) = text.find("\r\n\r\n") {
            let head = &text[..end];
            let is_whole = if head.contains("transfer-encoding: chunked") {
                text.ends_with("0\r\n\r\n")
            } else {
                request.len() >= end + 4 + length(head)
            };
            if is_whole {
                return String::from_utf8(request).unwrap();
            }
        }
        match stream.read_buf(&mut request).await {
            Ok(0) | Err(_) => return String::new(),
            Ok(_) => {}
        }
    }
}
