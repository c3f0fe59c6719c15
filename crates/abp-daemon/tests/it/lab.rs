//! A running daemon in front of fake vendors, and a client that sends what it is told to, byte by byte.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use abp_config::{Config, UpstreamConfig};
use abp_control::{ControlPlane, WorkerLimits};
use abp_daemon::Daemon;
use abp_dialect::Dialect;
use abp_gateway::{Gateway, key_hash};
use abp_gateway_http::{Server, ServerOptions};
use abp_store::{ExchangeRecord, KeyScope, NewApiKey, Store, StoreOptions};
use abp_testkit::FakeVendor;
use tempfile::TempDir;
use tokio::sync::oneshot;

/// The key of the lab's operator.
pub(crate) const KEY: &str = "abp_canary_operator_key";
/// The key that vendors get.
pub(crate) const VENDOR_KEY: &str = "sk-canary-vendor-key";

pub(crate) struct Lab {
    pub(crate) addr: SocketAddr,
    pub(crate) gateway: Gateway,
    pub(crate) dir: TempDir,
    runtime: Option<tokio::runtime::Runtime>,
    stop: Option<oneshot::Sender<()>>,
    served: Option<tokio::task::JoinHandle<()>>,
}

/// An upstream of a dialect at a fake vendor.
pub(crate) fn upstream(dialect: Dialect, vendor: &FakeVendor) -> UpstreamConfig {
    let path = match dialect {
        Dialect::Claude | Dialect::Gemini => "",
        _ => "/v1",
    };
    let text = format!(
        "dialect = \"{dialect}\"\nbase_url = \"{}\"\nconnect_timeout_ms = 1000\n\
         first_byte_timeout_secs = 2\nidle_timeout_secs = 1\ntotal_timeout_secs = 20\n",
        vendor.url(path)
    );
    toml::from_str(&text).expect("an upstream")
}

impl Lab {
    /// A daemon with these upstreams and no patience.
    pub(crate) fn start(upstreams: &[(&str, UpstreamConfig)]) -> Self {
        Self::start_with(upstreams, |_, _| {})
    }

    pub(crate) fn start_with(
        upstreams: &[(&str, UpstreamConfig)],
        change: impl FnOnce(&mut Config, &mut ServerOptions),
    ) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let key_file = dir.path().join("vendor.key");
        std::fs::write(&key_file, VENDOR_KEY).expect("a key");
        let mut config = Config {
            state_dir: dir.path().join("state"),
            stages_dir: dir.path().join("stages"),
            ..Config::default()
        };
        config.upstreams = upstreams
            .iter()
            .map(|(name, upstream)| {
                let mut upstream = upstream.clone();
                upstream.api_key_file.get_or_insert(key_file.clone());
                ((*name).to_owned(), upstream)
            })
            .collect::<BTreeMap<_, _>>();
        config.server.max_attempts = 1;
        let local = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut options = ServerOptions::from_config(&config, Some(local));
        options.header_timeout = Duration::from_millis(700);
        options.body_timeout = Duration::from_millis(700);
        options.idle_timeout = Duration::from_millis(1500);
        options.drain_timeout = Duration::from_secs(3);
        change(&mut config, &mut options);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .expect("a runtime");
        let operator = key_hash(KEY.as_bytes());
        let plane = ControlPlane::open(config, &[]).expect("a control plane");
        let (gateway, daemon, server, addr, workers) = runtime.block_on(async {
            let gateway = plane.gateway().await.expect("a gateway");
            gateway.reload_keys(Some(operator)).await.expect("keys");
            let daemon = Daemon::new(&plane, &gateway, None).expect("routes");
            let server = Server::bind(gateway.clone(), daemon.routes(), options);
            let server = server.await.expect("a server");
            let addr = server.local_addr().expect("an address");
            daemon.start().await.expect("webhooks");
            let limits = WorkerLimits::of(plane.config());
            let workers = plane.start_workers(limits).await;
            (gateway, daemon, server, addr, workers.expect("workers"))
        });
        let (stop, stopped) = oneshot::channel();
        let served = runtime.spawn(async move {
            let shutdown = async { drop(stopped.await) };
            let close = async {
                plane.drain(Duration::from_millis(100)).await;
                workers.ended().await;
                daemon.close().await;
            };
            server.run(operator, shutdown, close).await;
            plane.close().await;
        });
        Self {
            addr,
            gateway,
            dir,
            runtime: Some(runtime),
            stop: Some(stop),
            served: Some(served),
        }
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.as_ref().expect("a runtime").block_on(future)
    }

    /// Asks in a dialect and waits for the whole answer.
    pub(crate) fn ask(&self, dialect: Dialect, model: &str, stream: bool) -> Reply {
        self.post(
            &path(dialect, model, stream),
            &request(dialect, model, stream),
        )
    }

    pub(crate) fn post(&self, path: &str, body: &str) -> Reply {
        self.post_as(KEY, path, body, "")
    }

    pub(crate) fn post_as(&self, key: &str, path: &str, body: &str, headers: &str) -> Reply {
        let raw = format!(
            "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\nconnection: close\r\n{headers}\
             content-length: {}\r\n\r\n{body}",
            body.len()
        );
        self.raw(raw.as_bytes())
    }

    /// Asks in a dialect, and leaves the answer to be read.
    pub(crate) fn open(&self, key: &str, dialect: Dialect, stream: bool) -> TcpStream {
        let body = request(dialect, "m", stream);
        let raw = format!(
            "POST {} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\
             content-type: application/json\r\nconnection: close\r\n\
             content-length: {}\r\n\r\n{body}",
            path(dialect, "m", stream),
            body.len()
        );
        let mut connection = self.connect();
        connection.write_all(raw.as_bytes()).expect("a request");
        connection
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        let raw = format!(
            "GET {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {KEY}\r\n\
             connection: close\r\n\r\n"
        );
        self.raw(raw.as_bytes())
    }

    /// Sends a request of any kind; without a key where that is empty.
    pub(crate) fn call(
        &self,
        method: &str,
        key: &str,
        path: &str,
        headers: &str,
        body: &[u8],
    ) -> Reply {
        let key = match key {
            "" => String::new(),
            key => format!("authorization: Bearer {key}\r\n"),
        };
        let length = match (method, body.len()) {
            ("GET" | "DELETE", 0) => String::new(),
            (_, length) => format!("content-length: {length}\r\n"),
        };
        let mut raw = format!(
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\n{key}connection: close\r\n\
             {headers}{length}\r\n"
        )
        .into_bytes();
        raw.extend_from_slice(body);
        self.raw(&raw)
    }

    /// Makes a key with these scopes.
    pub(crate) fn key(&self, name: &str, scopes: &[KeyScope]) -> String {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let secret = format!("abp_{name}_{number}_secret");
        let key = NewApiKey {
            id: format!("key_{name}_{number}"),
            name: name.to_owned(),
            sha256: key_hash(secret.as_bytes()),
            models: Vec::new(),
            requests_per_minute: None,
            tokens_per_minute: None,
            budget: None,
            token_budget: None,
            max_output_tokens: None,
            max_concurrent: None,
            max_sessions: None,
            scopes: scopes.to_vec(),
            expires_at: None,
        };
        self.block_on(async {
            self.gateway.store().add_key(key).await.expect("a key");
            let operator = Some(key_hash(KEY.as_bytes()));
            self.gateway.reload_keys(operator).await.expect("keys");
        });
        secret
    }

    /// Submits a run and returns its id.
    pub(crate) fn submit(&self, key: &str, body: &str) -> String {
        let headers = "content-type: application/json\r\n";
        let reply = self.call("POST", key, "/v1/runs", headers, body.as_bytes());
        assert_eq!(reply.status, 202, "{}", reply.text());
        reply.json()["run_id"].as_str().expect("a run").to_owned()
    }

    /// Waits until a run has ended.
    pub(crate) fn wait_for_end(&self, key: &str, run: &str) {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let reply = self.call("GET", key, &format!("/v1/runs/{run}"), "", b"");
            assert_eq!(reply.status, 200, "{}", reply.text());
            if reply.json()["ended_at"].is_string() {
                return;
            }
            assert!(Instant::now() < deadline, "{}", reply.text());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// The files below a directory of the lab.
    pub(crate) fn files(&self, name: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut dirs = vec![self.dir.path().join(name)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.path().is_dir() {
                    true => dirs.push(entry.path()),
                    false => found.push(entry.path().display().to_string()),
                }
            }
        }
        found
    }

    /// Sends bytes as they are and reads until the server closes.
    pub(crate) fn raw(&self, bytes: &[u8]) -> Reply {
        let mut stream = self.connect();
        // A server that refuses early may have stopped reading.
        drop(stream.write_all(bytes));
        let mut read = Vec::new();
        drop(stream.read_to_end(&mut read));
        Reply::parse(&read)
    }

    pub(crate) fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(self.addr).expect("a connection");
        let patience = Some(Duration::from_secs(20));
        stream.set_read_timeout(patience).expect("a timeout");
        stream
    }

    /// The receipt of an exchange, as the daemon gives it.
    pub(crate) fn receipt(&self, reply: &Reply) -> serde_json::Value {
        let id = reply.header("x-abp-run-id").expect("a run id").to_owned();
        let deadline = Instant::now() + Duration::from_secs(5);
        loop {
            let found = self.get(&format!("/v1/receipts/{id}"));
            if found.status == 200 {
                return serde_json::from_slice(&found.body).expect("a receipt");
            }
            assert!(Instant::now() < deadline, "no receipt of {id}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Lab {
    /// Ends the server and waits until it has ended; then gives what it recorded, the newest first.
    pub(crate) fn end(mut self) -> Vec<ExchangeRecord> {
        self.stop_serving();
        let state = self.dir.path().join("state");
        self.block_on(async {
            let store = Store::open(&state, StoreOptions::default()).await;
            let store = store.expect("a store");
            store.exchanges(None, 100).await.expect("exchanges")
        })
    }

    fn stop_serving(&mut self) {
        drop(self.stop.take());
        if let (Some(runtime), Some(served)) = (&self.runtime, self.served.take()) {
            drop(runtime.block_on(served));
        }
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        self.stop_serving();
    }
}

/// An answer, as it came.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
    /// Whether the body came to the end that its head announced.
    pub(crate) whole: bool,
}

impl Reply {
    pub(crate) fn parse(bytes: &[u8]) -> Self {
        let Some(at) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Self {
                status: 0,
                head: String::from_utf8_lossy(bytes).into_owned(),
                body: Vec::new(),
                whole: false,
            };
        };
        let head = String::from_utf8_lossy(&bytes[..at]).into_owned();
        let status = head
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok());
        let rest = &bytes[at + 4..];
        let chunked = head
            .to_ascii_lowercase()
            .contains("transfer-encoding: chunked");
        let (body, whole) = if chunked {
            unchunk(rest)
        } else {
            (rest.to_vec(), true)
        };
        Self {
            status: status.unwrap_or(0),
            head,
            body,
            whole,
        }
    }

    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (key, value) = line.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|_| panic!("no JSON: {}", self.text()))
    }
}

fn unchunk(mut bytes: &[u8]) -> (Vec<u8>, bool) {
    let mut body = Vec::new();
    while let Some(at) = bytes.windows(2).position(|window| window == b"\r\n") {
        let size = std::str::from_utf8(&bytes[..at]).ok();
        let Some(size) = size.and_then(|size| usize::from_str_radix(size, 16).ok()) else {
            break;
        };
        bytes = &bytes[at + 2..];
        if size == 0 {
            return (body, true);
        }
        if bytes.len() < size + 2 {
            body.extend_from_slice(&bytes[..size.min(bytes.len())]);
            break;
        }
        body.extend_from_slice(&bytes[..size]);
        bytes = &bytes[size + 2..];
    }
    (body, false)
}

/// A hash, as receipts have it.
pub(crate) fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest as _;
    sha2::Sha256::digest(bytes)
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Where a dialect's requests go.
pub(crate) fn path(dialect: Dialect, model: &str, stream: bool) -> String {
    match dialect {
        Dialect::Claude => "/v1/messages".to_owned(),
        Dialect::Codex => "/v1/responses".to_owned(),
        Dialect::Gemini if stream => {
            format!("/v1beta/models/{model}:streamGenerateContent?alt=sse")
        }
        Dialect::Gemini => format!("/v1beta/models/{model}:generateContent"),
        _ => "/v1/chat/completions".to_owned(),
    }
}

/// A small request of a dialect.
pub(crate) fn request(dialect: Dialect, model: &str, stream: bool) -> String {
    match dialect {
        Dialect::Claude => format!(
            r#"{{"model":"{model}","max_tokens":64,"stream":{stream},"messages":[{{"role":"user","content":"Hello"}}]}}"#
        ),
        Dialect::Codex => format!(r#"{{"model":"{model}","stream":{stream},"input":"Hello"}}"#),
        Dialect::Gemini => {
            r#"{"contents":[{"role":"user","parts":[{"text":"Hello"}]}]}"#.to_owned()
        }
        _ => format!(
            r#"{{"model":"{model}","stream":{stream},"messages":[{{"role":"user","content":"Hello"}}]}}"#
        ),
    }
}
