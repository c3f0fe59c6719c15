//! Ten thousand followers of live runs, half by server-sent events and half by WebSocket.
//!
//! Every run says something every two seconds, and runs begin one after the other, so that deliveries are
//! spread. The delay of a delivery is the time from the moment in the event itself, which is before it is
//! durable, to the arrival of its bytes here.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use abp_core::Timestamp;
use anyhow::{Context, Result, ensure};
use memchr::memmem;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::server::Server;
use super::{Bars, percentile};
use crate::output::say;

pub(super) const RUNS: usize = 50;
/// By each of the two ways.
const PER_RUN: usize = 100;
const FOLLOWERS: usize = RUNS * PER_RUN * 2;
const MEASURED: Duration = Duration::from_secs(20);
const EACH_BAR_KB: f64 = 20.0;
const DELAY_BAR_MS: f64 = 50.0;
const RATE_BAR: f64 = 4_900.0;
/// How many are opened before the server is let breathe.
const BURST: usize = 50;

/// The command of a WebSocket that begins to follow.
const FOLLOW: &[u8] = br#"{"after_seq":0}"#;

/// What arrived while it was counted.
#[derive(Default)]
struct Arrivals {
    counts: bool,
    delays_ms: Vec<f64>,
    ended: usize,
}

pub(super) async fn measure(server: &Server, bars: &mut Bars) -> Result<()> {
    let mut runs = Vec::new();
    for _ in 0..RUNS {
        runs.push(server.submit("ticking").await?);
        // Two seconds shared by all runs.
        sleep(Duration::from_millis(40)).await;
    }
    while server.running().await? < RUNS {
        sleep(Duration::from_millis(200)).await;
    }
    sleep(Duration::from_secs(2)).await;
    let before = server.process.memory_kb()?;
    let arrivals = Rc::new(RefCell::new(Arrivals::default()));
    let all = LocalSet::new();
    let opened = all.run_until(async {
        let mut opened = 0;
        for run in &runs {
            for _ in 0..PER_RUN {
                for is_socket in [false, true] {
                    let stream = open(server, run, is_socket).await?;
                    let arrivals = Rc::clone(&arrivals);
                    tokio::task::spawn_local(follow(stream, arrivals));
                    opened += 1;
                    if opened % BURST == 0 {
                        sleep(Duration::from_millis(2)).await;
                    }
                }
            }
        }
        // What was said before they came is read from the store.
        sleep(Duration::from_secs(5)).await;
        arrivals.borrow_mut().counts = true;
        sleep(MEASURED).await;
        arrivals.borrow_mut().counts = false;
        server.process.memory_kb()
    });
    let after = opened.await?;
    let arrived = arrivals.take();
    ensure!(
        arrived.ended == 0,
        "{} followers were cut off",
        arrived.ended
    );
    let mut delays = arrived.delays_ms;
    let rate = delays.len() as f64 / MEASURED.as_secs_f64();
    let each = after.saturating_sub(before) as f64 / FOLLOWERS as f64;
    let p99 = percentile(&mut delays, 99.0);
    say(format_args!(
        "{FOLLOWERS} followers of {RUNS} runs: {each:.1} KB each (bar: {EACH_BAR_KB} KB), {rate:.0} deliveries/s, \
         event to follower p50 {:.1} ms, p99 {p99:.1} ms (bar: {DELAY_BAR_MS} ms)",
        percentile(&mut delays, 50.0),
    ));
    bars.at_most("memory of a follower, KB", each, EACH_BAR_KB);
    bars.at_most("event to follower, p99 ms", p99, DELAY_BAR_MS);
    bars.at_least("deliveries a second", rate, RATE_BAR);
    Ok(())
}

/// Opens a stream and reads the head of its answer.
async fn open(server: &Server, run: &str, is_socket: bool) -> Result<TcpStream> {
    let (target, expected) = if is_socket {
        let upgrade = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                       sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
        (server.get(&format!("/v1/runs/{run}/ws"), upgrade), "101")
    } else {
        let accept = "accept: text/event-stream\r\n";
        (server.get(&format!("/v1/runs/{run}/events"), accept), "200")
    };
    let mut stream = TcpStream::connect(target.address).await?;
    stream.write_all(&target.request).await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    let status = std::str::from_utf8(&head)?.split(' ').nth(1);
    let status = status.context("no status")?;
    ensure!(status == expected, "a follower is answered {status}");
    if is_socket {
        // Masked with zeros, which leaves the text as it is.
        let mut frame = vec![0x81, 0x80 | FOLLOW.len() as u8, 0, 0, 0, 0];
        frame.extend_from_slice(FOLLOW);
        stream.write_all(&frame).await?;
    }
    Ok(stream)
}

/// Reads until the stream ends, and notes the delay of every event.
async fn follow(mut stream: TcpStream, arrivals: Rc<RefCell<Arrivals>>) {
    const MARK: &[u8] = b"\"ts\":\"";
    const LENGTH: usize = "2026-11-18T01:46:13.192Z".len();
    let mut buffer = Vec::with_capacity(2_048);
    loop {
        match stream.read_buf(&mut buffer).await {
            Ok(0) | Err(_) => break,
            Ok(_) => {}
        }
        let arrived = SystemTime::now().duration_since(UNIX_EPOCH);
        let arrived = arrived.unwrap_or_default().as_secs_f64() * 1e3;
        let mut read = 0;
        while let Some(found) = buffer.get(read..).and_then(|rest| memmem::find(rest, MARK)) {
            let place = read + found + MARK.len();
            let Some(text) = buffer.get(place..place + LENGTH) else {
                break;
            };
            read = place + LENGTH;
            let text = format!("\"{}\"", String::from_utf8_lossy(text));
            if let Ok(said) = serde_json::from_str::<Timestamp>(&text) {
                let mut arrivals = arrivals.borrow_mut();
                if arrivals.counts {
                    let delay = arrived - said.as_unix_millis() as f64;
                    arrivals.delays_ms.push(delay.max(0.0));
                }
            }
        }
        // What may be the beginning of a mark stays.
        let keep = buffer.len().saturating_sub(MARK.len() + LENGTH).max(read);
        buffer.drain(..keep);
    }
    arrivals.borrow_mut().ended += 1;
}
