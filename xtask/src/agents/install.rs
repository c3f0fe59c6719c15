//! Gets the pinned agents.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output::say;

/// The files that pin the versions, and say where they do not come from.
const PINS: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// Packages that put their program in place when they are installed. No other's scripts are run.
const WITH_SCRIPTS: [&str; 2] = ["@anthropic-ai/claude-code", "opencode-ai"];
/// Written last: the pins for which the folder is complete.
const READY: &str = "ready";

/// Returns the folder with the agents' programs.
pub(super) fn packages(root: &Path) -> Result<PathBuf> {
    let pinned = root.join("tests/agents");
    let folder = root.join("target/agents/packages");
    let programs = folder.join("node_modules/.bin");
    let wanted = fs::read_to_string(pinned.join("package-lock.json"))?;
    if fs::read_to_string(folder.join(READY)).is_ok_and(|ready| ready == wanted) {
        say("agents: the packages are in place");
        return Ok(programs);
    }
    say("agents: installing the packages (2 GB)");
    if folder.exists() {
        fs::remove_dir_all(&folder)?;
    }
    fs::create_dir_all(&folder)?;
    for pin in PINS {
        fs::copy(pinned.join(pin), folder.join(pin))?;
    }
    // Not `ci`: an agent's package for another platform may be missing, and is not needed here.
    npm(
        &folder,
        &["install", "--ignore-scripts", "--no-audit", "--no-fund"],
    )
    .context("no packages (is a package registry within reach?)")?;
    let rebuild: Vec<&str> = std::iter::once("rebuild").chain(WITH_SCRIPTS).collect();
    npm(&folder, &rebuild)?;
    fs::write(folder.join(READY), wanted)?;
    Ok(programs)
}

fn npm(folder: &Path, arguments: &[&str]) -> Result<()> {
    let output = Command::new("npm")
        .args(arguments)
        .arg("--loglevel=error")
        .current_dir(folder)
        .output()
        .context("npm cannot be started")?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let complaint = said.lines().find(|line| line.contains("error"));
    bail!(
        "npm {}: {}",
        arguments.join(" "),
        complaint.unwrap_or("it failed").trim()
    )
}
