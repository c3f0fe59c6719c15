//! What the MCP gateway adds to a tool call, and what a thousand sessions of it cost.
//!
//! A server, the gateway in front of it and the client are threads of this process, so the memory is that of
//! all three.

mod client;
mod serve;

use std::fs;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use self::client::{Caller, Era};
use crate::output::say;

const ROUNDS: usize = 9;
const CALLS: usize = 300;
const SESSIONS: usize = 1_000;
/// The most that the gateway may add to a call at the median.
const MAX_ADDED: Duration = Duration::from_millis(1);
/// The most memory that a session may take, with its connection to the server and that server's end.
const MAX_SESSION_KB: u64 = 256;

pub(super) fn run() -> Result<()> {
    allow_connections()?;
    let server = serve::server()?;
    let gateway = serve::gateway(server)?;
    let mut is_within = true;
    for era in [Era::Legacy, Era::Modern] {
        is_within &= added(era, server, gateway)?;
    }
    is_within &= sessions(gateway)?;
    ensure!(is_within, "a bar was missed");
    Ok(())
}

/// Calls the same tool with and without the gateway, in turns, so that both see the same machine.
fn added(era: Era, server: SocketAddr, gateway: SocketAddr) -> Result<bool> {
    let mut direct = Caller::open(server, era)?;
    let mut through = Caller::open(gateway, era)?;
    let (mut floor, mut ours) = (Vec::new(), Vec::new());
    for round in 0..=ROUNDS {
        let (one, other) = (median(&mut direct)?, median(&mut through)?);
        // The first round warms both up.
        if round > 0 {
            floor.push(one);
            ours.push(other.saturating_sub(one));
        }
    }
    let (floor, added) = (middle(&mut floor), middle(&mut ours));
    let is_within = added <= MAX_ADDED;
    say(format_args!(
        "{era:?} client: {:.0} µs direct, {:.0} µs added at the median (at most {:.0}): {}",
        micros(floor),
        micros(added),
        micros(MAX_ADDED),
        verdict(is_within)
    ));
    Ok(is_within)
}

/// Holds many sessions open at once and uses each.
fn sessions(gateway: SocketAddr) -> Result<bool> {
    let before = memory_kb()?;
    let start = Instant::now();
    let mut callers = Vec::new();
    for _ in 0..SESSIONS {
        let mut caller = Caller::open(gateway, Era::Legacy)?;
        caller.call()?;
        callers.push(caller);
    }
    let opened = start.elapsed();
    let mut times = Vec::new();
    for caller in &mut callers {
        times.push(caller.call()?);
    }
    let each = memory_kb()?.saturating_sub(before) / SESSIONS as u64;
    let is_within = each <= MAX_SESSION_KB;
    say(format_args!(
        "{SESSIONS} sessions: opened in {:.1} s, {:.0} µs a call at the median, {each} KB each (at most \
         {MAX_SESSION_KB}): {}",
        opened.as_secs_f64(),
        micros(middle(&mut times)),
        verdict(is_within)
    ));
    Ok(is_within)
}

fn median(caller: &mut Caller) -> Result<Duration> {
    let times: Result<Vec<_>> = (0..CALLS).map(|_| caller.call()).collect();
    Ok(middle(&mut times?))
}

fn middle(times: &mut [Duration]) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn micros(time: Duration) -> f64 {
    time.as_secs_f64() * 1e6
}

fn verdict(is_within: bool) -> &'static str {
    if is_within { "ok" } else { "MISSED" }
}

fn memory_kb() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let figure = line.and_then(|line| line.split_whitespace().next());
    Ok(figure.context("no memory is told")?.parse()?)
}

/// Every session is three connections, and both ends of each are here.
fn allow_connections() -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: limit.maximum,
            maximum: limit.maximum,
        },
    )?;
    Ok(())
}
