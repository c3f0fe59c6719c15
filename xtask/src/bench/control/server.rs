//! `abp serve` with scripted backends, and requests to it.

use std::fs::{self, DirBuilder};
use std::net::SocketAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use serde_json::{Value, json};

use super::super::gateway::client::Target;
use super::super::gateway::process::Process;
use crate::workspace::root;

/// A server under load.
pub(super) struct Server {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    abp: PathBuf,
    directory: PathBuf,
    key: String,
}

const CONFIG_FILE: &str = "operator.toml";

const CONFIG: &str = r#"
[server]
max_connections = 20000
max_concurrent = 20000

[control]
max_running = RUNNING
max_running_per_principal = RUNNING

[backends.sleepy]
type = "mock"
script = "sleepy.json"

[backends.ticking]
type = "mock"
script = "ticking.json"
"#;

impl Server {
    /// Starts it with a new state directory; it carries out so many runs at once.
    pub(super) fn start(directory: &Path, running: usize) -> Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory.join("home"))?;
        let config = CONFIG.replace("RUNNING", &running.to_string());
        fs::write(directory.join(CONFIG_FILE), config)?;
        let sleepy = json!({"name": "sleepy", "steps": [{"do": "sleep", "ms": 600_000}]});
        fs::write(directory.join("sleepy.json"), sleepy.to_string())?;
        let tick = json!({"do": "emit", "event": {"type": "warning", "message": "tick"}});
        let steps: Vec<Value> = (0..300)
            .flat_map(|_| [json!({"do": "sleep", "ms": 2_000}), tick.clone()])
            .collect();
        let ticking = json!({"name": "ticking", "steps": steps});
        fs::write(directory.join("ticking.json"), ticking.to_string())?;
        let abp = root()?.join("target/release/abp");
        let mut server = Command::new(&abp);
        let mut process = Process::start(in_directory(&mut server, directory).args([
            "serve",
            "--listen",
            "127.0.0.1:0",
            "--json",
        ]))?;
        let told = process.first_value()?;
        let text = |name: &str| {
            let value = told.get(name).and_then(Value::as_str);
            value.context("it tells nothing")
        };
        let address = text("listening")?.trim_start_matches("http://").parse()?;
        Ok(Self {
            key: text("key")?.to_owned(),
            process,
            address,
            abp,
            directory: directory.to_owned(),
        })
    }

    /// A key of its own, with a queue of its own.
    pub(super) fn new_key(&self, name: &str) -> Result<String> {
        let mut command = Command::new(&self.abp);
        let made = in_directory(&mut command, &self.directory)
            .args(["keys", "create", "--json", "--name", name])
            .args(["--scopes", "runs:read,runs:write"])
            .output()?;
        ensure!(made.status.success(), "no key was made");
        let told: Value = serde_json::from_slice(&made.stdout)?;
        let key = told.get("key").and_then(Value::as_str);
        Ok(key.context("no key")?.to_owned())
    }

    /// A submission of a run on a backend.
    pub(super) fn submission(&self, key: Option<&str>, backend: &str) -> Target {
        let body = json!({"order": {"task": "t"}, "backend": backend}).to_string();
        let length = body.len();
        let head = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
        self.target(key, &format!("POST /v1/runs HTTP/1.1\r\n{head}"), &body)
    }

    /// A request without a body.
    pub(super) fn get(&self, path: &str, headers: &str) -> Target {
        self.target(None, &format!("GET {path} HTTP/1.1\r\n{headers}"), "")
    }

    fn target(&self, key: Option<&str>, head: &str, body: &str) -> Target {
        let (address, key) = (self.address, key.unwrap_or(&self.key));
        let request = format!("{head}host: {address}\r\nauthorization: Bearer {key}\r\n\r\n{body}");
        Target {
            address,
            request: Bytes::from(request),
        }
    }

    /// Submits a run and returns its id.
    pub(super) async fn submit(&self, backend: &str) -> Result<String> {
        let target = self.submission(None, backend);
        let mut connection = target.connect().await?;
        let mut body = Vec::new();
        let status = connection
            .ask(&target.request, |part| body.extend_from_slice(part))
            .await?;
        let told = String::from_utf8_lossy(&body);
        ensure!(status == 202, "a submission is answered {status}: {told}");
        let told: Value = serde_json::from_slice(&body)?;
        let run_id = told.get("run_id").and_then(Value::as_str);
        Ok(run_id.context("no run")?.to_owned())
    }

    /// How many runs go on.
    pub(super) async fn running(&self) -> Result<usize> {
        let target = self.get("/metrics", "");
        let mut connection = target.connect().await?;
        let mut body = Vec::new();
        connection
            .ask(&target.request, |part| body.extend_from_slice(part))
            .await?;
        let text = String::from_utf8_lossy(&body);
        let mut lines = text.lines();
        let line = lines.find_map(|line| line.strip_prefix("abp_runs_running "));
        Ok(line.context("no such metric")?.parse()?)
    }
}

fn in_directory<'c>(command: &'c mut Command, directory: &Path) -> &'c mut Command {
    command
        .current_dir(directory)
        .env("HOME", directory.join("home"))
        .env_remove("ABP_HOME")
        // A project's own file may not name backends.
        .env("ABP_CONFIG", directory.join(CONFIG_FILE))
        .env_remove("XDG_STATE_HOME")
        .env_remove("XDG_CACHE_HOME")
        .env_remove("RUST_LOG")
}
