//! How long a whole `abp run` takes, beside the start of the same process doing nothing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::output::say;
use crate::workspace::{cargo, root};

const ROUNDS: usize = 51;
const FILES: usize = 50;
/// What a user should wait at most for the embedded backend on a small workspace.
const BAR: Duration = Duration::from_millis(100);

pub(crate) fn run() -> Result<()> {
    measure().map(drop)
}

/// Measures, and returns the median.
pub(super) fn measure() -> Result<Duration> {
    let built = cargo()
        .args(["build", "--quiet", "--release", "--package", "abp-cli"])
        .status()?;
    ensure!(built.success(), "abp-cli does not build");
    let root = root()?;
    let abp = root.join("target/release/abp");
    let desk = root.join("target/bench-run");
    fs::create_dir_all(&desk)?;
    for file in 0..FILES {
        fs::write(
            desk.join(format!("file-{file}.txt")),
            "a line\n".repeat(100),
        )?;
    }
    let (mut runs, mut floors) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        floors.push(time(&abp, &["--version"], &desk)?);
        runs.push(time(
            &abp,
            &["run", "--task", "say hello", "--json"],
            &desk,
        )?);
    }
    fs::remove_dir_all(&desk)?;
    let (run, floor) = (median(runs), median(floors));
    say(format_args!(
        "abp run, {FILES} files: {:.1} ms (bar: {} ms); process start alone: {:.1} ms; ratio {:.1}",
        run.as_secs_f64() * 1e3,
        BAR.as_millis(),
        floor.as_secs_f64() * 1e3,
        run.as_secs_f64() / floor.as_secs_f64(),
    ));
    Ok(run)
}

fn time(abp: &Path, arguments: &[&str], desk: &Path) -> Result<Duration> {
    let start = Instant::now();
    let status = Command::new(abp)
        .args(arguments)
        .current_dir(desk)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot start {}", abp.display()))?;
    let took = start.elapsed();
    ensure!(status.success(), "abp {arguments:?} ended with {status}");
    Ok(took)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}
