//! Packages of npm, pinned in a folder of the repository and installed below `target`.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::output::say;

/// The files that pin the versions, and say where they do not come from.
const PINS: [&str; 3] = ["package.json", "package-lock.json", ".npmrc"];
/// Written last: the pins for which the folder is complete.
const READY: &str = "ready";

/// The packages of one task.
pub(crate) struct NpmPackages {
    /// The task, the folder below `tests` with the pins, and the one below `target`.
    pub(crate) name: &'static str,
    /// How much they take.
    pub(crate) size: &'static str,
    /// Packages that put their program in place when they are installed. No other's scripts are run.
    pub(crate) with_scripts: &'static [&'static str],
}

impl NpmPackages {
    /// Returns the folder of the installed modules.
    pub(crate) fn prepare(&self, root: &Path) -> Result<PathBuf> {
        let name = self.name;
        let pinned = root.join("tests").join(name);
        let folder = root.join("target").join(name).join("packages");
        let modules = folder.join("node_modules");
        let wanted = fs::read_to_string(pinned.join("package-lock.json"))?;
        if fs::read_to_string(folder.join(READY)).is_ok_and(|ready| ready == wanted) {
            say(format_args!("{name}: the packages are in place"));
            return Ok(modules);
        }
        say(format_args!(
            "{name}: installing the packages ({})",
            self.size
        ));
        if folder.exists() {
            fs::remove_dir_all(&folder)?;
        }
        fs::create_dir_all(&folder)?;
        for pin in PINS {
            fs::copy(pinned.join(pin), folder.join(pin))?;
        }
        // Not `ci`: a package for another platform may be missing, and is not needed here.
        npm(
            &folder,
            &["install", "--ignore-scripts", "--no-audit", "--no-fund"],
        )
        .context("no packages (is a package registry within reach?)")?;
        if !self.with_scripts.is_empty() {
            npm(&folder, &[&["rebuild"], self.with_scripts].concat())?;
        }
        fs::write(folder.join(READY), wanted)?;
        Ok(modules)
    }
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
