//! What the egress proxy costs beside a bare TCP relay: processor time per connection and per megabyte.
//!
//! Server, relay, proxy and client are threads of this process, each with a runtime of its own, and the
//! kernel counts the time of each thread. Relay and proxy take turns, so that both see the same machine.
//! Every connection has the flights of a TLS 1.3 handshake with one request: a real ClientHello, which
//! the proxy reads and the relay does not, the server's flight, the client's end of the handshake with
//! its request, and the answer. Names are resolved by a table, because what the system's resolver costs
//! is not the proxy's.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use abp_core::PolicyProfile;
use abp_egress::{EgressOptions, EgressProxy, EgressReport, EgressRules, Resolver};
use abp_policy::PolicyEngine;
use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tokio::io::copy_bidirectional;

use crate::output::say;

const HOST: &str = "bench.example";
/// Times the processor time of the relay that the proxy may take.
const MAX_RATIO: f64 = 1.5;
/// The bytes of an answer where connections are counted.
const SMALL: u64 = 4 << 10;
/// The bytes of a server's first flight, with a chain of two certificates.
const SERVER_FLIGHT: usize = 3 << 10;
/// The bytes of the end of a client's handshake and its request.
const CLIENT_FLIGHT: usize = 600;
const MEGABYTE: u64 = 1 << 20;

/// How much is measured in each of the rounds.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rounds: usize,
    connections: u64,
    megabytes: u64,
}

pub(super) fn run() -> Result<()> {
    let plan = match std::env::var_os("ABP_BENCH_QUICK") {
        None => Plan {
            rounds: 9,
            connections: 2_000,
            megabytes: 1_024,
        },
        Some(_) => Plan {
            rounds: 3,
            connections: 200,
            megabytes: 64,
        },
    };
    let hello = Arc::new(client_hello()?);
    let server = start_server(hello.len())?;
    let relay = Lane::start(move |listener| relay(listener, server))?;
    let proxy = Lane::start(move |listener| proxy(listener, server))?;
    let ways = [
        Way {
            lane: relay,
            request: None,
        },
        Way {
            lane: proxy,
            request: Some(format!("CONNECT {HOST}:{} HTTP/1.1\r\n\r\n", server.port())),
        },
    ];
    let connections = compare(&ways, &hello, plan, plan.connections, SMALL)?;
    let is_within = tell("connection", &connections, plan.connections as f64);
    let bytes = plan.megabytes * MEGABYTE;
    let transfer = compare(&ways, &hello, plan, 1, bytes)?;
    let is_within = tell("MB", &transfer, plan.megabytes as f64) && is_within;
    ensure!(is_within, "a bar was missed");
    Ok(())
}

/// The processor time of relay and proxy in each round.
type Rounds = Vec<[Duration; 2]>;

fn compare(
    ways: &[Way; 2],
    hello: &[u8],
    plan: Plan,
    connections: u64,
    bytes: u64,
) -> Result<Rounds> {
    let mut rounds = Vec::new();
    for round in 0..=plan.rounds {
        let mut times = [Duration::ZERO; 2];
        for (way, time) in ways.iter().zip(&mut times) {
            let before = way.lane.cpu()?;
            for _ in 0..connections {
                way.fetch(hello, bytes)?;
            }
            // The end of the last connection is still being worked on.
            thread::sleep(Duration::from_millis(20));
            *time = way.lane.cpu()?.saturating_sub(before);
        }
        // The first round warms both up.
        if round > 0 {
            rounds.push(times);
        }
    }
    Ok(rounds)
}

fn tell(what: &str, rounds: &[[Duration; 2]], count: f64) -> bool {
    let each = |index: usize| {
        let times = rounds.iter().filter_map(|times| times.get(index));
        median(times.map(|time| time.as_secs_f64() * 1e6 / count).collect())
    };
    let ratios = rounds
        .iter()
        .map(|[relay, proxy]| proxy.as_secs_f64() / relay.as_secs_f64());
    let ratio = median(ratios.collect());
    let is_within = ratio <= MAX_RATIO;
    say(format_args!(
        "CPU per {what}: relay {:.1} µs, proxy {:.1} µs, {ratio:.2} × (at most {MAX_RATIO}): {}",
        each(0),
        each(1),
        if is_within { "ok" } else { "MISSED" }
    ));
    is_within
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A thread that is measured, and the address it listens on.
#[derive(Debug)]
struct Lane {
    address: SocketAddr,
    thread_id: i32,
}

impl Lane {
    /// Runs until this process ends.
    fn start<A>(serve: impl FnOnce(TcpListener) -> A + Send + 'static) -> Result<Self>
    where
        A: Future<Output = Result<()>>,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (started, thread_id) = mpsc::channel();
        thread::spawn(move || -> Result<()> {
            started.send(rustix::thread::gettid().as_raw_nonzero().get())?;
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(serve(listener))
        });
        Ok(Self {
            address,
            thread_id: thread_id.recv()?,
        })
    }

    /// The time that processors spent on the thread, to the nanosecond.
    fn cpu(&self) -> Result<Duration> {
        let path = format!("/proc/self/task/{}/schedstat", self.thread_id);
        let text = fs::read_to_string(&path).with_context(|| format!("cannot read {path}"))?;
        let nanos = text.split_whitespace().next().context("no time")?;
        Ok(Duration::from_nanos(nanos.parse()?))
    }
}

/// A way to the server.
#[derive(Debug)]
struct Way {
    lane: Lane,
    /// The request that opens a tunnel, where one is needed.
    request: Option<String>,
}

impl Way {
    /// Goes through the flights of a connection and reads an answer of so many bytes.
    fn fetch(&self, hello: &[u8], bytes: u64) -> Result<()> {
        let mut stream = TcpStream::connect(self.lane.address)?;
        stream.set_nodelay(true)?;
        if let Some(request) = &self.request {
            stream.write_all(request.as_bytes())?;
            let mut head = [0; 256];
            let length = stream.read(&mut head)?;
            let head = String::from_utf8_lossy(head.get(..length).unwrap_or_default());
            ensure!(head.starts_with("HTTP/1.1 200 "), "{head}");
        }
        stream.write_all(&[hello, &bytes.to_be_bytes()].concat())?;
        let mut buffer = vec![0; 256 << 10];
        stream.read_exact(buffer.get_mut(..SERVER_FLIGHT).context("no room")?)?;
        stream.write_all(&[b'y'; CLIENT_FLIGHT])?;
        let mut left = bytes;
        while left > 0 {
            let read = stream.read(&mut buffer)?;
            ensure!(read > 0, "{left} bytes are missing");
            left = left.saturating_sub(read as u64);
        }
        stream.shutdown(Shutdown::Write)?;
        ensure!(
            stream.read(&mut buffer)? == 0,
            "more came than was asked for"
        );
        Ok(())
    }
}

/// The ClientHello that every connection begins with.
fn client_hello() -> Result<Vec<u8>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(RootCertStore::empty())
        .with_no_client_auth();
    let mut client = ClientConnection::new(Arc::new(config), ServerName::try_from(HOST)?)?;
    let mut hello = Vec::new();
    client.write_tls(&mut hello)?;
    Ok(hello)
}

/// Reads a ClientHello and a number, goes through the flights, and answers with so many bytes.
fn start_server(hello: usize) -> Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let piece = Arc::new(vec![b'x'; 256 << 10]);
    thread::spawn(move || {
        for stream in listener.incoming() {
            let piece = Arc::clone(&piece);
            thread::spawn(move || -> Result<()> {
                let mut stream = stream?;
                stream.set_nodelay(true)?;
                let mut asked = vec![0; hello + size_of::<u64>()];
                stream.read_exact(&mut asked)?;
                stream.write_all(&[b'z'; SERVER_FLIGHT])?;
                stream.read_exact(&mut [0; CLIENT_FLIGHT])?;
                let (_, number) = asked.split_at(hello);
                let mut left = usize::try_from(u64::from_be_bytes(number.try_into()?))?;
                while left > 0 {
                    let size = left.min(piece.len());
                    stream.write_all(piece.get(..size).context("no piece")?)?;
                    left -= size;
                }
                stream.shutdown(Shutdown::Write)?;
                stream.read_to_end(&mut asked)?;
                Ok(())
            });
        }
    });
    Ok(address)
}

/// The floor: accepts, connects and copies, with the same socket options as the proxy.
async fn relay(listener: TcpListener, server: SocketAddr) -> Result<()> {
    listener.set_nonblocking(true)?;
    let listener = tokio::net::TcpListener::from_std(listener)?;
    loop {
        let (mut client, _) = listener.accept().await?;
        tokio::spawn(async move {
            client.set_nodelay(true)?;
            let mut server = tokio::net::TcpStream::connect(server).await?;
            server.set_nodelay(true)?;
            copy_bidirectional(&mut client, &mut server).await
        });
    }
}

async fn proxy(listener: TcpListener, server: SocketAddr) -> Result<()> {
    let port = server.port();
    let profile = PolicyProfile {
        allow_network: vec![format!("{HOST}:{port}"), format!("127.0.0.1:{port}")],
        ..PolicyProfile::default()
    };
    let rules = EgressRules::new(PolicyEngine::new(&profile)?);
    let options = EgressOptions {
        resolver: Resolver::new(move |_, _| async move { Ok(vec![server]) }),
        ..EgressOptions::new(rules)
    };
    let (_proxy, mut events) = EgressProxy::start(listener, options)?;
    while let Some(report) = events.next().await {
        if let EgressReport::Lost(lost) = report {
            anyhow::bail!("{lost} events were lost");
        }
    }
    Ok(())
}
