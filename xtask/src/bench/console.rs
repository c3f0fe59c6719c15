//! The console in a browser: time until it can be used, and a run of 100,000 events.

use std::process::ExitCode;

use anyhow::{Result, ensure};

use crate::console::{ConsoleTask, run as run_harness};

pub(super) fn run() -> Result<()> {
    let ended = run_harness(&ConsoleTask::Bench)?;
    ensure!(
        ended == ExitCode::SUCCESS,
        "a figure of the console is out of its limit"
    );
    Ok(())
}
