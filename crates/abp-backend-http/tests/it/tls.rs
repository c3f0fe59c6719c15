//! TLS, against certificates made for the test.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};

use abp_backend_core::{Upstream as _, UpstreamError};
use abp_backend_http::{HttpUpstream, HttpUpstreamSpec};
use abp_dialect::Dialect;
use abp_testkit::{FakeVendor, Reply, fixture};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;

use crate::support::{call, spec};

/// Somebody who signs certificates.
pub(crate) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pem: String,
}

impl Authority {
    pub(crate) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            issuer: Issuer::new(params, key),
            pem,
        }
    }

    pub(crate) fn write(&self, directory: &Path, name: &str) -> std::path::PathBuf {
        let path = directory.join(name);
        std::fs::write(&path, &self.pem).unwrap();
        path
    }

    /// A server that is called `name`, and would rather speak HTTP/2.
    pub(crate) fn server(&self, name: &str) -> Arc<ServerConfig> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(
                vec![certificate.der().clone()],
                PrivateKeyDer::Pkcs8(key.serialize_der().into()),
            )
            .unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Arc::new(config)
    }
}

pub(crate) type Negotiated = Arc<Mutex<Vec<Option<Vec<u8>>>>>;

/// Ends TLS in front of a vendor; tells what each connection agreed to speak.
pub(crate) async fn tls_front(vendor: SocketAddr, config: Arc<ServerConfig>) -> (u16, Negotiated) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let spoken = Negotiated::default();
    let seen = Arc::clone(&spoken);
    tokio::spawn(async move {
        let acceptor = TlsAcceptor::from(config);
        while let Ok((stream, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(stream).await else {
                continue;
            };
            let agreed = tls.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
            seen.lock().unwrap().push(agreed);
            let mut plain = TcpStream::connect(vendor).await.unwrap();
            tokio::spawn(async move { tokio::io::copy_bidirectional(&mut tls, &mut plain).await });
        }
    });
    (port, spoken)
}

#[tokio::test]
async fn only_a_vendor_that_can_prove_its_name_is_spoken_to() {
    let vendor = FakeVendor::start(Reply::fixture("claude/stream_text.sse").unwrap()).unwrap();
    let (ours, theirs) = (Authority::new(), Authority::new());
    let directory = tempfile::tempdir().unwrap();
    let our_file = ours.write(directory.path(), "ours.pem");
    let their_file = theirs.write(directory.path(), "theirs.pem");
    let (good, spoken) = tls_front(vendor.addr(), ours.server("127.0.0.1")).await;
    let (misnamed, _) = tls_front(vendor.addr(), ours.server("vendor.example")).await;
    for (port, ca_file, refused) in [
        (good, Some(&our_file), None),
        (good, Some(&their_file), Some("invalid peer certificate")),
        (good, None, Some("invalid peer certificate")),
        (misnamed, Some(&our_file), Some("not valid for name")),
    ] {
        let upstream = HttpUpstream::new(HttpUpstreamSpec {
            ca_file: ca_file.cloned(),
            ..spec(format!("https://127.0.0.1:{port}"))
        })
        .unwrap();
        let before = vendor.requests().len();
        let sent = upstream.send(call(Dialect::Claude, "{}")).await;
        match (sent, refused) {
            (Ok(reply), None) => {
                let body = reply.body.collect(1 << 20).await.unwrap();
                assert_eq!(body, fixture("claude/stream_text.sse").unwrap());
            }
            (Err(UpstreamError::Unreachable(why)), Some(words)) => {
                assert!(why.contains(words), "{why}");
                assert_eq!(vendor.requests().len(), before, "nothing was sent");
            }
            (sent, refused) => panic!("{sent:?} instead of {refused:?}"),
        }
    }
    // Row b26: HTTP/2 is not on offer, so none of its attacks are.
    assert_eq!(*spoken.lock().unwrap(), [Some(b"http/1.1".to_vec())]);
}
