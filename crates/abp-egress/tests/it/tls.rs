//! Tunnels with TLS inside, end to end, and tunnels with something else.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use abp_egress::{EgressKind, EgressOptions, EgressOutcome, EgressVerdict};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::support::{Proxy, options, rules};

/// A certificate authority made for the test.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    certificate: CertificateDer<'static>,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        Self {
            issuer: Issuer::new(params, key),
            certificate,
        }
    }

    pub(crate) fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).unwrap();
        roots
    }

    pub(crate) fn server(&self, names: &[&str]) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let names: Vec<String> = names.iter().map(|&name| name.to_owned()).collect();
        let params = CertificateParams::new(names).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            );
        Arc::new(config.unwrap())
    }

    fn connector(&self, sends_name: bool) -> TlsConnector {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_root_certificates(self.roots())
            .with_no_client_auth();
        config.enable_sni = sends_name;
        TlsConnector::from(Arc::new(config))
    }
}

/// A TLS server that sends back what it gets; counts completed handshakes.
async fn echo_server(config: Arc<ServerConfig>) -> (SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let addr = listener.local_addr().unwrap();
    let handshakes = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&handshakes);
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(config);
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, count) = (acceptor.clone(), Arc::clone(&count));
            tokio::spawn(async move {
                let Ok(mut tls) = acceptor.accept(stream).await else {
                    return;
                };
                count.fetch_add(1, Ordering::SeqCst);
                let (mut reader, mut writer) = tokio::io::split(&mut tls);
                drop(tokio::io::copy(&mut reader, &mut writer).await);
                drop(writer.shutdown().await);
            });
        }
    });
    (addr, handshakes)
}

async fn handshake(
    connector: &TlsConnector,
    name: &str,
    stream: TcpStream,
) -> std::io::Result<tokio_rustls::client::TlsStream<TcpStream>> {
    let name = ServerName::try_from(name.to_owned()).unwrap();
    connector.connect(name, stream).await
}

#[tokio::test]
async fn allowed_tls_passes_untouched() {
    let authority = Authority::new();
    let (server, handshakes) = echo_server(authority.server(&["good.example", "127.0.0.1"])).await;
    let mut proxy = Proxy::start(options(server.port()));
    for (target, kind) in [
        ("good.example", EgressKind::TlsTunnel),
        ("GOOD.example.", EgressKind::TlsTunnel),
        // An address has no server name.
        ("127.0.0.1", EgressKind::TlsTunnel),
    ] {
        let (stream, line) = proxy.tunnel(&format!("{target}:{}", server.port())).await;
        assert_eq!(line, "HTTP/1.1 200 OK");
        let name = target.trim_end_matches('.').to_ascii_lowercase();
        let mut tls = handshake(&authority.connector(true), &name, stream)
            .await
            .unwrap();
        tls.write_all(b"ping").await.unwrap();
        let mut back = [0; 4];
        tls.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"ping");
        tls.shutdown().await.unwrap();
        drop(tls);
        let event = proxy.next_event().await;
        assert_eq!((event.kind, event.verdict), (kind, EgressVerdict::Allowed));
        assert_eq!(
            (event.host.as_str(), event.port),
            (&name[..], Some(server.port()))
        );
        assert_eq!(event.address, Some(server.ip()));
        assert!(event.bytes_up > 200 && event.bytes_down > 200, "{event:?}");
    }
    assert_eq!(handshakes.load(Ordering::SeqCst), 3);
}

#[tokio::test]
async fn the_server_name_must_be_the_host() {
    let authority = Authority::new();
    let names = ["good.example", "evil.example", "127.0.0.1"];
    let (server, handshakes) = echo_server(authority.server(&names)).await;
    let mut proxy = Proxy::start(options(server.port()));
    for (target, name, sends_name, rule) in [
        (
            "good.example",
            "evil.example",
            true,
            "is not the host of the CONNECT request",
        ),
        (
            "good.example",
            "other.example",
            true,
            "is not the host of the CONNECT request",
        ),
        ("good.example", "good.example", false, "has no server name"),
        ("good.example", "127.0.0.1", true, "has no server name"),
        (
            "127.0.0.1",
            "good.example",
            true,
            "to an address has a server name",
        ),
    ] {
        let (stream, _) = proxy.tunnel(&format!("{target}:{}", server.port())).await;
        let refused = handshake(&authority.connector(sends_name), name, stream).await;
        let error = refused.expect_err("the handshake fails").to_string();
        assert!(error.contains("UnrecognisedName"), "{error}");
        let event = proxy.next_event().await;
        assert_eq!(event.verdict, EgressVerdict::Denied);
        assert!(event.rule.to_string().contains(rule), "{event:?}");
        assert_eq!((event.bytes_up, event.bytes_down), (0, 0));
        let found = serde_json::to_value(&event.rule).unwrap()["found"].clone();
        let sent = (sends_name && !name.starts_with("127")).then_some(name);
        assert_eq!(found.as_str(), sent);
    }
    assert_eq!(handshakes.load(Ordering::SeqCst), 0);
}

#[tokio::test]
async fn a_hello_that_cannot_be_read_is_denied() {
    let authority = Authority::new();
    let (server, _) = echo_server(authority.server(&["good.example"])).await;
    let mut proxy = Proxy::start(options(server.port()));
    // A handshake message of 36,864 bytes in records of 4,096, of which the first six come.
    let mut endless = Vec::new();
    for record in 0..6_u8 {
        endless.extend_from_slice(b"\x16\x03\x01\x10\x00");
        let start: &[u8] = if record == 0 {
            b"\x01\x00\x90\x00"
        } else {
            &[]
        };
        endless.extend_from_slice(start);
        endless.resize(usize::from(record + 1) * (4096 + 5), 0);
    }
    for bytes in [
        &b"\x16GET / HTTP/1.1\r\n\r\n"[..],
        b"\x16\x03\x01\x00\x00",
        &endless,
    ] {
        let (mut stream, _) = proxy
            .tunnel(&format!("good.example:{}", server.port()))
            .await;
        drop(stream.write_all(bytes).await);
        let event = proxy.next_event().await;
        let told = event.rule.to_string();
        assert_eq!(told, "the TLS ClientHello cannot be read");
        assert_eq!(event.bytes_up, 0);
    }
}

/// On a port that a pattern names, anything may be tunneled, also if the server speaks first.
#[tokio::test]
async fn other_protocols_pass_on_listed_ports() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut proxy = Proxy::start(options(port));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            stream.write_all(b"220 ready\r\n").await.unwrap();
            let mut line = [0; 6];
            stream.read_exact(&mut line).await.unwrap();
            stream.write_all(&line).await.unwrap();
        }
    });
    let (mut stream, _) = proxy.tunnel(&format!("good.example:{port}")).await;
    let mut greeting = [0; 11];
    stream.read_exact(&mut greeting).await.unwrap();
    assert_eq!(&greeting, b"220 ready\r\n");
    stream.write_all(b"HELO x").await.unwrap();
    let mut back = Vec::new();
    stream.read_to_end(&mut back).await.unwrap();
    assert_eq!(back, b"HELO x");
    drop(stream);
    let event = proxy.next_event().await;
    assert_eq!(event.kind, EgressKind::PlainTunnel);
    assert_eq!((event.bytes_up, event.bytes_down), (6, 17));
    assert_eq!(event.outcome, EgressOutcome::Complete);
}

/// Bytes that a client sends together with its CONNECT request are checked like any other.
#[tokio::test]
async fn early_bytes_are_not_lost_and_not_trusted() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut proxy = Proxy::start(EgressOptions {
        rules: rules(
            &[format!("good.example:{port}"), "127.0.0.1".to_owned()],
            &[],
        ),
        ..options(port)
    });
    let request = format!("CONNECT good.example:{port} HTTP/1.0\r\n\r\nearly");
    let mut stream = proxy.connect().await;
    stream.write_all(request.as_bytes()).await.unwrap();
    let (mut server, _) = listener.accept().await.unwrap();
    let mut early = [0; 5];
    server.read_exact(&mut early).await.unwrap();
    assert_eq!(&early, b"early");
    drop((server, stream));
    assert_eq!(proxy.next_event().await.kind, EgressKind::PlainTunnel);
    let hello = b"\x16\x03\x01\x00\x05nonsense";
    let mut stream = proxy.connect().await;
    let request = format!("CONNECT good.example:{port} HTTP/1.0\r\n\r\n");
    stream
        .write_all(&[request.as_bytes(), hello].concat())
        .await
        .unwrap();
    let event = proxy.next_event().await;
    assert_eq!(event.verdict, EgressVerdict::Denied, "{event:?}");
}
