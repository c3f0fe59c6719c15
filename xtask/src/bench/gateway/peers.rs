//! The servers of a run: the upstream, the two floors, and the gateway itself.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::process::Process;
use super::role::Role;
use crate::output::say;
use crate::workspace::{cargo, root};

/// The directory for state and logs; removed at the end.
#[derive(Debug)]
pub(super) struct Desk(PathBuf);

impl Desk {
    pub(super) fn new() -> Result<Self> {
        let path = root()?.join("target/bench-gateway");
        if path.exists() {
            fs::remove_dir_all(&path)?;
        }
        fs::create_dir_all(&path)?;
        Ok(Self(path))
    }

    fn directory(&self, name: &str) -> Result<PathBuf> {
        let path = self.0.join(name);
        fs::create_dir(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            let path = self.0.display();
            say(format_args!("{path} could not be removed: {error}"));
        }
    }
}

/// A server that is this program in another role.
#[derive(Debug)]
pub(super) struct Plain {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
}

impl Plain {
    pub(super) fn start(role: Role) -> Result<Self> {
        let mut process = Process::start(&mut role.command()?)?;
        let told = process.first_value()?;
        let address = told.as_str().context("it does not say its address")?;
        Ok(Self {
            address: address.parse()?,
            process,
        })
    }
}

/// nginx with one worker, as a proxy that does nothing else.
#[derive(Debug)]
pub(super) struct Nginx {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    /// Where answers are not buffered.
    pub(super) streaming: SocketAddr,
}

impl Nginx {
    /// Starts it; `None` where it is not installed.
    pub(super) fn start(desk: &Desk, upstream: SocketAddr) -> Result<Option<Self>> {
        let Some(program) = nginx_program() else {
            say("nginx is not installed, so one floor is missing: apt-get install nginx-light");
            return Ok(None);
        };
        let directory = desk.directory("nginx")?;
        let (address, streaming) = (free_address()?, free_address()?);
        let configuration = nginx_configuration(upstream, address, streaming);
        fs::write(directory.join("nginx.conf"), configuration)?;
        let process = Process::start(Command::new(program).arg("-p").arg(&directory).args([
            "-c",
            "nginx.conf",
            "-e",
            "error.log",
        ]))?;
        let started = Instant::now();
        while TcpStream::connect(streaming).is_err() {
            let log = || fs::read_to_string(directory.join("error.log")).unwrap_or_default();
            let in_time = started.elapsed() < Duration::from_secs(5);
            ensure!(in_time, "nginx does not start: {}", log());
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(Some(Self {
            process,
            address,
            streaming,
        }))
    }
}

fn nginx_program() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|directory| directory.join("nginx"))
        .find(|program| program.is_file())
}

/// An address that nobody has. Another process could take it before nginx does; then nginx says so.
fn free_address() -> Result<SocketAddr> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?)
}

fn nginx_configuration(upstream: SocketAddr, address: SocketAddr, streaming: SocketAddr) -> String {
    let mut servers = String::new();
    for (listen, buffering) in [(address, "on"), (streaming, "off")] {
        // Writing to a string cannot fail.
        let _ = write!(
            servers,
            "server {{
                listen {listen};
                keepalive_requests 1000000000;
                location / {{
                    proxy_pass http://upstream;
                    proxy_http_version 1.1;
                    proxy_set_header Connection \"\";
                    proxy_buffering {buffering};
                }}
            }}\n"
        );
    }
    format!(
        "daemon off; master_process off; worker_processes 1; worker_rlimit_nofile 4096;
        pid nginx.pid;
        events {{ worker_connections 2048; }}
        http {{
            access_log off;
            tcp_nodelay on;
            client_body_temp_path body;
            proxy_temp_path proxy;
            fastcgi_temp_path fastcgi;
            uwsgi_temp_path uwsgi;
            scgi_temp_path scgi;
            upstream upstream {{
                server {upstream};
                keepalive 64;
                keepalive_requests 1000000000;
            }}
            {servers}
        }}\n"
    )
}

/// Builds the gateway as it is released.
pub(super) fn build_abp() -> Result<PathBuf> {
    let built = cargo()
        .args(["build", "--quiet", "--release", "--package", "abp-cli"])
        .status()?;
    ensure!(built.success(), "abp-cli does not build");
    Ok(root()?.join("target/release/abp"))
}

/// How much at once a gateway takes.
#[derive(Debug, Clone, Copy)]
pub(super) enum Room {
    AsShipped,
    /// For so many streams.
    Streams(usize),
}

/// The gateway, with everything on.
#[derive(Debug)]
pub(super) struct Abp {
    pub(super) process: Process,
    pub(super) address: SocketAddr,
    pub(super) key: String,
}

impl Abp {
    /// Starts it with a state of its own, new, under `name`.
    pub(super) fn start(
        program: &Path,
        desk: &Desk,
        name: &str,
        upstream: SocketAddr,
        room: Room,
    ) -> Result<Self> {
        let directory = desk.directory(name)?;
        let configuration = directory.join("backplane.toml");
        fs::write(&configuration, abp_configuration(upstream, room))?;
        let log = fs::File::create(directory.join("log"))?;
        let mut process = Process::start(
            Command::new(program)
                .args(["serve", "--listen", "127.0.0.1:0", "--json", "--config"])
                .arg(&configuration)
                .arg("--state-dir")
                .arg(directory.join("state"))
                .stderr(Stdio::from(log)),
        )?;
        let log = || fs::read_to_string(directory.join("log")).unwrap_or_default();
        let told = process.first_value().with_context(log)?;
        let text = |name: &str| {
            let text = told.get(name).and_then(Value::as_str);
            text.with_context(|| format!("it does not say its {name}: {told}"))
        };
        let address = text("listening")?.trim_start_matches("http://");
        Ok(Self {
            process,
            address: address.parse()?,
            key: text("key")?.to_owned(),
        })
    }
}

fn abp_configuration(upstream: SocketAddr, room: Room) -> String {
    let (server, limit) = match room {
        Room::AsShipped => (String::new(), String::new()),
        Room::Streams(count) => {
            let limit = format!("max_concurrent = {count}\n");
            (format!("[server]\n{limit}"), limit)
        }
    };
    let of = |name: &str, path: &str, models: &str| {
        format!(
            "[upstreams.{name}]\ndialect = \"{name}\"\nbase_url = \"http://{upstream}{path}\"\n\
             models = [\"{models}\"]\nprices = \"list\"\n{limit}"
        )
    };
    let (openai, claude) = (of("openai", "/v1", "gpt-*"), of("claude", "", "claude-*"));
    let prices = "[prices.list.\"*\"]\ninput_usd_per_mtok = 3.0\noutput_usd_per_mtok = 15.0\n";
    format!("{server}{openai}{claude}{prices}")
}
