//! How many events a second come from a sidecar through host, gate, trace and store to whoever
//! follows, beside a bare loop that reads the same lines; and what supervision costs at the start.

use std::fs;
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_backend_sidecar::SidecarBackend;
use abp_core::{AgentEventKind, WorkOrderBuilder, WorkspaceMode};
use abp_emulation::EmulationConfig;
use abp_host::{SidecarClient, SidecarSpec};
use abp_integrations::BackendRegistry;
use abp_runtime::{Runtime, RuntimeOptions};
use anyhow::{Context, Result, ensure};
use serde_json::Value;
use uuid::Uuid;

use crate::output::say;
use crate::workspace::root;

/// As first argument: be the sidecar that is measured.
pub(super) const ROLE: &str = "__bench-sidecar";
const EVENTS: u64 = 1_000_000;
const ROUNDS: usize = 3;
const STARTS: usize = 41;
const RATE_BAR: f64 = 0.3;
const MEMORY_BAR_MB: u64 = 128;
const START_BAR: Duration = Duration::from_millis(10);

/// Is the sidecar where this process was started as one.
pub(crate) fn run_if_sidecar() -> Option<ExitCode> {
    let mut arguments = std::env::args().skip(1);
    if arguments.next()? != ROLE {
        return None;
    }
    let events = arguments.next()?.parse().ok()?;
    Some(match be_sidecar(events) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    })
}

/// Sends that many events as fast as they are taken.
fn be_sidecar(events: u64) -> io::Result<()> {
    let mut output = io::BufWriter::with_capacity(64 * 1024, io::stdout().lock());
    writeln!(
        output,
        r#"{{"t":"hello","contract_version":"abp/v0.1","backend":{{"id":"bench"}},"capabilities":{{"streaming":"native"}}}}"#
    )?;
    output.flush()?;
    let mut line = String::new();
    io::stdin().lock().read_line(&mut line)?;
    let run: Value = serde_json::from_str(&line)?;
    let id = run.get("id").and_then(Value::as_str).unwrap_or_default();
    for number in 0..events {
        writeln!(
            output,
            r#"{{"t":"event","ref_id":"{id}","event":{{"ts":"2026-01-01T00:00:00.000Z","type":"assistant_delta","text":"the {number}th piece of an answer "}}}}"#
        )?;
        if number == 0 {
            output.flush()?;
        }
    }
    writeln!(output, r#"{{"t":"final","ref_id":"{id}","receipt":{{}}}}"#)?;
    output.flush()
}

pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let desk = root()?.join("target/bench-sidecar");
    if desk.exists() {
        fs::remove_dir_all(&desk)?;
    }
    fs::create_dir_all(desk.join("source"))?;
    let (mut bare, mut whole) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        bare.push(bare_rate()?);
        let state = desk.join(format!("state-{round}"));
        whole.push(runtime.block_on(whole_rate(&state, &desk.join("source")))?);
    }
    let (bare, whole) = (median(bare), median(whole));
    say(format_args!(
        "bare loop, one parse a line:    {bare:>9.0} events a second"
    ));
    say(format_args!(
        "host, gate, trace, subscriber:  {whole:>9.0} events a second, {:.2} × bare (bar: {RATE_BAR})",
        whole / bare
    ));
    let memory = peak_memory_mb()?;
    say(format_args!(
        "peak memory for {EVENTS} events: {memory} MB (bar: {MEMORY_BAR_MB} MB)"
    ));
    let (mut alone, mut supervised) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        alone.push(bare_start()?.as_secs_f64());
        supervised.push(runtime.block_on(supervised_start(&desk))?.as_secs_f64());
    }
    let (alone, supervised) = (median(alone), median(supervised));
    say(format_args!(
        "spawn to first event: {:.1} ms, bare {:.1} ms, overhead {:.1} ms (bar: {} ms)",
        supervised * 1e3,
        alone * 1e3,
        (supervised - alone) * 1e3,
        START_BAR.as_millis()
    ));
    fs::remove_dir_all(&desk)?;
    Ok(())
}

fn sidecar(events: u64) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.arg(ROLE).arg(events.to_string());
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    Ok(command)
}

/// Reads the lines of a bare child; `seen` says at each whether that is enough.
fn read_bare(events: u64, mut seen: impl FnMut(&Value) -> bool) -> Result<()> {
    let mut child = sidecar(events)?.spawn()?;
    let mut stdin = child.stdin.take().context("no input")?;
    stdin.write_all(b"{\"t\":\"run\",\"id\":\"0190b3c1-0000-7000-8000-000000000001\"}\n")?;
    let mut output = BufReader::with_capacity(64 * 1024, child.stdout.take().context("no output")?);
    let mut line = String::new();
    while output.read_line(&mut line)? > 0 {
        if seen(&serde_json::from_str(&line)?) {
            break;
        }
        line.clear();
    }
    drop(output);
    child.wait()?;
    Ok(())
}

fn bare_rate() -> Result<f64> {
    let (mut count, mut start) = (0_u64, Instant::now());
    read_bare(EVENTS, |frame| {
        match frame.get("t").and_then(Value::as_str) {
            Some("hello") => start = Instant::now(),
            Some("event") => count += 1,
            _ => {}
        }
        false
    })?;
    ensure!(count == EVENTS, "only {count} events came");
    Ok(EVENTS as f64 / start.elapsed().as_secs_f64())
}

async fn whole_rate(state: &Path, source: &Path) -> Result<f64> {
    let mut spec = SidecarSpec::new(std::env::current_exe()?.display().to_string(), ".");
    spec.args = vec![ROLE.to_owned(), EVENTS.to_string()];
    let mut registry = BackendRegistry::new();
    registry.register(Arc::new(SidecarBackend::new("bench", spec, 0)));
    let options = RuntimeOptions {
        lend: Vec::new(),
        state_dir: state.join("state"),
        stages_dir: state.join("stages"),
        emulation: EmulationConfig::default(),
        max_running: 1,
        max_parked: 1,
    };
    let mut order = WorkOrderBuilder::new("as many events as you can").build();
    order.workspace.root = source.display().to_string();
    order.workspace.mode = WorkspaceMode::PassThrough;
    let runtime = Runtime::new(registry, options);
    let mut run = runtime.run_streaming("bench", order).await?;
    let (mut count, mut start) = (0_u64, Instant::now());
    while let Some(followed) = run.events.next().await? {
        if matches!(followed.event.kind, AgentEventKind::AssistantDelta { .. }) {
            if count == 0 {
                start = Instant::now();
            }
            count += 1;
        }
    }
    let rate = EVENTS as f64 / start.elapsed().as_secs_f64();
    let receipt = run.receipt.await?;
    ensure!(
        receipt.error.is_none(),
        "the run failed: {:?}",
        receipt.error
    );
    ensure!(count == EVENTS, "only {count} events came");
    Ok(rate)
}

fn bare_start() -> Result<Duration> {
    let start = Instant::now();
    let mut took = Duration::ZERO;
    read_bare(1, |frame| {
        let first = frame.get("event").is_some();
        if first {
            took = start.elapsed();
        }
        first
    })?;
    Ok(took)
}

async fn supervised_start(desk: &Path) -> Result<Duration> {
    let mut spec = SidecarSpec::new(std::env::current_exe()?.display().to_string(), desk);
    spec.args = vec![ROLE.to_owned(), "1".to_owned()];
    spec.records = Some(desk.join("records"));
    let order = WorkOrderBuilder::new("one event").build();
    let start = Instant::now();
    let client = SidecarClient::spawn(spec).await?;
    let mut run = client.run(Uuid::new_v4(), &order)?;
    run.next_events().await.context("no event came")?;
    let took = start.elapsed();
    run.finish().await.result?;
    Ok(took)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or_default()
}

fn peak_memory_mb() -> Result<u64> {
    let status = fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"));
    let figure = line.and_then(|line| line.split_whitespace().nth(1));
    let kilobytes: u64 = figure.context("no VmHWM")?.parse()?;
    Ok(kilobytes / 1024)
}
