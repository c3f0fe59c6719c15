//! Reaching a vendor through a proxy that really forwards.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use abp_backend_core::{Upstream as _, UpstreamError};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec, ProxyAddress};
use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};

use crate::support::{KEY, call, spec};
use crate::tls::{Authority, tls_front};

/// The heads of requests that a proxy was given.
type Heads = Arc<Mutex<Vec<String>>>;

/// A proxy that takes `me:word`: it makes tunnels, and gives requests on to `plain`.
async fn proxy(plain: SocketAddr) -> (SocketAddr, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(forward(stream, plain, Arc::clone(&seen)));
        }
    });
    (address, heads)
}

async fn forward(stream: TcpStream, plain: SocketAddr, seen: Heads) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Ok(());
        }
    }
    seen.lock().unwrap().push(head.clone());
    // echo -n me:word | base64
    if !head.contains("proxy-authorization: Basic bWU6d29yZA==\r\n") {
        let refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\ncontent-length: 0\r\n\r\n";
        return stream.write_all(refusal).await;
    }
    let mut words = head.split(' ');
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut vendor = if method == "CONNECT" {
        let vendor = TcpStream::connect(target).await?;
        stream
            .write_all(b"HTTP/1.1 200 Connection established\r\nvia: a test\r\n\r\n")
            .await?;
        vendor
    } else {
        let mut vendor = TcpStream::connect(plain).await?;
        let path = target.strip_prefix("http://vendor.invalid").unwrap();
        let given = head.replacen(target, path, 1);
        vendor.write_all(given.as_bytes()).await?;
        vendor
    };
    tokio::io::copy_bidirectional(&mut stream, &mut vendor).await?;
    Ok(())
}

fn through(address: SocketAddr, user: &str) -> Option<ProxyAddress> {
    Some(ProxyAddress::parse(&format!("http://{user}{address}")).unwrap())
}

#[tokio::test]
async fn a_tunnel_shows_the_proxy_the_host_and_nothing_else() {
    let vendor = FakeVendor::start(Reply::json("{}")).unwrap();
    let authority = Authority::new();
    let directory = tempfile::tempdir().unwrap();
    let ca_file = authority.write(directory.path(), "ca.pem");
    let (port, _) = tls_front(vendor.addr(), authority.server("127.0.0.1")).await;
    let (proxy, heads) = proxy(vendor.addr()).await;
    let of = |user: &str| {
        HttpUpstream::new(HttpUpstreamSpec {
            ca_file: Some(ca_file.clone()),
            proxy: through(proxy, user),
            ..spec(format!("https://127.0.0.1:{port}/v1"))
        })
        .unwrap()
    };
    let upstream = of("me:word@");
    for _ in 0..2 {
        let reply = upstream.send(call(Dialect::OpenAi, "{}")).await.unwrap();
        assert_eq!(reply.body.collect(100).await.unwrap(), "{}");
    }
    {
        let heads = heads.lock().unwrap();
        assert_eq!(heads.len(), 1, "the connection is used again: {heads:?}");
        assert!(heads[0].starts_with(&format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n")));
        assert!(!heads[0].contains(KEY), "{heads:?}");
    }
    let request = vendor.requests().pop().unwrap();
    assert_eq!(request.header("proxy-authorization"), None);
    assert_eq!(
        request.header("authorization"),
        Some(format!("Bearer {KEY}").as_str())
    );

    let before = vendor.requests().len();
    let refused = of("me:other@").send(call(Dialect::OpenAi, "{}")).await;
    match refused {
        Err(UpstreamError::Unreachable(why)) => assert!(why.contains("407"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(vendor.requests().len(), before);
}

#[tokio::test]
async fn a_request_without_tls_is_given_to_the_proxy() {
    let vendor = FakeVendor::start(Reply::json("{}")).unwrap();
    let (proxy, heads) = proxy(vendor.addr()).await;
    // Only the proxy knows where this host is.
    let upstream = HttpUpstream::new(HttpUpstreamSpec {
        proxy: through(proxy, "me:word@"),
        ..spec("http://vendor.invalid/v1")
    })
    .unwrap();
    let reply = upstream.send(call(Dialect::OpenAi, "{}")).await.unwrap();
    assert_eq!(reply.body.collect(100).await.unwrap(), "{}");
    let heads = heads.lock().unwrap();
    let line = "POST http://vendor.invalid/v1/chat/completions HTTP/1.1\r\n";
    assert!(heads[0].starts_with(line), "{heads:?}");
    let request = vendor.requests().pop().unwrap();
    assert_eq!(request.header("host"), Some("vendor.invalid"));
}
