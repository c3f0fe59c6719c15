//! A server that is a program: its standard streams, and leaving nothing of it behind.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Weak;
use std::time::Duration;

use abp_host::{
    Confinement, ContainedProcess, Egress, EgressReport, Launcher, ProcessSpec, ResourceLimits,
    RunSandbox, is_base_variable,
};
use abp_policy::PolicyEngine;
use sidecar_kit::Decoder;
use tokio::io::{
    AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, BufReader,
};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};

use super::{McpUpstreamError, UpstreamShared};
use crate::message::MESSAGE_LIMITS;

/// How many messages may wait for a server that reads slowly.
const QUEUE: usize = 256;
/// How long a server may take to end by itself, and then after it was asked to.
const GRACE: Duration = Duration::from_secs(2);
/// The longest part of a line that a server wrote to standard error.
const SHOWN: usize = 400;
/// The programs of a server that have not ended; there is one for each connection.
#[derive(Clone, Debug)]
pub struct RunningPrograms(watch::Sender<usize>);

impl Default for RunningPrograms {
    fn default() -> Self {
        Self(watch::channel(0).0)
    }
}

impl RunningPrograms {
    /// Waits until there are none.
    pub async fn ended(&self) {
        let mut running = self.0.subscribe();
        // It can only be told of more, or of none: the sender is this one.
        drop(running.wait_for(|running| *running == 0).await);
    }
}

/// A program that is a server.
#[derive(Clone, Debug)]
pub struct ProgramServer {
    /// The program: an absolute path, or a bare name to be found on `PATH`, outside `directory`.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// What is added to its environment.
    pub env: BTreeMap<String, String>,
    /// The working directory.
    pub directory: PathBuf,
    /// Its sandbox; `None` where the operator wants none.
    pub sandbox: Option<RunSandbox>,
    /// The hosts that it may reach from a sandbox.
    pub network: PolicyEngine,
    /// Who starts it.
    pub launcher: Launcher,
    /// Those that were started.
    pub running: RunningPrograms,
}

/// Ends a program when its connection is closed.
pub(super) struct Keeper {
    process: ContainedProcess,
    running: RunningPrograms,
    /// Done when nobody writes to the program any more.
    closed: oneshot::Receiver<()>,
    /// The proxy of its sandbox, where there is one; ends with this.
    _way_out: JoinSet<()>,
}

type Streams = (tokio::process::ChildStdout, ClosingWriter, Keeper);

/// The program's standard input; its end is told to the keeper.
pub(super) struct ClosingWriter {
    stdin: tokio::net::unix::pipe::Sender,
    _closing: oneshot::Sender<()>,
}

impl ProgramServer {
    pub(super) async fn start(&self) -> Result<Streams, McpUpstreamError> {
        let inherited =
            std::env::vars_os().filter(|(name, _)| is_base_variable(name) || name == "TERM");
        let given = self.env.iter();
        let given = given.map(|(name, value)| (OsString::from(name), OsString::from(value)));
        let spec = ProcessSpec {
            program: self.command.clone().into(),
            args: self.args.iter().map(Into::into).collect(),
            env: inherited.chain(given).collect(),
            marks: BTreeMap::new(),
            directory: self.directory.clone(),
            confinement: match &self.sandbox {
                Some(sandbox) => Confinement::Sandboxed(sandbox.plan.clone()),
                None => Confinement::Hidden(Vec::new()),
            },
            launcher: self.launcher.clone(),
            limits: ResourceLimits::default(),
        };
        let spawned = ContainedProcess::spawn(&spec).await;
        let (process, pipes) = spawned.map_err(|error| {
            let cause = std::error::Error::source(&error);
            let cause = cause.map(|cause| format!(": {cause}")).unwrap_or_default();
            McpUpstreamError::Unreachable(format!("{error}{cause}"))
        })?;
        let mut way_out = JoinSet::new();
        if let Some(listener) = pipes.egress {
            let egress = Egress::start(listener, Some(self.network.clone()));
            let egress =
                egress.map_err(|error| McpUpstreamError::Unreachable(error.to_string()))?;
            way_out.spawn(tell_refusals(egress, self.command.clone()));
        }
        tokio::spawn(drain(pipes.stderr, self.command.clone()));
        let (closing, closed) = oneshot::channel();
        let writer = ClosingWriter {
            stdin: pipes.stdin,
            _closing: closing,
        };
        let keeper = Keeper {
            process,
            running: self.running.clone(),
            closed,
            _way_out: way_out,
        };
        Ok((pipes.stdout, writer, keeper))
    }
}

impl Keeper {
    /// Waits in the background for the connection to be closed, and then sees to it that the program
    /// and all it started end.
    pub(super) fn keep_until_closed(self) {
        let running = self.running.clone();
        running.0.send_modify(|running| *running += 1);
        tokio::spawn(async move {
            self.see_to_its_end().await;
            running.0.send_modify(|running| *running -= 1);
        });
    }

    async fn see_to_its_end(mut self) {
        tokio::select! {
            _ = &mut self.closed => {}
            _ = self.process.exited() => return,
        }
        if tokio::time::timeout(GRACE, self.process.exited())
            .await
            .is_ok()
        {
            return;
        }
        self.process.terminate().await;
        if tokio::time::timeout(GRACE, self.process.exited())
            .await
            .is_ok()
        {
            return;
        }
        self.process.kill().await;
        self.process.exited().await;
    }
}

/// Writes messages. A server that does not read makes nobody wait for longer than the queue is full.
pub(crate) struct LineWriter {
    sender: mpsc::Sender<String>,
    writing: AbortHandle,
}

impl LineWriter {
    pub(super) fn new(mut writer: impl AsyncWrite + Send + Unpin + 'static) -> Self {
        let (sender, mut texts) = mpsc::channel::<String>(QUEUE);
        let writing = tokio::spawn(async move {
            while let Some(mut text) = texts.recv().await {
                text.push('\n');
                let written = writer.write_all(text.as_bytes()).await;
                if written.is_err() || writer.flush().await.is_err() {
                    return;
                }
            }
        });
        Self {
            sender,
            writing: writing.abort_handle(),
        }
    }

    /// Sends a message. What finds the queue full is lost: its request runs into its deadline.
    pub(super) fn send(&self, text: String) {
        if self.sender.try_send(text).is_err() {
            tracing::warn!(target: "abp.mcp", "a server does not read what it is sent");
        }
    }

    /// Closes the stream, whatever waits to be written.
    pub(super) fn close(&self) {
        self.writing.abort();
    }
}

/// Reads messages until the stream ends, which ends the connection.
pub(super) fn read_lines(
    mut reader: impl AsyncRead + Send + Unpin + 'static,
    shared: Weak<UpstreamShared>,
) {
    tokio::spawn(async move {
        let why = read_to_end(&mut reader, &shared).await;
        if let Some(shared) = shared.upgrade() {
            shared.end(&McpUpstreamError::Ended(why));
        }
    });
}

async fn read_to_end(
    reader: &mut (impl AsyncRead + Unpin),
    shared: &Weak<UpstreamShared>,
) -> String {
    let mut decoder = Decoder::new(MESSAGE_LIMITS.max_bytes);
    loop {
        let size = match reader.read_buf(decoder.buffer()).await {
            Ok(size) => size,
            Err(error) => return error.to_string(),
        };
        loop {
            match decoder.take() {
                Ok(Some(lines)) => {
                    for (_, line) in lines.iter() {
                        let Some(shared) = shared.upgrade() else {
                            return String::new();
                        };
                        shared.receive(line.as_bytes(), None).await;
                    }
                }
                Ok(None) => break,
                Err(error) => return error.to_string(),
            }
        }
        if size == 0 {
            return "the server closed its end".to_owned();
        }
    }
}

/// Serves the way out of a sandbox, and logs what was refused there: a server that fails for want of a
/// host says so in its own words, if at all.
async fn tell_refusals(mut egress: Egress, command: String) {
    while let Some(report) = egress.next().await {
        match report {
            EgressReport::Event(event) if !event.is_allowed() => {
                tracing::warn!(target: "abp.mcp", server = command, host = event.host, port = event.port,
                    rule = %event.rule, "the sandbox of an MCP server refused a connection");
            }
            EgressReport::Event(_) => {}
            EgressReport::Lost(count) => {
                tracing::warn!(target: "abp.mcp", server = command, count, "connections were not told");
            }
        }
    }
}

/// Reads what a server writes to standard error, lest it block.
async fn drain(stderr: impl AsyncRead + Unpin, command: String) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        let mut limited = (&mut reader).take(64 * 1024);
        match limited.read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text: String = String::from_utf8_lossy(&line)
                    .trim_end()
                    .chars()
                    .take(SHOWN)
                    .collect();
                tracing::debug!(target: "abp.mcp", server = command, "{text}");
            }
        }
    }
}

impl AsyncWrite for ClosingWriter {
    fn poll_write(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
        bytes: &[u8],
    ) -> std::task::Poll<std::io::Result<usize>> {
        std::pin::Pin::new(&mut self.stdin).poll_write(context, bytes)
    }

    fn poll_flush(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stdin).poll_flush(context)
    }

    fn poll_shutdown(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.stdin).poll_shutdown(context)
    }
}
