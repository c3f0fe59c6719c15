//! What a sandbox adds to the start of a sidecar: from spawn to hello, beside the plain launcher,
//! interleaved; and what staging 10,000 files adds to a run.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use abp_core::WorkspaceSpec;
use abp_glob::GlobList;
use abp_host::{
    ConfinedProgram, Confinement, EngineChoice, Launcher, Machine, Network, Overlay, PROXY_PORT,
    SandboxSettings, SidecarClient, SidecarSpec,
};
use abp_policy::PolicyEngine;
use abp_workspace::{PreparedWorkspace, StageChoice, StageForm, WorkspaceManager};
use anyhow::{Result, anyhow};
use uuid::Uuid;

use super::sidecar::ROLE;
use crate::output::say;
use crate::workspace::root;

const STARTS: usize = 41;
const FILES: usize = 10_000;
const STAGES: usize = 21;
const COPIES: usize = 5;
const SANDBOX_BAR: Duration = Duration::from_millis(25);
const START_BAR: Duration = Duration::from_millis(60);

pub(crate) fn run() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let desk = root()?.join("target/bench-run-start");
    if desk.exists() {
        fs::remove_dir_all(&desk)?;
    }
    let workspace = desk.join("work");
    fs::create_dir_all(&workspace)?;
    let settings = SandboxSettings {
        machine: Arc::new(Machine::new(
            Launcher::this_program(),
            std::env::var_os("HOME").map(PathBuf::from),
        )),
        engine: EngineChoice::Auto,
        read_only: Vec::new(),
        network: Network::Proxied(PROXY_PORT),
        scratch_bytes: None,
    };
    // Looked at once for all runs of a process, so it is not part of a start.
    let engine = settings.engine()?.as_str();
    let (mut plain, mut sandboxed) = (Vec::new(), Vec::new());
    for _ in 0..STARTS {
        plain.push(runtime.block_on(start(&workspace, None, &[]))?);
        sandboxed.push(runtime.block_on(start(&workspace, Some(&settings), &[]))?);
    }
    let (plain, sandboxed) = (median(plain), median(sandboxed));
    say(format_args!(
        "spawn to hello: plain launcher {:.1} ms, {engine} {:.1} ms, the sandbox adds {:.1} ms (bar: {} ms)",
        millis(plain),
        millis(sandboxed),
        millis(sandboxed.saturating_sub(plain)),
        SANDBOX_BAR.as_millis()
    ));
    let source = make_source(&desk)?;
    let (mut copied, mut surveyed, mut whole) = (Vec::new(), Vec::new(), Vec::new());
    let mut compared = Vec::new();
    for number in 0..STAGES {
        // A copy takes long and is steady.
        if number < COPIES {
            let (copy, took) = stage(&desk, &source, &StageChoice::Copy { reason: None })?;
            copied.push(took);
            copy.discard()?;
        }
        let (overlay, took) = stage(&desk, &source, &StageChoice::Overlay)?;
        anyhow::ensure!(*overlay.form() == StageForm::Overlay, "no overlay stage");
        surveyed.push(took);
        let started =
            runtime.block_on(start(overlay.root(), Some(&settings), overlay.overlays()))?;
        whole.push(took + started);
        let began = Instant::now();
        anyhow::ensure!(overlay.changes()?.is_empty(), "nothing was changed");
        compared.push(began.elapsed());
        overlay.discard()?;
    }
    say(format_args!(
        "stage of {FILES} files: copy {:.1} ms, overlay {:.1} ms; its verification {:.1} ms",
        millis(median(copied)),
        millis(median(surveyed)),
        millis(median(compared)),
    ));
    say(format_args!(
        "overlay stage, sandbox, spawn and hello {:.1} ms (bar: {} ms)",
        millis(median(whole)),
        START_BAR.as_millis()
    ));
    fs::remove_dir_all(&desk)?;
    Ok(())
}

async fn start(
    workspace: &Path,
    settings: Option<&SandboxSettings>,
    overlays: &[Overlay],
) -> Result<Duration> {
    let program = std::env::current_exe()?.display().to_string();
    let mut spec = SidecarSpec::new(&program, workspace);
    spec.args = vec![ROLE.to_owned(), "1".to_owned()];
    let started = Instant::now();
    if let Some(settings) = settings {
        let confined = ConfinedProgram {
            command: &program,
            args: &spec.args,
            search_path: OsStr::new("/usr/bin:/bin"),
            workspace,
            hidden: &[],
            home: None,
            installation: &[],
            overlays,
            is_in_place: false,
        };
        let sandbox = settings.plan(&confined, &PolicyEngine::default())?;
        spec.confinement = Confinement::Sandboxed(sandbox.plan);
    }
    let client = SidecarClient::spawn(spec).await?;
    let took = started.elapsed();
    client.close().await?;
    Ok(took)
}

/// A tree of many small files.
fn make_source(desk: &Path) -> Result<PathBuf> {
    let source = desk.join("source");
    for number in 0..FILES {
        let directory = source.join(format!("d{}", number % 100));
        fs::create_dir_all(&directory)?;
        fs::write(directory.join(format!("f{number}")), "x".repeat(4096))?;
    }
    Ok(source)
}

/// A stage of the tree, and the time that it took.
fn stage(
    desk: &Path,
    source: &Path,
    choice: &StageChoice,
) -> Result<(PreparedWorkspace, Duration)> {
    let manager = WorkspaceManager::new(desk.join("stages")).with_choice(choice.clone());
    let spec = WorkspaceSpec {
        root: source.display().to_string(),
        ..WorkspaceSpec::default()
    };
    let hidden = GlobList::new(&[]).map_err(|error| anyhow!("{error}"))?;
    let started = Instant::now();
    let prepared = manager.prepare(&spec, Uuid::new_v4(), &hidden)?;
    Ok((prepared, started.elapsed()))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn millis(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}
