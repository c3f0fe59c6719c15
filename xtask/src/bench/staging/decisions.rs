//! Deciding about one change in a large tree: `abp apply` and `abp discard`, until the command returns.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::{Desk, median};
use crate::output::say;
use crate::workspace::{cargo, root};

const ROUNDS: usize = 3;
const FILES: usize = 40_000;
const BYTES: usize = 1_024;
/// Of the time that `cp -a` of the tree takes.
const BAR: f64 = 0.3;

pub(super) fn run() -> Result<()> {
    let built = cargo()
        .args(["build", "--quiet", "--release", "--package", "abp-cli"])
        .status()?;
    ensure!(built.success(), "abp-cli does not build");
    let program = root()?.join("target/release/abp");
    let desk = Desk::new()?;
    desk.fill(FILES, BYTES)?;
    let (mut copies, mut applies, mut discards) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        copies.push(desk.copy()?);
        desk.propose(&program, &format!("applied {round}"))?;
        applies.push(desk.decide(&program, "apply")?);
        desk.propose(&program, &format!("discarded {round}"))?;
        discards.push(desk.decide(&program, "discard")?);
    }
    let copy = median(copies);
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    say(format_args!(
        "one change among {FILES} files, median of {ROUNDS}, until the command returns"
    ));
    for (name, time) in [
        ("abp apply", median(applies)),
        ("abp discard", median(discards)),
    ] {
        say(format_args!(
            "  {name:<12} {:7.0} ms   cp -a     {:7.0} ms   ratio {:.2} (bar: ≤ {BAR})",
            ms(time),
            ms(copy),
            time.as_secs_f64() / copy.as_secs_f64(),
        ));
    }
    Ok(())
}

impl Desk {
    /// A run that proposes to change one file.
    fn propose(&self, program: &Path, content: &str) -> Result<()> {
        let script = self.path.join("script.json");
        let steps = serde_json::json!({
            "name": "bench",
            "steps": [{ "do": "write", "path": "dir-0/file-0.rs", "content": content }],
        });
        fs::write(&script, steps.to_string())?;
        let mut run = self.abp(program);
        run.args(["run", "--task", "t", "--backend", "bench", "--mock-script"]);
        let status = run.arg(script).status().context("cannot run abp")?;
        ensure!(status.success(), "abp run ended with {status}");
        Ok(())
    }

    fn decide(&self, program: &Path, decision: &str) -> Result<Duration> {
        let started = Instant::now();
        let status = self.abp(program).args([decision, "last"]).status();
        let took = started.elapsed();
        let status = status.context("cannot run abp")?;
        ensure!(status.success(), "abp {decision} ended with {status}");
        Ok(took)
    }

    fn abp(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.source())
            .env("HOME", self.path.join("home"))
            .env_remove("XDG_STATE_HOME")
            .env_remove("XDG_CACHE_HOME")
            .env_remove("ABP_HOME")
            .stdout(Stdio::null());
        command
    }
}
