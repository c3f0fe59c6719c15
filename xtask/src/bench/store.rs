//! How many events a second the store makes durable, beside a bare loop of write and sync, and what
//! recording an exchange costs.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

use abp_core::{ExecutionMode, MicroUsd, Outcome, Timestamp};
use abp_store::{ExchangeRecord, ExchangeUsage, NewRun, Store, StoreOptions};
use anyhow::{Context, Result};
use uuid::Uuid;

use crate::output::say;
use crate::workspace::root;

const ROUNDS: usize = 5;
const SINGLE: u64 = 500;
const GROUPED: u64 = 1_000_000;
/// How many events are on their way at once, as a run's own queue allows.
const WINDOW: usize = 4_096;
const MEMORY_BAR_MB: u64 = 128;
const EXCHANGES: usize = 1_000_000;
/// How many exchanges are recorded between two looks at the clock; they fit into the ring.
const BURST: usize = 1_000;
const BURSTS: usize = 300;
const RECORD_BAR_NS: f64 = 2_000.0;

pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let desk = root()?.join("target/bench-store");
    if desk.exists() {
        fs::remove_dir_all(&desk)?;
    }
    fs::create_dir_all(&desk)?;
    let event = format!(
        r#"{{"type":"assistant_delta","text":"{}"}}"#,
        "x".repeat(250)
    );
    let (mut floors, mut singles) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        floors.push(floor(
            &desk.join(format!("floor-{round}")),
            event.as_bytes(),
        )?);
        let state = desk.join(format!("single-{round}"));
        singles.push(runtime.block_on(single(&state, &event))?);
    }
    let (floor, single) = (median(floors), median(singles));
    say(format_args!(
        "bare write + fdatasync:           {floor:>9.0} a second"
    ));
    say(format_args!(
        "store, each event awaited:        {single:>9.0} a second, {:.2} × bare",
        single / floor
    ));
    let grouped = runtime.block_on(grouped(&desk.join("grouped"), &event))?;
    say(format_args!(
        "store, {GROUPED} events in one run: {grouped:>6.0} a second, {:.1} × bare",
        grouped / floor
    ));
    let exchanges = runtime.block_on(exchanges(&desk.join("exchanges")))?;
    say(format_args!(
        "store, {EXCHANGES} exchanges:       {:>9.0} a second, {:.0} ns for each caller (bar: {RECORD_BAR_NS} ns)",
        exchanges.sealed_per_second, exchanges.record_ns
    ));
    say(format_args!(
        "peak memory: {} MB (bar: {MEMORY_BAR_MB} MB)",
        peak_memory_mb()?
    ));
    fs::remove_dir_all(&desk)?;
    Ok(())
}

fn floor(path: &Path, event: &[u8]) -> Result<f64> {
    let mut file = File::create(path)?;
    let start = Instant::now();
    for _ in 0..SINGLE {
        file.write_all(event)?;
        file.sync_data()?;
    }
    Ok(SINGLE as f64 / start.elapsed().as_secs_f64())
}

async fn single(state: &Path, event: &str) -> Result<f64> {
    let (store, run_id) = open(state).await?;
    let start = Instant::now();
    for seq in 0..SINGLE {
        store
            .append_event(run_id, seq, event.to_owned())
            .await?
            .await?;
    }
    let rate = SINGLE as f64 / start.elapsed().as_secs_f64();
    store.close().await;
    Ok(rate)
}

/// How many events a second one run gets durable, with as many on their way as its queue allows.
pub(super) async fn grouped(state: &Path, event: &str) -> Result<f64> {
    let (store, run_id) = open(state).await?;
    let start = Instant::now();
    let mut waiting = std::collections::VecDeque::with_capacity(WINDOW);
    for seq in 0..GROUPED {
        waiting.push_back(store.append_event(run_id, seq, event.to_owned()).await?);
        if waiting.len() == WINDOW
            && let Some(ack) = waiting.pop_front()
        {
            ack.await?;
        }
    }
    for ack in waiting {
        ack.await?;
    }
    let rate = GROUPED as f64 / start.elapsed().as_secs_f64();
    store.close().await;
    Ok(rate)
}

struct Exchanges {
    sealed_per_second: f64,
    /// What admitting and recording costs whoever does it.
    record_ns: f64,
}

async fn exchanges(state: &Path) -> Result<Exchanges> {
    let store = Store::open(state, StoreOptions::default()).await?;
    let log = store.exchange_log();
    let mut bursts = Vec::new();
    for _ in 0..BURSTS {
        let records: Vec<_> = (0..BURST).map(|_| exchange()).collect();
        let start = Instant::now();
        for record in records {
            let permit = log.admit().context("a burst fits into the ring")?;
            permit.record(&record);
        }
        bursts.push(start.elapsed().as_nanos() as f64 / BURST as f64);
        log.flush().await?;
    }
    let start = Instant::now();
    for _ in 0..EXCHANGES {
        let permit = loop {
            match log.admit() {
                Some(permit) => break permit,
                None => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        };
        permit.record(&exchange());
    }
    log.flush().await?;
    let sealed_per_second = EXCHANGES as f64 / start.elapsed().as_secs_f64();
    store.close().await;
    Ok(Exchanges {
        sealed_per_second,
        record_ns: median(bursts),
    })
}

fn exchange() -> ExchangeRecord {
    ExchangeRecord {
        run_id: Uuid::now_v7(),
        principal: "k_0123456789".to_owned(),
        started_at: Timestamp::from_unix_millis(1_700_000_000_000),
        duration_us: 1_234_567,
        first_byte_us: Some(345_678),
        caller_dialect: "openai".to_owned(),
        upstream: "anthropic-eu".to_owned(),
        upstream_dialect: "claude".to_owned(),
        model_asked: "gpt-large-2026-10-01".to_owned(),
        model_sent: "claude-large-2026-10-01".to_owned(),
        operation: "generate".to_owned(),
        streamed: true,
        mode: ExecutionMode::Mapped,
        status: 200,
        outcome: Outcome::Complete,
        error_code: None,
        attempts: 1,
        request_sha256: [1; 32],
        sent_sha256: [2; 32],
        received_sha256: [3; 32],
        delivered_sha256: [4; 32],
        request_bytes: 23_456,
        response_bytes: 3_456,
        usage: ExchangeUsage {
            input_tokens: Some(5_864),
            output_tokens: Some(864),
            cache_read_tokens: Some(4_096),
            ..ExchangeUsage::default()
        },
        cost: Some(MicroUsd::from_micros(12_345)),
        cost_is_estimate: true,
        ledger: Some([5; 32]),
        emulated: vec!["stop_sequences".to_owned()],
        client_closed: false,
    }
}

async fn open(state: &Path) -> Result<(Store, Uuid)> {
    let store = Store::open(state, StoreOptions::default()).await?;
    let run_id = Uuid::now_v7();
    let run = NewRun {
        run_id,
        order_json: r#"{"task":"bench"}"#.to_owned(),
        order_sha256: "0".repeat(64),
        backend: "bench".to_owned(),
        backend_asked: None,
        project: None,
        principal: None,
        at: Timestamp::from_unix_millis(0),
        idempotency_key: None,
    };
    store.accept(run).await?;
    Ok((store, run_id))
}

fn median(mut rates: Vec<f64>) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or_default()
}

fn peak_memory_mb() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status
        .lines()
        .find(|line| line.starts_with("VmHWM:"))
        .context("no VmHWM")?;
    let kilobytes: u64 = line
        .split_whitespace()
        .nth(1)
        .context("no figure")?
        .parse()?;
    Ok(kilobytes / 1024)
}
